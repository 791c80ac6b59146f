"""Whole programs, on every target that runs here, against float64 (relative Frobenius norm)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright as tw
from tests.arrays import error, poison

from . import kernels

Array = NDArray[np.generic]

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
TOLERANCE = {BF16: 8e-3, F16: 1e-3, F32: 2e-6}


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    return rng.standard_normal(shape).astype(dtype)


SHAPES = [(64, 64, 64), (96, 160, 128), (65, 33, 47), (1, 127, 96), (130, 1, 1), (31, 257, 100)]


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", kernels.GEMM_REWRITES, ids=lambda k: k.__name__)
def test_gemm_rewrites(kernel, shape, dtype, target, rng):
    m, n, k = shape
    a, b, c = matrix(rng, (m, k), dtype), matrix(rng, (k, n), dtype), poison(m, n, dtype=dtype)
    grid = (tw.cdiv(m, 32), tw.cdiv(n, 64))
    if kernel is kernels.gemm_swapped_grid:
        grid = grid[::-1]
    kernel.options(target=target)[grid](a, b, c, BM=32, BN=64, BK=16)
    assert error(c, a.astype(np.float64) @ b.astype(np.float64)) < TOLERANCE[dtype]


@pytest.mark.parametrize("view", ["NT", "TN", "TT", "strided"])
def test_gemm_views(view, target, rng):
    m, n, k = 70, 90, 50
    a = matrix(rng, (k, m), F32).T if view[0] == "T" else matrix(rng, (m, k), F32)
    b = matrix(rng, (n, k), F32).T if view[1] == "T" else matrix(rng, (k, n), F32)
    c = poison(m, n, dtype=F32)
    if view == "strided":
        a = matrix(rng, (2 * m, k + 9), F32)[::2, :k]
        c = poison(m + 3, 3 * n, dtype=F32)[3:, ::3]
    kernels.gemm.options(target=target)[tw.cdiv(m, 32), tw.cdiv(n, 32)](a, b, c, BM=32, BN=32)
    assert error(c, a.astype(np.float64) @ b.astype(np.float64)) < 2e-6


def test_gate_up(target, rng):
    x, w, v = (matrix(rng, s, BF16) for s in ((50, 70), (70, 90), (70, 90)))
    y = poison(50, 90, dtype=F32)
    kernels.gate_up.options(target=target)[1, 2](x, w, v, y)
    g, u = (x.astype(np.float64) @ z.astype(np.float64) for z in (w, v))
    assert error(y, g / (1 + np.exp(-g)) * u) < 1e-4


@pytest.mark.parametrize("parts", [1, 3])
def test_split_k(parts, target, rng):
    a, b, c = matrix(rng, (70, 150), F32), matrix(rng, (150, 65), F32), np.zeros((70, 65), F32)
    kernels.split_k.options(target=target)[2, 2, parts](a, b, c, S=parts)
    assert error(c, a.astype(np.float64) @ b.astype(np.float64)) < 2e-6


def test_window_attention(target, rng):
    heads, length, d, window, cap = 2, 150, 64, 40, 20.0
    q, k, v = (matrix(rng, (heads, length, d), BF16) for _ in range(3))
    o = poison(heads, length, d, dtype=F32)
    kernels.window_attention.options(target=target)[tw.cdiv(length, 32), heads](
        q, k, v, o, d**-0.5, W=window, CAP=cap
    )
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = cap * np.tanh(q @ k.swapaxes(1, 2) * d**-0.5 / cap)
    row, col = np.indices((length, length))
    s = np.where((col <= row) & (col > row - window), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    assert error(o, p / p.sum(-1, keepdims=True) @ v) < 1e-2


def test_dequantised_operand(target, rng):
    a = rng.integers(-128, 128, (70, 100), dtype=np.int8)
    s, b = matrix(rng, (70, 1), F32), matrix(rng, (100, 90), BF16)
    c = poison(70, 90, dtype=F32)
    kernels.dequant_gemm.options(target=target)[2, 2](a, s, b, c)
    assert error(c, a * s.astype(np.float64) @ b.astype(np.float64)) < 8e-3


def test_bias_gelu_row_sum(target, rng):
    from math import erf

    a, b = matrix(rng, (100, 64), F32), matrix(rng, (64, 200), F32)
    bias, c, r = matrix(rng, (200,), F32), poison(100, 200, dtype=F32), np.zeros((100, 1), F32)
    kernels.bias_gelu_rowsum.options(target=target)[2, 2](a, b, bias, c, r)
    x = a.astype(np.float64) @ b.astype(np.float64) + bias
    y = 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))
    assert error(c, y) < 1e-5
    assert error(r, y.sum(1, keepdims=True)) < 1e-5


def test_column_statistics(target, rng):
    x = matrix(rng, (77, 130), F16)
    mean, var = poison(130, dtype=F32), poison(130, dtype=F32)
    kernels.column_stats.options(target=target)[3](x, mean, var)
    assert error(mean, x.astype(np.float64).mean(0)) < 1e-5
    assert error(var, x.astype(np.float64).var(0)) < 1e-5


def test_gather_rows(target, rng):
    x, i = matrix(rng, (40, 100), F32), rng.integers(0, 40, 25)
    y = poison(25, 100, dtype=F32)
    kernels.gather_rows.options(target=target)[25, 2](x, i, y)
    np.testing.assert_array_equal(y, x[i])


@pytest.mark.parametrize("dtype", [F32, np.dtype(np.int8), np.dtype(np.float64)], ids=str)
def test_transpose_through_slm(dtype, target, rng):
    x = rng.integers(-100, 100, (70, 45)).astype(dtype)
    y = np.zeros((45, 70), dtype)
    kernels.transpose_through_slm.options(target=target)[3, 2](x, y)
    np.testing.assert_array_equal(y, x.T)


INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]


@tw.kernel
def integer_chain(X, Y, Z, BM: tw.constexpr = 16, BN: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    y = tw.load_tile(tw.init_tile(Y, [m, n], (BM, BN)))
    z = (x // (y | 1)) + (x % (y | 1)) * 3 - (x ^ y) + (x & 5)
    tw.store_tile(tw.where(x < y, z, tw.maximum(x, y)), tw.init_tile(Z, [m, n], (BM, BN)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype, target, rng):
    info = np.iinfo(dtype)
    low = max(info.min, -info.max)  # the least integer divided by -1 does not fit, and is refused
    x, y = (rng.integers(low, info.max, (35, 50), dtype, endpoint=True) for _ in range(2))
    z = np.zeros_like(x)
    integer_chain.options(target=target)[3, 2](x, y, z)
    with np.errstate(over="ignore"):
        divisor = y | x.dtype.type(1)
        want = (x // divisor) + (x % divisor) * x.dtype.type(3) - (x ^ y) + (x & x.dtype.type(5))
    np.testing.assert_array_equal(z, np.where(x < y, want, np.maximum(x, y)))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_mma(dtype, target, rng):
    @tw.kernel
    def mma(A, B, C):
        acc = tw.zeros((32, 32), tw.i32)
        for k in range(0, A.shape[1], 32):
            a = tw.load_tile(tw.init_tile(A, [0, k], (32, 32)))
            b = tw.load_tile(tw.init_tile(B, [k, 0], (32, 32)))
            acc = tw.tile_mma(a, b, acc)
        tw.store_tile(acc, tw.init_tile(C, [0, 0], (32, 32)))

    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (30, 100), dtype, endpoint=True)
    b = rng.integers(info.min, info.max, (100, 31), dtype, endpoint=True)
    c = np.full((30, 31), -1, np.int32)
    mma.options(target=target)[1](a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
