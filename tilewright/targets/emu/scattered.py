"""One address per lane: descriptors of scattered elements, gathers, scatters, atomics.

At lane level an op has a lane's own offset, or a descriptor of all lanes of which it takes its own; at subgroup level
offsets and mask are vectors over the lanes. Both are lists of addresses here; elements outside of a memref's extent and
lanes that the mask leaves out do not happen: loads give all bits set for them, atomics 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, i1
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.targets.emu import values as v
from tilewright.targets.emu.atomics import atomic
from tilewright.targets.emu.blocks import element_type
from tilewright.targets.emu.builder import Idx, element_of, index, shape_of, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory
from tilewright.targets.emu.places import Place


@lowers("xegpu.create_tdesc")
def create_tdesc(low: Lowering, op: xegpu.CreateDescOp) -> None:
    low.env[op.results[0]] = _scattered(low, op.source, op.offsets, op.tdesc.element_type)


def _scattered(
    low: Lowering, source: SSAValue, offsets: SSAValue, element: Attribute
) -> v.Scattered:
    size = size_of(element_type(low, element))
    indices = low.plain(offsets)
    if isinstance(source.type, MemRefType):
        m = memory(low, source)
        place = Place(low).plus(m.offset)
        if not place.shared or m.lane is not None:
            raise low.refuse("the place of its array differs between lanes")
        base = low.b.plus(m.base, low.b.times(place.base, size))
        return v.Scattered(
            base, m.sizes[0] if m.sizes else 1, m.strides[0] if m.strides else 1, indices
        )
    return v.Scattered(low.index(source, "the base"), None, 1, indices)


@lowers("xegpu.update_offset")
def update_offset(low: Lowering, op: xegpu.UpdateOffsetOp) -> None:
    desc = low.env[op.tensor_desc]
    assert isinstance(desc, v.Scattered)
    here, by = (_as_index(low, low.wide_of(x)) for x in (desc.indices, low.plain(op.offsets)))
    indices = low.b.add(arith.AddiOp(here, by))
    wide = low.lanes > 1
    low.env[op.results[0]] = v.Scattered(
        desc.base, desc.size, desc.stride, v.Varying(indices) if wide else v.Uniform(indices)
    )


def _as_index(low: Lowering, value: SSAValue) -> SSAValue:
    if element_of(value.type) == index:
        return value
    return low.b.add(arith.IndexCastOp(value, vec(index, *shape_of(value.type))))


@dataclass
class Access:
    """An access, element by element: vectors [chunk, lanes] (or [lanes] alone), addresses in bytes."""

    addresses: SSAValue
    mask: SSAValue
    chunk: int
    lanes: int
    whole: bool
    """Does each lane hold all lanes' values? (At lane level, of a descriptor of all lanes.)"""


def _access(
    low: Lowering, op: Any, source: SSAValue, offsets: SSAValue | None, mask: SSAValue
) -> Access:
    b = low.b
    element = element_of(op.value.type)
    desc = low.env[source] if offsets is None else _scattered(low, source, offsets, element)
    assert isinstance(desc, v.Scattered)
    size = size_of(element_type(low, element))
    chunk = op.chunk
    if low.lanes == 1:
        count = max(1, prod(op.lanes))
        indices = _as_index(low, b.shape(low.wide_of(desc.indices), count))
        wanted = _subgroup_mask(low, mask, count, chunk)
    else:
        given = prod(shape_of(op.value.type))
        if op.tdesc is not None and given == prod(op.tdesc.get_shape()) and op.lane_count > 1:
            raise low.refuse("all lanes' values in one lane")
        count = low.lanes
        indices = _as_index(low, _own(low, low.wide_of(desc.indices)))
        wanted = _own(low, low.wide(mask))
        if low.mask is not None:
            wanted = b.add(arith.AndIOp(wanted, low.mask))
        wanted = b.broadcast(wanted, vec(i1, chunk, count)) if chunk > 1 else wanted
    shape = (chunk, count) if chunk > 1 else (count,)
    kind = vec(index, *shape)
    if chunk > 1:
        within = [c for c in range(chunk) for _ in range(count)]
        indices = b.add(arith.AddiOp(b.broadcast(indices, kind), b.dense(kind, within)))
    if desc.size is not None and not (isinstance(desc.size, int) and desc.size < 0):
        wanted = b.add(arith.AndIOp(wanted, _inside(low, indices, desc.size)))
    step = b.times(desc.stride, size)
    many = b.broadcast(b.idx(step), kind)
    addresses = b.add(arith.MuliOp(indices, many)) if step != 1 else indices
    base = b.broadcast(b.idx(desc.base), kind)
    return Access(b.add(arith.AddiOp(addresses, base)), wanted, chunk, count, low.lanes == 1)


