"""Boxes, distances and separation against enumeration of all ids and iterations."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.passes.affine import Expr, Kind, Symbol, Symbols
from tilewright.passes.regions import difference, separated

POINTS = {"p": range(4), "q": range(3), "n": range(3), "m": range(2)}


class World:
    """Program ids p, q (unbounded above) and counters n, m (bounded), with x // 2 and x % 2 of p."""

    def __init__(self) -> None:
        self.table = Symbols()
        self.symbols: dict[str, Symbol] = {}
        for i, name in enumerate("pq"):
            self.symbols[name] = self.table.get(Kind.PROGRAM_ID, i, name, lower=0)
        for name in "nm":
            last = len(POINTS[name]) - 1
            symbol = self.table.get(Kind.COUNTER, name, name, lower=0, upper=last)
            self.symbols[name] = symbol

    def terms(self) -> list[Expr]:
        plain = [Expr.symbol(s) for s in self.symbols.values()]
        p, two = plain[0], Expr.of(2)
        return [*plain, self.table.floordiv(p, two), self.table.mod(p, two)]

    def at(self, expr: Expr, point: dict[str, int]) -> int:
        total = 0
        for monomial, factor in expr.terms.items():
            for s in monomial:
                if s.kind is Kind.APPLY:
                    factor *= point["p"] // 2 if s.key[0] == "floordiv" else point["p"] % 2
                else:
                    factor *= point[s.name]
            total += factor
        return total

    def points(self) -> list[dict[str, int]]:
        return [dict(zip(POINTS, v, strict=True)) for v in itertools.product(*POINTS.values())]


def draw(world: World, seed: int, dims: int) -> list[tuple[Expr, int]]:
    """Offsets with few terms and coefficients near the sizes, where the truth is interesting."""
    r = random.Random(seed)
    found: list[tuple[Expr, int]] = []
    for _ in range(dims):
        size = r.choice([1, 2, 4])
        offset = Expr.of(r.randint(-3, 3))
        for term in r.sample(world.terms(), r.randint(1, 3)):
            offset = offset + term * r.choice([-1, 1]) * r.choice([1, size, 2 * size, 3 * size, 12])
        found.append((offset, size))
    return found


def meet(a: list[int], b: list[int], sizes: list[int]) -> bool:
    return all(abs(x - y) < n for x, y, n in zip(a, b, sizes, strict=True))


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([1, 2]))
def test_separated_boxes_never_meet(seed: int, rank: int):
    world = World()
    dims = draw(world, seed, rank)
    names = [s.name for s in separated(dims) if s.kind is not Kind.APPLY]
    sizes = [n for _, n in dims]
    places = [(p, [world.at(e, p) for e, _ in dims]) for p in world.points()]
    for (p, a), (q, b) in itertools.combinations(places, 2):
        if any(p[name] != q[name] for name in names):
            assert not meet(a, b, sizes), (names, dims, p, q)


def test_separation_is_found_where_it_is():
    """The common cases are proven, not only never wrong."""
    world = World()
    p, q, n, m, half, odd = world.terms()
    name = lambda dims: {s.name for s in separated(dims) if s.kind is not Kind.APPLY}  # noqa: E731
    assert name([(4 * p, 4), (4 * q, 4)]) == {"p", "q"}
    assert name([(4 * p + 2, 4)]) == {"p"} and name([(3 * p, 4)]) == set()
    assert name([(12 * p + 4 * n, 4)]) == {"p", "n"} and name([(8 * p + 4 * n, 4)]) == set()
    assert name([(4 * half, 4), (4 * odd, 4)]) == {"p"} and name([(4 * half, 4)]) == set()
    assert name([(24 * p + 12 * m + 4 * n, 4)]) == {"p", "m", "n"}
    assert name([(4 * p, 4), (4 * p + 4 * n, 4)]) == {"p", "n"}


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 1 << 30), st.sets(st.sampled_from(sorted(POINTS))))
def test_distances_bound_every_pair(seed: int, shared: set[str]):
    world = World()
    (x, _), (y, _) = draw(world, seed, 2)
    low, high = difference(x, y, [world.symbols[name] for name in shared])
    for p, q in itertools.product(world.points(), repeat=2):
        if all(p[name] == q[name] for name in shared):
            distance = world.at(x, p) - world.at(y, q)
            assert (low is None or low <= distance) and (high is None or distance <= high)
