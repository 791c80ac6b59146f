"""Where the product rates of `uarch.sm90` are from: tilings timed on drawn shapes, rates that choose best.

    python -m benchmarks.product_rates measure sweep.jsonl [--count 60] [--seed N] [--workers 15]
                                               [--kind batched|gated] [--most OPERATIONS]            (on the GPU)
    python -m benchmarks.product_rates fit sweep.jsonl [more.jsonl ..]                               (anywhere)

`measure`: for each shape of `benchmarks.shapes`, the fourteen tilings and clusters that the planner thinks cheapest,
some that it thinks near and some that are far, each in a CUDA graph, cuBLAS among them, a line of JSON per shape. They
run in turn, in another order each time, on a card that is warm: one after the other, the first would run on a cooler
card and a faster clock than the last (H100: 1.98 GHz, then 1.45), and seem the best for it. `fit`: by
descent, one rate at a time, what is lost by choosing (the chosen one's time by the best one's, softened) and half the
mean square of the logarithm of estimated by measured time near the best, and with `--pull` how far the rates are from
those that it started with (H100: 0.001).
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

import tilewright as tw
from benchmarks.shapes import KINDS, distance, library, operands, reference
from benchmarks.suites.gpu_timing import captured, gpu_torch, timed
from benchmarks.suites.layers import Shape
from tilewright.arguments import ArraySpec
from tilewright.diagnostics import TilewrightError
from tilewright.targets.base import get_target
from tilewright.targets.cuda import executable, tile_sizes
from tilewright.targets.cuda.fitting import CLOCK, Timed, descended, loss
from tilewright.targets.cuda.work_split import UNSPLIT, WorkSplit, clocks, work_splits
from tilewright.uarch.sm90 import MULTIPROCESSORS, PRODUCT_RATES

NEAR, FAR = 1.35, 2.2
"""Estimated times, by the cheapest's, up to which tilings are called near, and up to which they are tried at all."""
CHEAPEST, SOME_NEAR, SOME_FAR = 14, 22, 6
SOFT = 0.015
"""Estimates that differ by so much, in logarithms, are chosen nearly as often as one another."""
ROUNDS, WARM = 9, 2
"""How often all run in turn; so many rounds, the first, warm the card and are not counted."""
SAMPLE = 1.2e-3
"""Seconds that one of them runs at a time."""
FACTORS = (0.8, 0.9, 1.1, 1.25)

Plan = tuple[tuple[int, int, int], int]
"""BM, BN, BK, and workgroups of a cluster."""
CUBLAS: Plan = (0, 0, 0), 0


def launches(shape: Shape) -> dict[Plan, Timed]:
    """Every tiling and cluster that the machine can do for a shape, not timed yet."""
    kind = {"bf16": tw.bf16, "f16": tw.f16, "f8e4m3": tw.f8e4m3}[shape.dtype]
    result = tw.bf16 if kind == tw.f8e4m3 else kind
    m, n, k, batch = shape.m, shape.n, shape.k, (shape.batch,) if shape.batch else ()
    along_k = (*(n * k for _ in batch), 1, k) if shape.layout == "NT" else None
    right = [ArraySpec((*batch, k, n), kind, along_k)] * (1 + shape.gated)
    kernel = shape.kernel.options(target="sm_90a")
    arrays = ArraySpec((*batch, m, k), kind), *right, ArraySpec((*batch, m, n), result)
    values = kernel.launcher.bind(arrays, {})
    request, _, options = kernel.variant_for(values).chooser.request(values)
    get_target(options.target).choices(request, options)
    form = request.memory["form"]
    found: dict[Plan, Timed] = {}
    for each in tile_sizes.candidates(request, form, MULTIPROCESSORS):
        v = each.values
        launched = each.work, each.programs, each.trips, MULTIPROCESSORS
        for split in (UNSPLIT, *work_splits(*launched, tiles=False)):
            plan = (v["BM"], v["BN"], v["BK"]), split.parts
            found[plan] = Timed(each.work, split, each.programs, each.trips, each.sides, 0.0)
    return found


def plans(shape: Shape) -> list[Plan]:
    """Those that are worth a measurement."""
    costs = {
        plan: clocks(x.work, x.split, x.programs, x.trips, x.sides, MULTIPROCESSORS)
        for plan, x in launches(shape).items()
    }
    ordered = sorted(costs, key=lambda plan: costs[plan])
    least, draw = costs[ordered[0]], random.Random(repr(shape))
    near = [plan for plan in ordered if costs[plan] < NEAR * least]
    far = [plan for plan in ordered if NEAR * least <= costs[plan] < FAR * least]
    others = (near[CHEAPEST:], SOME_NEAR), (far, SOME_FAR)
    return near[:CHEAPEST] + [p for some, n in others for p in draw.sample(some, min(n, len(some)))]


def run_of(plan: Plan, shape: Shape, inputs: Sequence[Any], c: Any) -> Any:
    """A launch of the product with this tiling and cluster; None where the cluster has no room."""
    executable.choose = lambda *_: UNSPLIT  # the plan says it
    (bm, bn, bk), parts = plan
    kernel = shape.kernel.compile(*inputs, c, BM=bm, BN=bn, BK=bk)
    if parts > 1:
        shared = kernel.executable.shared(WorkSplit(1, parts))
        if shared is kernel.executable:
            return None
        kernel = replace(kernel, executable=shared)
    return partial(kernel[shape.grid(bm, bn)], *inputs, c)


