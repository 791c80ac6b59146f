"""The stage dialect's asynchronous part: text, and what its verifiers refuse."""

from __future__ import annotations

import pytest

from tests.reference.stage_programs import PRODUCT
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module


@pytest.mark.parametrize("readable", [True, False])
def test_text_round_trip(readable: bool) -> None:
    first = print_module(parse_module(PRODUCT), readable=readable)
    assert print_module(parse_module(first), readable=readable) == first


def test_other_ops_round_trip() -> None:
    text = """
    func.func @f(%v: vector<128x64xbf16>, %t: !xetile.tile<128x64xbf16>) {
      %i, %n, %k = stage.worker
      %p = stage.programs {axis = 1 : i64}
      %r = stage.ring : !stage.ring<4, [#stage.part<64x64xbf16, order = [1, 0], swizzle = 128>]>
      stage.store %v, %t through %r : vector<128x64xbf16>, !xetile.tile<128x64xbf16>,
        !stage.ring<4, [#stage.part<64x64xbf16, order = [1, 0], swizzle = 128>]>
      func.return
    }
    """
    first = print_module(parse_module(text))
    assert print_module(parse_module(first)) == first


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("!stage.cursor<2>", "!stage.cursor<3>", "a cursor of 3 slots in a ring of 2 slots"),
        ("swizzle = 128>", "swizzle = 96>", "a swizzle spans 0, 32, 64 or 128 bytes"),
        ("#stage.part<128x64xbf16, order", "#stage.part<64x64xbf16, order", "is not the part"),
        ("warps = 4 : i64", "warps = 0 : i64", "a role has at least one warp"),
        ("%p0 = stage.mma.start %cst : vector<128x128xf32>", "%p0 = stage.mma.start %cst : index",
         "stage.mma.start takes a vector"),
        ("stage.mma.wait {pending = 1 : i64}", "stage.mma.wait {pending = -1 : i64}",
         "cannot be left"),
    ],
)  # fmt: skip
def test_refusals(old: str, new: str, message: str) -> None:
    assert old in PRODUCT
    with pytest.raises(TilewrightError, match=message):
        parse_module(PRODUCT.replace(old, new))
