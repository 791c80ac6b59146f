"""Structured ops on transposed parts of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.linalg.programs import drawn, program, run_on
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.passes.linalg.to_xetile import linalg_to_xetile


@pytest.mark.parametrize("written", ["y", "x"])
def test_a_transposed_part(written: str, capfd: pytest.CaptureFixture[str]):
    """Of another array than the op writes, and of the same, which is refused."""
    part, turned = (
        f"memref<{of}, offset: 25>>"
        for of in ("6x5xf32, strided<[24, 2]", "5x6xf32, strided<[2, 24]")
    )
    to = "memref<5x6xf32, strided<[24, 1]>>"
    x, y = drawn("float32", 20, 24), drawn("float32", 20, 24)
    body = f"""%p = memref.subview %x[1, 1] [6, 5] [1, 2] : memref<20x24xf32> to {part}
  %t = memref.transpose %p (i, j) -> (j, i) : {part} to {turned}
  %o = memref.subview %{written}[0, 0] [5, 6] [1, 1] : memref<20x24xf32> to {to}
  linalg.mul ins(%t, %t : {turned}, {turned}) outs(%o : {to})"""
    text = program(body, {"x": x, "y": y}, {"y": "memref<20x24xf32>"})
    if written == "x":
        with pytest.raises(UnsupportedError, match="may overlap"):
            linalg_to_xetile(parse_module(text))
        return
    wanted = y.astype(np.float64)
    wanted[:5, :6] = x[1:7, 1:11:2].T.astype(np.float64) ** 2
    for target in ("reference", "cpu"):
        (found,), _ = run_on(text, target, capfd)
        np.testing.assert_allclose(found, wanted, 2e-5)
