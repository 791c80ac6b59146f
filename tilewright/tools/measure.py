"""How things are timed here: contenders in turn in one process, medians, and what they ran on.

One sample of a contender is as many calls as fill :data:`SAMPLE_SECONDS`. Rounds go through the
contenders in turn, starting with another one each time, so that all of them meet the same machine:
its clock, its neighbours, its warm and cold moments. The median over the rounds is reported, with
the quartiles. A ratio is the median of the rounds' ratios, which cancels what a round had in common.

Before each sample the threads of the one before come to rest (:func:`settle`): those of BLAS and OpenMP
libraries wait for more work by spinning, OpenBLAS's for 0.1 s, and on as many cores as threads they
take half a core from whoever runs next, and give theirs a warm start.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.frozen import field, frozen

SAMPLE_SECONDS = 0.02
REST_SECONDS = 0.01
"""A process that used less than a fiftieth of this is at rest."""


@frozen
class Contender:
    """One way to do the work of a case."""

    name: str
    run: Callable[[], Any]


@frozen
class Case:
    """Work that several contenders do; the first is ours."""

    name: str
    contenders: Sequence[Contender]
    work: float
    """How much one call does, in units of ``unit`` seconds: 2e9 flops count 2 in GFLOP/s."""
    unit: str
    """``GFLOP/s``, ``GB/s`` (work per second), or ``us``, ``ms`` (time of one call)."""
    threads: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Size, dtype and whatever else says what the case is."""


@frozen
class Measured:
    """What one contender needed, in seconds per call."""

    name: str
    seconds: float
    low: float
    high: float
    """Median and quartiles."""
    rate: float
    """In the case's unit."""
    ratio: float
    """Ours to this one: how many times as fast we are; 1 for ourselves."""


@frozen
class MeasuredRow:
    """A measured case."""

    case: Case
    results: Sequence[Measured]

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "unit": self.case.unit,
            "threads": self.case.threads,
            **self.case.facts,
            "results": [vars(m) for m in self.results],
        }


def measure(
    case: Case,
    *,
    rounds: int = 15,
    sample: float = SAMPLE_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> MeasuredRow:
    """Times a case; every contender is called once before, so that it is compiled and warm.

    ``clock`` gives seconds: `time.process_time` counts the work of all threads and no waiting.
    """
    for contender in case.contenders:
        contender.run()
    calls = [max(1, round(sample / max(timed(c.run, 1, clock), 1e-9))) for c in case.contenders]
    times: list[list[float]] = [[] for _ in case.contenders]
    count = len(case.contenders)
    for turn in range(max(rounds, 1)):
        for i in (j % count for j in range(turn, turn + count)):
            settle()
            times[i].append(timed(case.contenders[i].run, calls[i], clock))
    ours = times[0]
    results: list[Measured] = []
    for contender, theirs in zip(case.contenders, times, strict=True):
        median = statistics.median(theirs)
        low, high = _quartiles(theirs)
        ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
        results.append(Measured(contender.name, median, low, high, rate(case, median), ratio))
    return MeasuredRow(case, results)


def settle(limit: float = 1.0) -> bool:
    """Waits until no thread of this process runs, ``limit`` seconds at most; whether that came about."""
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(REST_SECONDS)
        if time.process_time() - before < REST_SECONDS / 50:
            return True
    return False


def timed(run: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    """Seconds of one call, over ``calls`` calls in a row."""
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def rate(case: Case, seconds: float) -> float:
    """A time in the case's unit."""
    if case.unit == "us":
        return seconds * 1e6
    if case.unit == "ms":
        return seconds * 1e3
    return case.work / seconds


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return quarters[0], quarters[2]


def environment() -> dict[str, Any]:
    """Machine, versions and clock: what a number means nothing without."""
    from tilewright.tools.info import LIBRARIES, library_version, processor, target_state, version

    return {
        "tilewright": version(),
        "python": platform.python_version(),
        "libraries": {name: library_version(name) for name in LIBRARIES},
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "cpu target": target_state("cpu")["state"],
        "clock": clock(),
        "data": "random normal, fresh in every run; every contender gets the same",
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def clock() -> str:
    """The clock that the system tells, and that it is not fixed."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            clocks = [float(s.partition(":")[2]) for s in file if s.startswith("cpu MHz")]
    except (OSError, ValueError):
        clocks = []
    frequency = f"{max(clocks):.0f} MHz as reported by the system" if clocks else "unknown"
    return f"{frequency}; clocks are not fixed"
