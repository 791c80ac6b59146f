"""Programs that touch part of a tile: masks on loads and stores. Every target runs them against numpy."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from tests.lang.reference import poisoned

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64, bool]
"""One of each width and kind."""


@tw.kernel
def masked(X, M, Y, Z, LOW: tw.constexpr, PAD: tw.constexpr, R: tw.constexpr, C: tw.constexpr):
    i, j = tw.program_id(0) * R, tw.program_id(1) * C
    keep = tw.load_tile(tw.init_tile(M, [i, j], (R, C)))
    x = tw.load_tile(tw.init_tile(X, [i, j], (R, C)), keep, padding=PAD)
    tw.store_tile(x, tw.init_tile(Y, [i, j], (R, C)))
    below = tw.arange(0, R, axis=0, shape=(R, 1)) >= LOW
    tw.store_tile(x, tw.init_tile(Z, [i, j], (R, C)), keep & below)


def check_masked(
    target: str, rng: np.random.Generator, dtype: Any, transposed: bool = True
) -> None:
    """Random masks on ragged arrays, of any memory order: numpy's `where`, and nothing else written."""
    rows, cols = (int(n) for n in rng.integers(1 if transposed else 2, 40, 2))
    tile = (int(rng.choice([1, 8, 16])), int(rng.choice([16, 32])))
    low = int(rng.integers(0, tile[0] + 1))
    x = rng.integers(0, 2 if dtype is bool else 100, (rows, cols)).astype(dtype)
    keep = rng.random((rows, cols)) < rng.random()
    y, z = poisoned((2, rows, cols), dtype)
    if transposed and rng.random() < 0.3:
        x, z = np.asfortranarray(x), np.asfortranarray(z)
    before = z.copy()
    grid = (tw.cdiv(rows, tile[0]), tw.cdiv(cols, tile[1]))
    masked.options(target=target)[grid](x, keep, y, z, LOW=low, PAD=1, R=tile[0], C=tile[1])
    kept = np.where(keep, x, np.ones((), dtype))
    written = keep & (np.arange(rows)[:, None] % tile[0] >= low)
    assert np.array_equal(bits(y), bits(kept))
    assert np.array_equal(bits(z), bits(np.where(written, kept, before)))


@tw.kernel
def lower_product(A, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 32):
    """A product of which only what is on and below the diagonal is stored."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for i in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, i], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [i, n], (BK, BN))), acc)
    row = m + tw.arange(0, BM, axis=0, shape=(BM, 1))
    column = n + tw.arange(0, BN, axis=1, shape=(1, BN))
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)), column <= row)


def product_of(rng: np.random.Generator, m: int, n: int, k: int) -> list[Any]:
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    return [a.astype(np.float16), b.astype(np.float16), poisoned((m, n), np.float32)]


def expect_lower(args: list[Any], c: Any) -> None:
    a, b, before = args
    lower = np.tril(np.ones(c.shape, bool))
    want = np.where(lower, a.astype(np.float32) @ b.astype(np.float32), before)
    assert np.array_equal(bits(c), bits(want))


def bits(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.uint8)
