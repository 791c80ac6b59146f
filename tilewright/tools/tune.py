"""Search the constexprs of a kernel for the fastest, within a budget of seconds; explain the planner's choice;
measure the rates of this machine.

The planner's choices for what a kernel leaves open (`tw.auto`) are the candidates, or every combination of the values
given with --try. All that compile are measured in turn on random data, beside the planner's first choice; the slowest
are dropped from round to round, until the time is up. The grid is the one that covers the arrays, and outputs start as
NaN: a candidate that writes a part of them, or something else than the first, is left out. The best is kept on disk,
where launches of the kernel find it.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import knobs, records
from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.lang.annotations import auto
from tilewright.runtime.search import Candidate, bar, text_of
from tilewright.targets.base import TARGETS, CompileOptions, get_target, with_options
from tilewright.tools.compile import add_kernel_arguments
from tilewright.tools.console import err, out
from tilewright.tools.exits import DONE, UsageError
from tilewright.tools.launches import LaunchRequest, ask, grid_for, inputs_of, shortfall
from tilewright.tools.sources import (
    find_kernel,
    known_constexprs,
    parse_argument,
    parse_constexprs,
    parse_source,
    parse_value,
)

BUDGET = 10.0

EPILOG = """\
examples:
  tilewright tune examples/01_gemm.py:gemm --args 'f32[2048,2048]' 'f32[2048,2048]' \\
      'f32[2048,2048]' --try BM=128,256 BN=128,256 BK=32,64 --budget 20
  tilewright tune FILE.py:KERNEL --args ...            what it leaves open, as the planner would choose
  tilewright tune FILE.py:KERNEL --args ... --explain --roofline OUT.svg    the planner's choices; nothing is measured
  tilewright tune --calibrate                          the rates of this machine, for its planner
  tilewright tune --export tuned.tw                    all results as a file; --import takes it
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", help="FILE.py:KERNEL")
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
    parser.add_argument("--budget", type=float, metavar="S", help=f"seconds ({BUDGET:.0f})")
    parser.add_argument("--seed", type=int, help="of the random data")
    parser.add_argument(
        "--explain", action="store_true", help="print the planner's choices; measure nothing"
    )
    parser.add_argument(
        "--roofline", metavar="OUT.svg", help="draw the launch under the machine's roofline"
    )
    parser.add_argument(
        "--calibrate", action="store_true", help="measure the machine's rates, for the planner"
    )
    parser.add_argument("--export", metavar="OUT", help="write all that is kept to a file")
    parser.add_argument(
        "--import", metavar="FILE", dest="taken", help="import the records of a file"
    )


def execute(args: argparse.Namespace) -> int:
    if args.export is not None:
        out().print(f"{records.export(Path(args.export))} records are in {args.export}")
        return DONE
    if args.taken is not None:
        taken, left = records.load(Path(args.taken), machines())
        out().print(f"{taken} records of {args.taken} are kept, {left} are not")
        return DONE
    if args.calibrate:
        from tilewright.tools.calibrate import calibrate

        check_runs(with_options(CompileOptions(), {"target": args.target}))
        return calibrate(args.target, args.budget)
    if args.file is None:
        raise UsageError(
            "tune needs a kernel", hint="FILE.py:KERNEL, or --calibrate, --export, --import"
        )
    return tune(args)


def machines() -> set[str]:
    """What measures here is called so in records."""
    found: set[str] = set()
    for name in TARGETS:
        try:
            target = get_target(name)
            if target.missing() is None:
                found.add(target.identity(CompileOptions(target=name)))
        except TilewrightError:
            continue
    return found


