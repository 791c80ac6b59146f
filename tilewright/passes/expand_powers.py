"""Powers with whole exponents, as expand-ops writes them: of floats by math.powf, of integers by repeated squaring."""

from __future__ import annotations

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import AnyFloat, Float64Type, IndexType, IntegerType, f32
from xdsl.ir import Attribute, Block, Region, SSAValue

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
    low, high, step = (at.index(v) for v in (0, element.width.data, 1))
    loop = scf.ForOp(low, high, step, [one, x, n], Region(_squaring(kind, one, zero)))
    at.insert(loop)
    unit = at.add(arith.CmpiOp(x, one, "eq"))
    turns = at.add(arith.CmpiOp(x, minus, "eq"))
    sign = at.add(arith.SelectOp(_odd(at, n, one, zero), minus, one))
    inverse = at.add(arith.SelectOp(unit, one, at.add(arith.SelectOp(turns, sign, zero))))
    below = at.add(arith.CmpiOp(n, zero, "slt"))
    at.replace(at.add(arith.SelectOp(below, inverse, loop.results[0])))


def _odd(at: Before, n: SSAValue, one: SSAValue, zero: SSAValue) -> SSAValue:
    return at.add(arith.CmpiOp(at.add(arith.AndIOp(n, one)), zero, "ne"))


def _squaring(kind: Attribute, one: SSAValue, zero: SSAValue) -> Block:
    """An iteration for each bit of the exponent: (product, square, bits that are left)."""
    body = Block(arg_types=[IndexType(), kind, kind, kind])
    _, product, square, bits = body.args
    end = scf.YieldOp(product, square, bits)
    body.add_op(end)
    at = Before(end)
    larger = at.add(arith.MuliOp(product, square))
    product = at.add(arith.SelectOp(_odd(at, bits, one, zero), larger, product))
    carried: list[SSAValue] = [
        product,
        at.add(arith.MuliOp(square, square)),
        at.add(arith.ShRUIOp(bits, one)),
    ]
    for place, value in enumerate(carried):
        end.operands[place] = value
    return body
