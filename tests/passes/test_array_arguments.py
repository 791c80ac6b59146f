# ruff: noqa: E501
"""array-arguments: kernels that take vectors, descriptors and tiles, or return vectors, take arrays instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.array_arguments import array_arguments
from tilewright.tools.cli import main

D = "!xegpu.tensor_desc<8x16xf32>"
T = "!xetile.tile<8x16xf32, #xetile.tile_attr<order = [0, 1]>>"
STORE = f"xegpu.store_nd %r, %o[0, 0] : vector<8x16xf32>, {D}\n  gpu.return"
KERNELS = {
    "vectors": (
        f"(%v: vector<8x16xf32>, %w: vector<16xf32>, %o: {D})",
        f"%b = vector.broadcast %w : vector<16xf32> to vector<8x16xf32>\n  %r = arith.addf %v, %b : vector<8x16xf32>\n  {STORE}",
        lambda v, w: v + w,
    ),
    "descriptors": (
        f"(%i: {D}, %w: vector<2x4x16xf32>, %o: {D})",
        f"%v = xegpu.load_nd %i[0, 0] : {D} -> vector<8x16xf32>\n  %u = vector.shape_cast %w : vector<2x4x16xf32> to vector<8x16xf32>\n"
        f"  %r = arith.mulf %v, %u : vector<8x16xf32>\n  {STORE}",
        lambda i, w: i * w.reshape(8, 16),
    ),
    "tiles, and a result": (
        f"(%i: {T}, %w: !xetile.tile<8x16xf32>) -> vector<8x16xf32>",
        f"%v = xetile.load_tile %i : {T} -> vector<8x16xf32>\n  %u = xetile.load_tile %w : !xetile.tile<8x16xf32> -> vector<8x16xf32>\n"
        "  %r = arith.subf %v, %u : vector<8x16xf32>\n  gpu.return %r : vector<8x16xf32>",
        lambda i, w: i - w,
    ),
}
SHAPES = {"vectors": (16,), "descriptors": (2, 4, 16), "tiles, and a result": (8, 16)}


def text_of(name: str) -> str:
    signature, body, _ = KERNELS[name]
    kernel = "" if "->" in signature else " kernel"
    return f"gpu.module @m {{ gpu.func @k{signature}{kernel} {{\n  {body}\n}} }}\n"


@pytest.mark.parametrize("name", KERNELS)
def test_the_arrays_hold_what_was_passed(name: str) -> None:
    module = parse_module(text_of(name))
    array_arguments(module)
    verify_module(module)
    print_module(module)
    rng = fresh_rng()
    a = np.asarray(rng.standard_normal((8, 16)), np.float32)
    if name.startswith("tiles"):
        a = np.asfortranarray(a)
    b = rng.standard_normal(SHAPES[name]).astype(np.float32)
    out = np.full((8, 16), np.nan, np.float32)
    reference.run(module, args=[a, b, out])
    np.testing.assert_array_equal(out, KERNELS[name][2](a, b))


@pytest.mark.parametrize("target", ["cpu", "emu", "sm_80", "xe-pvc", "xe-dg2"])
@pytest.mark.parametrize("name", KERNELS)
def test_targets_agree(name: str, target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "kernel.mlir"
    path.write_text(text_of(name))
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out


STAYS = (
    "gpu.func @k(%t: !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>) kernel { gpu.return }",
    "gpu.func @k(%m: !xegpu.mem_desc<8x16xf32>) kernel { gpu.return }",
)


@pytest.mark.parametrize("kernel", STAYS)
def test_what_has_no_array_stays_and_is_refused(kernel: str, tmp_path: Path, capsys) -> None:
    text = f"gpu.module @m {{ {kernel} }}"
    module = parse_module(text)
    before = print_module(module)
    array_arguments(module)
    assert print_module(module) == before
    path = tmp_path / "kernel.mlir"
    path.write_text(text)
    assert main(["check", str(path)]) == 1
    assert "no launch passes such a value" in capsys.readouterr().err


def test_kernels_that_their_module_launches_stay() -> None:
    module = parse_module("""
gpu.module @m { gpu.func @k(%v: vector<4xf32>) kernel { gpu.return } }
func.func @main() {
  %one = arith.constant 1 : index
  %v = arith.constant dense<1.0> : vector<4xf32>
  gpu.launch_func @m::@k blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%v : vector<4xf32>)
  return
}""")
    before = print_module(module)
    array_arguments(module)
    assert print_module(module) == before
