"""Values made where they are used: constants, splats, index vectors, broadcasts, elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, VectorType
from xdsl.dialects.vector import BroadcastOp as VectorBroadcastOp
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Idx, index
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import is_vector
from tilewright.layout import Layout
from tilewright.layout.digits import row_strides
from tilewright.targets.cuda.distribute import Distributor, producer, rule

MOST_CONSTANTS = 256
"""Different values of a constant tile that are told apart by comparing places."""


@producer("arith.constant")
def constant(d: Distributor, op: arith.ConstantOp, layout: Layout) -> SSAValue:
    value = op.value
    type = d.fragment_type(op.result.type, layout)
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise d.error(op, "a tile constant is a dense attribute")
    values = list(value.get_values())
    if value.is_splat():
        return d.b.constant(type, values[0])  # pyright: ignore
    return table(d, op, layout, type, values)


def table(
    d: Distributor, op: Operation, layout: Layout, type: VectorType, values: Sequence[object]
) -> SSAValue:
    """A constant tile of several values: per thread number a select between the values it may have."""
    shape = layout.shape
    size = int(np.prod(shape))
    if size > MOST_CONSTANTS:
        raise d.error(
            op,
            f"a constant tile of {size} different values is not supported on {d.machine.name}",
            hint=f"up to {MOST_CONSTANTS} are supported; pass larger tables as arrays",
        )
    number = offset_index(d, *linear_index(d, layout))
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
    weights = row_strides(layout.shape)
    b = d.b
    thread: int | SSAValue = 0
    constants = np.zeros(layout.registers, np.int64)
    for x, c, w in zip(d.coordinates(layout), layout.register_steps, weights, strict=True):
        thread = b.plus(thread, b.times(x, w))
        constants += c * w
    return thread, constants


def offset_index(d: Distributor, thread: int | SSAValue, constants: np.ndarray) -> SSAValue:
    """Those two numbers added, for each register."""
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
    return offset_index(d, *linear_index(d, layout))


@producer("builtin.unrealized_conversion_cast")
def conversion_cast(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Signs of integers are no part of thread-level types."""
    return d.fragment_of(op.operands[0], layout).value


@producer("vector.fma")
def fma(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    a, x, c = (d.fragment_of(v, layout).value for v in op.operands)
    return d.b.value(math.FmaOp(a, x, c))


@producer("elementwise")
def elementwise(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Any arith or math op on fragments of one layout; scalar operands stay scalars."""
    number = d.result_number
    operands = [
        d.fragment_of(v, layout).value if is_vector(v) else d.scalar(v) for v in op.operands
    ]
    types = [d.fragment_type(r.type, layout) for r in op.results]
    attributes = {k: v for k, v in op.attributes.items() if not k.startswith("wg_map")}
    return d.b.op(retyped(op, operands, types, attributes)).results[number]


@rule("builtin.unrealized_conversion_cast")
def scalar_cast(d: Distributor, op: Operation) -> None:
    for source, result in zip(op.operands, op.results, strict=True):
        d.set_scalar(result, d.scalar(source))
