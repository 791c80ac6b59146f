"""Maps are found under every name that the two RFCs and the implementation give them."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tests.dialects.xetile.test_roundtrip import program
from tilewright.dialects.text import parse_module
from tilewright.dialects.xetile import WgMapAttr
from tilewright.dialects.xetile.maps import stated_maps

ONE = WgMapAttr((2, 2), (16, 16))
TWO = WgMapAttr((4, 1), (8, 32))
ROW = WgMapAttr((2, 1), (16, 1))


def ops(*lines: str):
    module = parse_module(program(*lines))
    return [op for op in module.walk() if op.name not in ("builtin.module", "func.func")][:-1]


def stated(op: Operation) -> list[tuple[WgMapAttr, SSAValue]]:
    return [(table[name], value) for table, name, value in stated_maps(op)]  # pyright: ignore


def test_maps_of_values() -> None:
    add, mma, convert, plain = ops(
        f"%3 = arith.addf %a, %a {{map = {TWO}}} : vector<32x32xf16>",
        f"%4 = xetile.tile_mma %a, %a {{wg_map_a = {ONE}, wg_map_c = {TWO}}} : vector<32x32xf16>, "
        "vector<32x32xf16> -> vector<32x32xf32>",
        f"%5 = xetile.convert_layout %a {{wg_map_result = {TWO}, wg_map_source = {ONE}}} : "
        "vector<32x32xf16>",
        "%6 = arith.addf %a, %a : vector<32x32xf16>",
    )
    assert stated(add) == [(TWO, add.results[0])]
    assert stated(mma) == [(ONE, mma.operands[0]), (TWO, mma.results[0])]
    assert stated(convert) == [(TWO, convert.results[0]), (ONE, convert.operands[0])]
    assert stated(plain) == []


def test_maps_of_reductions_under_both_names() -> None:
    ours, theirs = ops(
        f"%1 = xetile.reduction <add>, %a [1] {{wg_map = {ROW}, wg_map_source = {ONE}}} : "
        "vector<32x32xf16> -> vector<32x1xf16>",
        f"%2 = xetile.reduction <add>, %a [1] {{map1 = {ONE}, map2 = {ROW}}} : "
        "vector<32x32xf16> -> vector<32x1xf16>",
    )
    for op in (ours, theirs):
        assert stated(op) == [(ROW, op.results[0]), (ONE, op.operands[0])]
