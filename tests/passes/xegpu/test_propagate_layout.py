"""xegpu-propagate-layout: what the text says stays, the rest follows, and conflicts are settled once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tests.calls import calls
from tests.draws import fresh_rng
from tests.lowering.programs import lowered, ops, wrong
from tilewright import reference
from tilewright.diagnostics import CompileError
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.xegpu.pipeline import PIPELINE, WORKGROUP, lower, propagate_layout

HEAD = """
#c = #xegpu.layout<sg_layout = [4, 2], sg_data = [16, 32]>
#r = #xegpu.layout<sg_layout = [8, 1], sg_data = [8, 64]>
#k = #xegpu.layout<sg_layout = [1, 8], sg_data = [64, 8]>
gpu.module @m {
gpu.func @f(%a: memref<64x64xf32>, %b: memref<64x64xf32>, %o: memref<64x64xf32>, %p: memref<64x64xf32>)
    kernel attributes {tilewright.level = "workgroup"} {
"""
LOADS = """
%ta = xegpu.create_nd_tdesc %a : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32LA>
%tb = xegpu.create_nd_tdesc %b : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32LB>
%x = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<64x64xf32LA> -> vector<64x64xf32>
%y = xegpu.load_nd %tb[0, 0] : !xegpu.tensor_desc<64x64xf32LB> -> vector<64x64xf32>
"""
STORE = """
%to = xegpu.create_nd_tdesc %o : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32LO>
xegpu.store_nd %z, %to[0, 0] : vector<64x64xf32>, !xegpu.tensor_desc<64x64xf32LO>
"""
TAIL = "gpu.return } }"


def program(body: str, a: str = "", b: str = "", o: str = "") -> ModuleOp:
    """Two loads, a body that makes %z, a store; with layouts on the descriptors."""
    text = HEAD + LOADS + body + STORE + TAIL
    for name, value in (("LA", a), ("LB", b), ("LO", o)):
        text = text.replace(name, f", {value}" if value else "")
    return parse_module(text, "program.mlir")


def propagated(module: ModuleOp, kind: str = "subgroup") -> str:
    PIPELINE.alone(propagate_layout(kind), module)
    verify_module(module)
    return print_module(module)


def arrays() -> list[Any]:
    rng = fresh_rng()
    found = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(4)]
    found[2].view(np.uint8)[...] = 0xFF
    return found


def layouts(text: str, op: str) -> list[str]:
    """sg_layout|sg_data of the first layout in each line with an op."""
    found: list[str] = []
    for line in text.splitlines():
        if op in line and (m := re.search(r"sg_layout = \[(.*?)\], sg_data = \[(.*?)\]", line)):
            found.append(f"{m[1]}|{m[2]}")
    return found


ADD = "%z = arith.addf %x, %y : vector<64x64xf32>"


def test_backward_from_a_store():
    text = propagated(program(ADD, o="#c"))
    assert layouts(text, "load_nd") == ["4, 2|16, 32"] * 2
    assert layouts(text, "arith.addf") == ["4, 2|16, 32"]
    assert "convert_layout" not in text


def test_forward_from_a_load():
    text = propagated(program(ADD, a="#r"))
    assert layouts(text, "store_nd") == ["8, 1|8, 64"]
    assert layouts(text, "load_nd") == ["8, 1|8, 64"] * 2


def test_a_conflict_is_settled_once_with_a_remark():
    module = program(ADD, a="#c", b="#r", o="#c")
    text = propagated(module)
    assert text.count("xegpu.convert_layout") == 1
    assert "tilewright.remarks" in text and "resolves it" in text
    assert (
        wrong(
            *(lambda args: (run(program(ADD, a="#c", b="#r", o="#c"), args), run(module, args)))(
                arrays()
            )
        )
        is None
    )
    lowered(program(ADD, a="#c", b="#r", o="#c"), (1, 1, 1), arrays(), WORKGROUP)


def run(module: ModuleOp, args: list[Any]) -> list[Any]:
    copies = [a.copy() for a in args]
    reference.run(module, (1, 1, 1), copies)
    return copies


def test_a_conversion_moves_to_the_smaller_value():
    body = """
    %n = arith.constant dense<0.0> : vector<64xf32>
    %s = vector.multi_reduction <add>, %x, %n [0] : vector<64x64xf32> to vector<64xf32>
    %w = vector.broadcast %s : vector<64xf32> to vector<64x64xf32>
    %z = arith.mulf %w, %y : vector<64x64xf32>
    """
    module = program(body, a="#k", b="#c", o="#c")
    text = propagated(module)
    lines = [line for line in text.splitlines() if "= xegpu.convert_layout" in line]
    assert len(lines) == 1 and lines[0].endswith(": vector<64xf32>")
    lowered(program(body, a="#k", b="#c", o="#c"), (1, 1, 1), arrays(), WORKGROUP)


def test_a_conversion_the_text_has_sinks_behind_a_reduction():
    body = """
    %n = arith.constant dense<0.0> : vector<64xf32>
    %v = xegpu.convert_layout %x <{target_layout = #r}> : vector<64x64xf32>
    %s = vector.multi_reduction <add>, %v, %n [1] : vector<64x64xf32> to vector<64xf32>
    %u = vector.shape_cast %s : vector<64xf32> to vector<64x1xf32>
    %w = vector.broadcast %u : vector<64x1xf32> to vector<64x64xf32>
    %z = arith.mulf %w, %y : vector<64x64xf32>
    """
    module = program(body, a="#c", o="#r")
    found = lowered(module, (1, 1, 1), arrays(), WORKGROUP)
    (stored,) = ops(found, "xegpu.store_matrix")
    assert stored.operands[0].type.get_shape() == (16, 1), "partial sums, not the whole tile"  # pyright: ignore


@pytest.mark.parametrize(
    "body",
    [
        "%t = vector.transpose %x, [1, 0] : vector<64x64xf32> to vector<64x64xf32>\n"
        "%z = arith.addf %t, %y : vector<64x64xf32>",
        "%q = vector.shape_cast %x : vector<64x64xf32> to vector<4x16x64xf32>\n"
        "%h = arith.addf %q, %q : vector<4x16x64xf32>\n"
        "%z = vector.shape_cast %h : vector<4x16x64xf32> to vector<64x64xf32>",
        "%i = vector.bitcast %x : vector<64x64xf32> to vector<64x128xi16>\n"
        "%h = arith.xori %i, %i : vector<64x128xi16>\n"
        "%k = arith.addi %h, %i : vector<64x128xi16>\n"
        "%z = vector.bitcast %k : vector<64x128xi16> to vector<64x64xf32>",
        "%h = vector.extract_strided_slice %x {offsets = [0, 16], sizes = [64, 32], strides = [1, 1]}"
        " : vector<64x64xf32> to vector<64x32xf32>\n"
        "%z = vector.insert_strided_slice %h, %y {offsets = [0, 8], strides = [1, 1]}"
        " : vector<64x32xf32> into vector<64x64xf32>",
        "%h = vector.extract %x[3] : vector<64xf32> from vector<64x64xf32>\n"
        "%z = vector.insert %h, %y [5] : vector<64xf32> into vector<64x64xf32>",
        "%n = arith.constant 1.0 : f32\n"
        "%s = vector.multi_reduction <add>, %x, %n [0, 1] : vector<64x64xf32> to f32\n"
        "%w = vector.broadcast %s : f32 to vector<64x64xf32>\n"
        "%z = arith.addf %w, %y : vector<64x64xf32>",
        "%f = vector.shape_cast %x : vector<64x64xf32> to vector<4096xf32>\n"
        "%s = vector.reduction <maximumf>, %f : vector<4096xf32> into f32\n"
        "%w = vector.broadcast %s : f32 to vector<64x64xf32>\n"
        "%z = arith.addf %w, %y : vector<64x64xf32>",
        "%c7 = arith.constant 7 : index\n%c50 = arith.constant 50 : index\n"
        "%m = vector.create_mask %c7, %c50 : vector<64x64xi1>\n"
        "%k = vector.constant_mask [30, 64] : vector<64x64xi1>\n"
        "%h = arith.ori %m, %k : vector<64x64xi1>\n"
        "%z = arith.select %h, %x, %y : vector<64x64xi1>, vector<64x64xf32>",
        "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"
        "%c9 = arith.constant 9 : index\n"
        "%r:2 = scf.while (%v = %x, %i = %c0) : (vector<64x64xf32>, index) -> (vector<64x64xf32>, index) {\n"
        "  %more = arith.cmpi slt, %i, %c9 : index\n"
        "  scf.condition(%more) %v, %i : vector<64x64xf32>, index\n"
        "} do {\n^bb0(%v: vector<64x64xf32>, %i: index):\n"
        "  %n = arith.addf %v, %y : vector<64x64xf32>\n  %j = arith.addi %i, %c1 : index\n"
        "  scf.yield %n, %j : vector<64x64xf32>, index\n}\n"
        "%z = arith.subf %r#0, %x : vector<64x64xf32>",
    ],
    ids=[
        *("transpose", "shape_cast", "bitcast", "slices", "extract", "to a scalar"),
        *("reduction", "masks", "while"),
    ],
)
@pytest.mark.parametrize("maps", [("#c", "", "#c"), ("#r", "#k", "#c"), ("", "", "")], ids=str)
def test_every_op_under_agreeing_and_conflicting_maps(body: str, maps: tuple[str, str, str]):
    lowered(program(body, *maps), (1, 1, 1), arrays(), WORKGROUP)


def test_a_fixed_map_that_does_not_fit_is_refused():
    bad = "#xegpu.layout<sg_layout = [8, 1], sg_data = [16, 64]>"
    text = HEAD.replace("gpu.module", "gpu.module") + LOADS.replace("LA", "").replace("LB", "")
    text += (
        f"%z = arith.addf %x, %y {{layout_result_0 = {bad.replace('16', '7')}}} : vector<64x64xf32>"
    )
    text += STORE.replace("LO", "") + TAIL
    with pytest.raises(CompileError, match="does not distribute"):
        propagated(parse_module(text, "bad.mlir", verify=False))


def test_maps_that_count_subgroups_differently_are_refused():
    other = "#xegpu.layout<sg_layout = [2, 2], sg_data = [32, 32]>"
    with pytest.raises(CompileError, match="different numbers of subgroups: 4, 8"):
        propagated(program(ADD, a="#c", o=other))


def test_defaults_fill_what_nothing_says():
    text = propagated(program(ADD))
    assert "tilewright.subgroups = 8" in text
    assert layouts(text, "arith.addf") == ["8, 1|8, 64"]


def test_instruction_and_lane_kinds_fill_only_what_is_missing():
    module = program(
        ADD, o="#xegpu.layout<sg_layout = [4, 2], sg_data = [16, 32], inst_data = [4, 16]>"
    )
    lower(module, WORKGROUP)
    text = propagated(module, "inst")
    (line,) = [x for x in text.splitlines() if "store_nd" in x]
    assert "inst_data = [4, 16]" in line and "lane_layout = [1, 16]" in line


def test_time_grows_linearly():
    """Twice the ops take about twice the time, counted in calls rather than in seconds."""

    def work(n: int) -> int:
        body = "".join(f"%v{i + 1} = arith.addf %v{i}, %y : vector<64x64xf32>\n" for i in range(n))
        body = body.replace("%v0,", "%x,") + f"%z = arith.negf %v{n} : vector<64x64xf32>"
        module = program(body, o="#c")
        return calls(lambda: lower(module, WORKGROUP))

    work(2)
    assert work(200) < 2.5 * work(100)


def test_a_grid_alone_is_enough():
    text = propagated(program(ADD, o="#xegpu.layout<sg_layout = [4, 2]>"))
    assert layouts(text, "arith.addf") == ["4, 2|16, 32"]


def test_loads_in_other_forms():
    """A transposing load and one of two tiles, as text may have them at workgroup level."""
    body = """
    %u = xegpu.load_nd %ta[0, 0] <{transpose = array<i64: 1, 0>}>
      : !xegpu.tensor_desc<64x64xf32> -> vector<64x64xf32>
    %tc = xegpu.create_nd_tdesc %b : memref<64x64xf32>
      -> !xegpu.tensor_desc<64x32xf32, #xegpu.block_tdesc_attr<array_length = 2 : i64>>
    %pair = xegpu.load_nd %tc[0, 0]
      : !xegpu.tensor_desc<64x32xf32, #xegpu.block_tdesc_attr<array_length = 2 : i64>> -> vector<2x64x32xf32>
    %l = vector.extract %pair[1] : vector<64x32xf32> from vector<2x64x32xf32>
    %e = vector.insert_strided_slice %l, %y {offsets = [0, 0], strides = [1, 1]}
      : vector<64x32xf32> into vector<64x64xf32>
    %z = arith.addf %u, %e : vector<64x64xf32>
    """
    lowered(program(body, o="#r"), (1, 1, 1), arrays(), WORKGROUP)


def convert(name: str, source: str, grid: str, data: str, type: str) -> str:
    layout = f"#xegpu.layout<sg_layout = [{grid}], sg_data = [{data}]>"
    return f"{name} = xegpu.convert_layout {source} <{{target_layout = {layout}}}> : {type}\n"


def test_exchanges_share_memory_that_is_short():
    """Exchanges of 64 KiB twice and of 16 KiB twice: 160 KiB, of 128 that there are."""
    tall, square = "vector<256x64xf32>", "vector<64x64xf32>"
    body = f"%one = arith.constant 1.0 : f32\n%w = vector.broadcast %one : f32 to {tall}\n"
    body += convert("%w1", "%w", "8, 1", "32, 64", tall) + f"%w2 = math.exp %w1 : {tall}\n"
    body += convert("%w3", "%w2", "1, 8", "256, 8", tall)
    body += convert("%w4", "%w3", "4, 2", "64, 32", tall)
    body += "%w5 = vector.extract_strided_slice %w4 "
    body += "{offsets = [0, 0], sizes = [64, 64], strides = [1, 1]} "
    body += f": {tall} to {square}\n"
    body += convert("%q", "%x", "1, 8", "64, 8", square) + f"%q2 = arith.addf %q, %q : {square}\n"
    body += convert("%q3", "%q2", "8, 1", "8, 64", square)
    body += f"%z = arith.addf %q3, %w5 : {square}\n"
    found = lowered(program(body, o="#r"), (1, 1, 1), arrays(), WORKGROUP)
    total = 0
    for op in ops(found, "memref.alloc"):
        shape = op.results[0].type.get_shape()  # pyright: ignore
        total += int(np.prod(shape))
    assert 64 << 10 <= total <= 128 << 10


def test_an_exchange_larger_than_shared_memory_goes_in_slices():
    """256 KiB between 8x4 and 32x1 subgroups, of 128 KiB that there are."""
    big, square = "vector<256x256xf32>", "vector<64x64xf32>"
    slice_ = "{offsets = [0, 64], sizes = [64, 64], strides = [1, 1]}"
    body = "%i = vector.step : vector<256xindex>\n%j = arith.index_cast %i : vector<256xindex> to vector<256xi32>\n"
    body += "%f = arith.sitofp %j : vector<256xi32> to vector<256xf32>\n"
    body += f"%w = vector.broadcast %f : vector<256xf32> to {big}\n"
    body += f"%wt = vector.transpose %w, [1, 0] : {big} to {big}\n%s = arith.subf %w, %wt : {big}\n"
    body += convert("%w1", "%s", "8, 4", "32, 64", big) + f"%w2 = math.absf %w1 : {big}\n"
    body += convert("%w3", "%w2", "32, 1", "8, 256", big) + f"%w4 = arith.negf %w3 : {big}\n"
    body += f"%w5 = vector.extract_strided_slice %w4 {slice_} : {big} to {square}\n"
    body += f"%z = arith.addf %x, %w5 : {square}\n"
    found = lowered(program(body), (1, 1, 1), arrays(), WORKGROUP)
    total = 0
    for op in ops(found, "memref.alloc"):
        shape = op.results[0].type.get_shape()  # pyright: ignore
        total += int(np.prod(shape))
    assert total <= 128 << 10


def test_lanes_of_a_function_that_is_no_kernel():
    """Tests of passes are written as func.func; products and stores say who owns their operands."""
    module = parse_module("""
    func.func @f(%a: memref<8x16xf16>, %b: memref<16x16xf16>, %c: memref<128xf32>) {
      %0 = xegpu.create_nd_tdesc %a : memref<8x16xf16> -> !xegpu.tensor_desc<8x16xf16>
      %1 = xegpu.create_nd_tdesc %b : memref<16x16xf16> -> !xegpu.tensor_desc<16x16xf16>
      %x = xegpu.load_nd %0[0, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8x16xf16>
      %y = xegpu.load_nd %1[0, 0] : !xegpu.tensor_desc<16x16xf16> -> vector<16x16xf16>
      %z = xegpu.dpas %x, %y : vector<8x16xf16>, vector<16x16xf16> -> vector<8x16xf32>
      %o = vector.step : vector<16xindex>
      %m = arith.constant dense<true> : vector<16xi1>
      %v = vector.shape_cast %z : vector<8x16xf32> to vector<16x8xf32>
      xegpu.store %v, %c[%o], %m <{chunk_size = 8}>
        : vector<16x8xf32>, memref<128xf32>, vector<16xindex>, vector<16xi1>
      return
    }""")
    text = propagated(module, "lane")
    rows = "#xegpu.layout<lane_layout = [1, 16], lane_data = [1, 1]>"
    packed = "#xegpu.layout<lane_layout = [1, 16], lane_data = [2, 1]>"
    assert f"layout_a = {rows}, layout_b = {packed}, layout_cd = {rows}" in text
    assert "chunk_size = 8 : i64, layout = #xegpu.layout<lane_layout = [" in text


def test_lanes_of_another_machine_take_their_order_along():
    """16 lanes in column-major order on a machine of 8: the text's distribution and its order go, with a remark."""
    layout = "#xegpu.layout<lane_layout = [4, 4], lane_data = [1, 1], order = [0, 1]>"
    module = parse_module(f"""
    gpu.module @m {{ gpu.func @f(%a: memref<16x16xf32>) kernel {{
      %0 = xegpu.create_nd_tdesc %a : memref<16x16xf32> -> !xegpu.tensor_desc<16x16xf32, {layout}>
      %x = xegpu.load_nd %0[0, 0] : !xegpu.tensor_desc<16x16xf32, {layout}> -> vector<16x16xf32>
      xegpu.store_nd %x, %0[0, 0] : vector<16x16xf32>, !xegpu.tensor_desc<16x16xf32, {layout}>
      gpu.return }} }}""")
    PIPELINE.alone(propagate_layout("inst"), module, "dg2")
    verify_module(module)
    assert "its own distribution is used" in print_module(module)


@pytest.mark.parametrize("asked, kept", [("[8, 8]", False), ("[8, 16]", True), ("[32, 16]", True)])
def test_an_operand_that_no_product_has_is_remarked_on(asked: str, kept: bool):
    module = parse_module(f"""
    gpu.module @m {{ gpu.func @f(%a: memref<32x32xf16>, %b: memref<32x64xf16>, %c: memref<32x64xf32>) kernel
        attributes {{tilewright.level = "subgroup"}} {{
      %0 = xegpu.create_nd_tdesc %a : memref<32x32xf16> -> !xegpu.tensor_desc<32x32xf16>
      %1 = xegpu.create_nd_tdesc %b : memref<32x64xf16> -> !xegpu.tensor_desc<32x64xf16>
      %2 = xegpu.create_nd_tdesc %c : memref<32x64xf32> -> !xegpu.tensor_desc<32x64xf32>
      %x = xegpu.load_nd %0[0, 0] <{{layout = #xegpu.layout<inst_data = {asked}>}}>
        : !xegpu.tensor_desc<32x32xf16> -> vector<32x32xf16>
      %y = xegpu.load_nd %1[0, 0] : !xegpu.tensor_desc<32x64xf16> -> vector<32x64xf16>
      %d = xegpu.dpas %x, %y : vector<32x32xf16>, vector<32x64xf16> -> vector<32x64xf32>
      xegpu.store_nd %d, %2[0, 0] : vector<32x64xf32>, !xegpu.tensor_desc<32x64xf32>
      gpu.return }} }}""")
    text = propagated(module, "inst")
    (line,) = [x for x in text.splitlines() if "= xegpu.load_nd" in x and "32x32" in x]
    if kept:
        assert f"inst_data = {asked}" in text and "is used" not in text
    else:
        assert f"xegpu.load_nd: inst_data = {asked} is not what" in text and asked not in line
