"""Rules for multi-buffers: mbarriers, and copies by TMA.

Requires the facts of `staged`. A copy is issued by one thread of the team; a slot is released by one thread of each
warpgroup when only warpgroup products read it (they are done by all four warps together), else by one of each warp.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, i32
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.codegen.tiles import plain
from tilewright.dialects import mach, stage, xetile
from tilewright.dialects.nesting import enclosing, ops_behind
from tilewright.dialects.stage.multi_buffers import buffer_type, is_by_threads, is_gathered
from tilewright.frozen import frozen
from tilewright.passes.tile_origin import tile_divisors
from tilewright.targets.cuda import lower_cp_async as by_threads
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.coordinates import coordinates
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.exchange import load_fragment
from tilewright.targets.cuda.lowered import END, LACKING, WRAP, Extent, TensorMapOf
from tilewright.targets.cuda.narrow import Narrow, Word
from tilewright.targets.cuda.passes.multi_buffering import ended_dimensions
from tilewright.targets.cuda.reach import MOST_EXTENT
from tilewright.uarch.nvidia import LANES, WARPGROUP

MAX_LINES = 256


@rule("stage.multi_buffer")
def buffer(d: Distributor, op: stage.MultiBufferOp) -> None:
    place = st.allocate(d, op, readers(op, d.team.warps))
    if op.by_threads or is_for_stores(op):
        return
    fills = writers(op, d.team.warps)
    with d.b.when(d.b.cmp("eq", d.thread, 0)):
        for i in range(place.count):
            st.instr(d, "mbarrier.init", st.full(d, place, i), d.b.constant(i32, fills))
            st.instr(d, "mbarrier.init", st.empty(d, place, i), d.b.constant(i32, place.readers))
    if not any(isinstance(o, stage.MultiBufferOp | stage.RolesOp) for o in ops_behind(op)):
        announce_barriers(d)


def announce_barriers(d: Distributor) -> None:
    """Initialised mbarriers are seen by all threads and the copy engine."""
    st.instr(d, "fence.mbarrier_init")
    if st.facts(d).cluster > 1:
        st.instr(d, "cluster.arrive.aligned")
        st.instr(d, "cluster.wait.aligned")
    else:
        d.barrier()


def end_cluster(d: Distributor) -> None:
    """No workgroup ends while another of its cluster may still write to its shared memory."""
    if st.facts(d).cluster > 1:
        st.instr(d, "cluster.arrive")
        st.instr(d, "cluster.wait")


def is_for_stores(op: stage.MultiBufferOp) -> bool:
    return any(isinstance(use.operation, stage.CopyStoreOp) for use in op.result.uses)


def readers(op: stage.MultiBufferOp, warps: int) -> int:
    """Arrivals that free a slot: by warpgroups or warps of the team that waits."""
    for use in op.result.uses:
        if isinstance(use.operation, stage.CopyReleaseOp):
            role = enclosing(use.operation, stage.RoleOp)
            warps = role.warps if role is not None else warps
            break
    return warps // WARPGROUP if by_warpgroups(op.result) else warps


def writers(op: stage.MultiBufferOp, warps: int) -> int:
    """Arrivals that fill a slot: one by the copy engine's thread, of each warp that stores, or thread that gathers."""
    for use in op.result.uses:
        if isinstance(use.operation, stage.LocalStoreOp | stage.GatherIssueOp):
            role = enclosing(use.operation, stage.RoleOp)
            threads = LANES if isinstance(use.operation, stage.GatherIssueOp) else 1
            return threads * (role.warps if role is not None else warps)
    return 1


def by_warpgroups(buffer: SSAValue) -> bool:
    """Do only products of warpgroups read the slots of a multi-buffer?"""
    for use in buffer.uses:
        if isinstance(use.operation, stage.CopyWaitOp):
            for value in use.operation.values:
                if any(not isinstance(u.operation, stage.ProductIssueOp) for u in value.uses):
                    return False
    return True


@rule("stage.dealloc")
def dealloc(d: Distributor, op: stage.DeallocOp) -> None:
    by_threads.dealloc(d, op)


@rule("stage.pipeline_state")
def state(d: Distributor, op: Operation) -> None:
    zero = d.b.constant(i32, 0)
    d.set_scalar(op.results[0], st.state_of(d, zero, zero))


