"""Functions and methods of numpy on traced arrays: as on arrays, and those that a graph lacks are named."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graph as G
from tilewright.diagnostics import CompileError

EXPRESSIONS: dict[str, Any] = {
    "whole powers": lambda x: x**0 + x**1 + x**3 - 0.1 * np.power(x, 5) + x**16 * 1e-6,
    "other powers": lambda x: (np.abs(x) + 1) ** -2 + np.abs(x) ** 1.5 + (x * x + 1) ** -0.5,
    "gelu by tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "clip": lambda x: np.clip(x, -0.5, 1) - x.clip(0, 2),
    "clip by arrays": lambda x: np.clip(x, x.mean(-1, keepdims=True), np.abs(x)),
    "variance": lambda x: x.var(-1) + np.std(x, axis=1),
    "variance of all": lambda x: np.var(x),
    "standardised": lambda x: (x - x.mean(0)) / (x.std(axis=0, keepdims=True) + 1),
    "sign": lambda x: np.sign(np.floor(x)) * 2,
    "rounded": lambda x: np.rint(x * 2) + np.rint(x * 4 + 0.5) / 7,
    "reciprocal": lambda x: np.reciprocal(x * x + 1),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "argmax": (lambda x: x.argmax(-1), "np.argmax is not traced"),
    "sort": (lambda x: np.sort(x), "np.sort is not traced"),
    "einsum of one": (lambda x: np.einsum("ij->i", x), "missing a required argument: 'b'"),
    "a dtype": (lambda x: np.sum(x, axis=0, dtype=np.float64), "unexpected keyword argument 'd"),
    "an array for an index": (lambda x: x[np.array([2, 0])], "cannot be indexed by array"),
    "a list for an index": (lambda x: x[..., [2, 0]], "cannot be indexed by"),
    "a traced power": (lambda x: x**x, "the power is a number"),
    "a comparison as a truth": (lambda x: x if x == 0 else -x, "has no truth value"),
    "an array for a number of rows": (lambda x: G.scatter_add(x, x, x), "is the number of rows"),
    "an operator": (lambda x: divmod(x, 2), "np.divmod is not traced"),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_gives_what_numpy_gives(name: str, rng: np.random.Generator) -> None:
    function = EXPRESSIONS[name]
    x = rng.standard_normal((int(rng.integers(1, 40)), int(rng.integers(3, 70))), np.float32)
    got = G.trace(function, G.array(["M", x.shape[1]])).compile()(x)
    want = function(x.astype(np.float64))
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


OPERATORS: dict[str, Any] = {
    "equal": lambda x, y: (x == y) * x + np.where(x != 3, y, 0),
    "masks": lambda x, y: np.where(~(x < y) & (x > 2) | (y == x) ^ (y < 0), x, y),
    "truth": lambda x, y: np.where(np.logical_and(x, y), np.where(y, x, 7), np.logical_not(x) * 5),
    "bits": lambda x, y: (x & 3) + (x | y) - (~x ^ (y >> 1)) + (1 & x << 2),
    "whole quotients": lambda x, y: x // 3 + x % 7 + abs(+y),
    "quotients": lambda x, y: x / 4 + np.sqrt(abs(x)) + x.mean(1, keepdims=True),
    "in place": lambda x, y: (x := x + 0, x := operator.iadd(x, y), x)[2],
    "not a number": lambda x, y: np.where(np.isnan(np.where(x > y, np.nan, y * 1.0)), x, y),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_integers_and_masks(name: str, rng: np.random.Generator) -> None:
    """Comparisons too: `==` of two stand-ins says which elements agree, not whether they are one stand-in."""
    x, y = rng.integers(-5, 9, (2, int(rng.integers(1, 20)), 30)).astype(np.int32)
    graph = G.trace(OPERATORS[name], *[G.array(["M", 30], tw.i32)] * 2)
    assert str(G.parse_graph(str(graph))) == str(graph) == str(G.parse_mlir(graph.mlir()))
    got, want = graph.compile()(x, y), OPERATORS[name](x, y)
    assert got.dtype == want.dtype or got.dtype == np.float32
    off = np.linalg.norm(got.astype(np.float64) - want)
    assert off <= (1e-6 * np.linalg.norm(want) if got.dtype == np.float32 else 0)


def test_what_is_not_a_number_has_no_sign() -> None:
    x = np.array([-2, -0.0, 0, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(G.trace(np.sign, G.array([5])).compile()(x), np.sign(x))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_traced_is_named(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(CompileError, match=message):
        G.trace(function, G.array(["M", 8]))


def test_an_attribute_that_numpy_lacks() -> None:
    with pytest.raises(AttributeError, match="a traced array has no attribute 'unknown'"):
        G.trace(lambda x: x.unknown, G.array(["M", 8]))
