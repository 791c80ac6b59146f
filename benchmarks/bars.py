"""The performance bars of the CPU target, measured here and now, beside what was asked.

    python -m benchmarks.bars [--threads 16] [--rounds 5] [--only cpu-ragged cpu-rows] [--json bars.json] [--markdown]

Runs the suites of ``tilewright bench`` at the sizes of the bars, in turn with PyTorch on the same threads, and
prints a line per case as it is measured: the ratio or the time, the bar, and whether it is met; last, the geometric
means that bars ask for. It never fails: a number is a number.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from benchmarks.suites import Settings, suite
from tilewright.tools.console import out
from tilewright.tools.measure import MeasuredRow, environment

THREADS = (1, 2, 16)
"""Numbers of threads that bars are told for; in between, the bar of the next lower one holds."""


@dataclass(frozen=True)
class Bar:
    """What is asked of the cases of a suite. ``value`` reads the number off a row."""

    suite: str
    case: str
    """Start of the names of the cases that it concerns."""
    what: str
    bounds: Sequence[float]
    """For 1, 2 and 16 threads."""
    value: Callable[[MeasuredRow], float | None]
    at_least: bool = True
    mean: Sequence[float] = ()
    """What the geometric mean over its cases should be; none is asked where it is empty."""

    def met(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound


def of(bounds: Sequence[float], threads: int) -> float:
    """The bound for a number of threads."""
    return bounds[max(i for i, n in enumerate(THREADS) if n <= threads)]


def against(name: str) -> Callable[[MeasuredRow], float | None]:
    """How many times as fast as the contender ``name``; None when it did not take part."""
    return lambda row: next((r.ratio for r in row.results if r.name == name), None)


def of_the_best(row: MeasuredRow) -> float | None:
    """Ours to the fastest of the others."""
    return min(r.ratio for r in row.results[1:])


def milliseconds(row: MeasuredRow) -> float:
    return row.results[0].seconds * 1e3


def microseconds(row: MeasuredRow) -> float:
    return row.results[0].seconds * 1e6


def _products(dtype: str, bounds: dict[int, Sequence[float]]) -> list[Bar]:
    torch = against("torch")
    return [
        Bar("cpu-gemm", f"gemm {dtype} {n}x{n}x{n} ", "times torch", bound, torch)
        for n, bound in bounds.items()
    ]


BARS = (
    *_products("bf16", {1024: (1.1, 1.5, 1.3), 2048: (1.3, 1.3, 1.3), 4096: (1.4, 1.6, 1.9)}),
    *_products("i8", {1024: (1.8, 1.2, 1.2), 2048: (1.8, 1.5, 1.2), 4096: (2.0, 1.9, 1.2)}),
    *_products("f32", dict.fromkeys((256, 1024, 2048, 4096), (0.98, 0.98, 0.95))),
    Bar(
        "cpu-ragged", "gemm", "times torch", (1.0, 1.0, 0.95), against("torch"),
        mean=(1.2, 1.2, 1.15),
    ),
    *(
        Bar("cpu-shapes", f"gemm {dtype}", "times torch", (0.9,) * 3, against("torch"),
            mean=(mean,) * 3)
        for dtype, mean in (("bf16", 1.15), ("i8", 1.15), ("f32", 0.98))
    ),
    Bar("cpu-planner", "tuned", "of the best tiling", (0.85,) * 3, of_the_best, mean=(1.0,) * 3),
    Bar("cpu-planner", "", "of the best tiling", (0.85,) * 3, of_the_best, mean=(0.95,) * 3),
    Bar("cpu-attention", "attention", "times torch", (1.1,) * 3, against("torch"), mean=(1.4,) * 3),
    Bar("cpu-fused", "gelu(x w + b) bf16 4096x256x", "times torch.compile", (4, 4, 2.5),
        against("torch.compile")),
    Bar("cpu-fused", "gelu(x w + b) bf16 4096x1024x", "times torch.compile", (2.5, 2.5, 2.0),
        against("torch.compile")),
    Bar("cpu-two-products", "gelu(x w) v", "times torch.compile", (1.5,) * 3,
        against("torch.compile")),
    Bar("cpu-rows", "", "times a copy", (0.85,) * 3, against("copy")),
    Bar("pool", "launch on the pool, awake", "us", (3,) * 3, microseconds, at_least=False),
    Bar("pool", "launch on the pool, asleep", "us", (10,) * 3, microseconds, at_least=False),
    Bar("compile", "import tilewright", "ms", (500,) * 3, milliseconds, at_least=False),
    Bar("compile", "first launch", "ms", (100,) * 3, milliseconds, at_least=False),
    Bar("compile", "another gemm", "ms", (100,) * 3, milliseconds, at_least=False),
    Bar("compile", "the same from the disk", "ms", (5,) * 3, milliseconds, at_least=False),
)  # fmt: skip


def judged(row: MeasuredRow, name: str) -> tuple[Bar, float] | None:
    """The bar that a case of a suite has, and the number measured."""
    for bar in BARS:
        if bar.suite == name and row.case.name.startswith(bar.case):
            value = bar.value(row)
            return None if value is None else (bar, value)
    return None


def _verdict(bar: Bar, value: float, bound: float) -> str:
    return (
        f"{'>=' if bar.at_least else '<='} {bound:<5g}{'' if bar.met(value, bound) else ' NOT met'}"
    )


def markdown(found: Sequence[tuple[Bar, MeasuredRow, float]]) -> str:
    """The bars as a table of docs/performance.md."""
    lines = ["| case | threads | measured | bar | |", "|---|---|---|---|---|"]
    for bar, row, value in found:
        bound = of(bar.bounds, row.case.threads)
        rates = ", ".join(f"{r.name} {r.rate:.4g}" for r in row.results)
        lines.append(
            f"| {row.case.name} | {row.case.threads} | {value:.2f} {bar.what} ({rates} {row.case.unit}) "
            f"| {'>=' if bar.at_least else '<='} {bound:g} | {'met' if bar.met(value, bound) else '**not met**'} |"
        )
    return "\n".join(lines)


def means(found: Sequence[tuple[Bar, MeasuredRow, float]]) -> dict[str, tuple[float, str]]:
    """Of every bar that asks for one, by its cases and threads: the geometric mean, and what becomes of it."""
    groups: dict[tuple[str, int], tuple[Bar, list[float]]] = {}
    for bar, row, value in found:
        if bar.mean:
            name = f"{bar.suite} {bar.case}".strip()
            groups.setdefault((name, row.case.threads), (bar, []))[1].append(value)
    mean = {key: geometric_mean(values) for key, (_, values) in groups.items()}
    return {
        f"{name}, {threads} threads": (
            mean[name, threads],
            _verdict(bar, mean[name, threads], of(bar.mean, threads)),
        )
        for (name, threads), (bar, _) in groups.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    names = list(dict.fromkeys(bar.suite for bar in BARS))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SUITE")
    parser.add_argument("--against", default="torch", help="the peer: torch (default) or numpy")
    parser.add_argument("--sizes", type=int, nargs="+", default=[], help="of squares and lengths")
    parser.add_argument("--dtypes", nargs="+", default=[], help="of products and rows")
    parser.add_argument("--count", type=int, default=30, help="of shapes that are drawn")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16), help="of the same")
    parser.add_argument(
        "--tuning", type=float, default=0.0, help="seconds of a search in cpu-planner"
    )
    parser.add_argument("--json")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs too")
    args = parser.parse_args(arguments)
    settings = Settings(
        tuple(args.sizes), tuple(args.dtypes), tuple(args.threads), against=args.against,
        rounds=args.rounds, count=args.count, seed=args.seed, tuning=args.tuning,
    )  # fmt: skip
    about = environment()
    start = time.perf_counter()
    out().print(
        f"{about['processor']}, load {about['load']:.1f}, {about['time']}, seed {args.seed}"
    )
    found: list[tuple[Bar, MeasuredRow, float]] = []
    every: list[dict[str, Any]] = []
    for name in args.only:
        for row in suite(name)(settings):
            every.append(row.as_json())
            mine = judged(row, name)
            rates = ", ".join(f"{r.name} {r.rate:.4g}" for r in row.results)
            said = ""
            if mine is not None:
                bar, value = mine
                found.append((bar, row, value))
                bound = of(bar.bounds, row.case.threads)
                said = f"{value:8.2f} {bar.what:20} {_verdict(bar, value, bound)}"
            out().print(
                f"{row.case.name:40} {row.case.threads:2}T {said:48} ({rates} {row.case.unit})"
            )
    for name, (value, verdict) in means(found).items():
        out().print(f"geometric mean of {name}: {value:.2f} {verdict}")
    out().print(f"{time.perf_counter() - start:.0f} s")
    if args.markdown:
        print(markdown(found))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"environment": about, "rows": every}, file, indent=2)


if __name__ == "__main__":
    main()
