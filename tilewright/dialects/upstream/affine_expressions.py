"""Affine expressions as mlir-opt writes them: `symbol(%n)` in subscripts, products with symbols, division by them.

affine.store %x, %m[%i + symbol(%n)] : memref<?xf32>
affine_map<(d0)[s0] -> (-(d0 * (s0 ceildiv 3)) + s0)>       a part of each of three threads
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from xdsl.dialects import affine
from xdsl.ir import SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)
from xdsl.parser.affine_parser import AffineParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from tilewright.dialects.directives import say

T = TypeVar("T")


class Values:
    """The values that affine text names: dimensions, and symbols where it first says `symbol(%n)`."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._known = dict[str, tuple[AffineExpr, Span]]()

    def read(self) -> AffineExpr | None:
        """The expression of a value, where one stands."""
        text = self._text
        kind = AffineDimExpr
        if text.parse_optional_keyword("symbol") is not None:
            kind = AffineSymExpr
            text.parse_punctuation("(")
        found = text._parse_optional_token(MLIRTokenKind.PERCENT_IDENT)
        if kind is AffineSymExpr:
            if found is None:
                text.raise_error("a value is expected here: symbol(%n)")
            text.parse_punctuation(")")
        if found is None:
            return None
        new = kind(len(self._spans(kind))), found.span
        return self._known.setdefault(found.span.text, new)[0]

    def _spans(self, kind: type[AffineExpr]) -> list[Span]:
        return [span for expr, span in self._known.values() if isinstance(expr, kind)]

    def map(self, results: Iterable[AffineExpr]) -> tuple[AffineMap, Sequence[Span]]:
        """The map of what was read, and where each value that it is given was first named."""
        dims, symbols = self._spans(AffineDimExpr), self._spans(AffineSymExpr)
        return AffineMap(len(dims), len(symbols), tuple(results)), (*dims, *symbols)


def _read_map(self: Any) -> tuple[AffineMap, Sequence[Span]]:
    values = Values(self)
    results = self.parse_comma_separated_list(
        self.Delimiter.SQUARE, lambda: self._parse_affine_expr(values.read)
    )
    return values.map(results)


_print_expression: Any = affine._print_affine_expr_of_ssa_ids  # pyright: ignore[reportPrivateUsage]


def _print_value(printer: Printer, expr: AffineExpr, operands: Any, min_prec: int = 0) -> None:
    """As stock; a symbol, which is numbered behind the dimensions, is printed as one."""
    if isinstance(expr, AffineSymExpr):
        say(printer, "symbol(", operands[expr.position], ")")
    else:
        _print_expression(printer, expr, operands, min_prec)


def print_results(printer: Printer, map_: AffineMap, operands: Sequence[SSAValue]) -> None:
    """The results of a map in terms of what it is given."""
    symbols = [AffineExpr.symbol(map_.num_dims + n) for n in range(map_.num_symbols)]
    results = [e.replace_dims_and_symbols((), symbols) for e in map_.results]
    printer.print_list(results, lambda e: _print_value(printer, e, operands))


def _print_map(printer: Printer, map_: AffineMap, operands: Sequence[SSAValue]) -> None:
    with printer.in_square_brackets():
        print_results(printer, map_, operands)


def evaluated(
    expr: AffineExpr,
    dims: Sequence[T],
    symbols: Sequence[T],
    constant: Callable[[int], T],
    operations: Mapping[AffineBinaryOpKind, Callable[[T, T], T]],
) -> T:
    """An expression of operands, by what makes a constant and what each operation does."""
    match expr:
        case AffineConstantExpr():
            return constant(expr.value)
        case AffineDimExpr():
            return dims[expr.position]
        case AffineSymExpr():
            return symbols[expr.position]
        case AffineBinaryOpExpr():
            sides = (
                evaluated(e, dims, symbols, constant, operations) for e in (expr.lhs, expr.rhs)
            )
            return operations[expr.kind](*sides)
        case _:
            raise TypeError(f"no affine expression: {expr}")


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
    AffineParser.parse_affine_map_of_ssa_ids = _read_map
    affine._print_affine_expr_of_ssa_ids = _print_value  # pyright: ignore[reportPrivateUsage]
    affine._print_affine_map_of_ssa_ids = _print_map  # pyright: ignore[reportPrivateUsage]
    AffineParser._create_binop_expr = _checked_binary  # pyright: ignore
    _semi_affine("__mul__", AffineBinaryOpKind.Mul)
    _semi_affine("__floordiv__", AffineBinaryOpKind.FloorDiv)
    _semi_affine("ceil_div", AffineBinaryOpKind.CeilDiv)
    _semi_affine("__mod__", AffineBinaryOpKind.Mod)
