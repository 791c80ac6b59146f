"""Values made where they are used: constants, splats, index vectors, broadcasts, elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    UnrealizedConversionCastOp,
    VectorType,
)
from xdsl.dialects.vector import BroadcastOp as VectorBroadcastOp
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.codegen.builder import Idx
from tilewright.layout import Layout, LayoutError
from tilewright.targets.cuda.distribute import (
    ELEMENTWISE,
    FALLBACKS,
    Distributor,
    Fragment,
    Rule,
    is_tile_shaped,
    producer,
    rule,
)
from tilewright.targets.cuda.ownership import (
    broadcast_source,
    is_even,
    permutation_of,
    shape_of,
)

MOST_CONSTANTS = 256
"""Different values of a constant tile that are told apart by comparing places."""


@producer("arith.constant")
def constant(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    assert isinstance(op, arith.ConstantOp)
    value = op.value
    type = d.fragment_type(op.result.type, layout)
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise d.error(op, "a tile constant is a dense attribute")
    values = list(value.get_values())
    if value.is_splat():
        return d.b.constant(type, values[0])  # pyright: ignore
    return _table(d, op, layout, type, values)


def _table(
    d: Distributor, op: Operation, layout: Layout, type: VectorType, values: Sequence[object]
) -> SSAValue:
    """A constant tile of several values: per thread number a select between the values it may have."""
    shape = layout.shape
    size = int(np.prod(shape))
    if size > MOST_CONSTANTS:
        raise d.error(
            op,
            f"a constant tile of {size} different values has no place on {d.machine.name}",
            hint=f"up to {MOST_CONSTANTS} can be told apart; pass larger tables as arrays",
        )
    number = _offset_index(d, *linear_index(d, layout))
    b = d.b
    result = b.constant(type, values[0])  # pyright: ignore
    for i in range(1, size):
        if values[i] == values[0]:
            continue
        at = b.constant(number.type, i)
        here = b.value(arith.CmpiOp(number, at, "eq"))
        result = b.value(arith.SelectOp(here, b.constant(type, values[i]), result))  # pyright: ignore
    return result


def linear_index(d: Distributor, layout: Layout) -> tuple[Idx, np.ndarray]:
    """The row-major number of each element: that of the thread's first register, and what each register adds."""
    weights = [int(np.prod(layout.shape[i + 1 :])) for i in range(layout.rank)]
    b = d.b
    thread: int | SSAValue = 0
    constants = np.zeros(layout.registers, np.int64)
    for x, c, w in zip(d.coordinates(layout), d.registers_at(layout), weights, strict=True):
        thread = b.add(thread, b.mul(x, w))
        constants += c * w
    return thread, constants


def _offset_index(d: Distributor, thread: int | SSAValue, constants: np.ndarray) -> SSAValue:
    from tilewright.codegen.builder import index

    b = d.b
    type = VectorType(index, [len(constants)])
    numbers = [int(c) for c in constants]
    if isinstance(thread, int):
        return b.dense(type, [thread + c for c in numbers])
    base = b.value(VectorBroadcastOp(thread, type))
    if not any(numbers):
        return base
    return b.value(arith.AddiOp(base, b.dense(type, numbers)))


