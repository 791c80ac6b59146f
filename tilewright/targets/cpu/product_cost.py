"""What products take on a CPU, estimated: copies into panels, micro-kernels on them, and memory.

The choices that the target's passes make for a product (`packing`, `roles`, `thin`) are made here for tile sizes that
nobody has compiled yet, and what each of them takes is added up by the rates of the machine's table
(`uarch.cpu.PanelRates`):

    multiplied     whole micro-kernels, ragged edges included
    copied         a side that is read often is packed once, in front; one that is read a few times by each reader
    read in place  few rows of A beside B's rows along k, A's rows beside few columns, again from the second cache; many
                   at once come late; rows of B beside few of A, vectors of which micro-kernels read as they are
    both           a reader copies rows of A while tiles of them are multiplied by the first columns of B: where few
                   threads share memory, it waits for it no longer than for panels
    meanwhile      rows of A that vectors read in place, and C where each few of them are multiplied by all columns
    fetched        rows of B beside few of A, where the second cache holds two blocks of k, while the block before is
                   multiplied: by name, so that nothing is fetched beyond them
    sums           C goes through the second cache once per block of k, and out of it; parts of rows of a large C take
                   longer than whole ones

Whether a cache of the core has what is read again decides its rate: A's block of k beside each panel of B, C, the
panels of either side from program to program. What is not near comes no faster than a core reads memory.

Programs take turns on the cores; each core has to begin. As one takes the next program when it is free, the slower do
fewer of them: a launch takes what it would on equal cores, or, if that is more, a core's share of all programs and what
the last of them do while others wait. Ragged tiles take less, on average or, where there are few rounds, only after
whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from math import ceil, gcd, hypot, log2

from tilewright import dtypes
from tilewright.frozen import frozen
from tilewright.targets.cpu.division import ADDED_BYTES, least_part, parts_of, tasks_of
from tilewright.targets.cpu.lying_cost import is_lying, lying_costs
from tilewright.targets.cpu.machine import (
    BY_ROWS,
    DEEP,
    DEEPER,
    FEW_COPIES,
    FEW_TURNS,
    FEW_USES,
    MANY_TURNS,
    MIN_BYTES,
    MOST_LINES,
    PAGED_BYTES,
    SHARED_BYTES,
    SHARING,
    SPREAD,
    STREAM_BYTES,
    STREAMS,
    STRIP_BYTES,
    CpuMachine,
    among_sets,
    columns_at_once,
    few_reads,
    shallower,
)
from tilewright.targets.cpu.product_kernel import (
    COPIED_BYTES,
    ProductKernel,
    fetched,
    has_rest,
    in_whole,
    is_swapped,
    is_wide,
    itemsize_of,
    kernel_for,
    most_columns,
    padded_in,
    ragged_in,
    result_bytes,
)
from tilewright.targets.cpu.thin_cost import thin_costs
from tilewright.uarch.cpu import PanelRates
from tilewright.uarch.products import Order, PlacedProduct, Side

MANY = 16
"""Threads."""
STRIP = 250
"""Of B, where its rows run along n and one thread packs them for tiles, or multiplies few rows there: what a program's
part of a row costs besides, as so many bytes. Caches fetch what follows it, and nobody reads that in time. (What
follows is the next program's: of several threads another one reads it meanwhile. Two gain nothing.)"""
PARTIAL = 0.5
"""The same of an array that the last cache does not hold, where parts of rows are not whole pages: that much more. (The
rest of a page, too, is what the next threads read.)"""
FEWER = 0.2
"""Times as long as they take, beside half as many panels at once as a micro-kernel of vectors has sums for: it loads
elements of A again for each group of panels."""
BLOCK_BYTES = 6 << 17
"""Of the second cache, for a block of A and C, or the part of it that a panel of B adds to."""
BUFFERED = 0.5
"""Of the time of sums that leave the second cache: what those of small tiles in a buffer take."""
TURNED_BYTES = 3 << 16
"""Of it, for C and C turned round, beside long rows of B (see `roles`): what more there is of them is fetched, written
back and fetched again."""
NEAREST_BYTES = 3 << 14
"""Of the first cache: deeper blocks of few columns come from the second one for each panel of A's rows. Rows that lie
in their array come no faster than that anyway (`in_tiles`)."""
BESIDE_TWO = 4
"""Rows that tiles read where they lie have two of so many lines that a core has under way beside two tiles of the other
side; of each tile more there is one line more."""
PART_SECONDS = 5e-9
"""Of a program's part of a row of B, copied beside few rows of A from an array that the last cache does not hold: it is
on another page than the part before. (On hosts whose memory is virtual twice it takes up to ten times as long.)"""
CROWDED = 0.55
"""Of the rate at which vectors' readers copy rows of B that share sets of the second cache: where 128 of them leave no
room for others they come half as fast."""
WAY_BYTES = 1 << 17
"""Addresses that differ by multiples of it share a set of the second cache: rows whose pitch has much in common with it
do not stay there until they are copied, though they are few bytes."""
PAGE_BYTES = 4096
"""Addresses that differ by multiples of it may share a set of a cache."""


@frozen
class PanelCosts:
    """The model of products (`uarch.products.ProductModel`) of a machine with so many threads."""

    machine: CpuMachine
    threads: int
    rates: PanelRates

    @cached_property
    def _shortest(self) -> Callable[[tuple[str, str, str]], tuple[int, int]]:
        return cache(partial(shortest_part, self.machine))

    @cached_property
    def kernel(self) -> Callable[[tuple[str, str, str]], ProductKernel]:
        return cache(partial(kernel_for, self.machine))

    def causes(self, products: Sequence[PlacedProduct], programs: int) -> Mapping[str, float]:
        """Seconds of a launch by cause."""
        parts, tasks = self._division(products, programs)
        count, each = programs * tasks, -(-parts // tasks)
        share = max(1.0, count / self.threads) + self.rates.uneven * log2(self.threads)
        rounds = max(share, ceil(count / self.threads))
        threads = min(count, self.threads)
        start = rounds * self.rates.program + threads * self.rates.thread
        found = {"products": 0.0, "copies": 0.0, "sums": 0.0, "start": start}
        for p in products:
            if not (p.times and p.k and p.a.mean and p.b.mean):  # no turn, or empty arrays
                continue
            turns = max(rounds, self._long(p, count)) * p.times
            for cause, seconds, per_program in self._costs(p):
                found[cause] += seconds * (turns * each / parts if per_program else 1)
            if parts > 1:
                found["sums"] += turns * each * self._beside(p)
            if tasks > 1:  # whoever adds them up reads what other cores wrote
                sums = 4 * parts * p.a.mean * p.b.mean
                found["sums"] += sums / self.rates.far_panels * ceil(programs / self.threads)
        return found

    def _beside(self, p: PlacedProduct) -> float:
        """Seconds that a part of k takes besides: sums are added up; where tiles are multiplied, rows begin anew."""
        anew = p.a.mean * self.rates.row if self.kernel(p.types).tiles else 0.0
        return ADDED_BYTES * p.a.mean * p.b.mean / self.rates.sums + anew

    def _division(self, products: Sequence[PlacedProduct], programs: int) -> tuple[int, int]:
        """Parts of k, and the tasks that share those of a program (see `parts`)."""
        if (
            len(products) != 1
            or products[0].times != 1
            or not (products[0].a.loaded and products[0].b.loaded)
        ):
            return 1, 1
        (p,) = products
        batches = programs // max(1, p.a.tiles * p.b.tiles)
        least, block = self._shortest(p.types)
        parts, _ = parts_of(batches, p.a.whole, p.b.whole, p.k, least, block)
        return parts, tasks_of(parts, programs, self.threads, self.rates.uneven)

    def _long(self, p: PlacedProduct, programs: int) -> float:
        """Rounds of the programs whose tiles lie in the arrays as a whole, as so many of mean ones."""
        whole, more = programs, 1.0
        for side in (p.a, p.b):
            if side.extent and side.whole % side.extent:
                whole = whole * (side.tiles - 1) // side.tiles
                more *= side.extent / side.mean
        return more * ceil(whole / self.threads)

    @property
    def stream(self) -> float:
        """Bytes per second that each core reads from memory while all do."""
        return min(self.rates.stream, self.rates.memory / self.threads)

    @cached_property
    def _alone(self) -> PanelCosts:
        return replace(self, threads=1)

    def alone(self) -> PanelCosts:
        """See `ProductModel.alone`."""
        return self if self.threads == 1 else self._alone

    def order(self, products: Sequence[PlacedProduct], programs: int) -> Order:
        """The forms in which operands are multiplied where they lie (`CpuMachine.form`), and whether there are too few
        tiles of many rows."""
        forms, idle = list[int | None](), False
        parts, _ = self._division(products, programs)
        for p in products:
            kernel = self.kernel(p.types)
            form = self._form(p, kernel)
            if form == DEEPER and p.k * itemsize_of(p.types[1]) <= kernel.depth:  # one block
                form = None
            if form == DEEPER:
                tiles = -(-p.a.whole // (FEW_TURNS * kernel.rows)) * -(-p.b.whole // kernel.wide)
                idle |= parts * tiles * programs < MANY * p.a.tiles * p.b.tiles
            forms.append(form)
        return Order(tuple(forms), idle)

    def _form(self, p: PlacedProduct, kernel: ProductKernel) -> int | None:
        if not dtypes.from_name(p.types[2]).is_float:
            return None
        a, b = (side.along_k if side.loaded else None for side in (p.a, p.b))
        return self.machine.form(
            (p.a.tile, p.b.tile),
            (a, b),
            tiles=kernel.tiles,
            halves=not kernel.verbatim,
            single=kernel.single and a is True,
            turns=p.in_loop,
        )

    def _costs(self, p: PlacedProduct) -> list[tuple[str, float, bool]]:
        """(cause, seconds, of each program) of a product."""
        kernel, rates = self.kernel(p.types), self.rates
        if is_lying(self, p):
            return lying_costs(self, p)
        form = self._form(p, kernel)
        if form in (0, 1):
            return thin_costs(self, p, form, kernel.tiles)
        macs = kernel.rate * rates.hertz * (rates.tiles if kernel.tiles else 1)
        padded = padded_in(p, kernel)
        swapped, pitch = is_swapped(p, kernel), p.b.whole * itemsize_of(p.types[1])
        few = few_reads(self.threads)
        across = kernel.single and p.reads(p.a) <= few
        across = across and among_sets(p.a.whole * itemsize_of(p.types[0])) >= SPREAD
        in_rows = kernel.verbatim and p.b.tile <= FEW_USES * kernel.wide
        in_rows = in_rows and (p.a.along_k or across)
        in_turns = kernel.single and not p.b.along_k and p.a.tile <= FEW_TURNS * kernel.rows
        lies = p.k * pitch <= SHARED_BYTES and among_sets(pitch) >= SPREAD
        apart = kernel.depth // itemsize_of(p.types[1]) * gcd(pitch, WAY_BYTES)
        crowded = apart > COPIED_BYTES
        held = 2 * p.b.tile * kernel.depth <= STRIP_BYTES and not crowded
        in_time = in_turns and (lies or held)
        by_rows = form == DEEPER
        reach = min(p.k, BY_ROWS * kernel.depth // itemsize_of(p.types[1])) * pitch
        paged = by_rows and not p.b.along_k and reach <= PAGED_BYTES and among_sets(pitch) >= SPREAD
        paged = paged and p.b.extent % kernel.columns == 0 and p.a.tile <= MANY_TURNS * kernel.rows
        wide = swapped or (in_rows and kernel.tiles and p.b.tile <= most_columns(p, kernel))
        strip = BY_ROWS * kernel.depth if by_rows else kernel.depth
        strip = shallower(p.a.tile, p.b.tile, strip) if kernel.tiles else strip
        depth = kernel.depth * DEEP if wide else strip
        size = max(kernel.bytes, itemsize_of(p.types[1]))
        row = in_whole(p.k * size, kernel.step)
        blocks = ceil(row / depth) + has_rest(p, kernel)
        multiplied = row // size * padded[0] * padded[1] / macs
        if kernel.single:
            panels, groups = (ceil(p.b.mean / n) for n in (kernel.columns, kernel.wide))
            multiplied *= 1 + FEWER * (kernel.wide / kernel.columns * groups / panels - 1)
        found = [("products", multiplied, True)]
        sums = 4 * p.a.mean * p.b.mean
        block = 0 if by_rows else kernel.depth * p.a.mean
        more = min(block, block + 4 * p.a.mean * kernel.wide - BLOCK_BYTES)
        if more > 0:  # of A, what comes back from afar for each panel of B
            again = more * blocks * p.b.mean / kernel.wide
            found.append(("copies", again / rates.far_panels, True))
        tile = 4 * p.a.tile * p.b.tile
        stored = p.a.mean * p.b.mean * result_bytes(p.types) if kernel.tiles else 0
        beyond = max(0.0, 1 - BLOCK_BYTES / (tile + block + stored))
        far_sums = rates.far_tile_sums if kernel.tiles else rates.far_sums
        meanwhile = sums * blocks * beyond / far_sums if by_rows else 0.0
        added = 1 / rates.sums if by_rows else (1 - beyond) / rates.sums + beyond / far_sums
        beside = p.a.mean * rates.row
        # What of a tile lies outside of the arrays is cleared.
        beside += (tile - sums) * ((1 - beyond) / rates.panels + beyond / far_sums)
        if kernel.tiles:  # stored from a buffer
            beside += tile * beyond / far_sums + self._parted(p)
        else:
            beside += BUFFERED * ragged_in(p, kernel) * sums / far_sums
        if swapped:  # turned round into it from another
            both = tile + 4 * p.b.tile * in_whole(p.a.tile, kernel.lanes[0])
            room = max(TURNED_BYTES, COPIED_BYTES - p.b.tile * min(depth, row))
            beside += (sums + 3 * max(0, both - room)) / far_sums
        found.append(("sums", sums * blocks * added + beside, True))
        short_runs = p.b.tile <= 2 * kernel.columns and not (kernel.tiles or kernel.dots)
        pack_a = rates.pack_rows if p.a.along_k else rates.pack_columns
        if swapped and p.a.along_k:  # in groups, as the other side is otherwise
            pack_a = rates.pack_runs
        pack_b = rates.pack_lines
        if p.b.along_k:
            pack_b = rates.pack_groups if kernel.tiles else rates.pack_runs
        for side, other, name, in_place, packed in (
            (p.a, p.b, p.types[0], in_rows and not swapped, pack_a),
            (p.b, p.a, p.types[1], swapped, pack_b),
        ):
            size = max(kernel.bytes, itemsize_of(name))
            mine = p.k * side.mean * size
            copied = kernel.tiles and kernel.verbatim and side is p.a and side.along_k
            copied = copied and not swapped and self.threads < SHARING
            copied = copied and among_sets(p.k * size) >= SPREAD
            if side is p.b and side.along_k and short_runs:
                packed = rates.pack_short_runs
            if by_rows and side is p.b:
                # What the second cache does not hold comes back for each panel of A.
                again = max(0.0, 1 - BLOCK_BYTES / (min(depth, p.k * size) * side.extent)) * mine
                meanwhile += other.mean / kernel.rows * again / rates.far_panels
            if by_rows and (side is p.a or (paged and p.reads(side) <= few)):
                pages = p.a.mean * blocks * rates.row_of_a if side is p.a else 0.0
                meanwhile += mine / self.stream + pages
                continue
            if not side.loaded:  # computed from as many sums, written and read again
                made = 2 * (mine + 4 * p.k * side.mean)
                held = made / 2 + p.k * other.mean * size + sums
                far = made * max(0.0, 1 - BLOCK_BYTES / held) / far_sums
                found.append(("copies", mine / rates.pack_rows + far, True))
            elif p.reads(side) > (max(few, FEW_COPIES) if copied else few):
                all_of_it = p.elements(side) * size
                written = all_of_it / rates.shared_writes if self.threads >= SHARING else 0.0
                meeting = rates.meeting if self.threads > 1 else 0.0
                if all_of_it > COPIED_BYTES:  # from memory; A's also go there, which B's rates tell
                    packed = min(packed, self.stream / (2 if side is p.a else 1))
                packing = all_of_it / self.threads / packed
                found.append(("copies", packing + written + meeting, False))
                far = rates.far_panels
                if all_of_it >= SHARED_BYTES:  # written to memory, and read from there
                    far = min(far, self.stream)
                again = self.read(p, side, mine, far, all_of_it)
                if in_rows and not kernel.tiles:  # a panel of B serves many rows that lie
                    meanwhile += again
                else:
                    found.append(("copies", again, True))
                if side is p.a and wide > swapped and padded[1] * min(depth, row) > NEAREST_BYTES:
                    high = kernel.rows // 2 if is_wide(p, kernel) else kernel.rows
                    again = ceil(padded[0] / high) * padded[1] * row / rates.panels
                    found.append(("copies", again, True))
                if kernel.tiles and side is p.b and mine > BLOCK_BYTES:
                    uses = ceil(other.tile / kernel.rows)  # each fetches a part of the panel behind
                    late = max(0.0, 1 - uses * MOST_LINES / kernel.columns)
                    found.append(("copies", late * mine / rates.far_panels, True))
            else:
                runs = side.mean * blocks if side.along_k else p.k
                lines = mine if side.along_k else p.k * fetched(side.mean * size, rates.paired)
                strips = side is p.b and kernel.tiles and not side.along_k
                run = rates.run if side.along_k else rates.run * self.vain
                bytes = lines + (self.torn(p, lines) if strips else runs * run)
                if in_time and side is p.b:
                    far = p.k * pitch > SHARED_BYTES and self.threads < SHARING
                    late = lines / self.stream + (p.k * PART_SECONDS if far else 0.0)
                    late = hypot(multiplied, late) - multiplied
                    near = 0.0 if lies else lines / rates.pack_rows
                    if lies or (p.a.tile + p.b.tile) * kernel.depth > NEAREST_BYTES:
                        near += lines / rates.panels
                    found.append(("copies", late + near, True))
                    continue
                if in_place and not kernel.tiles:
                    # Meanwhile; by later groups of columns from the second cache.
                    late = self._late(side, p.k * size, kernel.depth, sums) if side.along_k else 0.0
                    meanwhile += late * mine / self.stream
                    meanwhile += mine / min(rates.in_place, self.stream)
                    meanwhile += mine * (ceil(other.tile / kernel.wide) - 1) / rates.panels
                    continue
                if in_place:
                    bytes *= min(padded[0], side.whole) / side.mean  # rows of whole tiles
                    # Lines that lie a row apart come no faster from the second cache, when a program reads again.
                    unit = kernel.lanes[1]
                    at_once = columns_at_once(other.tile, unit) if wide else kernel.columns
                    passes = ceil(other.tile / at_once)
                    once = bytes * (2 + at_once // unit) / (rates.in_tiles * BESIDE_TWO)
                    if side is p.a and self.threads < SHARING:  # as those that a reader copies
                        once = min(once, bytes / rates.pack_rows)
                    again = min(once, bytes / rates.panels) if wide else once  # long runs
                    # The programs behind find these rows in the second cache, where they begin at once.
                    first = self._first(p, side, bytes)
                    near = min(once, first / bytes * once + (bytes - first) / rates.far_panels)
                    near, beside = near + (passes - 1) * again, once + multiplied / passes
                    late = first / self.stream - beside
                    found.append(("copies", near + max(0.0, late), True))
                    continue
                far = p.k * side.whole * itemsize_of(name) > COPIED_BYTES
                packed = min(packed, self.stream) if far and not copied else packed
                if crowded and kernel.single and side is p.b and not side.along_k:
                    packed *= CROWDED if far and self.threads < SHARING else 1.0
                found.append(("copies", bytes / packed, True))
                deep = min(strip if side is p.b else kernel.depth, p.k * size)
                block = sums + deep * side.extent
                if block > COPIED_BYTES and not by_rows:  # it comes back from farther
                    speed = rates.far_copies
                    if strips:  # in whole, where it is much larger
                        speed = min(speed, rates.far_panels / min(2.0, block / COPIED_BYTES - 1))
                    found.append(("copies", mine / speed, True))
        found.append(("copies", hypot(multiplied, meanwhile) - multiplied, True))
        return found

    def _parted(self, p: PlacedProduct) -> float:
        """Seconds that storing a program's part of rows of C takes besides. A large C goes past the caches, where parts
        are long. Of a smaller one, a core fetches what follows them, too, which only one that has no rows below them
        writes next; of several threads each leaves that to others."""
        size = result_bytes(p.types)
        whole = p.a.whole * p.b.whole * size
        past = whole >= STREAM_BYTES and p.b.tile * size >= MIN_BYTES[0]
        apart = whole >= STREAM_BYTES or (self.threads == 1 < p.a.tiles and whole >= COPIED_BYTES)
        if past or not apart or p.b.tiles == 1:
            return 0.0
        return p.a.mean * p.b.mean * size / self.rates.parted

    def torn(self, p: PlacedProduct, bytes: float) -> float:
        """What a program's parts of B's rows, so many bytes of them, cost besides, as so many more (see `STRIP`)."""
        size, vain = itemsize_of(p.types[1]), self.vain
        far = p.k * p.b.whole * size > SHARED_BYTES and not _in_pages(p.b, size)
        partial = PARTIAL if far and self.kernel(p.types).tiles else 0.0
        return vain * (p.k * STRIP + partial * bytes)

    @property
    def vain(self) -> float:
        """Of what a core fetches beyond its part of a row, what no other one reads just then."""
        return 1 / self.threads if self.threads >= SHARING else 1.0

    def read(
        self, p: PlacedProduct, side: Side, bytes: float, speed: float, panels: float = 0.0
    ) -> float:
        """Seconds of a program for reading a side where it lies, or its `panels`, so many bytes of all programs."""
        first = self._first(p, side, bytes, panels)
        return first / speed + (bytes - first) / self.rates.panels

    def _first(self, p: PlacedProduct, side: Side, bytes: float, panels: float = 0.0) -> float:
        """What of these is not in a core's second cache yet. Programs follow one another along A's rows: of those on
        one thread the next ones find the same columns of B there, if these are long runs (short ones, a row apart,
        share few of its sets), and A's panels, if it holds all of them beside what a program reads of B."""
        if side is p.b:
            near = (panels or side.along_k) and bytes <= COPIED_BYTES
        else:
            near = 0 < panels <= COPIED_BYTES - p.k * p.b.mean * itemsize_of(p.types[1])
        return bytes * min(1.0, self.threads / p.reads(side)) if near else bytes

    def _late(self, side: Side, pitch: int, run: int, sums: int) -> float:
        """The share of rows read where they lie, `pitch` bytes apart, in runs of one block of k, that caches do not
        have in time. A core fetches a few rows ahead by itself. More are fetched a block of k ahead, and stay in the
        second cache beside the sums until then, if runs do not share its sets."""
        if side.extent <= STREAMS:
            return 0.0
        sets = min(1.0, 2 * run / gcd(pitch, PAGE_BYTES))
        held = 2 * run * side.extent + sums
        return min(1.0, max(self.rates.late, held / (sets * COPIED_BYTES) - 1))


def shortest_part(m: CpuMachine, types: tuple[str, str, str]) -> tuple[int, int]:
    """k of the parts that such products are divided into: at least, and what it is a multiple of."""
    kernel, rates = kernel_for(m, types), m.panel_rates
    rate = kernel.rate * rates.hertz * (rates.tiles if kernel.tiles else 1)
    size = max(kernel.bytes, itemsize_of(types[1]))
    row = rates.row if kernel.tiles else 0.0
    return least_part(rate, rates.sums, row), kernel.depth // size


def _in_pages(side: Side, size: int) -> bool:
    """Are the parts of rows that programs read whole rows, or whole pages?"""
    return side.tiles == 1 or side.tile * size % PAGE_BYTES == side.whole * size % PAGE_BYTES == 0