def warm(job: tuple[Shape, Plan]) -> None:
    """Compiles what a measurement needs into the cache on disk."""
    shape, plan = job
    inputs, c, _ = operands(shape)
    try:
        if (run := run_of(plan, shape, inputs, c)) is not None:
            run()
            gpu_torch().cuda.synchronize()
    except TilewrightError:
        pass  # told where it is measured


def measured(shape: Shape, chosen: Sequence[Plan]) -> Mapping[str, Any]:
    """Microseconds of each plan, and of cuBLAS; wrong ones are told and left out."""
    torch = gpu_torch()
    inputs, c, d = operands(shape)
    wanted = reference(shape, inputs)
    graphs: dict[Plan, Any] = {}
    for plan in chosen:
        c.fill_(math.nan)
        try:
            if (run := run_of(plan, shape, inputs, c)) is None:
                continue
            graph = captured(torch, run)
        except TilewrightError as problem:
            print(f"{shape.name} {plan}: {str(problem).splitlines()[0]}", flush=True)
            continue
        graph()
        off = distance(c, wanted)
        if off < 8e-3:
            graphs[plan] = graph
        else:
            print(f"{shape.name} {plan}: wrong by {off:.2e}", flush=True)
    graphs[CUBLAS] = captured(torch, library(shape, inputs, d))
    plans, draw = list(graphs), random.Random(1)
    calls = {
        plan: max(2, min(200, round(SAMPLE / max(timed(torch, graph, 3), 1e-6))))
        for plan, graph in graphs.items()
    }
    times: dict[Plan, list[float]] = {plan: [] for plan in plans}
    for _ in range(ROUNDS):
        draw.shuffle(plans)
        for plan in plans:
            times[plan].append(timed(torch, graphs[plan], calls[plan]))
    took = {plan: median(each[WARM:]) * 1e6 for plan, each in times.items()}
    peer = took.pop(CUBLAS)
    return {"shape": list(shape), "cublas": peer, "rows": [(us, *p) for p, us in took.items()]}


def measure(args: argparse.Namespace) -> None:
    shapes = sorted(KINDS[args.kind](args.count, args.seed, args.dtypes, args.most))
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        found = list(pool.map(plans, shapes))
        jobs = {
            (s.layout, s.dtype, s.batch > 0, s.gated, p): (s, p)
            for s, ps in zip(shapes, found, strict=True)
            for p in ps
        }
        list(pool.map(warm, jobs.values(), chunksize=4))
    with open(args.files[0], "w") as file:
        for shape, chosen in zip(shapes, found, strict=True):
            print(json.dumps(measured(shape, chosen)), file=file, flush=True)


def read(files: Sequence[str]) -> Iterator[list[Timed]]:
    """The timed launches of one shape after the other."""
    for name in files:
        with open(name) as file:
            for line in file:
                row = json.loads(line)
                known = launches(Shape(*row["shape"]))
                plans = [(us, ((*tile,), parts)) for us, tile, parts in row["rows"]]
                yield [replace(known[p], seconds=us * 1e-6) for us, p in plans if p in known]


def objective(products: Sequence[Sequence[Timed]], rates: Mapping[str, float]) -> float:
    """What a fit makes small."""
    soft, off, near = 0.0, 0.0, 0
    for timings in products:
        estimates = [math.log(each.estimated(rates, MULTIPROCESSORS)) for each in timings]
        least, best = min(estimates), min(each.seconds for each in timings)
        losses = [math.log(each.seconds / best) for each in timings]
        weights = [math.exp((least - e) / SOFT) for e in estimates]
        soft += sum(w * lost for w, lost in zip(weights, losses, strict=True)) / sum(weights)
        for each, estimate, lost in zip(timings, estimates, losses, strict=True):
            if lost < math.log(1.3):
                off, near = off + (estimate - math.log(each.seconds)) ** 2, near + 1
    return soft / len(products) + off / near / 2


def fit(args: argparse.Namespace) -> None:
    products = [timings for timings in read(args.files) if timings]
    rates = dict(PRODUCT_RATES)

    def error(rates: Mapping[str, float]) -> float:
        away = sum(math.log(rates[name] / PRODUCT_RATES[name]) ** 2 for name in rates)
        return objective(products, rates) + args.pull * away

    least = error(rates)

    def tell(rates: Mapping[str, float]) -> None:
        lost = sum(loss(timings, rates, MULTIPROCESSORS) for timings in products) / len(products)
        print(
            f"{math.exp(-lost):.4f} of the best: { {n: float(f'{v:.4g}') for n, v in rates.items()} }",
            flush=True,
        )

    print(f"{len(products)} shapes")
    tell(rates)
    for _ in range(args.rounds):
        rates, least = descended(rates, least, FACTORS, error, fixed=(CLOCK, "resident"))
        tell(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("measure", "fit"))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--dtypes", nargs="+", default=("bf16", "f16"))
    parser.add_argument("--kind", default="plain", choices=KINDS)
    parser.add_argument("--most", type=float, default=math.inf, help="operations of a product")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=4, help="passes over all rates")
    parser.add_argument("--pull", type=float, default=0.0, help="towards the rates it starts with")
    args = parser.parse_args()
    (measure if args.what == "measure" else fit)(args)


if __name__ == "__main__":
    main()
