"""Problems drawn afresh on a GPU, each in turn with its peers: what `benchmarks.shapes` and `benchmarks.attention` do.

Kernels are compiled by many processes first; every launch is a CUDA graph's. Nothing here fails: a number is a number.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Protocol

from benchmarks.suites.gpu_timing import captured, gpu_torch, measure_gpu
from benchmarks.suites.heats import FINAL, fastest
from tilewright.diagnostics import TilewrightError
from tilewright.lang.choosing import Explanation
from tilewright.runtime.search import text_of
from tilewright.tools.measure import Case, Contender, MeasuredRow, environment

Run = Callable[[], Any]


@dataclass
class Prepared:
    """A problem with its arrays on the GPU."""

    ours: Mapping[str, tuple[Run, Callable[[], float]]]
    """By name, what runs and how far its result is off (relative Frobenius norm)."""
    peers: Mapping[str, Run]
    """The fastest of them counts."""
    tilings: Mapping[str, Run] = field(default_factory=dict[str, Run])
    """The last of `ours` with tile sizes that a person would try."""
    searched: Callable[[float], tuple[Run, Callable[[], Explanation]]] | None = None
    """The last of `ours` with what a search of so many seconds finds, which its first launch begins with, and what
    there is to say of that afterwards."""


class Problem(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def flops(self) -> float: ...

    @property
    def limit(self) -> float: ...

    def prepared(self, tiled: bool) -> Prepared: ...


def warm(problem: Problem, tiled: bool) -> None:
    """Compiles what a problem needs into the cache on disk."""
    prepared = problem.prepared(tiled)
    for run in (*(run for run, _ in prepared.ours.values()), *prepared.tilings.values()):
        try:
            run()
            gpu_torch().cuda.synchronize()
        except TilewrightError:
            pass  # told where it is measured


def measured(problem: Problem, rounds: int, tiled: bool, tuning: float) -> dict[str, Any]:
    """Ratios to the fastest peer of each of ours, and as "planner" of the last of ours to its best tiling, as "tuned"
    of what a search of `tuning` seconds finds to that tiling, all three in turn; or what went wrong."""
    torch = gpu_torch()
    prepared = problem.prepared(tiled)
    for name, (run, error) in prepared.ours.items():
        run()
        if not (off := error()) <= problem.limit:
            return {"name": problem.name, "wrong": f"{name} by {off:.2e}"}
    peers: dict[str, Run] = {}
    for name, run in prepared.peers.items():
        try:
            peers[name] = captured(torch, run)
        except RuntimeError:
            continue  # not every library takes every shape
    graphs = {name: captured(torch, run) for name, (run, _) in prepared.ours.items()}
    contenders = [Contender(name, run) for name, run in (graphs | peers).items()]
    row = measure_gpu(Case(problem.name, contenders, problem.flops, "TFLOP/s"), rounds=rounds)
    seconds = {r.name: r.seconds for r in row.results}
    best = min(seconds[name] for name in peers)
    ratios = {name: best / seconds[name] for name in prepared.ours}
    found: dict[str, Any] = {"name": problem.name, "us": {n: s * 1e6 for n, s in seconds.items()}}
    if prepared.tilings:
        last = list(prepared.ours)[-1]
        graphs = {last: graphs[last]}
        for name, run in prepared.tilings.items():
            try:
                graphs[name] = captured(torch, run)
            except TilewrightError:
                continue  # a tiling that does not fit the machine
        case = Case(problem.name, [Contender(*each) for each in graphs.items()], problem.flops, "")
        best_tiling, times = fastest(case, _rounds, rounds)
        final = {"planner": graphs[last]}
        if tuning and prepared.searched is not None:
            start = time.perf_counter()
            tuned, explained = prepared.searched(tuning)
            tuned()
            took = time.perf_counter() - start
            final["tuned"] = captured(torch, tuned)
            found["search"] = _told(explained(), took)
        case = replace(
            case, contenders=[best_tiling, *(Contender(*each) for each in final.items())]
        )
        row = _rounds(case, FINAL * rounds)
        ratios |= {r.name: 1 / r.ratio for r in row.results[1:]}
        last_us = {r.name: r.seconds * 1e6 for r in row.results}
        found |= {"best": best_tiling.name, "final": last_us, "tilings": times}
    return found | {"ratios": ratios}


def _rounds(case: Case, rounds: int) -> MeasuredRow:
    return measure_gpu(case, rounds=rounds)


def _told(explained: Explanation, seconds: float) -> str:
    first = text_of(explained.choices[0].values)
    if explained.tuned is None:
        return f"nothing found in {seconds:.1f} s beside {first}"
    count, found = len(explained.tuned.measured), text_of(explained.tuned.constexprs)
    return f"{count} candidates in {seconds:.1f} s: {found}; first choice {first}"


def summary(ratios: Sequence[float]) -> str:
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    under = ", ".join(f"{sum(r < bound for r in ratios)} under {bound}" for bound in (0.95, 0.88))
    return f"geometric mean {mean:.3f}, worst {min(ratios):.3f}, of {len(ratios)}: {under}"


def parser(doc: str | None, count: int) -> argparse.ArgumentParser:
    """The options that every such benchmark has."""
    found = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    found.add_argument("--count", type=int, default=count)
    found.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    found.add_argument("--rounds", type=int, default=5)
    found.add_argument("--workers", type=int, default=12)
    found.add_argument("--json")
    found.add_argument("--tilings", action="store_true", help="beside fixed tilings")
    found.add_argument(
        "--tuning", type=float, default=0, help="seconds of a search, beside the best of these"
    )
    return found


def sample(problems: Sequence[Problem], args: argparse.Namespace) -> None:
    """Compiles, measures and prints the problems, one line each, and a summary of each ratio."""
    print(f"seed {args.seed}; {environment()}", flush=True)
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        chunk = max(1, len(problems) // args.workers // 2)
        list(pool.map(partial(warm, tiled=args.tilings), problems, chunksize=chunk))
    found: list[dict[str, Any]] = []
    for problem in problems:
        row = measured(problem, args.rounds, args.tilings, args.tuning)
        found.append(row)
        if "us" in row:
            times = ", ".join(f"{name} {t:.1f}" for name, t in row["us"].items())
            ratios = "  ".join(f"{name} {ratio:.3f}" for name, ratio in row["ratios"].items())
            best = f"  best {row['best']}" if "best" in row else ""
            print(f"{row['name']:32} {ratios}  ({times} us){best}", flush=True)
            if "search" in row:
                final = ", ".join(f"{name} {t:.2f}" for name, t in row["final"].items())
                print(f"    {row['search']}; in turn: {final} us", flush=True)
        else:
            print(row, flush=True)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(found, file, indent=1)
    good = [row["ratios"] for row in found if "us" in row]
    for name in dict.fromkeys(name for ratios in good for name in ratios):
        print(f"{name}: {summary([ratios[name] for ratios in good if name in ratios])}")
