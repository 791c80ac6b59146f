"""Loads of products in flight: cp.async into a multi-buffer in shared memory, ahead of the loop.

    scf.for %k { %a = load_tile ..          (before the loop)  copies of iterations 0 .. S-2
                 %b = load_tile ..     ->   scf.for %k, %slot { wait for the oldest; barrier
                 %d = tile_mma %a, %b }         copies of iteration k + S-1 into the slot just freed
                                                %d = products from slot %slot }

A load of a loop's body takes part when products alone use it, as it is or transposed; when its place
follows from the loop's counter and values from outside; when nothing in the kernel writes the array; when
padding is zero; and when its rows are made of aligned chunks of 16 bytes. Elements outside, and what lies
beyond a ragged row's end, arrive as zeros: the copy gets the number of bytes to read. All else about the
loop stays as `rules_control` has it; other loads stay loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import i32
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import Tile, itemsize
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import result_layout
from tilewright.layout import Layout
from tilewright.passes.tile_origin import is_read_only
from tilewright.targets.cuda import access as ac
from tilewright.targets.cuda.distribute import Distributor
from tilewright.targets.cuda.exchange import addresses, extent_bytes, pointers_of
from tilewright.targets.cuda.rules_product import StagedOperand, operand_memory

COPY_BYTES = 16
MOST_STAGES = 4
LEAST_STAGES = 3
"""Buffers of a loop's loads that two workgroups of a multiprocessor need each, to be better than one."""
SPARE = 24 << 10
"""Bytes of shared memory left for what else a loop's body needs."""


@dataclass
class Stream:
    """One load of a loop, and how it goes through shared memory."""

    load: xt.LoadTileOp
    slice: list[Operation]
    """What computes its tile inside of the loop, in order."""
    layout: Layout
    memory: Layout
    bytes: int
    transposes: list[Operation]
    offset: int = 0


@dataclass
class CpAsyncBuffer:
    """The streams of one loop and their common number of slots."""

    loop: scf.ForOp
    streams: list[Stream]
    stages: int


