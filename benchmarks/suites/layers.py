"""Products as language models have them: shapes drawn afresh, for GPUs and CPUs alike."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import tilewright as tw

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


class Shape(NamedTuple):
    m: int
    n: int
    k: int
    layout: str
    dtype: str
    batch: int = 0
    """Products of a batch; 0 where arrays have no such dimension."""
    gated: bool = False
    """Is it silu(A B) * (A D), D like B?"""

    @property
    def name(self) -> str:
        kind = f"{self.batch}x" if self.batch else "gated " if self.gated else ""
        return f"{self.dtype} {self.layout} {kind}{self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> float:
        return 2.0 * max(1, self.batch) * (1 + self.gated) * self.m * self.n * self.k

    @property
    def kernel(self) -> Any:
        """As a user writes it, for arrays A, B, D of a gated one, and C."""
        return gated if self.gated else batched if self.batch else product

    def grid(self, BM: int, BN: int) -> tuple[int, ...]:
        """Programs of tiles of BM x BN."""
        programs = tw.cdiv(self.m, BM), tw.cdiv(self.n, BN)
        return (*programs, self.batch) if self.batch else programs


def drawn(
    count: int, seed: int, dtypes: Sequence[str] = ("bf16", "f16"), most: float = math.inf
) -> Iterator[Shape]:
    """So many shapes, the same for the same seed; `most`: operations, beyond which one is drawn again."""
    draw = random.Random(seed)
    while count:
        m = round(math.exp(draw.uniform(0, math.log(8192))))
        m = 16 * math.ceil(m / 16) if draw.random() < 0.5 else m
        shape = Shape(m, *draw.choice(LAYERS), draw.choice(("NT", "NN")), draw.choice(dtypes))
        if shape.dtype in ("f8e4m3", "i8"):
            m = max(m, 17) if shape.dtype == "i8" else m
            shape = shape._replace(m=m, layout="NT")
        if shape.flops <= most:
            count -= 1
            yield shape


def gated_layers(
    count: int, seed: int, dtypes: Sequence[str] = ("bf16", "f16"), most: float = math.inf
) -> Iterator[Shape]:
    """So many gated products, of layers that widen, M as `drawn` has it."""
    wide = (shape for shape in drawn(10**9, seed, dtypes, most / 2) if shape.n > 2 * shape.k)
    return (shape._replace(gated=True) for shape in islice(wide, count))


def batches(
    count: int, seed: int, dtypes: Sequence[str] = ("bf16", "f16"), most: float = math.inf
) -> Iterator[Shape]:
    """So many batches, as heads and experts have them: 2 to 256 products, M, N from 16 to 4096 and K from 32 to 4096,
    all log-uniform, M of any size, N and K multiples of 16; at most 2^31 elements of an array."""
    draw = random.Random(seed)

    def some(least: int, most: int, of: int) -> int:
        return of * round(math.exp(draw.uniform(math.log(least), math.log(most))) / of)

    while count:
        batch, m, n, k = some(2, 256, 1), some(16, 4096, 1), some(16, 4096, 16), some(32, 4096, 16)
        shape = Shape(m, n, k, draw.choice(("NT", "NN")), draw.choice(dtypes), batch)
        if shape.flops <= most and batch * max(m * k, k * n, m * n) <= 1 << 31:
            count -= 1
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


@tw.kernel
def batched(
    A: Any, B: Any, C: Any, ACC: tw.constexpr = tw.f32,
    BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto,
):  # fmt: skip
    """C[z] = A[z] B[z]."""
    m, n, z = tw.program_id(0) * BM, tw.program_id(1) * BN, tw.program_id(2)
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[2], BK):
        a = tw.load_tile(tw.init_tile(A, [z, m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [z, k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [z, m, n], (BM, BN)))


@tw.kernel
def gated(
    A: Any, B: Any, D: Any, C: Any, ACC: tw.constexpr = tw.f32,
    BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto,
):  # fmt: skip
    """C = silu(A B) * (A D)."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    gate, up = tw.zeros((BM, BN), ACC), tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        gate = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), gate)
        up = tw.tile_mma(a, tw.load_tile(tw.init_tile(D, [k, n], (BK, BN))), up)
    c = gate * tw.sigmoid(gate) * up
    tw.store_tile(c.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))
