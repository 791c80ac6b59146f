"""vector: loads, stores, gathers, scatters and transfers, by the address of every element (`places`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IntegerAttr,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import Idx, element_of, index, shape_of, signless, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory, place_of
from tilewright.targets.emu.places import Deltas, Place, deltas_of, read, write

Numbers = np.ndarray


def _box(shape: tuple[int, ...], rank: int) -> list[Numbers]:
    """Coordinates [prod(shape)] of a dense box, one array per dimension of a memref of `rank`."""
    grids = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij") if shape else []
    lead = rank - len(shape)
    zero = np.zeros(prod(shape), np.int64)
    return [*([zero] * lead), *(g.reshape(-1) for g in grids)]


@lowers("vector.load")
def load(low: Lowering, op: vector.LoadOp) -> None:
    source, *indices = op.operands
    m = memory(low, source)
    place = place_of(low, m, [low.plain(x) for x in indices])
    shape = shape_of(op.results[0].type)
    deltas = deltas_of(low, shape, _box(shape, len(m.sizes)), m.strides, size_of(m.element))
    _give(low, op.results[0], read(low, place, m.element, deltas), place)


def _give(low: Lowering, result: SSAValue, value: SSAValue, place: Place) -> None:
    low.env[result] = v.Uniform(value) if place.shared else v.Varying(value)


@lowers("vector.store")
def store(low: Lowering, op: vector.StoreOp) -> None:
    value, target, *indices = op.operands
    m = memory(low, target)
    place = place_of(low, m, [low.plain(x) for x in indices])
    shape = shape_of(value.type)
    deltas = deltas_of(low, shape, _box(shape, len(m.sizes)), m.strides, size_of(m.element))
    write(low, place, low.plain(value), deltas)


@lowers("vector.maskedload")
def maskedload(low: Lowering, op: Operation) -> None:
    source, *indices, mask, otherwise = op.operands
    _masked_read(low, op, source, indices, None, mask, otherwise)


@lowers("vector.gather")
def gather(low: Lowering, op: Operation) -> None:
    source, *indices, offsets, mask, otherwise = op.operands
    _masked_read(low, op, source, indices, offsets, mask, otherwise)


def _masked_place(
    low: Lowering,
    source: SSAValue,
    indices: Sequence[SSAValue],
    offsets: SSAValue | None,
    shape: tuple[int, ...],
) -> tuple[Place, Deltas, bool]:
    """The place of an access, and whether it differs between lanes; offsets count along the last dimension."""
    m = memory(low, source)
    place = place_of(low, m, [low.plain(x) for x in indices])
    size = size_of(m.element)
    if offsets is None:
        deltas = deltas_of(low, shape, _box(shape, len(m.sizes)), m.strides, size)
        return place, deltas, not place.shared
    if not isinstance(low.env[offsets], v.Uniform):
        raise low.refuse("a vector of offsets that differs between lanes")
    flat = low.b.shape(low.uniform(offsets), prod(shape))
    if element_of(flat.type) != index:
        flat = low.b.add(arith.IndexCastOp(flat, vec(index, prod(shape))))
    step = low.b.times(m.strides[-1], size)
    many = low.b.broadcast(low.b.idx(step), vec(index, prod(shape)))
    return place, Deltas(shape, None, low.b.add(arith.MuliOp(flat, many))), not place.shared


def _masked_read(
    low: Lowering,
    op: Operation,
    source: SSAValue,
    indices: Sequence[SSAValue],
    offsets: SSAValue | None,
    mask: SSAValue,
    otherwise: SSAValue,
) -> None:
    shape = shape_of(op.results[0].type)
    place, deltas, differs = _masked_place(low, source, indices, offsets, shape)
    uniform = isinstance(low.env[mask], v.Uniform) and isinstance(low.env[otherwise], v.Uniform)
    if not differs and not uniform and low.lanes > 1:
        place = Place(low, place.base, None, low.b.zeros(vec(index, low.lanes)))
        differs = True
    get = low.wide if differs else low.uniform
    element = signless(element_of(op.results[0].type))
    value = read(low, place, element, deltas, get(mask), get(otherwise))
    _give(low, op.results[0], value, place)


@lowers("vector.maskedstore")
def maskedstore(low: Lowering, op: Operation) -> None:
    target, *indices, mask, value = op.operands
    _masked_write(low, op, target, indices, None, mask, value)


@lowers("vector.scatter")
def scatter(low: Lowering, op: Operation) -> None:
    target, *indices, offsets, mask, value = op.operands
    _masked_write(low, op, target, indices, offsets, mask, value)


def _masked_write(
    low: Lowering,
    op: Operation,
    target: SSAValue,
    indices: Sequence[SSAValue],
    offsets: SSAValue | None,
    mask: SSAValue,
    value: SSAValue,
) -> None:
    shape = shape_of(value.type)
    place, deltas, differs = _masked_place(low, target, indices, offsets, shape)
    uniform = isinstance(low.env[mask], v.Uniform) and isinstance(low.env[value], v.Uniform)
    if not differs and not uniform and low.lanes > 1:
        place = Place(low, place.base, None, low.b.zeros(vec(index, low.lanes)))
        differs = True
    inside = low.wide(mask) if differs else low.uniform(mask)
    write(low, place, low.plain(value), deltas, inside)


# Transfers ------------------------------------------------------------------------------------------------------------


def _transfer(
    low: Lowering,
    op: Any,
    source: SSAValue,
    indices: Sequence[SSAValue],
    shape: tuple[int, ...],
    mask: SSAValue | None,
) -> tuple[Place, Deltas, SSAValue | None]:
    """Place, distances and mask (None: everything is inside) of a transfer."""
    m = memory(low, source)
    rank = len(m.sizes)
    axes = [np.zeros(prod(shape), np.int64) for _ in range(rank)]
    grids = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij") if shape else []
    map = op.permutation_map
    assert isinstance(map, AffineMapAttr)
    promised = integers_of_flags(op.properties.get("in_bounds"), len(shape))
    doubtful: set[int] = set()
    for axis, expression in enumerate(map.data.results):
        if isinstance(expression, AffineDimExpr):
            axes[expression.position] = axes[expression.position] + grids[axis].reshape(-1)
            if not promised[axis]:
                doubtful.add(expression.position)
        elif not isinstance(expression, AffineConstantExpr):
            raise low.refuse(f"map {map.data} is no projection")
    plain = [low.plain(x) for x in indices]
    place = place_of(low, m, plain)
    deltas = deltas_of(low, shape, axes, m.strides, size_of(m.element))
    differs = not place.shared
    inside = None if mask is None else (low.wide(mask) if differs else low.uniform(mask))
    kind = vec(index, *(shape or (1,)), *((low.lanes,) if differs else ()))
    for d in sorted(doubtful):
        here = _inside(low, plain[d], axes[d], m.sizes[d], kind, differs)
        if here is not None:
            inside = here if inside is None else low.b.add(arith.AndIOp(inside, here))
    return place, deltas, inside


def _inside(
    low: Lowering, start: v.Plain, axis: Numbers, size: Idx, kind: VectorType[Any], differs: bool
) -> SSAValue | None:
    """The elements whose index along a dimension is below its extent; None where all surely are."""
    b = low.b
    if isinstance(start, v.Uniform):
        first = low.as_index(start)
        if isinstance(first, int) and isinstance(size, int) and 0 <= first <= size - 1 - axis.max():
            return None
    wide = low.wide_of(start) if differs else low.uniform(start)
    if element_of(wide.type) != index:
        wide = b.add(arith.IndexCastOp(wide, index))
    wide = b.broadcast(wide, kind)
    repeat = low.lanes if differs else 1
    steps = b.dense(kind, np.repeat(axis, repeat).tolist())
    places = b.add(arith.AddiOp(wide, steps))
    below = b.add(arith.CmpiOp(places, b.broadcast(b.idx(size), kind), "slt"))
    above = b.add(arith.CmpiOp(places, b.zeros(kind), "sge"))
    return b.add(arith.AndIOp(below, above))


def integers_of_flags(attribute: Attribute | None, count: int) -> list[bool]:
    """`in_bounds`: what the text promises, nothing by default."""
    if not isinstance(attribute, ArrayAttr):
        return [False] * count
    return [bool(flag.value.data) for flag in attribute if isinstance(flag, IntegerAttr)]


@lowers("vector.transfer_read")
def transfer_read(low: Lowering, op: vector.TransferReadOp) -> None:
    b = low.b
    shape = shape_of(op.result.type)
    place, deltas, inside = _transfer(low, op, op.source, op.indices, shape, op.mask)
    element = signless(element_of(op.result.type))
    otherwise = None
    if inside is not None:
        padding = low.plain(op.padding)
        kind = vec(element, *(shape or (1,)), *(() if place.shared else (low.lanes,)))
        value = low.wide_of(padding) if not place.shared else low.uniform(padding)
        otherwise = b.broadcast(value, kind)
    _give(low, op.result, read(low, place, element, deltas, inside, otherwise), place)


@lowers("vector.transfer_write")
def transfer_write(low: Lowering, op: vector.TransferWriteOp) -> None:
    shape = shape_of(op.vector.type)
    place, deltas, inside = _transfer(low, op, op.source, op.indices, shape, op.mask)
    value = low.plain(op.vector)
    if place.shared and inside is not None and not isinstance(value, v.Uniform):
        place = Place(low, place.base, None, low.b.zeros(vec(index, low.lanes)))
        full = (*(shape or (1,)), low.lanes)
        column = low.b.shape(inside, *(shape or (1,)), 1)
        inside = low.b.broadcast(column, vec(i1, *full))
    write(low, place, value, deltas, inside)
