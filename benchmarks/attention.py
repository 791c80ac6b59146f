"""Attention forward on a GPU: shapes drawn afresh, `ops.attention` beside the faster of torch's cuDNN and flash.

    python -m benchmarks.attention [--count 42] [--seed N] [--rounds 5] [--json FILE] [--workers 12] [--tilings]

Batch times heads is log-uniform from 4 to 256, the length from 128 to 16384 (half of all multiples of 128, the others
as they fall), so that a launch is of at most 2^40 operations; head dimensions 32 to 256, causal or not, bf16 or f16.
With `--tilings` the kernel of `ops` also runs with fixed tile sizes, and "planner" is the best one's time over that of
what was chosen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import tilewright as tw
from benchmarks.sampling import Prepared, Run, parser, sample
from benchmarks.suites import gpu
from benchmarks.suites.gpu_timing import gpu_torch
from tilewright import ops
from tilewright.ops.attention import LOG2_E, attention_kernel

DIMENSIONS = (32, 64, 64, 96, 128, 128, 256)
MOST = 2.0**40
TILINGS = ((64, 64), (64, 128), *((m, n) for m in (128, 192) for n in (64, 80, 96, 112, 128, 176)))
"""BM, BN."""
CHECKED = 256
"""Last queries whose results are compared with float64."""


class Shape(NamedTuple):
    d: int
    causal: bool
    heads: int
    length: int
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.heads}x{self.length}x{self.d}{' causal' if self.causal else ''}"

    @property
    def flops(self) -> float:
        return 4.0 * self.heads * self.length**2 * self.d * (0.5 if self.causal else 1)

    @property
    def limit(self) -> float:
        return 8e-3

    def prepared(self, tiled: bool) -> Prepared:
        """The result is poisoned."""
        torch = gpu_torch()
        kind = getattr(torch, gpu.NAMES[self.dtype])
        q, k, v = (
            torch.randn(self.heads, self.length, self.d, device="cuda", dtype=kind)
            for _ in range(3)
        )
        out, other = torch.full_like(q, math.nan), torch.empty_like(q)

        rows = slice(max(0, self.length - CHECKED), self.length)
        off = partial(gpu.attention_distance, torch, q, k, v, out, self.causal, rows)
        tilings: dict[str, Run] = {}
        for bm, bn in TILINGS if tiled else ():
            launch = attention_kernel[tw.cdiv(self.length, bm), self.heads]
            sizes: dict[str, Any] = {"CAUSAL": self.causal, "D": self.d, "BM": bm, "BN": bn}
            tilings[f"{bm}x{bn}"] = partial(launch, q, k, v, other, LOG2_E / self.d**0.5, **sizes)
        return Prepared(
            {"ops": (lambda: ops.attention(q, k, v, causal=self.causal, out=out), off)},
            {
                name: gpu.torch_attention(torch, f"{name.upper()}_ATTENTION", q, k, v, self.causal)
                for name in ("cuDNN", "flash")
            },
            tilings,
        )


def drawn(count: int, seed: int) -> Iterator[Shape]:
    """So many shapes, the same for the same seed: every dimension in turn, causal or not by chance."""
    draw = random.Random(seed)
    for index in range(count):
        d = DIMENSIONS[index % len(DIMENSIONS)]
        length = round(math.exp(draw.uniform(math.log(128), math.log(16384))))
        length = 128 * math.ceil(length / 128) if draw.random() < 0.5 else length
        most = min(256.0, MOST / (4.0 * length**2 * d))
        heads = round(math.exp(draw.uniform(math.log(4), math.log(max(4.0, most)))))
        yield Shape(d, draw.random() < 0.5, heads, length, draw.choice(("bf16", "f16")))


def main() -> None:
    args = parser(__doc__, 42).parse_args()
    sample(sorted(drawn(args.count, args.seed)), args)


if __name__ == "__main__":
    main()
