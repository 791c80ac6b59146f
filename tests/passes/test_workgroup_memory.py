"""workgroup-memory: what a workgroup's program allocates is shared memory, and each stage behind it agrees."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.workgroup_memory import workgroup_memory
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import check_stages, stages_of_target
from tilewright.tools.check_inputs import Inputs

HEAD = """gpu.module @m { gpu.func @k(%a: memref<64x64xf32>, %o: memref<64x64xf32>, %p: i1) kernel
  attributes {tilewright.level = "workgroup"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
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


def test_views_and_tiles_say_where_they_lie() -> None:
    module = parse_module(HEAD + CASES["a tile that a loop moves, and numbers between"] + FOOT)
    workgroup_memory(kernel_of(module))
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
        workgroup_memory(kernel_of(module))
