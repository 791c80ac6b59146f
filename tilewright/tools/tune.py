"""Search the constexprs of a kernel for the fastest, within a budget of seconds.

Every combination of the values given with --try is a candidate. All that compile are measured in
turn on random data; after every round the slowest are dropped, until the time is up or one is left.
The grid is the one that covers the arrays, and outputs start as NaN: a candidate that writes a part of
them, or something else than the first, is left out. The best is kept on disk, where constexprs that a
kernel leaves to `tw.auto` find it.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tilewright.diagnostics import TilewrightError
from tilewright.runtime import tuning
from tilewright.targets.base import CompileOptions, with_options
from tilewright.tools.compile import add_kernel_arguments
from tilewright.tools.console import err, out
from tilewright.tools.exits import DONE, UsageError
from tilewright.tools.launches import ask, inputs_of, shortfall
from tilewright.tools.sources import (
    find_kernel,
    known_constexprs,
    parse_argument,
    parse_constexprs,
    parse_source,
    parse_value,
)

EPILOG = """\
examples:
  tilewright tune examples/01_gemm.py:gemm --args 'f32[2048,2048]' 'f32[2048,2048]' \\
      'f32[2048,2048]' --try BM=128,256 BN=128,256 BK=32,64 --budget 20
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
        metavar="TEXT",
        help="of integers and constexprs: 'cdiv(2048, BM), 4'; default: what covers the arrays",
    )
    parser.add_argument(
        "--target", default="cpu", help="what to compile for: cpu (default), cuda, ..."
    )
    parser.add_argument("--budget", type=float, default=10.0, metavar="S", help="seconds (10)")
    parser.add_argument("--seed", type=int, help="of the random data")


@dataclass
class Candidate:
    """One choice of constexprs, and its measured times or why it has none."""

    constexprs: dict[str, Any]
    launch: Callable[[], None] | None = None
    out: str = "not tried: the time was up (--budget)"
    """Why it was left out; empty for one that runs."""
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
    given = [parse_argument(text) for text in args.args]
    seed = args.seed if args.seed is not None else secrets.randbelow(2**31)
    candidates = [
        Candidate({**fixed, **dict(zip(choices, values, strict=True))})
        for values in itertools.product(*choices.values())
    ]
    budget = time.perf_counter() + args.budget
    with err().status("compiling ...") as status:
        compile_all(kernel, given, candidates, args.grid, seed, budget, status.update)
        running = [c for c in candidates if c.launch is not None]
        measure_all(running, budget, status.update)
    best = min(running, key=lambda c: c.median)
    show(candidates, best)
    if len(running) == 1 < len(candidates):
        err().print(
            f"remark: not kept, because one candidate of {len(candidates)} is no search: --budget"
            " gives it more seconds"
        )
        return DONE
    types, _, options = kernel.launcher.describe(kernel.launcher.bind(given, best.constexprs))
    fingerprint = kernel.fingerprint()
    if fingerprint is None:
        err().print("remark: the kernel's source has no fingerprint, so the result is not kept")
        return DONE
    key = tuning.tuning_key(fingerprint, types, options)
    chosen = {name: best.constexprs[name] for name in choices}
    path = tuning.save(key, tuning.Tuned(chosen, best.median, len(running)))
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
    given: Sequence[Any],
    candidates: Sequence[Candidate],
    grid: str | None,
    seed: int,
    budget: float,
    say: Callable[[str], None],
) -> None:
    """Runs every candidate once: those that give the whole result of the first can be launched afterwards."""
    options = with_options(CompileOptions(), kernel.launcher.overrides)
    expected: Sequence[Any] | None = None
    refused: TilewrightError | None = None
    for i, candidate in enumerate(candidates):
        if expected is not None and time.perf_counter() > budget:
            break
        say(f"compiling {i + 1} of {len(candidates)}: {text_of(candidate.constexprs)}")
        try:
            asked = ask(kernel, given, candidate.constexprs, options)
            inputs = inputs_of(asked, grid, seed)
            if (part := shortfall(asked, inputs)) is not None:
                raise UsageError(
                    f"{text_of(candidate.constexprs)}: {part}",
                    hint="leave --grid out, or write it with constexprs: 'cdiv(2048, BM), 4'",
                )
            asked.launch(inputs.grid, inputs.args)
        except UsageError:
            raise
        except TilewrightError as error:
            refused, candidate.out = error, error.message
            continue
        if expected is None:
            expected = inputs.args
        elif (wrong := disagreement(inputs.args, expected)) is not None:
            candidate.out = wrong
            continue
        candidate.out = ""
        candidate.launch = partial(asked.launch, inputs.grid, inputs.args)
    if expected is None:
        raise refused or UsageError("there is nothing to try")


def disagreement(given: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """How two results of the same inputs differ by more than rounding."""
    for i, (a, b) in enumerate(zip(given, expected, strict=True)):
        if not isinstance(a, np.ndarray):
            continue
        wide, other = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isnan(wide), np.isnan(other)):
            return f"argument {i} is written in another part than with the first"
        error = float(np.linalg.norm(np.nan_to_num(wide - other)))
        error /= max(float(np.linalg.norm(np.nan_to_num(other))), 1e-30)
        if not error < 1e-2:
            return f"argument {i} differs from the first's by {error:.1e}"
    return None


def measure_all(candidates: list[Candidate], budget: float, say: Callable[[str], None]) -> None:
    """Rounds in turn; after each the slower half goes, but the best four stay to the end."""
    running = list(candidates)
    rounds = 0
    while rounds < 3 or (time.perf_counter() < budget and rounds < 50):
        rounds += 1
        for candidate in running:
            assert candidate.launch is not None
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
    """The candidates, best first; then those without a time, and why they have none."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table("constexprs", "median", "rounds", "of best", box=SIMPLE)
    for candidate in sorted((c for c in candidates if c.seconds), key=lambda c: c.median):
        table.add_row(
            text_of(candidate.constexprs), f"{candidate.median * 1e3:.3f} ms",
            str(len(candidate.seconds)), f"{candidate.median / best.median:.2f} x",
        )  # fmt: skip
    out().print(table)
    for candidate in candidates:
        if candidate.out:
            out().print(f"{text_of(candidate.constexprs)} {candidate.out}")


def text_of(constexprs: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in constexprs.items())
