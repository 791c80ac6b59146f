# ruff: noqa: E501
"""Products of microscaled operands: 8- and 4-bit floats, scales that are powers of two."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.targets.emu.agree import agree, lane_kernel, subgroup_kernel
from tests.targets.emu.test_blocks import array
from tilewright.tools.cli import main

NIBBLES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def halves(bytes_: np.ndarray) -> np.ndarray:
    bits = bytes_.view(np.uint8)
    return NIBBLES[np.stack([bits & 15, bits >> 4], axis=-1).reshape(bits.shape[0], -1)]


def powers(bytes_: np.ndarray) -> np.ndarray:
    return 2.0 ** (bytes_.view(np.uint8).astype(int) - 127)


def operands(columns: int, kind: str) -> str:
    """%a1, 8x64 of 4-bit floats, and %b1, 64x16 of a kind that takes so many bytes a row."""
    return f"""
  %ta = xegpu.create_nd_tdesc %a : memref<8x32xi8> -> !xegpu.tensor_desc<8x32xi8>
  %tb = xegpu.create_nd_tdesc %b : memref<64x{columns}xi8> -> !xegpu.tensor_desc<64x{columns}xi8>
  %a0 = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<8x32xi8> -> vector<8x32xi8>
  %b0 = xegpu.load_nd %tb[0, 0] : !xegpu.tensor_desc<64x{columns}xi8> -> vector<64x{columns}xi8>
  %a1 = vector.bitcast %a0 : vector<8x32xi8> to vector<8x64xf4E2M1FN>
  %b1 = vector.bitcast %b0 : vector<64x{columns}xi8> to vector<64x16x{kind}>"""


def test_four_bit_floats_with_scales():
    body = f"""{operands(8, "f4E2M1FN")}
  %sa0 = vector.load %sa[%c0, %c0] : memref<8x2xi8>, vector<8x2xi8>
  %sb0 = vector.load %sb[%c0, %c0] : memref<2x16xi8>, vector<2x16xi8>
  %sa1 = vector.bitcast %sa0 : vector<8x2xi8> to vector<8x2xf8E8M0FNU>
  %sb1 = vector.bitcast %sb0 : vector<2x16xi8> to vector<2x16xf8E8M0FNU>
  %tc = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %vc = xegpu.load_nd %tc[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  %r = xegpu.dpas_mx %a1, %b1, %vc scale_a = %sa1 scale_b = %sb1 : (vector<8x64xf4E2M1FN>, vector<64x16xf4E2M1FN>, vector<8x16xf32>, vector<8x2xf8E8M0FNU>, vector<2x16xf8E8M0FNU>) -> vector<8x16xf32>
  xegpu.store_nd %r, %tc[0, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>"""
    args = "%a: memref<8x32xi8>, %b: memref<64x8xi8>, %sa: memref<8x2xi8>, %sb: memref<2x16xi8>, %c: memref<8x16xf32>"
    rng = fresh_rng()
    a, b = array(rng, "i8", 8, 32), array(rng, "i8", 64, 8)
    sa, sb = (rng.integers(120, 134, s).astype(np.uint8).view(np.int8) for s in ((8, 2), (2, 16)))
    c = array(rng, "f32", 8, 16)
    *_, result = agree(subgroup_kernel(args, body), [a, b, sa, sb, c])
    left = halves(a) * np.repeat(powers(sa), 32, axis=1)
    right = halves(b) * np.repeat(powers(sb), 32, axis=0)
    expected = c + left @ right
    assert np.linalg.norm(result - expected) / np.linalg.norm(expected) < 1e-6


def test_four_bit_floats_by_eight_run_on_emu_where_tiles_hold_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    body = f"""{operands(16, "f8E5M2")}
  %r = xegpu.dpas_mx %a1, %b1 : (vector<8x64xf4E2M1FN>, vector<64x16xf8E5M2>) -> vector<8x16xf32>
  %tc = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %r, %tc[0, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>"""
    text = tmp_path / "product.mlir"
    args = "%a: memref<8x32xi8>, %b: memref<64x16xi8>, %c: memref<8x16xf32>"
    text.write_text(str(subgroup_kernel(args, body)))
    assert main(["check", str(text), "--target", "cpu"]) == 0
    assert main(["check", str(text), "--target", "sm_90a"]) == 1
    assert "error: 4-bit floats" in "".join(capsys.readouterr())


def test_eight_bit_floats_of_lanes():
    body = """
  %ta = xegpu.create_nd_tdesc %a : memref<8x32xf8E5M2> -> !xegpu.tensor_desc<8x32xf8E5M2>
  %tb = xegpu.create_nd_tdesc %b : memref<32x16xf8E5M2> -> !xegpu.tensor_desc<32x16xf8E5M2>
  %va = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<8x32xf8E5M2> -> vector<16xf8E5M2>
  %vb = xegpu.load_nd %tb[0, 0] <{packed}> : !xegpu.tensor_desc<32x16xf8E5M2> -> vector<32xf8E5M2>
  %tc = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %vc = xegpu.load_nd %tc[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
  %r = xegpu.dpas_mx %va, %vb, %vc : (vector<16xf8E5M2>, vector<32xf8E5M2>, vector<8xf32>) -> vector<8xf32>
  xegpu.store_nd %r, %tc[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
    args = "%a: memref<8x32xf8E5M2>, %b: memref<32x16xf8E5M2>, %c: memref<8x16xf32>"
    rng = fresh_rng()
    a, b = (rng.standard_normal(s).astype(ml_dtypes.float8_e5m2) for s in ((8, 32), (32, 16)))
    c = array(rng, "f32", 8, 16)
    *_, result = agree(lane_kernel(args, body), [a, b, c])
    expected = c + a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(result - expected) / np.linalg.norm(expected) < 1e-6
