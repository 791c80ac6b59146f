"""Extents that threads cannot share are padded (`passes/pad_tiles.py`); results are those of the program as written."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import run_threads
from tilewright import uarch
from tilewright.dialects.text import parse_module
from tilewright.dialects.xetile import TileMmaOp
from tilewright.passes.kernel import kernel_of
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.lowered import LoweredThread
from tilewright.targets.cuda.passes.pad_tiles import padded_extent, product_extents
from tilewright.targets.cuda.pipeline import run_pipeline


def lowered(kernel, args, disable: str = "", **constants) -> LoweredThread:
    text = kernel.compile(*args, target="sm_90a", **constants).ir["xetile"]
    off = frozenset(disable.split()) if disable else frozenset[str]()
    options = CompileOptions(target="cuda", machine="sm_90a", disable=off)
    return run_pipeline(parse_module(text), uarch.machine("sm_90a"), options, [])


def run(kernel, args, x: int, y: int = 1, **constants) -> LoweredThread:
    code = lowered(kernel, args, **constants)
    described = [describe(a) if isinstance(a, np.ndarray) else a for a in args]
    run_threads(code, described, (x, y, 1))
    return code


@tw.kernel
def softmax(X, Y, N: tw.constexpr, BM: tw.constexpr = 1):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, N)))
    e = tw.exp(x - tw.max(x, 1))
    tw.store_tile(e / tw.sum(e, 1), tw.init_tile(Y, [m, 0], (BM, N)))


@pytest.mark.parametrize("rows, n, width", [(1, 300, 300), (3, 100, 128), (4, 1000, 1016), (1, 73, 75)])  # fmt: skip
def test_rows_of_any_length(rows, n, width, rng):
    """What lies behind a tile's last column is neither seen nor written."""
    x = rng.standard_normal((2 * rows - (rows > 1), width)).astype(np.float32)
    x[:, n:] = np.nan
    y = np.full_like(x, 7)
    run(softmax, [x, y], 2, N=n, BM=rows)
    want = np.exp(x[:, :n].astype(np.float64))
    np.testing.assert_allclose(y[:, :n], want / want.sum(1, keepdims=True), rtol=1e-5)
    assert (y[:, n:] == 7).all()


@tw.kernel
def blocks(X, Y, S, BM: tw.constexpr, BN: tw.constexpr):
    """Tiles side by side, in place; extremes of columns, of all, and products of rows."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    tile = tw.init_tile(X, [m, n], (BM, BN))
    x = tw.load_tile(tile, padding=1)
    tw.store_tile(x + 1, tile)
    low, high = tw.min(x, 0), tw.max(x, 0)
    tw.store_tile(tw.transpose(x * 2 + high - low), tw.init_tile(Y, [n, m], (BN, BM)))
    tw.atomic_rmw("add", tw.sum(x, 1), tw.init_tile(S, [m, 0], (BM, 1)), tw.max(x) > -100)


@pytest.mark.parametrize("rows, columns", [(40, 56), (9, 100), (100, 9), (1, 90)])
def test_tiles_side_by_side(rows, columns, rng):
    m, n = 2 * rows - 1, 2 * columns + 3
    x = rng.integers(-50, -1, (m, n)).astype(np.int32)
    before, y, s = x.copy(), np.full((n, m), 7, np.int32), np.zeros((m, 1), np.int32)
    run(blocks, [x, y, s], 2, 3, BM=rows, BN=columns)
    np.testing.assert_array_equal(x, before + 1)
    padded = np.ones((2 * rows, 3 * columns), np.int32)
    padded[:m, :n] = before
    want = np.empty_like(padded)
    for i in range(0, 2 * rows, rows):
        for j in range(0, 3 * columns, columns):
            part = padded[i : i + rows, j : j + columns]
            want[i : i + rows, j : j + columns] = part * 2 + part.max(0) - part.min(0)
    np.testing.assert_array_equal(y, want[:m, :n].T)
    np.testing.assert_array_equal(s[:, 0], padded[:m].sum(1))


@tw.kernel
def rows_by_number(X, IDS, Y, COUNTS, N: tw.constexpr, K: tw.constexpr = 2):
    """Sums of gathered rows, carried by a loop; scattered at their mirror's places; columns above 0 counted."""
    m, column = tw.program_id(0), tw.arange(N)
    total = tw.zeros((1, N), tw.f32)
    for k in range(K):
        at = tw.load_tile(tw.init_tile(IDS, [m, k], (1, 1))).item()
        total = total + tw.load_gather(tw.init_tile(X, column + at * N))
    tw.store_scatter(total, tw.init_tile(Y, (N - 1 - column) + m * N), column != 3)
    tw.atomic_rmw("add", 1, tw.init_tile(COUNTS, column % 7), total > 0)


@pytest.mark.parametrize("n", [100, 129, 300])
def test_what_is_found_by_number_is_masked(n, rng):
    x = rng.integers(-9, 9, (8, n)).astype(np.float32)
    ids = rng.integers(0, 8, (3, 2)).astype(np.int32)
    y, counts = np.full((3, n), 7, np.float32), np.zeros(7, np.int32)
    run(rows_by_number, [x, ids, y.reshape(-1), counts], 3, N=n)
    total = x[ids].sum(1)
    want = total[:, ::-1].copy()
    want[:, n - 4] = 7
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(counts, np.bincount(np.arange(n) % 7, (total > 0).sum(0), 7))


