"""Scattered tiles whose rows are runs of memory: rows of a table, by loaded numbers, and parts of them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.targets.cpu.test_programs import both
from tests.targets.cpu.test_structure import levels_here

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.int64)]


@tw.kernel
def rows(IDS: Any, T: Any, Y: Any, D: tw.constexpr, BM: tw.constexpr = 4):
    """Rows of a table; `D` columns may be more than it has."""
    m = tw.program_id(0) * BM
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)), padding=-1)
    j = tw.arange(0, D, axis=1, shape=(1, D))
    x = tw.load_gather(tw.init_tile(T, ids * T.shape[1] + j), j < T.shape[1], padding=7)
    tw.store_tile(x, tw.init_tile(Y, [m, 0], (BM, D)))


@tw.kernel
def parts(IDS: Any, T: Any, Y: Any, D: tw.constexpr, BM: tw.constexpr = 4):
    """From any element on, without a mask: runs begin before the array and end behind it."""
    m = tw.program_id(0) * BM
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)))
    at = ids.to(tw.i64) + tw.arange(0, D, axis=1, shape=(1, D))
    x = tw.load_gather(tw.init_tile(T, at), padding=7)
    x = x + tw.load_gather(tw.init_tile(T, at - 3), (ids > 0) & (at < 20))
    tw.store_tile(x, tw.init_tile(Y, [m, 0], (BM, D)))


@tw.kernel
def spread(IDS: Any, X: Any, T: Any, D: tw.constexpr, BM: tw.constexpr = 4):
    """Rows go to rows of a table."""
    m = tw.program_id(0) * BM
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)), padding=-1)
    j = tw.arange(0, D, axis=1, shape=(1, D))
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, D)))
    tw.store_scatter(x, tw.init_tile(T, ids * T.shape[1] + j), (j < T.shape[1]) & (ids >= 0))


@tw.kernel
def bags(IDS: Any, T: Any, Y: Any, D: tw.constexpr, BM: tw.constexpr = 4):
    """Sums of rows: offsets come from a loop's loads, their columns from outside of it."""
    m = tw.program_id(0) * BM
    j = tw.arange(0, D, axis=1, shape=(1, D))
    acc = tw.zeros((BM, D), tw.f32)
    for n in range(IDS.shape[1]):
        ids = tw.load_tile(tw.init_tile(IDS, [m, n], (BM, 1)))
        acc = acc + tw.load_gather(tw.init_tile(T, ids * T.shape[1] + j), j < T.shape[1])
    tw.store_tile(acc, tw.init_tile(Y, [m, 0], (BM, D)))


@tw.kernel
def held(X: Any, Y: Any, BM: tw.constexpr = 4, BN: tw.constexpr = 64):
    """Neighbours of elements of an image, at its edges those that are there."""
    i, j = tw.program_id(1) * BM, tw.program_id(0) * BN
    rows, cols = X.shape[0], X.shape[1]
    r = i + tw.arange(0, BM, axis=0, shape=(BM, BN))
    c = j + tw.arange(0, BN, axis=1, shape=(BM, BN))
    down = tw.minimum(tw.maximum(r + 2, 0), rows - 1) * cols
    left = tw.maximum(tw.minimum(c - 3, cols - 1), 0)
    right = tw.minimum(cols - 1, 5 + c)
    x = tw.load_gather(tw.init_tile(X, down + left))
    y = tw.load_gather(tw.init_tile(X, tw.minimum(r, rows - 1) * cols + right), c < cols - 7)
    tw.store_tile(x * 2 + y, tw.init_tile(Y, [i, j], (BM, BN)))


@tw.kernel
def reflected(X: Any, Y: Any, BM: tw.constexpr = 4, BN: tw.constexpr = 64):
    """Neighbours of elements of an image, at its edges those on the other side."""
    i, j = tw.program_id(1) * BM, tw.program_id(0) * BN
    rows, cols = X.shape[0], X.shape[1]
    r = tw.minimum(i + tw.arange(0, BM, axis=0, shape=(BM, BN)), rows - 1)
    c = j + tw.arange(0, BN, axis=1, shape=(BM, BN)) - 3
    c = tw.where(c < 0, -c, c)
    c = tw.where(cols <= c, 2 * cols - 2 - c, c)
    x = tw.load_gather(tw.init_tile(X, r * cols + tw.maximum(c, 0)))
    d = c + 3
    y = tw.load_gather(tw.init_tile(X, r * cols + tw.where(d > cols - 2, cols - 1, d)))
    tw.store_tile(x * 2 + y, tw.init_tile(Y, [i, j], (BM, BN)))


