"""Masks: comparisons of positions cost one instruction per element, and loops are split where they hold everywhere."""

# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false
from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget


@tw.kernel
def marks(X, Y, KIND: tw.constexpr, BM: tw.constexpr = 32, BN: tw.constexpr = 64):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
    column = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
    seen = column <= row
    if KIND == "above":
        seen = row < column
    if KIND == "band":
        seen = (row - column < 9) & (column - row >= -3)
    if KIND == "edge":
        seen = column < X.shape[1] - 5
    if KIND == "nothing":
        seen = column > X.shape[1] * 100000000
    if KIND == "all":
        seen = column > 0 - X.shape[1] * 100000000
    if KIND == "rows":
        end = tw.minimum(tw.arange(1, BM + 1, axis=0, shape=(BM, 1)) + m, 40)
        seen = column < end
    if KIND == "equal":
        seen = column == row
    tw.store_tile(tw.where(seen, x, -1.0), tw.init_tile(Y, [m, n], (BM, BN)))


MEANINGS = {
    "below": lambda i, j: j <= i,
    "above": lambda i, j: i < j,
    "band": lambda i, j: (i - j < 9) & (j - i >= -3),
    "edge": lambda i, j: j < 95,
    "nothing": lambda i, j: j < 0,
    "all": lambda i, j: j >= 0,
    "rows": lambda i, j: j < np.minimum(i + 1, 40),
    "equal": lambda i, j: i == j,
}


@pytest.mark.parametrize("kind", list(MEANINGS))
def test_positions_against_bounds(kind, threads: ThreadsTarget, rng):
    x = rng.random((70, 100)).astype("f4")
    y = np.full_like(x, np.nan)
    marks.options(target="cuda")[3, 2](x, y, KIND=kind)
    np.testing.assert_array_equal(y, np.where(MEANINGS[kind](*np.indices(x.shape)), x, -1))


def test_a_comparison_per_element_is_with_a_constant(threads: ThreadsTarget, rng):
    x = rng.random((32, 64)).astype("f4")
    marks.options(target="cuda")[1, 1](x, np.zeros_like(x), KIND="below")
    assert threads.last is not None
    lines = [line for line in threads.last.ir["mach"].split("\n") if "arith.cmpi sle" in line]
    assert any("xi32>" in line for line in lines) and not any("xindex>" in line for line in lines)
