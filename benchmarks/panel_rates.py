"""Where the rates of products on CPUs are from (`uarch.cpu.PanelRates`): tilings timed on drawn shapes, rates fitted.

    python -m benchmarks.panel_rates measure --threads 16 --seconds 120 --out p16.json [--seed N]
    python -m benchmarks.panel_rates fit p1.json p2.json p16.json [--steps 3000]

`measure`: products of layers of language models and of log-uniform extents, each with every tiling that covers it
without waste, its programs as they are. `fit`: a search from the table's rates for those that tell best how much slower
than one another a product's tilings are; it prints them, and what they choose beside the best tiling of each product
(geometric mean, worst), by threads.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from statistics import geometric_mean, median, pvariance
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites.data import random as drawn_array
from benchmarks.suites.data import zeros
from benchmarks.suites.layers import Shape, drawn, product
from tilewright.targets.cpu.machine import chosen
from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.uarch.cpu import PanelRates
from tilewright.uarch.products import PlacedProduct, Side

TILINGS = (
    *((m, n) for m in (32, 64, 128, 256, 512) for n in (32, 64, 128, 256, 512)),
    *((8, n) for n in (32, 128, 512)),
    *((16, n) for n in (16, 32, 48, 64, 96, 128, 256, 512)),
    *((m, n) for m in (128, 512) for n in (8, 24)),
    *((m, n) for m in (24, 64) for n in (48, 96)),
    *((m, n) for m in (1, 2, 4) for n in (128, 512)),
)
TYPES = {"bf16": "f32", "f16": "f32", "f32": "f32", "i8": "i32"}
ROUNDS, SECONDS, SAMPLE = 9, 1.0, 2e-3
NEAR = 1.8
"""Tilings that take no more than so many times the best one's time are fitted to."""
STORE = 1e-10
"""Seconds of a byte of the result."""


def shapes(seed: int, threads: int) -> Iterator[Shape]:
    """Without end."""
    draw, most = random.Random(seed), 2.0**33.5 * threads
    for layer in drawn(1 << 20, seed, ("bf16", "i8", "f32"), most):
        yield layer
        m, n, k = (round(math.exp(draw.uniform(math.log(16), math.log(4096)))) for _ in range(3))
        if 2.0 * m * n * k <= most:
            yield Shape(
                m, n, k, draw.choice(("NN", "NT", "TN")), draw.choice(("bf16", "i8", "f32"))
            )


def tilings(shape: Shape) -> list[tuple[int, int]]:
    """Those of which no half would do, and short ones where a side is short."""
    return [
        (m, n)
        for m, n in TILINGS
        if m // 2 < shape.m and n // 2 < shape.n
        if (m > 8 or shape.m <= 8 * m) and (n > 24 or shape.n <= 2 * n)
    ]


def timed(shape: Shape, threads: int) -> dict[str, float]:
    """Seconds of each tiling, in turn, medians."""
    a, b = (
        drawn_array(sizes[::-1], shape.dtype).T
        if turned == "T"
        else drawn_array(sizes, shape.dtype)
        for sizes, turned in zip(
            ((shape.m, shape.k), (shape.k, shape.n)), shape.layout, strict=True
        )
    )
    c = zeros((shape.m, shape.n), np.int32 if shape.dtype == "i8" else a.dtype)
    own: dict[str, Any] = {"ACC": tw.i32} if shape.dtype == "i8" else {}
    runs: dict[str, Callable[[], None]] = {}
    for m, n in tilings(shape):
        grid = -(-shape.m // m), -(-shape.n // n)
        as_given = product.options(target="cpu", num_threads=threads, disable="merge-programs")
        launch = as_given[grid]
        runs[f"{m}x{n}"] = partial(launch, a, b, c, BM=m, BN=n, BK=64, **own)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    start = time.perf_counter()
    for turn in range(ROUNDS):
        if turn > 1 and time.perf_counter() - start > SECONDS:
            break
        for name, run in runs.items():
            begin, calls = time.perf_counter(), 0
            while calls == 0 or time.perf_counter() - begin < SAMPLE:
                run()
                calls += 1
            times[name].append((time.perf_counter() - begin) / calls)
    return {name: median(found) for name, found in times.items()}


def measure(args: argparse.Namespace) -> None:
    start, rows = time.perf_counter(), list[Any]()
    for shape in shapes(args.seed, args.threads):
        if time.perf_counter() - start > args.seconds:
            break
        rows.append([*shape, timed(shape, args.threads)])
        print(shape.name, min(rows[-1][-1], key=rows[-1][-1].get), flush=True)
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"threads": args.threads, "rows": rows}, file)


