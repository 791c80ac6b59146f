"""xegpu-wg-to-sg-distribute on text that comes to it alone: layouts on anchors, exchanges between subgroups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.lowering.programs import ops, run, wrong
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.xegpu.pipeline import PIPELINE, WG_TO_SG
from tilewright.tools.cli import main


def program(body: str, arguments: str = "%src: memref<64x64xf32>") -> str:
    return f"gpu.module @m {{ gpu.func @f({arguments}) kernel {{\n{body}\n  gpu.return }} }}"


def load(layout: str) -> str:
    return f"""
  %t = xegpu.create_nd_tdesc %src : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32>
  %v = xegpu.load_nd %t[0, 0] {{layout = {layout}}} : !xegpu.tensor_desc<64x64xf32> -> vector<64x64xf32>"""


def anchor(value: str, layout: str, type: str) -> str:
    """What upstream's tests end in: a conversion that says who owns a value."""
    return f"""
  %end = xegpu.convert_layout {value} <{{input_layout = {layout}, target_layout = {layout}}}> : {type}"""


def distributed(text: str) -> Any:
    module = parse_module(text)
    PIPELINE.alone(WG_TO_SG, module)
    verify_module(module)
    return module


L = "#xegpu.layout<sg_layout = [4, 2], sg_data = [16, 32]>"
M = "#xegpu.layout<sg_layout = [2, 4], sg_data = [32, 16]>"
ROWS = f"#xegpu.slice<{L}, dims = [1]>"
ALL = f"#xegpu.slice<{L}, dims = [0, 1]>"
ZEROS = "\n  %z = arith.constant dense<0.0> : vector<64xf32>"
NUMBERS = ", ".join(str(3 * i) for i in range(64))

