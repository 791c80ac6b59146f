"""Tiles that sums of products meet are loaded in front of the products, without masks where they are inside."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error
from tests.targets.cuda.test_pad_tiles import run

BF16 = np.dtype(ml_dtypes.bfloat16)


@tw.kernel
def squared(A, B, bias, R, Y, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 32):
    """relu(A B + bias)^2 + R."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    acc = tw.maximum(acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN))).to(tw.f32), 0.0)
    acc = acc * acc + tw.load_tile(tw.init_tile(R, [m, n], (BM, BN))).to(tw.f32)
    tw.store_tile(acc.to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize("m, n", [(128, 128), (100, 104), (70, 75)])
def test_residuals(dtype, m, n, rng):
    shapes = (m, 48), (48, n), (n,), (m, n)
    a, b, bias, r = (rng.standard_normal(s).astype(dtype) for s in shapes)
    y = np.full((m, n), np.nan, dtype)
    run(squared, [a, b, bias, r, y], 2, 2)
    wide = [x.astype(np.float64) for x in (a, b, bias, r)]
    want = np.maximum(wide[0] @ wide[1] + wide[2], 0) ** 2 + wide[3]
    assert error(y, want) < (1e-3 if dtype is np.float16 else 8e-3)
    text = squared.compile(a, b, bias, r, y, target="sm_90a").ir["stage"]
    products = text.rfind("stage.mma.issue")
    assert text.rfind("-> vector<64x64x", 0, products) > 0
    assert "load_tile" in text[:products] and "load_tile" in text[products:]


@tw.kernel
def in_loops(
    A, scale, W, bias, V, Y, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64
):
    """((A scale) W + bias) V, two loops of products in one another."""
    m = tw.program_id(0) * BM
    acc = tw.zeros((BM, BN), tw.f32)
    for n in range(0, V.shape[0], BN):
        added = tw.load_tile(tw.init_tile(bias, [n], (1, BN)))
        inner = tw.zeros((BM, BN), tw.f32)
        for k in range(0, A.shape[1], BK):
            by = tw.load_tile(tw.init_tile(scale, [k], (1, BK)))
            a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))) * by
            inner = tw.tile_mma(a, tw.load_tile(tw.init_tile(W, [k, n], (BK, BN))), inner)
        b = tw.load_tile(tw.init_tile(V, [n, 0], (BN, BN)))
        acc = tw.tile_mma((inner + added.to(tw.f32)).to(V.dtype), b, acc)
    tw.store_tile(acc.to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))


def test_rows_are_loaded_ahead_in_loops_in_one_another(rng):
    shapes = (64, 128), (128,), (128, 128), (128,), (128, 64)
    a, scale, w, bias, v = (rng.standard_normal(s).astype(BF16) for s in shapes)
    y = np.full((64, 64), np.nan, BF16)
    run(in_loops, [a, scale, w, bias, v, y], 1, 1)
    wide = [x.astype(np.float64) for x in (a, scale, w, bias, v)]
    assert error(y, (wide[0] * wide[1] @ wide[2] + wide[3]) @ wide[4]) < 8e-3
    assert (
        "stage.mma.issue" in in_loops.compile(a, scale, w, bias, v, y, target="sm_90a").ir["stage"]
    )


@tw.kernel
def windows(X, Y, n, BM: tw.constexpr = 256, BN: tw.constexpr = 128):
    """Y[i] = X[i] + ... + X[i + n - 1], by rows."""
    i, j = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.load_tile(tw.init_tile(X, [i, j], (BM, BN)))
    for k in range(1, n):
        acc += tw.load_tile(tw.init_tile(X, [i + k, j], (BM, BN)))
    tw.store_tile(acc, tw.init_tile(Y, [i, j], (BM, BN)))


def test_iterations_of_an_innermost_loop_do_not_wait_for_their_loads(rng):
    x = rng.standard_normal((100, 97)).astype(np.float32)
    y = np.full_like(x, np.nan)
    run(windows, [x, y, 7], 1, 1)
    want = sum(np.pad(x, [(0, 7), (0, 0)])[k : k + 100].astype(np.float64) for k in range(7))
    assert error(y, want) < 1e-6
    text = windows.compile(x, y, 7, target="sm_90a").ir["mach"]
    start = text.index("scf.for")
    assert "scf.if" in text[:start] and "scf.if" not in text[start : text.index("scf.yield", start)]
