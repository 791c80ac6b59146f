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
    ArrayAttr,
    DenseArrayBase,
    Float32Type,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, SSAValue

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

Numbers = np.ndarray
DYNAMIC = -(2**63)


def integers(attribute: Attribute | None) -> list[int]:
    """The numbers of a dense array or an array of integers."""
    if isinstance(attribute, DenseArrayBase):
        return [int(n) for n in attribute.get_values()]
    assert isinstance(attribute, ArrayAttr)
    return [n.value.data for n in attribute if isinstance(n, IntegerAttr)]


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


def moves(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: `f(op, *numbers) -> numbers of each result`, for ops that only move components."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def lower(low: Lowering, op: Operation) -> None:
            if _all_uniform(low, op):
                as_it_is(low, op)
                return
            rearrange(low, op, function)

        lowers(*names)(lower)
        return function

    return register


def rearrange(low: Lowering, op: Operation, function: Callable[..., Any]) -> None:
    b, lanes = low.b, low.lanes
    sources: list[SSAValue] = []
    numbers: list[Numbers] = []
    at = 0
    for operand in op.operands:
        shape = shape_of(operand.type)
        count = prod(shape)
        sources.append(b.shape(low.wide(operand), count, lanes))
        numbers.append(np.arange(at, at + count).reshape(shape))
        at += count
    made = function(op, *numbers)
    made = made if isinstance(made, tuple) else (made,)
    pair = sources if len(sources) == 2 else [sources[0], sources[0]]
    for result, chosen in zip(op.results, made, strict=True):
        flat = np.asarray(chosen).reshape(-1)
        value = b.shuffle(pair[0], pair[1], flat.tolist())
        low.env[result] = v.Varying(b.shape(value, *shape_of(result.type), lanes))


@moves("vector.shape_cast")
def shape_cast(op: Operation, a: Numbers) -> Numbers:
    return a


@moves("vector.transpose")
def transpose(op: Operation, a: Numbers) -> Numbers:
    return a.transpose(integers(op.properties["permutation"]))


@moves("vector.interleave")
def interleave(op: Operation, a: Numbers, c: Numbers) -> Numbers:
    return np.stack([a, c], axis=-1)


@moves("vector.deinterleave")
def deinterleave(op: Operation, a: Numbers) -> tuple[Numbers, Numbers]:
    return a[..., 0::2], a[..., 1::2]


@moves("vector.shuffle")
def shuffle(op: Operation, a: Numbers, c: Numbers) -> Numbers:
    both = np.concatenate([np.atleast_1d(a), np.atleast_1d(c)])
    return both[[max(m, 0) for m in integers(op.properties["mask"])]]


@moves("vector.extract_strided_slice")
def extract_strided_slice(op: Operation, a: Numbers) -> Numbers:
    parts = zip(*(integers(op.properties[n]) for n in ("offsets", "sizes", "strides")), strict=True)
    return a[tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in parts)]


@moves("vector.insert_strided_slice")
def insert_strided_slice(op: Operation, part: Numbers, whole: Numbers) -> Numbers:
    offsets, strides = (integers(op.properties[n]) for n in ("offsets", "strides"))
    whole = whole.copy()
    lead = whole.ndim - part.ndim
    places: list[Any] = list(offsets[:lead])
    for o, s, n in zip(offsets[lead:], strides, part.shape, strict=True):
        places.append(slice(o, o + (n - 1) * s + 1, s))
    whole[tuple(places)] = part
    return whole


@lowers("vector.broadcast")
def broadcast(low: Lowering, op: vector.BroadcastOp) -> None:
    (source,) = op.operands
    if isinstance(low.env[source], v.Uniform):
        as_it_is(low, op)
        return
    kind = low.widened(op.results[0].type)
    low.env[op.results[0]] = v.Varying(low.b.broadcast(low.wide(source), kind))


# Single components ----------------------------------------------------------------------------------------------------


def _position(op: Operation) -> list[int]:
    return integers(op.properties["static_position"])


@lowers("vector.extract")
def extract(low: Lowering, op: vector.ExtractOp) -> None:
    if _all_uniform(low, op):
        as_it_is(low, op)
        return
    source, *dynamic = op.operands
    position = _position(op)
    shape = shape_of(source.type)
    numbers = np.arange(prod(shape)).reshape(shape)
    flat = low.b.shape(low.wide(source), prod(shape), low.lanes)
    result = op.results[0]

    def pick(at: Sequence[int]) -> SSAValue:
        chosen = np.asarray(numbers[tuple(at)])
        value = low.b.shuffle(flat, flat, chosen.reshape(-1).tolist())
        return low.b.shape(value, *chosen.shape, low.lanes)

    low.env[result] = v.Varying(_chosen(low, shape, position, dynamic, pick))


def _candidates(shape: Sequence[int], position: Sequence[int]) -> list[tuple[int, ...]]:
    """Every index that `position` may be, dynamic entries running over their dimension."""
    ranges = [range(n) if p == DYNAMIC else (p,) for n, p in zip(shape, position, strict=False)]
    grid = np.array(np.meshgrid(*ranges, indexing="ij")).reshape(len(ranges), -1).T
    return [tuple(int(x) for x in row) for row in grid]


def _matches(
    low: Lowering, at: Sequence[int], position: Sequence[int], dynamic: Sequence[SSAValue]
) -> SSAValue:
    """[lanes]: is the position that of `at`?"""
    b, runtime = low.b, iter(dynamic)
    test: SSAValue | None = None
    for number, p in zip(at, position, strict=True):
        if p == DYNAMIC:
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
    first, *rest = _candidates(shape, position)
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
    position = _position(op)
    shape, count = shape_of(whole.type), prod(shape_of(whole.type))
    numbers = np.arange(count).reshape(shape)
    size = prod(shape_of(part.type))
    new = b.shape(low.wide(part), size, lanes)
    value = b.shape(low.wide(whole), count, lanes)
    for at in _candidates(shape, position):
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
    axes = integers(op.properties["reduction_dims"])
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
