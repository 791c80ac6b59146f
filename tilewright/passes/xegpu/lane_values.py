"""Subgroup to lane, values: arithmetic, constants, reductions, and what only rearranges elements.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. Every handler takes fragments in the ownership that
`OwnershipAnalysis` decided for the class of its values; operands that are owned otherwise are converted.
`dialects.movement` says of which element each element of a result is a copy; where all stay in their lanes that is a
choice of registers and makes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    Signedness,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import (
    numbered,
    operand_layout,
    positions_at_run_time,
    result_layout,
    shape_of,
    static_position,
)
from tilewright.dialects.numerals import dense
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.combining import combiner
from tilewright.dialects.upstream.gpu.lanes import SubgroupReduceOp
from tilewright.layout.memory import run_along
from tilewright.passes.new_body import NewBody, without_layouts
from tilewright.passes.xegpu.lane_fragments import Coords, Moves, moves_of
from tilewright.passes.xegpu.lane_layouts import natural
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.lazy_registers import Free, Held, LaneFragment
from tilewright.passes.xegpu.ownership import dpas_fragments, has_instruction, is_free, right_layout
from tilewright.passes.xegpu.sg_maps import dpas_instruction

# --- Arithmetic ------------------------------------------------------------------------------------


@rule("elementwise")
def elementwise(d: LaneProgram, op: Operation) -> None:
    layout = d.owners.layout(op.results[0])
    operands = [
        d.taken(v, layout) if isinstance(v.type, VectorType) else d.env[v] for v in op.operands
    ]
    types = [d.typed(r, layout) for r in op.results]
    new = d.put(retyped(op, operands, types, without_layouts(op)))
    for old, made in zip(op.results, new.results, strict=True):
        made.name_hint = old.name_hint
        d.held[old] = d.fragment(layout, made)


@rule("arith.constant")
def constant_op(d: LaneProgram, op: arith.ConstantOp) -> None:
    value = op.value
    if not isinstance(value, DenseIntOrFPElementsAttr):
        d.keep(op)
        return
    element = element_of(op.result.type)
    if value.is_splat():
        d.held[op.result] = Free(element, value.data, None)
        return
    layout = d.owners.layout(op.result)
    numbers = np.array(value.get_values(), dtype=object).reshape(shape_of(op.result))
    places = numbers[tuple(c[0] for c in layout.table())]  # [lanes, registers]
    kind = VectorType(element, [layout.registers])  # pyright: ignore[reportArgumentType]
    steps = _steps(places, kind)
    if steps is not None:
        # Indices, mostly: a lane's numbers are the first lane's and one that grows with the lane.
        number = d.table(steps)
        if kind.element_type != number.type:
            number = d.add(cast_index(number, kind.element_type))
        first = d.constant(dense(kind, list(places[0])))
        spread = d.add(vector.BroadcastOp(number, kind))
        d.give_vector(op.result, d.binary(arith.AddiOp, spread, first), layout)
        return
    patterns: dict[tuple[Any, ...], list[int]] = {}
    for lane, row in enumerate(places):
        patterns.setdefault(tuple(row), []).append(lane)
    total: SSAValue | None = None
    for row, lanes in patterns.items():
        made = d.constant(dense(kind, list(row)))
        where = np.isin(np.arange(d.lanes), lanes)
        total = made if total is None else d.add(arith.SelectOp(d.chosen(where), made, total))
    assert total is not None
    d.give_vector(op.result, total, layout)


@rule("vector.step")
def step_op(d: LaneProgram, op: more.StepOp) -> None:
    layout = d.owners.layout(op.result)
    kind = d.typed(op.result, layout)
    d.give_vector(op.result, coordinate(d, layout, 0, kind), layout)


def coordinate(d: LaneProgram, layout: ly.Layout, dim: int, kind: VectorType[Any]) -> SSAValue:
    """Where each register's element lies along a dimension."""
    key = ("coordinate", layout, dim, kind)
    found = d.known(key)
    if found is not None:
        return found
    lane = layout.lane_starts[dim]
    register = layout.register_steps[dim]
    steps = d.constant(dense(kind, [int(r) for r in register]))
    base = d.table([int(x) for x in lane])
    if kind.element_type != base.type:
        base = d.once(("as", base, kind.element_type), cast_index(base, kind.element_type))
    spread = d.once(("splat", base, kind), vector.BroadcastOp(base, kind))
    return d.remember(key, d.binary(arith.AddiOp, spread, steps))


# --- Reductions --------------------------------------------------------------------------------------


