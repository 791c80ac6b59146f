"""Search: which of several choices of constexprs makes a launch the fastest, measured on this machine.

All candidates are compiled, on as many cores as there are (in forked children, which leave what they compile in the
kernel cache). Each that compiles runs once: one whose result is another than the first's, by more than rounding, is
left out. Then all are timed in turn; after a round the slower half goes, until the time is up. The first candidate is
what the others are measured beside (the planner's choice, where there is one): it stays to the end, and wins unless
another is faster by more than timing can tell. The arrays hold in the end what they held before.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import cache
from tilewright.arguments import HOST, NOWHERE, ArrayArg, Grid, full_grid
from tilewright.diagnostics import LaunchError, TilewrightError
from tilewright.runtime.binding import BoundCall
from tilewright.runtime.grids import Constexprs, extents
from tilewright.runtime.launch import Launcher
from tilewright.runtime.tuning import Tuned
from tilewright.targets.base import CompileOptions, Foreseeing, Target, get_target

if TYPE_CHECKING:
    from tilewright.passes.planner import Request

SAMPLE_SECONDS = 0.005
"""A sample is as many launches as take so long."""
ROUNDS = 50
"""More tell no more."""
LEAST_ROUNDS = 3
MOST = 16
"""Choices of the planner that are tried."""
KEPT = 4
"""Candidates that are timed to the end."""
GAIN = 0.01
"""What part of the first candidate's time another must save to win."""
COMPILING = 0.7
"""What part of the budget compilation ahead may take."""
MORE_SECONDS = 5.0
"""What the least rounds may take beyond the budget."""

Progress = Callable[[str, float], None]
"""Is told what is being done, and how much of the search is done: 0 to 1."""


@dataclass
class Candidate:
    """One choice of constexprs, and its measured times or why it has none."""

    constexprs: Mapping[str, Any]
    planned: bool = False
    """Is it what the planner would take?"""
    run: Callable[[], None] | None = None
    out: str = "not tried: the time was up"
    """Why it was left out; empty for one that runs."""
    seconds: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Job:
    """A launch whose constexprs are searched."""

    launcher: Launcher
    values: Sequence[Any]
    """One per parameter; those that are searched are of no concern."""
    grid: Any
    """As a launch takes it: a function of constexprs, or a number or tuple."""

    def bound(self, constexprs: Mapping[str, Any]) -> BoundCall:
        """The launch with a candidate's constexprs."""
        parameters = self.launcher.binder.parameters
        pairs = zip(parameters, self.values, strict=True)
        return self.launcher.binder.bind([constexprs.get(p.name, v) for p, v in pairs])


def candidates_of(
    request: Request,
    options: CompileOptions,
    configs: Sequence[Mapping[str, Any]],
    planned: bool,
) -> list[Candidate]:
    """What a search tries: `configs`, or the planner's choices; where they are `planned`, its first one before all."""
    found: list[Mapping[str, Any]] = []
    if planned or not configs:
        try:
            choices = get_target(options.target).choices(request, options)
            found = [choice.values for choice in choices[:MOST]]
        except TilewrightError:
            if not configs:
                raise
    first, others = found[:1], [each for each in configs or found if each not in found[:1]]
    return [Candidate(dict(each), planned=each in first) for each in (*first, *others)]


def search(
    job: Job, candidates: Sequence[Candidate], budget: float, progress: Progress
) -> list[Candidate]:
    """The candidates, those that were measured first, the best of all at the head.

    `budget`: seconds; that one candidate is compiled and three rounds are measured may take longer. Raises what a
    launch raises, and what the last candidate was refused for where none of them runs.
    """
    if not candidates:
        raise LaunchError("there is nothing to search")
    first = job.bound(candidates[0].constexprs)
    options, device = job.launcher.chosen(first.arrays)
    target = get_target(options.target)
    apart = device == HOST and not target.on_host
    if not apart:
        job.launcher.options_for(first.arrays)  # refuses arrays that kernels do not reach
    if any(a.device == NOWHERE for a in first.arrays):
        raise LaunchError("a search runs the kernel, and an array has a shape but no memory")
    end = time.perf_counter() + budget
    with target.mirrored(first.arrays) if apart else nullcontext(first.arrays) as there:
        bounds = [_moved(job.bound(c.constexprs), there) for c in candidates]
        limit = time.perf_counter() + COMPILING * budget
        _compile_ahead(job, bounds, options, limit, progress)
        with _kept(target) as kept:
            _prepare(job, target, candidates, bounds, options, end, kept, progress)
            running = [c for c in candidates if c.run is not None]
            if running:
                _measure(target, there, running, end, progress)
        for candidate in candidates:
            candidate.run = None  # it names memory that may go
    return sorted(candidates, key=lambda c: _rank(c, candidates[0]))


