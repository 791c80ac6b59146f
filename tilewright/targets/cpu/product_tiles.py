"""Rows and columns of the tiles of a batch of products, where nobody gave them: the cheapest of many.

The time of each tile is what `product_cost` estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.targets.cpu.product_kernel import in_whole, kernel_for
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

    def ways(i: int, threads: int) -> Iterator[Side]:
        """Tiles that start where panels do, for those are packed once, and no shorter than is worth it. Of those that
        cover the side two: the larger may be whole panels, or be multiplied in another way."""
        extent, cores = max(extents[i], 1), threads if i else 1
        counts, unit, most = SHARES[i]
        shares = (in_whole(-(-extent // (cores * n)), unit) for n in counts)
        tried = sorted({*SIDES, *(n for n in shares if n <= most)})
        for before, size in zip((0, 0, *tried), tried, strict=False):
            whole = size >= extent or size % panels[i] == 0
            if before < extent and whole and (size >= LEAST[i] or extent <= 2 * size):
                yield Side(size, extents[i], True, along_k[i])

    def form(tile: tuple[Side, Side]) -> int | None:
        return costs.forms([PlacedProduct(types, *tile, k, 1)])[0]

    def seconds(costs: PanelCosts, tile: tuple[Side, Side]) -> float:
        programs = batches * tile[0].tiles * tile[1].tiles
        stored = tile[0].extent * tile[1].extent * store_seconds
        causes = costs.causes([PlacedProduct(types, *tile, k, 1)], programs)
        return sum(causes.values()) + -(-programs // costs.threads) * stored

    def best(costs: PanelCosts, among: Sequence[tuple[Side, Side]]) -> tuple[Side, Side]:
        return min(among, key=partial(seconds, costs))

    def tiles(threads: int) -> list[tuple[Side, Side]]:
        return list(product(ways(0, threads), ways(1, threads)))

    found = tiles(costs.threads)
    if costs.threads > 1 and len({form(tile) for tile in found}) > 1:
        # Sums are added up in the order that is best on one thread: bits do not depend on the threads.
        alone = form(best(replace(costs, threads=1), tiles(1)))
        found = [tile for tile in found if form(tile) == alone]
    a, b = best(costs, found)
    return a.tile, b.tile
