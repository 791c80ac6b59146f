"""One address per lane: descriptors of scattered elements, gathers, scatters, atomics.

At lane level an op has a lane's own offset, or a descriptor of all lanes of which it takes its own; at subgroup level
offsets and mask are vectors over the lanes. Both are lists of addresses here; elements outside of a memref's extent and
lanes that the mask leaves out do not happen: loads give all bits set for them, atomics 0.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of_type
from tilewright.targets.emu import values as v
from tilewright.targets.emu.blocks import arrange, element_type
from tilewright.targets.emu.builder import Idx, element_of, index, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import atomic, memory, shared_start


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
    """Addresses in bytes, and which of them are meant: of all components of the op's value, one after the other."""
    b, chunk, given = low.b, op.chunk, shape_of_type(op.value.type)
    element = element_of(op.value.type)
    desc = low.env[source] if offsets is None else _scattered(low, source, offsets, element)
    assert isinstance(desc, v.Scattered)
    size = size_of(element_type(low, element))
    indices, wanted = low.wide_of(desc.indices), low.wide(op.mask)
    # Components of a lane follow one another in a subgroup's values without `transpose`.
    inner = low.lanes == 1 and op.properties.get("transpose") is None
    count = max(1, prod(op.lanes)) if low.lanes == 1 else low.lanes
    if low.lanes > 1:
        if op.tdesc is not None and prod(given) == prod(op.tdesc.get_shape()) and op.lane_count > 1:
            raise low.refuse("all lanes' values in one lane")
        indices, wanted = (_own(low, x) for x in (indices, wanted))
        wanted = low.mask_and(wanted)
    shape = (count, chunk) if inner else (chunk, count)
    if prod(shape) != prod(given) * low.lanes:
        raise low.refuse("a value that is not of the access's shape")
    lane, part = (x.reshape(-1) for x in np.indices(shape)[:: 1 if inner else -1])

    def repeated(wide: SSAValue) -> SSAValue:
        """For each component: what is alone, of its lane, or its own of one for each, lane by lane."""
        total = prod(shape_of_type(wide.type))
        apart = low.lanes == 1 and total == count * chunk
        return arrange(
            b, b.shape(wide, total), lane * chunk + part if apart else lane * (total > 1)
        )

    wanted = repeated(wanted)
    within = b.dense(vec(index, part.size), part.tolist())
    places = b.plus(repeated(b.cast(indices, index)), within)
    if not (isinstance(desc.size, int) and desc.size < 0):
        wanted = b.all_of([wanted, _inside(low, places, desc.size)])
    step = b.times(desc.stride, size)
    return b.idx(b.plus(b.times(places, step), desc.base)), wanted


def _inside(low: Lowering, indices: Idx, size: Idx) -> SSAValue:
    """Not negative and below the extent; an extent below 0 is none."""
    b, test = low.b, low.b.within(indices, size)
    return test if isinstance(size, int) else b.either(test, b.cmp("slt", size, 0))


def _own(low: Lowering, wide: SSAValue) -> SSAValue:
    """[lanes]: a lane's own of what it has: the only element, or its own of one for each lane."""
    shape = shape_of_type(wide.type)
    if len(shape) == 1:
        return wide
    lanes, count = low.lanes, prod(shape[:-1])
    if count not in (1, lanes):
        raise low.refuse(f"{count} offsets for {lanes} lanes")
    return arrange(low.b, wide, np.arange(lanes) * (1 if count == 1 else lanes + 1))


@lowers("xegpu.load")
def load(low: Lowering, op: xegpu.LoadGatherOp) -> None:
    addresses, mask = _access(low, op, op.source, op.offsets)
    element = element_type(low, element_of(op.value.type))
    nothing = low.b.ones(vec(element, *shape_of_type(addresses.type)))
    _give(low, op.value, low.b.gather(0, addresses, mask, nothing))


@lowers("xegpu.store")
def store(low: Lowering, op: xegpu.StoreScatterOp) -> None:
    addresses, mask = _access(low, op, op.source, op.offsets)
    value = low.b.shape(low.wide(op.value), *shape_of_type(addresses.type))
    low.b.scatter(value, 0, addresses, mask)


@lowers("xegpu.atomic_rmw")
def atomic_rmw(low: Lowering, op: xegpu.AtomicRMWOp) -> None:
    addresses, mask = _access(low, op, op.source_operand, op.offsets)
    value = low.b.shape(low.wide(op.value), *shape_of_type(addresses.type))
    _give(low, op.results[0], atomic(low, str(op.kind), addresses, value, mask))


def _give(low: Lowering, result: SSAValue, found: SSAValue) -> None:
    whole = (*shape_of_type(result.type), *([low.lanes] if low.lanes > 1 else []))
    low.set(result, low.b.shape(found, *whole) if whole else low.b.extract(found, 0))