@rule("vector.multi_reduction")
def multi_reduction(d: LaneProgram, op: more.MultiReductionOp) -> None:
    reduced = folded(d, op.kind, d.owned_as_is(op.source), op.dims)
    if isinstance(op.dest.type, VectorType) and op.dest.type.get_shape():
        layout = reduced.layout
        acc = d.taken(op.acc, layout)
        total = combine(d, op.kind, d.pick(reduced.registers), acc)
        d.give_vector(op.dest, total, layout)
        return
    total = d.scalar_of(reduced.registers[0])
    acc = d.env[op.acc]
    d.env[op.dest] = combine(d, op.kind, total, acc)


def folded(d: LaneProgram, kind: str, source: LaneFragment, dims: Sequence[int]) -> LaneFragment:
    """Folds the lane's own registers, then the lanes of every group (butterfly, or one hardware op)."""
    fragment = source
    for dim in sorted(dims, reverse=True):
        plan = ly.plan.reduce(fragment.layout, dim)
        groups: list[list[int]] = [[] for _ in range(plan.result.registers)]
        for register, result in enumerate(plan.fold):
            groups[int(result)].append(register)
        columns = [
            d.pick([fragment.registers[group[n]] for group in groups])
            for n in range(len(groups[0]))
        ]
        while len(columns) > 1:
            pairs = zip(columns[::2], columns[1::2], strict=False)
            rest = columns[-1:] if len(columns) % 2 else []
            columns = [combine(d, kind, a, b) for a, b in pairs] + rest
        value = columns[0]
        if d.hardware_reductions and len(plan.partners(ly.Axis.LANE)) == d.lanes:
            value = d.add(SubgroupReduceOp(kind, value))
        else:
            for mask in plan.butterfly():
                other = d.shuffle(value, "xor", d.number(mask))
                value = combine(d, kind, value, other)
        fragment = d.fragment(plan.result.dropped(dim), value)
    return fragment


def combine(d: NewBody, kind: str, a: SSAValue, b: SSAValue) -> SSAValue:
    return d.binary(combiner(kind, element_of(a.type)), a, b)


# --- Products ----------------------------------------------------------------------------------------


@rule("xegpu.dpas")
def dpas(d: LaneProgram, op: xegpu.DpasOp) -> None:
    xe = d.owners.xe
    m, n, k = op.dims() or (0, 0, 0)
    fragments = dpas_fragments(xe, op) if has_instruction(xe, op) else None
    if (
        fragments is None
        or fragments.c.shape != (m, n)
        or fragments.a is None
        or k != fragments.a.shape[1]
    ):
        instruction = dpas_instruction(xe, op)
        raise d.refuse(
            f"a product of {m}x{k} by {k}x{n} is no instruction of {xe.name}, which multiplies "
            f"{instruction.m[-1]}x{instruction.k} by {instruction.k}x{instruction.n[-1]}",
            "run xegpu-blocking first",
        )
    assert fragments.b is not None
    operands = [d.taken(op.lhs, fragments.a), d.taken(op.rhs, right_layout(fragments.b, op.rhs))]
    if op.acc is not None:
        operands.append(d.taken(op.acc, fragments.c))
    kind = VectorType(element_of(op.result.type), [fragments.c.registers])  # pyright: ignore
    made = d.add(xegpu.DpasOp.create(operands=operands, result_types=[kind]))
    d.give_vector(op.result, made, fragments.c)


def _steps(places: np.ndarray[Any, Any], kind: VectorType[Any]) -> list[int] | None:
    """By how much each lane's numbers [lanes, registers] exceed the first lane's, where all of a lane's do alike."""
    element = kind.element_type
    if isinstance(element, IntegerType):
        if element.width.data == 1 or element.signedness.data is not Signedness.SIGNLESS:
            return None
    elif not isinstance(element, IndexType):
        return None
    more = places - places[0]
    alike = bool((more == more[:, :1]).all()) and bool((more != 0).any())
    if not alike or max(abs(int(n)) for n in more[:, 0]) >= 2**31:
        return None
    return [int(n) for n in more[:, 0]]


def cast_index(value: SSAValue, element: Attribute) -> Operation:
    """An i32 as another integer or an index."""
    if isinstance(element, IntegerType):
        if element.width.data > 32:
            return arith.ExtSIOp(value, element)
        return arith.TruncIOp(value, element)
    return arith.IndexCastOp(value, element)


# --- Ops that only rearrange elements -------------------------------------------------------------


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