@rule("stage.advance")
def advance(d: Distributor, op: Operation) -> None:
    assert isinstance(op, stage.AdvanceOp) and isinstance(op.result.type, stage.PipelineStateType)
    d.set_scalar(op.result, st.advanced(d, op.state, op.result.type.slots.data))


@rule("stage.copy.issue")
def issue(d: Distributor, op: stage.CopyIssueOp) -> None:
    if is_by_threads(op.buffer):
        by_threads.issue(d, op)
        return
    if st.facts(d).single:
        _issue(d, op)
        return
    with st.elected(d), d.scope():
        _issue(d, op)
    if enclosing(op, stage.RoleOp) is not None:
        st.instr(d, "warp.sync")  # one thread of the warp has waited


def _issue(d: Distributor, op: stage.CopyIssueOp) -> None:
    place = st.place_of(d, op.buffer)
    slot = st.slot_of(d, op.state)
    barrier = st.full(d, place, slot)
    parity = st.parity_of(d, op.state, flipped=True)
    st.instr(d, "mbarrier.wait.parity", st.empty(d, place, slot), parity)
    staged = [st.StagedTile(place, i, slot) for i in range(len(op.tiles))]
    seen = [seen_of(d, op, to) for to in staged]

    def copies(seen: list[Seen]) -> None:
        n = Narrow(d.b)
        size: Word = 0
        for part in seen:
            size = n.plus(size, part.bytes(n))
        with d.scope():
            for to, part in zip(staged, seen, strict=True):
                _leave(d, to, part, barrier)
            st.instr(d, "mbarrier.arrive.expect_tx", barrier, n.value(size))
            for tile, to, part in zip(op.tiles, staged, seen, strict=True):
                _copy(d, tile, to, part, barrier)

    def copy_first(views: list[list[Seen]]) -> None:
        """The first of which all is seen; the last is what is seen."""
        more, *fewer = views
        if not fewer:
            copies(more)
            return
        asked = [
            c for part, whole in zip(seen, more, strict=True) for c in part.conditions(d, whole)
        ]
        met = reduce(d.b.both, asked)
        assert met is not None
        d.b.choose(met, lambda: copies(more), lambda: copy_first(fewer))

    # Conditions at boxes slow their copies, so programs of which more is seen, most of them, ask once for all.
    views = [part.whole for part in seen], [part.whole_lines for part in seen], seen
    copy_first([*map(list, dict.fromkeys(map(tuple, views)))])


Box = tuple[int, int, int]
"""(line, element of the line, byte offset)."""


