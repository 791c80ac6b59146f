"""Integer division that never ends the process.

x86's own division traps for a divisor of 0, and where the quotient does not fit (MIN by -1). Tiles have lanes that
nobody looks at, and scalars whatever a launch gives: neither may trap. Here MIN // -1 is MIN and MIN % -1 is 0, as in
numpy; x by 0 is x by 1 in tiles, and in scalars a failed assertion of the launch.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.dialects.elementwise import DIVISIONS, UNSIGNED_DIVISIONS
from tilewright.dialects.upstream.arith import folded

_REMAINDERS = ("arith.remsi", "index.rems")
_FLOORS = ("arith.floordivsi", "index.floordivs")


def divide(
    b: Builder,
    op: Operation,
    x: SSAValue,
    y: SSAValue,
    clone: Callable[[SSAValue, SSAValue], SSAValue],
) -> SSAValue:
    """The division `op` of registers x and y, which `clone(x, y)` does where the machine's own is defined."""
    known = folded(y)
    if op.name in _FLOORS and isinstance(known, int) and known > 0 and not known & (known - 1):
        return b.value(arith.ShRSIOp(x, b.constant(y.type, known.bit_length() - 1)))
    if is_positive(y) or (isinstance(known, int) and known not in (0, -1)):
        return clone(x, y)
    zero, one = b.constant(y.type, 0), b.constant(y.type, 1)
    bad = b.value(arith.CmpiOp(y, zero, "eq"))
    if op.name in UNSIGNED_DIVISIONS or b.is_nonnegative(folded(x)):
        return clone(x, b.value(arith.SelectOp(bad, one, y)))
    negates = b.value(arith.CmpiOp(y, b.constant(y.type, -1), "eq"))
    bad = b.value(arith.OrIOp(negates, bad))
    quotient = clone(x, b.value(arith.SelectOp(bad, one, y)))
    if op.name in _REMAINDERS:
        return quotient  # by 1, and so 0
    return b.value(arith.SelectOp(negates, b.value(arith.SubiOp(zero, x)), quotient))


def is_positive(y: SSAValue) -> bool:
    """Is a scalar known to be more than 0: a constant, or no less than one?"""
    if isinstance(y, OpResult) and isinstance(y.op, arith.MaxSIOp):
        return any(is_positive(operand) for operand in y.op.operands)
    return isinstance(known := folded(y), int) and known > 0


def may_fail(op: Operation, y: SSAValue) -> bool:
    """Is it a division by a scalar y that may be 0?"""
    return op.name in DIVISIONS and not is_positive(y) and folded(y) in (0, y)


def not_zero(b: Builder, op: Operation, y: SSAValue) -> SSAValue | None:
    """The condition under which the division `op` by the scalar y is defined; None where it always is."""
    return b.value(arith.CmpiOp(y, b.constant(y.type, 0), "ne")) if may_fail(op, y) else None