def prepare(d: Distributor, loop: scf.ForOp) -> CpAsyncBuffer | None:
    """The multi-buffer of a loop whose loads can be copied ahead; None where there are none or no room."""
    if d.ownership.stages < 2:
        return None
    streams = [s for op in loop.body.block.ops if (s := _stream(d, loop, op)) is not None]
    if not streams:
        return None
    each = sum(s.bytes for s in streams)
    stages = 0
    for resident in range(d.ownership.resident, 0, -1):
        room = d.shared.room(resident) - SPARE // resident
        stages = min(d.ownership.stages, room // each)
        if stages >= LEAST_STAGES:
            break
    if stages < 2:
        return None
    for s in streams:
        s.offset = d.shared.allocate(stages * s.bytes, "a multi-buffer of copies", op=s.load)
    return CpAsyncBuffer(loop, streams, stages)


def _stream(d: Distributor, loop: scf.ForOp, op: Operation) -> Stream | None:
    if not isinstance(op, xt.LoadTileOp) or len(op.values) != 1 or op.permutation is not None:
        return None
    if op.padding_value != 0 or op.tile_type.memory_space != 0 or not is_read_only(op.tile):
        return None
    transposes = _feeds_products(d, op)
    found = _slice(loop, op.tile)
    layout = d.assigned(op.result)
    if transposes is None or found is None or layout is None:
        return None
    size = itemsize(op.tile_type.element_type)
    dim, run = ac.run_along(layout)
    if run * size < COPY_BYTES:
        return None
    # What is known of the tile decides whether its chunks are whole and aligned.
    with d.scope():
        tile = _tile_at(d, loop, found, op, d.idx(loop.lb))
        facts = ac.facts_of(op.tile, tile)
        wide, width = ac.vector_width(layout, tile, facts)
    if wide != dim or width * size != COPY_BYTES:
        return None
    memory = operand_memory(layout, size)
    if addresses(layout, memory, size).vector * size < COPY_BYTES:
        return None
    need = -(-extent_bytes(memory, size) // 1024) * 1024
    return Stream(op, found, layout, memory, need, transposes)


def _feeds_products(d: Distributor, op: xt.LoadTileOp) -> list[Operation] | None:
    """The transposes between a load and the products that are its only users; None for other users."""
    transposes: list[Operation] = []
    work: list[SSAValue] = [op.result]
    while work:
        value = work.pop()
        for use in value.uses:
            user = use.operation
            if isinstance(user, xt.TileMmaOp) and user.c is not value:
                plan = d.ownership.products.get(user)
                if plan is None or plan.instruction is None or plan.element not in _AS_LOADED:
                    return None
                if itemsize(op.tile_type.element_type) != _AS_LOADED[plan.element]:
                    return None
            elif user.name in ("xetile.transpose", "vector.transpose"):
                transposes.append(user)
                work.append(user.results[0])
            else:
                return None
            if user.parent is not op.parent:
                return None
    return transposes


_AS_LOADED = {"f16": 2, "bf16": 2, "tf32": 4, "i8": 1, "u8": 1, "f64": 8}
"""Element types that instructions take as memory holds them, and their bytes."""


def _slice(loop: scf.ForOp, tile: SSAValue) -> list[Operation] | None:
    """The ops inside a loop that a tile is computed by; None where they need more than its counter."""
    body = loop.body.block
    found: list[Operation] = []
    seen: set[Operation] = set()

    def visit(value: SSAValue) -> bool:
        if isinstance(value, BlockArgument):
            return value.block is not body or value.index == 0
        assert isinstance(value, OpResult)
        op = value.op
        if op.parent is not body or op in seen:
            return op.parent is body or body.find_ancestor_op_in_block(op) is None
        seen.add(op)
        pure = op.name.startswith(("arith.", "index.", "gpu.", "memref.dim")) or isinstance(
            op, xt.InitTileOp
        )
        if not pure or op.regions or not all(visit(v) for v in op.operands):
            return False
        found.append(op)
        return True

    return found if visit(tile) and isinstance(tile.owner, xt.InitTileOp) else None


def _tile_at(
    d: Distributor, loop: scf.ForOp, slice: Sequence[Operation], load: xt.LoadTileOp, at: Idx
) -> Tile:
    """The tile of a load in the iteration whose counter is `at`."""
    d.set_scalar(loop.body.block.args[0], d.b.idx(at))
    for op in slice:
        d.lower(op)
    tile = d.tile(load.tile)
    assert isinstance(tile, Tile)
    return tile


# The loop ---------------------------------------------------------------------------------------


def fill(d: Distributor, buffer: CpAsyncBuffer) -> None:
    """Before the loop: the copies of its first iterations are on their way."""
    loop = buffer.loop
    lo, step = d.idx(loop.lb), d.idx(loop.step)
    for stage in range(buffer.stages - 1):
        if stage == 0 and d.hazards.shared:
            # What the slots held before is read by all.
            d.barrier()
        issue(d, buffer, d.b.plus(lo, d.b.times(step, stage)), stage)


def issue(d: Distributor, buffer: CpAsyncBuffer, counter: Idx, slot: Idx) -> None:
    """The copies of one iteration into one slot, as one group; none beyond the loop's end."""
    b = d.b
    runs = b.cmp("slt", counter, d.idx(buffer.loop.ub))
    for s in buffer.streams:
        with d.scope():
            tile = _tile_at(d, buffer.loop, s.slice, s.load, counter)
            _copy(d, s, tile, b.plus(b.times(slot, s.bytes), s.offset), runs)
    b.op(mach.InstrOp("nvptx.cp.async.commit_group"))


def _copy(d: Distributor, s: Stream, tile: Tile, base: Idx, runs: SSAValue) -> None:
    b = d.b
    size = itemsize(tile.element)
    width = COPY_BYTES // size
    dim, _ = ac.run_along(s.layout)
    facts = ac.facts_of(s.load.tile, tile)
    whole = ac.divides(width, facts.extents[dim])
    rest = b.minus(b.minus(tile.extents[dim], tile.offsets[dim]), d.coordinates(s.layout)[dim])
    targets = pointers_of(d, addresses(s.layout, s.memory, size), base)
    constants = d.registers_at(s.layout)[dim][::width]
    full, none = b.constant(i32, COPY_BYTES), b.constant(i32, 0)
    runs_and = None if b.known_bool(runs) else runs
    partial: dict[int, SSAValue] = {}
    chunks = ac.chunks(d, tile, s.layout, facts, width)
    for chunk, target, constant in zip(chunks, targets, constants, strict=True):
        count = full
        if not whole:
            c = int(constant)
            if c not in partial:
                left = b.times(b.min(b.max(b.minus(rest, c), 0), width), size)
                partial[c] = b.value(arith.IndexCastOp(b.idx(left), i32))
            count = partial[c]
        inside = b.both(runs_and, chunk.inside)
        if inside is not None:
            count = b.value(arith.SelectOp(inside, count, none))
        b.op(mach.InstrOp(f"nvptx.cp.async.{COPY_BYTES}", [target, chunk.pointer, count]))


def begin_iteration(d: Distributor, buffer: CpAsyncBuffer, counter: Idx, slot: SSAValue) -> None:
    """At the top of the body: this iteration's data is there, and the next copies are on their way."""
    b = d.b
    b.op(mach.InstrOp("nvptx.cp.async.wait_group", params={"n": buffer.stages - 2}))
    d.barrier()
    last = b.minus(slot, 1)
    freed = b.select(b.cmp("eq", slot, 0), buffer.stages - 1, last)
    ahead = b.times(d.idx(buffer.loop.step), buffer.stages - 1)
    issue(d, buffer, b.plus(counter, ahead), freed)
    for s in buffer.streams:
        base = b.plus(b.times(slot, s.bytes), s.offset)
        element = d.fragment_type(s.load.result.type, s.layout).element_type
        d.in_shared[s.load.result] = StagedOperand(base, s.memory, element)
        d.skipped.add(s.load)
        for op in s.transposes:
            source = d.in_shared[op.operands[0]]
            memory = result_layout(op, source.memory)
            d.in_shared[op.results[0]] = StagedOperand(base, memory, element)
            d.skipped.add(op)


def next_slot(d: Distributor, buffer: CpAsyncBuffer, slot: SSAValue) -> SSAValue:
    b = d.b
    following = b.plus(slot, 1)
    return b.idx(b.select(b.cmp("eq", following, buffer.stages), 0, following))


def end(d: Distributor, buffer: CpAsyncBuffer) -> None:
    """After the loop: no copy is left in flight, and the memory is free."""
    d.b.op(mach.InstrOp("nvptx.cp.async.wait_group", params={"n": 0}))
    for s in buffer.streams:
        d.shared.release(s.offset)
    d.hazards.any_shared = True
