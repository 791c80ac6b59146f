"""`tilewright tune --calibrate`: how fast this machine is, measured by kernels of the tile language.

Each rate of `uarch.base.Rates` is that of a kernel which does one thing: copy an array that no cache holds, read one
that only the cores' common cache holds, compute on a tile, multiply tiles, touch small ones, start. A target whose cost
model has rates of its own says which launches of a product it wants timed, and what follows from the times.
"""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.arguments import Grid
from tilewright.lang.kernel import Kernel
from tilewright.runtime.arrays import aligned
from tilewright.runtime.contest import Candidate
from tilewright.runtime.search import Job, Progress, bar, search
from tilewright.targets.base import CompileOptions, get_target
from tilewright.tools.console import err, out
from tilewright.tools.exits import DONE
from tilewright.tools.sources import random_array
from tilewright.uarch import calibration

BUDGET = 50.0
COPIED = 128 << 20
"""Bytes of each of two arrays that no cache holds."""
NEAR = 8 << 20
"""Bytes for each core that its own caches do not hold."""
SIDE, DEPTH = 128, 512
FEW, MOST, ENOUGH = 4, 100_000, 0.01
"""Steps of a loop by which the time of one is guessed; and that are timed, so many that they take `ENOUGH` seconds."""
SHAPES = (
    (16, 14336, 8192),
    (48, 8192, 14336),
    (192, 8192, 14336),
    (640, 5120, 13824),
    (2048, 4096, 4096),
    (4096, 4096, 4096),
)
"""Rows, columns and depth of products that a target's own model is fitted to; all take longer than Python to launch."""


@tw.kernel
def copied(X, Y):
    at = tw.program_id(0) * 16
    tw.store_tile(
        tw.load_tile(tw.init_tile(X, [at, 0], (16, 1024))), tw.init_tile(Y, [at, 0], (16, 1024))
    )


@tw.kernel
def summed(X, Y):
    row = tw.program_id(0)
    total = tw.zeros((16, 64), tw.f32)
    for k in range(0, X.shape[2], 64):
        total = total + tw.load_tile(tw.init_tile(X, [row, 0, k], (16, 64)))
    tw.store_tile(total, tw.init_tile(Y, [row, 0, 0], (16, 64)))


@tw.kernel
def computed(Y, steps):
    x = tw.load_tile(tw.init_tile(Y, [tw.program_id(0) * 32, 0], (32, 64)))
    for _ in range(steps):
        x = x * x + 0.25
    tw.store_tile(x, tw.init_tile(Y, [tw.program_id(0) * 32, 0], (32, 64)))


@tw.kernel
def touched(Y, steps):
    at = tw.program_id(0) * 16
    for _ in range(steps):
        y = tw.init_tile(Y, [at, 0], (16, 16))
        tw.store_tile(tw.load_tile(y), y)


@tw.kernel
def multiplied(A, B, C, steps, ACC: tw.constexpr):
    total = tw.zeros((128, 128), ACC)
    for _ in range(steps):
        for k in range(0, A.shape[1], 64):
            a = tw.load_tile(tw.init_tile(A, [0, k], (128, 64)))
            total = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, 0], (64, 128))), total)
    tw.store_tile(total, tw.init_tile(C, [tw.program_id(0) * 128, 0], (128, 128)))


