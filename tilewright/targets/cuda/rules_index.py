"""Comparisons of positions with bounds, what masks are made of, and positions as floats.

A tile of positions (`tw.arange` and what is added to it) is a number of the thread plus a constant of the register.
Compared with a bound, the constant stays on its side and all else goes to the other:

    thread + c[r] < bound[r]    ->    c[r] < bound[r] - thread

so that an element costs one comparison with a constant. The difference is brought between the least and the greatest
constant (and one beyond either), which changes no result, so that 32 bits hold it.

As an f32 a position is the number of the thread, which is converted once, plus the constant: a sum instead of a
conversion for each element, which multiprocessors have a quarter of the units for, or fewer.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, VectorType, f32, i32, i64
from xdsl.dialects.vector import BroadcastOp as VectorBroadcastOp
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.codegen.builder import Idx, index
from tilewright.dialects.movement import ELEMENTS, is_vector, operand_layout
from tilewright.dialects.upstream.arith import PREDICATES, SWAPPED, constants, element
from tilewright.layout import Layout, LayoutError
from tilewright.passes.integers import Ranges
from tilewright.targets.cuda.distribute import Distributor, producer
from tilewright.targets.cuda.ownership import is_even
from tilewright.targets.cuda.rules_moves import registers
from tilewright.targets.cuda.rules_values import elementwise, linear_index

Positions = tuple[Idx, np.ndarray]
"""A number of the thread, and what each register adds."""


@producer("arith.cmpi")
def compare(d: Distributor, op: arith.CmpiOp, layout: Layout) -> SSAValue:
    how = PREDICATES[op.predicate.value.data]
    type = op.lhs.type
    if isinstance(type, VectorType) and isinstance(type.element_type, IndexType) and how in SWAPPED:
        for mine, other, way in ((op.lhs, op.rhs, how), (op.rhs, op.lhs, SWAPPED[how])):
            found = positions(d, mine, layout)
            if found is not None and found[1].any():
                return _against(d, found, other, way, layout)
    return elementwise(d, op, layout)


def _against(
    d: Distributor, mine: Positions, other: SSAValue, way: str, layout: Layout
) -> SSAValue:
    b = d.b
    thread, constants = mine
    known = positions(d, other, layout)
    if known is not None:
        return _compared(d, constants - known[1], way, b.minus(known[0], thread))
    held = d.fragment_of(other, layout).value
    wide = VectorType(index, [layout.registers])
    away = b.value(VectorBroadcastOp(b.idx(thread), wide))
    return _compared(d, constants, way, b.value(arith.SubiOp(held, away)))


def _compared(d: Distributor, constants: np.ndarray, way: str, bound: Idx) -> SSAValue:
    """A constant of each register against a number, or a tile of them."""
    b = d.b
    type = VectorType(i32, [len(constants)])
    bounds = _limited(d, b.idx(bound), constants)
    if bounds.type == i32:
        bounds = b.value(VectorBroadcastOp(bounds, type))
    return b.value(arith.CmpiOp(b.dense(type, [int(c) for c in constants]), bounds, way))


def _limited(d: Distributor, value: SSAValue, constants: np.ndarray) -> SSAValue:
    """Index numbers, or a tile of them, as i32: those beyond all constants, just beyond them."""
    b = d.b
    least = b.constant(value.type, int(constants.min()) - 1)  # pyright: ignore
    most = b.constant(value.type, int(constants.max()) + 1)  # pyright: ignore
    inside = b.value(arith.MinSIOp(b.value(arith.MaxSIOp(value, least)), most))
    type = VectorType(i32, value.type.get_shape()) if isinstance(value.type, VectorType) else i32
    return b.value(arith.IndexCastOp(inside, type))


EXACT, FAR = 1 << 24, 1 << 46
"""Up to where integers are f32; elements of an array, at most."""


def float_of(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Numbers as floats; a position rounded once: h + (l + c), where h is the thread's number as an f32 and l what that
    leaves out, which has so few bits that l + c is exact."""
    if not isinstance(op, arith.SIToFPOp):
        return elementwise(d, op, layout)
    b, cast, found, most = d.b, op.input.owner, None, 0
    if (
        isinstance(cast, arith.IndexCastOp)
        and element(op.result.type) == f32
        and layout.registers > 2
    ):
        reach = Ranges(lambda _: FAR).span(cast.input)
        most = max(map(abs, reach)) if reach is not None else 2 * FAR
        if most < min(2 * FAR, 1 << element(cast.result.type).width.data - 1):  # pyright: ignore
            found = positions(d, cast.input, layout)
    if found is None:
        return elementwise(d, op, layout)
    thread, (steps, places) = b.idx(found[0]), np.unique(found[1], return_inverse=True)
    kind = VectorType(f32, [len(steps)])
    terms = [b.value(arith.SIToFPOp(b.value(arith.IndexCastOp(thread, i64)), f32))]
    if most > EXACT:
        whole = b.value(arith.IndexCastOp(b.value(arith.FPToSIOp(terms[0], i64)), index))
        rest = b.value(arith.IndexCastOp(b.value(arith.SubiOp(thread, whole)), i64))
        terms.insert(0, b.value(arith.SIToFPOp(rest, f32)))
    total = b.dense(kind, [float(c) for c in steps])
    for term in terms:
        total = b.value(arith.AddfOp(total, b.value(VectorBroadcastOp(term, kind))))
    return d.pick(total, places.tolist())


def positions(d: Distributor, value: SSAValue, layout: Layout) -> Positions | None:
    """A tile of indices as thread and register parts, if it is made of index vectors, scalars and constants."""
    if not isinstance(value, OpResult) or not is_vector(value):
        return None
    op = value.op
    nothing = np.zeros(layout.registers, np.int64)
    if op.name == "vector.step":
        return linear_index(d, layout)
    if isinstance(op, arith.ConstantOp):
        found = constants(value)
        return (found[0], nothing) if found is not None and len(found) == 1 else None
    if isinstance(op, arith.AddiOp | arith.SubiOp):
        left, right = (positions(d, v, layout) for v in op.operands)
        if left is None or right is None:
            return None
        if isinstance(op, arith.AddiOp):
            return d.b.plus(left[0], right[0]), left[1] + right[1]
        return d.b.minus(left[0], right[0]), left[1] - right[1]
    if op.name not in ELEMENTS or len(op.operands) != 1:
        return None
    (source,) = op.operands
    if not is_vector(source):
        return d.idx(source), nothing
    try:
        wanted = operand_layout(op, layout)
    except LayoutError:
        return None
    found = positions(d, source, wanted) if is_even(wanted) else None
    if found is None:
        return None
    return found[0], found[1][registers(op, layout, wanted)]
