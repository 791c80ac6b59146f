"""`tilewright tune --scheduler`: a search shared by the workers of a dask cluster, each a machine or a GPU of its own.

Each worker measures a part of the candidates beside the first, which all have; then every worker measures the fastest
of all parts, and keeps what it found for its own machine. Times of different workers are compared as multiples of the
first candidate's there. A worker gets the text of the kernel's file, and needs the same version of Tilewright.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright import __version__
from tilewright.diagnostics import LaunchError, TilewrightError
from tilewright.frozen import frozen
from tilewright.runtime.contest import KEPT, Candidate
from tilewright.runtime.search import Progress
from tilewright.tools.console import err
from tilewright.tools.exits import UsageError
from tilewright.tools.searches import SearchRequest
from tilewright.tools.sources import CommandSource, parse_source

PARTS = 0.6
"""What part of the budget the workers spend on their own candidates, before the fastest of all."""
ANSWER_SECONDS = 10
"""In which a scheduler has to answer."""
POLL_SECONDS = 0.2


@frozen
class Task:
    """What a worker is sent: the command line, with the file that it names."""

    file: str
    text: str
    kernel: str | None
    arguments: Mapping[str, Any]
    version: str = __version__

    def measured(
        self, candidates: Sequence[Candidate], budget: float
    ) -> tuple[list[Candidate], bool] | str:
        """`SearchRequest.search`, where this runs; why not, in words."""
        if self.version != __version__:
            return f"has Tilewright {__version__}, not {self.version}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, self.file)
            path.write_text(self.text, encoding="utf-8")
            name = str(path) if self.kernel is None else f"{path}:{self.kernel}"
            args = argparse.Namespace(**self.arguments)
            try:
                request = SearchRequest.of(parse_source(name), args)
                return request.search(candidates, budget, args.seed, lambda _text, _done: None)
            except TilewrightError as error:
                return error.message


def search(
    args: argparse.Namespace,
    source: CommandSource,
    candidates: Sequence[Candidate],
    budget: float,
    progress: Progress,
) -> tuple[list[Candidate], bool]:
    """The candidates with the times that workers measured, the best first, and whether a worker keeps the result.

    Raises UsageError where there is no scheduler, LaunchError where no worker measures anything.
    """
    path = Path(source.path)
    task = Task(path.name, source.read(), source.kernel, dict(vars(args)))
    with _client(args.scheduler) as client:
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        if not workers:
            raise LaunchError(f"the scheduler at {args.scheduler} has no workers")

        def ask(
            what: str, parts: Sequence[Sequence[Candidate]], seconds: float, done: float
        ) -> list[tuple[list[Candidate], bool]]:
            asked = [
                client.submit(task.measured, part, seconds, workers=[worker], pure=False)
                for worker, part in zip(workers, parts, strict=False)
            ]
            answers = _answers(asked, lambda: progress(what, done))
            for worker, answer in zip(workers, answers, strict=False):
                if isinstance(answer, str):
                    err().print(f"remark: the worker at {worker} measured nothing: {answer}")
            found = [answer for answer in answers if not isinstance(answer, str)]
            if not found:
                raise LaunchError(f"no worker measured anything: {answers[0]}")
            return found

        first, others = candidates[0], candidates[1:]
        parts = [[first, *others[i :: len(workers)]] for i in range(len(workers))]
        measured = ask(f"{len(workers)} workers", parts, PARTS * budget, 0.0)
        merged = _merged(first, [found for found, _ in measured])
        best = [replace(c, seconds=[]) for c in merged if c.seconds and not _is(c, first)][:KEPT]
        final = [replace(first, seconds=[]), *best]
        ends = ask("the fastest of all", [final] * len(workers), (1 - PARTS) * budget, PARTS)
    decided = _merged(first, [found for found, _ in ends])
    left = [c for c in merged if not any(_is(c, d) for d in decided)]
    return [*decided, *left], any(kept for _, kept in ends)


def _client(address: str) -> Any:
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "--scheduler needs dask.distributed", hint="pip install 'tilewright[cluster]'"
        ) from error
    try:
        return distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no dask scheduler answers at {address}",
            hint="`dask scheduler` prints its address, and `dask worker ADDRESS` starts a worker",
        ) from error


def _answers(asked: Sequence[Future[Any]], waiting: Callable[[], None]) -> list[Any]:
    """What workers say, or what went wrong with one of them."""
    while any(not future.done() for future in asked):
        waiting()
        time.sleep(POLL_SECONDS)
    errors = [future.exception() for future in asked]
    return [
        future.result() if error is None else f"{type(error).__name__}: {error}"
        for future, error in zip(asked, errors, strict=True)
    ]


def _is(one: Candidate, other: Candidate) -> bool:
    return one.constexprs == other.constexprs


def _merged(first: Candidate, parts: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """One candidate for all of the same constexprs, the best first: times as if on a worker of the middle speed."""
    base = [c.median for part in parts for c in part if _is(c, first) and c.seconds]
    middle = statistics.median(base) if base else 1.0
    merged: list[Candidate] = []
    for part in parts:
        own = next((c.median for c in part if _is(c, first) and c.seconds), middle)
        for candidate in part:
            seconds = [middle * each / own for each in candidate.seconds]
            known = next((c for c in merged if _is(c, candidate)), None)
            if known is None:
                merged.append(replace(candidate, seconds=seconds))
            else:
                known.seconds += seconds
                known.out = known.out and candidate.out
    return sorted(merged, key=lambda c: c.median if c.seconds else float("inf"))
