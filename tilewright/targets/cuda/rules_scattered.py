"""Gather, scatter and atomics: element by element, each under its own mask; in vectors where `runs` finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType, bf16, f16, f32, i32
from xdsl.dialects.vector import BitcastOp, BroadcastOp
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import index
from tilewright.codegen.tiles import ScatteredTile, itemsize
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import vector_type
from tilewright.frozen import frozen
from tilewright.layout import Layout
from tilewright.targets.cuda import access as ac
from tilewright.targets.cuda.blocked import run_along
from tilewright.targets.cuda.distribute import Distributor, Fragment, producer, rule
from tilewright.targets.cuda.exchange import through_shared
from tilewright.targets.cuda.rules_memory import place_of, sums_of
from tilewright.targets.cuda.runs import vector_of


@frozen
class ElementOffsets:
    """Byte offsets from `pointer` of a fragment's elements, and which of them take part."""

    pointer: SSAValue
    offsets: SSAValue
    mask: SSAValue


def scattered(
    d: Distributor, tile: ScatteredTile, mask: SSAValue | None, layout: Layout, *, once: bool
) -> ElementOffsets:
    """The elements of a scattered tile in `layout`. `once`: of replicas the first takes part only."""
    b = d.b
    total = d.fragment_of(tile.offsets, layout).value
    type = vector_type(total)
    if type.element_type != index:
        type = VectorType(index, type.get_shape())
        total = b.value(arith.IndexCastOp(total, type))
    on = b.value(arith.CmpiOp(total, b.constant(type, 0), "sge"))
    limit = b.idx(tile.count)
    limits = b.value(BroadcastOp(limit, type))
    on = b.value(arith.AndIOp(on, b.value(arith.CmpiOp(total, limits, "slt"))))
    if mask is not None:
        on = b.value(arith.AndIOp(on, d.fragment_of(mask, layout).value))
    if once and (first := d.first_replica(layout)) is not None:
        on = b.value(arith.AndIOp(on, ac.splat_mask(d, first, layout.registers)))
    size = itemsize(tile.element)
    bytes_ = b.value(arith.MuliOp(total, b.constant(type, size))) if size > 1 else total
    return ElementOffsets(tile.pointer, bytes_, on)


def _list_of_offsets(d: Distributor, op: Operation, value: SSAValue) -> ScatteredTile:
    tile = d.tile(value)
    if not isinstance(tile, ScatteredTile):
        raise d.error(op, f"{op.name} takes a tile made of a vector of offsets")
    return tile


@producer("xetile.load")
def gather(d: Distributor, op: xt.LoadGatherOp, layout: Layout) -> SSAValue:
    tile = _list_of_offsets(d, op, op.tile)
    at = scattered(d, tile, op.mask, layout, once=False)
    d.hazards.read(d, place_of(op.tile, None))
    type = d.fragment_type(op.result.type, layout)
    passthru = d.b.constant(type, op.padding_value)
    b, width = d.b, _width(op, layout)
    if width == 1:
        return b.value(mach.GatherOp(at.pointer, at.offsets, at.mask, passthru))
    parts: list[SSAValue] = []
    for pointer, mask, align in _vectors(d, at, layout, tile, width):
        kind = VectorType(tile.element, [width])  # pyright: ignore
        padding = b.constant(kind, op.padding_value)
        parts.append(b.value(mach.MaskedLoadOp(pointer, mask, padding, alignment=align)))
    return d.concatenate(parts)


def _width(op: xt.LoadGatherOp | xt.StoreScatterOp | xt.AtomicRmwOp, layout: Layout) -> int:
    """Elements of an access: as many as lie side by side in memory and in a thread's registers."""
    dim, run = run_along(layout)
    return min(run, vector_of(op.tile, op.mask)) if dim == layout.rank - 1 else 1


def _vectors(
    d: Distributor, at: ElementOffsets, layout: Layout, tile: ScatteredTile, width: int
) -> Iterator[tuple[SSAValue, SSAValue, int]]:
    """Address, mask and alignment of every vector; all elements of one take part alike."""
    for first in range(0, layout.registers, width):
        pointer = d.b.ptr(at.pointer, d.b.extract(at.offsets, first))
        mask = ac.splat_mask(d, d.b.extract(at.mask, first), width)
        yield pointer, mask, width * itemsize(tile.element)


@rule("xetile.store")
def scatter(d: Distributor, op: xt.StoreScatterOp) -> None:
    tile = _list_of_offsets(d, op, op.tile)
    fragment = d.fragment_of(op.value)
    at = scattered(d, tile, op.mask, fragment.layout, once=True)
    d.hazards.write(d, place_of(op.tile, None))
    width = _width(op, fragment.layout)
    if width == 1:
        d.b.op(mach.ScatterOp(fragment.value, at.pointer, at.offsets, at.mask))
        return
    for number, (pointer, mask, align) in enumerate(_vectors(d, at, fragment.layout, tile, width)):
        value = d.pick(fragment.value, range(number * width, (number + 1) * width))
        d.b.op(mach.MaskedStoreOp(value, pointer, mask, alignment=align))


