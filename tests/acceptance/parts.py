"""Programs that touch part of a tile: masks on loads and stores. Every target runs them against numpy."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from tests.arrays import poison

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64, bool]
"""One of each width and kind."""


@tw.kernel
def masked(X, M, Y, Z, LOW: tw.constexpr, PAD: tw.constexpr, R: tw.constexpr, C: tw.constexpr):
    i, j = tw.program_id(0) * R, tw.program_id(1) * C
    keep = tw.load_tile(tw.init_tile(M, [i, j], (R, C))).to(tw.i1)
    x = tw.load_tile(tw.init_tile(X, [i, j], (R, C)), keep, padding=PAD)
    tw.store_tile(x, tw.init_tile(Y, [i, j], (R, C)))
    below = tw.arange(0, R, axis=0, shape=(R, 1)) >= LOW
    tw.store_tile(x, tw.init_tile(Z, [i, j], (R, C)), keep & below)


def check_masked(
    target: str, rng: np.random.Generator, dtype: Any, *, transposed: bool = True, flag: Any = bool
) -> None:
    """Random masks on ragged arrays, of any memory order: numpy's `where`, and nothing else written."""
    rows, cols = (int(n) for n in rng.integers(1 if transposed else 2, 40, 2))
    tile = (int(rng.choice([1, 8, 16])), int(rng.choice([16, 32])))
    low = int(rng.integers(0, tile[0] + 1))
    x = rng.integers(0, 2 if dtype is bool else 100, (rows, cols)).astype(dtype)
    keep = rng.random((rows, cols)) < rng.random()
    y, z = poison(2, rows, cols, dtype=dtype)
    if transposed and rng.random() < 0.3:
        x, z = np.asfortranarray(x), np.asfortranarray(z)
    before = z.copy()
    grid = (tw.cdiv(rows, tile[0]), tw.cdiv(cols, tile[1]))
    masked.options(target=target)[grid](
        x, keep.astype(flag), y, z, LOW=low, PAD=1, R=tile[0], C=tile[1]
    )
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
    return [a.astype(np.float16), b.astype(np.float16), poison(m, n)]


def expect_lower(args: list[Any], c: Any) -> None:
    a, b, before = args
    lower = np.tril(np.ones(c.shape, bool))
    want = np.where(lower, a.astype(np.float32) @ b.astype(np.float32), before)
    assert np.array_equal(bits(c), bits(want))


@tw.kernel
def grouped(X, W, ENDS, Y, BM: tw.constexpr = 32, BN: tw.constexpr = 32, BK: tw.constexpr = 32):
    """One product per group of rows, each with a matrix of its own; groups end where ENDS says."""
    e, n = tw.program_id(0), tw.program_id(1) * BN
    first = tw.load_tile(tw.init_tile(ENDS, [e], (1, 1))).item()
    count = tw.load_tile(tw.init_tile(ENDS, [e + 1], (1, 1))).item() - first
    x, y = tw.view(X, [first, 0], [count, None]), tw.view(Y, [first, 0], [count, None])
    for m in range(0, x.shape[0], BM):
        acc = tw.zeros((BM, BN), tw.f32)
        for k in range(0, X.shape[1], BK):
            a = tw.load_tile(tw.init_tile(x, [m, k], (BM, BK)))
            acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(W, [e, k, n], (BK, BN))), acc)
        tw.store_tile(acc.to(Y.dtype), tw.init_tile(y, [m, n], (BM, BN)))


def groups_of(rng: np.random.Generator, rows: int, k: int, n: int) -> list[Any]:
    """Random groups of rows, among them an empty one at the beginning, where ends are 0, and one row."""
    cuts = np.sort(rng.integers(0, rows + 1, 2))
    ends = np.array([0, 0, min(1, cuts[0]), *cuts, rows], np.int32)
    x, w = rng.integers(-3, 4, (rows, k)), rng.integers(-3, 4, (len(ends) - 1, k, n))
    return [x.astype(np.float16), w.astype(np.float16), ends, poison(rows, n)]


def expect_groups(args: list[Any], y: Any) -> None:
    x, w, ends, _ = args
    for e, (first, end) in enumerate(pairwise(ends)):
        want = x[first:end].astype(np.float32) @ w[e].astype(np.float32)
        np.testing.assert_array_equal(y[first:end], want)


