"""f8E8M0FNU, the type of scales: conversions on every machine, arrays, constants and arith.extf on every target."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.harness import LEVELS, map_vectors
from tests.draws import fresh_rng
from tilewright.codegen import x86
from tilewright.tools.cli import main

SCALE = ml_dtypes.float8_e8m0fnu
EVERY = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("level", LEVELS)
def test_every_scale_becomes_its_power_of_two(level: str) -> None:
    got = map_vectors(
        "%s = vector.bitcast %x0 : vector<256xi8> to vector<256xf8E8M0FNU>\n"
        "%r = arith.extf %s : vector<256xf8E8M0FNU> to vector<256xf32>",
        [EVERY.view(np.int8)],
        ["vector<256xi8>"],
        "vector<256xf32>",
        np.float32,
        x86(level),
    )
    np.testing.assert_array_equal(got.ravel(), EVERY.view(SCALE).astype(np.float32))


@pytest.mark.parametrize("level", LEVELS)
def test_floats_round_to_the_nearest_scale(level: str) -> None:
    rng = fresh_rng()
    bits = rng.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32)
    ends = [0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.5, 3.0, 2.0**-127, 2.0**-128, 1.5 * 2.0**127]
    near = [2.0**e * f for e in range(-126, 127, 9) for f in (1, 1.25, 1.4999, 1.5, 1.5001, 1.99)]
    near += [2.0**-127 * f for f in (0.5, 0.99, 1.01, 1.4999, 1.5, 1.5001, 1.99)]
    x = np.concatenate([bits.view(np.float32), np.array([*ends, *near], np.float32)])
    x = np.resize(x, 4608)
    got = map_vectors(
        "%s = arith.truncf %x0 : vector<256xf32> to vector<256xf8E8M0FNU>\n"
        "%r = vector.bitcast %s : vector<256xf8E8M0FNU> to vector<256xi8>",
        [x],
        ["vector<256xf32>"],
        "vector<256xi8>",
        np.int8,
        x86(level),
        parts=18,
    )
    with np.errstate(all="ignore"):
        right = x.astype(SCALE).view(np.uint8)
    right[(x > 2.0**-127) & (x < 1.5 * 2.0**-127)] = 0  # ml_dtypes 0.5 rounds these up
    np.testing.assert_array_equal(got.ravel().view(np.uint8), right)


TEXT = """
gpu.module @m {{ gpu.func @k(%i: memref<8x16xf8E8M0FNU>, %o: memref<8x16xf32>) kernel {{
  %t = {dialect}.{init} %i{at} : memref<8x16xf8E8M0FNU> -> !{dialect}.{tile}<8x16xf8E8M0FNU>
  %s = {dialect}.{load} : !{dialect}.{tile}<8x16xf8E8M0FNU> -> vector<8x16xf8E8M0FNU>
  %c = arith.constant dense<4.0> : vector<8x16xf8E8M0FNU>
  %x = arith.extf %s : vector<8x16xf8E8M0FNU> to vector<8x16xf32>
  %y = arith.extf %c : vector<8x16xf8E8M0FNU> to vector<8x16xf32>
  %z = arith.mulf %x, %y : vector<8x16xf32>
  %u = {dialect}.{init} %o{at} : memref<8x16xf32> -> !{dialect}.{tile}<8x16xf32>
  {dialect}.{store} : vector<8x16xf32>, !{dialect}.{tile}<8x16xf32>
  gpu.return
}} }}
"""
TILES = TEXT.format(
    dialect="xetile",
    init="init_tile",
    at="[0, 0]",
    tile="tile",
    load="load_tile %t",
    store="store_tile %z, %u",
)
BLOCKS = TEXT.format(
    dialect="xegpu",
    init="create_nd_tdesc",
    at="",
    tile="tensor_desc",
    load="load_nd %t[0, 0]",
    store="store_nd %z, %u[0, 0]",
)


@pytest.mark.parametrize("target", ["reference", "cpu", "emu", "sm_80", "xe-pvc", "xe-dg2"])
@pytest.mark.parametrize("text", [TILES, BLOCKS], ids=["xetile", "xegpu"])
def test_arrays_and_constants_of_scales(text: str, target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "scales.mlir"
    path.write_text(text)
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out


MX = """
gpu.module @m { gpu.func @k(%a: memref<8x64xf8E5M2>, %sa: memref<8x2xf8E8M0FNU>, %o: memref<8x16xf32>) kernel {
  %t = xegpu.create_nd_tdesc %a : memref<8x64xf8E5M2> -> !xegpu.tensor_desc<8x64xf8E5M2>
  %x = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x64xf8E5M2> -> vector<8x64xf8E5M2>
  %y = arith.constant dense<0.5> : vector<64x16xf8E5M2>
  %s = xegpu.create_nd_tdesc %sa : memref<8x2xf8E8M0FNU> -> !xegpu.tensor_desc<8x2xf8E8M0FNU>
  %p = xegpu.load_nd %s[0, 0] : !xegpu.tensor_desc<8x2xf8E8M0FNU> -> vector<8x2xf8E8M0FNU>
  %q = arith.constant dense<4.0> : vector<2x16xf8E8M0FNU>
  %z = xegpu.dpas_mx %x, %y scale_a = %p scale_b = %q : (vector<8x64xf8E5M2>, vector<64x16xf8E5M2>,
      vector<8x2xf8E8M0FNU>, vector<2x16xf8E8M0FNU>) -> vector<8x16xf32>
  %u = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %z, %u[0, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  gpu.return
} }
"""


@pytest.mark.parametrize("target", ["reference", "cpu", "emu", "sm_90a", "xe-pvc", "xe-dg2"])
def test_products_scaled_by_arrays_and_constants(target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "mx.mlir"
    path.write_text(MX)
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out
