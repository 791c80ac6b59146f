"""vector: what moves components, combines them, or reads and writes memory.

Memory is accessed by the address of every element (`addresses`). At subgroup level an op stays as it is, or becomes
accesses. At lane level vectors have the lanes last, so an op that moves a lane's components is a permutation of whole
registers: the op's own meaning applied to an array of component numbers (as in `codegen.components`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, i1
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.movement import (
    ELEMENTS,
    integers,
    numbered,
    positions,
    positions_at_run_time,
    shape_of,
    shape_of_type,
    static_position,
)
from tilewright.dialects.movement import shape_of_type as extents
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.combining import kind_of
from tilewright.dialects.upstream.vector.access import LOADS, STORES, VectorAccess, access_of
from tilewright.targets.emu import values as v
from tilewright.targets.emu.addresses import Deltas, deltas_of, read, write
from tilewright.targets.emu.blocks import arrange
from tilewright.targets.emu.builder import Idx, element_bytes, element_of, index, signless, vec
from tilewright.targets.emu.exchange import reduced
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import give, memory, place_of


@lowers(*ELEMENTS)
def rearrange(low: Lowering, op: Operation) -> None:
    """Registers of a lane in the order that the op gives them; of all that a position may say, that which it says."""
    if low.once(op):
        return
    b, lanes, dynamic = low.b, low.lanes, positions_at_run_time(op)
    arrays = op.operands[: len(op.operands) - len(dynamic)]
    sources = [b.shape(low.wide(x), prod(shape_of_type(x.type)), lanes) for x in arrays]
    position = static_position(op) if dynamic else ()
    found: list[SSAValue] = []
    for at in positions(shape_of_type(arrays[-1].type), position) if dynamic else [()]:
        known = [n for n, p in zip(at, position, strict=True) if p == DYNAMIC_INDEX]
        values = [
            b.shape(b.shuffle(sources[0], sources[-1], n.reshape(-1).tolist()), *n.shape, lanes)
            for n in numbered(op, known)
        ]
        if found:
            pairs = zip(dynamic, known, strict=True)
            here = b.all_of([b.cmp("eq", low.wide(x), n) for x, n in pairs])
            values = [b.blend(here, new, old) for new, old in zip(values, found, strict=True)]
        found = values
    for result, value in zip(op.results, found, strict=True):
        low.env[result] = v.Varying(value)


@lowers("vector.broadcast")
def broadcast(low: Lowering, op: vector.BroadcastOp) -> None:
    (source,) = op.operands
    if low.once(op):
        return
    kind = low.widened(op.results[0].type)
    low.env[op.results[0]] = v.Varying(low.b.broadcast(low.wide(source), kind))


# Bits -----------------------------------------------------------------------------------------------------------------


@lowers("vector.bitcast")
def bitcast(low: Lowering, op: vector.BitcastOp) -> None:
    """The bits of a lane's innermost dimension as elements of another width, low ones first."""
    b = low.b
    source, result = op.operands[0], op.results[0]
    kind = signless(result.type)
    old, new = (element_bits(element_of(x)) for x in (source.type, result.type))
    if (old == new or min(old, new) >= 8) and low.once(op):
        return
    uniform = low.is_uniform(source)
    value = low.uniform(source) if uniform else low.wide(source)
    last = () if uniform else (low.lanes,)
    flat = b.shape(value, prod(shape_of_type(source.type)), prod(last))
    bits = b.bitcast(flat, IntegerType(max(8, old)))
    if old != new:
        bits = _split(low, bits, old, new) if new < old else _joined(low, bits, old, new)
    made = b.shape(b.bitcast(bits, element_of(kind)), *shape_of_type(kind), *last)
    low.env[result] = v.Uniform(made) if uniform else v.Varying(made)


def _split(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of wide integers as [n * old/new, lanes] of narrow ones."""
    b = low.b
    count, lanes = shape_of_type(bits.type)
    kind: Any = vec(IntegerType(max(8, new)), count, lanes)
    parts: list[SSAValue] = []
    for i in range(old // new):
        moved = b.value(arith.ShRUIOp(bits, b.constant(bits.type, i * new))) if i else bits
        narrow = moved if moved.type == kind else b.value(arith.TruncIOp(moved, kind))
        if new < 8:
            narrow = b.value(arith.AndIOp(narrow, b.constant(kind, (1 << new) - 1)))
        parts.append(narrow)
    order = np.arange(len(parts) * count * lanes).reshape(-1, count, lanes).swapaxes(0, 1)
    return arrange(b, b.stack(parts), order.reshape(-1, lanes))


def _joined(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of narrow integers as [n * old/new, lanes] of wide ones."""
    b = low.b
    count, lanes = shape_of_type(bits.type)
    factor = new // old
    kind: Any = vec(IntegerType(new), count // factor, lanes)
    total: SSAValue | None = None
    for i in range(factor):
        rows = b.shuffle(bits, bits, list(range(i, count, factor)))
        wide = rows if rows.type == kind else b.value(arith.ExtUIOp(rows, kind))
        if i:
            wide = b.value(arith.ShLIOp(wide, b.constant(kind, i * old)))
        total = wide if total is None else b.value(arith.OrIOp(total, wide))
    assert total is not None
    return total


# Reductions and products ----------------------------------------------------------------------------------------------


@lowers("vector.reduction", "vector.multi_reduction")
def reduction(low: Lowering, op: Operation) -> None:
    source, *acc = op.operands
    if low.once(op):
        return
    every = op.name == "vector.reduction"
    dims = range(len(shape_of_type(source.type))) if every else integers(op, "reduction_dims")
    start = low.wide(acc[0]) if acc else None
    low.env[op.results[0]] = v.Varying(reduced(low.b, kind_of(op), low.wide(source), dims, start))


@lowers("vector.contract")
def contract(low: Lowering, op: Operation) -> None:
    if not low.once(op):
        raise low.refuse("of a lane's own vectors")


# Made from nothing ----------------------------------------------------------------------------------------------------


@lowers("vector.step")
def made(low: Lowering, op: Operation) -> None:
    low.once(op)


# Anything -------------------------------------------------------------------------------------------------------------


@lowers("ub.poison")
def poison(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.b.ones(signless(op.results[0].type)))


@lowers("builtin.unrealized_conversion_cast")
def same_bits(low: Lowering, op: Operation) -> None:
    """Between integers that differ in signedness, and between equal types."""
    for operand, result in zip(op.operands, op.results, strict=len(op.operands) == 1):
        if signless(operand.type) != signless(result.type):
            raise low.refuse(f"from {operand.type} to {result.type}")
        low.env[result] = low.env[operand]


# Memory ---------------------------------------------------------------------------------------------------------------


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