def result(candidates: Sequence[Candidate], least: int = 2) -> Tuned | None:
    """What a search is remembered by; None where it measured fewer than `least`."""
    measured = [c for c in candidates if c.seconds]
    if len(measured) < least:
        return None
    best = measured[0]
    planned = next((c.median for c in measured if c.planned), None)
    times = [(c.constexprs, c.median) for c in measured]
    return Tuned(best.constexprs, best.median, planned, times)


def _rank(candidate: Candidate, first: Candidate) -> tuple[bool, float]:
    """Measured ones by their time; the first one's counts for a little less than it is."""
    if not candidate.seconds:
        return True, 0.0
    return False, candidate.median * (1 - GAIN if candidate is first else 1)


def _moved(bound: BoundCall, there: Sequence[ArrayArg]) -> BoundCall:
    """The launch on arrays where kernels reach them."""
    places = iter(there)
    types = [next(places) if isinstance(t, ArrayArg) else t for t in bound.types]
    args = [t if isinstance(t, ArrayArg) else a for t, a in zip(types, bound.args, strict=True)]
    return BoundCall(args, types, bound.constexprs)


# Compiling.


def _compile_ahead(
    job: Job,
    bounds: Sequence[BoundCall],
    options: CompileOptions,
    limit: float,
    progress: Progress,
) -> None:
    """Fills the kernel cache from several processes, until `limit`. What fails there fails again where it is needed."""
    cores = len(os.sched_getaffinity(0))
    alone = threading.current_thread() is threading.main_thread()  # others may hold locks
    able = hasattr(os, "fork") and alone and not multiprocessing.current_process().daemon
    if cores < 2 or len(bounds) < 3 or cache.current() is None or not able:
        return
    # A kernel has no other form that a child could take.
    context = multiprocessing.get_context("fork")
    count = min(cores, len(bounds))
    receiver, sender = context.Pipe(duplex=False)

    def compile_some(start: int) -> None:
        for bound in bounds[start::count]:
            with suppress(Exception):  # the parent finds out what it is
                kernel = job.launcher.kernel_for(bound, options)
                if isinstance(kernel.executable, Foreseeing):
                    kernel.executable.foresee(_grid(job, bound), bound.args)
            sender.send_bytes(b".")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of this process: they wait
        children = [
            context.Process(target=compile_some, args=(i,), daemon=True) for i in range(count)
        ]
        for child in children:
            child.start()
    done = 0
    while done < len(bounds) and (left := limit - time.perf_counter()) > 0:
        if receiver.poll(min(left, 0.2)):
            receiver.recv_bytes()
            done += 1
            progress(f"compiled {done} of {len(bounds)}", COMPILING * done / len(bounds))
        elif not any(child.is_alive() for child in children):
            break
    for child in children:
        child.terminate()
        child.join()
    receiver.close()
    sender.close()


def _prepare(
    job: Job,
    target: Target,
    candidates: Sequence[Candidate],
    bounds: Sequence[BoundCall],
    options: CompileOptions,
    end: float,
    kept: Callable[[Sequence[ArrayArg]], None],
    progress: Progress,
) -> None:
    """Runs every candidate once: those that give the first one's result can be launched afterwards."""
    expected: list[np.ndarray[Any, Any]] | None = None
    refused: TilewrightError | None = None
    for i, (candidate, bound) in enumerate(zip(candidates, bounds, strict=True)):
        if expected is not None and time.perf_counter() > end:
            break
        progress(f"trying {i + 1} of {len(candidates)}", COMPILING)
        try:
            kernel = job.launcher.kernel_for(bound, options)
            run = _bound_run(job, kernel, bound)
            arrays = [(p, bound.types[p]) for p in sorted(kernel.stored)]
            written = [a for _, a in arrays if isinstance(a, ArrayArg)]
            names = [job.launcher.binder.run_time_names[p] for p, _ in arrays]
            kept(written)
            run()
            found = [target.fetched(a) for a in written]
        except TilewrightError as error:
            refused, candidate.out = error, error.message
            continue
        if expected is None:
            expected = found
        elif (wrong := disagreement(names, found, expected)) is not None:
            candidate.out = wrong
            continue
        candidate.out, candidate.run = "", run
    if expected is None:
        assert refused is not None
        raise refused


