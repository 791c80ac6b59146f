"""Every generation of XeGPU text is read; one spelling is printed; printing is a fixed point."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.mlir"))


def text_of(module: ModuleOp, generic: bool = False) -> str:
    stream = io.StringIO()
    Printer(stream, print_generic_format=generic).print_op(module)
    return stream.getvalue()


def parse(text: str) -> ModuleOp:
    module = parse_module(text, "test.mlir")
    module.verify()
    return module


def in_function(args: str, body: str) -> str:
    return f"func.func @f({args}) {{\n{body}\nfunc.return\n}}"


def line_of(module: ModuleOp, op: str) -> str:
    return next(line.strip() for line in text_of(module).splitlines() if op in line)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_printed_text_is_a_fixed_point(path: Path):
    module = parse(path.read_text())
    printed = text_of(module)
    assert text_of(parse(printed)) == printed


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_generic_form_says_the_same(path: Path):
    module = parse(path.read_text())
    again = parse(text_of(module, generic=True))
    assert text_of(again) == text_of(module)


LAYOUT = "#xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>"

SPELLINGS = [
    # (arguments, old spelling, the op, its canonical text)
    (
        "%t: !xegpu.tensor_desc<8x16xf16>",
        "%v = xegpu.load_nd %t {L1_hint = cached, L3 = uncached} : !xegpu.tensor_desc<8x16xf16> "
        "into vector<8x16xf16>",
        "load_nd",
        "%v = xegpu.load_nd %t <{l1_hint = #xegpu.cache_hint<cached>, l3_hint = "
        "#xegpu.cache_hint<uncached>}> : !xegpu.tensor_desc<8x16xf16> -> vector<8x16xf16>",
    ),
    (
        "%t: !xegpu.tensor_desc<16x8xf32>",
        "%v = xegpu.load_nd %t[0, 0] {transpose = [1, 0]} : tensor_desc<16x8xfloat> -> "
        "vector<8x16xfloat>",
        "load_nd",
        "%v = xegpu.load_nd %t[0, 0] <{transpose = array<i64: 1, 0>}> : "
        "!xegpu.tensor_desc<16x8xf32> -> vector<8x16xf32>",
    ),
    (
        f"%t: !xegpu.tensor_desc<16x32xf16, {LAYOUT}>, %v: vector<16x32xf16>",
        f"xegpu.store_nd %t, %v : (!xegpu.tensor_desc<16x32xf16, {LAYOUT}>, vector<16x32xf16>)",
        "store_nd",
        f"xegpu.store_nd %v, %t : vector<16x32xf16>, !xegpu.tensor_desc<16x32xf16, {LAYOUT}>",
    ),
    (
        "%c: vector<8x16xf32>, %a: vector<8x16xf16>, %b: vector<16x16xf16>",
        "%d = xegpu.dpas %c, %a, %b : vector<8x16xf32>, vector<8x16xf16>, vector<16x16xf16> -> "
        "vector<8x16xf32>",
        "dpas",
        "%d = xegpu.dpas %a, %b, %c : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> "
        "vector<8x16xf32>",
    ),
    (
        "%a: vector<8x64xf8E5M2>, %b: vector<64x16xf8E5M2>, %s: vector<8x2xf8E8M0FNU>",
        "%d = xegpu.dpas_mx %a, %b scale_a = %s : vector<8x64xf8E5M2>, vector<64x16xf8E5M2>, "
        "vector<8x2xf8E8M0FNU> -> vector<8x16xf32>",
        "dpas_mx",
        "%d = xegpu.dpas_mx %a, %b scale_a = %s : (vector<8x64xf8E5M2>, vector<64x16xf8E5M2>, "
        "vector<8x2xf8E8M0FNU>) -> vector<8x16xf32>",
    ),
    (
        "",
        'xegpu.fence {scope = "gpu", memory_kind = "shared"}',
        "fence",
        "xegpu.fence memory_kind = slm, fence_scope = gpu",
    ),
    (
        "%v: vector<16x32xf32>, %s: !xegpu.tensor_desc<16x32xf32, #xegpu.slice<"
        "#xegpu.layout<sg_layout = [2, 2, 1], sg_data = [8, 16, 4]>, 2>>",
        f"%w = xegpu.convert_layout %v {{resMap = {LAYOUT}}} : vector<16x32xf32>",
        "convert_layout",
        f"%w = xegpu.convert_layout %v <{{target_layout = {LAYOUT}}}> : vector<16x32xf32>",
    ),
    (
        "%v: vector<16x32xf32>",
        f"%w = xegpu.convert_layout %v {{{LAYOUT} #xegpu.layout<sg_layout = [4, 1], sg_data = [4, 32]>}}"
        " : vector<16x32xf32> into vector<16x32xf32>",
        "convert_layout",
        "%w = xegpu.convert_layout %v <{input_layout = #xegpu.layout<sg_layout = [4, 1], sg_data = "
        f"[4, 32]>, target_layout = {LAYOUT}}}> : vector<16x32xf32>",
    ),
    (
        "%m: memref<64xf32>, %o: index, %k: i1",
        "%v = xegpu.load %m[%o], %k : memref<64xf32>, index, i1 -> f32",
        "xegpu.load ",
        "%v = xegpu.load %m[%o], %k : memref<64xf32>, index, i1 -> f32",
    ),
]


@pytest.mark.parametrize(("args", "old", "op", "canonical"), SPELLINGS, ids=lambda text: text[:24])
def test_older_spellings_print_as_todays(args: str, old: str, op: str, canonical: str):
    assert line_of(parse(in_function(args, old)), op) == canonical


def test_default_encodings_are_one_type():
    plain = parse(in_function("%t: !xegpu.tensor_desc<8x16xf16>", ""))
    spelt = parse(
        in_function(
            "%t: !xegpu.tensor_desc<8x16xf16, #xegpu.block_tdesc_attr<memory_space = global, "
            "array_length = 1, boundary_check = true>>",
            "",
        )
    )
    assert text_of(plain) == text_of(spelt)


def test_attributes_outside_of_the_dialects_own_are_kept():
    module = parse(
        in_function(
            "%v: vector<16x32xf32>",
            f"%w = arith.addf %v, %v {{layout_result_0 = {LAYOUT}}} : vector<16x32xf32>\n"
            f"%x = xegpu.convert_layout %w <{{target_layout = {LAYOUT}}}> {{note = 1 : i64}} "
            ": vector<16x32xf32>",
        )
    )
    again = parse(text_of(module))
    assert f"layout_result_0 = {LAYOUT}" in text_of(again)
    assert "{note = 1 : i64}" in text_of(again)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("layout_result_0 = 3 : i32", "is a layout of XeGPU, not 3 : i32"),
        ("layout_result_1 = #xegpu.layout<lane_layout = [1, 16]>", "'layout_result_1', and 1 results"),
        ("layout_operand_2 = #xegpu.layout<lane_layout = [1, 16]>", "and 2 operands"),
        ("layout_result_0 = #xegpu.layout<sg_layout = [3, 1], sg_data = [5, 16]>", "over 3 subgroups of 5 each"),
        ("map = #xetile.wg_map<sg_layout = [2, 2], sg_data = [3, 8]>", "map on 8x16: 8 elements over 2 subgroups of 3"),
        ("map1 = #xetile.wg_map<sg_layout = [2, 2], sg_data = [4, 7]>", "map1 on 8x16: 16 elements over 2"),
    ],
)  # fmt: skip
def test_layouts_on_ops_of_any_dialect_are_layouts_of_their_values(attribute: str, message: str):
    text = f"func.func @f(%v: vector<8x16xf32>) {{ %w = arith.addf %v, %v {{{attribute}}} : vector<8x16xf32> return }}"
    with pytest.raises(TilewrightError, match=message):
        parse(text)


def test_layouts_of_lanes_may_be_left_from_a_level_above():
    attribute = "layout_operand_1 = #xegpu.layout<lane_layout = [16], lane_data = [1]>"
    text = f"func.func @f(%v: vector<1xf32>) {{ %w = arith.addf %v, %v {{{attribute}}} : vector<1xf32> return }}"
    warnings: list[str] = []
    parse_module(text, warnings=warnings)
    assert "warning: 'arith.addf' op cannot distribute [1]" in warnings[0]
    with pytest.raises(TilewrightError, match="1 elements over 16 lanes"):
        parse_module(text, strict=True)


def test_slice_of_a_slice_names_the_dimensions_of_the_layout_underneath():
    from tilewright.dialects.xegpu import LayoutAttr, SliceAttr

    root = LayoutAttr(sg_layout=[2, 3, 4, 5], sg_data=[1, 1, 1, 1])
    outer = SliceAttr(SliceAttr(root, [1]), [0, 2])
    assert outer.rank == 1
    assert outer.flatten() == (root, (0, 1, 3))
