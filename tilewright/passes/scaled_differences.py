"""scaled-differences: e^(x - m) of bf16 or f16 as 2^(x s - m s), where m is one element of each row.

    %b = xetile.broadcast %m [1]                        %p = arith.mulf %m, %s          // a row's, as %s is
    %d = arith.subf %x, %b                              %q = arith.mulf %x, %s repeated {fastmath<contract>}
    %e = math.exp %d {fastmath<afn>, mach.bits = 8}  -> %d = arith.subf %q, %p repeated {fastmath<contract>}
                                                        %e = math.exp2 %d {fastmath<afn>, mach.bits = 8}

s are the leading bits of log2(e), so many that an f32 holds every bit of the products: the difference is rounded once,
however large x and m are, contracted to a multiply-add or not. For bf16 these are 16; s is 5e-6 too small in
proportion, an exponential in the normal range 4e-4. Where m is so large that m s might overflow, all that another bf16
can make of it is 0 or an infinity, and half of s does. For f16 they are 13, and s is 5e-5 too small, an exponential in
f16's normal range 5e-4: so only beyond 2^11, where few exponentials but e^0 and e^-1 are in that range. Below, s is
log2(e), and what m s and x s are rounded by is less than 2^-13.

Requires: precision. Guarantees: exponentials of the precision that they are asked for (`mach.bits`).
"""

from __future__ import annotations

from math import e, frexp, isinf, log2

from xdsl.dialects import arith, gpu, math
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, VectorType
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.arith import element
from tilewright.passes.emit import Before
from tilewright.passes.fold_identities import splat

LARGE = 2.0**126
SCALES = {
    BFloat16Type(): (8, 47274 / 2**15, LARGE, 47274 / 2**16),
    Float16Type(): (11, log2(e), 2.0**11, 5909 / 2**12),
}
"""Of x's type: its bits, as many as an exponential may need, s, the largest m for it, and s beyond."""
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
    type = op.result.type
    if not isinstance(difference, arith.SubfOp) or not isinstance(type, VectorType):
        return False
    if type.get_shape()[-1] <= MANY:
        return False
    x, repeated = difference.lhs, difference.rhs.owner
    if not isinstance(repeated, xt.BroadcastOp) or repeated.broadcast_size is not None:
        return False
    number = repeated.source
    if bits is None or element(type) != Float32Type():
        return False
    needed, scales = bits.value.data, [s for t, s in SCALES.items() if _all_of(t, x, number)]  # pyright: ignore
    if not scales or needed > scales[0][0]:
        return False
    at, kind, (_, near, most, beyond) = Before(op), number.type, scales[0]

    def again(value: SSAValue) -> SSAValue:
        return at.add(repeated.clone({number: value}))

    size = at.add(math.AbsFOp(number))
    large = at.add(arith.CmpfOp(size, at.constant(kind, most), "ogt"))
    scale = at.add(arith.SelectOp(large, at.constant(kind, beyond), at.constant(kind, near)))
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


def _all_of(type: BFloat16Type | Float16Type, *values: SSAValue) -> bool:
    """Is every element of f32 values known to have as few bits as a number of a narrower type?"""
    waiting, seen = [*values], set[SSAValue]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        known, op = splat(value), value.owner
        if isinstance(known, float):
            short = (frexp(known)[0] * 2.0 ** SCALES[type][0]).is_integer()
            if not isinf(known) and not (short and abs(known) <= LARGE):
                return False
            continue
        if not isinstance(value, OpResult):
            return False
        if isinstance(op, arith.ExtFOp):
            if element(op.input.type) != type:
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