@tw.kernel
def product(
    A, B, C, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto
):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    total = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        total = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), total)
    tw.store_tile(total.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def calibrate(name: str, budget: float | None) -> int:
    """Measures a target's machine and keeps its rates for the planner."""
    options = CompileOptions(target=name)
    target = get_target(name)
    start = time.perf_counter()
    with bar(f"calibrating {name}") as progress:
        found = measured(options, budget or BUDGET, progress)
    machine = target.identity(options)
    kept = calibration.keep(machine, found)
    took = time.perf_counter() - start
    out().print(f"{machine}, in {took:.0f} s:")
    for rate, value in sorted(found.items()):
        out().print(f"  {rate:24s} {value:.4g}")
    if budget and took > budget:
        err().print(
            f"remark: longer than the {budget:g} s of --budget, which are shared by the measurements: arrays that no"
            " cache holds are filled, kernels compiled, and each runs a few rounds, beside"
        )
    if not kept:
        err().print("remark: not kept: the cache is off")
    return DONE


def measured(options: CompileOptions, budget: float, progress: Progress) -> dict[str, float]:
    """The rates of the machine of a target, by name."""
    cores = get_target(options.target).rates(options).cores
    rng = np.random.default_rng()
    share = budget / 80

    def seconds(kernel: Kernel, grid: Grid | int, *args: Any, **constexprs: Any) -> float:
        progress(kernel.name, 0.0)
        asked = kernel.options(target=options.target)
        values = asked.launcher.bind(args, constexprs)
        job = Job(asked.launcher, values, grid)
        (found,) = search(job, [Candidate({})], share, lambda what, done: None)
        return min(found.seconds)  # what others do at the same time only adds

    def step(kernel: Kernel, *args: Any, **constexprs: Any) -> tuple[float, float]:
        """Of a launch with one step of its loop, and of a further one."""
        once, few = (seconds(kernel, cores, *args, n, **constexprs) for n in (1, 1 + FEW))
        steps = max(FEW, min(MOST, int(ENOUGH * FEW / max(few - once, 1e-9))))
        often = seconds(kernel, cores, *args, 1 + steps, **constexprs)
        return once, max(often - once, 1e-9) / steps

    def floats(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return random_array(tw.spec(shape, tw.f32), rng)

    found: dict[str, float] = {}
    big, other = (floats((COPIED // 4096, 1024)) for _ in range(2))
    rate = 2 * COPIED / seconds(copied, len(big) // 16, big, other)
    found["memory_bytes"] = rate / cores
    near, sums = floats((cores, 16, NEAR // 64)), floats((cores, 16, 64))
    found["shared_bytes"] = NEAR / seconds(summed, cores, near, sums)
    found["launch_seconds"], took = step(computed, floats((32 * cores, 64)))
    found["elementwise_bytes"] = 2 * 32 * 64 * 4 / took
    found["op_seconds"] = step(touched, floats((16 * cores, 16)))[1] / 2
    for dtype, acc in ((tw.f32, tw.f32), (tw.bf16, tw.f32), (tw.i8, tw.i32)):
        a, b = (
            random_array(tw.spec(shape, dtype), rng) for shape in ((SIDE, DEPTH), (DEPTH, SIDE))
        )
        c = aligned((SIDE * cores, SIDE), acc.numpy)
        took = step(multiplied, a, b, c, ACC=acc)[1]
        found[calibration.of_size(dtype.itemsize)] = 2 * SIDE * SIDE * DEPTH / took
    found["product_flops"] = found[calibration.of_size(4)]
    found |= fitted(options, budget * 0.7, progress)
    return found


def tiles_of(m: int, n: int) -> Callable[[int, int], tuple[int, int]]:
    """The grid of a product of m rows and n columns."""
    return lambda BM, BN: (tw.cdiv(m, BM), tw.cdiv(n, BN))


def fitted(options: CompileOptions, budget: float, progress: Progress) -> Mapping[str, float]:
    """The rates of a target's own model of products; none where it has no such model."""
    target, rng = get_target(options.target), np.random.default_rng()
    kernel = product.options(target=options.target)
    timed: list[tuple[Any, Mapping[str, int], float]] = []
    for i, (m, n, k) in enumerate(SHAPES):
        specs = [tw.spec(shape, tw.bf16) for shape in ((m, k), (n, k), (m, n))]
        a, b, c = (random_array(spec, rng) for spec in specs)
        values = kernel.launcher.bind((a, b.T, c), {})
        request, _, chosen = kernel.chooser.request(values)
        samples = target.samples(request, chosen)
        if not samples:
            return {}

        candidates = [Candidate(dict(sample)) for sample in samples]
        job = Job(kernel.launcher, values, tiles_of(m, n))
        progress(f"product {m} x {n} x {k}", 0.5 + i / len(SHAPES) / 2)
        measured = search(job, candidates, budget / len(SHAPES), lambda what, done: None)
        timed += [(request, c.constexprs, c.median) for c in measured if c.seconds]
    return target.fitted(timed, options)
