"""What the public implementation refuses and the RFC allows: a warning, an error when strict."""

from __future__ import annotations

import pytest

from tests.dialects.xetile.test_roundtrip import WG, program
from tests.dialects.xetile.test_rules import error_of, function
from tilewright.dialects.text import parse_module

# Legal by the RFC, refused by the public implementation.
NARROWER = {
    "several subgroups own the same data": (
        "%v: vector<64x64xf32>, %t: !xetile.tile<64x64xf32, #xetile.tile_attr<wg_map = "
        "<sg_layout = [8, 4], sg_data = [16, 16]>>>",
        "xetile.store_tile %v, %t : vector<64x64xf32>, !xetile.tile<64x64xf32, "
        "#xetile.tile_attr<wg_map = <sg_layout = [8, 4], sg_data = [16, 16]>>>",
        "data is not evenly distributed to each subgroup.",
    ),
    "source map of convert_layout": (
        "%v: vector<64x64xf32>",
        "%r = xetile.convert_layout %v {wg_map_result = #xetile.wg_map<sg_layout = [4, 8], "
        "sg_data = [16, 8]>, wg_map_source = #xetile.wg_map<sg_layout = [8, 4], "
        "sg_data = [16, 16]>} : vector<64x64xf32>",
        "data is not evenly distributed to each subgroup.",
    ),
    "a matrix with a longer pitch": (
        "%x: memref<64x64xf16, strided<[128, 1]>>",
        "%r = xetile.init_tile %x[0, 0] : memref<64x64xf16, strided<[128, 1]>> "
        "-> !xetile.tile<8x8xf16>",
        "memref operand is expected to have a row-major layout",
    ),
}


@pytest.mark.parametrize("name", NARROWER)
def test_narrower_rules_warn_and_are_errors_when_strict(name: str) -> None:
    arguments, op, message = NARROWER[name]
    text = function(arguments, op)
    warnings: list[str] = []
    parse_module(text, "kernel.mlir", warnings=warnings)
    assert len(warnings) == 1
    assert warnings[0].startswith("kernel.mlir:2:")
    assert (
        f"warning: '{op.split('=', 1)[1].split()[0] if op[0] == '%' else op.split()[0]}'"
        in (warnings[0])
    )
    assert message in warnings[0]
    assert message in error_of(text, strict=True).message


def test_legal_programs_give_no_warning() -> None:
    warnings: list[str] = []
    text = program(
        "%x = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> !xetile.tile<64x64xf16, "
        f"#xetile.tile_attr<wg_map = {WG.removeprefix('#xetile.wg_map')}>>",
    )
    parse_module(text, warnings=warnings, strict=True)
    assert warnings == []