@producer("vector.step")
def step(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """0, 1, 2, ...: the coordinate itself."""
    return _offset_index(d, *linear_index(d, layout))


@producer("vector.broadcast", "xetile.broadcast")
def broadcast(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Every register is the source's register for its element: nothing moves between threads."""
    (source,) = op.operands
    if not is_tile_shaped(source):
        type = d.fragment_type(op.results[0].type, layout)
        return d.b.value(VectorBroadcastOp(d.scalar(source), type))
    try:
        wanted = broadcast_source(op, layout)
        if not is_even(wanted):
            raise LayoutError("uneven")
    except LayoutError:
        # Runs that straddle lanes: every lane repeats what it holds, and then it moves.
        held = d.fragment_of(source)
        wide = held.layout
        for dim, (n, m) in enumerate(zip(held.layout.shape, layout.shape, strict=True)):
            if n != m:
                wide = wide.expanded(dim, m // n)
        value = d.pick(held.value, broadcast_registers(op, wide, held.layout))
        return d.convert(Fragment(value, wide), layout).value
    held = d.fragment_of(source, wanted)
    return d.pick(held.value, broadcast_registers(op, layout, wanted))


def broadcast_registers(op: Operation, layout: Layout, source: Layout) -> list[int]:
    """The source's register that each register of the result repeats."""
    coords = layout.at(register=np.arange(layout.registers))
    shape = source.shape
    lead = layout.rank - source.rank
    at = [c // (layout.shape[i + lead] // shape[i]) for i, c in enumerate(coords[lead:])]
    return [int(r) for r in source.index(ly.Axis.REGISTER, at)] if at else [0]


@producer("vector.transpose", "xetile.transpose")
def transpose(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """The same registers under other coordinates."""
    order = permutation_of(op)
    back = tuple(order.index(i) for i in range(len(order)))
    source = layout.permuted(back)
    value = d.fragment_of(op.operands[0], source)
    return d.pick(value.value, _same_elements(source.permuted(order), layout))


def _same_elements(have: Layout, want: Layout) -> list[int]:
    """The registers of `have` in the order of `want`, whose lanes and warps hold the same."""
    coords = want.at(register=np.arange(want.registers))
    return [int(r) for r in have.index(ly.Axis.REGISTER, coords)]


@producer("vector.shape_cast")
def shape_cast(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Elements keep their row-major number: registers are renamed, or the tile goes through memory."""
    (source,) = op.operands
    shape = shape_of(source)
    try:
        wanted = layout.reshaped(shape)
        if not is_even(wanted):
            raise LayoutError("uneven")
    except LayoutError:
        return _reshape_through_shared(d, op, layout)
    held = d.fragment_of(source, wanted)
    want = layout.at(register=np.arange(layout.registers))
    linear = np.ravel_multi_index(tuple(np.asarray(c) for c in want), layout.shape)
    at = np.unravel_index(linear, shape)
    return d.pick(held.value, [int(r) for r in wanted.index(ly.Axis.REGISTER, at)])


def _reshape_through_shared(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    from tilewright.targets.cuda.exchange import reshape_through_shared

    return reshape_through_shared(d, d.fragment_of(op.operands[0]), layout)


@producer("xetile.convert_layout")
def convert_layout(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Maps change no value: who owns what is decided by `ownership`."""
    return d.fragment_of(op.operands[0], layout).value


@producer("builtin.unrealized_conversion_cast")
def conversion_cast(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Signs of integers are no part of thread-level types."""
    return d.fragment_of(op.operands[0], layout).value


@producer("vector.fma")
def fma(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    a, x, c = (d.fragment_of(v, layout).value for v in op.operands)
    return d.b.value(math.FmaOp(a, x, c))


def elementwise(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Any arith or math op on fragments of one layout; scalar operands stay scalars."""
    number = d.result_number
    operands = [
        d.fragment_of(v, layout).value if is_tile_shaped(v) else d.scalar(v) for v in op.operands
    ]
    new = type(op).create(
        operands=operands,
        result_types=[d.fragment_type(r.type, layout) for r in op.results],
        properties=op.properties,
        attributes={k: v for k, v in op.attributes.items() if not k.startswith("wg_map")},
    )
    new.location = op.location
    d.b.op(new)
    return new.results[number]


ELEMENTWISE.append(elementwise)


def _scalar_cast(d: Distributor, op: Operation) -> None:
    for source, result in zip(op.operands, op.results, strict=True):
        d.set_scalar(result, d.scalar(source))


def _casts(op: Operation) -> Rule | None:
    return _scalar_cast if isinstance(op, UnrealizedConversionCastOp) else None


FALLBACKS.append(_casts)


@producer("vector.bitcast")
def bitcast(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Bits of the innermost dimension as another width."""
    (source,) = op.operands
    have, want = shape_of(source)[-1], layout.shape[-1]
    dim = layout.rank - 1
    from xdsl.dialects import vector

    if want >= have:
        factor = want // have
        inner = layout.contracted(dim, factor)
        if any(
            x.dim == dim and x.stride < factor and x.axis is not ly.Axis.REGISTER
            for x in layout.digits
        ):
            raise d.error(op, "elements that one lane does not hold whole cannot be told apart")
        held = d.fragment_of(source, inner)
        made = d.b.value(vector.BitcastOp(held.value, d.fragment_type(op.results[0].type, layout)))
        return d.pick(made, _same_elements(inner.expanded(dim, factor), layout))
    factor = have // want
    wide = layout.expanded(dim, factor)
    held = d.fragment_of(source, wide)
    return d.b.value(vector.BitcastOp(held.value, d.fragment_type(op.results[0].type, layout)))


# Single elements --------------------------------------------------------------------------------


@rule("vector.extract")
def extract(d: Distributor, op: Operation) -> None:
    """One element becomes a scalar of every thread."""
    from tilewright.targets.cuda.exchange import element_for_all

    source = op.operands[0]
    (result,) = op.results
    if is_tile_shaped(result):
        raise d.error(op, "vector.extract of a row is not supported by the cuda target")
    static = [int(x) for x in op.properties["static_position"].get_values()]  # pyright: ignore
    dynamic = [d.idx(v) for v in op.operands[1:]]
    at = [dynamic.pop(0) if x == DYNAMIC_INDEX else x for x in static]
    d.set_scalar(result, element_for_all(d, source, at))
