"""A kernel that leaves its tile sizes to the planner beside itself at tile sizes that a person would try.

Heats in turn find the fastest of the fixed tilings (`heats.py`); then it meets the planner's choice, and what a search
found, all in turn in rounds of their own, and these alone are reported. The times of the heats are kept beside them
(``--json``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product as pairs
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites import Settings
from benchmarks.suites.cpu import measure, operand, shapes
from benchmarks.suites.data import zeros
from benchmarks.suites.heats import FINAL, fastest
from benchmarks.suites.layers import Shape, product
from tilewright.tools.measure import Case, Contender, MeasuredRow

TILINGS = tuple(pairs((16, 32, 64, 128, 256), (64, 128, 256, 512)))
"""BM, BN that a person would try."""


def cpu_planner(settings: Settings) -> Iterator[MeasuredRow]:
    """The ten-line kernel at the tile sizes that are chosen, beside the fastest of `TILINGS`; with a budget for it
    (``tuning``), what a search of so many seconds chooses, beside the same."""
    for threads in settings.threads:
        for shape in shapes(settings, threads):
            yield from _compared(shape, settings, threads)


def _compared(shape: Shape, settings: Settings, threads: int) -> Iterator[MeasuredRow]:
    m, n, k, form, dtype, *_ = shape
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
    best, times = fastest(
        replace(case, contenders=[chosen, *tilings]), partial(_rounds, settings), settings.rounds
    )
    ours = [chosen]
    if settings.tuning:
        searched = tw.autotune(key=("A", "B"), budget=settings.tuning)(product)
        ours.append(launch("tuned", searched))
    final = replace(case, contenders=[best, *ours], facts={"heats": times})
    fixed, *results = _rounds(settings, final, FINAL * settings.rounds).results
    for contender, result in zip(ours, results, strict=True):
        name = f"tuned {case.name}" if contender is not chosen else case.name
        both = replace(final, name=name, contenders=[contender, best])
        ratio = 1 / result.ratio
        yield MeasuredRow(both, [replace(result, ratio=1.0), replace(fixed, ratio=ratio)])


def _rounds(settings: Settings, case: Case, rounds: int) -> MeasuredRow:
    return measure(case, replace(settings, rounds=rounds))
