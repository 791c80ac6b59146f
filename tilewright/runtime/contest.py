"""A contest: which of several ways to do the same work is the fastest, by times that are measured in turn.

The speed of a machine moves by more, from second to second, than what good candidates differ by. So no two times are
compared that were not taken in one round: a candidate's time counts as a multiple of that of the first one, which is in
every round. New candidates run in a heat, in which the slow ones drop out round by round. The fastest of all heats and
the first meet in the final, in which the slower half drops out after some rounds, twice: a few times of many candidates
make lucky ones look fast. One of the last wins if it is faster than the first by more than the noise, and else the
first does, so that a search never ends behind what it began with.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil, sqrt
from typing import Any

from tilewright.frozen import field, record

HEAT_ROUNDS = 3
NEAR = 1.1
"""Who takes so many times as long as the fastest drops out of a heat after its second round; in the first one, where a
single time says less, it is twice as far."""
FAR = 2.0
"""A candidate that takes so many times as long as the first one is not asked again."""
KEPT = 4
"""Candidates that meet the first to the end."""
HALVED = (3, 8)
"""Rounds of the final after which the slower half of the candidates drops out; it begins with four times as many as are
kept."""
UNDECIDED = 4
"""Times as many rounds are made, at most, as were asked for."""
GAIN = 0.01
"""What part of the first candidate's time another must save to win."""

WAITING = "not tried: the time was up, or others promised more"


@record
class Candidate:
    """One choice of constexprs, and its measured times or why it has none."""

    constexprs: Mapping[str, Any]
    planned: bool = False
    """Is it what the planner would take?"""
    run: Callable[[], None] | None = None
    out: str = WAITING
    """Why it was left out; empty for one that runs."""
    seconds: list[float] = field(default_factory=list[float])
    estimate: float | None = None
    """Seconds, by the planner's model."""
    ratios: list[float] = field(default_factory=list[float])
    """Its times as multiples of the first candidate's in the same rounds."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """Its time as a multiple of the first candidate's; 1 before any round, in which the first one alone is."""
        return statistics.median(self.ratios) if self.ratios else 1.0


def beyond_noise(ratios: Sequence[float]) -> bool:
    """Are times as multiples of others less by `GAIN` in the middle, and by anything in more rounds than chance gives
    to equal ones, but for one case in ten thousand: in half of them and two times the square root of their number? Of
    a few rounds, in all."""
    count = len(ratios)
    high = sorted(ratios)[min(count - 1, ceil(count / 2 + 2 * sqrt(count)))]
    return high < 1 and statistics.median(ratios) < 1 - GAIN


def _undecided(ratios: Sequence[float]) -> bool:
    return statistics.median(ratios) < 1 - GAIN and not beyond_noise(ratios)


class Contest:
    """Measures candidates beside the first one.

    `sample(candidate, calls)`: seconds of one of so many launches in a row. `end`: when the time is up, by `clock`.
    """

    def __init__(
        self,
        first: Candidate,
        sample: Callable[[Candidate, int], float],
        end: float,
        sample_seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.first, self.end = first, end
        first.ratios.clear()
        self.entered: list[Candidate] = []
        """All that were measured, but for the first."""
        self._sample, self._sample_seconds, self._clock = sample, sample_seconds, clock
        self._calls: dict[int, int] = {}
        self._turn = 0
        self._usual: float | None = None
        """The first one's last time."""

    def over(self, more: float = 0.0) -> bool:
        return self._clock() > self.end + more

    def heat(self, candidates: Sequence[Candidate]) -> None:
        """A few rounds of new candidates, in which the slow ones drop out."""
        left = list(candidates)
        self.entered += left
        if not left:
            return
        for candidate in left:
            candidate.ratios.clear()  # of another contest
        if self._usual is None:
            self._usual = self._timed(self.first)
        for turn in range(HEAT_ROUNDS):
            self.round(left, sure=True)
            if self.over():
                return
            best = min((c.ratio for c in self.entered), default=1.0)
            limit = min(best, 1.0) * (NEAR if turn else NEAR * NEAR)
            left = [c for c in left if c.ratio <= limit]

    def final(self, rounds: int, least: int, more: float, told: Callable[[], None]) -> Candidate:
        """The winner of so many rounds among the fastest, or of up to `UNDECIDED` times as many while one of them is
        faster in the middle, but not beyond the noise; `least` of them may take `more` seconds beyond the end."""
        chosen, since = self.best(KEPT << len(HALVED)), 0
        for candidate in (self.first, *chosen):
            candidate.ratios.clear()  # the fastest of many were lucky, too
        for turn in range(1, UNDECIDED * rounds + 1):
            self.round(chosen)
            if turn in HALVED and turn + least <= rounds:
                since = turn
                chosen = sorted(chosen, key=lambda c: c.ratio)[: max(KEPT, len(chosen) // 2)]
            told()
            if self.over(0.0 if turn >= least else more):
                break
            if turn >= rounds and not any(_undecided(c.ratios[since:]) for c in chosen):
                break
        for candidate in self.entered:  # as if all had been measured at one speed of the machine
            candidate.seconds[:] = [self.first.median * ratio for ratio in candidate.ratios]
        # What kept a candidate in the final says too much for it: what came later decides.
        since = since if len(self.first.ratios) - since >= least else 0
        last = {statistics.median(r): c for c in chosen if beyond_noise(r := c.ratios[since:])}
        return last[min(last)] if last else self.first

    def best(self, count: int) -> list[Candidate]:
        """The fastest so far, but for the first."""
        return sorted(self.entered, key=lambda c: c.ratio)[:count]

    def round(self, candidates: Sequence[Candidate], sure: bool = False) -> None:
        """One time of each and of the first, who begins being another from round to round. `sure`: the first has a
        second turn in the end, and its shorter time counts: heats are compared with one another by it."""
        everyone, times = [self.first, *candidates], dict[int, float]()
        start = self._turn % len(everyone)
        self._turn += 1
        for candidate in (*everyone[start:], *everyone[:start]):
            times[id(candidate)] = self._timed(candidate)
        own = times[id(self.first)]
        self._usual = times[id(self.first)] = min(own, self._timed(self.first)) if sure else own
        for candidate in everyone:
            seconds = times[id(candidate)]
            candidate.seconds.append(seconds)
            candidate.ratios.append(seconds / self._usual)

    def _timed(self, candidate: Candidate) -> float:
        calls = self._calls.get(id(candidate))
        if calls is None:
            self._sample(candidate, 1)  # the first launch after others is not like the next
            once = self._sample(candidate, 1)
            if self._usual is not None and once > FAR * self._usual + self._sample_seconds:
                return once
            calls = max(1, min(1000, round(self._sample_seconds / max(once, 1e-7))))
            self._calls[id(candidate)] = calls
        return self._sample(candidate, calls)
