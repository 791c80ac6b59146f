"""What products with a thin side take (`thin`): the other side is multiplied where it lies, and read meanwhile."""

from __future__ import annotations

from math import ceil, hypot
from typing import TYPE_CHECKING

from tilewright.targets.cpu.machine import THIN_RUN, thin_depth
from tilewright.targets.cpu.product_kernel import (
    COPIED_BYTES,
    LINE,
    fetched,
    in_whole,
    itemsize_of,
)
from tilewright.uarch.products import PlacedProduct

if TYPE_CHECKING:
    from tilewright.targets.cpu.product_cost import PanelCosts

THIN_ROWS, THIN_BLOCK = 8, 4
"""Rows of A that are multiplied at once beside few columns, and these columns (`thin`)."""
THIN_SUMS = 64
"""k that is multiplied while vectors of their sums are added up across."""
THIN_NEAR = 1 << 14
"""Bytes of rows of B that are multiplied side by side (`thin`) up to which the rows behind them are fetched by name."""
ALONE_SECONDS = 5e-9
"""Of a vector beyond whole groups of these, besides: nothing fetches its line."""


def thin_costs(
    costs: PanelCosts, p: PlacedProduct, left: int, tiles: bool
) -> list[tuple[str, float, bool]]:
    """(cause, seconds, of each program) of a product whose side `left` (0 is A) is multiplied where it lies; `tiles`
    could multiply it. It is read meanwhile, but where both take alike each waits for the other: they take the root of
    both squares."""
    rates, vector = costs.rates, costs.machine.vector_bytes
    short, long = (p.a, p.b) if left == 1 else (p.b, p.a)
    wide = long.extent * itemsize_of(p.types[left])
    row = short.tile * itemsize_of(p.types[1 - left])
    read: float = p.k * wide
    if not long.along_k:  # in pairs of lines
        read = p.k * fetched(wide, rates.paired)
        read += costs.torn(p, read) if tiles or short.tiles > 1 else costs.vain * p.k * rates.run
    near = read / rates.panels if left == 0 else 0.0
    unpaired = _unpaired(costs, p) if left == 1 and not long.along_k else None
    if unpaired is not None and THIN_RUN * wide > THIN_NEAR:
        read /= rates.long_runs
    read = costs.read(p, long, read, costs.stream)
    packed = p.k * row / rates.pack_rows
    if not short.along_k:  # whole lines, from afar where what others are has been read since
        lines = in_whole(row, LINE) + (rates.run if short.tiles > 1 else 0)
        again = 1.0 if p.k * (lines + wide) > COPIED_BYTES else costs.threads / long.tiles
        packed += p.k * lines / rates.pack_lines * min(1.0, again)
    kernel = costs.kernel(p.types)
    per_clock = kernel.rate if kernel.dots else 2 * vector / max(4, itemsize_of(p.types[2]))
    rate = per_clock * rates.hertz
    block, few, columns, blocks = vector // 4, 1, short.tile, 1
    if left == 0:
        block, few, columns = THIN_ROWS, min(THIN_BLOCK, short.tile), short.extent
        again = block * itemsize_of(p.types[0]) if short.tile > few else 0
        blocks = ceil(p.k / thin_depth(few, kernel.dots, again))
    rate *= rates.inner if long.along_k else costs.machine.in_shares(short.tile)
    depth = in_whole(p.k, vector // 4) + THIN_SUMS * blocks if long.along_k else p.k
    multiplied = depth * in_whole(long.extent, block) * in_whole(columns, few) / rate
    multiplied = hypot(multiplied + near, read) + p.k * (unpaired or 0) * ALONE_SECONDS
    out = p.a.mean * rates.row if left == 1 else 0.0  # as beside panels, which few rows meet
    return [("products", multiplied, True), ("copies", packed, True), ("sums", out, True)]


def _unpaired(costs: PanelCosts, p: PlacedProduct) -> int:
    """Vectors of a row of B's tile, multiplied where it lies, that make no whole group with others."""
    m, lanes = costs.machine, costs.machine.vector_bytes // max(4, itemsize_of(p.types[2]))
    unrolled = m.unrolls(p.a.tile, 1 if costs.kernel(p.types).single else 2)
    group = lanes * m.thin_vectors(p.a.tile, p.b.tile, lanes, unrolled)
    return -(-(p.b.extent % group) // lanes) if group > lanes else 0
