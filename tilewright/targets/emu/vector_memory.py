"""vector: loads, stores, gathers, scatters and transfers, by the address of every element (`addresses`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i1
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from tilewright.dialects.movement import shape_of
from tilewright.targets.emu import values as v
from tilewright.targets.emu.addresses import Deltas, deltas_of, read, write
from tilewright.targets.emu.builder import Idx, index, size_of, vec
from tilewright.targets.emu.builder import shape_of as extents
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import give, memory, place_of

Numbers = np.ndarray


@dataclass(frozen=True)
class _Parts:
    """What an op says: `held` is the value that it writes, or what it gives where `mask` is off."""

    array: SSAValue
    indices: Sequence[SSAValue]
    mask: SSAValue | None = None
    held: SSAValue | None = None
    offsets: SSAValue | None = None


def _parts(op: Any) -> _Parts:
    if isinstance(op, vector.TransferReadOp):
        return _Parts(op.source, op.indices, op.mask, op.padding)
    if isinstance(op, vector.TransferWriteOp):
        return _Parts(op.source, op.indices, op.mask, op.vector)
    first, *rest = op.operands
    if op.name == "vector.load":
        return _Parts(first, rest)
    if op.name == "vector.store":
        return _Parts(rest[0], rest[1:], None, first)
    *rest, mask, held = rest
    if op.name in ("vector.gather", "vector.scatter"):
        return _Parts(first, rest[:-1], mask, held, rest[-1])
    return _Parts(first, rest, mask, held)


def _access(
    low: Lowering, op: Operation, given: _Parts, value: SSAValue
) -> tuple[v.MemRef, v.Address, Deltas, SSAValue | None]:
    """The array, where in it a vector like `value` lies, and which of it (None: all) is accessed. Lanes act apart where
    they have their own of the mask, or of what is held."""
    m, shape = memory(low, given.array), shape_of(value)
    place = place_of(low, m, given.indices)
    if any(x is not None and not low.is_uniform(x) for x in (given.mask, given.held)):
        place = place.apart()
    inside = _held(low, given.mask, place)
    if given.offsets is not None:
        return m, place, _at_offsets(low, m, shape, given.offsets), inside
    axes, doubtful = _axes(low, op, len(m.sizes), shape)
    for d in doubtful:
        start, size = low.plain(given.indices[d]), m.sizes[d]
        first = low.as_index(start) if isinstance(start, v.Uniform) else None
        if isinstance(first, int) and isinstance(size, int) and 0 <= first < size - axes[d].max():
            continue
        inside = low.b.both(inside, _inside(low, start, axes[d], size, shape, place))
    return m, place, deltas_of(low, shape, axes, m.strides, size_of(m.element)), inside


def _axes(
    low: Lowering, op: Any, rank: int, shape: tuple[int, ...]
) -> tuple[list[Numbers], list[int]]:
    """The coordinates [prod(shape)] of a vector's elements, one table for each dimension of the array, and the
    dimensions along which elements may lie outside."""
    grids = [g.reshape(-1) for g in np.meshgrid(*map(np.arange, shape), indexing="ij")]
    zero = np.zeros(prod(shape), np.int64)
    if not isinstance(op, vector.TransferReadOp | vector.TransferWriteOp):
        return [*([zero] * (rank - len(shape))), *grids], []
    axes, doubtful = [zero] * rank, set[int]()
    flags = op.properties.get("in_bounds")
    promised = [isinstance(f, IntegerAttr) and bool(f.value.data) for f in flags or ()]  # pyright: ignore
    for axis, expression in enumerate(op.permutation_map.data.results):
        if isinstance(expression, AffineDimExpr):
            axes[expression.position] = axes[expression.position] + grids[axis]
            if not (isinstance(flags, ArrayAttr) and promised[axis]):
                doubtful.add(expression.position)
        elif not isinstance(expression, AffineConstantExpr):
            raise low.refuse(f"map {op.permutation_map.data} is no projection")
    return axes, sorted(doubtful)


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


def _at_offsets(low: Lowering, m: v.MemRef, shape: tuple[int, ...], offsets: SSAValue) -> Deltas:
    """Elements at numbers along the last dimension."""
    if not low.is_uniform(offsets):
        raise low.refuse("a vector of offsets that differs between lanes")
    b = low.b
    flat = b.cast(b.shape(low.uniform(offsets), prod(shape)), index)
    return Deltas(
        shape, (0,) * prod(shape), b.times(flat, b.times(m.strides[-1], size_of(m.element)))
    )


def _held(low: Lowering, value: SSAValue | None, place: v.Address) -> SSAValue | None:
    """A value for each element of what lies at a place."""
    if value is None:
        return None
    return low.uniform(value) if place.shared else low.wide(value)


@lowers("vector.load", "vector.maskedload", "vector.gather", "vector.transfer_read")
def load(low: Lowering, op: Operation) -> None:
    given, (result,) = _parts(op), op.results
    m, place, deltas, inside = _access(low, op, given, result)
    old = None if inside is None else _held(low, given.held, place)
    if old is not None and inside is not None:
        old = low.b.broadcast(old, vec(m.element, *extents(inside.type)))
    give(low, result, read(low, place, m.element, deltas, inside, old), place)


@lowers("vector.store", "vector.maskedstore", "vector.scatter", "vector.transfer_write")
def store(low: Lowering, op: Operation) -> None:
    given = _parts(op)
    assert given.held is not None
    _, place, deltas, inside = _access(low, op, given, given.held)
    write(low, place, low.plain(given.held), deltas, inside)
