"""Products below workgroup level: the text's inst_data is followed, and what no dpas does fits the registers."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import VectorType

from tilewright.dialects.text import parse_module
from tilewright.dialects.xegpu import DpasOp
from tilewright.passes.xegpu.pipeline import PIPELINE, SUBGROUP
from tilewright.targets.base import CompileOptions, get_target
from tilewright.tools.cli import main

TEXT = """
gpu.module @m {{ gpu.func @k(%a: memref<{m}x{k}x{t}>, %b: memref<{k}x{n}x{t}>, %o: memref<{m}x{n}xf32>) kernel {{
  %s = xegpu.create_nd_tdesc %a : memref<{m}x{k}x{t}> -> !xegpu.tensor_desc<{m}x{k}x{t}>
  %x = xegpu.load_nd %s[0, 0] : !xegpu.tensor_desc<{m}x{k}x{t}> -> vector<{m}x{k}x{t}>
  %t = xegpu.create_nd_tdesc %b : memref<{k}x{n}x{t}> -> !xegpu.tensor_desc<{k}x{n}x{t}>
  %y = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<{k}x{n}x{t}> -> vector<{k}x{n}x{t}>
  %z = xegpu.dpas %x, %y {attributes} : vector<{m}x{k}x{t}>, vector<{k}x{n}x{t}> -> vector<{m}x{n}xf32>
  %u = xegpu.create_nd_tdesc %o : memref<{m}x{n}xf32> -> !xegpu.tensor_desc<{m}x{n}xf32>
  xegpu.store_nd %z, %u[0, 0] : vector<{m}x{n}xf32>, !xegpu.tensor_desc<{m}x{n}xf32>
  gpu.return
}} }}
"""


def text(m: int, n: int, k: int, t: str = "f16", attributes: str = "") -> str:
    return TEXT.format(m=m, n=n, k=k, t=t, attributes=attributes)


ROWS = "{{layout_cd = #xegpu.layout<inst_data = [{}, 16]>}}"


def rows_of_instructions(kernel: str) -> set[int]:
    module = parse_module(kernel, "product.mlir")
    for each in SUBGROUP:
        PIPELINE.alone(each, module, "pvc")
        if each.name == "xegpu-blocking":
            break
    found: set[int] = set()
    for op in module.walk():
        if isinstance(op, DpasOp) and isinstance(op.result.type, VectorType):
            found.add(op.result.type.get_shape()[0])
    return found


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_inst_data_names_the_instruction(rows: int) -> None:
    assert rows_of_instructions(text(16, 32, 32, attributes=ROWS.format(rows))) == {rows}


def test_inst_data_that_no_instruction_has_is_not_followed() -> None:
    kernel = text(12, 32, 32, attributes=ROWS.format(6))
    assert rows_of_instructions(kernel) == {4}
    built = get_target("xe-pvc").build(
        parse_module(kernel, "product.mlir"), CompileOptions(target="xe-pvc")
    )
    assert any("[6, 16]" in remark and "[4, 16] is used" in remark for remark in built.remarks)


CHECKED = {
    "short instructions": text(16, 32, 32, attributes=ROWS.format(4)),
    "columns that no dpas divides": text(16, 40, 32),
    "f32": text(32, 32, 32, "f32"),
}


@pytest.mark.parametrize("name", CHECKED)
def test_products_are_right_at_every_stage(name: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "product.mlir"
    path.write_text(CHECKED[name])
    assert main(["check", str(path), "--target", "xe-pvc"]) == 0
    assert "stages agree" in capsys.readouterr().out


def test_a_product_without_dpas_says_why() -> None:
    """Columns that no instruction divides are padded, unless that is switched off."""
    module = parse_module(text(16, 40, 32), "product.mlir")
    for off, why in ({"xegpu-pad"}, "N = 40 is no multiple of 16"), (set[str](), "40 to 48"):
        options = CompileOptions(target="xe-pvc", disable=frozenset(off))
        built = get_target("xe-pvc").build(module.clone(), options)
        assert any(why in remark for remark in built.remarks)
        assert ("@xe_dpas" in built.asm["llvm"]) != bool(off)
