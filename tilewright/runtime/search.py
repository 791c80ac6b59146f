"""Search: which of several choices of constexprs makes a launch the fastest, measured on this machine.

Candidates are tried in batches until the time is up: neighbours of the fastest so far, and those that the planner costs
least. A batch is compiled on as many cores as there are (in forked children, which leave what they compile in the
kernel cache). Each that compiles runs once: one whose result is another than the first's, by more than rounding, is
left out. Then they are timed in turn (`contest.py`). The first candidate is what the others are measured beside (the
planner's choice, where there is one): it wins unless another is faster by more than timing can tell. The arrays hold in
the end what they held before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arguments import HOST, NOWHERE, ArrayArg, Grid, full_grid
from tilewright.diagnostics import LaunchError, TilewrightError
from tilewright.frozen import frozen
from tilewright.runtime.binding import BoundCall
from tilewright.runtime.compilers import Compilers
from tilewright.runtime.contest import Candidate, Contest
from tilewright.runtime.grids import Constexprs, extents
from tilewright.runtime.launch import Launcher
from tilewright.runtime.tuning import Tuned
from tilewright.targets.base import CompileOptions, Foreseeing, Target, get_target

if TYPE_CHECKING:
    from tilewright.passes.launch_cost import Choice
    from tilewright.passes.planner import Request

SAMPLE_SECONDS = 0.005
"""A sample is as many launches as take so long."""
ROUNDS = 50
"""Of the final; more tell no more."""
LEAST_ROUNDS = 5
MOST = 1000
"""Choices of the planner that are tried."""
BATCH = 8
"""Candidates that are compiled and timed together, or as many as there are cores."""
PROMISING = 2.0
"""What the planner costs at more times its first choice is tried as a neighbour of the fastest alone."""
FASTEST = 3
"""So many have neighbours that are tried."""
COMPILING = 0.6
"""What part of the budget compilation ahead may take."""
TRYING = 0.8
"""What part of the budget trying may take, before the final."""
MORE_SECONDS = 5.0
"""What the least rounds may take beyond the budget."""

Progress = Callable[[str, float], None]
"""Is told what is being done, and how much of the search is done: 0 to 1."""


@frozen
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
    request: Request, options: CompileOptions, configs: Sequence[Mapping[str, Any]], planned: bool
) -> list[Candidate]:
    """What a search tries: `configs`, or the planner's choices; where they are `planned`, its first one before all."""
    choices: Sequence[Choice] = []
    if planned or not configs:
        try:
            choices = get_target(options.target).choices(request, options, every=not configs)
        except TilewrightError:
            if not configs:
                raise
    found = [Candidate(dict(each.values), estimate=each.seconds) for each in choices[:MOST]]
    for candidate in found[:1]:
        candidate.planned = True
    if not configs:
        return found
    first = [candidate.constexprs for candidate in found[:1]]
    return found[:1] + [Candidate(dict(each)) for each in configs if dict(each) not in first]


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
    start = time.perf_counter()
    end = start + budget
    with target.mirrored(first.arrays) if apart else nullcontext(first.arrays) as there:
        with _kept(target) as kept:
            trial = _Trial(job, target, options, there, kept, candidates)
            try:
                winner = _searched(trial, candidates, start, end, progress)
            finally:
                trial.compilers.stop()
        for candidate in candidates:
            candidate.run = None  # it names memory that may go
    return sorted(
        candidates, key=lambda c: (not c.seconds, c is not winner, (c.median if c.seconds else 0.0))
    )


def _searched(
    trial: _Trial, candidates: Sequence[Candidate], start: float, end: float, progress: Progress
) -> Candidate:
    """The winner; the others have their times."""
    budget, waiting, contest = end - start, list(candidates), None
    size = max(BATCH, len(os.sched_getaffinity(0)))
    limit = start + TRYING * budget
    steps = Steps([c.constexprs for c in candidates])
    while waiting and (contest is None or not contest.over()):
        best = [] if contest is None else [contest.first, *contest.best(FASTEST)]
        batch = next_batch(waiting, steps, sorted(best, key=lambda c: c.ratio), size)
        if not batch:
            break
        waiting = [c for c in waiting if c not in batch]
        said = f"{len(candidates) - len(waiting)} of {len(candidates)}"

        def told(what: str, said: str = said, contest: Contest | None = contest) -> None:
            share = (time.perf_counter() - start) / max(budget, 1e-9)
            line = f"{what} {said}" if contest is None else f"{what} {said}; {_fastest(contest)}"
            progress(line, min(1.0, share))

        running = trial.prepared(batch, start + COMPILING * budget, limit, told)
        if contest is None and running:
            contest = Contest(running.pop(0), trial.seconds, limit, SAMPLE_SECONDS)
        if contest is not None:
            contest.heat(running)
    if contest is None:
        assert trial.refused is not None
        raise trial.refused
    contest.end, final = end, contest
    return final.final(
        ROUNDS, LEAST_ROUNDS, MORE_SECONDS, lambda: progress(f"final; {_fastest(final)}", 1.0)
    )


