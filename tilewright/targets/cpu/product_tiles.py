"""Rows and columns of the tiles of a batch of products, where nobody gave them: the cheapest of many.

The time of each tile is what `product_cost` estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.targets.cpu.machine import THIN_COLUMNS
from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.targets.cpu.product_kernel import in_whole, kernel_for
from tilewright.uarch.products import Order, PlacedProduct, Side

SIDES = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768),
    *(1024, 2048, 4096),
)
"""Rows and columns that are tried: steps of a quarter and a half between powers of two leave little over where an
extent is cut into as many tiles as there are cores."""
STARTS = (64, 8, 512)
"""Of these, where searches begin: of few rows, of few columns, of both, of neither."""
SHARES = ((1,), 16, 768), ((1, 2, 4), 128, 4096)
"""Rows and columns that are tried besides where nobody gave tiles: so many tiles, of columns for each core, in whole
multiples of a number, up to another. Long rows of B are best read as a whole, few tiles take longest where one is left
over, and of up to 16 rows beside panels no more are multiplied. Vectors' tiles may end where the array does."""
LEAST = (16, 32)
"""Shorter rows and columns only of a side that two of them cover."""


def product_tile(
    costs: PanelCosts,
    shape: tuple[int, int, int, int],
    types: tuple[str, str, str],
    along_k: tuple[bool, bool],
    store_seconds: float,
) -> tuple[int, int]:
    """Rows and columns of the tiles of C for a batch of products of arrays (see `Target.product_tile`).

    `store_seconds`: of an element of the result.
    """
    batches, *extents, k = shape
    kernel = kernel_for(costs.machine, types)
    panels = kernel.rows, kernel.columns

    def ways(i: int, threads: int) -> Iterator[Side]:
        """Tiles that start where panels do, for those are packed once, and no shorter than is worth it. Of those that
        cover the side two: the larger may be whole panels, or be multiplied in another way. Columns that fill most of
        a panel may be, however many tiles cover them up to there."""
        extent, cores = max(extents[i], 1), threads if i else 1
        counts, unit, most = SHARES[i]
        shares = (in_whole(-(-extent // (cores * n)), unit) for n in counts)
        exact = () if kernel.tiles else (in_whole(extent, panels[i]),)
        tried = sorted({*SIDES, *(n for n in (*shares, *exact) if n <= most)})
        panel = kernel.single and i == 1 and 2 * extent > kernel.columns
        wanted = max(extent, THIN_COLUMNS + 1) if panel else extent
        for before, size in zip((0, 0, *tried), tried, strict=False):
            whole = size >= extent or size % panels[i] == 0
            if before < wanted and whole and (size >= LEAST[i] or extent <= 2 * size):
                yield Side(size, extents[i], True, along_k[i])

    def fastest(model: PanelCosts) -> dict[Order, tuple[float, tuple[int, int]]]:
        """Seconds and tile by the order of sums."""
        threads, found = model.threads, dict[Order, tuple[float, tuple[int, int]]]()
        for a, b in product(ways(0, threads), ways(1, threads)):
            placed, programs = PlacedProduct(types, a, b, k, 1), batches * a.tiles * b.tiles
            stored = a.extent * b.extent * store_seconds * -(-programs // threads)
            seconds = sum(model.causes([placed], programs).values()) + stored
            kind = model.order([placed], programs)
            if kind not in found or seconds < found[kind][0]:
                found[kind] = seconds, (a.tile, b.tile)
        return found

    found = fastest(costs)
    # Sums are added up in the order that is best on one thread: bits do not depend on the threads.
    alone = fastest(costs.alone()) if costs.threads > 1 and len(found) > 1 else found
    return found[min(alone, key=lambda order: (order.idle, alone[order]))][1]