def _bound_run(job: Job, kernel: Any, bound: BoundCall) -> Callable[[], None]:
    """A candidate's launch, over and over the same."""
    plan = job.launcher.plan(kernel, bound)
    if plan.refusal is not None:
        raise LaunchError(plan.refusal, hint=plan.hint)
    full = _grid(job, bound)
    if 0 in full:
        raise LaunchError("the grid is empty: there is nothing to measure")
    if plan.prepared is None:
        return partial(kernel.executable.launch, full, bound.args)
    values = [a.pointer if isinstance(a, ArrayArg) else a for a in bound.args]
    bind = getattr(plan.prepared, "bind", None)
    return bind(full, values, True) if bind is not None else partial(plan.prepared, full, values)


def _grid(job: Job, bound: BoundCall) -> Grid:
    grid = job.grid
    if callable(grid):
        grid = extents(grid, Constexprs(bound.constexprs), job.launcher.program.name)
    return full_grid(grid)


@contextmanager
def _kept(target: Target) -> Generator[Callable[[Sequence[ArrayArg]], None]]:
    """Inside: a function that makes sure that arrays hold what they held at first; in the end they do."""
    saved: dict[Any, tuple[ArrayArg, np.ndarray[Any, Any]]] = {}

    def restore(arrays: Sequence[ArrayArg]) -> None:
        for array in arrays:
            key = array.pointer, array.shape, array.strides, array.dtype
            if key not in saved:
                saved[key] = array, target.fetched(array)
        for array, content in saved.values():
            target.put(array, content)

    try:
        yield restore
    finally:
        restore([])


def disagreement(
    names: Sequence[str],
    found: Sequence[np.ndarray[Any, Any]],
    expected: Sequence[np.ndarray[Any, Any]],
) -> str | None:
    """How two results of the same inputs differ by more than rounding."""
    for name, a, b in zip(names, found, expected, strict=True):
        wide, other = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isnan(wide), np.isnan(other)):
            return f"{name} is written in another part than with the first"
        error = float(np.linalg.norm(np.nan_to_num(wide - other)))
        error /= max(float(np.linalg.norm(np.nan_to_num(other))), 1e-30)
        if not error < 1e-2:
            return f"{name} differs from the first's by {error:.1e}"
    return None


# Measuring.


def _measure(
    target: Target,
    arrays: Sequence[ArrayArg],
    running: list[Candidate],
    end: float,
    progress: Progress,
) -> None:
    """Rounds in turn; after each the slower half goes, but the first stays, and the best few."""
    first, start = running[0], time.perf_counter()
    calls: dict[int, int] = {}
    for rounds in range(1, ROUNDS + 1):
        for candidate in running:
            assert candidate.run is not None
            if id(candidate) not in calls:
                once = target.seconds(candidate.run, 1, arrays)
                calls[id(candidate)] = max(1, min(1000, round(SAMPLE_SECONDS / max(once, 1e-7))))
            candidate.seconds.append(target.seconds(candidate.run, calls[id(candidate)], arrays))
            if rounds > 1 and time.perf_counter() > end + MORE_SECONDS:
                return
        running = sorted(running, key=lambda c: c.median)
        best = running[0]
        rest = running[: max(KEPT, len(running) // 2)]
        running = rest if first in rest else [*rest, first]
        share = min(1.0, (time.perf_counter() - start) / max(end - start, 1e-9))
        line = f"round {rounds}: {text_of(best.constexprs)} {1e6 * best.median:.1f} us"
        progress(line, COMPILING + (1 - COMPILING) * share)
        if rounds >= LEAST_ROUNDS and time.perf_counter() > end:
            return


def text_of(constexprs: Mapping[str, Any]) -> str:
    """``BM=64 BN=32``."""
    return " ".join(f"{name}={value}" for name, value in constexprs.items())


@contextmanager
def bar(title: str) -> Generator[Progress]:
    """A progress bar on standard error, where that is a terminal."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    columns = (rich.TextColumn("{task.fields[title]}"), rich.BarColumn(), rich.TimeElapsedColumn(),
               rich.TextColumn("{task.description}"))  # fmt: skip
    with rich.Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        task = shown.add_task("", total=1.0, title=title)
        yield lambda what, done: shown.update(task, description=what, completed=done)
