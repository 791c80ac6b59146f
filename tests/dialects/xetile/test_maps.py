"""Maps are found under every name that the two RFCs and the implementation give them."""

from __future__ import annotations

from tests.dialects.xetile.test_roundtrip import program
from tilewright.dialects.text import parse_module
from tilewright.dialects.xetile import WgMapAttr, operand_map, result_map

ONE = WgMapAttr((2, 2), (16, 16))
TWO = WgMapAttr((4, 1), (8, 32))
ROW = WgMapAttr((2, 1), (16, 1))


def ops(*lines: str):
    module = parse_module(program(*lines))
    return [op for op in module.walk() if op.name not in ("builtin.module", "func.func")][:-1]


def test_maps_of_results() -> None:
    tile = f"!xetile.tile<32x32xf16, #xetile.tile_attr<wg_map = {str(ONE)[14:]}>>"
    _, load, add, mma, convert, plain = ops(
        f"%1 = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> {tile}",
        f"%2 = xetile.load_tile %1 : {tile} -> vector<32x32xf16>",
        f"%3 = arith.addf %2, %2 {{map = {TWO}}} : vector<32x32xf16>",
        f"%4 = xetile.tile_mma %a, %a {{wg_map_a = {ONE}, wg_map_c = {TWO}}} : vector<32x32xf16>, "
        "vector<32x32xf16> -> vector<32x32xf32>",
        f"%5 = xetile.convert_layout %a {{wg_map_result = {TWO}, wg_map_source = {ONE}}} : "
        "vector<32x32xf16>",
        "%6 = arith.addf %a, %a : vector<32x32xf16>",
    )
    found = [result_map(op) for op in (load, add, mma, convert, plain)]
    assert found == [ONE, TWO, TWO, TWO, None]
    assert [operand_map(mma, i) for i in range(2)] == [ONE, None]
    assert operand_map(convert, 0) == ONE


def test_maps_of_reductions_under_both_names() -> None:
    ours, theirs = ops(
        f"%1 = xetile.reduction <add>, %a [1] {{wg_map = {ROW}, wg_map_source = {ONE}}} : "
        "vector<32x32xf16> -> vector<32x1xf16>",
        f"%2 = xetile.reduction <add>, %a [1] {{map1 = {ONE}, map2 = {ROW}}} : "
        "vector<32x32xf16> -> vector<32x1xf16>",
    )
    for op in (ours, theirs):
        assert result_map(op) == ROW
        assert operand_map(op, 0) == ONE
