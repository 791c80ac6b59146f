"""reciprocal: division by a repeated value becomes multiplication by its inverse.

    %b = xetile.broadcast %s [1] : 64x1 -> 64x4096         %i = arith.divf %one, %s : 64x1
    %y = arith.divf %x, %b fastmath<afn>             ->    %b = xetile.broadcast %i [1]
                                                           %y = arith.mulf %x, %b fastmath<afn>

Requires: nothing. Guarantees: one division per distinct divisor, and one more rounding per element,
which `afn` or `arcp` on the division allows; divisions without these flags stay.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.passes.emit import Before

ALLOWING = {"afn", "arcp", "fast"}


def use_reciprocals(function: gpu.FuncOp) -> None:
    """Replaces divisions by a repeated value with one reciprocal and multiplications (needs `afn`)."""
    for op in list(function.walk()):
        if isinstance(op, arith.DivfOp) and isinstance(op.result.type, VectorType) and _allowed(op):
            _rewrite(op)


def _allowed(op: arith.DivfOp) -> bool:
    flags = op.properties.get("fastmath")
    if not isinstance(flags, arith.FastMathFlagsAttr):
        return False
    return bool(ALLOWING & {flag.value for flag in flags.data})


def _rewrite(op: arith.DivfOp) -> None:
    divisor = op.rhs
    if not isinstance(divisor, OpResult) or isinstance(op.lhs.owner, arith.ConstantOp):
        return
    repeat = divisor.op
    if isinstance(repeat, xt.BroadcastOp):
        source: SSAValue = repeat.source
    elif isinstance(repeat, vector.BroadcastOp):
        source = repeat.operands[0]
    else:
        return
    at = Before(op)
    inverse = at.add(arith.DivfOp(at.constant(source.type, 1), source, op.fastmath))
    again = at.add(repeat.clone({source: inverse}))
    at.replace(at.add(arith.MulfOp(op.lhs, again, op.fastmath)))
