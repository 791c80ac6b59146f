"""Meaning of rings, asynchronous products and roles; `tilewright.reference.engine` keeps their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import stage, xetile
from tilewright.dialects.stage.products import vector_of
from tilewright.dialects.stage.rings import ring_type
from tilewright.reference import access, numerics
from tilewright.reference.engine import FREE, FULL, Copy, Parked, Product, Rings, Slot, poison
from tilewright.reference.machine import Group
from tilewright.reference.meanings.vector import matmul
from tilewright.reference.meanings.xetile import boxes_of, store_tile
from tilewright.reference.numerics import shape_of
from tilewright.reference.program import Builder, Segment, Ways
from tilewright.reference.registry import control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, TileValue, scalar, take


@meaning("stage.ring")
def ring(site: Site, op: stage.RingOp) -> Rings:
    return site.machine.values.get(op.result) or Rings(site.machine, op)


@meaning("stage.cursor")
def cursor(site: Site, op: stage.CursorOp) -> Index:
    return scalar(0)


@meaning("stage.advance")
def advance(site: Site, op: stage.AdvanceOp, cursor: Index) -> Index:
    return cursor + 1


def _row(rows: Array, position: int) -> Any:
    return rows[position if rows.shape[0] > 1 else 0]


Start = Callable[[int, int, int, Slot], None]
"""Begins one instance's fill: its position in the group, its number, the fill, and the slot, which is free."""


def _fill_slots(
    builder: Builder,
    op: stage.CopyIssueOp | stage.PutOp,
    what: str,
    prepare: Callable[[Group], Start],
) -> None:
    """Instances whose slot is free start to fill it; the others wait for it."""
    here, then = Segment(), Segment()
    builder.jump(here)
    builder.start(here)

    def ways(group: Group) -> Ways:
        group.site.op = op
        engine, rings = group.machine.engine, group.machine.values[op.ring]
        fills, ok = group.get(op.cursor), list[int]()
        start = prepare(group)
        for position, instance in enumerate(group.index.tolist()):
            fill = int(_row(fills, position))
            _, slot = rings.slot(instance, fill)
            if slot.state != FREE:
                engine.park(Parked(instance, op, here, f"waits to {what} fill {fill}", rings))
                continue
            start(position, instance, fill, slot)
            ok.append(instance)
        engine.stir()
        return [(then, np.array(ok, np.int64))]

    builder.end(ways)
    builder.start(then)


@control("stage.copy.issue")
def copy_issue(builder: Builder, op: stage.CopyIssueOp) -> None:
    def prepare(group: Group) -> Start:
        engine, rings = group.machine.engine, group.machine.values[op.ring]
        tiles = [group.get(t) for t in op.tiles]

        def start(position: int, instance: int, fill: int, slot: Slot) -> None:
            mine = [take(t, np.array([position])) for t in tiles]
            index = np.array([instance], np.int64)
            engine.issue(Copy(rings, instance, fill, lambda: load(index, mine, group)))

        return start

    def load(index: Index, tiles: list[TileValue], group: Group) -> list[Array]:
        site = group.machine.engine.one(index).site
        site.op = op
        loaded: list[Array] = []
        parts = ring_type(op.ring).parts
        for tile, value, part in zip(tiles, op.tiles, parts, strict=True):
            assert isinstance(value.type, xetile.TileType)
            shape, dtype = value.type.get_shape(), numerics.numpy_type(value.type)
            rows = access.load_boxes(site, boxes_of(tile, shape), dtype, dtype.type(0))
            if part.element_type != value.type.element_type:
                rows = numerics.round_to(rows, part.element_type)
            loaded.append(rows.reshape(shape))
        return loaded

    _fill_slots(builder, op, "start", prepare)


@control("stage.put")
def put(builder: Builder, op: stage.PutOp) -> None:
    def prepare(group: Group) -> Start:
        engine, rings = group.machine.engine, group.machine.values[op.ring]
        values = group.get(op.value)

        def start(position: int, instance: int, fill: int, slot: Slot) -> None:
            slot.fill = fill
            data = np.array(_row(values, position))
            engine.complete(Copy(rings, instance, fill, lambda: [data]))

        return start

    _fill_slots(builder, op, "put", prepare)


@control("stage.copy.wait")
def copy_wait(builder: Builder, op: stage.CopyWaitOp) -> None:
    here, then = Segment(), Segment()
    builder.jump(here)
    builder.start(here)

    def ways(group: Group) -> Ways:
        group.site.op = op
        engine, rings = group.machine.engine, group.machine.values[op.ring]
        engine.stir()
        fills, ok = group.get(op.cursor), list[int]()
        for position, instance in enumerate(group.index.tolist()):
            fill = int(_row(fills, position))
            number, slot = rings.slot(instance, fill)
            if slot.state != FULL or slot.fill != fill:
                engine.park(Parked(instance, op, here, f"waits for fill {fill}", rings))
                continue
            mine = engine.one(np.array([instance], np.int64))
            for value, data in zip(op.values, rings.data, strict=True):
                mine.set(value, data[instance, number][None].copy())
                engine.holds[value, instance] = fill
            slot.values += list(op.values)
            ok.append(instance)
        return [(then, np.array(ok, np.int64))]

    builder.end(ways)
    builder.start(then)


