"""vector: what moves components, combines them, or reads and writes memory.

At subgroup level an op stays as it is, or becomes accesses by address. At lane level vectors have the lanes last, so an
op that moves a lane's components is a permutation of whole registers: the op's own meaning applied to an array of
component numbers (as in `codegen.components`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    Float32Type,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects.movement import ELEMENTS, integers, numbered, positions, static_position
from tilewright.dialects.xegpu.types import element_bits
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import (
    element_of,
    index,
    shape_of,
    signless,
    storage_bits,
    vec,
)
from tilewright.targets.emu.exchange import combiner, wide_float
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.products import narrow, widen


def as_it_is(low: Lowering, op: Operation) -> None:
    """The same op on the values that all lanes have."""
    mapping = {x: low.uniform(x) for x in op.operands}
    new = type(op).create(
        operands=[mapping[x] for x in op.operands],
        result_types=[signless(r.type) for r in op.results],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )
    low.b.put(new)
    for before, after in zip(op.results, new.results, strict=True):
        low.set(before, after)


def _all_uniform(low: Lowering, op: Operation) -> bool:
    return all(isinstance(low.env[x], v.Uniform) for x in op.operands)


@lowers(*ELEMENTS)
def rearrange(low: Lowering, op: Operation) -> None:
    """Registers of a lane in the order that the op gives them."""
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    b, lanes = low.b, low.lanes
    sources = [b.shape(low.wide(x), prod(shape_of(x.type)), lanes) for x in op.operands]
    for result, chosen in zip(op.results, numbered(op), strict=True):
        value = b.shuffle(sources[0], sources[-1], chosen.reshape(-1).tolist())
        low.env[result] = v.Varying(b.shape(value, *shape_of(result.type), lanes))


@lowers("vector.broadcast")
def broadcast(low: Lowering, op: vector.BroadcastOp) -> None:
    (source,) = op.operands
    if isinstance(low.env[source], v.Uniform):
        as_it_is(low, op)
        return
    kind = low.widened(op.results[0].type)
    low.env[op.results[0]] = v.Varying(low.b.broadcast(low.wide(source), kind))


# Single components ----------------------------------------------------------------------------------------------------


@lowers("vector.extract")
def extract(low: Lowering, op: vector.ExtractOp) -> None:
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    source, *dynamic = op.operands
    position = static_position(op)
    shape = shape_of(source.type)
    numbers = np.arange(prod(shape)).reshape(shape)
    flat = low.b.shape(low.wide(source), prod(shape), low.lanes)
    result = op.results[0]

    def pick(at: Sequence[int]) -> SSAValue:
        chosen = np.asarray(numbers[tuple(at)])
        value = low.b.shuffle(flat, flat, chosen.reshape(-1).tolist())
        return low.b.shape(value, *chosen.shape, low.lanes)

    low.env[result] = v.Varying(_chosen(low, shape, position, dynamic, pick))


def _matches(
    low: Lowering, at: Sequence[int], position: Sequence[int], dynamic: Sequence[SSAValue]
) -> SSAValue:
    """[lanes]: is the position that of `at`?"""
    b, runtime = low.b, iter(dynamic)
    test: SSAValue | None = None
    for number, p in zip(at, position, strict=True):
        if p == DYNAMIC_INDEX:
            wide = low.wide(next(runtime))
            here = b.add(arith.CmpiOp(wide, b.constant(wide.type, number), "eq"))
            test = here if test is None else b.add(arith.AndIOp(test, here))
    assert test is not None
    return test


def _chosen(
    low: Lowering,
    shape: Sequence[int],
    position: Sequence[int],
    dynamic: Sequence[SSAValue],
    pick: Callable[[Sequence[int]], SSAValue],
) -> SSAValue:
    """The candidate at a position that may differ between lanes."""
    if not dynamic:
        return pick(position)
    first, *rest = positions(shape, position)
    value = pick(first)
    for at in rest:
        value = low.b.select(_matches(low, at, position, dynamic), pick(at), value)
    return value


@lowers("vector.insert")
def insert(low: Lowering, op: vector.InsertOp) -> None:
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    b, lanes = low.b, low.lanes
    part, whole, *dynamic = op.operands
    position = static_position(op)
    shape, count = shape_of(whole.type), prod(shape_of(whole.type))
    numbers = np.arange(count).reshape(shape)
    size = prod(shape_of(part.type))
    new = b.shape(low.wide(part), size, lanes)
    value = b.shape(low.wide(whole), count, lanes)
    for at in positions(shape, position):
        chosen = numbers.copy()
        chosen[at] = count + np.arange(size).reshape(shape_of(part.type))
        put = b.shuffle(value, new, chosen.reshape(-1).tolist()) if count else value
        value = put if not dynamic else b.select(_matches(low, at, position, dynamic), put, value)
    low.env[op.results[0]] = v.Varying(b.shape(value, *shape, lanes))


# Bits -----------------------------------------------------------------------------------------------------------------


@lowers("vector.bitcast")
def bitcast(low: Lowering, op: vector.BitcastOp) -> None:
    """The bits of a lane's innermost dimension as elements of another width, low ones first."""
    b = low.b
    source, result = op.operands[0], op.results[0]
    kind = signless(result.type)
    old, new = (_bits(element_of(x)) for x in (source.type, result.type))
    if _all_uniform(low, op) and old == new:
        as_it_is(low, op)
        return
    uniform = isinstance(low.env[source], v.Uniform)
    value = low.uniform(source) if uniform else low.wide(source)
    lanes = 1 if uniform else low.lanes
    shape = shape_of(kind)
    flat = b.shape(value, *shape_of(source.type), *(() if uniform else (lanes,)))
    if old == new:
        low.env[result] = v.Varying(b.bitcast(flat, element_of(kind)))
        return
    count = prod(shape_of(source.type))
    bits = b.bitcast(b.shape(flat, count, lanes), IntegerType(max(8, old)))
    made = _split(low, bits, old, new) if new < old else _joined(low, bits, old, new)
    made = b.bitcast(made, element_of(kind))
    made = b.shape(made, *shape, *(() if uniform else (lanes,)))
    low.env[result] = v.Uniform(made) if uniform else v.Varying(made)


