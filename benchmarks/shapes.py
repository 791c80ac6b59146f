"""Products as language models have them, on a GPU: shapes drawn afresh, `ops.matmul` and a user's kernel beside cuBLAS.

    python -m benchmarks.shapes [--count 60] [--seed N] [--rounds 5] [--json shapes.json] [--workers 12] [--tilings]
                                [--dtypes bf16 f16]

N and K are those of eight published language models' layers, M is log-uniform from 1 to 8192 (half of all multiples
of 16, the others as they fall), operands NT or NN in bf16 or f16; f8e4m3 (to bf16) and i8 (to i32) are NT, and M is
what torch's `_scaled_mm` and `_int_mm` take. The user's kernel is ten plain lines whose tile
sizes are `tw.auto`. Kernels are compiled by so many processes first; every launch is a CUDA graph's. With `--tilings`
the user's kernel also runs with each of twenty fixed tile sizes, and "planner" is the best one's time over that of what
was chosen. It never fails: a number is a number.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import tilewright as tw
from benchmarks.suites import gpu
from benchmarks.suites.gpu_timing import captured, gpu_torch, measure_gpu, timed
from tilewright import ops
from tilewright.diagnostics import TilewrightError
from tilewright.tools.measure import Case, Contender, environment

LAYERS = (
    (4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (28672, 4096),  # 8 B, heads in groups
    (8192, 8192), (28672, 8192), (8192, 28672), (10240, 8192),  # 70 B
    (12288, 4096), (11008, 4096), (4096, 11008),  # 7 B
    (15360, 5120), (5120, 5120), (13824, 5120), (5120, 13824),  # 13 B
    (3584, 3584), (4608, 3584), (18944, 3584), (3584, 18944),  # 7 B, of another family
    (2048, 2048), (2560, 2048), (8192, 2048), (2048, 8192),  # 1 B
    (2560, 2560), (10240, 2560), (2560, 10240), (7680, 2560),  # 3 B
    (7168, 2048), (1536, 7168), (24576, 1536), (7168, 16384),  # low-rank attention and experts
)  # fmt: skip


TILINGS = (
    (16, 64, 128), (16, 128, 128), (32, 128, 128), (64, 64, 64), (64, 64, 128), (64, 128, 64), (64, 128, 128),
    (64, 192, 64), (64, 256, 64), (128, 64, 64), (128, 64, 128), (128, 96, 64), (128, 128, 64), (128, 128, 128),
    (128, 160, 64), (128, 192, 64), (128, 256, 64), (192, 128, 64), (192, 192, 64), (256, 128, 64),
)  # fmt: skip
"""BM, BN, BK that a person would try."""


LIMITS = {"bf16": 8e-3, "f16": 8e-3, "f8e4m3": 8e-3, "i8": 1e-6}
"""Of the relative distance from float32's products, whose sums of integers are rounded."""


class Shape(NamedTuple):
    m: int
    n: int
    k: int
    layout: str
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.layout} {self.m}x{self.n}x{self.k}"


def drawn(count: int, seed: int, dtypes: Sequence[str] = ("bf16", "f16")) -> Iterator[Shape]:
    """So many shapes, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(count):
        m = round(math.exp(draw.uniform(0, math.log(8192))))
        m = 16 * math.ceil(m / 16) if draw.random() < 0.5 else m
        shape = Shape(m, *draw.choice(LAYERS), draw.choice(("NT", "NN")), draw.choice(dtypes))
        if shape.dtype in ("f8e4m3", "i8"):
            m = max(m, 17) if shape.dtype == "i8" else m
            shape = shape._replace(m=m, layout="NT")
        yield shape


@tw.kernel
def product(
    A: Any, B: Any, C: Any, ACC: tw.constexpr = tw.f32,
    BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto,
):  # fmt: skip
    """C = A B, as a user writes it."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def operands(shape: Shape) -> tuple[Any, Any, Any, Any]:
    """a, b, and two results, poisoned."""
    torch = gpu_torch()
    a, b, c = gpu.operands(torch, shape.dtype, shape.layout, shape.m, shape.n, shape.k)
    c.fill_(math.nan if c.is_floating_point() else -1)
    return a, b, c, c.clone()


