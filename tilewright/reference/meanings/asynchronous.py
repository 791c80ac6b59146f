"""Meaning of multi-buffers, asynchronous products and roles; `tilewright.reference.engine` keeps their state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.dialects import stage
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.dialects.stage.products import vector_of
from tilewright.reference import access, numerics
from tilewright.reference.engine import FREE, FULL, Copy, IssuedProduct, MultiBuffers, poison
from tilewright.reference.machine import Group
from tilewright.reference.meanings.vector import matmul
from tilewright.reference.meanings.xetile import boxes_of, element_addresses, store_tile
from tilewright.reference.numerics import shape_of
from tilewright.reference.program import Segment, SegmentBuilder, Successors, acts
from tilewright.reference.registry import control, meaning
from tilewright.reference.report import finding_at
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, MemRefValue, TileValue, scalar, take
from tilewright.reference.waits import Wait


@meaning("stage.multi_buffer")
def buffer(site: Site, op: stage.MultiBufferOp) -> MultiBuffers:
    return site.machine.values.get(op.result) or MultiBuffers(site.machine, op)


@meaning("stage.pipeline_state")
def pipeline_state(site: Site, op: stage.PipelineStateOp) -> Index:
    return scalar(0)


@meaning("stage.advance")
def advance(site: Site, op: stage.AdvanceOp, pipeline_state: Index) -> Index:
    return pipeline_state + 1


def _row(rows: Array, position: int) -> Any:
    return rows[position if rows.shape[0] > 1 else 0]


def _wanted(group: Group, op: stage.CopyIssueOp | stage.CopyReleaseOp) -> Array:
    """For which instances the op acts at all."""
    return np.ones(1, bool) if op.condition is None else group.get(op.condition)


def _park(
    group: Group,
    op: stage.CopyIssueOp | stage.GatherIssueOp | stage.LocalStoreOp | stage.CopyWaitOp,
    instance: int,
    fill: int,
    state: str,
    what: str,
    again: Segment,
) -> None:
    """An instance waits until the slot of a fill is free, or full of it, and looks again."""
    buffers: MultiBuffers = group.machine.values[op.buffer]
    _, slot = buffers.slot(instance, fill)

    def ready() -> bool:
        return slot.state == state and (state == FREE or slot.fill == fill)

    def why() -> str:
        name = buffers.op.result.name_hint or "buffer"
        return f"of multi-buffer %{name} waits {what} {fill}; {buffers.state(instance)}"

    group.machine.waits.add(Wait(np.array([instance], np.int64), op, ready, again, why))


Read = Callable[[], list[Array]]
"""Gives what comes to a slot."""
Reader = Callable[[Index, Index], Read]
"""Says that of one instance, by its position in the group and its number, one of each."""


def _fill_slots(
    builder: SegmentBuilder,
    op: stage.CopyIssueOp | stage.GatherIssueOp | stage.LocalStoreOp,
    what: str,
    reader: Callable[[Group], Reader],
) -> None:
    """Instances whose slot is free start to fill it, or put what they have there; the others wait for it."""
    here, then = Segment(), Segment()
    builder.jump(here)
    builder.start(here)

    def successors(group: Group) -> Successors:
        group.site.op = op
        engine, buffers = group.machine.engine, group.machine.values[op.buffer]
        fills, ok = group.get(op.state), list[int]()
        wanted = _wanted(group, op) if isinstance(op, stage.CopyIssueOp) else np.ones(1, bool)
        read = reader(group)
        for position, instance in enumerate(group.index.tolist()):
            number = engine.fills.get(instance, 0) + 1
            if not _row(wanted, position):
                engine.fills[instance] = number
                ok.append(instance)
                continue
            fill = int(_row(fills, position))
            _, slot = buffers.slot(instance, fill)
            if slot.state != FREE:
                _park(group, op, instance, fill, FREE, f"to {what} fill", here)
                continue
            engine.fills[instance] = slot.number = number
            one = read(np.array([position]), np.array([instance], np.int64))
            copy = Copy(buffers, instance, fill, one)
            if isinstance(op, stage.LocalStoreOp):
                slot.fill = fill
                engine.complete(copy)
            else:
                engine.issue(copy)
            ok.append(instance)
        engine.stir()
        return [(then, np.array(ok, np.int64))]

    builder.end(successors)
    builder.start(then)


@control("stage.copy.issue")
def copy_issue(builder: SegmentBuilder, op: stage.CopyIssueOp) -> None:
    def reader(group: Group) -> Reader:
        tiles = [group.get(t) for t in op.tiles]
        arrays = {a: group.get(a) for n in range(len(tiles)) for _, a, _ in op.bounds(n)}
        return lambda at, index: partial(load, index, [take(t, at) for t in tiles], arrays, group)

    def load(
        index: Index, tiles: list[TileValue], arrays: dict[BlockArgument, MemRefValue], group: Group
    ) -> list[Array]:
        site = group.machine.engine.one(index).site
        site.op = op
        loaded: list[Array] = []
        parts = buffer_type(op.buffer).parts
        for number, (tile, value, part) in enumerate(zip(tiles, op.tiles, parts, strict=True)):
            shape, dtype = value.type.get_shape(), numerics.numpy_type(value.type)
            rows = access.load_boxes(site, boxes_of(tile, shape), dtype, dtype.type(0))
            if part.element_type != value.type.element_type:
                rows = numerics.round_to(rows, part.element_type)
            loaded.append(rows.reshape(shape))
            for dim, array, dimension in op.bounds(number):
                end = int(arrays[array].sizes[dimension].flat[0] - tile.offsets[dim - 2].flat[0])
                unseen = loaded[-1].swapaxes(0, dim)[max(0, end) :]
                unseen[...] = poison(unseen.shape, unseen.dtype)
        return loaded

    _fill_slots(builder, op, "start", reader)


@control("stage.gather.issue")
def gather_issue(builder: SegmentBuilder, op: stage.GatherIssueOp) -> None:
    def reader(group: Group) -> Reader:
        tiles = group.get(op.tile)
        masks = None if op.mask is None else group.get(op.mask)
        return lambda at, index: partial(load, index, take(tiles, at), take(masks, at), group)

    def load(index: Index, tile: TileValue, mask: Array | None, group: Group) -> list[Array]:
        site = group.machine.engine.one(index).site
        site.op = op
        shape, dtype = op.tile.type.get_shape(), numerics.numpy_type(op.tile.type)
        if not op.tile.type.scattered:
            return [
                access.load_boxes(site, boxes_of(tile, shape), dtype, dtype.type(0)).reshape(shape)
            ]
        address, wanted = element_addresses(site, tile, shape, dtype.itemsize, mask)
        none = np.zeros((1,) * (len(shape) + 1), dtype)
        return [access.gather(site, address, wanted, dtype, none).reshape(shape)]

    _fill_slots(builder, op, "start", reader)


@control("stage.local_store")
def put(builder: SegmentBuilder, op: stage.LocalStoreOp) -> None:
    def reader(group: Group) -> Reader:
        values = group.get(op.value)

        def read(at: Index, _: Index) -> Read:
            data = np.array(take(values, at)[0])
            return lambda: [data]

        return read

    _fill_slots(builder, op, "put", reader)


@control("stage.copy.wait")
def copy_wait(builder: SegmentBuilder, op: stage.CopyWaitOp) -> None:
    here, then = Segment(), Segment()
    builder.jump(here)
    builder.start(here)

    def successors(group: Group) -> Successors:
        group.site.op = op
        engine, buffers = group.machine.engine, group.machine.values[op.buffer]
        engine.stir()
        fills, ok = group.get(op.state), list[int]()
        for position, instance in enumerate(group.index.tolist()):
            fill = int(_row(fills, position))
            number, slot = buffers.slot(instance, fill)
            if slot.state != FULL or slot.fill != fill:
                _park(group, op, instance, fill, FULL, "for fill", here)
                continue
            later = engine.fills[instance] - slot.number
            if later < op.pending:
                text = f"{later} fills came after this one, and {op.pending} may stay pending: it may be one of them"
                group.machine.found(finding_at(op, "error", "multi-buffer misuse", text))
            mine = engine.one(np.array([instance], np.int64))
            for value, data in zip(op.values, buffers.data, strict=True):
                mine.set(value, data[instance, number][None].copy())
                engine.holds[value, instance] = fill
            slot.values += list(op.values)
            ok.append(instance)
        return [(then, np.array(ok, np.int64))]

    builder.end(successors)
    builder.start(then)


@acts("stage.copy.release")
def copy_release(group: Group, op: stage.CopyReleaseOp) -> None:
    buffers, fills, wanted = (
        group.machine.values[op.buffer],
        group.get(op.state),
        _wanted(group, op),
    )
    for position, instance in enumerate(group.index.tolist()):
        if bool(_row(wanted, position)):
            fill = int(_row(fills, position))
            group.machine.engine.release(group, buffers, instance, fill)


@acts("stage.dealloc")
def dealloc(group: Group, op: stage.DeallocOp) -> None:
    buffers = group.machine.values[op.buffer]
    for instance in group.index.tolist():
        if any(slot.state != FREE for slot in buffers.slots[instance]):
            text = f"a multi-buffer in use is given up: {buffers.state(instance)}"
            group.machine.found(finding_at(op, "error", "multi-buffer misuse", text))


@meaning("stage.read")
def read(site: Site, op: stage.ReadOp, tile: Array) -> Array:
    return tile


@meaning("stage.read.part")
def read_part(site: Site, op: stage.ReadPartOp, tile: Array) -> Array:
    (row, column), (rows, columns) = op.offsets, shape_of(op.result.type)
    return tile[..., row : row + rows, column : column + columns]


@meaning("stage.copy.store")
def store(
    site: Site, op: stage.CopyStoreOp, value: Array, tile: TileValue, _: MultiBuffers
) -> None:
    stored = value.swapaxes(-1, -2) if op.transpose else value
    store_tile(site, op, stored, tile)  # pyright: ignore[reportArgumentType]


# Products: a pending value is the number of its product, one per instance.
def _operand(group: Group, value: SSAValue, position: int, instance: int) -> Any:
    """How a product reads an operand when it is done: from the slot that holds it, or as it is now."""
    owner = value.owner
    if isinstance(owner, stage.CopyWaitOp):
        buffers: MultiBuffers = group.machine.values[owner.buffer]
        number, _ = buffers.slot(instance, int(_row(group.get(owner.state), position)))
        part = list(owner.values).index(value)  # pyright: ignore
        return lambda: buffers.data[part][instance, number][None]
    now = _row(group.get(value), position)[None]
    return lambda: now


@acts("stage.mma.issue")
def product_issue(group: Group, op: stage.ProductIssueOp) -> None:
    type, engine = vector_of(op.result.type), group.machine.engine

    def add(a: Array, b: Array, c: Array | None) -> Array:
        a = a.swapaxes(-1, -2) if op.transpose_a else a
        b = b.swapaxes(-1, -2) if op.transpose_b else b
        b = b[..., op.rows, :]
        return matmul(a, b, c, type)

    numbers: list[int] = []
    for position, instance in enumerate(group.index.tolist()):
        a, b = (_operand(group, v, position, instance) for v in (op.a, op.b))
        before, initial = None, None
        if op.c is not None:
            c = _row(group.get(op.c), position)
            before, initial = (int(c), None) if c.ndim == 0 else (None, c[None])
        if initial is not None:
            before = _known(group, instance, initial)
        product = IssuedProduct(instance, lambda a=a, b=b: (a(), b()), before, add)
        numbers.append(engine.enqueue(product))
    group.set(op.result, np.array(numbers, np.int64))


def _known(group: Group, instance: int, value: Array) -> int:
    """A value as a product that is done."""
    engine = group.machine.engine
    engine.products.append(
        IssuedProduct(instance, lambda: (value, value), None, _first, initial=value)
    )
    return len(engine.products) - 1


def _first(a: Array, b: Array, c: Array | None) -> Array:
    return a


@acts("stage.mma.start")
def product_start(group: Group, op: stage.ProductStartOp) -> None:
    value = group.get(op.value)
    numbers = [
        _known(group, instance, _row(value, position)[None])
        for position, instance in enumerate(group.index.tolist())
    ]
    group.set(op.result, np.array(numbers, np.int64))


@acts("stage.mma.wait")
def product_wait(group: Group, op: stage.ProductWaitOp) -> None:
    engine = group.machine.engine
    for instance in group.index.tolist():
        engine.finish_products(instance, op.pending)
    for product, value in zip(op.products, op.values, strict=True):
        unknown = poison((1, *vector_of(value.type).get_shape()), numerics.numpy_type(value.type))
        numbers = np.broadcast_to(group.get(product), group.index.shape)
        found = [engine.value(int(n)) for n in numbers]
        group.set(value, np.concatenate([unknown if f is None else f for f in found]))


@control("stage.roles")
def roles(builder: SegmentBuilder, op: stage.RolesOp) -> None:
    """All roles start where the op stands; an instance goes on when it has come to the end of each."""
    begins = [Segment() for _ in op.roles]
    after = Segment()
    arrived: dict[tuple[int, int], int] = {}
    builder.end(lambda group: [(begin, group.index) for begin in begins])
    for begin, role in zip(begins, op.roles, strict=True):
        builder.start(begin)
        for inner in role.body.block.ops:
            builder.op(inner)

        def join(group: Group) -> Successors:
            done: list[int] = []
            for instance in group.index.tolist():
                key = (id(group.machine), instance)
                arrived[key] = arrived.get(key, 0) + 1
                if arrived[key] == len(begins):
                    del arrived[key]
                    done.append(instance)
            return [(after, np.array(done, np.int64))]

        builder.end(join)
    builder.start(after)


@meaning("stage.worker")
def worker(site: Site, op: stage.WorkerOp) -> tuple[Index, Index]:
    """The executor launches a workgroup per program."""
    return site.workgroup, scalar(prod(site.batch.grid))


@meaning("stage.programs")
def programs(site: Site, op: stage.ProgramsOp) -> Index:
    return scalar(site.machine.context.grid[op.axis])


@meaning("stage.ping_pong.acquire", "stage.ping_pong.release", "stage.sched_barrier")
def turn(site: Site, op: Operation) -> None:
    """Turns order the warpgroups of one workgroup, whose values are one value here; ops are done in their order."""