def _bits(element: Attribute) -> int:
    """Bits of an element: a 4-bit float has half of a byte, though its register has the whole."""
    return element_bits(element) if element_bits(element) < 8 else storage_bits(signless(element))


def _split(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of wide integers as [n * old/new, lanes] of narrow ones."""
    b = low.b
    count, lanes = shape_of(bits.type)
    kind: Any = vec(IntegerType(max(8, new)), count, lanes)
    parts: list[SSAValue] = []
    for i in range(old // new):
        moved = b.add(arith.ShRUIOp(bits, b.constant(bits.type, i * new))) if i else bits
        narrow = moved if moved.type == kind else b.add(arith.TruncIOp(moved, kind))
        if new < 8:
            narrow = b.add(arith.AndIOp(narrow, b.constant(kind, (1 << new) - 1)))
        parts.append(narrow)
    whole = parts[0]
    for part in parts[1:]:
        whole = b.join(whole, part)
    order = [p * count + i for i in range(count) for p in range(len(parts))]
    return b.shuffle(whole, whole, order)


def _joined(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of narrow integers as [n * old/new, lanes] of wide ones."""
    b = low.b
    count, lanes = shape_of(bits.type)
    factor = new // old
    kind: Any = vec(IntegerType(new), count // factor, lanes)
    total: SSAValue | None = None
    for i in range(factor):
        rows = b.shuffle(bits, bits, list(range(i, count, factor)))
        wide = rows if rows.type == kind else b.add(arith.ExtUIOp(rows, kind))
        if i:
            wide = b.add(arith.ShLIOp(wide, b.constant(kind, i * old)))
        total = wide if total is None else b.add(arith.OrIOp(total, wide))
    assert total is not None
    return total


# Reductions and products ----------------------------------------------------------------------------------------------


def _kind(op: Operation) -> str:
    found: Any = op.properties["kind"]
    data = getattr(found, "data", found)
    return str(getattr(data, "value", data))


@lowers("vector.reduction")
def reduction(low: Lowering, op: vector.ReductionOp) -> None:
    source, *acc = op.operands
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    shape = shape_of(source.type)
    total = _reduce(low, _kind(op), source, list(range(len(shape))), acc[0] if acc else None)
    low.env[op.results[0]] = v.Varying(total)


@lowers("vector.multi_reduction")
def multi_reduction(low: Lowering, op: Operation) -> None:
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    source, acc = op.operands
    axes = integers(op, "reduction_dims")
    low.env[op.results[0]] = v.Varying(_reduce(low, _kind(op), source, axes, acc))


def _reduce(
    low: Lowering, kind: str, source: SSAValue, axes: list[int], acc: SSAValue | None
) -> SSAValue:
    """A lane's elements along axes combined, halves at a time; narrow floats in f32, rounded once."""
    b, lanes = low.b, low.lanes
    shape = shape_of(source.type)
    kept = [n for d, n in enumerate(shape) if d not in axes]
    numbers = np.arange(prod(shape)).reshape(shape)
    order = [*axes, *(d for d in range(len(shape)) if d not in axes)]
    table = numbers.transpose(order).reshape(-1, prod(kept))
    flat = b.shape(low.wide(source), prod(shape), lanes)
    element = element_of(flat.type)
    computed: Attribute = element if wide_float(element) else Float32Type()
    flat = widen(b, flat, computed)
    combine = combiner(low, kind, computed)
    parts = [b.shuffle(flat, flat, row.tolist()) for row in table]
    if acc is not None:
        start = widen(b, b.shape(low.wide(acc), prod(kept), lanes), computed)
        parts.append(start)
    while len(parts) > 1:
        half = [combine(x, y) for x, y in zip(parts[::2], parts[1::2], strict=False)]
        parts = half if len(parts) % 2 == 0 else [*half, parts[-1]]
    return b.shape(narrow(b, parts[0], element), *kept, lanes)


@lowers("vector.contract", "vector.outerproduct")
def contract(low: Lowering, op: Operation) -> None:
    if not _all_uniform(low, op):
        raise low.refuse("of a lane's own vectors")
    as_it_is(low, op)


# Made from nothing ----------------------------------------------------------------------------------------------------


@lowers("vector.step", "vector.constant_mask")
def made(low: Lowering, op: Operation) -> None:
    as_it_is(low, op)


@lowers("vector.create_mask")
def create_mask(low: Lowering, op: Operation) -> None:
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    b, lanes = low.b, low.lanes
    shape = shape_of(op.results[0].type)
    kind = vec(index, *shape, lanes)
    total: SSAValue | None = None
    for d, bound in enumerate(op.operands):
        places = np.broadcast_to(
            np.arange(shape[d]).reshape([-1 if i == d else 1 for i in range(len(shape) + 1)]),
            (*shape, lanes),
        )
        limit = b.broadcast(low.wide(bound), kind)
        here = b.add(arith.CmpiOp(b.dense(kind, places.reshape(-1).tolist()), limit, "slt"))
        total = here if total is None else b.add(arith.AndIOp(total, here))
    assert total is not None
    low.env[op.results[0]] = v.Varying(total)


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