def some(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    return rng.integers(-100, 100, shape).astype(dtype)


@pytest.mark.parametrize("columns", [1, 5, 64, 100, 200])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows(rng: np.random.Generator, dtype: Any, columns: int) -> None:
    ids = rng.integers(-3, 14, (10, 1)).astype(np.int32)  # some rows are not there
    table, y = some(rng, (11, columns), dtype), poison(10, columns, dtype=dtype)
    width = 1 << columns.bit_length()
    for got, want in both(rows, 3, [ids, table, y], [2], D=width):
        np.testing.assert_array_equal(got, want)
    ids = rng.permutation(12)[:10].astype(np.int32)[:, None]
    table, new = some(rng, (12, columns), dtype), some(rng, (10, columns), dtype)
    for got, want in both(spread, 3, [ids, new, table], [2], D=width):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("tile", [(4, 64), (3, 128), (8, 16), (2, 100)], ids=str)
@pytest.mark.parametrize("columns", [1, 7, 64, 130, 301])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_held_at_edges(
    rng: np.random.Generator, dtype: Any, columns: int, tile: tuple[int, int]
) -> None:
    x, y = some(rng, (11, columns), dtype), poison(11, columns, dtype=dtype)
    grid = [tw.cdiv(columns, tile[1]), tw.cdiv(11, tile[0])]
    for kernel in (held, reflected):
        for got, want in both(kernel, grid, [x, y], [1], BM=tile[0], BN=tile[1]):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kernel", [held, reflected], ids=["held", "reflected"])
def test_held_at_edges_is_a_run(kernel: Any) -> None:
    """Between the columns that reach the bounds nothing is gathered."""
    x = np.zeros((11, 301), np.float32)
    lines = kernel.options(target="cpu", machine="avx512").compile(x, x).ir["mach"].splitlines()
    loops = [n for n, line in enumerate(lines) if "scf.for" in line]
    plain = [n for n, line in enumerate(lines) if "mach.load" in line and "vector<16xf32>" in line]
    assert plain and any(
        a < plain[0] < b and not any("gather" in line for line in lines[a:b])
        for a, b in zip(loops, [*loops[1:], len(lines)], strict=True)
    )


@pytest.mark.parametrize("ints", [np.int32, np.int64, np.uint16])
def test_from_any_element_on(rng: np.random.Generator, ints: Any) -> None:
    ids = rng.integers(-70, 140, (40, 1)).astype(ints)
    table = some(rng, 131, np.float32)
    for width in (8, 64, 128):
        y = poison(40, width)
        for got, want in both(parts, 10, [ids, table, y], [2], D=width):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("level", levels_here())
def test_no_element_is_gathered(rng: np.random.Generator, level: str) -> None:
    ids = rng.integers(0, 11, (10, 7)).astype(np.int32)
    table, y = some(rng, (11, 100), np.float32), poison(10, 100)
    kernel = bags.options(target="cpu", machine=level)
    kernel[3](ids, table, y, D=128)
    np.testing.assert_array_equal(y, table[ids].sum(1))
    text = kernel.compile(ids, table, y, D=128).ir["mach"]
    gathers = [line for line in text.splitlines() if "mach.gather" in line]
    assert all(line.endswith("xi32>") for line in gathers)  # of numbers of rows only


@tw.kernel
def combined(
    IDS: Any, X: Any, T: Any, Y: Any, KIND: tw.constexpr, D: tw.constexpr, BM: tw.constexpr = 16
):
    """Rows are combined with rows of a table, from its column 1 on, and with a block of it; what was there is kept."""
    m = tw.program_id(0) * BM
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)), padding=-1)
    j = tw.arange(0, D, axis=1, shape=(1, D)) + 1
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, D)))
    at = tw.init_tile(T, ids * T.shape[1] + j)
    old = tw.atomic_rmw(KIND, x, at, (j < T.shape[1]) & (ids >= 0) & (x != 3))
    tw.store_tile(old, tw.init_tile(Y, [m, 0], (BM, D)))
    tw.atomic_rmw(KIND, x, tw.init_tile(T, [m - 2, 3], (BM, D)))


