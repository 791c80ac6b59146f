"""One address per lane: descriptors of scattered elements, gathers, scatters, atomics.

At lane level an op has a lane's own offset, or a descriptor of all lanes of which it takes its own; at subgroup level
offsets and mask are vectors over the lanes. Both are lists of addresses here; elements outside of a memref's extent and
lanes that the mask leaves out do not happen: loads give all bits set for them, atomics 0.
"""

from __future__ import annotations

from math import prod
from typing import Any

from xdsl.dialects.builtin import MemRefType, i1
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.targets.emu import values as v
from tilewright.targets.emu.atomics import atomic
from tilewright.targets.emu.blocks import element_type
from tilewright.targets.emu.builder import Idx, element_of, index, shape_of, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory, shared_start


@lowers("xegpu.create_tdesc")
def create_tdesc(low: Lowering, op: xegpu.CreateDescOp) -> None:
    low.env[op.results[0]] = _scattered(low, op.source, op.offsets, op.tdesc.element_type)


def _scattered(
    low: Lowering, source: SSAValue, offsets: SSAValue, element: Attribute
) -> v.Scattered:
    element_type(low, element)
    indices = low.plain(offsets)
    if isinstance(source.type, MemRefType):
        m = memory(low, source)
        size, stride = (part[0] if part else 1 for part in (m.sizes, m.strides))
        return v.Scattered(shared_start(low, source), size, stride, indices)
    return v.Scattered(low.index(source, "the base"), -1, 1, indices)


@lowers("xegpu.update_offset")
def update_offset(low: Lowering, op: xegpu.UpdateOffsetOp) -> None:
    desc = low.env[op.tensor_desc]
    assert isinstance(desc, v.Scattered)
    here, by = (low.b.cast(low.wide_of(x), index) for x in (desc.indices, low.plain(op.offsets)))
    indices = low.b.idx(low.b.plus(here, by))
    wide = low.lanes > 1
    low.env[op.results[0]] = v.Scattered(
        desc.base, desc.size, desc.stride, v.Varying(indices) if wide else v.Uniform(indices)
    )


def _access(
    low: Lowering, op: Any, source: SSAValue, offsets: SSAValue | None
) -> tuple[SSAValue, SSAValue]:
    """Addresses in bytes, and which of them are meant: [chunk, lanes]."""
    b, chunk, element = low.b, op.chunk, element_of(op.value.type)
    desc = low.env[source] if offsets is None else _scattered(low, source, offsets, element)
    assert isinstance(desc, v.Scattered)
    size = size_of(element_type(low, element))
    indices = low.wide_of(desc.indices)
    if low.lanes == 1:
        count = max(1, prod(op.lanes))
        indices, wanted = b.shape(indices, count), _subgroup_mask(low, op.mask, count, chunk)
    else:
        given = prod(shape_of(op.value.type))
        if op.tdesc is not None and given == prod(op.tdesc.get_shape()) and op.lane_count > 1:
            raise low.refuse("all lanes' values in one lane")
        count = low.lanes
        indices, wanted = (_own(low, x) for x in (indices, low.wide(op.mask)))
        wanted = low.mask_and(wanted)
    wanted = b.broadcast(wanted, vec(i1, chunk, count))
    places = b.plus(b.cast(indices, index), b.shape(b.iota(chunk), chunk, 1))
    if not (isinstance(desc.size, int) and desc.size < 0):
        wanted = b.all_of([wanted, _inside(low, places, desc.size)])
    return b.idx(b.plus(b.times(places, b.times(desc.stride, size)), desc.base)), wanted


def _inside(low: Lowering, indices: Idx, size: Idx) -> SSAValue:
    """Not negative and below the extent; an extent below 0 is none."""
    b, test = low.b, low.b.within(indices, size)
    return test if isinstance(size, int) else b.either(test, b.cmp("slt", size, 0))


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
        return b.value(more.TransposeOp(b.shape(wide, count, chunk), [1, 0]))
    if total == 1 and count > 1:
        wide = b.broadcast(b.extract(b.shape(wide, 1), 0), vec(i1, count))
    return b.shape(wide, count)


def _turned(low: Lowering, op: Any, value: SSAValue) -> SSAValue:
    """[chunk, lanes] as [lanes, chunk], which a subgroup's values are without `transpose`; and back."""
    if low.lanes > 1 or op.properties.get("transpose") is not None:
        return value
    return low.b.value(more.TransposeOp(value, [1, 0]))


def _to_result(low: Lowering, op: Any, found: SSAValue) -> SSAValue:
    """[chunk, lanes] in the shape of the op's value."""
    given = shape_of(op.value.type)
    if low.lanes > 1:
        return low.b.shape(found, *given, low.lanes)
    found = _turned(low, op, found)
    return low.b.shape(found, *given) if given else low.b.extract(low.b.shape(found, 1), 0)


def _from_value(low: Lowering, op: Any, shape: tuple[int, ...]) -> SSAValue:
    """The value stored, as [chunk, lanes]."""
    value = low.wide(op.value)
    if prod(shape_of(value.type) or (1,)) != prod(shape):
        raise low.refuse("a value that is not of the access's shape")
    turns = low.lanes == 1 and op.properties.get("transpose") is None
    return _turned(low, op, low.b.shape(value, *(shape[::-1] if turns else shape)))


@lowers("xegpu.load")
def load(low: Lowering, op: xegpu.LoadGatherOp) -> None:
    addresses, mask = _access(low, op, op.source, op.offsets)
    element = element_type(low, element_of(op.value.type))
    nothing = low.b.ones(vec(element, *shape_of(addresses.type)))
    low.set(op.value, _to_result(low, op, low.b.gather(0, addresses, mask, nothing)))


@lowers("xegpu.store")
def store(low: Lowering, op: xegpu.StoreScatterOp) -> None:
    addresses, mask = _access(low, op, op.source, op.offsets)
    low.b.scatter(_from_value(low, op, shape_of(addresses.type)), 0, addresses, mask)


@lowers("xegpu.atomic_rmw")
def atomic_rmw(low: Lowering, op: xegpu.AtomicRMWOp) -> None:
    addresses, mask = _access(low, op, op.source_operand, op.offsets)
    shape = shape_of(addresses.type)
    flat = [low.b.shape(x, prod(shape)) for x in (addresses, _from_value(low, op, shape), mask)]
    old = low.b.shape(atomic(low, str(op.kind), *flat), *shape)
    low.set(op.results[0], _to_result(low, op, old))
