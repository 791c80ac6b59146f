"""Affine expressions as mlir-opt writes them: `symbol(%n)` in subscripts, products with symbols, division by them.

affine.store %x, %m[%i + symbol(%n)] : memref<?xf32>
affine_map<(d0)[s0] -> (-(d0 * (s0 ceildiv 3)) + s0)>       a part of each of three threads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
)
from xdsl.parser.affine_parser import AffineParser
from xdsl.utils.exceptions import ParseError

_values: Any = AffineParser._get_parse_optional_ssa_value  # pyright: ignore[reportPrivateUsage]
"""Of a parser of affine text: what reads a value, its table of names, where each was first."""


def _values_and_symbols(self: Any) -> tuple[Callable[[], AffineExpr | None], Any, Any]:
    """Reads `symbol(%n)` as `%n`: whether a value is a symbol is said by what defines it."""
    value, names, spans = _values(self)

    def value_or_symbol() -> AffineExpr | None:
        if self.parse_optional_keyword("symbol") is None:
            return value()
        self.parse_punctuation("(")
        found = value()
        if found is None:
            self.raise_error("a value is expected here: symbol(%n)")
        self.parse_punctuation(")")
        return found

    return value_or_symbol, names, spans


def _semi_affine(name: str, kind: AffineBinaryOpKind) -> None:
    """Let an operator of expressions take what is no constant."""
    stock: Any = getattr(AffineExpr, name)

    def operator(self: AffineExpr, other: AffineExpr | int) -> AffineExpr:
        known = (self, other) if kind is AffineBinaryOpKind.Mul else (other,)
        if any(isinstance(x, AffineConstantExpr | int) for x in known):
            return stock(self, other)
        assert isinstance(other, AffineExpr)
        return AffineBinaryOpExpr(kind, self, other)

    setattr(AffineExpr, name, operator)


_binary: Any = AffineParser._create_binop_expr  # pyright: ignore[reportPrivateUsage]


def _checked_binary(self: Any, lhs: AffineExpr, rhs: AffineExpr, binop: Any) -> AffineExpr:
    """One factor of a product, and each divisor, is the same everywhere in a loop."""
    varies = [any(isinstance(e, AffineDimExpr) for e in side.dfs()) for side in (lhs, rhs)]
    if binop.text == "*" and all(varies):
        rule = "at least one of the multiply operands has to be either a constant or symbolic"
        raise ParseError(binop.span, f"non-affine expression: {rule}")
    if binop.text in ("floordiv", "ceildiv", "mod") and varies[1]:
        rule = f"right operand of {binop.text} has to be either a constant or symbolic"
        raise ParseError(binop.span, f"non-affine expression: {rule}")
    return _binary(self, lhs, rhs, binop)


def complete() -> None:
    AffineParser._get_parse_optional_ssa_value = _values_and_symbols  # pyright: ignore
    AffineParser._create_binop_expr = _checked_binary  # pyright: ignore
    _semi_affine("__mul__", AffineBinaryOpKind.Mul)
    _semi_affine("__floordiv__", AffineBinaryOpKind.FloorDiv)
    _semi_affine("ceil_div", AffineBinaryOpKind.CeilDiv)
    _semi_affine("__mod__", AffineBinaryOpKind.Mod)
