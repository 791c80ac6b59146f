"""Products as language models have them, on a GPU: shapes drawn afresh, `ops.matmul` and a user's kernel beside cuBLAS.

    python -m benchmarks.shapes [--count 60] [--seed N] [--rounds 5] [--json shapes.json] [--workers 12] [--tilings]
                                [--tuning SECONDS] [--dtypes bf16 f16] [--kind batched|gated] [--most OPERATIONS]

N and K are those of eight published language models' layers, M is log-uniform from 1 to 8192 (half of all multiples
of 16, the others as they fall), operands NT or NN in bf16 or f16; f8e4m3 (to bf16) and i8 (to i32) are NT, and M is
what torch's `_scaled_mm` and `_int_mm` take. The user's kernel is ten plain lines whose tile
sizes are `tw.auto`. With `--tilings` it also runs with each of twenty fixed tile sizes, and "planner" is the best one's
time over that of what was chosen; with `--tuning` too, "tuned" is the same of what a search of so many seconds finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tilewright as tw
from benchmarks.sampling import Prepared, Run, parser, sample
from benchmarks.suites import gpu
from benchmarks.suites.gpu_timing import gpu_torch
from benchmarks.suites.layers import Shape, batches, drawn, gated_layers
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
        inputs, c, d = operands(self)
        wanted = reference(self, inputs)
        own: dict[str, Any] = {} if c.is_floating_point() else {"ACC": tw.i32}
        users = self.kernel[self.grid]

        def off(result: Any) -> float:
            return distance(result, wanted)

        tilings: dict[str, Run] = {}
        for bm, bn, bk in TILINGS if tiled else ():
            sizes: dict[str, Any] = {"BM": bm, "BN": bn, "BK": bk} | own
            tilings[f"{bm}x{bn}x{bk}"] = partial(users, *inputs, d, **sizes)

        def searched(seconds: float) -> tuple[Run, Callable[[], Explanation]]:
            kernel = tw.autotune(key=("A", "B"), budget=seconds)(self.kernel)
            values = kernel.launcher.bind((*inputs, d), own)
            chooser = kernel.variant_for(values).chooser
            return partial(kernel[self.grid], *inputs, d, **own), partial(chooser.explained, values)

        ours = {"auto": (lambda: users(*inputs, d, **own), lambda: off(d))}
        if not self.gated:
            ours = {"ops": (lambda: ops.matmul(*inputs, out=c), lambda: off(c))} | ours
        return Prepared(ours, {"cuBLAS": library(self, inputs, d.clone())}, tilings, searched)


def operands(shape: Shape) -> tuple[list[Any], Any, Any]:
    """What is multiplied, and two results, poisoned. What gates is of variance 1."""
    torch = gpu_torch()
    m, n, k = shape.m, shape.n, shape.k
    a, b, c = gpu.operands(torch, shape.dtype, shape.layout, max(1, shape.batch) * m, n, k)
    inputs = [a, b]
    if shape.batch:
        along_k = (shape.batch, n, k) if shape.layout[1] == "T" else (shape.batch, k, n)
        b = torch.randn(along_k, dtype=a.dtype, device="cuda")
        inputs = [a.view(-1, m, k), b.mT if shape.layout[1] == "T" else b]
        c = c.view(-1, m, n)
    if shape.gated:
        inputs = [a, b * k**-0.5, torch.randn_like(b)]
    c.fill_(math.nan if c.is_floating_point() else -1)
    return inputs, c, c.clone()


def reference(shape: Shape, inputs: Sequence[Any]) -> Any:
    """The result by float32."""
    a, b, *d = (each.float() for each in inputs)
    return gpu_torch().nn.functional.silu(a @ b) * (a @ d[0]) if shape.gated else a @ b


def distance(result: Any, wanted: Any) -> float:
    """Relative Frobenius norm of the difference."""
    return float((result.float() - wanted).norm() / wanted.norm())


def library(shape: Shape, inputs: Sequence[Any], out: Any) -> Callable[[], Any]:
    """cuBLAS through torch; of a gated product, what gates is a launch of its own behind both products."""
    torch = gpu_torch()
    a, b, *d = inputs
    if shape.batch:
        return lambda: torch.bmm(a, b, out=out)
    if not shape.gated:
        return gpu.library(torch, shape.dtype, a, b, out)
    gate, up = (torch.empty_like(out) for _ in range(2))

    def both() -> None:
        torch.mm(a, b, out=gate)
        torch.mm(a, d[0], out=up)
        torch.mul(torch.nn.functional.silu(gate, inplace=True), up, out=out)

    return both


KINDS = {"plain": drawn, "batched": batches, "gated": gated_layers}


def main() -> None:
    options = parser(__doc__, 60)
    options.add_argument("--dtypes", nargs="+", default=("bf16", "f16"), choices=LIMITS)
    options.add_argument("--kind", default="plain", choices=KINDS)
    options.add_argument("--most", type=float, default=math.inf, help="operations of a product")
    args = options.parse_args()
    shapes = KINDS[args.kind](args.count, args.seed, args.dtypes, args.most)
    sample([Problem(*shape) for shape in sorted(shapes)], args)


if __name__ == "__main__":
    main()
