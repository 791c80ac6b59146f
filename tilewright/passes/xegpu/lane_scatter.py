"""Subgroup to lane: gathers, scatters and atomics, one access per register; and what one lane does for all.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.passes.xegpu.lane_addresses import lane_load, lane_store, once_per_element
from tilewright.passes.xegpu.lane_blocks import access_properties
from tilewright.passes.xegpu.lane_layouts import with_chunk
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.lazy_registers import LaneFragment, Register
from tilewright.passes.xegpu.split import vector_of_offsets


@rule("xegpu.load", "xegpu.store", "xegpu.atomic_rmw", "xegpu.prefetch")
def scattered(d: LaneProgram, op: xegpu.ScatterAccess) -> None:
    offsets = vector_of_offsets(d, op, partial(alone, d))
    if offsets is None:
        return
    base, layout, hints = d.env[op.source_operand], d.owners.layout(offsets), hints_of(op)
    chunk, registers = op.chunk, list[Register]()
    whole = with_chunk(layout, chunk) if chunk > 1 else layout
    match op:
        case xegpu.LoadGatherOp():
            places, element = _per_lane(d, offsets, layout), element_of(op.value.type)
            for place, mask in zip(places, _per_lane(d, op.mask, layout), strict=True):
                registers += lane_load(d, base, place, mask, element, chunk, hints, zero=False)
        case xegpu.StoreScatterOp():
            value = d.owned(op.value, whole)
            masks = _per_lane(d, op.mask, layout)
            for n, place in enumerate(_per_lane(d, offsets, layout)):
                mask = once_per_element(d, layout, masks[n])
                part = value.registers[n * chunk : (n + 1) * chunk]
                lane_store(d, base, place, mask, part, hints)
        case xegpu.AtomicRMWOp():
            if chunk > 1:
                raise d.refuse("an atomic of several elements per lane")
            values = _per_lane(d, op.value, layout)
            masks = _per_lane(d, op.mask, layout)
            for n, place in enumerate(_per_lane(d, offsets, layout)):
                mask = once_per_element(d, layout, masks[n])
                assert mask is not None
                new = xegpu.AtomicRMWOp(op.kind, base, mask, values[n], offsets=place, hints=hints)
                registers.append((_from_first(d, layout, d.add(new)), 0))
        case _:
            for place in _per_lane(d, offsets, layout):
                d.put(op.create(operands=[base, place], properties=access_properties(op)))
    for result in op.results:
        d.give(result, LaneFragment(whole, element_of(result.type), tuple(registers)))


def _per_lane(d: LaneProgram, value: SSAValue, layout: ly.Layout) -> list[SSAValue]:
    """A value's registers as scalars; a scalar operand is its own."""
    if not isinstance(value.type, VectorType):
        return [d.env[value]] * layout.registers
    return [d.scalar_of(r) for r in d.owned(value, layout).registers]


def _from_first(d: LaneProgram, layout: ly.Layout, value: SSAValue) -> SSAValue:
    """What the first of the lanes that share an element has."""
    lanes = np.arange(d.lanes)
    copies = layout.replica_part(ly.Axis.LANE, lanes)
    return d.shuffled(value, [int(x) for x in lanes - copies])


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