class Steps:
    """How far choices lie from one another: in the order of the values that occur of each constexpr."""

    def __init__(self, choices: Sequence[Mapping[str, Any]]):
        self._places: dict[str, dict[Any, int]] = {}
        for name in choices[0]:
            values = {v for each in choices if isinstance(v := each.get(name), int)}
            self._places[name] = {value: i for i, value in enumerate(sorted(values))}

    def near(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Is one value a step away or twice or half as much, or are two a step away, one up and one down?"""
        moved = 0
        steps: list[int] = []
        for name, places in self._places.items():
            a, b = one.get(name), other.get(name)
            if a == b:
                continue
            if not (isinstance(a, int) and isinstance(b, int)):
                return False
            moved += 1
            steps.append(1 if a == 2 * b else -1 if b == 2 * a else places[a] - places[b])
        return (
            moved in (1, 2) and all(abs(s) == 1 for s in steps) and (moved == 1 or not sum(steps))
        )


def next_batch(
    waiting: Sequence[Candidate], steps: Steps, best: Sequence[Candidate], size: int
) -> list[Candidate]:
    """Whom to try now: half of them neighbours of the `best`, those of the fastest first; none where nothing promises
    anything. `waiting`: the cheapest first, by their estimates; those that have none all promise."""
    found: list[Candidate] = []
    for fastest in best:
        near = [
            c for c in waiting if c not in found and steps.near(c.constexprs, fastest.constexprs)
        ]
        found += near[: size // 2 - len(found)]
    least = min((c.estimate for c in (*best, *waiting) if c.estimate is not None), default=0.0)
    others = (c for c in waiting if c not in found)
    found += [c for c in others if c.estimate is None or c.estimate <= PROMISING * least]
    return found[:size]


def _fastest(contest: Contest) -> str:
    best = min((contest.first, *contest.best(1)), key=lambda c: c.ratio)
    if not best.seconds:
        return ""
    return f"{text_of(best.constexprs)} {1e6 * best.median:.1f} us, {best.ratio:.3f} of the first"


def result(candidates: Sequence[Candidate], least: int = 2) -> Tuned | None:
    """What a search is remembered by; None where it measured fewer than `least`."""
    measured = [c for c in candidates if c.seconds]
    if len(measured) < least:
        return None
    best = measured[0]
    planned = next((c.median for c in measured if c.planned), None)
    times = [(c.constexprs, c.median) for c in measured]
    return Tuned(best.constexprs, best.median, planned, times)


def _moved(bound: BoundCall, there: Sequence[ArrayArg]) -> BoundCall:
    """The launch on arrays where kernels reach them."""
    places = iter(there)
    types = [next(places) if isinstance(t, ArrayArg) else t for t in bound.types]
    args = [t if isinstance(t, ArrayArg) else a for t, a in zip(types, bound.args, strict=True)]
    return BoundCall(args, types, bound.constexprs)


class _Trial:
    """Candidates that compile and give the first one's result."""

    def __init__(
        self,
        job: Job,
        target: Target,
        options: CompileOptions,
        there: Sequence[ArrayArg],
        kept: Callable[[Sequence[ArrayArg]], None],
        candidates: Sequence[Candidate],
    ):
        self.numbers = {id(candidate): i for i, candidate in enumerate(candidates)}
        # Made here: a driver may be asked for where an array is, which a forked child cannot do.
        self.bounds = [_moved(job.bound(candidate.constexprs), there) for candidate in candidates]
        self.compilers = Compilers(lambda i: self._compile(self.bounds[i]))
        self.job, self.target, self.there, self.kept = job, target, there, kept
        self.options = target.of_chosen(options)
        self.expected: list[np.ndarray[Any, Any]] | None = None
        self.refused: TilewrightError | None = None

    def seconds(self, candidate: Candidate, calls: int) -> float:
        """See `Target.seconds`."""
        assert candidate.run is not None
        return self.target.seconds(candidate.run, calls, self.there)

    def prepared(
        self,
        candidates: Sequence[Candidate],
        compiling: float,
        limit: float,
        told: Callable[[str], None],
    ) -> list[Candidate]:
        """Those that can be launched from here on; the others say why not. Some are not tried when the time is up.

        `compiling`, `limit`: when compilation ahead, and trying, have to end."""
        told("compiling")
        numbers = [self.numbers[id(candidate)] for candidate in candidates]
        self.compilers.do(numbers, compiling, lambda: told("compiling"))
        running: list[Candidate] = []
        for candidate in candidates:
            if self.expected is not None and time.perf_counter() > limit:
                break
            told("trying")
            try:
                candidate.run = self._tried(self.bounds[self.numbers[id(candidate)]])
            except TilewrightError as error:
                self.refused, candidate.out = error, error.message
                continue
            candidate.out = ""
            running.append(candidate)
        return running

    def _compile(self, bound: BoundCall) -> None:
        kernel = self.job.launcher.kernel_for(bound, self.options)
        if isinstance(kernel.executable, Foreseeing):
            kernel.executable.foresee(_grid(self.job, bound), bound.args)

    def _tried(self, bound: BoundCall) -> Callable[[], None]:
        """Raises what a launch raises, and where the result is another than the first's."""
        kernel = self.job.launcher.kernel_for(bound, self.options)
        run = _bound_run(self.job, kernel, bound)
        arrays = [(p, bound.types[p]) for p in sorted(kernel.stored)]
        written = [a for _, a in arrays if isinstance(a, ArrayArg)]
        self.kept(written)
        run()
        found = [self.target.fetched(a) for a in written]
        if self.expected is None:
            self.expected = found
        names = [self.job.launcher.binder.run_time_names[p] for p, _ in arrays]
        if (wrong := disagreement(names, found, self.expected)) is not None:
            raise LaunchError(wrong)
        return run


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
        if np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)):
            continue  # most are
        wider = np.float32 if a.dtype.itemsize < 4 else np.float64
        wide, other = a.astype(wider), b.astype(wider)
        if not np.array_equal(np.isnan(wide), np.isnan(other)):
            return f"{name} is written in another part than with the first"
        error = float(np.linalg.norm(np.nan_to_num(wide - other)))
        error /= max(float(np.linalg.norm(np.nan_to_num(other))), 1e-30)
        if not error < 1e-2:
            return f"{name} differs from the first's by {error:.1e}"
    return None


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
