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
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    Float32Type,
    IntegerAttr,
    IntegerType,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import (
    Idx,
    element_of,
    index,
    shape_of,
    signless,
    size_of,
    storage_bits,
    vec,
)
from tilewright.targets.emu.exchange import combiner, wide_float
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory, place_of
from tilewright.targets.emu.places import Deltas, Place, deltas_of, read, write
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
    old, new = (storage_bits(signless(element_of(x))) for x in (source.type, kind))
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
    bits = b.bitcast(b.shape(flat, count, lanes), IntegerType(old))
    made = _split(low, bits, old, new) if new < old else _joined(low, bits, old, new)
    made = b.bitcast(made, element_of(kind))
    made = b.shape(made, *shape, *(() if uniform else (lanes,)))
    low.env[result] = v.Uniform(made) if uniform else v.Varying(made)


def _split(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of wide integers as [n * old/new, lanes] of narrow ones."""
    b = low.b
    count, lanes = shape_of(bits.type)
    kind: Any = vec(IntegerType(new), count, lanes)
    parts: list[SSAValue] = []
    for i in range(old // new):
        moved = b.add(arith.ShRUIOp(bits, b.constant(bits.type, i * new))) if i else bits
        parts.append(b.add(arith.TruncIOp(moved, kind)))
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
        wide = b.add(arith.ExtUIOp(rows, kind))
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


# Memory ---------------------------------------------------------------------------------------------------------------


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
