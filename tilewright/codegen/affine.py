"""affine.apply and affine.min: an affine map as integer arithmetic on i64."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir import Operation
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineSymExpr,
)

from tilewright.codegen.descriptor import product, total
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.printer import Printer, attribute, prints, unsupported


def evaluate(p: Printer, expr: AffineExpr, dims: Sequence[str], symbols: Sequence[str]) -> str:
    """The value of `expr`. Divisors are positive, so mod is never negative and floordiv rounds down."""
    match expr:
        case AffineConstantExpr():
            return str(expr.value)
        case AffineDimExpr():
            return dims[expr.position]
        case AffineSymExpr():
            return symbols[expr.position]
        case AffineBinaryOpExpr():
            a = evaluate(p, expr.lhs, dims, symbols)
            b = evaluate(p, expr.rhs, dims, symbols)
            match expr.kind:
                case AffineBinaryOpKind.Add:
                    return total(p, a, b)
                case AffineBinaryOpKind.Mul:
                    return product(p, a, b)
                case AffineBinaryOpKind.Mod:
                    return _remainder(p, a, b)
                case AffineBinaryOpKind.FloorDiv:
                    return _floor(p, a, b)
                case AffineBinaryOpKind.CeilDiv:
                    up = total(p, a, total(p, b, "-1"))
                    return _floor(p, up, b)
        case _:
            raise TypeError(str(expr))


def _remainder(p: Printer, a: str, b: str) -> str:
    r = p.emit(f"srem i64 {a}, {b}")
    negative = p.emit(f"icmp slt i64 {r}, 0")
    up = p.emit(f"add i64 {r}, {b}")
    return p.emit(f"select i1 {negative}, i64 {up}, i64 {r}")


def _floor(p: Printer, a: str, b: str) -> str:
    exact = p.emit(f"sub i64 {a}, {_remainder(p, a, b)}")
    return p.emit(f"sdiv exact i64 {exact}, {b}")


@prints("affine.apply", "affine.min")
def print_affine(p: Printer, op: Operation) -> None:
    found = attribute(op, "map")
    if not isinstance(found, AffineMapAttr):
        raise unsupported(op, "lacks its map")
    operands = [p.one(v) for v in op.operands]
    n = found.data.num_dims
    values = [evaluate(p, e, operands[:n], operands[n:]) for e in found.data.results]
    result = values[0]
    for value in values[1:]:
        result = Lanes(p, 1).intrinsic("smin", "i64", result, value)
    p.set(op.results[0], [result])
