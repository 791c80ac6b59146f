"""Rules for multi-buffers: mbarriers, and copies by TMA.

Requires the facts of `staged`. A copy is issued by one thread of the team; a slot is released by one thread of each
warpgroup when only warpgroup products read it (they are done by all four warps together), else by one of each warp.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.codegen.tiles import plain
from tilewright.dialects import mach, stage, xetile
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.layout import Layout
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.blocked import deinterleaved
from tilewright.targets.cuda.coordinates import coordinates
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.exchange import load_fragment
from tilewright.targets.cuda.lowered import TensorMapOf
from tilewright.targets.cuda.narrow import Narrow
from tilewright.uarch.nvidia import LANES, WARPGROUP
from tilewright.uarch.sm90 import smem_tile

MAX_LINES = 256


@rule("stage.multi_buffer")
def buffer(d: Distributor, op: stage.MultiBufferOp) -> None:
    place = st.allocate(d, op, readers(op, d.team.warps))
    if is_for_stores(op):
        return
    fills = writers(op, d.team.warps)
    with d.b.when(d.b.cmp("eq", d.thread, 0)):
        for i in range(place.count):
            st.instr(d, "mbarrier.init", st.full(d, place, i), d.b.constant(i32, fills))
            st.instr(d, "mbarrier.init", st.empty(d, place, i), d.b.constant(i32, place.readers))
    following = op.next_op
    while following is not None and not isinstance(following, stage.MultiBufferOp | stage.RolesOp):
        following = following.next_op
    if following is None:
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
            role = _role_of(use.operation)
            warps = role.warps if role is not None else warps
            break
    return warps // WARPGROUP if by_warpgroups(op.result) else warps


def writers(op: stage.MultiBufferOp, warps: int) -> int:
    """Arrivals that fill a slot: one by the copy engine's thread, or one of each warp that stores."""
    for use in op.result.uses:
        if isinstance(use.operation, stage.LocalStoreOp):
            role = _role_of(use.operation)
            return role.warps if role is not None else warps
    return 1


def _role_of(op: Operation) -> stage.RoleOp | None:
    role = op.parent_op()
    while role is not None and not isinstance(role, stage.RoleOp):
        role = role.parent_op()
    return role


def by_warpgroups(buffer: SSAValue) -> bool:
    """Do only products of warpgroups read the slots of a multi-buffer?"""
    for use in buffer.uses:
        if isinstance(use.operation, stage.CopyWaitOp):
            for value in use.operation.values:
                if any(not isinstance(u.operation, stage.ProductIssueOp) for u in value.uses):
                    return False
    return True


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
    if st.facts(d).single:
        _issue(d, op)
        return
    with st.elected(d), d.scope():
        _issue(d, op)


def _issue(d: Distributor, op: stage.CopyIssueOp) -> None:
    place = st.place_of(d, op.buffer)
    slot = st.slot_of(d, op.state)
    barrier = st.full(d, place, slot)
    parity = st.parity_of(d, op.state, flipped=True)
    st.instr(d, "mbarrier.wait.parity", st.empty(d, place, slot), parity)
    size = sum(part.bytes for part in place.type.parts)
    st.instr(d, "mbarrier.arrive.expect_tx", barrier, d.b.constant(i32, size))
    for i, tile in enumerate(op.tiles):
        _copy(d, tile, st.StagedTile(place, i, slot), barrier)


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


def tensor_map(
    d: Distributor, op: xetile.InitTileOp, part: stage.PartAttr, lines: int
) -> tuple[SSAValue, list[int]]:
    """The tensor map of an array for boxes of a part; the array's dimensions, innermost first."""
    source = op.source
    assert isinstance(source, BlockArgument)
    rank = len(op.mixed_offsets)
    lead = list(reversed(range(max(rank - 2, 0))))
    if rank == 1:
        dims = [0, -1]
    else:
        fast = [rank - 1, rank - 2] if part.row_major else [rank - 2, rank - 1]
        dims = [*fast, *lead]
    box = (part.swizzle.data // part.itemsize, lines, *(1 for _ in lead))
    slot = TensorMapOf(source.index, tuple(dims), box, str(part.element_type), part.swizzle.data)
    return st.parameter(d, slot, mach.ptr), dims


def _copy(d: Distributor, tile: SSAValue, to: st.StagedTile, barrier: SSAValue) -> None:
    """The boxes of one tile."""
    op = tile.owner
    assert isinstance(op, xetile.InitTileOp), "a copy's tile is made where it is copied"
    part = to.attr
    n = Narrow(d.b)
    found, lines = boxes(part)
    map, dims = tensor_map(d, op, part, lines)
    start = to.offset(d)
    for line, element, offset in found:
        where = st.pointer(d, n.plus(start, offset))
        at = coordinates(d, op, dims, line, element)
        st.instr(d, f"tma.load.{len(dims)}d", where, barrier, map, *at)


@rule("stage.copy.wait")
def wait(d: Distributor, op: stage.CopyWaitOp) -> None:
    place = st.place_of(d, op.buffer)
    slot = st.slot_of(d, op.state)
    parity = st.parity_of(d, op.state)
    st.instr(d, "mbarrier.wait.parity", st.full(d, place, slot), parity)
    for i, value in enumerate(op.values):
        st.facts(d).staged[value] = st.StagedTile(place, i, slot)


def memory_of(part: stage.PartAttr) -> Layout:
    """Where the elements of a part lie in its slot."""
    lines, length = part.lines
    memory = smem_tile(lines, length, part.itemsize, part.swizzle.data)
    if part.deinterleaved:
        memory = deinterleaved(memory, 1)
    return memory if part.row_major else memory.permuted((1, 0))


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
    value = load_fragment(d, layout, memory_of(place.attr), start, element, at)
    d.set_fragment(op.result, value, layout)


@rule("stage.copy.release")
def release(d: Distributor, op: stage.CopyReleaseOp) -> None:
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
