"""What a tile lies in: an array that the kernel writes, by whatever op, is not read-only; how parts are aligned."""

from __future__ import annotations

import pytest
from xdsl.dialects.memref import SubviewOp

from tests.texts import parse_module
from tilewright.dialects.xetile import LoadTileOp
from tilewright.passes.integers import extent_divisor
from tilewright.passes.tile_origin import is_read_only, memory_alignment

RING = "!stage.multi_buffer<2, [#stage.part<16x32xf32, order = [1, 0], swizzle = 128>]>"
STORES = {
    "nothing": ("", True),
    "a tile": ("xetile.store_tile %v, %t : vector<16x64xf32>, !xetile.tile<16x64xf32>", False),
    "another array": (
        "xetile.store_tile %v, %u : vector<16x64xf32>, !xetile.tile<16x64xf32>",
        True,
    ),
    "the copy engine": (
        f"stage.copy.store %v, %t through %r : vector<16x64xf32>, !xetile.tile<16x64xf32>, {RING}",
        False,
    ),
    "an element": ("memref.store %x, %a[%c0, %c0] : memref<64x64xf32>", False),
    "an element of another array": ("memref.store %x, %b[%c0, %c0] : memref<64x64xf32>", True),
    "a print": ('tw.print "{}" %c0 : index', True),
}


@pytest.mark.parametrize("store, is_kept", STORES.values(), ids=STORES)
def test_what_is_written_is_not_read_only(store: str, is_kept: bool) -> None:
    module = parse_module(f"""
gpu.module @m {{ gpu.func @k(%a: memref<64x64xf32>, %b: memref<64x64xf32>, %x: f32) kernel
    attributes {{tilewright.args = [{{noalias}}, {{noalias}}, {{}}]}} {{
  %r = stage.multi_buffer : {RING}
  %t = xetile.init_tile %a[%c0, %c0] : memref<64x64xf32> -> !xetile.tile<16x64xf32>
  %u = xetile.init_tile %b[%c0, %c0] : memref<64x64xf32> -> !xetile.tile<16x64xf32>
  %v = xetile.load_tile %t : !xetile.tile<16x64xf32> -> vector<16x64xf32>
  {store}
  gpu.return }} }}""")
    (load,) = [op for op in module.walk() if isinstance(op, LoadTileOp)]
    assert is_read_only(load.tile) is is_kept


A, C = "memref<?x?xbf16, strided<[?, 1]>>", "memref<64x33xbf16>"
PARTS = {
    "rows from anywhere": (f"%a[%n, 0] [%m, 64] [1, 1] : {A}", "?x64", "?, 1", 16, (4, 64)),
    "columns from a multiple of 4": (f"%a[%n, %m] [4, 4] [1, 1] : {A}", "4x4", "?, 1", 8, (4, 4)),
    "columns from anywhere": (f"%a[0, %n] [%n, %m] [1, 1] : {A}", "?x?", "?, 1", 2, (1, 4)),
    "every other column": (f"%a[0, 0] [4, 4] [1, 2] : {A}", "4x4", "?, 2", 2, (4, 4)),
    "every other row": (f"%a[0, 0] [4, 64] [2, 1] : {A}", "4x64", "?, 1", 16, (4, 64)),
    "rows of an odd pitch": (f"%c[2, 0] [4, 33] [1, 1] : {C}", "4x33", "33, 1", 4, (4, 33)),
    "one row": (f"%a[%n, 0] [1, %m] [1, 1] : {A}", "?", "1", 16, (4,)),
}


@pytest.mark.parametrize("part, shape, strides, alignment, extents", PARTS.values(), ids=PARTS)
def test_a_part_is_as_aligned_as_its_place_in_its_array(
    part: str, shape: str, strides: str, alignment: int, extents: tuple[int, ...]
) -> None:
    module = parse_module(f"""
gpu.module @m {{ gpu.func @k(%a: {A}, %c: {C}, %n: index) kernel
    attributes {{tilewright.args = [{{align = 16 : i64}}, {{align = 16 : i64}}, {{}}]}} {{
  %m = arith.muli %n, %c4 : index
  %v = memref.subview {part} to memref<{shape}xbf16, strided<[{strides}], offset: ?>>
  gpu.return }} }}""")
    (view,) = [op for op in module.walk() if isinstance(op, SubviewOp)]
    assert memory_alignment(view.result, 2) == alignment
    assert tuple(extent_divisor(view.result, n) for n in range(len(extents))) == extents