def tune(args: argparse.Namespace) -> int:
    """Searches one kernel, or explains its planner's choice."""
    source = parse_source(args.file)
    if not source.is_python:
        raise UsageError("tune searches constexprs, which kernels of a Python file have")
    kernel = find_kernel(source).options(target=args.target)
    fixed = parse_constexprs(args.set, kernel)
    tries = parse_choices(args.tries)
    known_constexprs(tries, kernel)
    given = [parse_argument(text) for text in args.args]
    values = kernel.launcher.bind(tuple(given), {**fixed, **dict.fromkeys(tries, auto)})
    named = dict(zip((p.name for p in kernel.parameters), values, strict=True))
    searched = [name for name, value in named.items() if value is auto]
    if not searched:
        raise UsageError("--try names the constexprs to search: --try BM=64,128")
    if args.explain or args.roofline:
        from tilewright.tools.explain import explain

        return explain(kernel.variant_for(values), values, args.roofline)
    options = with_options(CompileOptions(), kernel.launcher.overrides)
    check_runs(options)
    if tries:
        combined = itertools.product(*tries.values())
        configs = [dict(zip(tries, each, strict=True)) for each in combined]
    else:
        configs = list(kernel.search.configs if kernel.search is not None else ())
    configs = [completed(kernel, values, config) for config in configs]
    left_open = {p.name for p in kernel.parameters if p.default is auto}
    chooser = kernel.variant_for(values).chooser
    candidates = chooser.candidates(values, configs, planned=left_open.issuperset(searched))
    seed = args.seed if args.seed is not None else secrets.randbelow(2**31)

    def asked(constexprs: Mapping[str, Any]) -> LaunchRequest:
        return ask(kernel, given, {**fixed, **{n: constexprs[n] for n in searched}}, options)

    first = first_of(asked, candidates)
    inputs = inputs_of(first, args.grid, seed)
    if args.grid is not None:
        check_grid(args.grid, asked, candidates, inputs.args)
    data = dict(zip(first.names, inputs.args, strict=True))

    def grid(**constexprs: Any) -> tuple[int, int, int]:
        return grid_for(asked(constexprs), args.grid, inputs.args)

    budget = args.budget
    if budget is None:
        budget = kernel.search.budget if kernel.search is not None else BUDGET
    filled = [data.get(name, value) for name, value in named.items()]
    with bar(f"tuning {kernel.name}") as progress:
        measured, kept = chooser.searched(filled, grid, candidates, budget, progress)
    show(measured)
    if len([c for c in measured if c.seconds]) > 1:
        if kept:
            out().print(f"kept in {knobs.current().cache_path}")
        else:
            err().print(
                "remark: not kept: the kernel's source has no fingerprint, or the cache is off"
            )
    elif len(measured) > 1:
        err().print(
            f"remark: not kept, because one candidate of {len(measured)} is no search: raise --budget"
        )
    return DONE


def check_runs(options: CompileOptions) -> None:
    """UnsupportedError where nothing can be measured here."""
    if (missing := get_target(options.target).missing()) is not None:
        raise UnsupportedError(
            f"target {options.target!r} cannot run here, so nothing of it can be measured: {missing}",
            hint="--explain prints the planner's choices without a device",
        )


def completed(kernel: Any, values: Sequence[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate with what it leaves open chosen by the planner."""
    parameters = kernel.parameters
    given = [config.get(p.name, v) for p, v in zip(parameters, values, strict=True)]
    _, full = kernel.resolve(given)
    triples = zip(parameters, values, full, strict=True)
    return {p.name: chosen for p, value, chosen in triples if value is auto}


def first_of(
    asked: Callable[[Mapping[str, Any]], LaunchRequest], candidates: Sequence[Candidate]
) -> LaunchRequest:
    """The first candidate that is legal; the last one's error where none is."""
    refused: TilewrightError | None = None
    for candidate in candidates:
        try:
            return asked(candidate.constexprs)
        except TilewrightError as error:
            refused = error
    raise refused or UsageError("there is nothing to try")


def check_grid(
    grid: str,
    asked: Callable[[Mapping[str, Any]], LaunchRequest],
    candidates: Sequence[Candidate],
    args: Sequence[Any],
) -> None:
    """UsageError where a grid that was given covers a part of the arrays only."""
    for candidate in candidates:
        try:
            here = asked(candidate.constexprs)
        except TilewrightError:
            continue
        if (part := shortfall(here, grid_for(here, grid, args), args)) is not None:
            raise UsageError(
                f"{text_of(candidate.constexprs)}: {part}",
                hint="leave --grid out, or write it with constexprs: 'cdiv(2048, BM), 4'",
            )


def parse_choices(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``BM=64,128 BN=32`` as lists of values."""
    choices: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not values:
            raise UsageError(f"--try {text!r} is not of the form NAME=VALUE,VALUE")
        choices[name] = [parse_value(value) for value in values.split(",")]
    return choices


def show(candidates: Sequence[Candidate]) -> None:
    """The candidates, best first; then those without a time, and why they have none."""
    from rich.box import SIMPLE
    from rich.table import Table

    timed = [c for c in candidates if c.seconds]
    table = Table("constexprs", "median", "rounds", "of best", "", box=SIMPLE)
    for candidate in timed:
        table.add_row(
            text_of(candidate.constexprs), f"{candidate.median * 1e3:.3f} ms",
            str(len(candidate.seconds)), f"{candidate.median / timed[0].median:.2f} x",
            "the planner's choice" if candidate.planned else "",
        )  # fmt: skip
    if timed:
        out().print(table)
    for candidate in candidates:
        if candidate.out:
            out().print(f"{text_of(candidate.constexprs)} {candidate.out}")
