"""Copies by threads: cp.async into a multi-buffer in shared memory.

Every thread copies its part of each tile (`staged.copied_layout`), 16 bytes at a time, or 8 or 4 where lines are only
aligned to them; where several have the same part, the first of them does.
Elements outside of the array, and what lies beyond a ragged line's end, arrive as zeros: the copy gets the number of
bytes to read. A fill is one group of each thread's copies; that all threads have waited for theirs before any reads
them, and are done with the slot that the next fill goes to, is seen to by barriers (`sync.Hazards`).
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import Tile, itemsize, plain
from tilewright.dialects import mach, stage
from tilewright.dialects.movement import result_layout
from tilewright.targets.cuda import access as ac
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor
from tilewright.targets.cuda.exchange import addresses, pointers_of
from tilewright.targets.cuda.narrow import Narrow
from tilewright.targets.cuda.ownership import COPIES
from tilewright.targets.cuda.passes.wgmma_legality import TRANSPOSES, users
from tilewright.targets.cuda.rules_product import StagedOperand


def issue(d: Distributor, op: stage.CopyIssueOp) -> None:
    """The copies of one fill, as one group; none where the op's condition does not hold."""
    place, slot = st.place_of(d, op.buffer), st.slot_of(d, op.state)
    # What the slot held before is read by all.
    d.hazards.reuse(d, place.range)
    runs = None if op.condition is None else d.scalar(op.condition)
    for part, tile in enumerate(op.tiles):
        with d.scope():
            copy(d, tile, st.StagedTile(place, part, slot), runs)
    st.instr(d, "cp.async.commit_group")


def copy(d: Distributor, value: SSAValue, to: st.StagedTile, runs: SSAValue | None = None) -> None:
    """Starts the copies of one tile."""
    b, tile, warps = d.b, d.tile(value), d.team.warps
    assert isinstance(tile, Tile)
    size, facts = itemsize(tile.element), ac.facts_of(value, tile)
    dim, width = ac.vector_width(st.copied_layout(to.attr, warps), tile, facts)
    layout, bytes_ = st.copied_layout(to.attr, warps, width), width * size
    assert bytes_ in COPIES
    whole = ac.divides(width, facts.extents[dim])
    rest = b.minus(b.minus(tile.extents[dim], tile.offsets[dim]), d.coordinates(layout)[dim])
    memory = addresses(layout, st.memory_of(to.attr), size)
    targets = pointers_of(d, memory, _base(d, to))
    constants = layout.register_steps[dim][::width]
    full, none = b.constant(i32, bytes_), b.constant(i32, 0)
    partial: dict[int, SSAValue] = {}
    chunks = ac.chunks(d, tile, layout, facts, width)
    with ac.guarded(d, d.first_replica(layout)):
        for chunk, target, constant in zip(chunks, targets, constants, strict=True):
            count = full
            if not whole:
                c = int(constant)
                if c not in partial:
                    left = b.times(b.min(b.max(b.minus(rest, c), 0), width), size)
                    partial[c] = b.value(arith.IndexCastOp(b.idx(left), i32))
                count = partial[c]
            inside = b.both(runs, chunk.inside)
            if inside is not None:
                count = b.value(arith.SelectOp(inside, count, none))
            b.op(mach.InstrOp(f"nvptx.cp.async.{bytes_}", [target, chunk.pointer, count]))


def _base(d: Distributor, tile: st.StagedTile) -> Idx:
    return Narrow(d.b).index(tile.offset(d))


def wait(d: Distributor, op: stage.CopyWaitOp) -> None:
    """The thread's copies of the fill are done: its tiles are operands in shared memory, which all may read once they
    have met. They do so here where loops or branches read, whose beginning knows nothing of this."""
    st.instr(d, "cp.async.wait_group", n=op.pending)
    place, slot = st.place_of(d, op.buffer), st.slot_of(d, op.state)
    d.hazards.written(place.range)
    if any(user.parent is not op.parent for value in op.values for user in users(value)):
        d.barrier()
    for part, value in enumerate(op.values):
        to = st.StagedTile(place, part, slot)
        element = plain(to.attr.element_type)
        _stage(d, value, StagedOperand(_base(d, to), st.memory_of(to.attr), element, place.range))


def _stage(d: Distributor, value: SSAValue, operand: StagedOperand) -> None:
    """Where a value lies, and its transposes with it."""
    d.in_shared[value] = operand
    for use in value.uses:
        if isinstance(user := use.operation, TRANSPOSES):
            d.skipped.add(user)
            _stage(d, user.results[0], replace(operand, memory=result_layout(user, operand.memory)))


def release(d: Distributor) -> None:
    """Who writes the slot next does so behind a barrier."""
    d.hazards.any_shared = True


def dealloc(d: Distributor, op: stage.DeallocOp) -> None:
    st.instr(d, "cp.async.wait_group", n=0)
    d.shared.release(st.place_of(d, op.buffer).slots)
    d.hazards.any_shared = True
