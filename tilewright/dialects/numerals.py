"""Numbers and affine maps as mlir-opt writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    DenseIntOrFPElementsAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    FloatTF32Type,
    IntegerAttr,
    VectorType,
)
from xdsl.ir import Attribute
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineExpr,
    AffineMap,
)


def float_attr(value: float, kind: Attribute) -> FloatAttr[Any]:
    """A number as a constant of a float type, rounded to nearest: beyond the type it is infinite, as in LLVM."""
    try:
        return FloatAttr(float(value), cast(Any, kind))
    except OverflowError:
        return FloatAttr(math.copysign(math.inf, value), cast(Any, kind))


def no_float(text: str) -> str | None:
    """Why MLIR does not take a literal for a float; None where it does."""
    if text[:3] in ("-0x", "-0X"):
        return "hexadecimal float literal should not have a leading minus"
    whole = re.match(r"-?(?!0[xX])\d+(?![\d.eE])", text)
    said = "unexpected decimal integer literal for a floating point value"
    return None if whole is None else f"{said}: {whole[0]}.0 is one"


def dense(kind: VectorType, numbers: Sequence[int | float]) -> DenseIntOrFPElementsAttr:
    """A constant vector of these numbers; of one everywhere where it is alone."""
    of: Any = float if isinstance(kind.element_type, AnyFloat) else int
    return DenseIntOrFPElementsAttr.from_list(kind, [of(n) for n in numbers])  # pyright: ignore


def number_attr(kind: Attribute, *numbers: int | float) -> Any:
    """The constant of a number's type, which is one number, or of a vector's: all its numbers, or one that repeats."""
    if isinstance(kind, VectorType):
        return dense(kind, numbers)
    if isinstance(kind, AnyFloat):
        return FloatAttr(float(numbers[0]), kind)
    return IntegerAttr(int(numbers[0]), cast(Any, kind))


def six_digits(value: float) -> str:
    """A finite float with six significant digits, as LLVM's APFloat prints it.

    It first divides the exact decimal significand by powers of ten, dropping digits, and only then
    rounds: f16 0.1 is `9.997550e-02`, although its value is 0.0999755859375.
    """
    if value == 0:
        return "-0.000000e+00" if math.copysign(1, value) < 0 else "0.000000e+00"
    exact = Fraction(abs(value))
    exponent = -(exact.denominator.bit_length() - 1)
    significand = exact.numerator * 5**-exponent
    precision = 6
    required = (precision * 196 + 58) // 59
    bits = significand.bit_length()
    if bits > required:
        removable = (bits - required) * 59 // 196
        significand //= 10**removable
        exponent += removable
    digits = str(significand).rstrip("0")
    exponent += len(str(significand)) - len(digits)
    if len(digits) > precision:
        dropped = len(digits) - precision
        rounded = int(digits[:precision]) + (digits[precision] >= "5")
        exponent += dropped
        text = str(rounded)
        digits = text.rstrip("0")
        exponent += len(text) - len(digits)
    scientific = exponent + len(digits) - 1
    sign = "-" if value < 0 else ""
    digits = digits.ljust(precision + 1, "0")
    return f"{sign}{digits[0]}.{digits[1:]}e{'-' if scientific < 0 else '+'}{abs(scientific):02d}"


# Digits that APFloat prints of each type when six do not do.
_FULL_DIGITS = (
    (Float32Type, 9),
    (Float64Type, 17),
    (Float16Type, 5),
    (FloatTF32Type, 5),
    (BFloat16Type, 4),
)


def float_text(value: float, kind: AnyFloat) -> str:
    """A float literal of a type: six digits if they read back as the same number."""
    if math.isnan(value) or math.isinf(value):
        return f"0x{kind.pack((value,))[::-1].hex().upper()}"
    text = six_digits(value)
    if _reads_as(text, value, kind):
        return text
    digits = next((n for cls, n in _FULL_DIGITS if isinstance(kind, cls)), None)
    text = repr(value) if digits is None else f"{value:.{digits}g}"
    if "." in text and _reads_as(text, value, kind):
        return text
    return f"0x{kind.pack((value,))[::-1].hex().upper()}"


def _reads_as(text: str, value: float, kind: AnyFloat) -> bool:
    try:
        return kind.unpack(kind.pack((float(text),)), 1)[0] == value
    except OverflowError:
        return False


def affine_text(expr: AffineExpr, tight: bool = False) -> str:
    """An affine expression with the parentheses that it needs; `tight` inside of a product."""
    if not isinstance(expr, AffineBinaryOpExpr):
        return str(expr)
    if expr.kind is not AffineBinaryOpKind.Add:
        if expr.kind is AffineBinaryOpKind.Mul and expr.rhs == AffineConstantExpr(-1):
            return f"-{affine_text(expr.lhs, True)}"
        left, right = affine_text(expr.lhs, True), affine_text(expr.rhs, True)
        text = f"{left} {expr.kind.get_token()} {right}"
    else:
        text = f"{affine_text(expr.lhs)} {_signed(expr.rhs)}"
    return f"({text})" if tight else text


def _signed(term: AffineExpr) -> str:
    """The right side of a sum: `+ d1`, `- d1`, `- d1 * 2`, `- 3`."""
    if isinstance(term, AffineConstantExpr) and term.value < 0:
        return f"- {-term.value}"
    if isinstance(term, AffineBinaryOpExpr) and term.kind is AffineBinaryOpKind.Mul:
        factor = term.rhs
        if isinstance(factor, AffineConstantExpr) and factor.value < 0:
            times = "" if factor.value == -1 else f" * {-factor.value}"
            return f"- {affine_text(term.lhs, True)}{times}"
    return f"+ {affine_text(term)}"


def affine_map_text(map: AffineMap) -> str:
    """`(d0, d1)[s0] -> (d0 + s0, d1 * 2)`."""
    dims = ", ".join(f"d{i}" for i in range(map.num_dims))
    symbols = ", ".join(f"s{i}" for i in range(map.num_symbols))
    results = ", ".join(affine_text(expr) for expr in map.results)
    return f"({dims}){f'[{symbols}]' if symbols else ''} -> ({results})"
