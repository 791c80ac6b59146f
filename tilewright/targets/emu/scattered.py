"""One address per lane: descriptors of scattered elements, gathers, scatters, atomics.

At lane level an op has a lane's own offset; at subgroup level offsets and mask are vectors over the lanes. Both are
lists of addresses here; elements outside of a memref's extent and lanes that the mask leaves out do not happen: loads
give all bits set for them, atomics 0. Scattered descriptors are offsets of the ops already (`xegpu-upgrade`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of_type
from tilewright.targets.emu.blocks import arrange, element_type
from tilewright.targets.emu.builder import element_bytes, element_of, index, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import atomic, memory, shared_start


def _access(low: Lowering, op: Any) -> tuple[SSAValue, SSAValue]:
    """Addresses in bytes, and which of them are meant: of all components of the op's value, one after the other."""
    b, source, chunk, given = low.b, op.source_operand, op.chunk, shape_of_type(op.value.type)
    size, extent, stride = element_bytes(element_type(low, element_of(op.value.type))), None, 1
    if isinstance(source.type, MemRefType):
        m, base = memory(low, source), shared_start(low, source)
        extent, stride = (part[0] if part else 1 for part in (m.sizes, m.strides))
    else:
        base = low.index(source, "the base")
    indices, wanted = low.wide(op.offsets), low.wide(op.mask)
    # Components of a lane follow one another in a subgroup's values without `transpose`.
    inner = low.lanes == 1 and op.properties.get("transpose") is None
    count = max(1, prod(op.lanes)) if low.lanes == 1 else low.lanes
    if low.lanes > 1:
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
    if extent is not None:
        wanted = b.all_of([wanted, b.within(places, extent)])
    return b.idx(b.plus(b.times(places, b.times(stride, size)), base)), wanted


def _own(low: Lowering, wide: SSAValue) -> SSAValue:
    """[lanes]: a lane's only element."""
    if (count := prod(shape_of_type(wide.type)) // low.lanes) != 1:
        raise low.refuse(f"{count} offsets of one lane")
    return low.b.shape(wide, low.lanes)


@lowers("xegpu.load")
def load(low: Lowering, op: xegpu.LoadGatherOp) -> None:
    addresses, mask = _access(low, op)
    element = element_type(low, element_of(op.value.type))
    nothing = low.b.ones(vec(element, *shape_of_type(addresses.type)))
    _give(low, op.value, low.b.gather(0, addresses, mask, nothing))


@lowers("xegpu.store")
def store(low: Lowering, op: xegpu.StoreScatterOp) -> None:
    addresses, mask = _access(low, op)
    value = low.b.shape(low.wide(op.value), *shape_of_type(addresses.type))
    low.b.scatter(value, 0, addresses, mask)


@lowers("xegpu.atomic_rmw")
def atomic_rmw(low: Lowering, op: xegpu.AtomicRMWOp) -> None:
    addresses, mask = _access(low, op)
    value = low.b.shape(low.wide(op.value), *shape_of_type(addresses.type))
    _give(low, op.results[0], atomic(low, str(op.kind), addresses, value, mask))


def _give(low: Lowering, result: SSAValue, found: SSAValue) -> None:
    whole = (*shape_of_type(result.type), *([low.lanes] if low.lanes > 1 else []))
    low.set(result, low.b.shape(found, *whole) if whole else low.b.extract(found, 0))
