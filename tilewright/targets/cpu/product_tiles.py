"""Rows and columns of the tiles of a batch of products, where nobody gave them: the cheapest of many.

The time of each tile is what `product_cost` estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.targets.cpu.product_cost import PanelCosts, in_whole, kernel_for
from tilewright.uarch.products import PlacedProduct, Side

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
over, and of up to 16 rows beside panels no more are multiplied."""
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

    def ways(i: int) -> Iterator[Side]:
        """Tiles that start where panels do, for those are packed once, and no shorter than is worth it. Of those that
        cover the side two: the larger may be whole panels, or be multiplied in another way."""
        extent, shared, (counts, unit, most) = (
            max(extents[i], 1),
            costs.threads if i else 1,
            SHARES[i],
        )
        shares = (in_whole(-(-extent // (shared * n)), unit) for n in counts)
        tried = sorted({*SIDES, *(n for n in shares if n <= most)})
        for before, size in zip((0, 0, *tried), tried, strict=False):
            whole = size >= extent or size % panels[i] == 0
            if before < extent and whole and (size >= LEAST[i] or extent <= 2 * size):
                yield Side(size, extents[i], True, along_k[i])

    def seconds(tile: tuple[Side, Side]) -> float:
        a, b = tile
        programs = batches * a.tiles * b.tiles
        causes = costs.causes([PlacedProduct(types, a, b, k, 1)], programs)
        stored = a.extent * b.extent * store_seconds
        return sum(causes.values()) + -(-programs // costs.threads) * stored

    a, b = min(product(ways(0), ways(1)), key=seconds)
    return a.tile, b.tile
