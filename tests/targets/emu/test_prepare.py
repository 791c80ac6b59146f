"""Ops that are rewritten before the lowering: calls, maps, loops of several dimensions; and assertions, copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.emu.agree import agree, build, emulate, lane_kernel
from tests.targets.emu.test_blocks import array
from tests.texts import parse_module
from tilewright import knobs
from tilewright.diagnostics import CheckError, UnsupportedError
from tilewright.runtime.arrays import describe

LANES = 'tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64'


def test_calls_of_functions_of_the_module(rng):
    module = parse_module(
        f"""
gpu.module @m {{
  func.func @twice(%x: f32) -> f32 {{
    %y = arith.addf %x, %x : f32
    return %y : f32
  }}
  func.func @four_times(%x: f32) -> f32 {{
    %y = func.call @twice(%x) : (f32) -> f32
    %z = func.call @twice(%y) : (f32) -> f32
    return %z : f32
  }}
  gpu.func @k(%a: memref<16xf32>, %o: memref<16xf32>) kernel attributes {{{LANES}}} {{
    %lane = gpu.lane_id
    %x = memref.load %a[%lane] : memref<16xf32>
    %y = func.call @four_times(%x) : (f32) -> f32
    memref.store %y, %o[%lane] : memref<16xf32>
    gpu.return
  }}
}}""",
        "calls.mlir",
    )
    a, o = agree(module, [array(rng, "f32", 16), array(rng, "f32", 16)])
    np.testing.assert_array_equal(o, 4 * a)


def test_a_function_that_calls_itself_is_refused():
    module = parse_module(
        f"""
gpu.module @m {{
  func.func @again() {{
    func.call @again() : () -> ()
    return
  }}
  gpu.func @k() kernel attributes {{{LANES}}} {{
    func.call @again() : () -> ()
    gpu.return
  }}
}}""",
        "calls.mlir",
    )
    with pytest.raises(UnsupportedError, match="deep"):
        build(module)


def test_maps_and_loops_of_several_dimensions(rng):
    body = """
  %lane = gpu.lane_id
  scf.parallel (%i, %j) = (%c0, %c1) to (%c3, %c4) step (%c1, %c2) {
    %at = affine.apply affine_map<(d0, d1)[s0] -> ((d0 * 5 + d1 - 3) mod 16 + s0 floordiv 3)>(%lane, %i)[%j]
    %x = memref.load %a[%at] : memref<32xf32>
    %k = affine.apply affine_map<(d0, d1) -> (d0 * 4 + d1)>(%i, %j)
    memref.store %x, %o[%lane, %k] : memref<16x12xf32>
    scf.reduce
  }"""
    args = "%a: memref<32xf32>, %o: memref<16x12xf32>"
    agree(lane_kernel(args, body), [array(rng, "f32", 32), array(rng, "f32", 16, 12)])


def test_copies(rng):
    body = """
  %lane = gpu.lane_id
  %own = memref.alloca() : memref<4xf32>
  %row = memref.subview %a[%lane, 0] [1, 4] [1, 1] : memref<16x4xf32> to memref<4xf32, strided<[1], offset: ?>>
  memref.copy %row, %own : memref<4xf32, strided<[1], offset: ?>> to memref<4xf32>
  %to = memref.subview %o[0, %lane] [4, 1] [1, 1] : memref<4x16xf32> to memref<4xf32, strided<[16], offset: ?>>
  memref.copy %own, %to : memref<4xf32> to memref<4xf32, strided<[16], offset: ?>>"""
    args = "%a: memref<16x4xf32>, %o: memref<4x16xf32>"
    a, o = agree(lane_kernel(args, body), [array(rng, "f32", 16, 4), array(rng, "f32", 4, 16)])
    np.testing.assert_array_equal(o, a.T)


@pytest.mark.parametrize("limit", [16, 11])
def test_assertions(limit):
    body = f"""
  %lane = gpu.lane_id
  %n = arith.constant {limit} : index
  %k = arith.cmpi ult, %lane, %n : index
  cf.assert %k, "lanes below {limit}"
  memref.store %lane, %o[%lane] : memref<16xindex>"""
    module, o = lane_kernel("%o: memref<16xindex>", body), np.full(16, -1)
    if limit == 16:
        agree(module, [o])
        return
    with pytest.raises(CheckError, match="lanes below 11"):
        emulate(module, (1, 1, 1), [o])


def test_the_first_workgroup_that_fails_is_told():
    """In the order of the grid, whichever fails before."""
    body = """
  %x = gpu.block_id x
  %no = arith.constant false
  %one = arith.constant 1 : i64
  %most = arith.constant 5000000 : index
  %first = arith.cmpi eq, %x, %c0 : index
  %end = arith.select %first, %most, %c1 : index
  scf.for %i = %c0 to %end step %c1 {
    %old = memref.atomic_rmw addi %one, %o[%x] : (i64, memref<4xi64>) -> i64
  }
  cf.assert %no, "nothing holds" """
    executable = build(lane_kernel("%o: memref<4xi64>", body))
    with (
        knobs.override(num_threads=2),
        pytest.raises(CheckError, match=r"workgroup \(0, 0, 0\): nothing"),
    ):
        executable.launch((4, 1, 1), [describe(np.zeros(4, np.int64), "o")])