def placed(shape: Shape, tile: str) -> tuple[PlacedProduct, int, float]:
    """A product with a tiling, its programs, and seconds that storing takes in each."""
    m, n = map(int, tile.split("x"))
    a = Side(m, shape.m, True, shape.layout[0] == "N")
    b = Side(n, shape.n, True, shape.layout[1] == "T")
    types = shape.dtype, shape.dtype, TYPES[shape.dtype]
    stored = a.extent * b.extent * STORE * (2 if shape.dtype == "bf16" else 4)
    return PlacedProduct(types, a, b, shape.k, 1), a.tiles * b.tiles, stored


def fit(args: argparse.Namespace) -> None:
    machine, known, draw = chosen(None), list[Any](), random.Random(args.seed)
    for path in args.files:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        for *shape, times in found["rows"]:
            if len(times) > 1:
                cases = [placed(Shape(*shape), tile) for tile in times]
                known.append((found["threads"], cases, list(times.values())))

    def shares(rates: PanelRates) -> list[tuple[float, float]]:
        """Product by product: what is chosen beside the best, and how far apart what is told and what was measured
        lie (the variance of the logarithm) over tilings that are not far from the best."""
        result: list[tuple[float, float]] = []
        for threads, cases, times in known:
            costs = PanelCosts(machine, threads, rates)
            told = [
                sum(costs.causes([p], programs).values()) + -(-programs // threads) * stored
                for p, programs, stored in cases
            ]
            pairs = zip(told, times, strict=True)
            apart = [math.log(x / y) for x, y in pairs if y < NEAR * min(times)]
            result.append((min(times) / times[told.index(min(told))], pvariance(apart)))
        return result

    def loss(rates: PanelRates, first: PanelRates) -> float:
        """Mostly how far apart; of one product no more than a disturbed measurement should say. A pull to where the
        search began."""
        pull = sum(math.log(asdict(rates)[k] / asdict(first)[k]) ** 2 for k in fitted)
        each = [
            min(apart, 0.1) - 0.15 * max(math.log(share), -0.4) for share, apart in shares(rates)
        ]
        return sum(each) / len(each) + 0.0004 * pull

    best = first = machine.panel_rates
    fitted = [k for k, v in asdict(first).items() if 0 < v < math.inf]
    least = loss(best, first)
    for _ in range(args.steps):
        values = asdict(best)
        for name in draw.sample(fitted, draw.choice((1, 1, 2, 3))):
            values[name] *= math.exp(draw.gauss(0, 0.25))
        if (now := loss(PanelRates(**values), first)) < least:
            best, least = PanelRates(**values), now
    print(best)
    for threads in sorted({threads for threads, *_ in known}):
        for name, rates in (("before", first), ("fitted", best)):
            found = zip(shares(rates), known, strict=True)
            each = [share for (share, _), (n, *_) in found if n == threads]
            mean, worst = geometric_mean(each), min(each)
            print(f"{threads:3} threads, {name}: mean {mean:.3f}, worst {worst:.3f} of {len(each)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("--threads", type=int, default=1)
    one.add_argument("--seconds", type=float, default=120.0)
    one.add_argument("--out", required=True)
    one.set_defaults(run=measure)
    other = commands.add_parser("fit")
    other.add_argument("files", nargs="+")
    other.add_argument("--steps", type=int, default=2000)
    other.set_defaults(run=fit)
    args = parser.parse_args(arguments)
    args.run(args)


if __name__ == "__main__":
    main()
