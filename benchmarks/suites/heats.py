"""The fastest of many contenders, found in heats.

The fastest of twenty noisy medians looks faster than it is: where all are alike, by the noise. So what is reported of
it is measured afterwards, in turn with what it is compared with. The times of the heats are kept beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.tools.measure import Case, Contender, MeasuredRow

FIRST_ROUNDS, NEAR = 2, 1.4
"""Of the first heat; contenders that take no more than so many times the fastest one's time go on to the second."""
FINAL = 3
"""Times as many rounds as were asked for, of those that are compared."""

Measure = Callable[[Case, int], MeasuredRow]
"""Times the contenders of a case in turn, in so many rounds."""


def fastest(case: Case, measure: Measure, rounds: int) -> tuple[Contender, dict[str, float]]:
    """The fastest but for the first, which takes its turns, and the seconds of all."""
    chosen, *others = case.contenders
    first, times = _heat(case, measure, FIRST_ROUNDS)
    limit = NEAR * first[0][0]
    near = [others[i] for seconds, i in first if seconds <= limit]
    second, more = _heat(replace(case, contenders=[chosen, *near]), measure, rounds)
    return near[second[0][1]], times | more


def _heat(
    case: Case, measure: Measure, rounds: int
) -> tuple[Sequence[tuple[float, int]], dict[str, float]]:
    """The others by their time and number, the fastest first: in what a quarter of the rounds took less."""
    results = measure(case, rounds).results
    order = sorted((r.low, i) for i, r in enumerate(results[1:]))
    return order, {r.name: r.seconds for r in results}
