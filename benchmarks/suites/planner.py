"""A kernel that leaves its tile sizes to the planner beside itself at tile sizes that a person would try.

The fastest of twenty noisy medians looks faster than it is: where all are alike, by the noise. So two are compared.
Heats in turn find the fastest of the fixed tilings; then it meets the planner's choice, the two in turn, in rounds of
their own, and these alone are reported. The times of the heats are kept beside them (``--json``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product as pairs
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites import Settings
from benchmarks.suites.cpu import measure, operand, shapes
from benchmarks.suites.data import zeros
from benchmarks.suites.layers import Shape, product
from tilewright.tools.measure import Case, Contender, MeasuredRow

TILINGS = tuple(pairs((16, 32, 64, 128, 256), (64, 128, 256, 512)))
"""BM, BN that a person would try."""
FIRST_ROUNDS, NEAR = 2, 1.4
"""Of the first heat; tilings that take no more than so many times the fastest one's time go on to the second."""
FINAL = 3
"""Times as many rounds as were asked for, of the two that are compared."""


def cpu_planner(settings: Settings) -> Iterator[MeasuredRow]:
    """The ten-line kernel at the tile sizes that are chosen, beside the fastest of `TILINGS`; with a budget for it
    (``tuning``), what a search of so many seconds chooses, beside the same."""
    for threads in settings.threads:
        for shape in shapes(settings, threads):
            yield from _compared(shape, settings, threads)


def _compared(shape: Shape, settings: Settings, threads: int) -> Iterator[MeasuredRow]:
    m, n, k, form, dtype = shape
    a = operand((m, k), dtype, False)
    b = operand((k, n), dtype, form[1] == "T")
    c = zeros((m, n), np.int32 if dtype == "i8" else a.dtype)
    own = {"ACC": tw.i32} if dtype == "i8" else {}

    def launch(name: str, kernel: Any, **sizes: Any) -> Contender:
        bound = kernel.options(target=settings.target, num_threads=threads)[
            lambda BM, BN: (tw.cdiv(m, BM), tw.cdiv(n, BN))
        ]
        return Contender(name, partial(bound, a, b, c, **sizes, **own))

    case = Case(shape.name, (), shape.flops / 1e9, "GFLOP/s", threads)
    chosen = launch("tilewright", product)
    tilings = [launch(f"{x}x{y}", product, BM=x, BN=y, BK=64) for x, y in TILINGS]
    best, times = fastest(replace(case, contenders=[chosen, *tilings]), settings)
    final = replace(settings, rounds=FINAL * settings.rounds)
    yield measure(replace(case, contenders=[chosen, best], facts={"heats": times}), final)
    if settings.tuning:
        searched = tw.autotune(key=("A", "B"), budget=settings.tuning)(product)
        tuned = launch("tuned", searched)
        yield measure(replace(case, name=f"tuned {case.name}", contenders=[tuned, best]), final)


def fastest(case: Case, settings: Settings) -> tuple[Contender, dict[str, float]]:
    """The fastest but for the first, which takes its turns, and the seconds of all."""
    chosen, *others = case.contenders
    first, times = _heat(case, replace(settings, rounds=FIRST_ROUNDS))
    limit = NEAR * first[0][0]
    near = [others[i] for seconds, i in first if seconds <= limit]
    second, more = _heat(replace(case, contenders=[chosen, *near]), settings)
    return near[second[0][1]], times | more


def _heat(case: Case, settings: Settings) -> tuple[Sequence[tuple[float, int]], dict[str, float]]:
    """The others by their time and number, the fastest first: in what a quarter of the rounds took less."""
    results = measure(case, settings).results
    order = sorted((r.low, i) for i, r in enumerate(results[1:]))
    return order, {r.name: r.seconds for r in results}
