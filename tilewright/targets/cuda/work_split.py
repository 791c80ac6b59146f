"""Work splits: how many workgroups compute one program of a launch whose programs do not fill the machine evenly.

The extents that decide it are known at the launch only (code is specialised on classes of extents), so a kernel is
compiled as it stands, with a note of its loop (`LoopWork`); a launch asks `choose`, and where that finds that cores
would be idle for long (few programs, or a last round of few), the kernel is compiled again for what it says:

- tiles: the program's tiles are split (`retile`) and given to as many workgroups along x: smaller tiles, every
  operand loaded more often.
- steps: so many iterations of the loop are taken at once (`passes/k_coarsening.py`): fewer, longer ones.
- parts: a cluster of so many workgroups does the loop's iterations in turn (`passes/split_k.py`): no operand is loaded
  more often, and at the end the workgroups add up their sums, each its part of the columns.

`clocks` is what a launch takes: rounds of programs, an iteration as long as its slowest part (products and the turn
from one multi-buffer's slot to the next, and what threads compute for them, the port of shared memory, copies that are
waited for because few are under way, the L2 cache that serves all workgroups), then the program's own stores and what
it takes to add up; and at least as long as the arrays take from memory. Parts that are alike hold one another up.

Two neighbouring workgroups that both need a tile fetch it from L2 once: their multiprocessors share the way to it.
L2 is in halves, and a multiprocessor reads through its own: what a line's readers take from the other half crosses once
for all that read it at the same time. Of clusters fewer run at once, each workgroup at another k: more of it crosses.

    50 rows by 2048 columns, tiles of 32 x 64      what columns need
        workgroups on their own                    one of two neighbours reads it for both: half of it crosses
        clusters of two                            read twice, and 3/4 of it crosses
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from tilewright.frozen import frozen
from tilewright.targets.cuda.passes.multi_buffering import MAX_STAGES
from tilewright.targets.cuda.passes.raster import GROUP
from tilewright.targets.cuda.passes.wgmma_legality import (
    BUFFERS,
    panel_line,
    panel_of,
    warpgroups_of,
)
from tilewright.targets.cuda.smem import SPARE
from tilewright.uarch.nvidia import LINE, WGMMA_COLUMNS, WGMMA_ROWS
from tilewright.uarch.sm90 import CLUSTERS, MULTIPROCESSORS, SMEM

LEAST_SIDE = WGMMA_ROWS
"""Rows or columns of a product that are not split further (the rows of one wgmma)."""
IDLE = 0.1
"""What part of all multiprocessors must be idle, over the rounds in which programs run."""
WORTH = 600
"""Clocks that sharing must save: less is not worth a second compilation of the kernel."""
GAIN = 0.02
"""What part of the time it must save: the cost is no better known."""
SHORT = 16
"""Bytes of a line in shared memory where no swizzle fits a tile's rows."""
SHORT_COST = 1.42
"""Copies in lines of half the length take this power of two times as long (H200, fitted with the rates)."""


LITTLE = 0.2
"""What part of a launch must be other than products, for other tiles to be thought of."""


Sides: TypeAlias = tuple[int | None, int | None]
"""Rows and columns of a whole result, where they are known."""


