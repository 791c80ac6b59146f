"""Rates of a loop of products that explain measured times: `work_split.clocks`, fitted to a machine.

By descent, one rate at a time, in ever smaller steps, from the rates of the table; the error is the mean square of the
logarithm of estimated by measured time. What no launch depends on stays what it is: leaving it costs a little. Rates
are there to choose by: a fit that would not have chosen better than the table among what was measured is dropped.

    measured 7.1, 24, 61, .. us    table's rates: 9.0, 26, 60, .. us    fitted: 7.3, 24, 60, .. us
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf, log

from tilewright.frozen import frozen
from tilewright.targets.cuda import driver
from tilewright.targets.cuda.work_split import LoopWork, Sides, WorkSplit, clocks
from tilewright.uarch.calibration import calibrated
from tilewright.uarch.sm90 import product_rates

STEPS = (1.5, 1.2, 1.07, 1.02)
"""Factors by which a rate is tried larger and smaller, one after the other."""
PULL = 5e-2
"""What the square of a rate's distance from the table, in logarithms, counts beside the error: with less, some sixty
launches say less well which tiling is best than the rates of the table do, which explain thousands."""
GAIN = 0.02
"""By how much less, in logarithms, what a fit chooses must take than what the table chooses."""
CLOCK = "hertz"
"""A faster clock and fewer clocks of everything are one: it stays."""


@frozen
class Timed:
    """A launch, and how long it took."""

    work: LoopWork
    split: WorkSplit
    programs: int
    trips: int
    sides: Sides
    seconds: float

    def estimated(self, rates: Mapping[str, float], multiprocessors: int) -> float:
        """Seconds by some rates."""
        work = replace(self.work, rates=rates)
        count = clocks(work, self.split, self.programs, self.trips, self.sides, multiprocessors)
        return count / rates[CLOCK]


def fitted(
    timed: Sequence[Timed], table: Mapping[str, float], multiprocessors: int
) -> Mapping[str, float]:
    """The rates that explain these times, if they choose better than the table; else the table's."""
    if not timed:
        return table
    found = explaining(timed, table, multiprocessors)
    better = lost(timed, table, multiprocessors) - lost(timed, found, multiprocessors)
    return found if better > GAIN else table


def lost(timed: Sequence[Timed], rates: Mapping[str, float], multiprocessors: int) -> float:
    """How much longer than the best launch of its product the one takes that is estimated to be the shortest: the
    mean over all products, in logarithms."""
    products: dict[object, list[Timed]] = {}
    for each in timed:
        products.setdefault((each.sides, each.trips * each.work.step), []).append(each)
    return sum(loss(each, rates, multiprocessors) for each in products.values()) / len(products)


def loss(launches: Sequence[Timed], rates: Mapping[str, float], multiprocessors: int) -> float:
    """The same of launches of one product."""
    chosen = min(launches, key=lambda each: each.estimated(rates, multiprocessors))
    return log(chosen.seconds / min(each.seconds for each in launches))


def explaining(
    timed: Sequence[Timed], table: Mapping[str, float], multiprocessors: int, pull: float = PULL
) -> Mapping[str, float]:
    """The rates of a table, changed so that they explain these times."""

    def error(rates: Mapping[str, float]) -> float:
        off = [log(each.estimated(rates, multiprocessors) / each.seconds) ** 2 for each in timed]
        away = sum(log(rates[name] / table[name]) ** 2 for name in table)
        return sum(off) / len(off) + pull * away

    rates, least = dict(table), error(table)
    for step in STEPS:
        before = inf
        while least < before:
            before = least
            rates, least = descended(rates, least, (step, 1 / step), error)
    return rates


def descended(
    rates: dict[str, float],
    least: float,
    factors: Sequence[float],
    error: Callable[[Mapping[str, float]], float],
    fixed: Collection[str] = (CLOCK,),
) -> tuple[dict[str, float], float]:
    """Rates each of which but the fixed is tried times every factor, one after the other, and the error then; it was
    `least`."""
    for name in [name for name in rates if name not in fixed]:
        for factor in factors:
            other = rates | {name: rates[name] * factor}
            if (found := error(other)) < least * 0.9999:
                rates, least = other, found
    return rates, least


def measured(work: LoopWork, machine: str) -> LoopWork:
    """A kernel's loop with the rates of the device at hand; as it is where there is none."""
    device = driver.named(machine)
    found = {**product_rates(device), **calibrated(device)}
    return replace(work, rates={name: found.get(name, rate) for name, rate in work.rates.items()})
