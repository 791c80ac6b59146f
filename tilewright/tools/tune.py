"""Search the constexprs of a kernel for the fastest, within a budget of seconds; explain the planner's choice;
measure the rates of this machine.

The planner's choices for what a kernel leaves open (`tw.auto`) are the candidates, or every combination of the values
given with --try. They are tried in batches until the time is up: neighbours of the fastest so far, and what the planner
costs least; measured in turn on random data, beside the planner's first choice, the slowest are dropped. The grid is
the one that covers the arrays, and outputs start as NaN: a candidate that writes a part of them, or something else than
the first, is left out. The best is kept on disk, where launches of the kernel find it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tilewright import knobs, records
from tilewright.diagnostics import TilewrightError
from tilewright.runtime.contest import Candidate
from tilewright.runtime.search import bar, text_of
from tilewright.targets.base import TARGETS, CompileOptions, get_target, with_options
from tilewright.tools.compile import add_kernel_arguments
from tilewright.tools.console import err, out
from tilewright.tools.exits import DONE, UsageError, add_options, count, seconds
from tilewright.tools.searches import BUDGET, SearchRequest, check_runs
from tilewright.tools.sources import parse_source

EPILOG = """\
examples:
  tilewright tune examples/01_gemm.py:gemm --args 'f32[2048,2048]' 'f32[2048,2048]' \\
      'f32[2048,2048]' --try BM=128,256 BN=128,256 BK=32,64 --budget 20
  tilewright tune FILE.py:KERNEL --args ...            what it leaves open, as the planner would choose
  tilewright tune FILE.py:KERNEL --args ... --explain --roofline OUT.svg    the planner's choices; nothing is measured
  tilewright tune FILE.py:KERNEL --args ... --scheduler tcp://HOST:8786    shared by the workers of a dask cluster
  tilewright tune --calibrate                          the rates of this machine, for its planner
  tilewright tune --export tuned.tw                    all results as a file; --import takes it
"""


LISTED = 20
"""Candidates that are shown."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", help="FILE.py:KERNEL")
    add_kernel_arguments(parser)
    parser.add_argument(
        "--try", nargs="+", default=[], dest="tries", metavar="NAME=V,V", help="values to search"
    )
    parser.add_argument(
        "--target", default="cpu", help="what to compile for: cpu (default), cuda, ..."
    )
    parser.add_argument("--budget", type=seconds, metavar="S", help=f"seconds ({BUDGET:.0f})")
    parser.add_argument("--seed", type=count, help="of the random data")
    rows = {
        "--grid TEXT": "of integers and constexprs: 'cdiv(2048, BM), 4'; default: what covers the arrays",
        "--scheduler ADDRESS": "measure on the workers of this dask scheduler",
        "--explain": "print the planner's choices; measure nothing",
        "--roofline OUT.svg": "draw the launch under the machine's roofline",
        "--calibrate": "measure the machine's rates, for the planner",
        "--export OUT": "write all that is kept to a file",
    }
    add_options(parser, rows)
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
    request = SearchRequest.of(source, args)
    if args.explain or args.roofline:
        from tilewright.tools.explain import explain

        values = request.values
        return explain(request.kernel.variant_for(values), values, args.roofline)
    candidates, budget = request.candidates(), request.budget(args.budget)
    with bar(f"tuning {request.kernel.name}") as progress:
        if args.scheduler is not None:
            from tilewright.tools.shared_search import search

            measured, kept = search(args, source, candidates, budget, progress)
        else:
            measured, kept = request.search(candidates, budget, args.seed, progress)
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


def show(candidates: Sequence[Candidate]) -> None:
    """The candidates, best first; then those without a time, and why they have none: of each at most `LISTED`."""
    from rich.box import SIMPLE
    from rich.table import Table

    timed = [c for c in candidates if c.seconds]
    table = Table("constexprs", "median", "rounds", "of best", "", box=SIMPLE)
    for candidate in timed[:LISTED]:
        table.add_row(
            text_of(candidate.constexprs), f"{candidate.median * 1e3:.3f} ms",
            str(len(candidate.seconds)), f"{candidate.median / timed[0].median:.2f} x",
            "the planner's choice" if candidate.planned else "",
        )  # fmt: skip
    if timed:
        out().print(table)
    if timed[LISTED:]:
        out().print(f"{len(timed) - LISTED} more were measured")
    for reason, same in groupby(sorted((c for c in candidates if c.out), key=_reason), _reason):
        names = [text_of(candidate.constexprs) for candidate in same]
        more = f", {len(names) - LISTED} more" if names[LISTED:] else ""
        out().print(f"{', '.join(names[:LISTED])}{more}: {reason}")


def _reason(candidate: Candidate) -> str:
    return candidate.out