CASES = {
    "elementwise": (
        load(L) + "\n  %w = math.exp %v : vector<64x64xf32>" + anchor("%w", L, "vector<64x64xf32>"),
        ["math.exp %v : vector<16x32xf32>"],
        0,
    ),
    "conversion": (
        load(L)
        + f"\n  %w = xegpu.convert_layout %v <{{input_layout = {L}, target_layout = {M}}}> : vector<64x64xf32>"
        + anchor("%w", M, "vector<64x64xf32>"),
        ["!xegpu.mem_desc<64x64xf32>", "-> vector<32x16xf32>"],
        1,
    ),
    "reduction": (
        load(L)
        + ZEROS
        + "\n  %w = vector.multi_reduction <add>, %v, %z [1] : vector<64x64xf32> to vector<64xf32>"
        + anchor("%w", ROWS, "vector<64xf32>"),
        ["!xegpu.mem_desc<64x2xf32>", "vector<16x2xf32> to vector<16xf32>"],
        1,
    ),
    "reduction to a scalar": (
        load(L)
        + "\n  %z = arith.constant 0.0 : f32"
        + "\n  %w = vector.multi_reduction <add>, %v, %z [0, 1] : vector<64x64xf32> to f32"
        + anchor("%w", ALL, "f32"),
        ["!xegpu.mem_desc<4x2xf32>", "vector<4x2xf32> to f32"],
        1,
    ),
    "indices": (
        f"\n  %w = arith.constant dense<[{NUMBERS}]> : vector<64xindex>"
        + anchor("%w", ROWS, "vector<64xindex>"),
        ["dense<[0, 3, 6, 9, 12, 15", "vector.broadcast"],
        0,
    ),
    "one element each": (
        "\n  %w = arith.constant dense<[3, 1, 4, 1]> : vector<4xi32>"
        + anchor("%w", "#xegpu.layout<sg_layout = [4], sg_data = [1]>", "vector<4xi32>"),
        ["arith.select"],
        0,
    ),
    "an unused descriptor": (
        f"\n  %t = xegpu.create_nd_tdesc %src : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32, {L}>",
        ["!xegpu.tensor_desc<16x32xf32>"],
        0,
    ),
    "a branch of one subgroup": (
        load(L)
        + f"""
  %c1 = arith.constant 1 : index
  %id = gpu.subgroup_id : index
  %p = arith.cmpi eq, %id, %c1 : index
  scf.if %p {{
    xegpu.store_nd %v, %t[0, 0] <{{layout = {L}}}> : vector<64x64xf32>, !xegpu.tensor_desc<64x64xf32>
  }}""",
        ["scf.if", "arith.cmpi eq, %sg, %c1"],
        0,
    ),
    "a run of subgroups": (
        f"""
  %p = arith.constant true
  scf.if %p {{
    %t = xegpu.create_nd_tdesc %src : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32, {L}>
    xegpu.prefetch_nd %t[0, 0] : !xegpu.tensor_desc<64x64xf32, {L}>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<64x64xf32, {L}> -> vector<64x64xf32>
  }} {{sg_id_range = #xegpu.range<[2, 10]>}}""",
        ["arith.subi %sg, %c2", "#xegpu.range<[2, 10]>", "tilewright.subgroups = 10"],
        0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_anchors_are_enough(name: str):
    body, expected, barriers = CASES[name]
    found = distributed(program(body))
    text = print_module(found)
    assert "sg_layout" not in text and "xegpu.convert_layout" not in text
    for part in expected:
        assert part in text, text
    assert len(ops(found, "gpu.barrier")) == barriers
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("splat", [False, True], ids=["irregular", "even"])
def test_constants_of_different_numbers(splat: bool):
    """Round-robin rows of numbers, in a store that every subgroup has a part of."""
    numbers = (
        fresh_rng().integers(-99, 99, (8, 8)) if not splat else np.arange(64).reshape(8, 8) * 7
    )
    layout = "#xegpu.layout<sg_layout = [2, 2], sg_data = [2, 4]>"
    text = program(
        f"""
  %t = xegpu.create_nd_tdesc %src : memref<8x8xi32> -> !xegpu.tensor_desc<8x8xi32>
  %v = arith.constant dense<{numbers.tolist()}> : vector<8x8xi32>
  xegpu.store_nd %v, %t[0, 0] <{{layout = {layout}}}> : vector<8x8xi32>, !xegpu.tensor_desc<8x8xi32>""",
        "%src: memref<8x8xi32>",
    )
    found = distributed(text)
    assert bool(ops(found, "arith.select")) != splat
    (stored,) = run(found, (1, 1, 1), [np.zeros((8, 8), np.int32)], check=True)
    assert wrong([numbers.astype(np.int32)], [stored]) is None


@pytest.mark.parametrize("data", ["", ", sg_data = [16, 8]"], ids=["no sg_data", "sg_data"])
def test_a_product_whose_operands_are_distributed_along_k(data: str):
    """Every subgroup multiplies all of k: what others own of A's rows and B's columns comes through shared memory."""
    own = f"#xegpu.layout<sg_layout = [2, 4]{data}>"
    tile = "!xegpu.tensor_desc<32x32"
    text = program(
        f"""
  %ta = xegpu.create_nd_tdesc %a : memref<32x32xf16> -> {tile}xf16>
  %tb = xegpu.create_nd_tdesc %b : memref<32x32xf16> -> {tile}xf16>
  %tc = xegpu.create_nd_tdesc %c : memref<32x32xf32> -> {tile}xf32>
  %x = xegpu.load_nd %ta[0, 0] <{{layout = {own}}}> : {tile}xf16> -> vector<32x32xf16>
  %y = xegpu.load_nd %tb[0, 0] <{{layout = {own}}}> : {tile}xf16> -> vector<32x32xf16>
  %z = xegpu.dpas %x, %y {{layout_a = {own}, layout_b = {own}, layout_cd = {own}}} :
    vector<32x32xf16>, vector<32x32xf16> -> vector<32x32xf32>
  xegpu.store_nd %z, %tc[0, 0] <{{layout = {own}}}> : vector<32x32xf32>, {tile}xf32>""",
        "%a: memref<32x32xf16>, %b: memref<32x32xf16>, %c: memref<32x32xf32>",
    )
    module, rng = distributed(text), fresh_rng()
    a, b = (rng.integers(-9, 10, (32, 32)).astype(np.float16) for _ in "ab")
    (*_, c) = run(module, (1, 1, 1), [a, b, np.full((32, 32), np.nan, np.float32)], check=True)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_what_is_refused():
    many = ", ".join(str(i * i) for i in range(128))
    body = f"\n  %w = arith.constant dense<[{many}]> : vector<128xi32>" + anchor(
        "%w", "#xegpu.layout<sg_layout = [128], sg_data = [1]>", "vector<128xi32>"
    )
    with pytest.raises(
        TilewrightError, match="128 fragments, among which every subgroup would pick"
    ):
        distributed(program(body))
    body, _, _ = CASES["a run of subgroups"]
    with pytest.raises(
        TilewrightError, match=re.escape("distributes to 8 subgroups, 6 do this region")
    ):
        distributed(program(body.replace("[2, 10]", "[2, 8]")))
    with pytest.raises(TilewrightError, match="expected a range of subgroups"):
        distributed(program(body.replace("[2, 10]", "[4, 2]")))


def test_slices_of_an_exchange_may_be_narrower_than_lanes(tmp_path: Path):
    """128 KiB, a slice of whose parts has 4 columns where the text gives lanes 16: it verifies behind the pass."""
    lanes = "inst_data = [1, 16], lane_layout = [1, 16], lane_data = [1, 1]"
    blocks, rows = (
        f"#xegpu.layout<sg_layout = [{grid}], sg_data = [{part}], {lanes}>"
        for grid, part in (("8, 4", "32, 32"), ("32, 1", "8, 128"))
    )
    path, kind = tmp_path / "k.mlir", "vector<256x128xf32>"
    path.write_text(f"""
func.func @k(%a: memref<256x128xf32>, %s: memref<256x128xf32>, %t: memref<256x128xf32>) {{
  %0 = xegpu.create_nd_tdesc %a : memref<256x128xf32> -> !xegpu.tensor_desc<256x128xf32>
  %v = xegpu.load_nd %0[0, 0] <{{layout = {blocks}}}> : !xegpu.tensor_desc<256x128xf32> -> {kind}
  %w = xegpu.convert_layout %v <{{input_layout = {blocks}, target_layout = {rows}}}> : {kind}
  %1 = xegpu.create_nd_tdesc %s : memref<256x128xf32> -> !xegpu.tensor_desc<256x128xf32>
  xegpu.store_nd %w, %1[0, 0] <{{layout = {rows}}}> : {kind}, !xegpu.tensor_desc<256x128xf32>
  %held = memref.alloc() : memref<65536xi8, 3>
  return
}}""")
    assert main(["opt", str(path), "-p", "xegpu-wg-to-sg-distribute"]) == 0
