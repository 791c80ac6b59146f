"""vector: loads, stores, gathers, scatters and transfers, by the address of every element (`places`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IntegerAttr,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from tilewright.targets.emu import values as v
from tilewright.targets.emu.addresses import Deltas, deltas_of, read, write
from tilewright.targets.emu.builder import Idx, index, shape_of, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import give, memory, place_of

Numbers = np.ndarray


def _access(
    low: Lowering,
    array: SSAValue,
    indices: Sequence[SSAValue],
    shape: tuple[int, ...],
    axes: Sequence[Numbers] | None,
    others: Sequence[SSAValue | None],
) -> tuple[v.MemRef, v.Address, Deltas]:
    """An array, and where in it a vector lies: coordinates `axes` [prod(shape)] of its elements, one table for each
    dimension; without, a box of the inner ones. Lanes act apart where they have their own of one of `others`."""
    m = memory(low, array)
    place = place_of(low, m, [low.plain(x) for x in indices])
    if any(x is not None and not low.is_uniform(x) for x in others):
        place = place.apart()
    if axes is None:
        zero = np.zeros(prod(shape), np.int64)
        axes = [*([zero] * (len(m.sizes) - len(shape))), *_grid(shape)]
    return m, place, deltas_of(low, shape, axes, m.strides, size_of(m.element))


def _grid(shape: tuple[int, ...]) -> list[Numbers]:
    """The coordinates [prod(shape)] of a vector's elements."""
    return [g.reshape(-1) for g in np.meshgrid(*map(np.arange, shape), indexing="ij")]


def _at_offsets(low: Lowering, m: v.MemRef, shape: tuple[int, ...], offsets: SSAValue) -> Deltas:
    """Elements at numbers along the last dimension."""
    if not low.is_uniform(offsets):
        raise low.refuse("a vector of offsets that differs between lanes")
    b = low.b
    flat = b.cast(b.shape(low.uniform(offsets), prod(shape)), index)
    return Deltas(
        shape, (0,) * prod(shape), b.times(flat, b.times(m.strides[-1], size_of(m.element)))
    )


@lowers("vector.load", "vector.maskedload", "vector.gather")
def load(low: Lowering, op: Operation) -> None:
    source, *rest = op.operands
    offsets = mask = otherwise = None
    if op.name != "vector.load":
        *rest, mask, otherwise = rest
    if op.name == "vector.gather":
        *rest, offsets = rest
    result = op.results[0]
    shape = shape_of(result.type)
    box = shape if offsets is None else ()
    m, place, deltas = _access(low, source, rest, box, None, (mask, otherwise))
    if offsets is not None:
        deltas = _at_offsets(low, m, shape, offsets)
    inside, old = (_held(low, x, place) for x in (mask, otherwise))
    give(low, result, read(low, place, m.element, deltas, inside, old), place)


def _held(low: Lowering, value: SSAValue | None, place: v.Address) -> SSAValue | None:
    """A value for each element of what lies at a place."""
    if value is None:
        return None
    return low.uniform(value) if place.shared else low.wide(value)


@lowers("vector.store", "vector.maskedstore", "vector.scatter")
def store(low: Lowering, op: Operation) -> None:
    offsets = mask = None
    if op.name == "vector.store":
        value, target, *rest = op.operands
    else:
        target, *rest, mask, value = op.operands
    if op.name == "vector.scatter":
        *rest, offsets = rest
    shape = shape_of(value.type)
    box = shape if offsets is None else ()
    m, place, deltas = _access(low, target, rest, box, None, (mask, value))
    if offsets is not None:
        deltas = _at_offsets(low, m, shape, offsets)
    write(low, place, low.plain(value), deltas, _held(low, mask, place))


# Transfers ------------------------------------------------------------------------------------------------------------


def _transfer(
    low: Lowering, op: Any, shape: tuple[int, ...], value: SSAValue
) -> tuple[v.MemRef, v.Address, Deltas, SSAValue | None]:
    """Array, place, distances and mask (None: everything is inside) of a transfer; `value`: what is written, or the
    padding."""
    rank, grids = len(memory(low, op.source).sizes), _grid(shape)
    axes = [np.zeros(prod(shape), np.int64) for _ in range(rank)]
    map = op.permutation_map
    assert isinstance(map, AffineMapAttr)
    promised = integers_of_flags(op.properties.get("in_bounds"), len(shape))
    doubtful: set[int] = set()
    for axis, expression in enumerate(map.data.results):
        if isinstance(expression, AffineDimExpr):
            axes[expression.position] = axes[expression.position] + grids[axis]
            if not promised[axis]:
                doubtful.add(expression.position)
        elif not isinstance(expression, AffineConstantExpr):
            raise low.refuse(f"map {map.data} is no projection")
    m, place, deltas = _access(low, op.source, op.indices, shape, axes, (op.mask, value))
    inside = _held(low, op.mask, place)
    for d in sorted(doubtful):
        start, size = low.plain(op.indices[d]), m.sizes[d]
        first = low.as_index(start) if isinstance(start, v.Uniform) else None
        if isinstance(first, int) and isinstance(size, int) and 0 <= first < size - axes[d].max():
            continue
        inside = low.b.both(inside, _inside(low, start, axes[d], size, shape, place))
    return m, place, deltas, inside


def _inside(
    low: Lowering,
    start: v.Plain,
    axis: Numbers,
    size: Idx,
    shape: tuple[int, ...],
    place: v.Address,
) -> SSAValue:
    """The elements whose index along a dimension is below its extent."""
    b = low.b
    shape, lanes = shape or (1,), () if place.shared else (low.lanes,)
    steps = b.shape(b.dense(vec(index, axis.size), axis.tolist()), *shape, *(1 for _ in lanes))
    first = b.cast(low.uniform(start) if place.shared else low.wide_of(start), index)
    return b.broadcast(b.within(b.plus(steps, first), size), vec(i1, *shape, *lanes))


def integers_of_flags(attribute: Attribute | None, count: int) -> list[bool]:
    """`in_bounds`: what the text promises, nothing by default."""
    if not isinstance(attribute, ArrayAttr):
        return [False] * count
    return [bool(flag.value.data) for flag in attribute if isinstance(flag, IntegerAttr)]


@lowers("vector.transfer_read")
def transfer_read(low: Lowering, op: vector.TransferReadOp) -> None:
    shape = shape_of(op.result.type)
    m, place, deltas, inside = _transfer(low, op, shape, op.padding)
    otherwise = None
    if inside is not None:
        held = _held(low, op.padding, place)
        assert held is not None
        otherwise = low.b.broadcast(held, vec(m.element, *shape_of(inside.type)))
    give(low, op.result, read(low, place, m.element, deltas, inside, otherwise), place)


@lowers("vector.transfer_write")
def transfer_write(low: Lowering, op: vector.TransferWriteOp) -> None:
    _, place, deltas, inside = _transfer(low, op, shape_of(op.vector.type), op.vector)
    write(low, place, low.plain(op.vector), deltas, inside)