def boxes(part: stage.PartAttr) -> tuple[list[Box], int]:
    """The boxes that fill a part, and the lines of a box: one box per panel, or equal ones where it has more than 256
    lines.
    """
    lines, length = part.lines
    width = part.swizzle.data // part.itemsize
    each = box_lines(lines)
    found = [
        (line, panel * width, (panel * lines + line) * part.swizzle.data)
        for panel in range(length // width)
        for line in range(0, lines, each)
    ]
    return found, each


def box_lines(lines: int) -> int:
    """Lines of each of the fewest equal boxes that make up so many: all bring the same number of bytes."""
    return next(n for n in range(min(lines, MAX_LINES), 0, -1) if lines % n == 0 and n % 8 == 0)


def _dims(op: xetile.InitTileOp, part: stage.PartAttr) -> list[int]:
    """The dimensions of a tensor map, innermost first (see `TensorMapOf`)."""
    rank = len(op.mixed_offsets)
    if rank == 1:
        return [0, LACKING]
    fast = [rank - 1, rank - 2] if part.row_major else [rank - 2, rank - 1]
    found = [*fast, *reversed(range(rank - 2))]
    return [*found, END, WRAP] if fast[1] in ended_dimensions(op) else found


def tensor_map(
    d: Distributor,
    op: xetile.InitTileOp,
    part: stage.PartAttr,
    lines: int,
    rest: tuple[int, ...] = (),
) -> tuple[SSAValue, list[int]]:
    """The tensor map of an array for boxes of a part; the array's dimensions, innermost first."""
    source = op.source
    assert isinstance(source, BlockArgument)
    dims = _dims(op, part)
    box = (part.swizzle.data // part.itemsize, lines, *(1 for _ in dims[2:]))
    swizzle = part.swizzle.data
    slot = TensorMapOf(source.index, tuple(dims), box, str(part.element_type), swizzle, rest)
    return st.parameter(d, slot, mach.ptr), dims


@frozen
class Seen:
    """How much of a tile is seen, counted from its first line and the first element of a line; what lies behind it is
    not copied. Numbers below 0 and beyond the tile stand for none and all of it.
    """

    part: stage.PartAttr
    lines: Word
    elements: Word
    rest: tuple[int, ...] = ()
    """Of the tensor map of a box that lies in part beyond what is seen; none where all lines are."""
    some: bool = False
    """Is something of each box seen?"""

    @property
    def whole(self) -> Seen:
        """All of the tile."""
        lines, length = self.part.lines
        return Seen(self.part, lines, length)

    @property
    def whole_lines(self) -> Seen:
        """All of the lines that are seen, something of each box."""
        return replace(self, elements=self.part.lines[1], some=bool(self.rest))

    def conditions(self, d: Distributor, other: Seen) -> list[SSAValue]:
        """True where as much is seen as of another, which has all of what it says otherwise."""
        n, (lines, length) = Narrow(d.b), self.part.lines
        least = lines - box_lines(lines) + 1 if other.some else other.lines
        asked = (self.lines, lines, least), (self.elements, length, other.elements)
        return [n.compare(found, "sge", most) for found, all, most in asked if found != all]

    @property
    def width(self) -> int:
        """Elements of a panel's line."""
        return self.part.swizzle.data // self.part.itemsize

    def bytes(self, n: Narrow) -> Word:
        """Of the boxes that are copied."""
        lines, length = self.part.lines
        panels = n.high(
            n.plus(_within(n, self.elements, length), self.width - 1), self.width.bit_length() - 1
        )
        return n.times(n.times(panels, _within(n, self.lines, lines)), self.part.swizzle.data)


def seen_of(d: Distributor, op: stage.CopyIssueOp, to: st.StagedTile) -> Seen:
    part, init = to.attr, op.tiles[to.part].owner
    assert isinstance(init, xetile.InitTileOp), "a copy's tile is made where it is copied"
    lines, length = part.lines
    n = Narrow(d.b)
    along, rest = [length, lines], ()
    found: list[Word] = list(along)
    for dim, array, dimension in op.bounds(to.part):
        place = 0 if (dim == 1) == part.row_major else 1
        # A box's rest is the extent's only where boxes stand at multiples of their lines.
        if place == 1 and tile_divisors(init.result)[0][dim] % box_lines(lines):
            continue
        begin = coordinates(d, init, _dims(init, part)[:2], 0, 0)[place]
        end = _extent(d, array, dimension)
        if isinstance(end, int) and end >= MOST_EXTENT:
            continue
        found[place] = n.minus(end, begin)
        rest = (array.index, dimension) if place == 1 else rest
    return Seen(part, found[1], found[0], rest)


def _extent(d: Distributor, array: BlockArgument, dimension: int) -> Word:
    """Of an array argument of the kernel: below `MOST_EXTENT`, as a launch sees to."""
    assert isinstance(array.type, MemRefType)
    known = array.type.get_shape()[dimension]
    return known if known >= 0 else st.parameter(d, Extent(array.index, dimension, 32), i32)


def _within(n: Narrow, count: Word, most: int) -> Word:
    """A number of lines or elements, from 0 to all of them."""
    if isinstance(count, int):
        return max(0, min(count, most))
    least = n.b.value(arith.MinSIOp(count, n.value(most)))
    return n.b.value(arith.MaxSIOp(least, n.value(0)))


def _copy(d: Distributor, tile: SSAValue, to: st.StagedTile, seen: Seen, barrier: SSAValue) -> None:
    """The boxes of one tile that are seen."""
    op = tile.owner
    assert isinstance(op, xetile.InitTileOp), "a copy's tile is made where it is copied"
    part, (_, length) = to.attr, to.attr.lines
    found, lines = boxes(part)
    map, dims = tensor_map(d, op, part, lines)
    start = to.offset(d)
    n = Narrow(d.b)

    def load(map: SSAValue, line: int) -> None:
        for first, element, offset in found:
            if first == line:
                with (
                    d.b.when(n.compare(seen.elements, "sgt", element)) if bounded else nullcontext()
                ):
                    where = st.pointer(d, n.plus(start, offset))
                    at = coordinates(d, op, dims, line, element)
                    st.instr(d, f"tma.load.{len(dims)}d", where, barrier, map, *at)

    bounded = seen.elements != length
    last = tensor_map(d, op, part, lines, seen.rest)[0] if seen.rest else None
    for line in dict.fromkeys(line for line, _, _ in found):
        if last is None:
            load(map, line)
            continue
        whole = n.compare(seen.lines, "sge", line + lines)
        fits = d.b.value(arith.SelectOp(whole, map, last))
        with nullcontext() if seen.some else d.b.when(n.compare(seen.lines, "sgt", line)):
            load(fits, line)


def _leave(d: Distributor, to: st.StagedTile, seen: Seen, barrier: SSAValue) -> None:
    """Says of what is not copied of a tile that it is undefined from here on, before the barrier can complete."""
    n, part = Narrow(d.b), to.attr
    bounded = seen.elements != part.lines[1]
    if not seen.rest and not bounded:
        return
    found, count = boxes(part)
    swizzle, start = part.swizzle.data, to.offset(d)
    for line, element, offset in found:
        copied = _within(n, n.minus(seen.lines, line), count)
        if bounded:
            here = n.compare(seen.elements, "sgt", element)
            copied = d.b.value(arith.SelectOp(here, n.value(copied), n.value(0)))
        where = st.pointer(d, n.plus(start, n.plus(n.times(copied, swizzle), offset)))
        rest = n.times(n.minus(count, copied), swizzle)
        st.instr(d, "tma.leave", where, barrier, n.value(rest))


@rule("stage.copy.wait")
def wait(d: Distributor, op: stage.CopyWaitOp) -> None:
    if is_by_threads(op.buffer):
        by_threads.wait(d, op)
        return
    place = st.place_of(d, op.buffer)
    slot = st.slot_of(d, op.state)
    parity = st.parity_of(d, op.state)
    st.instr(d, "mbarrier.wait.parity", st.full(d, place, slot), parity)
    if is_gathered(op.buffer):
        st.instr(d, "fence.proxy.async")  # what threads copied is seen by products
    for i, value in enumerate(op.values):
        st.facts(d).staged[value] = st.StagedTile(place, i, slot)


def moved_only(op: Operation | Block) -> stage.ReadOp | None:
    """A read whose value goes to another slot and nowhere else: the put moves it; None if an op is something else."""
    if not isinstance(op, stage.ReadOp):
        return None
    uses = [use.operation for use in op.result.uses]
    return op if len(uses) == 1 and isinstance(uses[0], stage.LocalStoreOp) else None


@rule("stage.read", "stage.read.part")
def read(d: Distributor, op: stage.ReadOp | stage.ReadPartOp) -> None:
    if moved_only(op) is not None:
        return
    place = st.facts(d).staged[op.tile]
    layout = d.assigned(op.result)
    assert layout is not None
    element = plain(place.attr.element_type)
    start = Narrow(d.b).index(place.offset(d))
    at = op.offsets if isinstance(op, stage.ReadPartOp) else ()
    value = load_fragment(d, layout, st.memory_of(place.attr), start, element, at)
    d.set_fragment(op.result, value, layout)


@rule("stage.copy.release")
def release(d: Distributor, op: stage.CopyReleaseOp) -> None:
    if is_by_threads(op.buffer):
        by_threads.release(d)
        return
    place = st.place_of(d, op.buffer)
    b = d.b
    group = LANES
    if by_warpgroups(op.buffer):
        group = LANES * WARPGROUP
    else:
        st.instr(d, "warp.sync")
    first = b.cmp("eq", b.rem(d.thread, group), 0)
    if op.condition is not None:
        first = b.value(arith.AndIOp(first, d.scalar(op.condition)))
    with b.when(first):
        slot = st.slot_of(d, op.state)
        st.instr(d, "mbarrier.arrive", st.empty(d, place, slot), b.constant(i32, 1))


__all__ = ["boxes", "buffer_type", "by_warpgroups", "tensor_map"]
