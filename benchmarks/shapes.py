"""Products as language models have them, on a GPU: shapes drawn afresh, `ops.matmul` and a user's kernel beside cuBLAS.

    python -m benchmarks.shapes [--count 60] [--seed N] [--rounds 5] [--json shapes.json] [--workers 12] [--tilings]
                                [--dtypes bf16 f16]

N and K are those of eight published language models' layers, M is log-uniform from 1 to 8192 (half of all multiples
of 16, the others as they fall), operands NT or NN in bf16 or f16; f8e4m3 (to bf16) and i8 (to i32) are NT, and M is
what torch's `_scaled_mm` and `_int_mm` take. The user's kernel is ten plain lines whose tile
sizes are `tw.auto`. With `--tilings` it also runs with each of twenty fixed tile sizes, and "planner" is the best one's
time over that of what was chosen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import tilewright as tw
from benchmarks.sampling import Prepared, Run, parser, sample
from benchmarks.suites import gpu
from benchmarks.suites.gpu_timing import gpu_torch
from tilewright import ops

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

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def limit(self) -> float:
        return LIMITS[self.dtype]

    def prepared(self, tiled: bool) -> Prepared:
        """Both results are poisoned."""
        a, b, c, d = operands(self)
        e = c.clone()
        wanted = a.float() @ b.float()
        own: dict[str, Any] = {} if c.is_floating_point() else {"ACC": tw.i32}
        users = product[lambda BM, BN: (tw.cdiv(self.m, BM), tw.cdiv(self.n, BN))]

        def off(result: Any) -> float:
            return float((result.float() - wanted).norm() / wanted.norm())

        tilings: dict[str, Run] = {}
        for bm, bn, bk in TILINGS if tiled else ():
            sizes: dict[str, Any] = {"BM": bm, "BN": bn, "BK": bk} | own
            tilings[f"{bm}x{bn}x{bk}"] = partial(users, a, b, d, **sizes)
        return Prepared(
            {
                "ops": (lambda: ops.matmul(a, b, out=c), lambda: off(c)),
                "auto": (lambda: users(a, b, d, **own), lambda: off(d)),
            },
            {"cuBLAS": gpu.library(gpu_torch(), self.dtype, a, b, e)},
            tilings,
        )


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


def main() -> None:
    options = parser(__doc__, 60)
    options.add_argument("--dtypes", nargs="+", default=("bf16", "f16"), choices=LIMITS)
    args = options.parse_args()
    sample(sorted(drawn(args.count, args.seed, args.dtypes)), args)


if __name__ == "__main__":
    main()
