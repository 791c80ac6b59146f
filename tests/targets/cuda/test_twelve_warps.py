"""Teams of three warpgroups: the rules of the distributor with a number of warps that is no power of two."""

# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false
from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels as k
from tests.arrays import error
from tests.targets.cuda.threads import ThreadsTarget
from tilewright import knobs, ops
from tilewright.targets.cuda import pipeline

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(autouse=True)
def twelve(monkeypatch: pytest.MonkeyPatch, threads: ThreadsTarget) -> Iterator[None]:
    monkeypatch.setattr(pipeline, "choose_warps", lambda kernel: 12)
    # Kernels that other tests have compiled as well (`threads` has a number of its own) are compiled anew.
    with knobs.override(num_threads=12):
        yield


@pytest.mark.parametrize("shape", [(5, 64), (7, 100), (3, 1000)], ids=str)
def test_rows(shape, threads: ThreadsTarget, rng):
    x = rng.standard_normal(shape).astype("f4")
    e = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    assert error(ops.softmax(x, target="cuda"), e / e.sum(-1, keepdims=True)) < 2e-6
    assert threads.last is not None and threads.last.lowered.threads == 384


def test_columns(threads: ThreadsTarget, rng):
    x = rng.standard_normal((70, 130)).astype("f4")
    mean, var = np.full((130,), np.nan, "f4"), np.full((130,), np.nan, "f4")
    k.column_stats.options(target="cuda")[3](x, mean, var)
    assert error(mean, x.astype(float).mean(0)) < 1e-5
    assert error(var, x.astype(float).var(0)) < 1e-5


@tw.kernel
def turned(X, Y, Z, M: tw.constexpr, N: tw.constexpr):
    """Transposed, reshaped, summed both ways and masked."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (M, N)))
    rows, columns = tw.sum(x, 1), tw.sum(x, 0)
    y = tw.transpose(x * columns + rows)
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (N, M)))
    i = tw.arange(0, M, axis=0, shape=(M, N))
    j = tw.arange(0, N, axis=1, shape=(M, N))
    tw.store_tile(tw.where(i + 3 < j, x, 0.0), tw.init_tile(Z, [0, 0], (M, N)))


@pytest.mark.parametrize("shape", [(192, 32), (96, 64), (24, 12), (64, 64), (6, 6)], ids=str)
def test_tiles(shape, threads: ThreadsTarget, rng):
    x = rng.standard_normal(shape).astype("f4")
    y, z = np.full(shape[::-1], np.nan, "f4"), np.full(shape, np.nan, "f4")
    turned.options(target="cuda")[1](x, y, z, M=shape[0], N=shape[1])
    w = x.astype(float)
    assert error(y, (w * w.sum(0) + w.sum(1, keepdims=True)).T) < 1e-6
    i, j = np.indices(shape)
    np.testing.assert_array_equal(z, np.where(i + 3 < j, x, 0))


@pytest.mark.parametrize("dtype", ["f2", BF16, "f4"], ids=str)
def test_products(dtype, threads: ThreadsTarget, rng):
    a = rng.standard_normal((96, 88)).astype(dtype)
    b = rng.standard_normal((88, 80)).astype(dtype)
    c = np.full((96, 80), np.nan, "f4")
    k.gemm.options(target="cuda")[1, 2](a, b, c, BM=96, BN=64, BK=32)
    assert error(c, a.astype(float) @ b.astype(float)) < 1e-6


def test_rows_in_a_single_warp(threads: ThreadsTarget, rng):
    q, key, v = (rng.standard_normal((1, 70, 32)).astype("f2") for _ in range(3))
    s = q.astype(float) @ key.astype(float).swapaxes(1, 2) / 32**0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    wanted = p / p.sum(-1, keepdims=True) @ v.astype(float)
    assert error(ops.attention(q, key, v, target="cuda"), wanted) < 2e-3
