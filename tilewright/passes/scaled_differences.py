"""scaled-differences: e^(x - m) of bf16 as 2^(x s - m s), where m is one element of each row.

    %b = xetile.broadcast %m [1]                        %p = arith.mulf %m, %s          // a row's, as %s is
    %d = arith.subf %x, %b                              %q = arith.mulf %x, %s repeated {fastmath<contract>}
    %e = math.exp %d {fastmath<afn>, mach.bits = 8}  -> %d = arith.subf %q, %p repeated {fastmath<contract>}
                                                        %e = math.exp2 %d {fastmath<afn>, mach.bits = 8}

s are the leading 16 bits of log2(e): times the 8 of a bf16 an f32 holds every bit, so that the difference is rounded
once, however large x and m are, contracted to a multiply-add or not. s is 5e-6 too small in proportion, an exponential
in the normal range 4e-4. Where m is so large that m s might overflow, all that another bf16 can make of it is 0 or an
infinity, and half of s does.

Requires: precision. Guarantees: exponentials of the precision that they are asked for (`mach.bits`).
"""

from __future__ import annotations

from struct import pack

from xdsl.dialects import arith, gpu, math
from xdsl.dialects.builtin import BFloat16Type, Float32Type, VectorType
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.arith import element
from tilewright.passes.emit import Before
from tilewright.passes.fold_identities import splat
from tilewright.passes.precision import NARROW

SCALE = 47274 / 2**15
LARGE = 2.0**126
MANY = 2048
"""Elements of a row beyond which a multiplication less for each pays for the row's numbers, which all wait for."""
CONTRACT = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])
EXTREMES = ("maximumf", "minimumf")


def scale_differences(function: gpu.FuncOp) -> int:
    """Scales rows' numbers instead of differences from them. Returns how many exponentials changed."""
    found = [op for op in function.walk() if isinstance(op, math.ExpOp)]
    return sum(map(_scaled, found))


def _scaled(op: math.ExpOp) -> bool:
    bits, difference = op.attributes.get("mach.bits"), op.operand.owner
    if bits is None or bits.value.data > NARROW[BFloat16Type]:  # pyright: ignore
        return False
    type = op.result.type
    if not isinstance(difference, arith.SubfOp) or not isinstance(type, VectorType):
        return False
    if type.get_shape()[-1] <= MANY:
        return False
    x, repeated = difference.lhs, difference.rhs.owner
    if not isinstance(repeated, xt.BroadcastOp) or repeated.broadcast_size is not None:
        return False
    number = repeated.source
    if element(type) != Float32Type() or not (_is_bf16(x) and _is_bf16(number)):
        return False
    at, kind = Before(op), number.type

    def again(value: SSAValue) -> SSAValue:
        return at.add(repeated.clone({number: value}))

    size = at.add(math.AbsFOp(number))
    large = at.add(arith.CmpfOp(size, at.constant(kind, LARGE), "ogt"))
    scale = at.add(arith.SelectOp(large, at.constant(kind, SCALE / 2), at.constant(kind, SCALE)))
    own = at.add(arith.MulfOp(number, scale, CONTRACT))
    product = at.add(arith.MulfOp(x, again(scale), CONTRACT))
    exponent = at.add(arith.SubfOp(product, again(own), CONTRACT))
    power = at.insert(math.Exp2Op(exponent, op.fastmath))
    power.attributes["mach.bits"] = bits
    at.replace(power.results[0])
    for unused in (difference, repeated):
        if unused.results[0].first_use is None:
            Before(unused).replace()
    return True


def _is_bf16(value: SSAValue) -> bool:
    """Is every element of an f32 known to be a number of bf16?"""
    waiting, seen = [value], set[SSAValue]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        known, op = splat(value), value.owner
        if isinstance(known, float):
            if pack("<f", known)[:2] != bytes(2):
                return False
            continue
        if not isinstance(value, OpResult):
            return False
        if isinstance(op, arith.ExtFOp):
            if element(op.input.type) != BFloat16Type():
                return False
        elif isinstance(op, xt.ReductionOp) and op.kind in EXTREMES:
            waiting.append(op.source)
        elif isinstance(op, xt.BroadcastOp | arith.MaximumfOp | arith.MinimumfOp):
            waiting += op.operands
        elif isinstance(op, arith.SelectOp):
            waiting += (op.lhs, op.rhs)
        else:
            return False
    return True