@frozen
class LoopWork:
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
    itemsize: int
    """Bytes of the longest element that a product multiplies."""
    product_clocks: float
    """Of one multiprocessor for the products of an iteration."""
    parts: bool
    """Can a cluster share the loop?"""
    steps: bool
    """Can several iterations be taken at once?"""
    stored: int
    """Bytes of an element of the result where the copy engine can store tiles of it; else 0."""
    transposed: bool
    """Is the result stored transposed?"""
    widths: tuple[int, ...]
    """Columns that the instruction can do at a time."""
    row_lines: bool
    """Do lines of the left operand's array run along rows of the result, not along k?"""
    column_lines: bool
    """Do lines of the right operand's run along columns?"""
    put: bool
    """Do threads write right operands to shared memory again, as the instruction reads them?"""
    computed: int
    """Elements of left operands that threads compute in an iteration."""
    row_extent: tuple[int, int]
    """Array argument and dimension that is all rows of the result; (-1, -1) if not known."""
    column_extent: tuple[int, int]
    """The same of its columns."""
    row_axis: int
    """The axis of the grid along which programs take other rows alone; -1 if there is no such one."""
    column_axis: int
    """The same of columns."""
    rows_clipped: bool
    """Are rows beyond those of the result left out of copies?"""
    columns_clipped: bool
    """The same of columns."""
    rates: Mapping[str, float]
    """What the machine does (`uarch.sm90.PRODUCT_RATES`)."""

    def trips(self, end: int) -> int:
        """Iterations of the loop where it ends at `end`."""
        return -(-(end - self.start) // self.step)

    def sides(self, shapes: Sequence[Sequence[int]]) -> Sides:
        """Rows and columns of the whole result for arguments of these shapes, where they are known."""
        (i, rows), (j, columns) = self.row_extent, self.column_extent
        return shapes[i][rows] if i >= 0 else None, shapes[j][columns] if j >= 0 else None


@frozen
class WorkSplit:
    """How many workgroups compute a program: `tiles` with a part of its tiles each, by `parts` in a cluster."""

    tiles: int = 1
    parts: int = 1
    steps: int = 1
    """Iterations of the loop that are taken at once."""
    ahead: bool = False
    """Do loops that read little ask for what several iterations read (`loop_unrolling`)?"""
    numbers: tuple[tuple[int, ...], ...] = ()
    """What programs take for their numbers, where these are others (`passes/program_numbers.py`)."""
    merged: tuple[tuple[int, int], ...] = ()
    """So many programs of the launch along each axis are done by so many others (`passes/merge_programs.py`), where
    programs are others."""


UNSPLIT = WorkSplit()


def choose(
    work: LoopWork, programs: int, end: int, shapes: Sequence[Sequence[int]], multiprocessors: int
) -> WorkSplit:
    """The cheapest share for so many programs whose loop ends at `end`, on arrays of these shapes; ALONE unless
    another is worth it."""
    trips = work.trips(end)
    if trips < 2 or programs < 1 or not _leaves_idle(programs, multiprocessors):
        return UNSPLIT
    sides = work.sides(shapes)
    best, alone = UNSPLIT, clocks(work, UNSPLIT, programs, trips, sides, multiprocessors)
    least = alone
    argument, dimension = work.argument, work.dimension
    length = end if dimension < 0 else shapes[argument][dimension]
    even = work.steps and (length - work.start) % (2 * work.step) == 0
    for split in work_splits(work, programs, trips, multiprocessors, 2 if even else 1):
        cost = clocks(work, split, programs, trips, sides, multiprocessors)
        if cost < least and pays(cost, alone):
            best, least = split, cost
    return best


def pays(cost: float, alone: float) -> bool:
    """Is a cost so far below that of programs on their own that another compilation is worth it?"""
    return cost < min(alone - WORTH, alone * (1 - GAIN))


def may_gain(
    work: LoopWork, split: WorkSplit, programs: int, end: int, sides: Sides, multiprocessors: int
) -> float | None:
    """What a launch takes, where its products, without what lies outside of the arrays, are little of that."""
    m, n = sides
    if m is None or n is None:
        return None
    trips = work.trips(end)
    cost = clocks(work, split, programs, trips, sides, multiprocessors)
    batch = max(1, programs // (-(-m // work.rows) * -(-n // work.columns)))
    tiles = batch * m * n / (work.rows * work.columns)
    products = tiles * trips * work.product_clocks * work.rates["issue"] / multiprocessors
    least = work.rates["start"] + max(products, _from_memory(work, programs, trips, sides))
    return cost if cost - least > max(WORTH, LITTLE * cost) else None


def _leaves_idle(programs: int, multiprocessors: int) -> bool:
    """Is a part of all multiprocessors idle that is worth a thought?"""
    rounds = -(-programs // multiprocessors)
    return rounds * multiprocessors * (1 - IDLE) > programs


def work_splits(
    work: LoopWork,
    programs: int,
    trips: int,
    multiprocessors: int,
    steps: int = 1,
    tiles: bool = True,
) -> Iterator[WorkSplit]:
    """All shares but `UNSPLIT` that the kernel's form and the machine allow: tiles halve as `retile` halves them, the
    longer side first."""
    count = 1
    while True:
        for parts in range(1, min(max(CLUSTERS) if work.parts else 1, trips // 2) + 1):
            room = CLUSTERS.get(parts, 0) * multiprocessors // MULTIPROCESSORS
            if parts == 1 or programs * count <= room:
                most = min(steps, trips // (2 * parts))
                made = (WorkSplit(count, parts, s) for s in range(1, most + 1))
                yield from (s for s in made if s != UNSPLIT and _fits(work, s))
        count *= 2
        if not tiles or min(split_sides(work.rows, work.columns, count)) < LEAST_SIDE:
            return


def _fits(work: LoopWork, split: WorkSplit) -> bool:
    """Can warpgroups do such tiles, and add up their sums through the memory that copies had?"""
    rows, columns = split_sides(work.rows, work.columns, split.tiles)
    if rows % LEAST_SIDE or (columns not in work.widths and columns % work.widths[-1]):
        return False
    if split.parts == 1:
        return True
    slot = _slot_bytes(work, split, rows, columns)
    return 4 * rows * columns <= min(_buffer_bytes(work, rows, columns) // slot, MAX_STAGES) * slot


def finishing(columns: int, size: int) -> int:
    """How many of a cluster of `size` can finish a part each of so many columns of a program's sums."""
    return max(n for n in range(1, size + 1) if n == 1 or columns % (n * WGMMA_COLUMNS) == 0)


def split_sides(rows: int, columns: int, tiles: int) -> tuple[int, int]:
    """Rows and columns of a tile when it is halved until there are `tiles`, the longer side first, rows of equals."""
    while tiles > 1:
        if rows >= columns:
            rows //= 2
        else:
            columns //= 2
        tiles //= 2
    return rows, columns


def clocks(
    work: LoopWork, split: WorkSplit, programs: int, trips: int, sides: Sides, multiprocessors: int
) -> float:
    """What a launch of so many programs takes, each with so many iterations, in clocks of the machine."""
    each = _Iteration(work, split, sides, programs * split.tiles * split.parts <= multiprocessors)
    mine = -(-trips // (split.parts * split.steps))
    own = work.rates["program"] + each.stores

    def together(active: int) -> float:
        """Of workgroups that run at the same time."""
        return mine * _beside(6, each.step, each.cache(active)) + own

    rounds, rest = divmod(programs * split.tiles * split.parts, multiprocessors)
    busy = rounds * together(multiprocessors) + (together(rest) if rest else 0) + each.meeting
    memory = _from_memory(work, programs, trips, sides)
    return work.rates["start"] + _beside(3, busy, memory)


def causes(
    work: LoopWork, split: WorkSplit, programs: int, trips: int, sides: Sides, multiprocessors: int
) -> dict[str, float]:
    """What a launch would take, in clocks, if it were for one cause alone."""
    workgroups = programs * split.tiles * split.parts
    each = _Iteration(work, split, sides, workgroups <= multiprocessors)
    rounds, active = -(-workgroups // multiprocessors), min(workgroups, multiprocessors)
    iterations = rounds * -(-trips // (split.parts * split.steps))
    return {
        "products": iterations * each.product,
        "shared memory": iterations * each.port,
        "computed operands": iterations * each.computing,
        "waiting for copies": iterations * each.waiting,
        "outside of arrays": iterations * each.outside,
        "L2": iterations * each.cache(active),
        "stores and starts": rounds * (work.rates["program"] + each.stores) + work.rates["start"],
        "sums of clusters": each.meeting,
        "memory": _from_memory(work, programs, trips, sides),
    }


class _Iteration:
    """The parts of one iteration, and what a program does besides, in clocks."""

    def __init__(self, work: LoopWork, split: WorkSplit, sides: Sides, at_once: bool):
        """`at_once`: do all workgroups run at the same time, so that the slowest counts?"""
        rates = work.rates
        rows, columns = split_sides(work.rows, work.columns, split.tiles)
        a, b = (
            bytes / whole * own * split.steps
            for bytes, whole, own in (
                (work.row_bytes, work.rows, rows),
                (work.column_bytes, work.columns, columns),
            )
        )
        loaded = a + b
        deep = work.step * split.steps
        lines = (
            panel_line(int(a / deep)) or SHORT if work.row_lines else 0,
            panel_line(int(b / deep)) or SHORT if work.column_lines else 0,
        )
        # What a tile has outside of its array is not fetched; where it is not left out either, the copy engine takes
        # longer to make zeros of it.
        rows_in, _, rows_mean = _placed(sides[0], rows, a)
        columns_in, _, columns_mean = _placed(sides[1], columns, b)
        alone = _fetched_alone(work, split, (rows, columns), sides)
        self.fetched = (a - rows_mean) * alone[0], (b - columns_mean) * alone[1]
        self.alone, self.parts = alone, split.parts
        self.tiles = _count(sides[0], rows), _count(sides[1], columns)
        self.rows_first = work.row_axis <= work.column_axis
        made = (
            _zeros(sides[0], rows, a, deep, work.rows_clipped, lines[0]),
            _zeros(sides[1], columns, b, deep, work.columns_clipped, lines[1]),
        )
        self.made, self.flood = sum(mean for _, mean in made), rates["flood"]
        self.outside = sum(last for last, _ in made) if at_once else self.made
        self.outside /= rates["outside"]
        # A is written and read, B is written, and read again for every 64 rows; where threads write it again, read and
        # written once more, by each of three warpgroups where they cannot share it. Copies in short lines take longer.
        written = a * _lines(lines[0]) + b * _lines(lines[1])
        groups = warpgroups_of([rows])
        again = groups if groups == 3 and columns % 3 else 1
        reads = -(-rows // LEAST_SIDE) + (2 * again if work.put else 0)
        self.port = (written + a + b * reads) / rates["port"]
        self.product = rates["issue"] * work.product_clocks * split.steps / split.tiles
        # Warpgroups take turns: while one waits for the next slot, the products of the others run.
        step = _beside(6, self.product, self.port) + rates["turn"] / groups
        # What they compute for products is beside these but for the first slice: each row of it once for all columns.
        self.computing = rates["compute"] * work.computed * split.steps * rows / work.rows
        step += self.computing
        slot = _slot_bytes(work, split, rows, columns)
        ahead = min(_buffer_bytes(work, rows, columns) // slot, MAX_STAGES) - 1
        arrives = rates["latency"] + loaded / rates["copy"]
        self.waiting = (arrives + step) / max(ahead, 0.5)
        self.step = _beside(6, max(step, self.waiting), self.outside)
        self.out, self.far = rates["cache"], rates["far"]
        stored = rates["engine" if _panels(work, rows, columns) else "threads"] * rows * columns
        ranks = finishing(columns, split.parts)
        self.stores = stored * rows_in * columns_in * work.sums / ranks
        self.stores += rates["panel"] * _panel_count(work, columns) / ranks
        # All of the sums are written to be read, and a part of them is read from each of the others.
        moved = rows * columns * work.sums * (1 + (split.parts - 1) / ranks)
        self.meeting = rates["meet"] + rates["exchange"] * moved if split.parts > 1 else 0.0

    def cache(self, active: int) -> float:
        """L2 serves so many workgroups at the same time."""
        a, b = self.fetched
        rows, columns = _at_once(self.tiles, self.rows_first, active / self.parts)
        # What rows need is read by all programs of a row, less what neighbours fetch for one another.
        crossing = a * _crossing(columns * self.alone[0]) + b * _crossing(rows * self.alone[1])
        fetched = (a + b) / self.out + crossing / self.far
        return _beside(2, active * fetched, active * self.made / self.flood)


def _count(side: int | None, own: int) -> int:
    """Tiles along a side; where it is not known, as many as run side by side."""
    return GROUP if side is None else -(-side // own)


def _at_once(tiles: tuple[int, int], rows_first: bool, programs: float) -> tuple[float, float]:
    """Of a product with so many rows and columns of tiles, those of so many programs that run at once."""
    fast, slow = tiles if rows_first else tiles[::-1]
    beside = min(fast, GROUP, programs)
    deep = min(slow, programs / beside)
    beside = min(fast, programs / deep)
    return (beside, deep) if rows_first else (deep, beside)


def _crossing(readers: float) -> float:
    """What part of reads goes from one half of L2 to the other, where so many read a line at once, each by chance in
    one of the halves: the first that is not in the line's own."""
    readers = max(1.0, readers)
    return (1 - 0.5**readers) / readers


def _placed(extent: int | None, own: int, bytes: float) -> tuple[float, float, float]:
    """What part of a tile's side an extent fills at most, and of the bytes of a tile, those outside of the array: of
    the last tile, and in the mean of all."""
    if extent is None:
        return 1.0, 0.0, 0.0
    count, filled = -(-extent // own), extent / own
    beyond = bytes * (count - filled)
    return min(1.0, filled), beyond, beyond / count


def _zeros(
    extent: int | None, own: int, bytes: float, deep: int, clipped: bool, line: int
) -> tuple[float, float]:
    """Bytes of a tile's side that the copy engine makes zeros of: of the last tile, and in the mean of all. Lines that
    run across k (`line` bytes; else 0) are left out whole or not at all."""
    _, last, mean = _placed(extent, own, bytes)
    if not line:
        return (0.0, 0.0) if clipped else (last, mean)
    if clipped and extent is not None:
        last = -round((bytes - last) / deep) % line * deep
        mean = last / _count(extent, own)
    return last, mean


def _fetched_alone(
    work: LoopWork, split: WorkSplit, tile: tuple[int, int], sides: Sides
) -> tuple[float, float]:
    """What part of its rows' operand, and of its columns', a workgroup fetches as if it had no neighbour."""
    if split.parts > 1:  # a cluster's workgroups are at different k
        return 1.0, 1.0
    if split.tiles > 1:  # neighbours are the halves of the last split
        rows, columns = split_sides(work.rows, work.columns, split.tiles // 2)
        return (1.0, 0.5) if rows >= columns else (0.5, 1.0)
    axes = work.row_axis, work.column_axis
    if min(axes) < 0:
        return 1.0, 1.0
    for side in sorted((0, 1), key=lambda side: axes[side]):
        whole = sides[side]
        run = GROUP if whole is None else min(GROUP, -(-whole // tile[side]))
        if run > 1:  # the last of an odd number has no neighbour
            shared = 1 - run // 2 / run
            return (1.0, shared) if side == 0 else (shared, 1.0)
    return 1.0, 1.0


def _from_memory(work: LoopWork, programs: int, trips: int, sides: Sides) -> float:
    """Clocks that the arrays take from memory, each line once; none where L2 holds them from launch to launch."""
    lines = ((work.row_bytes / work.rows, sides[0]), (work.column_bytes / work.columns, sides[1]))
    held = trips * sum(line * n for line, n in lines if n)
    if sides[0] and sides[1]:  # products of a batch
        held *= max(1, programs / (-(-sides[0] // work.rows) * -(-sides[1] // work.columns)))
    return held / work.rates["memory"] if held > work.rates["resident"] else 0.0


def _lines(line: int) -> float:
    """How many times as long a copy takes as in whole lines: where these run across k, they have so many bytes."""
    return (LINE / line) ** SHORT_COST if line else 1


def _slot_bytes(work: LoopWork, split: WorkSplit, rows: int, columns: int) -> int:
    """What an iteration copies."""
    a = work.row_bytes * rows // work.rows
    return (a + work.column_bytes * columns // work.columns) * split.steps


def _buffer_bytes(work: LoopWork, rows: int, columns: int) -> int:
    """Shared memory for copies: what barriers, and the panels of stores, leave of it."""
    return SMEM - SPARE - _panels(work, rows, columns)


def _panels(work: LoopWork, rows: int, columns: int) -> int:
    """Of these, bytes of the panels; 0 where threads store."""
    panel = panel_of(columns, work.stored, work.transposed)
    return warpgroups_of([rows]) * BUFFERS * panel[0] * panel[1] if panel else 0


def _panel_count(work: LoopWork, columns: int) -> float:
    """How many of them a warpgroup stores, one after the other; 0 where threads store."""
    panel = panel_of(columns, work.stored, work.transposed)
    if panel is None:
        return 0.0
    lines, line = panel
    return columns / lines if work.transposed else columns * work.stored / line


def _beside(power: int, *times: float) -> float:
    """Of things done beside one another: as long as the longest, longer where several take as long."""
    return sum([t**power for t in times]) ** (1 / power)
