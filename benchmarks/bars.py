"""The performance bars of the CPU target, measured here and now, beside what was asked.

    python -m benchmarks.bars [--rounds 15] [--threads 1 2] [--json bars.json] [--only gemm softmax]

Runs the suites of ``tilewright bench`` at the sizes of the bars and prints one line per bar: the
ratio or the time, the bar, and whether it is met. It never fails: a number is a number.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.bench import run_suite
from benchmarks.suites import Settings
from tilewright.tools.console import out
from tilewright.tools.measure import Row, environment


@dataclass(frozen=True)
class Bar:
    """What is asked of the cases of a suite. ``value`` reads the number off a row."""

    suite: str
    case: str
    """Start of the names of the cases that it concerns."""
    what: str
    bound: float
    at_least: bool
    value: Callable[[Row], float | None]

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def against(name: str) -> Callable[[Row], float | None]:
    """How many times as fast as the contender ``name``; None when it did not take part."""
    return lambda row: next((r.ratio for r in row.results if r.name == name), None)


def milliseconds(row: Row) -> float:
    return row.results[0].seconds * 1e3


def microseconds(row: Row) -> float:
    return row.results[0].seconds * 1e6


BARS = (
    Bar("gemm", "gemm", "times torch", 0.9, True, against("torch")),
    Bar("attention", "attention bf16", "times torch", 0.8, True, against("torch")),
    Bar("softmax", "softmax", "times torch", 0.95, True, against("torch")),
    Bar("softmax", "softmax", "times a copy", 0.9, True, against("copy")),
    Bar("rms_norm", "rms_norm", "times torch", 0.95, True, against("torch")),
    Bar("rms_norm", "rms_norm", "times a copy", 0.9, True, against("copy")),
    Bar("launch", "launch", "us", 20, False, microseconds),
    Bar("compile", "import tilewright", "ms", 500, False, milliseconds),
    Bar("compile", "first launch", "ms", 500, False, milliseconds),
    Bar("compile", "the same from the disk", "ms", 50, False, milliseconds),
)


def judged(rows: dict[str, Sequence[Row]]) -> Iterator[tuple[Bar, Row, float]]:
    """Every bar with every case that it concerns, and the number measured."""
    for bar in BARS:
        for row in rows.get(bar.suite, ()):
            value = bar.value(row) if row.case.name.startswith(bar.case) else None
            if value is not None:
                yield bar, row, value


def markdown(rows: dict[str, Sequence[Row]]) -> str:
    """The bars as a table of docs/performance.md."""
    lines = ["| case | threads | measured | bar | |", "|---|---|---|---|---|"]
    for bar, row, value in judged(rows):
        rates = ", ".join(f"{r.name} {r.rate:.4g}" for r in row.results)
        sign, verdict = (
            (">=" if bar.at_least else "<="),
            ("met" if bar.met(value) else "**not met**"),
        )
        lines.append(
            f"| {row.case.name} | {row.case.threads} | {value:.2f} {bar.what} "
            f"({rates} {row.case.unit}) | {sign} {bar.bound:g} | {verdict} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=sorted({bar.suite for bar in BARS}))
    parser.add_argument("--json")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs too")
    args = parser.parse_args()
    settings = Settings(threads=tuple(args.threads), rounds=args.rounds)
    about = environment()
    rows = {name: run_suite(name, settings) for name in args.only}
    out().print(f"{about['processor']}, load {about['load']:.1f}, {about['time']}")
    for bar, row, value in judged(rows):
        sign = ">=" if bar.at_least else "<="
        verdict = "met" if bar.met(value) else "NOT met"
        rates = ", ".join(f"{r.name} {r.rate:.4g}" for r in row.results)
        out().print(
            f"{row.case.name:42} {row.case.threads}T  {value:8.2f} {bar.what:12} "
            f"bar {sign} {bar.bound:<5g} {verdict:8} ({rates} {row.case.unit})"
        )
    if args.markdown:
        print(markdown(rows))
    if args.json:
        found = [row.as_json() for suite in rows.values() for row in suite]
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"environment": about, "rows": found}, file, indent=2)


if __name__ == "__main__":
    main()
