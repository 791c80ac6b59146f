"""What a tile lies in: an array that the kernel writes, by whatever op, is not read-only."""

from __future__ import annotations

import pytest

from tilewright.dialects.text import parse_module
from tilewright.dialects.xetile import LoadTileOp
from tilewright.passes.tile_origin import is_read_only

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
  %c0 = arith.constant 0 : index
  %r = stage.multi_buffer : {RING}
  %t = xetile.init_tile %a[%c0, %c0] : memref<64x64xf32> -> !xetile.tile<16x64xf32>
  %u = xetile.init_tile %b[%c0, %c0] : memref<64x64xf32> -> !xetile.tile<16x64xf32>
  %v = xetile.load_tile %t : !xetile.tile<16x64xf32> -> vector<16x64xf32>
  {store}
  gpu.return }} }}""")
    (load,) = [op for op in module.walk() if isinstance(op, LoadTileOp)]
    assert is_read_only(load.tile) is is_kept