@tw.kernel
def windows(
    X,
    AT,
    Y,
    R: tw.constexpr = 8,
    C: tw.constexpr = 16,
    PAD: tw.constexpr = 7,
    BACK: tw.constexpr = 0,
):
    """Parts of X at run-time places, moved by two rows and a column inside of their bounds, and stored so."""
    p = tw.program_id(0)
    row = tw.load_tile(tw.init_tile(AT, [p, 0], (1, 1))).item()
    column = tw.load_tile(tw.init_tile(AT, [p, 1], (1, 1))).item()
    rows = tw.load_tile(tw.init_tile(AT, [p, 2], (1, 1))).item()
    columns = tw.load_tile(tw.init_tile(AT, [p, 3], (1, 1))).item()
    part = tw.view(tw.view(X, [row, 1], [None, None]), [0, column], [rows, columns])
    x = tw.load_tile(tw.init_tile(part, [BACK, 1], (R, C)), padding=PAD)
    tw.store_tile(
        x, tw.init_tile(tw.view(Y, [p, 0, 0], [1, rows, columns]), [0, -BACK // 2, 2], (R, C))
    )


def check_windows(target: str, rng: np.random.Generator, dtype: Any, back: int) -> None:
    """Places before, in and past the array, extents from -2 on; `back`: where tiles begin in them."""
    n, r, c = 6, 8, 16
    x = rng.integers(1 if dtype is bool else 10, 100, tuple(rng.integers(3, 30, 2))).astype(dtype)
    at = rng.integers(-2, 28, (n, 4)).astype(np.int32)
    at[0] = 0
    y = poison(n, 12, 24, dtype=dtype)
    want = y.copy()
    windows.options(target=target)[n](x, at, y, BACK=back)
    for p, (row, column, rows, columns) in enumerate(at.tolist()):
        part = x[row:, 1:] if row >= 0 else x[:0]
        part = part[: max(rows, 0), column : column + max(columns, 0)] if column >= 0 else x[:0]
        low, right = -back // 2, 2
        for i, j in np.ndindex(r, c):
            at_x, at_y = (back + i, 1 + j), (low + i, right + j)
            inside = 0 <= at_y[0] < min(rows, 12) and at_y[1] < min(columns, 24)
            if inside:
                read = at_x[0] >= 0 and at_x[0] < part.shape[0] and at_x[1] < part.shape[1]
                want[p][at_y] = part[at_x] if read else np.asarray(7).astype(dtype)
    np.testing.assert_array_equal(bits(y), bits(want))


@tw.kernel
def shared_windows(X, Y, shift: tw.i32, B: tw.constexpr = 16):
    """Tiles of shared memory that reach outside of it, at places of compile time and of run time."""
    slm, beside = tw.alloc_slm((B, B), X.dtype), tw.alloc_slm((B, B), X.dtype)
    x = tw.load_tile(tw.init_tile(X, [0, 0], (B, B)))
    tw.store_tile(x, tw.init_tile(beside, [0, 0], (B, B)))
    tw.store_tile(x, tw.init_tile(slm, [0, 0], (B, B)))
    tw.barrier()
    tw.store_tile(x, tw.init_tile(slm, [B - 3, 0], (B, B)))
    tw.barrier()
    parts = tw.load_tile(tw.init_tile(slm, [-2, 1], (B, B)))
    parts += tw.load_tile(tw.init_tile(slm, [shift, -shift], (B, B)), padding=7)
    parts += tw.load_tile(tw.init_tile(beside, [0, 0], (B, B)))
    tw.store_tile(parts, tw.init_tile(Y, [0, 0], (B, B)))


def check_shared_windows(target: str, rng: np.random.Generator, dtype: Any = np.int32) -> None:
    """Outside of shared memory a load gives the padding and a store is dropped: what lies beside stays."""
    x, shift = rng.integers(-9, 9, (16, 16)).astype(dtype), int(rng.integers(1, 16))
    y = poison(16, 16, dtype=dtype)
    shared_windows.options(target=target)[1](x, y, np.int32(shift))
    slm = np.vstack([x[:13], x[:3]])
    want = np.pad(slm, ((2, 0), (0, 1)))[:16, 1:] + x
    want += np.pad(slm, ((0, shift), (shift, 0)), constant_values=7)[shift:, :16]
    np.testing.assert_array_equal(y, want)


def bits(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.uint8)
