"""vector: loads, stores, gathers, scatters and transfers, by the address of every element (`addresses`)."""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.movement import shape_of
from tilewright.dialects.movement import shape_of_type as extents
from tilewright.dialects.upstream.vector.access import LOADS, STORES, VectorAccess, access_of
from tilewright.targets.emu import values as v
from tilewright.targets.emu.addresses import Deltas, deltas_of, read, write
from tilewright.targets.emu.builder import Idx, element_bytes, index, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import give, memory, place_of

Numbers = np.ndarray


def _access(
    low: Lowering, given: VectorAccess
) -> tuple[v.MemRef, v.Address, Deltas, SSAValue | None]:
    """The array, where in it a vector lies, and which of it (None: all) is accessed. Lanes act apart where
    they have their own of the mask, or of what is held."""
    m, shape = memory(low, given.array), shape_of(given.value)
    place = place_of(low, m, given.indices)
    if any(x is not None and not low.is_uniform(x) for x in (given.mask, given.held)):
        place = place.apart()
    inside = _held(low, given.mask, place)
    if given.offsets is not None:
        return m, place, _at_offsets(low, m, shape, given.offsets), inside
    axes, doubtful = _axes(given, len(m.sizes), shape)
    for d in doubtful:
        start, size = low.plain(given.indices[d]), m.sizes[d]
        first = low.as_index(start) if isinstance(start, v.Uniform) else None
        if isinstance(first, int) and isinstance(size, int) and 0 <= first < size - axes[d].max():
            continue
        inside = low.b.both(inside, _inside(low, start, axes[d], size, shape, place))
    return m, place, deltas_of(low, shape, axes, m.strides, element_bytes(m.element)), inside


def _axes(
    access: VectorAccess, rank: int, shape: tuple[int, ...]
) -> tuple[list[Numbers], list[int]]:
    """The coordinates [prod(shape)] of a vector's elements, one table for each dimension of the array, and the
    dimensions along which elements may lie outside."""
    axes, doubtful = [np.zeros(prod(shape), np.int64)] * rank, set[int]()
    grids = np.meshgrid(*map(np.arange, shape), indexing="ij")
    for grid, dim, known in zip(grids, access.dims, access.inside, strict=True):
        if dim is not None:
            axes[dim] = axes[dim] + grid.reshape(-1)
            doubtful |= set() if known else {dim}
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
        shape, (0,) * prod(shape), b.times(flat, b.times(m.strides[-1], element_bytes(m.element)))
    )


def _held(low: Lowering, value: SSAValue | None, place: v.Address) -> SSAValue | None:
    """A value for each element of what lies at a place."""
    if value is None:
        return None
    return low.uniform(value) if place.shared else low.wide(value)


@lowers(*LOADS)
def load(low: Lowering, op: Operation) -> None:
    given, (result,) = access_of(op), op.results
    m, place, deltas, inside = _access(low, given)
    old = None if inside is None else _held(low, given.held, place)
    if old is not None and inside is not None:
        old = low.b.broadcast(old, vec(m.element, *extents(inside.type)))
    give(low, result, read(low, place, m.element, deltas, inside, old), place)


@lowers(*STORES)
def store(low: Lowering, op: Operation) -> None:
    given = access_of(op)
    assert given.held is not None
    _, place, deltas, inside = _access(low, given)
    write(low, place, low.plain(given.held), deltas, inside)
