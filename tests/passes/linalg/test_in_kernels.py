"""Structured ops inside of kernels: a workgroup's program computes them, at their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.arrays import error
from tests.draws import fresh_rng
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.linalg.to_xetile import linalg_to_xetile
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text
from tilewright.tools.cli import main

ROWS = "strided<[{0}, 1], offset: ?>"
LAYER = f"""gpu.module @m {{ gpu.func @k(%a: memref<64x48xf16>, %b: memref<48x40xf16>, %bias: memref<40xf32>,
    %o: memref<64x40xf32>, %s: memref<64xf32>) kernel {{
  %x = gpu.block_id x
  %c32 = arith.constant 32 : index
  %z = arith.constant 0.0 : f32
  %r = arith.muli %x, %c32 : index
  %va = memref.subview %a[%r, 0] [32, 48] [1, 1]
    : memref<64x48xf16> to memref<32x48xf16, {ROWS.format(48)}>
  %vo = memref.subview %o[%r, 0] [32, 40] [1, 1]
    : memref<64x40xf32> to memref<32x40xf32, {ROWS.format(40)}>
  %vs = memref.subview %s[%r] [32] [1] : memref<64xf32> to memref<32xf32, strided<[1], offset: ?>>
  %t = memref.alloc() : memref<32x40xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<32x40xf32>)
  linalg.matmul ins(%va, %b : memref<32x48xf16, {ROWS.format(48)}>, memref<48x40xf16>)
    outs(%t : memref<32x40xf32>)
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
    ins(%t, %bias : memref<32x40xf32>, memref<40xf32>) outs(%vo : memref<32x40xf32, {ROWS.format(40)}>) {{
  ^bb0(%in: f32, %add: f32, %out: f32):
    %e = arith.addf %in, %add : f32
    %f = math.tanh %e : f32
    linalg.yield %f : f32
  }}
  linalg.fill ins(%z : f32) outs(%vs : memref<32xf32, strided<[1], offset: ?>>)
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}}
    ins(%vo : memref<32x40xf32, {ROWS.format(40)}>) outs(%vs : memref<32xf32, strided<[1], offset: ?>>) {{
  ^bb0(%in: f32, %sum: f32):
    %e = arith.addf %in, %sum : f32
    linalg.yield %e : f32
  }}
  gpu.return }} }}
"""
"""A layer of a network: two workgroups, whose parts of the arrays are views."""


@pytest.mark.parametrize("lowered", [False, True], ids=["as written", "as tiles"])
def test_two_programs_compute_their_parts(lowered: bool):
    module = parse_module(LAYER)
    if lowered:
        linalg_to_xetile(module)
        verify_module(module)
        assert not any(op.name.startswith("linalg.") for op in module.walk())
    rng = fresh_rng()
    a, b = (rng.standard_normal(n).astype(np.float16) for n in ((64, 48), (48, 40)))
    bias = rng.standard_normal(40).astype(np.float32)
    o, s = np.full((64, 40), np.nan, np.float32), np.full(64, np.nan, np.float32)
    report = reference.run(module, (2, 1, 1), [a, b, bias, o, s], check=True)
    assert not [f for f in report.findings if f.severity == "error"]
    wanted = np.tanh(a.astype(np.float64) @ b.astype(np.float64) + bias)
    assert error(o, wanted) < 1e-5 and error(s, wanted.sum(axis=1)) < 1e-5


def test_every_stage_for_the_cpu_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER)
    assert main(["check", str(file), "--target", "cpu"]) == 0
    assert "stages agree" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["sm_90a", "xe-pvc"])
def test_gpus_compile_it(target: str):
    assert build_text(parse_module(LAYER), CompileOptions(target=target))


def test_an_op_of_lanes_is_refused():
    text = LAYER.replace("%x = gpu.block_id x", "%x = gpu.block_id x\n  %lane = gpu.thread_id x")
    with pytest.raises(UnsupportedError, match=r"a structured op in a program of lanes") as caught:
        build_text(parse_module(text), CompileOptions(target="cpu"))
    assert caught.value.location is not None
