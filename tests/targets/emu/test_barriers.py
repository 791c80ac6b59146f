# ruff: noqa: E501
"""Subgroups that share memory and meet: barriers of all, of some, split ones, and those where nobody comes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.test_barriers import RING, named
from tests.targets.emu.agree import agree, build, emulate, lane_kernel, subgroup_kernel
from tests.targets.emu.test_blocks import array
from tilewright.diagnostics import CheckError
from tilewright.runtime.arrays import describe

REVERSE = """
  %lane = gpu.lane_id
  %sg = gpu.subgroup_id
  %b = gpu.block_id x
  %n = arith.constant 6 : index
  %z = arith.constant 0.0 : f32
  %slm = memref.alloc() : memref<4x16xf32, 3>
  %other = arith.subi %c3, %sg : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %z) -> (f32) {
    %x = memref.load %a[%b, %i, %sg, %lane] : memref<3x6x4x16xf32>
    memref.store %x, %slm[%sg, %lane] : memref<4x16xf32, 3>
    gpu.barrier
    %y = memref.load %slm[%other, %lane] : memref<4x16xf32, 3>
    %s = arith.addf %acc, %y : f32
    gpu.barrier
    scf.yield %s : f32
  }
  memref.store %r, %o[%b, %sg, %lane] : memref<3x4x16xf32>"""


def test_subgroups_exchange_through_shared_memory(rng):
    """A barrier in a loop, in three workgroups."""
    args = "%a: memref<3x6x4x16xf32>, %o: memref<3x4x16xf32>"
    arrays = [array(rng, "f32", 3, 6, 4, 16), array(rng, "f32", 3, 4, 16)]
    a, o = agree(lane_kernel(args, REVERSE, subgroups=4), arrays, (3, 1, 1))
    np.testing.assert_allclose(o, a.sum(axis=1)[:, ::-1], rtol=1e-4, atol=1e-5)


def test_shared_memory_is_fresh_in_every_workgroup(rng):
    body = """
  %lane = gpu.lane_id
  %b = gpu.block_id x
  %slm = memref.alloc() : memref<16xf32, 3>
  %x = memref.load %slm[%lane] : memref<16xf32, 3>
  memref.store %x, %o[%b, %lane] : memref<4x16xf32>
  %one = arith.constant 1.0 : f32
  memref.store %one, %slm[%lane] : memref<16xf32, 3>"""
    o = np.zeros((4, 16), np.float32)
    emulate(lane_kernel("%o: memref<4x16xf32>", body), (4, 1, 1), [o])
    assert np.isnan(o).all()


PAIRS = """
  %sg = gpu.subgroup_id
  %row = arith.muli %sg, %c8 : index
  %slm = memref.alloc() : memref<2048xi8, 3>
  %m = xegpu.create_mem_desc %slm : memref<2048xi8, 3> -> !xegpu.mem_desc<32x16xf32, #xegpu.mem_layout<stride = [1, 32], block = [8, 16]>>
  %pair = arith.divui %sg, %c2 : index
  %id0 = arith.addi %pair, %c1 : index
  %id = arith.index_cast %id0 : index to i8
  %n = arith.constant 2 : i8
  xegpu.alloc_nbarrier 3
  %bar = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
  %t = xegpu.create_nd_tdesc %a : memref<32x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %u = xegpu.create_nd_tdesc %b : memref<32x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %one = arith.xori %sg, %c1 : index
  %other = arith.muli %one, %c8 : index
  %v = xegpu.load_nd %t[%row, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  xegpu.store_matrix %v, %m[%row, 0] : vector<8x16xf32>, !xegpu.mem_desc<32x16xf32, #xegpu.mem_layout<stride = [1, 32], block = [8, 16]>>, index
  xegpu.nbarrier_arrive %bar : !xegpu.nbarrier
  xegpu.nbarrier_wait %bar : !xegpu.nbarrier
  %w = xegpu.load_matrix %m[%other, 0] : !xegpu.mem_desc<32x16xf32, #xegpu.mem_layout<stride = [1, 32], block = [8, 16]>>, index -> vector<8x16xf32>
  xegpu.store_nd %w, %u[%row, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>"""


def test_pairs_of_subgroups_meet_at_barriers_of_their_own(rng):
    args = "%a: memref<32x16xf32>, %b: memref<32x16xf32>"
    arrays = [array(rng, "f32", 32, 16), array(rng, "f32", 32, 16)]
    a, b = agree(subgroup_kernel(args, PAIRS, subgroups=4), arrays)
    np.testing.assert_array_equal(b.reshape(4, 8, 16), a.reshape(4, 8, 16)[[1, 0, 3, 2]])


def test_lanes_of_subgroups_meet_at_named_barriers(rng):
    """The participants of a named barrier are subgroups, also in a program of lanes."""
    body = """
  %lane = gpu.lane_id
  %sg = gpu.subgroup_id
  %slm = memref.alloc() : memref<2x16xf32, 3>
  %id = arith.constant 3 : i8
  %n = arith.constant 2 : i8
  %bar = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
  %x = memref.load %a[%sg, %lane] : memref<2x16xf32>
  memref.store %x, %slm[%sg, %lane] : memref<2x16xf32, 3>
  xegpu.nbarrier_arrive %bar : !xegpu.nbarrier
  xegpu.nbarrier_wait %bar : !xegpu.nbarrier
  %other = arith.subi %c1, %sg : index
  %y = memref.load %slm[%other, %lane] : memref<2x16xf32, 3>
  memref.store %y, %o[%sg, %lane] : memref<2x16xf32>"""
    args = "%a: memref<2x16xf32>, %o: memref<2x16xf32>"
    arrays = [array(rng, "f32", 2, 16), array(rng, "f32", 2, 16)]
    agree(lane_kernel(args, body, subgroups=2), arrays)


def test_a_producer_and_a_consumer_split_arriving_from_waiting(rng):
    body = named(RING.replace("RELEASE", "arrive(%empty, %c1)"))
    arrays = [array(rng, "f32", 6), np.full(6, np.nan, np.float32)]
    source, out = agree(
        subgroup_kernel("%in: memref<6xf32>, %out: memref<6xf32>", body, subgroups=2), arrays
    )
    np.testing.assert_array_equal(source, out)


def test_a_deadlock_says_where_everybody_is():
    body = named(RING.replace("RELEASE", ""))
    module = subgroup_kernel("%in: memref<6xf32>, %out: memref<6xf32>", body, subgroups=2)
    with pytest.raises(CheckError) as caught:
        emulate(module, (1, 1, 1), [np.zeros(6, np.float32), np.zeros(6, np.float32)])
    text = str(caught.value)
    assert "deadlock" in text and "kernel.mlir:" in text
    assert "named barrier 2" in text and "waiting: 0" in text and "waiting: 1" in text


def test_a_barrier_that_one_subgroup_never_reaches():
    body = """
  %sg = gpu.subgroup_id
  %first = arith.cmpi eq, %sg, %c0 : index
  scf.if %first {
    gpu.barrier
  }
  memref.store %sg, %o[%sg] : memref<3xindex>"""
    executable = build(lane_kernel("%o: memref<3xindex>", body, subgroups=3))
    for _ in range(2):  # a launch that failed leaves nothing behind
        o = np.full(3, -1)
        with pytest.raises(CheckError) as caught:
            executable.launch((2, 1, 1), [describe(o)])
        text = str(caught.value)
        assert "gpu.barrier reached by 1 of 3 subgroups (0)" in text and "ended: 1, 2" in text
        assert (o[1:] == [1, 2]).all()


def test_participants_must_agree():
    body = """
  %s = gpu.subgroup_id
  %n = arith.addi %s, %c1 : index
  arrive(%c0, %n)"""
    with pytest.raises(CheckError, match="different numbers of participants"):
        emulate(subgroup_kernel("", named(body), subgroups=2), (1, 1, 1), [])


def test_a_subgroup_may_wait_for_what_another_writes(rng):
    """A loop that looks at memory lets the others run."""
    body = """
  %sg = gpu.subgroup_id
  %zero = arith.constant 0 : i32
  %seven = arith.constant 7 : i32
  %slm = memref.alloc() : memref<1xi32, 3>
  %first = arith.cmpi eq, %sg, %c0 : index
  scf.if %first {
    scf.while () : () -> () {
      %x = memref.load %slm[%c0] : memref<1xi32, 3>
      %wait = arith.cmpi ne, %x, %seven : i32
      scf.condition(%wait)
    } do {
      scf.yield
    }
    memref.store %seven, %o[%c0] : memref<1xi32>
  } else {
    memref.store %seven, %slm[%c0] : memref<1xi32, 3>
  }"""
    (o,) = agree(lane_kernel("%o: memref<1xi32>", body, subgroups=2), [np.zeros(1, np.int32)])
    assert o[0] == 7


def test_shared_matrices_of_lanes(rng):
    """Runs of a row, and columns of the lanes with subgroup_block_io."""
    t = "!xegpu.mem_desc<32x32xf16, #xegpu.mem_layout<block = [16, 16]>>"
    body = f"""
  %lane = gpu.lane_id
  %slm = memref.alloc() : memref<2048xi8, 3>
  %m = xegpu.create_mem_desc %slm : memref<2048xi8, 3> -> {t}
  %x0 = vector.load %a[%lane, %c0] : memref<32x32xf16>, vector<32xf16>
  %l2 = arith.muli %lane, %c2 : index
  %r1 = arith.constant 16 : index
  %low = arith.addi %lane, %r1 : index
  %x1 = vector.load %a[%low, %c0] : memref<32x32xf16>, vector<32xf16>
  xegpu.store_matrix %x0, %m[%lane, 0] : vector<32xf16>, {t}, index
  xegpu.store_matrix %x1, %m[%low, 0] : vector<32xf16>, {t}, index
  gpu.barrier
  %v = xegpu.load_matrix %m[16, 16] <{{subgroup_block_io}}> : {t} -> vector<8xf16>
  %w = xegpu.load_matrix %m[%lane, %l2] : {t}, index, index -> vector<2xf16>
  vector.store %v, %o[%lane, %c0] : memref<16x16xf16>, vector<8xf16>
  vector.store %w, %o[%lane, %c8] : memref<16x16xf16>, vector<2xf16>"""
    args = "%a: memref<32x32xf16>, %o: memref<16x16xf16>"
    agree(lane_kernel(args, body), [array(rng, "f16", 32, 32), array(rng, "f16", 16, 16)])


@pytest.mark.parametrize(("element", "kind"), [("f32", "add"), ("i32", "maxsi"), ("f16", "add")])
def test_reductions_over_the_workgroup(rng, element, kind):
    """In a loop, so that the place is used again."""
    body = f"""
  %lane = gpu.lane_id
  %sg = gpu.subgroup_id
  %b = gpu.block_id x
  scf.for %i = %c0 to %c3 step %c1 {{
    %x = memref.load %a[%b, %i, %sg, %lane] : memref<2x3x4x16x{element}>
    %r = gpu.all_reduce {kind} %x {{}} : ({element}) -> {element}
    memref.store %r, %o[%b, %i, %sg, %lane] : memref<2x3x4x16x{element}>
  }}"""
    shape = (2, 3, 4, 16)
    args = f"%a: memref<2x3x4x16x{element}>, %o: memref<2x3x4x16x{element}>"
    arrays = [array(rng, element, *shape), array(rng, element, *shape)]
    limit = 2e-3 if element == "f16" else 1e-5
    _, o = agree(lane_kernel(args, body, subgroups=4), arrays, (2, 1, 1), limit=limit)
    assert (o == o[:, :, :1, :1]).all()
