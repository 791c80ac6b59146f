"""erfc where it is small, and of f64, against Python's."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tilewright.tools.cli import main


@pytest.mark.parametrize("x", [6.5, -0.7, 0.0, 26.5, 27.1, 28.0, math.inf])
def test_small_results_are_precise(
    x: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "erfc.mlir"
    path.write_text(f"""func.func @main() {{
      %x = arith.constant {np.float32(x).view(np.uint32):#x} : f32
      %y = math.erfc %x : f32
      vector.print %y : f32
      %w = arith.extf %x : f32 to f64
      %z = math.erfc %w : f64
      %b = arith.bitcast %z : f64 to i64
      vector.print %b : i64
      return
    }}""")
    assert main(["run", str(path)]) == 0
    wanted = math.erfc(float(np.float32(x)))
    short, bits = capfd.readouterr().out.split()
    assert math.isclose(float(short), wanted, rel_tol=2e-5, abs_tol=1e-38)
    assert math.isclose(
        float(np.int64(bits).view(np.float64)), wanted, rel_tol=4e-15, abs_tol=1e-322
    )
