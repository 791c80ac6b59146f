"""Sharing: how many workgroups compute one program of a launch whose programs do not fill the machine evenly.

The extents that say so are known at the launch only (code is specialised on classes of extents), so a kernel is
compiled as it stands, with a note of its loop (`Work`); a launch asks `choose`, and where that finds that cores would
be idle for long (few programs, or a last round of few), the kernel is compiled again for what it says:

- tiles: the program's tiles are split (`retile`) and given to as many workgroups along x: smaller tiles, every
  operand loaded more often.
- steps: so many iterations of the loop are taken at once (`passes/steps.py`): fewer, longer ones.
- parts: a cluster of so many workgroups does the loop's iterations in turn (`passes/shares.py`): no operand is loaded
  more often, and at the end the workgroups add up their sums.

The cost in clocks has four parts, which hold one another up where they are alike, so that their squares are added:
the loop of one workgroup (copies, products, or what a step takes at least); all copies together from the L2 cache,
which serves neighbours that read the same lines at the same time at once; the arrays from memory; and lines that all
workgroups read at the same time, one after the other. Then comes what it takes to add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot

LEAST_SIDE = 64
"""Rows or columns of a product that are not split further (the rows of one wgmma)."""
MOST_PARTS = 8
"""Workgroups of a cluster that every machine of this kind can start (the portable size)."""
ADD_UP = 3000
"""Clocks of the two meetings of a cluster that adds up its sums, and of the registers' way through shared memory."""
WORTH = 5000
"""Clocks that sharing must save: less is not worth a second compilation of the kernel."""
GAIN = 0.1
"""What part of the time it must save: the cost is no better known."""


@dataclass(frozen=True)
class Work:
    """A kernel's loop of products, as its programs run it: what `choose` needs to know."""

    argument: int
    dimension: int
    """The loop ends at this extent of this array; at this scalar where the dimension is -1."""
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
    steps: bool
    """Can several iterations be taken at once?"""
    row_array: int
    column_array: int
    """Arguments whose last but one and last extents are all rows and columns of the result; -1 if not known."""
    rates: Mapping[str, float]
    """What the machine does (`uarch.sm90.COPY_RATES`)."""


@dataclass(frozen=True)
class Share:
    """How many workgroups compute a program: `tiles` with a part of its tiles each, by `parts` in a cluster."""

    tiles: int = 1
    parts: int = 1
    steps: int = 1
    """Iterations of the loop that are taken at once."""


ALONE = Share()


def choose(
    work: Work, programs: int, end: int, shapes: Sequence[Sequence[int]], multiprocessors: int
) -> Share:
    """The cheapest share for so many programs whose loop ends at `end`, on arrays of these shapes; ALONE unless
    another is worth it."""
    trips = -(-(end - work.start) // work.step)
    if trips < 2 or programs < 1 or not _leaves_idle(programs, multiprocessors):
        return ALONE
    sides = (
        shapes[work.row_array][-2] if work.row_array >= 0 else None,
        shapes[work.column_array][-1] if work.column_array >= 0 else None,
    )
    best, least = ALONE, _clocks(work, ALONE, programs, trips, sides, multiprocessors)
    most = min(least - WORTH, least * (1 - GAIN))
    even = (
        work.steps and (shapes[work.argument][work.dimension] - work.start) % (2 * work.step) == 0
    )
    for share in _shares(work, trips, 2 if even else 1):
        # Clusters do not cross the groups of multiprocessors that the chip is made of.
        room = multiprocessors if share.parts <= 2 else multiprocessors * 7 // 8
        if share.parts == 1 or programs * share.tiles * share.parts <= room:
            cost = _clocks(work, share, programs, trips, sides, multiprocessors)
            if cost < min(least, most):
                best, least = share, cost
    return best


def _leaves_idle(programs: int, multiprocessors: int) -> bool:
    """Are a tenth of all multiprocessors idle, over the rounds in which programs run?"""
    rounds = -(-programs // multiprocessors)
    return rounds * multiprocessors * (1 - GAIN) > programs


def _shares(work: Work, trips: int, steps: int) -> Sequence[Share]:
    """All shares that the kernel's form allows: tiles halve as `retile` halves them, the longer side first."""
    tiles, found = 1, list[Share]()
    while True:
        parts = 1
        while parts <= (MOST_PARTS if work.parts else 1) and 2 * parts <= trips:
            found += [Share(tiles, parts, s) for s in range(1, steps + 1) if 2 * parts * s <= trips]
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
    work: Work,
    share: Share,
    programs: int,
    trips: int,
    sides: tuple[int | None, int | None],
    multiprocessors: int,
) -> float:
    """`sides`: rows and columns of the whole result, where they are known."""
    shape = split_sides(work.rows, work.columns, share.tiles)
    workgroups = programs * share.tiles
    rounds = -(-workgroups // multiprocessors)
    mine = -(-trips // (share.parts * share.steps))
    rates = work.rates
    copied = from_cache = from_memory = turn = 0.0
    for total, own, whole, bytes in zip(
        sides, shape, (work.rows, work.columns), (work.row_bytes, work.column_bytes), strict=True
    ):
        line = bytes / whole
        copied += line * own
        # What lies outside of the array is written to shared memory as zeros, and loaded from nowhere.
        from_cache += line * (own if total is None else min(own, total))
        if total is not None:
            from_memory += line * total
            turn = max(turn, min(workgroups, multiprocessors) / -(-total // own))
    step = max(copied / rates["copy"], work.product_clocks / share.tiles) * share.steps
    step = max(step, rates["step"])
    cache = rates["cache"] / (2 if share.parts > 1 else 1)
    total = hypot(
        rounds * mine * step,
        trips * workgroups * from_cache / cache,
        trips * from_memory / rates["memory"],
        rounds * mine * share.steps * turn * rates["turn"],
    )
    if share.parts > 1:
        total += ADD_UP + 2 * 4 * shape[0] * shape[1] * work.sums / rates["cluster"]
    return total
