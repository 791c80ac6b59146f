"""Workgroup-level XeGPU on targets that take XeTile: `check` and `compile` read it as they read the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.tools.cli import main

TEXT = """
#l = #xegpu.layout<sg_layout = [2, 2], sg_data = [16, 16]>
gpu.module @m { gpu.func @f(%a: memref<32x32xf32>, %c: memref<32xf32>) kernel {
  %t = xegpu.create_nd_tdesc %a : memref<32x32xf32> -> !xegpu.tensor_desc<32x32xf32, #l>
  %x = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<32x32xf32, #l> -> vector<32x32xf32>
  %z = arith.constant dense<0.0> : vector<32xf32>
  %r = vector.multi_reduction <add>, %x, %z [1] : vector<32x32xf32> to vector<32xf32>
  %o = vector.step : vector<32xindex>
  %m = arith.constant dense<true> : vector<32xi1>
  xegpu.store %r, %c[%o], %m : vector<32xf32>, memref<32xf32>, vector<32xindex>, vector<32xi1>
  gpu.return } }
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "sums.mlir"
    path.write_text(TEXT)
    return str(path)


def test_check_on_the_cpu(file: str, capsys: pytest.CaptureFixture[str]):
    assert main(["check", file]) == 0
    out = capsys.readouterr().out
    assert "right: pass xegpu-to-xetile" in out and "right: code generation for cpu" in out


@pytest.mark.parametrize(("target", "stage"), [("cpu", "llvm"), ("sm_90a", "ptx")])
def test_compile(file: str, target: str, stage: str, capsys: pytest.CaptureFixture[str]):
    code = main(["compile", file, "--target", target, "--emit", stage])
    out = capsys.readouterr()
    assert code == 0, out.err
    assert out.out
