"""`tilewright check --target xe-pvc`: every level of the examples, without an Intel GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.tools.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        ("01_gemm.py:gemm", ["f16[260,40]", "f16[40,70]", "f32[260,70]"]),
        (
            "04_attention.py:attention",
            ["f16[1,70,64]", "f16[1,150,64]", "f16[1,150,64]", "f16[1,70,64]", "0.125"],
        ),
        ("05_every_stage.py:scale_rows", ["f32[70,100]", "f32[70,1]", "f32[70,100]"]),
    ],
    ids=lambda value: value.partition(".")[0] if isinstance(value, str) else "",
)
def test_examples(kernel: str, arguments: list[str], capsys: pytest.CaptureFixture[str]):
    code = main(["check", f"{EXAMPLES}/{kernel}", "--target", "xe-pvc", "--args", *arguments])
    out = capsys.readouterr()
    assert code == 0, out.err
    for stage in ("xegpu-propagate-layout", "xegpu-wg-to-sg-distribute", "xegpu-blocking"):
        assert f"right: pass {stage}" in out.out
    assert "right: the lanes' program, compiled for this CPU" in out.out


def test_a_function_whose_outer_loops_are_the_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """XeTile, appendix 2.3, with one of its workgroups."""
    text = (EXAMPLES / "rfc/xetile_2_3_transpose_optimization.mlir").read_text()
    file = tmp_path / "small.mlir"
    file.write_text(re.sub(r"(?<!%c)4096", "512", text))
    assert main(["check", str(file), "--target", "xe-pvc", "--grid", "1"]) == 0
    assert "stages agree" in capsys.readouterr().out
