"""Powers with whole exponents, as expand-ops writes them: of floats by math.powf, of integers by repeated squaring."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, Float64Type, IntegerType, f32
from xdsl.ir import SSAValue

from tilewright.dialects.upstream.arith import with_element
from tilewright.passes.emit import Before, element_of


def float_power(op: math.FPowIOp, at: Before) -> None:
    """x^n of the narrower floats in f32."""
    kind = op.lhs.type
    element = element_of(kind)
    assert isinstance(element, AnyFloat)
    wide = with_element(kind, element if isinstance(element, Float64Type) else f32)
    base = op.lhs if wide == kind else at.add(arith.ExtFOp(op.lhs, wide))
    exponent = arith.SIToFPOp.create(operands=[op.rhs], result_types=[wide])
    power = at.add(math.PowFOp(base, at.add(exponent)))
    at.replace(power if wide == kind else at.add(arith.TruncFOp(power, kind)))


def integer_power(op: math.IPowIOp, at: Before) -> None:
    """x^n, modulo the type's range; for a negative n 1 / x^-n rounded to 0, which leaves powers of 1 and -1."""
    x, n, kind = op.lhs, op.rhs, op.result.type
    element = element_of(kind)
    assert isinstance(element, IntegerType)

    def number(value: int) -> SSAValue:
        return at.constant(kind, value)

    zero, one, minus = number(0), number(1), number(-1)

    def squaring(_: Sequence[SSAValue], carried: Sequence[SSAValue]) -> list[SSAValue]:
        """For each bit of the exponent: (product, square, bits that are left)."""
        product, square, bits = carried
        larger = at.add(arith.MuliOp(product, square))
        return [
            at.add(arith.SelectOp(_odd(at, bits, one, zero), larger, product)),
            at.add(arith.MuliOp(square, square)),
            at.add(arith.ShRUIOp(bits, one)),
        ]

    power, *_ = at.nest([(0, element.width.data, 1)], squaring, [one, x, n])
    unit = at.add(arith.CmpiOp(x, one, "eq"))
    turns = at.add(arith.CmpiOp(x, minus, "eq"))
    sign = at.add(arith.SelectOp(_odd(at, n, one, zero), minus, one))
    inverse = at.add(arith.SelectOp(unit, one, at.add(arith.SelectOp(turns, sign, zero))))
    below = at.add(arith.CmpiOp(n, zero, "slt"))
    at.replace(at.add(arith.SelectOp(below, inverse, power)))


def _odd(at: Before, n: SSAValue, one: SSAValue, zero: SSAValue) -> SSAValue:
    return at.add(arith.CmpiOp(at.add(arith.AndIOp(n, one)), zero, "ne"))
