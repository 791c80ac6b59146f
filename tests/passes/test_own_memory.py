"""own-memory: what a workgroup's program allocates is shared memory, and each stage behind it agrees."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.texts import parse_module
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import print_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.own_memory import own_memory
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import check_stages, stages_of_target
from tilewright.tools.check_inputs import Inputs

HEAD = """gpu.module @m { gpu.func @k(%a: memref<64x64xf32>, %o: memref<64x64xf32>, %p: i1) kernel
  attributes {tilewright.level = "workgroup"} {
  %x = arith.constant 2.5 : f32
"""
FOOT = "gpu.return } }"
WHOLE, ROW = "vector<64x64xf32>", "!xetile.tile<16x64xf32>"
FILL = f"""%ta = xetile.init_tile %a[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  %va = xetile.load_tile %ta : !xetile.tile<64x64xf32> -> {WHOLE}
  %m = memref.alloca() : memref<64x64xf32>
  %tm = xetile.init_tile %m[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  xetile.store_tile %va, %tm : {WHOLE}, !xetile.tile<64x64xf32>
"""
CASES = {
    "a tile that a loop moves, and numbers between": f"""{FILL}
  memref.store %x, %m[%c16, %c1] : memref<64x64xf32>
  %t = xetile.init_tile %m[0, 0] : memref<64x64xf32> -> {ROW}
  %d = xetile.init_tile %o[48, 0] : memref<64x64xf32> -> {ROW}
  scf.for %i = %c0 to %c64 step %c16 iter_args(%s = %t, %e = %d) -> ({ROW}, {ROW}) {{
    %v = xetile.load_tile %s : {ROW} -> vector<16x64xf32>
    xetile.store_tile %v, %e : vector<16x64xf32>, {ROW}
    memref.store %x, %m[%c1, %i] : memref<64x64xf32>
    %y = memref.load %m[%c1, %i] : memref<64x64xf32>
    memref.store %y, %o[%i, %i] : memref<64x64xf32>
    %u = xetile.update_tile_offset %s, [16, 0] : {ROW}
    %f = xetile.update_tile_offset %e, [-16, 0] : {ROW}
    scf.yield %u, %f : {ROW}, {ROW}
  }}""",
    "vectors of views": f"""{FILL}
  %b = memref.alloc() : memref<4096xf32>
  %f = memref.collapse_shape %m [[0, 1]] : memref<64x64xf32> into memref<4096xf32>
  memref.copy %f, %b : memref<4096xf32> to memref<4096xf32>
  %s = memref.reinterpret_cast %b to offset: [64], sizes: [32, 32], strides: [1, 64]
      : memref<4096xf32> to memref<32x32xf32, strided<[1, 64], offset: 64>>
  %v = vector.transfer_read %s[%c0, %c1], %x
      : memref<32x32xf32, strided<[1, 64], offset: 64>>, vector<32x32xf32>
  vector.transfer_write %v, %o[%c16, %c1] : vector<32x32xf32>, memref<64x64xf32>
  memref.dealloc %b : memref<4096xf32>""",
}


@pytest.mark.parametrize("name", CASES)
def test_every_stage_agrees(name: str) -> None:
    module = parse_module(HEAD + CASES[name] + FOOT)
    arrays = [fresh_rng().standard_normal((64, 64)).astype(np.float32) for _ in range(2)]
    stages = stages_of_target(module, CompileOptions(target="xe-pvc"))
    found = check_stages(stages[:-1], Inputs((1, 1, 1), (*arrays, True)))
    assert found is None, str(found)


OWN = """gpu.module @m { gpu.func @k(%a: memref<32x16xf32>, %o: memref<32x16xf32>) kernel
  attributes {tilewright.level = "LEVEL", tilewright.subgroups = 2 : i64, tilewright.lanes = 16 : i64} {
  %m = memref.alloca() : memref<2x4xf32>
  %k = memref.alloca() : memref<i32>
  %sg = gpu.subgroup_id : index
  BODY
  gpu.return } }"""
OWN_BODY = {
    "subgroup": """%z = arith.constant 0 : i32
  %r = arith.constant 8 : index
  %p = arith.constant 0.0 : f32
  memref.store %z, %k[] : memref<i32>
  %s = memref.subview %m[1, 0] [1, 4] [1, 1] : memref<2x4xf32> to memref<4xf32, strided<[1], offset: 4>>
  scf.for %i = %sg to %c3 step %c1 {
    %x = memref.load %a[%i, %sg] : memref<32x16xf32>
    memref.store %x, %s[%sg] : memref<4xf32, strided<[1], offset: 4>>
    %n = memref.load %k[] : memref<i32>
    %y = memref.load %m[%c1, %sg] : memref<2x4xf32>
    %g = arith.fptosi %y : f32 to i32
    %h = arith.addi %n, %g : i32
    memref.store %h, %k[] : memref<i32>
  }
  %q = vector.transfer_read %a[%c0, %c0], %p : memref<32x16xf32>, vector<2x4xf32>
  vector.transfer_write %q, %m[%c0, %c0] : vector<2x4xf32>, memref<2x4xf32>
  %x = memref.load %m[%c1, %sg] : memref<2x4xf32>
  %n = memref.load %k[] : memref<i32>
  %f = arith.sitofp %n : i32 to f32
  %e = arith.addf %f, %x : f32
  memref.store %e, %o[%sg, %c3] : memref<32x16xf32>""",
    "lane": """%lane = gpu.lane_id
  %one = arith.constant 1 : i32
  %j = arith.remui %lane, %c3 : index
  %x = memref.load %a[%sg, %lane] : memref<32x16xf32>
  memref.store %x, %m[%c1, %j] : memref<2x4xf32>
  memref.store %one, %k[] : memref<i32>
  %was = memref.atomic_rmw addi %one, %k[] : (i32, memref<i32>) -> i32
  %n = memref.load %k[] : memref<i32>
  %y = memref.load %m[%c1, %j] : memref<2x4xf32>
  %f = arith.sitofp %n : i32 to f32
  %e = arith.addf %f, %y : f32
  memref.store %e, %o[%sg, %lane] : memref<32x16xf32>""",
}


@pytest.mark.parametrize("level", OWN_BODY)
@pytest.mark.parametrize("target", ["xe-pvc", "xe-dg2"])
def test_each_has_its_own(level: str, target: str) -> None:
    text = OWN.replace("LEVEL", level).replace("BODY", OWN_BODY[level])
    if target == "xe-dg2":
        text = text.replace("lanes = 16", "lanes = 8")
    module = parse_module(text)
    arrays = [10 * fresh_rng().standard_normal((32, 16)).astype(np.float32) for _ in range(2)]
    stages = stages_of_target(module, CompileOptions(target=target))
    assert "pass own-memory" in [stage.name for stage in stages]
    found = check_stages(stages[:-1], Inputs((1, 1, 1), tuple(arrays)))
    assert found is None, str(found)


def test_views_and_tiles_say_where_they_lie() -> None:
    module = parse_module(HEAD + CASES["a tile that a loop moves, and numbers between"] + FOOT)
    own_memory(kernel_of(module))
    verify_module(module)
    text = print_module(module)
    assert "memref.alloca() : memref<64x64xf32, 3>" in text
    # Of two tiles that the loop carries, one is of shared memory, as are its start, its next and its result.
    assert text.count("!xetile.tile<16x64xf32, #xetile.tile_attr<memory_space = 3") > 3


def test_an_array_of_the_launch_is_no_memory_of_the_workgroup() -> None:
    module = parse_module(
        f"""{HEAD}{FILL}
  %t = xetile.init_tile %m[0, 0] : memref<64x64xf32> -> {ROW}
  %d = xetile.init_tile %o[0, 0] : memref<64x64xf32> -> {ROW}
  %e = arith.select %p, %t, %d : {ROW}
  %v = xetile.load_tile %e : {ROW} -> vector<16x64xf32>
  xetile.store_tile %v, %d : vector<16x64xf32>, {ROW}
  {FOOT}"""
    )
    with pytest.raises(UnsupportedError, match=r"arith.select gives memory of the workgroup or an"):
        own_memory(kernel_of(module))
