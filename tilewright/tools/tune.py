"""Search the constexprs of a kernel for the fastest, within a budget of seconds.

Every combination of the values given with --try is a candidate. All that compile are measured in
turn on random data; after every round the slowest are dropped, until the time is up or one is left.
Results must agree with those of the first candidate. The best is kept on disk, where constexprs that
a kernel leaves to `tw.auto` find it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.diagnostics import TilewrightError
from tilewright.runtime import tuning
from tilewright.runtime.arrays import ArraySpec
from tilewright.tools.compile import add_kernel_arguments
from tilewright.tools.console import err, out
from tilewright.tools.exits import DONE, UsageError
from tilewright.tools.sources import (
    find_kernel,
    known_constexprs,
    parse_argument,
    parse_constexprs,
    parse_grid,
    parse_source,
    parse_value,
    random_array,
)

EPILOG = """\
examples:
  tilewright tune examples/01_gemm.py:gemm --args 'f32[2048,2048]' 'f32[2048,2048]' \\
      'f32[2048,2048]' --try BM=128,256 BN=128,256 BK=32,64 \\
      --grid 'cdiv(2048, BM), cdiv(2048, BN)' --budget 20
  tilewright tune FILE.py:KERNEL ... --set T=bf16 --try BM=32,64      T fixed, BM searched
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="FILE.py:KERNEL")
    add_kernel_arguments(parser)
    parser.add_argument(
        "--try", nargs="+", default=[], dest="tries", metavar="NAME=V,V", help="values to search"
    )
    parser.add_argument(
        "--grid",
        default="1",
        metavar="TEXT",
        help="of integers and constexprs: 'cdiv(2048, BM), 4'",
    )
    parser.add_argument(
        "--target", default="cpu", help="what to compile for: cpu (default), cuda, ..."
    )
    parser.add_argument("--budget", type=float, default=10.0, metavar="S", help="seconds (10)")
    parser.add_argument("--seed", type=int, help="of the random data")


@dataclass
class Candidate:
    """One choice of constexprs and its measured times."""

    constexprs: dict[str, Any]
    launch: Callable[[], None]
    seconds: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def execute(args: argparse.Namespace) -> int:
    source = parse_source(args.file)
    if not source.is_python:
        raise UsageError("tune searches constexprs, which kernels of a Python file have")
    kernel = find_kernel(source).options(target=args.target)
    fixed = parse_constexprs(args.set, kernel)
    choices = parse_choices(args.tries)
    known_constexprs(choices, kernel)
    rng = np.random.default_rng(args.seed)
    given = [parse_argument(text) for text in args.args]
    values = [random_array(v, rng) if isinstance(v, ArraySpec) else v for v in given]
    budget = time.perf_counter() + args.budget
    with err().status("compiling ...") as status:
        candidates = compile_all(kernel, values, fixed, choices, args.grid, budget, status.update)
        measure_all(candidates, budget, status.update)
    best = min(candidates, key=lambda c: c.median)
    show(candidates, best)
    types, _, options = kernel.launcher.describe(kernel.launcher.bind(values, best.constexprs))
    fingerprint = kernel.fingerprint()
    if fingerprint is None:
        err().print("remark: the kernel's source has no fingerprint, so the result is not kept")
        return DONE
    key = tuning.tuning_key(fingerprint, types, options)
    chosen = {name: best.constexprs[name] for name in choices}
    path = tuning.save(key, tuning.Tuned(chosen, best.median, len(candidates)))
    out().print(f"kept in {path}")
    return DONE


def parse_choices(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``BM=64,128 BN=32`` as lists of values."""
    choices: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not values:
            raise UsageError(f"--try {text!r} is not of the form NAME=VALUE,VALUE")
        choices[name] = [parse_value(value) for value in values.split(",")]
    if not choices:
        raise UsageError("--try names the constexprs to search: --try BM=64,128")
    return choices


def compile_all(
    kernel: Any,
    values: Sequence[Any],
    fixed: Mapping[str, Any],
    choices: Mapping[str, Sequence[Any]],
    grid: str,
    budget: float,
    say: Callable[[str], None],
) -> list[Candidate]:
    """Every candidate that compiles and gives the result of the first, run once."""
    candidates: list[Candidate] = []
    refused: list[TilewrightError] = []
    expected: list[Any] | None = None
    combinations = list(itertools.product(*choices.values()))
    for i, combination in enumerate(combinations):
        if candidates and time.perf_counter() > budget:
            break
        constexprs = {**fixed, **dict(zip(choices, combination, strict=True))}
        say(f"compiling {i + 1} of {len(combinations)}: {text_of(constexprs)}")
        fresh = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
        try:
            run = kernel[parse_grid(grid, constexprs)]
            run(*fresh, **constexprs)
        except TilewrightError as error:
            refused.append(error)
            continue
        if expected is None:
            expected = fresh
        elif (wrong := disagreement(fresh, expected)) is not None:
            err().print(f"warning: {text_of(constexprs)} is left out: {wrong}")
            continue
        candidates.append(Candidate(constexprs, lambda run=run, c=constexprs: run(*values, **c)))
    if not candidates:
        raise refused[0] if refused else UsageError("there is nothing to try")
    for error in refused:
        err().print(f"remark: left out: {error.message}")
    return candidates


def disagreement(given: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """How two results of the same inputs differ by more than rounding."""
    for i, (a, b) in enumerate(zip(given, expected, strict=True)):
        if isinstance(a, np.ndarray):
            wide, other = a.astype(np.float64), b.astype(np.float64)
            error = float(np.linalg.norm(wide - other)) / max(float(np.linalg.norm(other)), 1e-30)
            if not error < 1e-2 and not np.array_equal(wide, other, equal_nan=True):
                return f"argument {i} differs by {error:.1e}"
    return None


def measure_all(candidates: list[Candidate], budget: float, say: Callable[[str], None]) -> None:
    """Rounds in turn; after each the slower half goes, but the best four stay to the end."""
    running = list(candidates)
    rounds = 0
    while rounds < 3 or (time.perf_counter() < budget and rounds < 50):
        rounds += 1
        for candidate in running:
            start = time.perf_counter()
            candidate.launch()
            candidate.seconds.append(time.perf_counter() - start)
            if rounds > 1 and time.perf_counter() > budget + 5:
                return
        running.sort(key=lambda c: c.median)
        running = running[: max(4, len(running) // 2)]
        say(
            f"round {rounds}: best {text_of(running[0].constexprs)} {running[0].median * 1e3:.3f} ms"
        )


def show(candidates: Sequence[Candidate], best: Candidate) -> None:
    """The candidates, best first."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table("constexprs", "median", "rounds", "of best", box=SIMPLE)
    for candidate in sorted(candidates, key=lambda c: c.median):
        table.add_row(
            text_of(candidate.constexprs), f"{candidate.median * 1e3:.3f} ms",
            str(len(candidate.seconds)), f"{candidate.median / best.median:.2f} x",
        )  # fmt: skip
    out().print(table)


def text_of(constexprs: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in constexprs.items())
