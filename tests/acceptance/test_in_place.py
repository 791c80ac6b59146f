"""Stores to what a kernel also reads: every load sees memory as it was before the stores that follow it.

The expected arrays are numpy's, which reads its right side first. Programs of this kind are also drawn at random, in
tests/fuzz.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

N = 20


@tw.kernel
def transpose(X, N: tw.constexpr):
    tile = tw.init_tile(X, [0, 0], (N, N))
    tw.store_tile(tw.transpose(tw.load_tile(tile)), tile)


@tw.kernel
def shift(X, Y, r, c, N: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (N, N)))
    tw.store_tile(x, tw.init_tile(Y, [r, c], (N, N)))


@tw.kernel
def padded(X, N: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [-1, -2], (N, N)), padding=5)
    tw.store_tile(x, tw.init_tile(X, [0, 0], (N, N)))


@tw.kernel
def reverse(X, N: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (1, N)))
    at = N - 1 - tw.arange(0, N, axis=1, shape=(1, N))
    tw.store_scatter(x, tw.init_tile(X, at))


@tw.kernel
def steps(X, N: tw.constexpr):
    for i in range(3):
        x = tw.load_tile(tw.init_tile(X, [i, 0], (4, N)))
        tw.store_tile(x, tw.init_tile(X, [i + 1, 0], (4, N)))


@tw.kernel
def swap(X, Y, N: tw.constexpr):
    one, other = tw.init_tile(X, [0, 0], (N, N)), tw.init_tile(Y, [0, 0], (N, N))
    x, y = tw.load_tile(one), tw.load_tile(other)
    tw.store_tile(y, one)
    tw.store_tile(x, other)


@tw.kernel
def column(X, Y, M: tw.constexpr, N: tw.constexpr):
    """A column that is stored again, while rows are made of what it held."""
    tile = tw.init_tile(X, [0, 0], (M, 1))
    x = tw.load_tile(tile)
    tw.store_tile(x + 1.0, tile)
    tw.store_tile(tw.broadcast(x * 2.0, 1, N), tw.init_tile(Y, [0, 0], (M, N)))


@tw.kernel
def by_index(X, I, Y, N: tw.constexpr):
    """Where a tile is scattered to stands in a tile that is overwritten."""
    tile = tw.init_tile(I, [0], (1, N))
    at = tw.load_tile(tile)
    tw.store_tile(at * 0, tile)
    tw.store_scatter(tw.load_tile(tw.init_tile(X, [0, 0], (1, N))), tw.init_tile(Y, at))


@tw.kernel
def read_later(X, Y, N: tw.constexpr):
    tile = tw.init_tile(X, [0, 0], (N, N))
    x = tw.load_tile(tile)
    tw.store_tile(x * 2.0, tile)
    tw.store_tile(tw.transpose(x), tw.init_tile(Y, [0, 0], (N, N)))


@tw.kernel
def softmax(X, N: tw.constexpr):
    tile = tw.init_tile(X, [tw.program_id(0) * 4, 0], (4, N))
    x = tw.load_tile(tile)
    e = tw.exp(x - tw.max(x, 1))
    tw.store_tile(e / tw.sum(e, 1), tile)


@tw.kernel
def halves(X, N: tw.constexpr):
    """Two tiles of one array that do not overlap, each stored from both."""
    left, right = tw.init_tile(X, [0, 0], (N, N)), tw.init_tile(X, [0, N], (N, N))
    a, b = tw.load_tile(left), tw.load_tile(right)
    tw.store_tile(a - b, left)
    tw.store_tile(a + b, right)


def launched(target: str, kernel: Any, *args: Any, **constexprs: Any) -> None:
    kernel.options(target=target)[1](*args, **constexprs)


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.standard_normal((N, N)).astype(np.float32)


@pytest.mark.parametrize("fusion", [True, False])
def test_transpose(target: str, fusion: bool, x: np.ndarray[Any, Any]) -> None:
    want = x.T.copy()
    options = {} if fusion or target != "cpu" else {"disable": "fusion"}
    transpose.options(target=target, **options)[1](x, N=N)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("by", [(1, 0), (0, 1), (-1, 0), (0, -3), (2, 5), (0, 0)])
def test_shifts(target: str, by: tuple[int, int], x: np.ndarray[Any, Any]) -> None:
    want = x.copy()
    shift.options(target="reference")[1](x.copy(), want, *by, N=N)
    launched(target, shift, x, x, *by, N=N)
    np.testing.assert_array_equal(x, want)


def test_arguments_that_overlap(target: str, rng: np.random.Generator) -> None:
    memory = rng.standard_normal(N * N + 16).astype(np.float32)
    one, other = memory[: N * N].reshape(N, N), memory[16:].reshape(N, N)
    want = one.copy()
    launched(target, shift, one, other, 0, 0, N=N)
    np.testing.assert_array_equal(other, want)


def test_padding(target: str, x: np.ndarray[Any, Any]) -> None:
    want = np.full_like(x, 5)
    want[1:, 2:] = x[:-1, :-2]
    launched(target, padded, x, N=N)
    np.testing.assert_array_equal(x, want)


def test_reversal(target: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 64)).astype(np.float32)
    want = x[:, ::-1].copy()
    launched(target, reverse, x, N=64)
    np.testing.assert_array_equal(x, want)


def test_copies_in_a_loop(target: str, x: np.ndarray[Any, Any]) -> None:
    want = x.copy()
    for i in range(3):
        want[i + 1 : i + 5] = want[i : i + 4].copy()
    launched(target, steps, x, N=N)
    np.testing.assert_array_equal(x, want)


def test_swap_of_two_arrays(target: str, x: np.ndarray[Any, Any]) -> None:
    y = x * 2
    want = y.copy(), x.copy()
    launched(target, swap, x, y, N=N)
    np.testing.assert_array_equal((x, y), want)


@pytest.mark.parametrize("m", [1, 7])
def test_columns_and_rows(target: str, m: int, x: np.ndarray[Any, Any]) -> None:
    x, y = x[:m, :1].copy(), np.full((m, N), np.nan, np.float32)
    want = x + 1, np.repeat(x * 2, N, 1)
    launched(target, column, x, y, M=m, N=N)
    np.testing.assert_array_equal(x, want[0])
    np.testing.assert_array_equal(y, want[1])


def test_offsets_that_are_overwritten(target: str, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((1, N)).astype(np.float32), np.full(N, np.nan, np.float32)
    at = rng.permutation(N).astype(np.int64)
    want = np.empty_like(y)
    want[at] = x[0]
    launched(target, by_index, x, at, y, N=N)
    np.testing.assert_array_equal(y, want)
    assert not at.any()


def test_a_load_that_is_read_after_the_store(target: str, x: np.ndarray[Any, Any]) -> None:
    y = np.full((N, N), np.nan, np.float32)
    want = x * 2, x.T.copy()
    launched(target, read_later, x, y, N=N)
    np.testing.assert_array_equal((x, y), want)
