"""fold-identities: ops that change nothing go away.

    %one = vector.broadcast %1.0 : f32 to vector<8x16xf32>
    %y = arith.mulf %x, %one                               ->  (uses of %y are uses of %x)

Floats: x * 1, x / 1, x - 0, x + -0 (x + 0 is not neutral: it makes 0 of -0). Integers: x + 0, x - 0, x * 1,
x | 0, x ^ 0, x & -1, shifts by 0, x / 1.
Requires nothing. Guarantees: the same results to the bit, but for the quiet bit of a signalling NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

Number = int | float


def _one(x: Number) -> bool:
    return x == 1


def _zero(x: Number) -> bool:
    return x == 0


def _plus_zero(x: Number) -> bool:
    return x == 0 and math.copysign(1.0, x) > 0


def _minus_zero(x: Number) -> bool:
    return x == 0 and math.copysign(1.0, x) < 0


def _all_bits(x: Number) -> bool:
    return x == -1


_RIGHT: dict[type[Operation], Callable[[Number], bool]] = {
    arith.MulfOp: _one,
    arith.DivfOp: _one,
    arith.SubfOp: _plus_zero,
    arith.AddfOp: _minus_zero,
    arith.AddiOp: _zero,
    arith.SubiOp: _zero,
    arith.MuliOp: _one,
    arith.DivSIOp: _one,
    arith.DivUIOp: _one,
    arith.FloorDivSIOp: _one,
    arith.OrIOp: _zero,
    arith.XOrIOp: _zero,
    arith.AndIOp: _all_bits,
    arith.ShLIOp: _zero,
    arith.ShRSIOp: _zero,
    arith.ShRUIOp: _zero,
}
"""Ops by which right operand leaves the left one as it is."""

_COMMUTES = (
    *(arith.MulfOp, arith.AddfOp, arith.AddiOp, arith.MuliOp),
    *(arith.OrIOp, arith.XOrIOp, arith.AndIOp),
)


def fold_identities(kernel: Operation) -> None:
    """Removes algebraic identities: plus 0, times 1."""
    for op in list(kernel.walk()):
        if (same := kept(op)) is not None:
            Rewriter.replace_op(op, [], [same])


def kept(op: Operation) -> SSAValue | None:
    """The operand that an op gives as it is, for the other changes nothing; None where there is none."""
    neutral = _RIGHT.get(type(op))
    if neutral is None:
        return None
    left, right = op.operands
    if (value := splat(right)) is not None and neutral(value):
        return left
    if type(op) in _COMMUTES and (value := splat(left)) is not None and neutral(value):
        return right
    return None


def splat(value: SSAValue) -> Number | None:
    """The number that a scalar constant, or every element of a constant vector, is."""
    if not isinstance(value, OpResult):
        return None
    op = value.op
    if isinstance(op, vector.BroadcastOp):
        return splat(op.operands[0])
    if not isinstance(op, arith.ConstantOp):
        return None
    match op.value:
        case FloatAttr(value=data):
            return data.data
        case IntegerAttr(value=data, type=type):
            return _signed(data.data, type)
        case DenseIntOrFPElementsAttr() as dense if dense.is_splat():
            element = dense.get_element_type()
            number = next(iter(dense.iter_values()))
            if isinstance(number, tuple):
                return None
            return _signed(number, element) if isinstance(number, int) else number
        case _:
            return None


def _signed(number: int, type: object) -> int:
    """All bits set is -1, however the constant was written."""
    if isinstance(type, IntegerType) and number == (1 << type.width.data) - 1:
        return -1
    return number
