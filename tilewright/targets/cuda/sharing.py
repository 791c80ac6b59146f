"""Sharing: how many workgroups compute one program of a launch that has fewer programs than the machine has cores.

The extents that say so are known at the launch only (code is specialised on classes of extents), so a kernel is
compiled as it stands, with a note of its loop (`Work`); the first launch that would leave cores idle for long asks
`choose`, and compiles the kernel again for what it says:

- tiles: the program's tiles are split (`retile`) and given to as many workgroups along x: smaller tiles, every
  operand loaded more often.
- parts: a cluster of so many workgroups does the loop's iterations in turn (`passes/shares.py`): no operand is loaded
  more often, and at the end the workgroups add up their sums.

The cost is the time of the busiest workgroup in clocks: its loop's loads at the rate of one multiprocessor or its
products, whichever is slower; the whole machine's loads at the rate of the L2 cache; and the adding up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_SIDE = 64
"""Rows or columns of a product that are not split further (the rows of one wgmma)."""
MOST_PARTS = 8
"""Workgroups of a cluster that every machine of this kind can start (the portable size)."""
ADD_UP = 3000
"""Clocks of the two meetings of a cluster that adds up its sums, and of the registers' way through shared memory."""
WORTH = 5000
"""Clocks that sharing must save: less is not worth a second compilation of the kernel."""


@dataclass(frozen=True)
class Work:
    """A kernel's loop of products, as its programs run it: what `choose` needs to know."""

    argument: int
    dimension: int
    """The loop ends at this extent of this array."""
    start: int
    step: int
    rows: int
    columns: int
    """Of the loop's sums; a program holds `sums` of this shape."""
    sums: int
    row_bytes: int
    column_bytes: int
    """Loaded in an iteration, in lines along k: what rows of A and what columns of B need."""
    product_clocks: float
    """Of one multiprocessor for the products of an iteration."""
    parts: bool
    """Can a cluster share the loop?"""
    row_array: int
    column_array: int
    """Arguments whose last but one and last extents are all rows and columns of the result; -1 if not known."""
    rates: tuple[float, float, float]
    """Bytes per clock: of one multiprocessor's copies, of the L2 cache, of a workgroup that reads others' sums."""


@dataclass(frozen=True)
class Share:
    """How many workgroups compute a program: `tiles` with a part of its tiles each, by `parts` in a cluster."""

    tiles: int = 1
    parts: int = 1


ALONE = Share()


def choose(
    work: Work, programs: int, shapes: Sequence[Sequence[int]], multiprocessors: int
) -> Share:
    """The cheapest share for so many programs on arrays of these shapes; ALONE unless another is worth it."""
    trips = -(-(shapes[work.argument][work.dimension] - work.start) // work.step)
    if trips < 2 or programs < 1 or 2 * programs > multiprocessors:
        return ALONE
    # Rows and columns outside an array are written to shared memory as zeros, and loaded from nowhere.
    rows = columns = 1.0
    if work.row_array >= 0:
        rows = min(1.0, shapes[work.row_array][-2] / work.rows)
    if work.column_array >= 0:
        columns = min(1.0, shapes[work.column_array][-1] / work.columns)
    real = rows, columns
    best, least = ALONE, _clocks(work, ALONE, programs, trips, real)
    most = least - WORTH
    for share in _shares(work, trips):
        # Clusters do not cross the groups of multiprocessors that the chip is made of.
        room = multiprocessors if share.parts <= 2 else multiprocessors * 7 // 8
        if programs * share.tiles * share.parts <= room:
            cost = _clocks(work, share, programs, trips, real)
            if cost < min(least, most):
                best, least = share, cost
    return best


def _shares(work: Work, trips: int) -> Sequence[Share]:
    """All shares that the kernel's form allows: tiles halve as `retile` halves them, the longer side first."""
    tiles, found = 1, list[Share]()
    while True:
        parts = 1
        while parts <= (MOST_PARTS if work.parts else 1) and 2 * parts <= trips:
            found.append(Share(tiles, parts))
            parts *= 2
        tiles *= 2
        if min(split_sides(work.rows, work.columns, tiles)) < LEAST_SIDE:
            return found


def split_sides(rows: int, columns: int, tiles: int) -> tuple[int, int]:
    """Rows and columns of a tile when it is halved until there are `tiles`, the longer side first, rows of equals."""
    while tiles > 1:
        if rows >= columns:
            rows //= 2
        else:
            columns //= 2
        tiles //= 2
    return rows, columns


def _clocks(
    work: Work, share: Share, programs: int, trips: int, real: tuple[float, float]
) -> float:
    """`real`: what part of the programs' rows and columns lies in the arrays."""
    rows, columns = split_sides(work.rows, work.columns, share.tiles)
    of_rows, of_columns = (
        work.row_bytes * rows / work.rows,
        work.column_bytes * columns / work.columns,
    )
    loaded = of_rows + of_columns
    from_cache = of_rows * real[0] + of_columns * real[1]
    mine = -(-trips // share.parts)
    copies, cache, cluster = work.rates
    loop = mine * max(loaded / copies, work.product_clocks / share.tiles)
    everyone = trips * programs * share.tiles * from_cache / cache
    total = max(loop, everyone)
    if share.parts > 1:
        held = 4 * rows * columns * work.sums
        total += ADD_UP + 2 * held / cluster
    return total