def _inside(low: Lowering, indices: SSAValue, size: Idx) -> SSAValue:
    """Not negative and below the extent; an extent below 0 is none."""
    b, kind = low.b, indices.type
    limit = b.broadcast(b.idx(size), kind)  # pyright: ignore
    above = b.add(arith.CmpiOp(indices, b.zeros(kind), "sge"))
    below = b.add(arith.CmpiOp(indices, limit, "slt"))
    test = b.add(arith.AndIOp(above, below))
    if isinstance(size, int):
        return test
    endless = b.add(arith.CmpiOp(size, b.constant(index, 0), "slt"))
    flags = test.type
    return b.add(arith.OrIOp(test, b.broadcast(endless, flags)))  # pyright: ignore


def _own(low: Lowering, wide: SSAValue) -> SSAValue:
    """[lanes]: a lane's own of what it has: the only element, or its own of one for each lane."""
    shape = shape_of(wide.type)
    if len(shape) == 1:
        return wide
    lanes = low.lanes
    flat = low.b.shape(wide, prod(shape))
    count = prod(shape[:-1])
    if count == 1:
        return low.b.shape(flat, lanes)
    if count != lanes:
        raise low.refuse(f"{count} offsets for {lanes} lanes")
    return low.b.shuffle(flat, flat, [lane * lanes + lane for lane in range(lanes)])


def _subgroup_mask(low: Lowering, mask: SSAValue, count: int, chunk: int) -> SSAValue:
    b, wide = low.b, low.wide(mask)
    total = prod(shape_of(wide.type)) if shape_of(wide.type) else 1
    if chunk > 1 and total == count * chunk:
        return _turned(b, b.shape(wide, count, chunk))
    if total == 1 and count > 1:
        wide = b.broadcast(b.extract(b.shape(wide, 1), 0), vec(i1, count))
    flat = b.shape(wide, count)
    return b.broadcast(flat, vec(i1, chunk, count)) if chunk > 1 else flat


def _turned(b: Any, value: SSAValue) -> SSAValue:
    """A 2-D vector transposed."""
    rows, columns = shape_of(value.type)
    flat = b.shape(value, rows * columns)
    order = [r * columns + c for c in range(columns) for r in range(rows)]
    return b.shape(b.shuffle(flat, flat, order), columns, rows)


def _to_result(low: Lowering, op: Any, found: SSAValue, access: Access) -> SSAValue:
    """[chunk, lanes] in the shape of the op's value: [lanes, chunk] at subgroup level, or with `transpose`."""
    b, given = low.b, shape_of(op.value.type)
    if low.lanes > 1:
        return b.shape(found, *given, low.lanes)
    turned = op.properties.get("transpose") is not None
    if access.chunk > 1 and not turned:
        found = _turned(b, found)
    return b.shape(found, *given) if given else b.extract(b.shape(found, 1), 0)


def _from_value(low: Lowering, op: Any, access: Access) -> SSAValue:
    """The value stored, as [chunk, lanes]."""
    b, value = low.b, low.wide(op.value)
    shape = (access.chunk, access.lanes) if access.chunk > 1 else (access.lanes,)
    turned = op.properties.get("transpose") is not None
    if low.lanes == 1 and access.chunk > 1 and not turned:
        value = _turned(b, b.shape(value, access.lanes, access.chunk))
    if prod(shape_of(value.type) or (1,)) != prod(shape):
        raise low.refuse("a value that is not of the access's shape")
    return b.shape(value, *shape)


@lowers("xegpu.load")
def load(low: Lowering, op: xegpu.LoadGatherOp) -> None:
    b = low.b
    access = _access(low, op, op.source, op.offsets, op.mask)
    element = element_type(low, element_of(op.value.type))
    shape = shape_of(access.addresses.type)
    nothing = b.ones(vec(element, *shape))
    found = b.gather(0, access.addresses, access.mask, nothing)
    low.set(op.value, _to_result(low, op, found, access))


@lowers("xegpu.store")
def store(low: Lowering, op: xegpu.StoreScatterOp) -> None:
    access = _access(low, op, op.source, op.offsets, op.mask)
    element_type(low, element_of(op.value.type))
    value = _from_value(low, op, access)
    low.b.scatter(value, 0, access.addresses, access.mask)


@lowers("xegpu.atomic_rmw")
def atomic_rmw(low: Lowering, op: xegpu.AtomicRMWOp) -> None:
    b = low.b
    offsets = op.offsets
    access = _access(low, op, op.source_operand, offsets, op.mask)
    element_type(low, element_of(op.value.type))
    value = _from_value(low, op, access)
    count = access.chunk * access.lanes
    flat: Sequence[SSAValue] = [b.shape(x, count) for x in (access.addresses, value, access.mask)]
    old = atomic(low, str(op.kind), *flat)
    shape = (access.chunk, access.lanes) if access.chunk > 1 else (access.lanes,)
    low.set(op.results[0], _to_result(low, op, b.shape(old, *shape), access))
