"""Small values that loops carry stay in registers, with the results of buffers."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_structure import levels_here

BF16 = np.dtype(ml_dtypes.bfloat16)
LEVELS = pytest.mark.parametrize("level", levels_here())
DTYPES = pytest.mark.parametrize(
    "dtype", [np.dtype(np.float32), BF16, np.dtype(np.float16)], ids=str
)


@tw.kernel
def decay(X: Any, Y: Any, LAST: Any, BM: tw.constexpr = 1, BN: tw.constexpr = 64):
    """Down the rows; what is left at the end is wanted too."""
    n = tw.program_id(0) * BN
    h = tw.full((BM, BN), 1.0, tw.f32)
    for i in range(0, X.shape[0], BM):
        h = h * 0.5 + tw.load_tile(tw.init_tile(X, [i, n], (BM, BN))).to(tw.f32)
        tw.store_tile(h.to(Y.dtype), tw.init_tile(Y, [i, n], (BM, BN)))
    tw.store_tile(h * 2.0, tw.init_tile(LAST, [0, n], (BM, BN)))


@tw.kernel
def bags(IDS: Any, TABLE: Any, Y: Any, BN: tw.constexpr = 64):
    m, n = tw.program_id(0), tw.program_id(1) * BN
    total = tw.zeros((1, BN), tw.f32)
    for j in range(IDS.shape[1]):
        row = tw.init_tile(TABLE, [IDS[m, j], n], (1, BN))
        total = total + tw.load_tile(row).to(tw.f32)
    tw.store_tile(total.to(Y.dtype), tw.init_tile(Y, [m, n], (1, BN)))


@tw.kernel
def pair(X: Any, Y: Any, BN: tw.constexpr = 32):
    """Two values that change places, one of them given on as it is, and a row that both read."""
    n = tw.program_id(0) * BN
    a, b = tw.zeros((1, BN), tw.f32), tw.full((1, BN), 1.0, tw.f32)
    for i in range(X.shape[0]):
        x = tw.load_tile(tw.init_tile(X, [i, n], (1, BN)))
        a, b = b, a * 0.5 + x
        tw.store_tile(a - b, tw.init_tile(Y, [i, n], (1, BN)))


@tw.kernel
def running(X: Any, Y: Any, Z: Any, BN: tw.constexpr = 64):
    """A loop in a loop; a row's sum beside what is carried, which takes a loop of its own."""
    n = tw.program_id(0) * BN
    h = tw.zeros((1, BN), tw.f32)
    for i in range(X.shape[0]):
        for j in range(3):
            h = h * 0.5 + tw.load_tile(tw.init_tile(X, [i - j, n], (1, BN)))
        tw.store_tile(h, tw.init_tile(Y, [i, n], (1, BN)))
        tw.store_tile(tw.sum(h, 1), tw.init_tile(Z, [i, tw.program_id(0)], (1, 1)))


@LEVELS
@DTYPES
@pytest.mark.parametrize("tile", [(1, 64), (1, 24), (4, 16), (1, 512)], ids=str)
def test_recurrences(
    rng: np.random.Generator, dtype: Any, tile: tuple[int, int], level: str
) -> None:
    for cols in (1, 50, 130):
        x = rng.standard_normal((13, cols)).astype(dtype)
        y, last = (
            np.full(x.shape, np.nan).astype(dtype),
            np.full((tile[0], cols), np.nan, np.float32),
        )
        k = decay.options(target="cpu", machine=level)
        k[tw.cdiv(cols, tile[1])](x, y, last, BM=tile[0], BN=tile[1])
        h, want = np.ones((tile[0], cols)), np.zeros((16, cols))
        terms = h  # what is added up, for the last row may cancel
        padded = np.zeros((16, cols))
        padded[:13] = x
        for i in range(0, 13, tile[0]):
            h = h * 0.5 + padded[i : i + tile[0]]
            terms = terms * 0.5 + abs(padded[i : i + tile[0]])
            want[i : i + tile[0]] = h
        bound = 1e-6 if dtype == np.float32 else 4e-3
        got = y.astype(np.float64)
        assert np.linalg.norm(got - want[:13]) <= bound * np.linalg.norm(want[:13])
        assert np.linalg.norm(last - 2 * h) <= 1e-6 * np.linalg.norm(2 * terms)


@LEVELS
@DTYPES
def test_rows_by_number(rng: np.random.Generator, dtype: Any, level: str) -> None:
    """Rows that do not exist are zeros."""
    for cols in (5, 64, 100):
        table = rng.standard_normal((30, cols)).astype(dtype)
        ids = rng.integers(-2, 33, (11, 7))
        y = np.full((11, cols), np.nan).astype(dtype)
        bags.options(target="cpu", machine=level)[11, tw.cdiv(cols, 64)](ids, table, y)
        exist = (ids >= 0) & (ids < 30)
        want = (table.astype(np.float64)[ids.clip(0, 29)] * exist[..., None]).sum(1)
        bound = 1e-6 if dtype == np.float32 else 4e-3
        assert np.linalg.norm(y.astype(np.float64) - want) <= bound * np.linalg.norm(want)


@LEVELS
def test_values_that_change_places(rng: np.random.Generator, level: str) -> None:
    x = rng.standard_normal((9, 50), np.float32)
    y = np.full_like(x, np.nan)
    pair.options(target="cpu", machine=level)[2](x, y)
    a, b, want = np.zeros(50), np.ones(50), np.zeros(x.shape)
    for i, row in enumerate(x):
        a, b = b, a * 0.5 + row
        want[i] = a - b
    assert np.linalg.norm(y - want) <= 1e-6 * np.linalg.norm(want)


@LEVELS
def test_loops_in_loops(rng: np.random.Generator, level: str) -> None:
    x = rng.standard_normal((9, 100), np.float32)
    y, z = np.full_like(x, np.nan), np.full((9, 2), np.nan, np.float32)
    running.options(target="cpu", machine=level)[2](x, y, z)
    h, want = np.zeros(128), np.zeros((9, 128))
    for i in range(9):
        for j in range(3):
            h = h * 0.5
            h[:100] += x[i - j] if i >= j else 0
        want[i] = h
    assert np.linalg.norm(y - want[:, :100]) <= 1e-6 * np.linalg.norm(want)
    sums = want.reshape(9, 2, 64).sum(2)
    assert np.linalg.norm(z - sums) <= 1e-5 * np.linalg.norm(sums)


def test_loops_carry_vectors() -> None:
    """And no loop over columns is left in theirs."""
    x, last = np.zeros((8, 64), np.float32), np.zeros((1, 64), np.float32)
    k = decay.options(target="cpu", machine="avx512")
    text = k.compile(x, np.zeros_like(x), last).ir["mach"]
    loop = re.search(r"= scf\.for .*iter_args\((.*)\) -> \((.*)\)", text)
    assert loop is not None and loop[2].count("vector<16xf32>") == 4
    wide = k.compile(x, np.zeros_like(x), last, BN=1024).ir["mach"]
    assert "-> (vector<16xf32>" not in wide, "more than registers hold"