@rule("xetile.atomic_rmw")
def atomic(d: Distributor, op: xt.AtomicRmwOp) -> None:
    """One atomic per element; the old values, where they are used, reach all that hold replicas."""
    b = d.b
    fragment = d.fragment_of(op.value)
    layout = fragment.layout
    tile = d.tile(op.tile)
    width = _neighbours(d, op, layout)
    pointers: list[SSAValue] = []
    masks: list[SSAValue | None] = []
    if isinstance(tile, ScatteredTile):
        at = scattered(d, tile, op.mask, layout, once=False)
        for r in range(0, layout.registers, width):
            pointers.append(b.ptr(at.pointer, b.extract(at.offsets, r)))
            masks.append(b.extract(at.mask, r))
    else:
        mask = d.fragment_of(op.mask, layout).value if op.mask is not None else None
        facts = ac.facts_of(op.tile, tile)
        for chunk in ac.chunks(d, tile, layout, facts, width):
            inside = chunk.inside
            if mask is not None:
                inside = b.both(inside, b.extract(mask, chunk.first))
            pointers.append(chunk.pointer)
            masks.append(inside)
    # Replicas share the work; the first does it where others need the old values.
    used = op.result.first_use is not None
    turns = [0 if used else number for number in range(len(masks))]
    masks = [b.both(mask, d.replica(layout, n)) for mask, n in zip(masks, turns, strict=True)]
    # Atomics on one array order among themselves; plain accesses of it stay outside.
    d.hazards.write(d, place_of(op.tile, layout), sums_of(op))
    if width > 1:
        for number, (pointer, mask) in enumerate(zip(pointers, masks, strict=True)):
            value = d.pick(fragment.value, range(number * width, (number + 1) * width))
            with ac.guarded(d, mask):
                _add_neighbours(d, value, pointer)
        return
    olds: list[SSAValue] = []
    for r, (pointer, mask) in enumerate(zip(pointers, masks, strict=True)):
        value = b.extract(fragment.value, r)
        olds.append(_one(d, op.kind, value, pointer, mask))
    if used:
        old = d.concatenate([_as_vector(d, x) for x in olds])
        held = Fragment(old, layout)
        if d.first_replica(layout) is not None:
            held = through_shared(d, held, layout, first_only=True)
        d.set_fragment(op.result, held.value, layout)


_MOST_ADDED: Mapping[tuple[str, Attribute], int] = {
    ("sm_90a", f32): 4,
    ("sm_90a", f16): 8,
    ("sm_90a", bf16): 8,
    ("sm_80", f16): 2,
}
"""Elements of global memory to which one instruction adds."""


def _neighbours(d: Distributor, op: xt.AtomicRmwOp, layout: Layout) -> int:
    """Elements, side by side in memory and in a thread's registers, that one instruction adds to."""
    most = _MOST_ADDED.get((d.machine.name, op.tile_type.element_type), 1)
    shared = op.tile_type.memory_space != 0
    if shared or op.kind != "addf" or op.result.first_use is not None:
        return 1
    tile = d.tile(op.tile)
    if isinstance(tile, ScatteredTile):
        return min(most, _width(op, layout))
    facts = ac.facts_of(op.tile, tile)
    dim, width = ac.vector_width(layout, tile, facts)
    split = op.mask is not None or ac.straddles(layout, tile, facts, dim, width) is not None
    return 1 if split else min(most, width)


def _add_neighbours(d: Distributor, value: SSAValue, pointer: SSAValue) -> None:
    """Adds a vector, of 4 bytes at least, to memory, each of its elements atomically."""
    element, count = vector_type(value).element_type, vector_type(value).get_shape()[0]
    name = str(element)
    if element != f32:
        count //= 2
        value, name = d.b.value(BitcastOp(value, VectorType(i32, [count]))), f"{name}x2"
    name = f"v{count}.{name}" if count > 1 else name
    words = [d.b.extract(value, n) for n in range(count)]
    d.b.op(mach.InstrOp(f"nvptx.red.add.{name}", [pointer, *words]))


def _as_vector(d: Distributor, x: SSAValue) -> SSAValue:
    return d.b.value(BroadcastOp(x, VectorType(x.type, [1])))  # pyright: ignore


def _one(
    d: Distributor, kind: str, value: SSAValue, pointer: SSAValue, mask: SSAValue | None
) -> SSAValue:
    """One element; 0 where nothing was done."""
    b = d.b

    def old() -> list[SSAValue]:
        return [b.value(mach.AtomicRmwOp(kind, value, pointer, scope="device"))]

    return (old() if mask is None else b.choose(mask, old, lambda: [b.constant(value.type, 0)]))[0]
