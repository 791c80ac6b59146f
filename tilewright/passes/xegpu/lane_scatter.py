"""Subgroup to lane: gathers, scatters and atomics, one access per register; and what one lane does for all.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    VectorType,
)
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.numerals import number_attr
from tilewright.passes.xegpu.lane_addresses import lane_load, lane_store, once_per_element
from tilewright.passes.xegpu.lane_blocks import access_properties
from tilewright.passes.xegpu.lane_layouts import with_chunk
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.lazy_registers import LaneFragment, Register, element_of

# --- Scattered accesses ----------------------------------------------------------------------------


def _lane_source(d: LaneProgram, op: xegpu.ScatterAccess) -> tuple[SSAValue, SSAValue]:
    if op.tdesc is not None or op.offsets_operand is None:
        raise d.refuse("a scattered descriptor of the older text", "run xegpu-upgrade first")
    return d.env[op.source_operand], op.offsets_operand


def _per_lane(d: LaneProgram, value: SSAValue, layout: ly.Layout) -> list[SSAValue]:
    """A value's registers as scalars; a scalar operand is its own."""
    if not isinstance(value.type, VectorType):
        return [d.env[value]] * layout.registers
    return [d.scalar_of(r) for r in d.owned(value, layout).registers]


@rule("xegpu.load")
def load_gather(d: LaneProgram, op: xegpu.LoadGatherOp) -> None:
    base, offsets = _lane_source(d, op)
    if not isinstance(offsets.type, VectorType):
        d.keep(op)
        return
    chunk = op.chunk
    if op.transpose and chunk > 1:
        raise d.refuse("transpose on a gather", "run xegpu-upgrade first")
    layout = d.owners.layout(offsets)
    element = element_of(op.value)
    registers: list[Register] = []
    pairs = zip(_per_lane(d, offsets, layout), _per_lane(d, op.mask, layout), strict=True)
    for offset, mask in pairs:
        registers += lane_load(d, base, offset, mask, element, chunk, hints_of(op), zero=False)
    d.give(op.value, LaneFragment(_with_chunk(layout, chunk), element, tuple(registers)))


def _with_chunk(layout: ly.Layout, chunk: int) -> ly.Layout:
    return with_chunk(layout, chunk) if chunk > 1 else layout


@rule("xegpu.store")
def store_scatter(d: LaneProgram, op: xegpu.StoreScatterOp) -> None:
    base, offsets = _lane_source(d, op)
    if not isinstance(offsets.type, VectorType):
        alone(d, op)
        return
    chunk = op.chunk
    layout = d.owners.layout(offsets)
    value = d.owned(op.value, _with_chunk(layout, chunk))
    masks = _per_lane(d, op.mask, layout)
    for n, offset in enumerate(_per_lane(d, offsets, layout)):
        mask = once_per_element(d, layout, masks[n])
        registers = value.registers[n * chunk : (n + 1) * chunk]
        lane_store(d, base, offset, mask, registers, hints_of(op))


@rule("xegpu.atomic_rmw")
def atomic_rmw(d: LaneProgram, op: xegpu.AtomicRMWOp) -> None:
    base, offsets = _lane_source(d, op)
    if not isinstance(offsets.type, VectorType):
        alone(d, op)
        return
    if op.chunk > 1:
        raise d.refuse("an atomic of several elements per lane")
    layout = d.owners.layout(offsets)
    values = _per_lane(d, op.value, layout)
    masks = _per_lane(d, op.mask, layout)
    element = element_of(op.value)
    registers: list[Register] = []
    for n, offset in enumerate(_per_lane(d, offsets, layout)):
        mask = once_per_element(d, layout, masks[n])
        assert mask is not None
        new = xegpu.AtomicRMWOp(op.kind, base, mask, values[n], offsets=offset, hints=hints_of(op))
        old = d.add(new)
        registers.append((_from_first(d, layout, old), 0))
    d.give(op.result, LaneFragment(layout, element, tuple(registers)))


def _from_first(d: LaneProgram, layout: ly.Layout, value: SSAValue) -> SSAValue:
    """What the first of the lanes that share an element has."""
    lanes = np.arange(d.lanes)
    copies = layout.replica_part(ly.Axis.LANE, lanes)
    return d.shuffled(value, [int(x) for x in lanes - copies])


@rule("xegpu.prefetch")
def prefetch(d: LaneProgram, op: xegpu.PrefetchOp) -> None:
    base, offsets = _lane_source(d, op)
    if not isinstance(offsets.type, VectorType):
        d.keep(op)
        return
    layout = d.owners.layout(offsets)
    for offset in _per_lane(d, offsets, layout):
        d.put(xegpu.PrefetchOp.create(operands=[base, offset], properties=access_properties(op)))


# --- What one lane does for all --------------------------------------------------------------------------


@rule("memref.store", "memref.atomic_rmw", "memref.generic_atomic_rmw", "gpu.printf", "tw.print")
def alone(d: LaneProgram, op: Operation) -> None:
    """An op with an effect that must happen once for the subgroup: the first lane does it, and has what it gives."""
    if any(isinstance(v.type, VectorType) for v in (*op.operands, *op.results)):
        d.unruled(op)
    first = d.compare("eq", d.lane(), d.number(0))
    if all(r.first_use is None for r in op.results):
        with d.when(first):
            d.keep(op)
        return
    (result,) = op.results
    none = arith.ConstantOp(number_attr(result.type, 0))
    (old,) = d.choose(first, lambda: d.keep(op).results, lambda: [d.add(none)])
    d.env[result] = d.shuffled(old, [0] * d.lanes)
