"""Expressions over symbols: normal form, and agreement with plain integers at random points."""

from __future__ import annotations

import operator

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.passes.affine import Expr, Kind, Symbol, Symbols

NAMES = {"a": (0, 9), "b": (-5, 5), "c": (1, None), "d": (None, None)}


class Evaluated:
    """An expression beside its value at one point."""

    def __init__(self, table: Symbols, point: dict[str, int]):
        self.table, self.point = table, point

    def leaf(self, name: str) -> tuple[Expr, int]:
        low, high = NAMES[name]
        symbol = self.table.get(Kind.VALUE, name, name, lower=low, upper=high)
        return Expr.symbol(symbol), self.point[name]

    def number(self, expr: Expr) -> int:
        return sum(
            factor * _product(self._symbol(s) for s in monomial)
            for monomial, factor in expr.terms.items()
        )

    def _symbol(self, symbol: Symbol) -> int:
        if symbol.kind is not Kind.APPLY:
            return self.point[symbol.name]
        assert isinstance(symbol.key, tuple)
        x, y = (self.number(arg) for arg in symbol.args)
        functions = {"floordiv": operator.floordiv, "mod": operator.mod, "min": min, "max": max}
        functions["ceildiv"] = lambda p, q: -(-p // q)
        return functions[symbol.key[0]](x, y)


def _product(values) -> int:
    result = 1
    for value in values:
        result *= value
    return result


POINTS = st.fixed_dictionaries(
    {
        name: st.integers(low if low is not None else -50, high if high is not None else 50)
        for name, (low, high) in NAMES.items()
    }
)
OPS = st.sampled_from(["+", "-", "*k", "*", "//", "%", "ceil", "min", "max"])


@st.composite
def trees(draw: st.DrawFn, depth: int = 4):
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.sampled_from(sorted(NAMES)), st.integers(-20, 20)))
    op = draw(OPS)
    left = draw(trees(depth=depth - 1))
    if op in ("//", "%", "ceil"):
        return op, left, draw(st.integers(1, 12))
    if op == "*k":
        return op, left, draw(st.integers(-9, 9))
    return op, left, draw(trees(depth=depth - 1))


def build(tree, at: Evaluated) -> tuple[Expr, int]:
    if isinstance(tree, str):
        return at.leaf(tree)
    if isinstance(tree, int):
        return Expr.of(tree), tree
    op, left, right = tree
    (x, p), (y, q) = build(left, at), build(right, at)
    s = at.table
    match op:
        case "+":
            return x + y, p + q
        case "-":
            return x - y, p - q
        case "*k" | "*":
            return x * y, p * q
        case "//":
            return s.floordiv(x, y), p // q
        case "%":
            return s.mod(x, y), p % q
        case "ceil":
            return s.ceildiv(x, y), -(-p // q)
        case "min":
            return s.minimum(x, y), min(p, q)
        case _:
            return s.maximum(x, y), max(p, q)


@settings(max_examples=300, deadline=None)
@given(trees(), POINTS)
def test_expressions_agree_with_integers(tree, point):
    at = Evaluated(Symbols(), point)
    expr, value = build(tree, at)
    assert at.number(expr) == value
    low, high = expr.range()
    assert (low is None or low <= value) and (high is None or value <= high)


@settings(max_examples=100, deadline=None)
@given(trees(), POINTS)
def test_steps_are_differences(tree, point):
    at = Evaluated(Symbols(), point)
    expr, _ = build(tree, at)
    symbol = at.leaf("d")[0].as_symbol()
    assert symbol is not None
    step = expr.step(symbol)
    if step is None:
        return
    later = Evaluated(at.table, {**point, "d": point["d"] + 1})
    assert later.number(expr) - at.number(expr) == at.number(step)
    moved = expr.substitute({symbol: Expr.symbol(symbol) + 1})
    assert moved - expr == step


def test_normal_form():
    table = Symbols()
    n, m = (Expr.symbol(table.get(Kind.VALUE, v, v, lower=0)) for v in "nm")
    assert 2 * (n + m) - n == n + 2 * m and hash(n + m) == hash(m + n)
    assert (n + m) * (n - m) == n * n - m * m
    assert (n - n).constant == 0 and not (n * 0).symbols
    assert str(3 * n - m - 4) == "3*n - m - 4" and str(Expr({})) == "0"


def test_divisions_are_canonical():
    table = Symbols()
    n = Expr.symbol(table.get(Kind.VALUE, "n", "n", lower=0))
    d8, d4 = Expr.of(8), Expr.of(4)
    assert table.floordiv(16 * n + 5, d8) == 2 * n
    assert table.floordiv(table.floordiv(n, d8), d4) == table.floordiv(n, Expr.of(32))
    assert table.mod(24 * n + 13, d8).constant == 5
    assert table.ceildiv(n, d8) == table.floordiv(n + 7, d8)
    assert table.mod(n, d8).range() == (0, 7)


def test_minimum_is_decided_where_bounds_allow():
    table = Symbols()
    n = Expr.symbol(table.get(Kind.VALUE, "n", "n", lower=0, upper=7))
    assert table.minimum(n, Expr.of(7)) == n and table.maximum(n, Expr.of(0)) == n
    assert table.minimum(n + 3, n) == n
    assert table.minimum(n, Expr.of(5)) == table.minimum(Expr.of(5), n)
    assert table.minimum(n, Expr.of(5)).range() == (0, 5)


def test_a_hidden_symbol_has_no_step():
    table = Symbols()
    symbol = table.get(Kind.VALUE, "n", "n", lower=0)
    n = Expr.symbol(symbol)
    assert (3 * n + 1).step(symbol) == Expr.of(3)
    assert (n + table.floordiv(n, Expr.of(2))).step(symbol) is None
    assert (n * n).step(symbol) is None
    assert table.mod(n, Expr.of(3)).depends_on(symbol)
