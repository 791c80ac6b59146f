"""Random graphs: expressions drawn at random agree with numpy, or are refused with a reason."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.draws import fresh_rng, fresh_seed
from tilewright import graph as G
from tilewright.diagnostics import TilewrightError
from tilewright.graph.compiled import CompiledGraph
from tilewright.graph.sections import schedule
from tilewright.targets.base import rates_of

EXAMPLES = int(os.environ.get("TILEWRIGHT_GRAPH_EXAMPLES", "6"))
"""Random expressions that are tried; each compiles its kernels."""
SIZES = (12,) if EXAMPLES <= 6 else (12, 12, 12, 30, 100)
"""How many operations an expression may have: more where many are tried, since kernels take time to compile."""

UNARY = (np.tanh, np.abs, G.sigmoid, lambda x: np.exp(x * 0.1), lambda x: x * 0.5 + 1.0)
BINARY = (np.add, np.subtract, np.multiply, np.maximum)


KINDS = ("unary", "binary", "binary", "product", "product", "reduce", "softmax", "T", "part", "spread", "where",
         "scan")  # fmt: skip


def scanned(x, kind):
    """A recurrence over the rows of a matrix."""
    begin = np.zeros_like(x, shape=(x.shape[1],))
    steps = (
        lambda s, row: (np.tanh(s * 0.5 + row), s),
        lambda s, row: (np.maximum(s, row), s + row),
        lambda s, row: (G.softmax(s + row), row * s.sum()),
    )
    return G.scan(steps[kind], begin, x)[1]


def expression(seed, count):
    """A function of three arrays [a, b], [b, c], [a, c] that applies ``count`` random operations."""

    def function(x, y, z):
        draw = random.Random(seed)
        values = [x, y, z]
        for _ in range(count):
            one = draw.choice(values)
            kind = draw.choice(KINDS)
            fits = [v for v in values if v.shape == one.shape]
            if kind == "unary":
                made = draw.choice(UNARY)(one)
            elif kind == "binary":
                made = draw.choice(BINARY)(one, draw.choice(fits))
            elif kind == "product":
                partners = [v for v in values if v.shape[0] == one.shape[1]]
                if not partners:
                    continue
                made = (one @ draw.choice(partners)) * (1 / one.shape[1] ** 0.5)
            elif kind == "reduce":
                made = one - draw.choice((one.mean(1, keepdims=True), one.max(0, keepdims=True)))
            elif kind == "softmax":
                made = G.softmax(one)
            elif kind == "part":
                low = draw.randrange(max(1, one.shape[0] - 4))
                made = (
                    one[low : low + 4] if draw.random() < 0.5 else one[:, : one.shape[1] // 2 + 1]
                )
            elif kind == "spread":
                made = one + draw.choice((one[0:1], one[:, 1:2], one.sum(0), one.max()))
            elif kind == "where":
                made = np.where(one > draw.choice(fits), one, draw.choice((0.5, draw.choice(fits))))
            elif kind == "scan":
                made = scanned(one, draw.randrange(3))
            else:
                made = one.T
            values.append(made)
        return values[-1] * 1.0, values[-2].sum(0)

    return function


class Drawn(CompiledGraph):
    """For a machine drawn at random: room for little or much, launches that cost much or little,
    elements that cost as much as their neighbours with them, or do not."""

    def __init__(self, graph, draw):
        super().__init__(graph, {})
        room = draw.choice((256, 512, 1024, 1 << 18)) * 4
        launch = draw.choice((1e-2, 5e-6))
        self.rates = replace(
            rates_of("cpu"),
            accumulator_bytes=4 * room,
            value_bytes=room,
            launch_seconds=launch,
            access_bytes=draw.choice((0, 64)),
        )

    def _scheduled(self, sizes):
        return schedule(self.graph.bound(sizes), "cpu", True, self.rates)


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_random_expressions(number):
    seed = fresh_seed()
    draw = random.Random(seed)
    a, b, c = (draw.choice((5, 16, 33, 70)) for _ in range(3))
    rng = fresh_rng()
    arrays = [rng.standard_normal(s, np.float32) for s in ((a, b), (b, c), (a, c))]
    function = expression(seed, draw.randrange(2, draw.choice(SIZES)))
    want = function(*(x.astype(np.float64) for x in arrays))
    try:
        got = Drawn(G.trace(function, *arrays), draw)(*arrays)
    except TilewrightError as refused:
        assert len(str(refused)) > 40, "a reason is given"
        assert "<tilewright graph" not in str(refused), "the reason is the graph's, not the text's"
        return
    # What cancels in f32 does so in numpy as well: a sum of what a mean was taken from is noise.
    for x, y, noisy in zip(got, want, function(*arrays), strict=True):
        noise = 20 * np.linalg.norm(noisy - y)
        assert np.linalg.norm(x - y) <= noise + 1e-4 * max(np.linalg.norm(y), 1e-2 * y.size**0.5)


def test_a_hundred_nodes_are_planned():
    """Planning alone: text round trip, a kernel for everything, or a reason."""
    seed = fresh_seed()
    shapes = [(64, 48), (48, 32), (64, 32)]
    graph = G.trace(expression(seed, 60), *map(G.array, shapes))
    assert G.parse_graph(str(graph)) == graph
    try:
        plan = graph.compile().plan()
    except TilewrightError as refused:
        assert len(str(refused)) > 40, "a reason is given"
        return
    made = plan.schedule.graph.validate()
    assert G.parse_graph(str(made)) == made
