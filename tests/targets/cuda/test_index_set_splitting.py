"""Masks: comparisons of positions cost one instruction per element, and loops are split where they hold everywhere."""

# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false
from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget
from tilewright.dialects.text import parse_module
from tilewright.passes.cleanup import cleanup
from tilewright.passes.kernel import kernel_of
from tilewright.reference import run
from tilewright.targets.cuda.passes.index_set_splitting import split_index_sets


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


@tw.kernel
def summed(
    A, B, C, end, LOWER: tw.constexpr, MASKS: tw.constexpr,
    BM: tw.constexpr = 8, BN: tw.constexpr = 8, K: tw.constexpr = 4,
):  # fmt: skip
    """Sums over blocks of columns of products under masks; MASKS: (kind, number) each."""
    m = tw.program_id(0) * BM
    a = tw.load_tile(tw.init_tile(A, [m, 0], (BM, K)))
    total = tw.zeros((BM, BN), tw.f32)
    row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
    for n in range(LOWER, B.shape[1], BN):
        key = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        s = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [0, n], (K, BN))))
        seen = key < end
        for kind, c in MASKS:
            if kind == 0:
                seen = seen & (key <= row + c)
            if kind == 1:
                seen = seen & (row - key < c)
            if kind == 2:
                seen = seen & (c <= key)
            if kind == 3:
                seen = seen & (key * 2 + c > row * 3)
            if kind == 4:
                seen = seen & (key < tw.minimum(row + c, end - c))
            if kind == 5:
                seen = seen & (key > tw.maximum(row - c, 2 * c - row))
        total = total * 0.5 + tw.where(seen, s, 1.0)
    tw.store_tile(total, tw.init_tile(C, [m, 0], (BM, BN)))


@pytest.mark.parametrize("draw", range(12))
def test_split_loops_do_the_same(draw: int, rng) -> None:
    """Random masks: every iteration runs once and in order, with and without its masks."""
    rows, columns = int(rng.integers(5, 40)), int(rng.integers(1, 70))
    lower, end = int(rng.integers(0, 3)) * 4, int(rng.integers(-5, 80))
    masks = tuple(
        (int(rng.integers(0, 6)), int(rng.integers(-20, 30))) for _ in range(rng.integers(0, 4))
    )
    a, b = (
        rng.standard_normal((rows, 4)).astype("f4"),
        rng.standard_normal((4, columns)).astype("f4"),
    )
    wanted, got = np.full((rows, 8), np.nan, "f4"), np.full((rows, 8), np.nan, "f4")
    compiled = summed.compile(a, b, got, end, target="reference", LOWER=lower, MASKS=masks)
    module = parse_module(compiled.ir["xetile"])
    grid = (-(-rows // 8), 1, 1)
    run(module, grid, [a, b, wanted, end])
    cleanup(kernel_of(module))
    assert split_index_sets(kernel_of(module)) == 1
    module.verify()
    run(module, grid, [a, b, got, end])
    np.testing.assert_array_equal(got, wanted, err_msg=f"{rows, columns, lower, end, masks}")
