"""Blocking, values: arithmetic, constants, masks, products and reductions, fragment by fragment.

Part of :mod:`tilewright.passes.xegpu.blocking`.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    Float32Type,
    Float64Type,
    FloatTF32Type,
    IntegerType,
    Signedness,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, remark_at, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of
from tilewright.dialects.numerals import dense, number_attr
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.passes.xegpu.inst_fragments import Fragments, Shape, grid_of, rule, starts
from tilewright.passes.xegpu.lane_elements import widened
from tilewright.passes.xegpu.lane_values import combine
from tilewright.passes.xegpu.lazy_registers import Free
from tilewright.passes.xegpu.ownership import dpas_fragments, has_instruction, right_layout
from tilewright.passes.xegpu.sg_maps import dpas_instruction

MOST_STEPS = 8192
"""Outer products that one product becomes at most: each is 16 bytes of code or more, 128 KB in all."""


@rule("arith.constant")
def constant_op(d: Fragments, op: arith.ConstantOp) -> None:
    value = op.value
    if not isinstance(value, DenseIntOrFPElementsAttr):
        d.keep(op)
        return
    element, shape = element_of(op.result.type), shape_of(op.result)
    if value.is_splat():
        d.grids[op.result] = Free(element, value.data, None)
        return
    fragment = d.owners.fragment(op.result)
    numbers = np.array(value.get_values(), dtype=object).reshape(shape)
    kind = d.typed(op.result, fragment)
    fragments = [
        d.constant(dense(kind, list(numbers[box(start, fragment)].reshape(-1))))
        for start in starts(shape, fragment)
    ]
    d.give(op.result, fragment, fragments)


@rule("xegpu.dpas")
def dpas(d: Fragments, op: xegpu.DpasOp) -> None:
    xe = d.owners.xe
    dims = op.dims()
    assert dims is not None
    if not has_instruction(xe, op):
        outer_products(d, op, dims)
        return
    matrices = dpas_fragments(xe, op)
    assert matrices.a is not None and matrices.b is not None
    m, k = matrices.a.shape
    n = matrices.c.shape[1]
    a = d.fragments(op.lhs, (m, k))
    b = d.fragments(op.rhs, right_layout(matrices.b, op.rhs).shape)
    rows, columns, depth = dims[0] // m, dims[1] // n, dims[2] // k
    sums: list[SSAValue | None] = (
        [None] * (rows * columns) if op.acc is None else [*d.fragments(op.acc, (m, n))]
    )
    kind = d.typed(op.result, (m, n))
    for step, i, j in product(range(depth), range(rows), range(columns)):
        acc = sums[i * columns + j]
        operands = [a[i * depth + step], b[step * columns + j]]
        if acc is not None:
            operands.append(acc)
        new = xegpu.DpasOp.create(operands=operands, result_types=[kind])
        sums[i * columns + j] = d.add(new)
    d.give(op.result, (m, n), [s for s in sums if s is not None])


def outer_products(d: Fragments, op: xegpu.DpasOp, dims: tuple[int, int, int]) -> None:
    """A product that no dpas does: outer products of columns of A and rows of B, one after the other."""
    if len(shape_of(op.lhs)) != 2 or len(shape_of(op.rhs)) != 2:
        raise d.refuse("packed operands of a product that no dpas does")
    result = element_of(op.result.type)
    wide = _sum_type(result)
    sums = isinstance(result, AnyFloat) or wide == result
    if (
        wide is None
        or not sums
        or any(_sum_type(element_of(v.type)) is None for v in (op.lhs, op.rhs))
    ):
        dpas_instruction(d.owners.xe, op)
        raise d.refuse(f"a product of {element_of(op.lhs.type)} by {element_of(op.rhs.type)}")
    fragment = d.owners.fragment(op.result)
    steps = math.prod(grid_of(shape_of(op.result), fragment)) * dims[2]
    if steps > MOST_STEPS:
        raise unsupported(
            op,
            f"no dpas does a product of {' x '.join(map(str, dims))}, and it would be {steps} outer "
            f"products, more than {MOST_STEPS}",
            hint="extents that the machine's dpas divides, more subgroups, or a smaller tile",
        )
    _remark(d, op, dims)
    kind = d.typed(op.result, fragment)
    wide_kind = VectorType(wide, list(fragment))
    places = list(starts(shape_of(op.result), fragment))

    def summand(value: SSAValue, start: Shape, size: Shape) -> SSAValue:
        part = d.box(value, start, size)
        return d.once(("wide", part, wide), lambda: widened(d.add, part, wide))

    totals = [
        d.constant(number_attr(wide_kind, 0))
        if op.acc is None
        else summand(op.acc, start, fragment)
        for start in places
    ]
    # Step by step along k: what a step repeats of A and B is alive in it only.
    for k in range(dims[2]):
        for n, start in enumerate(places):
            a = summand(op.lhs, (start[0], k), (fragment[0], 1))
            b = summand(op.rhs, (k, start[1]), (1, fragment[1]))
            a, b = (
                v
                if v.type == wide_kind
                else d.once(("broadcast", v, wide_kind), vector.BroadcastOp(v, wide_kind))
                for v in (a, b)
            )
            if isinstance(wide, AnyFloat):
                fma = vector.FMAOp.create(operands=[a, b, totals[n]], result_types=[wide_kind])
                totals[n] = d.add(fma)
            else:
                totals[n] = d.binary(arith.AddiOp, d.binary(arith.MuliOp, a, b), totals[n])
    if wide != result:
        totals = [
            d.add(arith.TruncFOp.create(operands=[total], result_types=[kind])) for total in totals
        ]
    d.give(op.result, fragment, totals)


def _remark(d: Fragments, op: xegpu.DpasOp, dims: tuple[int, int, int]) -> None:
    """What keeps a product from the machine's dpas; of types that have none, nothing but themselves does."""
    try:
        instruction = dpas_instruction(d.owners.xe, op)
    except UnsupportedError:
        return
    steps = {"N": (dims[1], instruction.n[0]), "K": (dims[2], instruction.k)}
    odd = [f"{name} = {n} is no multiple of {by}" for name, (n, by) in steps.items() if n % by]
    remark = f"{op.name} does not use the machine's dpas: {' and '.join(odd)}"
    d.remarks.append(remark_at(op, remark))


