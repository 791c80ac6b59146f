"""Rules for slots that threads fill: operands of products that the program computes (`passes/local_stores`), and lines
that they gather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType, i32
from xdsl.ir import SSAValue

from tilewright.codegen.tiles import ScatteredTile, plain
from tilewright.dialects import stage, xetile
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.layout import Layout, LayoutError
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.access import guarded
from tilewright.targets.cuda.blocked import blocked, deinterleaved
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.exchange import addresses, pointers_of, store_fragment
from tilewright.targets.cuda.lower_cp_async import copy
from tilewright.targets.cuda.lower_multi_buffers import moved_only
from tilewright.targets.cuda.narrow import Narrow
from tilewright.targets.cuda.ownership import anchor, default_layout
from tilewright.targets.cuda.passes.wgmma_legality import sources
from tilewright.targets.cuda.rules_scattered import scattered
from tilewright.targets.cuda.runs import vector_of


@anchor("stage.local_store")
def anchor_local_store(op: stage.LocalStoreOp, warps: int) -> Mapping[SSAValue, Layout]:
    """A tile that is turned on its way from one multi-buffer to another: lanes along its old lines, registers along the
    new.

    So both sides are without bank conflicts: neighbours are read by neighbouring lanes, and written 16 bytes at a time
    to lines next to one another.
    """
    part = buffer_type(op.buffer).parts.data[0]
    if _source_order(op.value) in (None, part.row_major):
        return {}
    fast = 1 if part.row_major else 0
    places = blocked(part.get_shape(), fast, 16 // part.itemsize, warps, 1)
    return {op.value: deinterleaved(places, fast) if part.deinterleaved else places}


@anchor("stage.gather.issue")
def anchor_gather(op: stage.GatherIssueOp, warps: int) -> Mapping[SSAValue, Layout]:
    """Who copies what says who knows where it is."""
    init = op.tile.owner
    assert isinstance(init, xetile.InitTileOp)
    known = [v for v in (init.offset_vector, op.mask) if v is not None]
    part, most = buffer_type(op.buffer).parts.data[0], vector_of(op.tile, op.mask)
    return dict.fromkeys(known, st.copied_layout(part, warps, most))


@rule("stage.gather.issue")
def gather(d: Distributor, op: stage.GatherIssueOp) -> None:
    """Every thread copies its part, and has the mbarrier told when that is done."""
    b, place, slot = d.b, st.place_of(d, op.buffer), st.slot_of(d, op.state)
    to = st.StagedTile(place, 0, slot)
    parity = st.parity_of(d, op.state, flipped=True)
    with d.scope():
        if not isinstance(tile := d.tile(op.tile), ScatteredTile):
            st.instr(d, "mbarrier.wait.parity", st.empty(d, place, slot), parity)
            copy(d, op.tile, to)
            st.instr(d, "cp.async.mbarrier.arrive", st.full(d, place, slot))
            return
        size, width = to.attr.itemsize, vector_of(op.tile, op.mask)
        layout, bytes_ = st.copied_layout(to.attr, d.team.warps, width), width * size
        at = scattered(d, tile, op.mask, layout, once=False)
        memory = addresses(layout, st.memory_of(to.attr), size)
        targets = pointers_of(d, memory, Narrow(d.b).index(to.offset(d)))
        full, none = b.constant(i32, bytes_), b.constant(i32, 0)
        st.instr(d, "mbarrier.wait.parity", st.empty(d, place, slot), parity)
        with guarded(d, d.first_replica(layout)):
            for number, target in enumerate(targets):
                pointer = b.ptr(at.pointer, b.extract(at.offsets, number * width))
                count = b.value(arith.SelectOp(b.extract(at.mask, number * width), full, none))
                st.instr(d, f"cp.async.{bytes_}", target, pointer, count)
        st.instr(d, "cp.async.mbarrier.arrive", st.full(d, place, slot))


def _source_order(value: SSAValue) -> bool | None:
    """Is the staged tile that a value is computed from, one by one, row-major? None where there is none."""
    for owner in sources(value):
        if isinstance(owner, stage.ReadOp) and isinstance(owner.tile.owner, stage.CopyWaitOp):
            wait = owner.tile.owner
            parts = buffer_type(wait.buffer).parts.data
            return parts[list[SSAValue](wait.values).index(owner.tile)].row_major
    return None


@rule("stage.local_store")
def put(d: Distributor, op: stage.LocalStoreOp) -> None:
    """Every thread writes its part, for the matrix unit to see; one of each warp says so."""
    place = st.place_of(d, op.buffer)
    slot = st.slot_of(d, op.state)
    source = moved_only(op.value.owner)
    layout = _layout(d, op.value, place.type.parts.data[0])
    fragment = None if source is not None else d.fragment_of(op.value, layout)
    parity = st.parity_of(d, op.state, flipped=True)
    st.instr(d, "mbarrier.wait.parity", st.empty(d, place, slot), parity)
    part = st.StagedTile(place, 0, slot)
    if source is not None:
        _move(d, st.facts(d).staged[source.tile], part, layout)
    elif fragment is not None:
        store_fragment(d, fragment, st.memory_of(part.attr), Narrow(d.b).index(part.offset(d)))
    st.instr(d, "fence.proxy.async")
    st.instr(d, "warp.sync")
    with d.b.when(d.b.cmp("eq", d.lane, 0)):
        st.instr(d, "mbarrier.arrive", st.full(d, place, slot), d.b.constant(i32, 1))


def _move(d: Distributor, source: st.StagedTile, target: st.StagedTile, layout: Layout) -> None:
    """From one slot to another, vector after vector: few registers hold what is on its way."""
    b, size = d.b, source.attr.itemsize
    element = plain(source.attr.element_type)
    sides: list[tuple[Sequence[SSAValue], int]] = []
    for place in (source, target):
        at = addresses(layout, st.memory_of(place.attr), size)
        start = Narrow(b).index(place.offset(d))
        sides.append((pointers_of(d, at, start), at.vector))
    (reads, few), (writes, many) = sides
    width = max(few, many)
    kinds = [VectorType(element, [n]) for n in (few, many)]  # pyright: ignore
    for first in range(0, layout.registers, width):
        held = d.concatenate(
            [
                b.load(reads[i // few], kinds[0], align=few * size)
                for i in range(first, first + width, few)
            ]
        )
        for i in range(0, width, many):
            value = d.pick(held, range(i, i + many))
            b.store(value, writes[(first + i) // many], align=many * size)


def _layout(d: Distributor, value: SSAValue, part: stage.PartAttr) -> Layout:
    """The layout that a value is kept in, or one whose vectors lie along the slot's lines."""
    size = part.itemsize
    assigned = d.assigned(value)
    if assigned is not None:
        try:
            addresses(assigned, st.memory_of(part), size)
        except LayoutError:
            pass
        else:
            return assigned
    fast = 1 if part.row_major else 0
    return default_layout(part.get_shape(), fast, size, d.team.warps)
