"""Subgroup to lane: ops that only rearrange elements.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. `dialects.movement` says of which element each element of a
result is a copy; where all stay in their lanes that is a choice of registers and makes nothing.
"""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.movement import (
    numbered,
    operand_layout,
    positions_at_run_time,
    result_layout,
    shape_of,
    static_position,
)
from tilewright.dialects.upstream import vector as more
from tilewright.layout.memory import run_along
from tilewright.passes.xegpu.lane_fragments import Coords, Moves, moves_of
from tilewright.passes.xegpu.lane_layouts import natural
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.lazy_registers import Free, Held, LaneFragment
from tilewright.passes.xegpu.ownership import is_free


@rule("vector.transpose", "vector.shape_cast", "vector.deinterleave")
def rearranged(d: LaneProgram, op: Operation) -> None:
    rearrange(d, op, d.held[op.operands[0]])


def rearrange(d: LaneProgram, op: Operation, source: Held) -> None:
    """Each element of the results is one of the only operand, which is `source`."""
    shape = shape_of(op.operands[0])
    for n, result in enumerate(op.results):

        def through(c: Coords, n: int = n) -> Coords:
            return np.unravel_index(numbered(op)[n][c], shape)

        if isinstance(source, Free):
            d.held[result] = source
        else:
            what = (op.name, n, *op.properties.values())
            d.held[result] = d.move(source, d.owners.layout(result), through, what)


@rule("vector.broadcast")
def broadcast(d: LaneProgram, op: vector.BroadcastOp) -> None:
    held = d.held.get(op.source)
    if held is None:
        d.held[op.vector] = Free(op.source.type, None, d.env[op.source])
    elif is_free(op.vector) and isinstance(held, LaneFragment):
        one = _everywhere(d, held, (0,) * held.layout.rank)
        d.held[op.vector] = Free(held.element, None, one)
    else:
        rearrange(d, op, held)


@rule("vector.extract_strided_slice")
def extract_strided_slice(d: LaneProgram, op: more.ExtractStridedSliceOp) -> None:
    """Where slices would cut through the lanes, the source is distributed row by row, once for all."""
    held = d.held[op.source]
    if isinstance(held, LaneFragment) and not _is_cropped(held.layout, op.result):
        usual = d.owners.natural(held.layout.shape, 32)
        if usual != held.layout:
            source, key = held, ("converted", op.source, usual)
            held = d.fragment(usual, d.once(key, lambda: d.vector(source, usual)))
    rearrange(d, op, held)


def _is_cropped(layout: ly.Layout, part: SSAValue) -> bool:
    """Have all lanes an equal share of boxes that are as large as a part?"""
    try:
        layout.cropped(shape_of(part))
    except ly.LayoutError:
        return False
    return True


@rule("vector.extract")
def extract(d: LaneProgram, op: vector.ExtractOp) -> None:
    if positions_at_run_time(op):
        raise d.refuse("a position that is known only at run time")
    held = d.held[op.vector]
    if isinstance(op.result.type, VectorType):
        rearrange(d, op, held)
    elif isinstance(held, Free):
        d.env[op.result] = d.scalar_of((held.splat(d, [1]), 0))
    else:
        d.env[op.result] = _everywhere(d, held, static_position(op))


def _everywhere(d: LaneProgram, held: LaneFragment, position: tuple[int, ...]) -> SSAValue:
    """One element, as a scalar that all lanes have."""
    layout = ly.Layout.of((1,), [ly.Digit(ly.Axis.LANE, 1, d.lanes, None, 0)])
    moved = d.move(held, layout, lambda c: tuple(np.full_like(c[0], n) for n in position))
    return d.scalar_of(moved.registers[0])


@rule("vector.insert_strided_slice", "vector.insert", "vector.shuffle", "vector.interleave")
def merged(d: LaneProgram, op: Operation) -> None:
    """Each element of the result is one of several operands'."""
    if positions_at_run_time(op):
        raise d.refuse("a position that is known only at run time")
    (result,) = op.results
    layout = d.owners.layout(result)
    sources: list[LaneFragment] = []
    one: list[bool] = []
    """Of each: is it one number everywhere?"""
    for operand in op.operands:
        held = d.held.get(operand) or Free(operand.type, None, d.env[operand])
        one.append(isinstance(held, Free))
        if isinstance(held, Free):
            held = LaneFragment(layout, held.element, ((held.splat(d, [1]), 0),))
        sources.append(held)

    def plan() -> Moves:
        numbers = numbered(op)[0][tuple(c[0] for c in layout.table())]  # [lanes, registers]
        lanes = np.broadcast_to(np.arange(d.lanes)[:, None], numbers.shape)
        which, lane, register = np.zeros_like(numbers), lanes, np.zeros_like(numbers)
        start = 0
        for n, operand in enumerate(op.operands):
            shape = shape_of(operand)
            here = (numbers >= start) & (numbers < start + prod(shape))
            which = np.where(here, n, which)
            if not one[n]:
                own = sources[n].layout
                at = own.owner(*np.unravel_index(np.where(here, numbers - start, 0), shape))
                mine = at.lane + own.replica_part(ly.Axis.LANE, lanes)
                lane = np.where(here, mine, lane)
                register = np.where(here, at.register, register)
            start += prod(shape)
        return moves_of(which, lane, register)

    d.held[result] = d.gather(sources, layout, plan, (op.name, *one, *op.properties.values()))


@rule("vector.bitcast")
def bitcast(d: LaneProgram, op: vector.BitcastOp) -> None:
    held = d.owned_as_is(op.source)
    try:
        layout = result_layout(op, held.layout)
    except ly.LayoutError:
        layout = None
    factor = held.layout.shape[-1] // shape_of(op.result)[-1]
    if layout is None or (factor > 1 and run_along(held.layout, -1) % factor):
        layout = natural(shape_of(op.result), 32, d.lanes)
        held = d.converted(held, operand_layout(op, layout))
    made = d.add(vector.BitcastOp(d.pick(held.registers), d.typed(op.result, layout)))
    d.give_vector(op.result, made, layout)


@rule("xegpu.convert_layout")
def convert_layout(d: LaneProgram, op: xegpu.ConvertLayoutOp) -> None:
    if isinstance(op.source.type, VectorType):
        d.give(op.result, d.held[op.source])
    else:
        d.env[op.result] = d.env[op.source]