@control("stage.copy.release")
def copy_release(builder: Builder, op: stage.CopyReleaseOp) -> None:
    def release(group: Group) -> None:
        group.site.op = op
        rings, fills = group.machine.values[op.ring], group.get(op.cursor)
        wanted = np.ones(1, bool) if op.condition is None else group.get(op.condition)
        for position, instance in enumerate(group.index.tolist()):
            if bool(_row(wanted, position)):
                fill = int(_row(fills, position))
                group.machine.engine.release(group, rings, instance, fill)

    builder.step(release)


@meaning("stage.read")
def read(site: Site, op: stage.ReadOp, tile: Array) -> Array:
    return tile


@meaning("stage.read.part")
def read_part(site: Site, op: stage.ReadPartOp, tile: Array) -> Array:
    (row, column), (rows, columns) = op.start, shape_of(op.result.type)
    return tile[..., row : row + rows, column : column + columns]


@meaning("stage.store")
def store(site: Site, op: stage.StoreOp, value: Array, tile: TileValue, _: Rings) -> None:
    stored = value if op.transpose is None else value.swapaxes(-1, -2)
    store_tile(site, op, stored, tile)  # pyright: ignore[reportArgumentType]


# Products: a pending value is the number of its product, one per instance.
def _operand(group: Group, value: SSAValue, position: int, instance: int) -> Any:
    """How a product reads an operand when it is done: from the slot that holds it, or as it is now."""
    owner = value.owner
    if isinstance(owner, stage.CopyWaitOp):
        rings: Rings = group.machine.values[owner.ring]
        number, _ = rings.slot(instance, int(_row(group.get(owner.cursor), position)))
        part = list(owner.values).index(value)  # pyright: ignore
        return lambda: rings.data[part][instance, number][None]
    now = _row(group.get(value), position)[None]
    return lambda: now


@control("stage.mma.issue")
def product_issue(builder: Builder, op: stage.ProductIssueOp) -> None:
    type = vector_of(op.result.type)

    def add(a: Array, b: Array, c: Array | None) -> Array:
        a = a.swapaxes(-1, -2) if op.transpose_a is not None else a
        b = b.swapaxes(-1, -2) if op.transpose_b is not None else b
        b = b[..., op.rows, :]
        return matmul(a, b, c, type)

    def issue(group: Group) -> None:
        group.site.op = op
        engine = group.machine.engine
        numbers: list[int] = []
        for position, instance in enumerate(group.index.tolist()):
            a, b = (_operand(group, v, position, instance) for v in (op.a, op.b))
            before, initial = None, None
            if op.c is not None:
                c = _row(group.get(op.c), position)
                before, initial = (int(c), None) if c.ndim == 0 else (None, c[None])
            if initial is not None:
                before = _known(group, instance, initial)
            product = Product(instance, lambda a=a, b=b: (a(), b()), before, add)
            numbers.append(engine.enqueue(product))
        group.set(op.result, np.array(numbers, np.int64))

    builder.step(issue)


def _known(group: Group, instance: int, value: Array) -> int:
    """A value as a product that is done."""
    engine = group.machine.engine
    engine.products.append(Product(instance, lambda: (value, value), None, _first, initial=value))
    return len(engine.products) - 1


def _first(a: Array, b: Array, c: Array | None) -> Array:
    return a


@control("stage.mma.start")
def product_start(builder: Builder, op: stage.ProductStartOp) -> None:
    def start(group: Group) -> None:
        value = group.get(op.value)
        numbers = [
            _known(group, instance, _row(value, position)[None])
            for position, instance in enumerate(group.index.tolist())
        ]
        group.set(op.result, np.array(numbers, np.int64))

    builder.step(start)


@control("stage.mma.wait")
def product_wait(builder: Builder, op: stage.ProductWaitOp) -> None:
    def wait(group: Group) -> None:
        engine = group.machine.engine
        for instance in group.index.tolist():
            engine.finish_products(instance, op.pending.value.data)
        for product, value in zip(op.products, op.values, strict=True):
            unknown = poison(
                (1, *vector_of(value.type).get_shape()), numerics.numpy_type(value.type)
            )
            found = [
                engine.value(int(n)) for n in np.broadcast_to(group.get(product), group.index.shape)
            ]
            group.set(value, np.concatenate([unknown if f is None else f for f in found]))

    builder.step(wait)


@control("stage.roles")
def roles(builder: Builder, op: stage.RolesOp) -> None:
    """All roles start where the op stands; an instance goes on when it has come to the end of each."""
    begins = [Segment() for _ in op.roles]
    after = Segment()
    arrived: dict[tuple[int, int], int] = {}
    builder.end(lambda group: [(begin, group.index) for begin in begins])
    for begin, role in zip(begins, op.roles, strict=True):
        builder.start(begin)
        for inner in role.body.block.ops:
            builder.op(inner)

        def join(group: Group) -> Ways:
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
def worker(site: Site, op: stage.WorkerOp) -> tuple[Index, Index, Index]:
    """The executor launches a workgroup per program, along x a multiple of the cluster."""
    x, y, z = site.batch.grid
    size = stage.cluster_size(site.machine.program.function)
    return site.workgroup // size, scalar(x * y * z // size), site.workgroup % size


@meaning("stage.programs")
def programs(site: Site, op: stage.ProgramsOp) -> Index:
    return scalar(site.machine.context.grid[op.axis.value.data])


@meaning("stage.turn.take", "stage.turn.pass")
def turn(site: Site, op: Operation) -> None:
    """Turns order the warpgroups of one workgroup, whose values are one value here."""