KINDS = (
    ["addf", "maximumf", "minnumf", "assign"],
    ["addi", "muli", "maxs", "minu", "xori", "assign"],
)


@pytest.mark.parametrize("columns", [1, 5, 64, 100, 200])
@pytest.mark.parametrize("dtype", [*DTYPES, np.dtype(np.float16)], ids=str)
def test_rows_are_combined_with_rows(rng: np.random.Generator, dtype: Any, columns: int) -> None:
    """Of any length, wherever words begin; the same row more than once in a tile."""
    ids = rng.integers(-3, 9, (10, 1)).astype(np.int32)
    width = 1 << columns.bit_length()
    for kind in KINDS[dtype.kind == "i"]:
        table = (rng.integers(-9, 9, (7, columns))).astype(dtype)
        x = rng.integers(-4, 5, (10, width)).astype(dtype)
        y = poison(10, width, dtype=dtype)
        for got, want in both(combined, 1, [ids, x, table, y], [2, 3], KIND=kind, D=width):
            np.testing.assert_array_equal(got, want)


@tw.kernel
def summed(IDS: Any, X: Any, T: Any, D: tw.constexpr, BM: tw.constexpr = 4):
    m = tw.program_id(0) * BM
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)))
    j = tw.arange(0, D, axis=1, shape=(1, D))
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, D)))
    tw.atomic_rmw("add", x, tw.init_tile(T, ids * T.shape[1] + j), j < T.shape[1])


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("rows", [3, 4000])
def test_threads_add_to_the_same_rows(rng: np.random.Generator, level: str, rows: int) -> None:
    """In memory of their own, and word by word; neighbours of the rows' words keep their bits."""
    ids = rng.integers(0, rows, (2000, 1)).astype(np.int32)
    for dtype in (np.float32, np.int16, ml_dtypes.bfloat16):
        x = rng.integers(-1, 2, (2000, 33)).astype(dtype)
        room = np.full(33 * rows + 9, np.nan if dtype != np.int16 else 7).astype(dtype)
        table = room[5:-4].reshape(rows, 33)
        table[:] = 0
        want = np.zeros((rows, 33))
        np.add.at(want, ids[:, 0], x.astype(np.float64))
        bits = room.view(f"u{room.itemsize}")
        bits[[0, -1]] = 0x7F81
        before = bits[[*range(5), -4, -3, -2, -1]].copy()
        for off in ({}, {"disable": "atomic-aggregation"}):
            table[:] = 0
            own = {"machine": level, "num_threads": 4, **off}
            summed.options(target="cpu", **own)[500](ids, x, table, D=64)
            np.testing.assert_array_equal(table.astype(np.float64), want)
            np.testing.assert_array_equal(bits[[*range(5), -4, -3, -2, -1]], before)


@pytest.mark.parametrize("level", levels_here())
def test_words_are_exchanged(level: str) -> None:
    """A row of 64 has no atomic of one element but where its elements lie at no multiple of their size."""
    ids, x = np.zeros((4, 1), np.int32), np.zeros((4, 64), np.float32)
    kernel = summed.options(target="cpu", machine=level, disable="atomic-aggregation")
    text = kernel.compile(ids, x, x.copy(), D=64).ir["mach"]
    words = [line for line in text.splitlines() if "mach.cmpxchg" in line]
    assert words
    assert all("vector<" in line for line in words)
    assert text.count("mach.atomic_rmw") == 1


