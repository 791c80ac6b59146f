# ruff: noqa: E501
"""Transfers of the affine dialect: what its copies of data write, and rows apart in one of two memories."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.passes.linalg.programs import drawn, program, run_on
from tests.peer.mlir_opt import TOOL, mlir_opt, needs_mlir_opt
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module

ROWS = """%c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c9 = arith.constant 9 : index
  %c8 = arith.constant 8 : index
  %c12 = arith.constant 12 : index
  %near = memref.alloc() : memref<3x4xf32, 1>
  %tag = memref.alloc() : memref<2xi32>
  affine.dma_start %x[%c3 - 1, symbol(%c3)], %near[0, 0], %tag[%c0 + 1], %c12, %c8, %c3 : memref<6x8xf32>, memref<3x4xf32, 1>, memref<2xi32>
  affine.dma_wait %tag[%c0 + 1], %c12 : memref<2xi32>
  affine.dma_start %near[0, 3], %o[1, %c3], %tag[0], %c9, %c8, %c3 : memref<3x4xf32, 1>, memref<6x8xf32>, memref<2xi32>
  affine.dma_wait %tag[0], %c9 : memref<2xi32>"""
"""Three elements of every row of eight, in memory 1 one after the other."""


LOWERED = re.sub(r"(%tag\[.*?\]), (%c12|%c9)(?=, %c8)", r"\2, \1", ROWS.replace("affine", "memref"))
LOWERED = (
    LOWERED.replace("%c3 - 1, symbol(%c3)", "%c2, %c3")
    .replace("symbol(%c3)", "%c3")
    .replace("%c0 + 1", "%c1")
)
for n in (0, 1, 3):
    LOWERED = re.sub(rf"(?<=[\[ ]){n}(?=[\],])", f"%c{n}", LOWERED)
"""The same without maps."""


@pytest.mark.parametrize("rows", [ROWS, LOWERED], ids=["affine", "memref"])
def test_rows_apart(rows: str, capfd: pytest.CaptureFixture[str]):
    x, o = drawn("float32", 6, 8), drawn("float32", 6, 8)
    text = program(rows, {"x": x, "o": o}, {"o": "memref<6x8xf32>"})
    near = x[2:6, 3:6].ravel()
    wanted = o.copy()
    wanted[1:4, 3:6] = near[3:].reshape(3, 3)
    for target in ("reference", "cpu"):
        (found,) = run_on(text, target, capfd)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    printed = print_module(parse_module(text))
    assert print_module(parse_module(printed)) == printed
    if TOOL is not None:  # the generic form of MLIR is ours
        ours, theirs = parse_module(text), parse_module(mlir_opt(text, generic=True))
        assert mlir_opt(print_module(ours, generic=True)) == mlir_opt(print_module(theirs))


@needs_mlir_opt
@pytest.mark.parametrize(
    "passes",
    [
        "",
        ",affine-pipeline-data-transfer",
        ",lower-affine",
        ",affine-pipeline-data-transfer,lower-affine",
    ],
)
def test_copies_of_data(passes: str, capfd: pytest.CaptureFixture[str]):
    x = drawn("float32", 6, 8)
    body = """affine.for %i = 0 to 6 {
    affine.for %j = 2 to 7 {
      %v = affine.load %x[%i, %j - 1] : memref<6x8xf32>
      %n = arith.negf %v : f32
      affine.store %n, %o[%i, %j] : memref<6x8xf32>
    }
  }"""
    text = program(body, {"x": x, "o": np.zeros_like(x)}, {"o": "memref<6x8xf32>"})
    text = mlir_opt(text, pipeline=f"func.func(affine-data-copy-generate{{generate-dma}}{passes})")
    assert ("memref" if "lower" in passes else "affine") + ".dma_start" in text
    wanted = np.zeros_like(x)
    wanted[:, 2:7] = -x[:, 1:6]
    for target in ("reference", "cpu"):
        np.testing.assert_allclose(run_on(text, target, capfd)[0][0], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", %c8, %c3 :", ", %c8 :", "a stride and the number of elements of a row"),
        ("%near[0, 0]", "%near[0]", "expected 2 subscripts"),
        (", 1>", ">", "of the same memory space"),
        ("%x[%c3 - 1, symbol(%c3)]", "%x[%c3]", "expected 2 subscripts"),
    ],
)
def test_refused(old: str, new: str, said: str, capfd: pytest.CaptureFixture[str]):
    x = np.zeros((6, 8), np.float32)
    text = program(ROWS.replace(old, new), {"x": x, "o": x}, {"o": "memref<6x8xf32>"})
    with pytest.raises(TilewrightError, match=said):
        run_on(text, "cpu", capfd)
