"""Functions and methods of numpy on traced arrays: as on arrays, and those that a graph lacks are named."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import dtypes
from tilewright import graph as G
from tilewright.diagnostics import CompileError
from tilewright.graph import costs

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
    "small differences": lambda x: (
        np.log1p(np.abs(x) * 1e-4) * np.expm1(x * 1e-5) + 1e-8 * np.sinh(x * 1e-3)
    ),
    "large differences": lambda x: (
        np.log1p(np.abs(x) * 1e4) + np.expm1(np.abs(x) * 9) + np.sinh(x * 5) + np.cosh(x)
    ),
    "elements": lambda x: (
        np.tan(x * 0.3) + np.log10(np.abs(x) + 1) + np.trunc(x * 3) + np.hypot(x, 2 * x)
    ),
    "sums of exponents": lambda x: np.logaddexp(x * 90, x * 80 + 1),
    "finite": lambda x: (
        np.where(np.isfinite(1 / np.where(x > 0, x, np.inf) / 0.1), 1.0, 2.0) + np.heaviside(x, 0.5)
    ),
    "norms": lambda x: (
        x / np.linalg.norm(x, axis=-1, keepdims=True) + np.linalg.norm(x, 1, 1)[:, None]
    ),
    "other norms": lambda x: (
        np.linalg.norm(x) + np.linalg.norm(x, np.inf, axis=0) + np.linalg.norm(x, 3, axis=0)
    ),
    "triangles": lambda x: np.tril(x) @ np.triu(x, 1).T,
    "sums up to each": lambda x: np.cumsum(x, 1) + np.cumsum(x, 0) * np.cumprod(np.tanh(x), -1),
    "differences": lambda x: (
        np.diff(x) * np.ptp(x, 1)[:, None] + np.average(x, 1, np.abs(x))[:, None]
    ),
    "first places": lambda x: (x.argmax(-1) + np.argmin(x, 1) * 2) / 3 + np.argmax(x),
    "any and all": lambda x: (
        np.where(np.any(x > 1, 1), 1.0, 0.0) + np.where((x > -2).all(axis=1), 2.0, 0.0)
    ),
    "along": lambda x: np.take_along_axis(x * 2, x.argmax(-1, keepdims=True), 1) + x,
    "sums by letters": lambda x: (
        np.einsum("ij,kj,il->kl", x, x * 2, x) + np.einsum("ij,kj", x, x).sum()
    ),
    "letters of one": lambda x: (
        np.einsum("ij->ji", x)[0] + np.einsum("ij->i", x) + np.einsum("ij->", x)
    ),
    "products": lambda x: (
        np.dot(x, x.T)
        + np.inner(x, x) * np.tensordot(x, x)
        + np.vdot(x, x) * np.outer(x[:, 0], x[:, 1])
    ),
    "reciprocal": lambda x: np.reciprocal(x * x + 1),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "partition": (lambda x: np.partition(x, 3), "np.partition is not traced"),
    "sort": (lambda x: np.sort(x), "np.sort is not traced"),
    "a diagonal": (lambda x: np.einsum("ii->i", x), "one letter, one extent"),
    "letters": (lambda x: np.einsum("ij,jk", x), "einsum 'ij,jk' of 1 arrays"),
    "norm of a matrix": (lambda x: np.linalg.norm(x, 1), "norm of order 1 of a matrix"),
    "places": (lambda x: np.take_along_axis(x, x, 1), "the places are integers"),
    "a dtype": (lambda x: np.sum(x, axis=0, dtype=np.float64), "unexpected keyword argument 'd"),
    "an array for an index": (lambda x: x[np.array([2, 0])], "cannot be indexed by array"),
    "a list for an index": (lambda x: x[..., [2, 0]], "cannot be indexed by"),
    "a comparison as a truth": (lambda x: x if x == 0 else -x, "has no truth value"),
    "an array for a number of rows": (lambda x: G.scatter_add(x, x, x), "is the number of rows"),
    "an operator": (lambda x: divmod(x, 2), "np.divmod is not traced"),
}


PLACES: dict[str, Any] = {
    "rows": lambda x, i, j: x[i] * 2,
    "columns": lambda x, i, j: x[:, i],
    "into a product": lambda x, i, j: x[i] @ x.T,
    "as int8": lambda x, i, j: x[i.astype(np.int8)],
    "along": lambda x, i, j: np.take_along_axis(x, j, 1),
    "two": lambda x, i, j: x[i, i],
}


@pytest.mark.parametrize("name", PLACES)
def test_places_count_from_the_end_where_they_are_negative(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    """In whatever tiles are the cheapest: a machine's rates choose."""
    rng, seconds = fresh_rng(), costs.seconds
    x = rng.integers(-9, 10, (6, 6)).astype(np.float32)
    i, j = rng.integers(-6, 6, 9).astype(np.int32), rng.integers(-6, 6, (6, 4))
    i[0], j[0, 0] = -1, -6
    graph = G.trace(
        PLACES[name], *(G.array(a.shape, dtypes.from_numpy(a.dtype)) for a in (x, i, j))
    )
    tried = set[str]()
    for turn in range(40):
        compiled = graph.compile()
        if (text := compiled.source(**compiled.sizes(x, i, j))) not in tried:
            np.testing.assert_array_equal(compiled(x, i, j), PLACES[name](x, i, j))
        tried.add(text)
        if not turn:
            monkeypatch.setattr(
                costs, "seconds", lambda *a, **k: seconds(*a, **k) * np.exp(rng.normal(0, 2.5))
            )


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i4", "u1"), ("i2", "i4")], ids=str)
def test_whole_powers_of_whole_numbers(kinds: tuple[str, str]):
    """Exact beyond 2^53, and around the end of their type as products go, whatever the exponent."""
    rng = fresh_rng()
    x, n = (
        rng.integers(-9, 10, (7, 5)).astype(kinds[0]),
        rng.integers(0, 80, (7, 5)).astype(kinds[1]),
    )
    n[0], x[1] = n[0] % 20, x[1] % 3 - 1
    x[2], n[2] = 3, 80
    graph = G.trace(
        lambda x, n: (x**n, 3**n, (-3) ** np.abs(x)),
        *(G.array(a.shape, dtypes.from_numpy(a.dtype)) for a in (x, n)),
    )
    found = graph.compile()(x, n)
    for got, wanted in zip(found, (x**n, 3**n, (-3) ** np.abs(x)), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8"])
def test_negative_powers_of_whole_numbers_are_what_divides_one(kind: str):
    """Squares of the largest number and of its negative are 1, too, as products wrap around."""
    most = np.iinfo(kind).max
    x = np.array([most, -most, -most - 1, -2, -1, 0, 1, 2], kind)
    n = fresh_rng().choice([-4, -3, -2, -1], x.shape).astype(kind)
    graph = G.trace(lambda x, n: x**n, *[G.array(x.shape, dtypes.from_numpy(x.dtype))] * 2)
    wanted = np.where(np.abs(x) == 1, np.where(n % 2 == 0, 1, x), 0)
    np.testing.assert_array_equal(graph.compile()(x, n), wanted)


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


MASKS: dict[str, Any] = {
    "triangle": lambda x, y: np.tril(x, 2),
    "or nothing": lambda x, y: np.where(x, y, False),
    "or all": lambda x, y: np.where(x, True, y),
    "one or the other": lambda x, y: np.where(x, y, np.logical_not(y)),
    "as numbers": lambda x, y: np.where(x, y, 2),
    "numbers": lambda x, y: np.where(x, True, False),
    "none": lambda x, y: np.where(x, False, False),
    "arithmetic": lambda x, y: (x + y) * np.maximum(x, y) + np.minimum(x, y),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_chosen_and_computed_with(name: str, rng: np.random.Generator) -> None:
    x, y = (rng.integers(0, 2, (9, 20)).astype(bool) for _ in range(2))
    got, want = G.trace(MASKS[name], x, y).compile()(x, y), MASKS[name](x, y)
    assert got.dtype == want.dtype and np.array_equal(got, want)


SUMS: dict[str, Any] = {
    "sum of a mask": lambda x: (x > 0).sum(),
    "sum": lambda x: np.sum(x, axis=1),
    "product": lambda x: (x | 1).prod(-1),
    "reduced": lambda x: np.add.reduce(x, axis=1),
    "cumulated": lambda x: np.cumsum(x, axis=1),
    "counted": lambda x: np.count_nonzero(x, axis=0),
    "products of vectors": lambda x: (
        np.einsum("ij->i", x) * np.vdot(x.astype(np.int32), x.astype(np.int32)).astype(x.dtype)
    ),
    "largest of a mask": lambda x: (x > 3).max(1) & (x > 0).min(1) | np.all(x < 8, axis=1),
    "masks beside numbers": lambda x: ((x > 0) == True) | ((x > 3) >= 1),  # noqa: E712
    "compared with numbers of no such type": lambda x: (
        ((x > -400) & (x != -4)) ^ ((x < 300) | (x == 400))
    ),
    "compared with a fraction": lambda x: (x > 2.5) ^ ((x > 0).sum(1, keepdims=True) <= 3.5),
}


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_and_comparisons_of_whole_numbers(
    name: str, dtype: str, rng: np.random.Generator
) -> None:
    x = rng.integers(0 if dtype[0] == "u" else -9, 9, (5, 8)).astype(dtype)
    got, want = G.trace(SUMS[name], x).compile()(x), SUMS[name](x)
    assert name == "products of vectors" or got.dtype == want.dtype
    assert np.array_equal(got.astype(want.dtype), want)


def test_an_array_of_one_element_has_no_dimension() -> None:
    run = G.trace(lambda x, t: G.softmax(x / t), G.array([5, 7]), G.array([])).compile()
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    for t in (np.array(3, np.float32), np.float32(3)):
        np.testing.assert_allclose(run(x, t), G.softmax(x / np.float32(3)), rtol=1e-5)


def test_what_is_not_a_number_has_no_sign() -> None:
    x = np.array([-2, -0.0, 0, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(G.trace(np.sign, G.array([5])).compile()(x), np.sign(x))


def test_infinities_that_are_added_as_logarithms() -> None:
    x, y = np.array([[-np.inf, np.inf, -np.inf, 0, 2], [-np.inf, np.inf, 3, np.inf, 2]], np.float32)
    got = G.trace(np.logaddexp, x, y).compile()(x, y)
    np.testing.assert_allclose(got, np.logaddexp(x, y), rtol=1e-6)


def test_a_hypotenuse_is_as_large_as_its_sides() -> None:
    sides = [
        [3e38, 1e-30, 0, np.inf, -np.inf, -3, 0, np.nan, np.inf, np.nan],
        [-1e38, 2e-30, 0, -np.inf, 3, 4, -5, -np.inf, np.nan, 1],
    ]
    x, y = np.array(sides, np.float32)
    got = G.trace(np.hypot, x, y).compile()(x, y)
    np.testing.assert_allclose(got, np.hypot(x, y), rtol=1e-6)
    for of in (lambda x: np.hypot(x, 3.0), lambda x: np.hypot(-2.0, x)):
        np.testing.assert_allclose(G.trace(of, x).compile()(x), of(x), rtol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_traced_is_named(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(CompileError, match=message):
        G.trace(function, G.array(["M", 8]))


def test_an_attribute_that_numpy_lacks() -> None:
    with pytest.raises(AttributeError, match="a traced array has no attribute 'unknown'"):
        G.trace(lambda x: x.unknown, G.array(["M", 8]))


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_indices_computed_past_the_end_add_nothing(kind: Any):
    """Tiles of three rows are of four: the last index is 0, and the row beside it is there."""

    def added(ids: Any, y: Any) -> Any:
        return G.scatter_add(6, (ids * 2 + 1 - 1) // 2, y[:3])

    ids, y = np.array([1, 1, 2], kind), fresh_rng().standard_normal((6, 20)).astype(np.float32)
    want = np.zeros((6, 20))
    np.add.at(want, ids, y[:3])
    assert np.abs(G.trace(added, ids, y).compile()(ids, y) - want).max() < 1e-6


def test_what_is_returned_twice_is_there_twice():
    def twice(x: Any) -> Any:
        y = np.tanh(x)
        return y, y.T, y, x

    x = fresh_rng().standard_normal((3, 5))
    for got, want in zip(G.trace(twice, x).compile()(x), twice(x), strict=True):
        assert got.shape == want.shape and np.abs(got - want).max() < 1e-12


@pytest.mark.parametrize("shape", [(1, 4), (17, 1), (1, 1), (5, 1, 3)])
def test_one_row_or_column_is_scattered(shape: tuple[int, ...]):
    rng = fresh_rng()
    ids, y = rng.integers(0, 5, shape[0]), rng.standard_normal(shape)

    def added(ids: Any, y: Any) -> Any:
        return G.scatter_add(5, ids, y)

    got, want = G.trace(added, ids, y).compile()(ids, y), added(ids, y)
    assert got.shape == want.shape and np.abs(got - want).max() < 1e-12


def test_indices_of_three_dimensions_lie_as_what_they_choose():
    rng = fresh_rng()
    graph = G.trace(
        lambda ids, x, y: x[ids] * y,
        G.array([3, 40, 50], dtypes.u8), G.array([256]), G.array([3, 40, 50]),
    )  # fmt: skip
    ids = rng.integers(0, 256, (3, 40, 50), np.uint8)
    x, y = rng.standard_normal(256, np.float32), rng.standard_normal((3, 40, 50), np.float32)
    assert np.array_equal(graph.compile()(ids, x, y), x[ids] * y)
