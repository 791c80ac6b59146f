"""Products as language models have them, on a GPU: shapes drawn afresh, `ops.matmul` and a user's kernel beside cuBLAS.

    python -m benchmarks.shapes [--count 60] [--seed N] [--rounds 5] [--json shapes.json] [--workers 12] [--tilings]
                                [--tuning SECONDS] [--dtypes bf16 f16]

N and K are those of eight published language models' layers, M is log-uniform from 1 to 8192 (half of all multiples
of 16, the others as they fall), operands NT or NN in bf16 or f16; f8e4m3 (to bf16) and i8 (to i32) are NT, and M is
what torch's `_scaled_mm` and `_int_mm` take. The user's kernel is ten plain lines whose tile
sizes are `tw.auto`. With `--tilings` it also runs with each of twenty fixed tile sizes, and "planner" is the best one's
time over that of what was chosen; with `--tuning` too, "tuned" is the same of what a search of so many seconds finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import tilewright as tw
from benchmarks.sampling import Prepared, Run, parser, sample
from benchmarks.suites import gpu
from benchmarks.suites.gpu_timing import gpu_torch
from benchmarks.suites.layers import Shape, drawn, product
from tilewright import ops
from tilewright.lang.choosing import Explanation

TILINGS = (
    (16, 64, 128), (16, 128, 128), (32, 128, 128), (64, 64, 64), (64, 64, 128), (64, 128, 64), (64, 128, 128),
    (64, 192, 64), (64, 256, 64), (128, 64, 64), (128, 64, 128), (128, 96, 64), (128, 128, 64), (128, 128, 128),
    (128, 160, 64), (128, 192, 64), (128, 256, 64), (192, 128, 64), (192, 192, 64), (256, 128, 64),
)  # fmt: skip
"""BM, BN, BK that a person would try."""


LIMITS = {"bf16": 8e-3, "f16": 8e-3, "f8e4m3": 8e-3, "i8": 1e-6}
"""Of the relative distance from float32's products, whose sums of integers are rounded."""


class Problem(Shape):
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

        def searched(seconds: float) -> tuple[Run, Callable[[], Explanation]]:
            kernel = tw.autotune(key=("A", "B"), budget=seconds)(product)
            grid = kernel[lambda BM, BN: (tw.cdiv(self.m, BM), tw.cdiv(self.n, BN))]
            values = kernel.launcher.bind((a, b, d), own)
            chooser = kernel.variant_for(values).chooser
            return partial(grid, a, b, d, **own), partial(chooser.explained, values)

        return Prepared(
            {
                "ops": (lambda: ops.matmul(a, b, out=c), lambda: off(c)),
                "auto": (lambda: users(a, b, d, **own), lambda: off(d)),
            },
            {"cuBLAS": gpu.library(gpu_torch(), self.dtype, a, b, e)},
            tilings,
            searched,
        )


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
    sample([Problem(*shape) for shape in sorted(drawn(args.count, args.seed, args.dtypes))], args)


if __name__ == "__main__":
    main()