def runs(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    m, n = c.shape
    grid = lambda BM, BN: (tw.cdiv(m, BM), tw.cdiv(n, BN))  # noqa: E731
    own = {} if c.is_floating_point() else {"ACC": tw.i32}
    return lambda: ops.matmul(a, b, out=c), lambda: product[grid](a, b, d, **own)


def tilings(a: Any, b: Any, d: Any) -> Iterator[tuple[tuple[int, int, int], Any]]:
    m, n = d.shape
    for bm, bn, bk in TILINGS:
        launch = product[tw.cdiv(m, bm), tw.cdiv(n, bn)]
        yield (bm, bn, bk), partial(launch, a, b, d, BM=bm, BN=bn, BK=bk)


def warm(shape: Shape, tiled: bool) -> None:
    """Compiles what a shape needs into the cache on disk."""
    try:
        a, b, c, d = operands(shape)
        for run in runs(a, b, c, d):
            run()
        for _, run in tilings(a, b, d) if tiled else ():
            run()
        gpu_torch().cuda.synchronize()
    except TilewrightError:
        pass  # told where it is measured


def measured(shape: Shape, rounds: int, tiled: bool) -> dict[str, Any]:
    """Ratios to cuBLAS of `ops.matmul` ("ops") and of the user's kernel ("auto"), and of the latter to its best tiling
    ("planner"); or what went wrong."""
    torch = gpu_torch()
    a, b, c, d = operands(shape)
    ours, users = runs(a, b, c, d)
    wanted, e = a.float() @ b.float(), torch.empty_like(c)
    for name, run, result in (("ops", ours, c), ("auto", users, d)):
        run()
        off = float((result.float() - wanted).norm() / wanted.norm())
        if not off <= LIMITS[shape.dtype]:
            return {"shape": shape.name, "wrong": f"{name} by {off:.2e}"}
    contenders = [
        Contender("ops", captured(torch, ours)),
        Contender("auto", captured(torch, users)),
        Contender("cuBLAS", captured(torch, gpu.library(torch, shape.dtype, a, b, e))),
    ]
    flops = 2 * shape.m * shape.n * shape.k
    row = measure_gpu(Case(shape.name, contenders, flops, "TFLOP/s"), rounds=rounds)
    seconds = {r.name: r.seconds for r in row.results}
    found: dict[str, Any] = {
        "shape": shape.name,
        "us": {name: s * 1e6 for name, s in seconds.items()},
        "ops": seconds["cuBLAS"] / seconds["ops"],
        "auto": seconds["cuBLAS"] / seconds["auto"],
    }
    if tiled:
        graphs = {"auto": contenders[1].run}
        graphs |= {str(sizes): captured(torch, run) for sizes, run in tilings(a, b, d)}
        calls = max(1, min(200, round(1e-3 / seconds["auto"])))
        times = {name: [timed(torch, run, calls) for _ in range(3)] for name, run in graphs.items()}
        planned, *others = map(min, times.values())
        found["planner"] = min(others) / planned
        found["best"] = min(times, key=lambda name: min(times[name]))
    return found


RATIOS = ("ops", "auto", "planner")


def summary(ratios: Sequence[float]) -> str:
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    under = ", ".join(f"{sum(r < bound for r in ratios)} under {bound}" for bound in (0.95, 0.88))
    return f"geometric mean {mean:.3f}, worst {min(ratios):.3f}, of {len(ratios)}: {under}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--dtypes", nargs="+", default=("bf16", "f16"), choices=LIMITS)
    parser.add_argument("--json")
    parser.add_argument("--tilings", action="store_true", help="beside twenty fixed tilings")
    args = parser.parse_args()
    shapes = list(drawn(args.count, args.seed, args.dtypes))
    print(f"seed {args.seed}; {environment()}", flush=True)
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        chunk = max(1, args.count // args.workers // 2)
        list(pool.map(partial(warm, tiled=args.tilings), shapes, chunksize=chunk))
    found: list[dict[str, Any]] = []
    for shape in sorted(shapes):
        found.append(measured(shape, args.rounds, args.tilings))
        row = found[-1]
        if "us" in row:
            times = ", ".join(f"{name} {t:.1f}" for name, t in row["us"].items())
            ratios = "  ".join(f"{name} {row[name]:.3f}" for name in RATIOS if name in row)
            print(f"{row['shape']:32} {ratios}  ({times} us)", flush=True)
        else:
            print(row, flush=True)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(found, file, indent=1)
    good = [row for row in found if "us" in row]
    for name in RATIOS:
        if ratios := [row[name] for row in good if name in row]:
            print(f"{name}: {summary(ratios)}")


if __name__ == "__main__":
    main()
