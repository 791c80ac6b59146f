"""What products of small tiles take whose operands are multiplied where they lie (`lying`): nothing is copied, and the
sums of a block stay in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright import dtypes
from tilewright.targets.cpu.machine import LONGEST, CpuMachine, few_reads, runs_of
from tilewright.targets.cpu.product_kernel import LINE, in_whole, itemsize_of
from tilewright.uarch.products import PlacedProduct

if TYPE_CHECKING:
    from tilewright.targets.cpu.product_cost import PanelCosts

NEAR: Final = 32 << 10
"""Bytes from B's first row to its last at most: the nearest cache keeps them for all rows of A."""
VECTORS: Final = 4
"""Of a row of B at a time at most."""
POINTERS: Final = 12
"""Rows at a time at most: the address of each is in a register."""
LATENCY: Final = 8
"""Vectors of sums that a core adds to at a time: it takes as long for fewer."""


def columns_of(vectors: int) -> list[tuple[int, int, int]]:
    """Of a row of so many vectors those that are multiplied at once: (start, count, times)."""
    return [(0, 3, 1)] if vectors == 3 else runs_of(vectors, VECTORS)


def rows_of(m: CpuMachine, rows: int, vectors: int) -> list[tuple[int, int, int]]:
    """The same of rows, beside so many vectors."""
    return runs_of(rows, max(1, min(POINTERS, m.accumulators // vectors)))


def is_lying(costs: PanelCosts, p: PlacedProduct) -> bool:
    """Is it such a product of vectors, of arrays that nobody packs ahead?"""
    kernel, size = costs.kernel(p.types), itemsize_of(p.types[1])
    near = min(p.k, kernel.depth) * p.b.whole * size <= NEAR
    small = max(p.a.tile, p.b.tile) <= LONGEST and near
    there = p.a.loaded and p.b.loaded and not (p.b.along_k or p.in_loop)
    alone = max(p.reads(p.a), p.reads(p.b)) <= few_reads(costs.threads)
    vectors = kernel.single or (kernel.dots and p.a.along_k)
    return small and there and alone and vectors and dtypes.from_name(p.types[2]).is_float


def lying_costs(costs: PanelCosts, p: PlacedProduct) -> list[tuple[str, float, bool]]:
    """(cause, seconds, of each program) of it: a whole tile of as many k as there are."""
    rates, m, kernel = costs.rates, costs.machine, costs.kernel(p.types)
    size = itemsize_of(p.types[2])
    lanes = m.vector_bytes // size
    added = sum(
        times * turns * max(high * wide, LATENCY)
        for _, wide, times in columns_of(-(-p.b.tile // lanes))
        for _, high, turns in rows_of(m, p.a.tile, wide)
    )
    read = p.k * (p.a.mean * itemsize_of(p.types[0]) + p.b.mean * itemsize_of(p.types[1]))
    sums = p.a.mean * in_whole(p.b.mean * size, LINE)
    return [
        ("products", p.k * added * lanes / (kernel.rate * rates.hertz), True),
        ("copies", read / rates.panels, True),
        ("sums", sums / rates.sums + p.a.mean * rates.row, True),
    ]
