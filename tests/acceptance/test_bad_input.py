"""Odd input on every target: each gives the right result. What is refused: `tests/lang/test_refused.py`,
`tests/tools/test_mistakes.py`."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.devices import on_gpu

from . import kernels


@tw.kernel
def copy_shifted(X, Y, DM: tw.constexpr, DN: tw.constexpr, B: tw.constexpr = 16):
    x = tw.load_tile(tw.init_tile(X, [DM, DN], (B, B)), padding=7)
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (B, B)))


@pytest.mark.parametrize(
    "shift", [(-5, 0), (0, -5), (12, 0), (0, 12), (-40, 3), (100, -100)], ids=str
)
def test_tile_outside_its_matrix(shift, target, rng):
    x, y = rng.standard_normal((16, 16)).astype(np.float32), np.zeros((16, 16), np.float32)
    copy_shifted.options(target=target)[1](x, y, DM=shift[0], DN=shift[1])
    want = np.full((16, 16), 7, np.float32)
    i, j = np.indices((16, 16))
    i, j = i + shift[0], j + shift[1]
    inside = (i >= 0) & (i < 16) & (j >= 0) & (j < 16)
    want[inside] = x[i[inside], j[inside]]
    np.testing.assert_array_equal(y, want)


@tw.kernel
def store_shifted(Y, DM: tw.constexpr, DN: tw.constexpr):
    tw.store_tile(tw.full((16, 16), 3.0, tw.f32), tw.init_tile(Y, [DM, DN], (16, 16)))


@pytest.mark.parametrize("shift", [(-5, 2), (12, -9), (-16, 0), (40, 0)], ids=str)
def test_store_outside_is_dropped(shift, target):
    guarded = np.full((24, 24), -1.0, np.float32)
    y = guarded[4:20, 4:20]
    store_shifted.options(target=target)[1](y, DM=shift[0], DN=shift[1])
    want = np.full((24, 24), -1.0, np.float32)
    lo = [max(4, 4 + s) for s in shift]
    hi = [min(20, 20 + s) for s in shift]
    want[lo[0] : max(lo[0], hi[0]), lo[1] : max(lo[1], hi[1])] = 3.0
    np.testing.assert_array_equal(guarded, want)


@pytest.mark.parametrize("m, n, k", [(0, 5, 5), (5, 0, 5), (5, 5, 0), (1, 1, 1), (1, 1, 0)])
def test_shapes_zero_and_one(m, n, k, target, rng):
    a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    c = np.full((m, n), np.nan, np.float32)
    grid = (tw.cdiv(m, 32), tw.cdiv(n, 32))
    kernels.gemm.options(target=target)[grid](a, b, c, BM=32, BN=32)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def test_kernel_without_a_store(target):
    @tw.kernel
    def idle(A):
        tw.load_tile(tw.init_tile(A, [0, 0], (16, 16)))

    a = ones(16, 16)
    idle.options(target=target)[1](a)
    np.testing.assert_array_equal(a, 1)


def test_grid_of_zero(target):
    c = np.full((4, 4), 5, np.float32)
    kernels.gemm.options(target=target)[0, 3](ones(4, 4), ones(4, 4), c)
    np.testing.assert_array_equal(c, 5)


def test_negative_strides_and_misalignment(target, rng):
    raw = np.zeros(30 * 40 * 4 + 1, np.uint8)
    a = raw[1:].view(np.float32).reshape(30, 40)
    a[:] = rng.standard_normal((30, 40))
    b = rng.standard_normal((40, 20)).astype(np.float32)
    c = np.full((30, 20), np.nan, np.float32)
    if on_gpu(target):
        with pytest.raises(tw.UnsupportedError, match="no multiple of its 4-byte elements"):
            kernels.gemm.options(target=target)[1, 1](a, b, c, BM=32, BN=32)
        a = a.copy()
    kernels.gemm.options(target=target)[1, 1](a[::-1], b[:, ::-1], c, BM=32, BN=32)
    np.testing.assert_allclose(c, a[::-1].astype("f8") @ b[:, ::-1], rtol=2e-4, atol=1e-5)


def test_overlapping_arrays_in_place(target, rng):
    """Reading and writing the same array is one workgroup's business: program order holds."""

    @tw.kernel
    def double(X, Y):
        m = tw.program_id(0) * 16
        x = tw.load_tile(tw.init_tile(X, [m, 0], (16, 32)))
        tw.store_tile(x + x, tw.init_tile(Y, [m, 0], (16, 32)))

    x = rng.standard_normal((40, 20)).astype(np.float32)
    want = x + x
    double.options(target=target)[3](x, x)
    np.testing.assert_array_equal(x, want)