@tw.kernel
def shares(X, BY, Y, N: tw.constexpr):
    x, by = (tw.load_tile(tw.init_tile(a, [tw.program_id(0), 0], (1, N))) for a in (X, BY))
    tw.store_tile(x // by * 10 + x % by, tw.init_tile(Y, [tw.program_id(0), 0], (1, N)))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_nothing_is_divided_by_what_is_added(dtype, rng):
    x, by = (rng.integers(1, 20, (2, 300)).astype(dtype) for _ in range(2))
    y = np.zeros_like(x)
    run(shares, [x, by, y], 2, N=300)
    np.testing.assert_array_equal(y, x // by * 10 + x % by)


def test_a_part_of_an_array_ends_where_it_ended(rng):
    """A view's end and a tile's: the nearer one counts."""

    @tw.kernel
    def part(X, ENDS, Y, N: tw.constexpr):
        i = tw.program_id(0)
        x = tw.view(X, [ENDS[i]], [ENDS[i + 1] - ENDS[i]])
        y = tw.view(Y, [ENDS[i]], [ENDS[i + 1] - ENDS[i]])
        for n in range(0, x.shape[0], N):
            value = tw.load_tile(tw.init_tile(x, [n], (1, N)), padding=5)
            tw.store_tile(value + tw.sum(value), tw.init_tile(y, [n], (1, N)))

    x, ends = rng.integers(-9, 9, 500).astype(np.int32), np.array([0, 50, 250, 500], np.int32)
    y = np.full_like(x, -1)
    run(part, [x, ends, y], 3, N=90)
    want = np.empty_like(x)
    for first, end in pairwise(ends):
        for n in range(first, end, 90):
            tile = np.full(90, 5, np.int32)
            tile[: min(90, end - n)] = x[n : min(n + 90, end)]
            want[n : min(n + 90, end)] = (tile + tile.sum())[: min(90, end - n)]
    np.testing.assert_array_equal(y, want)


def test_what_threads_share_well_stays_as_it_is():
    for extent, beside in ((1536, 1), (5120, 1), (3584, 2), (96, 16), (768, 40), (24, 64)):
        assert padded_extent(extent, [beside]) == extent
    assert padded_extent(3000, [1]) == 3072 and padded_extent(100, [1]) == 128
    args = tw.spec((100, 3000), tw.f32), tw.spec((100, 3000), tw.f32)
    assert lowered(softmax, args, N=3000).threads == 256
    assert lowered(softmax, args, "pad-tiles", N=40).threads == 32


@tw.kernel
def product(A, B, R, C, S, BM: tw.constexpr, BN: tw.constexpr):
    """Relu of A B + R, and its sums by rows."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (32, BN))), acc)
    acc = tw.maximum(acc + tw.load_tile(tw.init_tile(R, [n], (1, BN))).to(tw.f32), 0.0)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))
    tw.store_tile(tw.sum(acc, 1), tw.init_tile(S, [m, tw.program_id(1)], (BM, 1)))


@pytest.mark.parametrize("bm, bn", [(104, 136), (72, 40), (64, 136), (24, 200), (40, 40)])
@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_products_of_any_extent(bm, bn, layout, rng):
    """The way round that adds least; what B has behind a tile takes no part."""
    m, n, k = 2 * bm - 5, 2 * bn - 8, 48
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    r = rng.integers(-3, 4, n).astype(np.float16)
    b = np.asfortranarray(b) if layout == "NT" else b
    c, s = np.full((m, n), np.nan, np.float32), np.full((m, 2), np.nan, np.float32)
    run(product, [a, b, r, c, s], 2, 2, BM=bm, BN=bn)
    want = np.maximum(a.astype(np.float32) @ b + r, 0)
    np.testing.assert_array_equal(c, want)
    np.testing.assert_array_equal(s, np.stack([want[:, :bn].sum(1), want[:, bn:].sum(1)], 1))
    remarks = product.compile(a, b, r, c, s, target="sm_90a", BM=bm, BN=bn).remarks
    assert any("not done by warpgroups" in each for each in remarks) == (bm == bn)


@tw.kernel
def multiplied(A, B, C, BM: tw.constexpr, BN: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), C.dtype)
    for k in range(0, A.shape[1], 16):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 16)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (16, BN))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("rows, columns, stays", [(80, 96, True), (104, 136, False)])
@pytest.mark.parametrize("dtype", [tw.f32, tw.f64])
def test_what_no_warpgroup_multiplies_is_padded_for_threads_alone(dtype, rows, columns, stays):
    """On an H200 80 x 80 of f32 took 101 us padded to 128 rows, 79 as it stands; 104 x 136 25 ms as it stands."""
    args = [tw.spec(s, dtype) for s in ((240, 64), (64, 240), (240, 240))]
    text = multiplied.compile(*args, target="reference", BM=rows, BN=columns).ir["xetile"]
    kernel = kernel_of(parse_module(text))
    op = next(op for op in kernel.walk() if isinstance(op, TileMmaOp))
    assert (product_extents(op) == (rows, columns)) == stays
