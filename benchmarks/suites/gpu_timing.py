"""How GPU work is timed: contenders in turn, each sample between two events of the device.

Work of some milliseconds is enqueued per sample; a round goes through all contenders, starting with
another one each time, so that all of them meet the card as hot as the others do (a cold card shows
up to 15 % more, `notes/hopper.md`). Medians over the rounds; a ratio is the median of the rounds'
ratios. Memory that the sample reads may lie in L2, on both sides alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tilewright.tools.measure import Case, Measured, MeasuredRow, rate

SAMPLE_SECONDS = 0.004
WARM_SECONDS = 0.3


def gpu_torch() -> Any:
    """torch with a GPU; MissingTool where there is none."""
    from tilewright.tools.exits import MissingTool

    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise MissingTool("the GPU suites need torch", "pip install torch") from None
    if not torch.cuda.is_available():
        raise MissingTool("this machine has no GPU that torch can use")
    return torch


def timed(torch: Any, run: Callable[[], Any], calls: int) -> float:
    """Seconds of one call on the device, over so many calls in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls / 1e3


def measure_gpu(case: Case, *, rounds: int = 15, sample: float = SAMPLE_SECONDS) -> MeasuredRow:
    """Times a case on the device; every contender runs before, until it is compiled and warm."""
    torch = gpu_torch()
    for contender in case.contenders:
        contender.run()
    torch.cuda.synchronize()
    calls = [
        max(1, min(1000, round(sample / max(timed(torch, c.run, 3), 1e-7))))
        for c in case.contenders
    ]
    end = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < end:
        for contender, n in zip(case.contenders, calls, strict=True):
            timed(torch, contender.run, n)
    times: list[list[float]] = [[] for _ in case.contenders]
    count = len(case.contenders)
    for turn in range(max(rounds, 1)):
        for i in (j % count for j in range(turn, turn + count)):
            times[i].append(timed(torch, case.contenders[i].run, calls[i]))
    results: list[Measured] = []
    for contender, theirs in zip(case.contenders, times, strict=True):
        median = statistics.median(theirs)
        quarters = statistics.quantiles(theirs, n=4, method="inclusive") if rounds > 1 else theirs
        ratio = statistics.median(t / o for t, o in zip(theirs, times[0], strict=True))
        results.append(
            Measured(contender.name, median, quarters[0], quarters[-1], rate(case, median), ratio)
        )
    return MeasuredRow(case, results)


def captured(torch: Any, run: Callable[[], Any]) -> Callable[[], None]:
    """The work of `run` as a CUDA graph to replay: host time does not count."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay
