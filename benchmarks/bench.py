"""Measure Tilewright in turn with its peers: one process, random data, medians, same threads.

Every suite prints a table: the rate or time of each contender, the quartiles of the rounds, and
how many times as fast Tilewright is as the other (the median over the rounds of the ratio).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from benchmarks.suites import SUITES, Settings, suite
from tilewright.tools.console import err, out
from tilewright.tools.exits import DONE, UsageError
from tilewright.tools.measure import MeasuredRow, environment

EPILOG = """\
suites:
{suites}
  all               every one but the GPU's
  gpu               the GPU's

examples:
  tilewright bench gemm                                       2048^3, bf16 and f32, beside torch
  tilewright bench gemm --sizes 1024 4096 --dtype bf16 --threads 1 2
  tilewright bench softmax --against numpy --json softmax.json
""".format(suites="\n".join(f"  {name:17} {about}" for name, (_, about) in SUITES.items()))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", choices=[*SUITES, "all", "gpu"], metavar="SUITE", help="see below")
    parser.add_argument("--target", default="cpu", help="cpu (default) or reference")
    parser.add_argument("--against", default="torch", help="the peer: torch (default) or numpy")
    parser.add_argument(
        "--sizes", nargs="+", type=positive, default=[], metavar="N", help="extents; see the suite"
    )
    parser.add_argument("--dtype", nargs="+", default=[], metavar="T", help="bf16 f32 f16 ...")
    parser.add_argument(
        "--threads",
        nargs="+",
        type=positive,
        default=[1],
        metavar="N",
        help="of every contender (1)",
    )
    parser.add_argument("--rounds", type=positive, default=15, help="samples of each (15)")
    parser.add_argument(
        "--proofs", metavar="DIR", help="gpu: the project's hand-scheduled kernels run beside"
    )
    parser.add_argument("--json", metavar="OUT", help="write the results there too; - prints them")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def execute(args: argparse.Namespace) -> int:
    settings = Settings(
        tuple(args.sizes), tuple(args.dtype), tuple(args.threads), args.target, args.against,
        args.rounds,
    )  # fmt: skip
    names = (
        [name for name in SUITES if name.startswith("gpu-") == (args.suite == "gpu")]
        if args.suite in ("all", "gpu")
        else [args.suite]
    )
    if len(names) > 1 and args.sizes:
        raise UsageError("--sizes means something else in every suite: name one")
    if args.proofs:
        from pathlib import Path

        from benchmarks.suites import gpu

        gpu.PROOFS = Path(args.proofs)
    about = environment()
    to_stdout = args.json == "-"
    if not to_stdout:
        out().print(
            f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f}, clock "
            f"{about['clock']}\nTilewright {about['tilewright']}, torch "
            f"{about['libraries']['torch']}, numpy {about['libraries']['numpy']}; {about['data']}"
        )
    rows: list[MeasuredRow] = []
    for name in names:
        measured = run_suite(name, settings)
        rows += measured
        if not to_stdout:
            out().print(table(name, measured))
    if args.json:
        content = json.dumps({"environment": about, "rows": [r.as_json() for r in rows]}, indent=2)
        if to_stdout:
            print(content)
        else:
            with open(args.json, "w", encoding="utf-8") as file:
                file.write(content + "\n")
    return DONE


def run_suite(name: str, settings: Settings) -> list[MeasuredRow]:
    """All rows of a suite, with a line on a terminal that says which one is at work."""
    rows: list[MeasuredRow] = []
    with err().status(f"{name} ...") as status:
        for row in suite(name)(settings):
            rows.append(row)
            status.update(f"{name}: {row.case.name} done")
    return rows


def table(name: str, rows: Sequence[MeasuredRow]) -> Any:
    """The rows as a table."""
    from rich.box import SIMPLE
    from rich.table import Table

    shown = Table(box=SIMPLE, title=f"\n{name}: {SUITES[name][1]}", title_justify="left")
    for column in ("case", "threads", "contender", "median", "quartiles", "speedup"):
        shown.add_column(
            column,
            justify="left" if column in ("case", "contender") else "right",
            no_wrap=True,
        )
    for row in rows:
        for i, result in enumerate(row.results):
            quartiles = sorted(_in_unit(row, s) for s in (result.low, result.high))
            shown.add_row(
                row.case.name if i == 0 else "",
                str(row.case.threads) if i == 0 else "",
                result.name,
                f"{result.rate:.4g} {row.case.unit}",
                " .. ".join(f"{q:.4g}" for q in quartiles),
                f"{result.ratio:.2f} x" if i else "",
            )
    return shown


def _in_unit(row: MeasuredRow, seconds: float) -> float:
    from tilewright.tools.measure import rate

    return rate(row.case, seconds)