@tw.kernel
def rows_by_number(
    T: Any, IDS: Any, SUMS: Any, ROWS: Any, INTO: Any, BM: tw.constexpr = 8, BN: tw.constexpr = 64
):
    """Sums of eight gathered rows, these rows scattered, and added by number; numbers below zero stand for none."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)), padding=-1)
    j = n + tw.arange(0, BN, axis=1, shape=(1, BN))
    on = (ids >= 0) & (j < T.shape[1])
    x = tw.load_gather(tw.init_tile(T, ids * T.shape[1] + j), on)
    tw.store_tile(tw.sum(x, 0), tw.init_tile(SUMS, [tw.program_id(0), n], (1, BN)))
    y = tw.load_tile(tw.init_tile(ROWS, [m, n], (BM, BN)))
    tw.atomic_rmw("add", y, tw.init_tile(INTO, ids * T.shape[1] + j), on)
    tw.store_scatter(-y, tw.init_tile(T, (ids + IDS.shape[0]) * T.shape[1] + j), on)


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("columns", [64, 100, 301])
def test_rows_by_number_of_which_some_are_none(
    rng: np.random.Generator, columns: int, level: str
) -> None:
    rows = 203
    t = rng.integers(-99, 99, (2 * rows, columns)).astype(np.float32)
    y = rng.integers(-99, 99, (rows, columns)).astype(np.float32)
    ids = rng.permutation(rows).astype(np.int32)[:, None]
    ids[rng.random((rows, 1)) < 0.2] = rng.integers(-5, 0)
    sums, into = np.full((26, columns), 7, np.float32), np.zeros((rows, columns), np.float32)
    scattered, on = t.copy(), ids[:, 0] >= 0
    k = rows_by_number.options(target="cpu", machine=level)
    k[26, tw.cdiv(columns, 64)](scattered, ids, sums, y, into)
    taken = np.zeros((208, columns), np.float32)
    taken[:rows][on] = t[ids[on, 0]]
    np.testing.assert_array_equal(sums, taken.reshape(26, 8, columns).sum(1))
    t[rows + ids[on, 0]] = -y[on]
    np.testing.assert_array_equal(scattered, t)
    wanted = np.zeros_like(into)
    wanted[ids[on, 0]] = y[on]
    np.testing.assert_array_equal(into, wanted)


def test_rows_by_number_are_gathered_and_added_without_masks_between_edges() -> None:
    t, y = (np.zeros((64, 256), np.float32) for _ in range(2))
    ids, sums = np.zeros((64, 1), np.int32), np.zeros((8, 256), np.float32)
    k = rows_by_number.options(target="cpu", machine="avx512").compile(t, ids, sums, y, y.copy())
    text = k.asm["asm"]
    loops = re.findall(r"^(\.LBB\w+):\n((?:\t.*\n)*?\tj\w+\t\1\n)", text, re.M)
    sweeps = [body for _, body in loops if "%zmm" in body and "%k" not in body and "vaddps" in body]
    assert sweeps, "whole vectors are added to a thread's sums"


@tw.kernel
def sparse_rows(
    PTR: Any, COL: Any, VAL: Any, X: Any, Y: Any, BN: tw.constexpr = 64, BE: tw.constexpr = 8
):
    """A row of a sparse matrix times a dense one."""
    r, n = tw.program_id(0), tw.program_id(1) * BN
    last = PTR[r + 1]
    acc, c = tw.zeros((1, BN), tw.f32), n + tw.arange(BN)[None, :]
    for e in range(PTR[r], last, BE):
        i = e + tw.arange(BE)[:, None]
        col = tw.load_gather(tw.init_tile(COL, i), i < last)
        val = tw.load_gather(tw.init_tile(VAL, i), i < last)
        x = tw.load_gather(tw.init_tile(X, col * X.shape[1] + c), c < X.shape[1])
        acc += tw.sum(val * x, 0)
    tw.store_tile(acc, tw.init_tile(Y, [r, n], (1, BN)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize(("columns", "step"), [(64, 8), (100, 8), (150, 24)])
def test_sums_of_gathered_rows_times_numbers_wait_nowhere(
    rng: np.random.Generator, columns: int, step: int, level: str
) -> None:
    a = rng.normal(size=(19, 40)) * (rng.random((19, 40)) < 0.4)
    a[3] = 0
    ptr = np.concatenate([[0], np.cumsum((a != 0).sum(1))]).astype(np.int32)
    col, val = np.nonzero(a)[1].astype(np.int32), a[a != 0].astype(np.float32)
    x, y = rng.normal(size=(40, columns)).astype(np.float32), poison(19, columns)
    k = sparse_rows.options(target="cpu", machine=level)
    k[19, tw.cdiv(columns, 64)](ptr, col, val, x, y, BE=step)
    want = a @ x.astype(np.float64)
    assert np.linalg.norm(y - want) <= 1e-6 * np.linalg.norm(want)
    stage = k.compile(ptr, col, val, x, y, BE=step).ir["stage"]
    assert not re.search(rf"yield .*vector<{step}x64", stage)