# --- Reductions ----------------------------------------------------------------------------------


@rule("vector.multi_reduction")
def multi_reduction(d: Fragments, op: more.MultiReductionOp) -> None:
    fragment = d.owners.fragment(op.source)
    shape = shape_of(op.source)
    kept = [d for d in range(len(shape)) if d not in op.dims]
    groups: dict[Shape, SSAValue] = {}
    for start, value in zip(starts(shape, fragment), d.fragments(op.source, fragment), strict=True):
        key = tuple(start[d] for d in kept)
        groups[key] = combine(d, op.kind, groups[key], value) if key in groups else value
    if not isinstance(op.dest.type, VectorType) or not kept:
        (total,) = groups.values()
        acc = d.env[op.acc]
        d.env[op.dest] = d.add(more.MultiReductionOp(op.kind, total, acc, op.dims))
        return
    part = tuple(fragment[d] for d in kept)
    made: list[SSAValue] = []
    for key, total in groups.items():
        acc = d.box(op.acc, key, part)
        made.append(d.add(more.MultiReductionOp(op.kind, total, acc, op.dims)))
    d.give(op.dest, part, made)


@rule("xegpu.update_nd_offset", "xegpu.create_tdesc", "xegpu.update_offset")
def older(d: Fragments, op: Operation) -> None:
    raise d.refuse("a descriptor of the older text", "run xegpu-upgrade first")


def _sum_type(element: Attribute) -> Attribute | None:
    """The type in which products of this type are summed; None where that is not known."""
    match element:
        case Float64Type():
            return element
        case _ if isinstance(element, AnyFloat) and not isinstance(element, FloatTF32Type):
            return Float32Type()
        case IntegerType() if element.signedness.data is not Signedness.SIGNED:
            return IntegerType(max(32, element.width.data))
        case _:
            return None


def box(start: Shape, size: Shape) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))
