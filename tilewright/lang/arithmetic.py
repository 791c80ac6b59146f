"""Operators: from ``a + b`` in a kernel to ops of arith and math.

One table per class of operators says which op serves floats, signed and unsigned integers; the
functions bring the operands to one dtype and shape (`tilewright.lang.promote`) and apply it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dialects.upstream.arith import RemfOp
from tilewright.dtypes import DType
from tilewright.lang.context import emitter
from tilewright.lang.convert import (
    as_value,
    broadcast_shapes,
    broadcast_to,
    computed,
    constant,
    constant_ssa,
    to,
)
from tilewright.lang.promote import division, promote
from tilewright.lang.values import Number, Operand, Value, describe_type, load_hint

Build = Callable[..., Operation]

PYTHON: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
"""What each operator does to numbers of compile time."""

_FLOAT: dict[str, Build] = {
    "+": arith.AddfOp,
    "-": arith.SubfOp,
    "*": arith.MulfOp,
    "/": arith.DivfOp,
    "max": arith.MaximumfOp,
    "min": arith.MinimumfOp,
}
_SIGNED: dict[str, Build] = {
    "+": arith.AddiOp,
    "-": arith.SubiOp,
    "*": arith.MuliOp,
    "//": arith.FloorDivSIOp,
    "&": arith.AndIOp,
    "|": arith.OrIOp,
    "^": arith.XOrIOp,
    "<<": arith.ShLIOp,
    ">>": arith.ShRSIOp,
    "max": arith.MaxSIOp,
    "min": arith.MinSIOp,
    "cdiv": arith.CeilDivSIOp,
}
_UNSIGNED: dict[str, Build] = _SIGNED | {
    "//": arith.DivUIOp,
    "%": arith.RemUIOp,
    ">>": arith.ShRUIOp,
    "max": arith.MaxUIOp,
    "min": arith.MinUIOp,
    "cdiv": arith.CeilDivUIOp,
}
_FLOAT_PREDICATE = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
_SIGNED_PREDICATE = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED_PREDICATE = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
_BITWISE = ("&", "|", "^")


def binary(symbol: str, a: Operand, b: Operand) -> Value:
    """``a symbol b``: one of Python's operators, "max", "min" or "cdiv", on values and numbers."""
    for side in (a, b):
        if not isinstance(side, (Value, int, float)):
            raise CompileError(
                f"{symbol} does not combine {describe_type(a)} and {describe_type(b)}",
                hint=load_hint(a, b),
            )
    if symbol == "**":
        return _power(a, b)
    if (same := _identity(symbol, a, b)) is not None:
        return same
    if symbol in ("<<", ">>") and isinstance(a, Value) and isinstance(b, int):
        bits = 64 if a.dtype.is_index else a.dtype.bits
        if not 0 <= b < bits:
            raise CompileError(
                f"{describe_type(a)} is shifted by {b}",
                rule=f"a shift of {a.dtype} is by 0 to {bits - 1} bits",
            )
    if symbol in ("//", "%", "cdiv") and type(b) is int and b == 0 and _is_integer(a):
        raise CompileError(
            f"{describe_type(a)} is divided by the constant 0",
            rule=f"{symbol} of integers takes a divisor that is not 0",
        )
    x, y = meet(a, b, symbol)
    if symbol in _SIGNED_PREDICATE:
        return _compare(symbol, x, y)
    if x.dtype.is_bool and symbol not in _BITWISE:
        x, y = _numbers(symbol, x), _numbers(symbol, y)
    if symbol == "/" and not x.dtype.is_float:
        scalars = x.is_scalar and (x.dtype.is_index or x.weak)
        wide = dtypes.f32 if scalars else division(x.dtype)
        x, y = to(x, wide), to(y, wide)
        x.weak = y.weak = scalars
    if x.dtype.is_float:
        return _float(symbol, x, y)
    table = _UNSIGNED if x.dtype.is_unsigned or x.dtype.is_bool else _SIGNED
    if symbol == "%" and "%" not in table:
        # Python's remainder has the sign of the divisor: a - (a // b) * b.
        return binary("-", x, binary("*", binary("//", x, y), y))
    return _apply(table, symbol, x, y)


def _is_integer(a: Operand) -> bool:
    return not (a.dtype.is_float if isinstance(a, Value) else isinstance(a, float))


def _float(symbol: str, x: Value, y: Value) -> Value:
    if symbol == "//":
        quotient = _apply(_FLOAT, "/", x, y)
        return _like(quotient, math.FloorOp(quotient.ssa, emitter().fastmath))
    if symbol == "%":
        return _float_remainder(x, y)
    return _apply(_FLOAT, symbol, x, y)


def _float_remainder(x: Value, y: Value) -> Value:
    """Python's and numpy's ``%``: C's fmod, moved by one divisor where the signs differ."""
    remainder = _like(x, RemfOp(x.ssa, y.ssa, emitter().fastmath))
    zero = broadcast_to(constant(0.0, x.dtype), x.shape)
    differ = binary("^", binary("<", remainder, zero), binary("<", y, zero))
    wrong = binary("&", differ, binary("!=", remainder, zero))
    moved = _apply(_FLOAT, "+", remainder, y)
    return _like(x, arith.SelectOp(wrong.ssa, moved.ssa, remainder.ssa))


def _apply(table: dict[str, Build], symbol: str, x: Value, y: Value) -> Value:
    build = table.get(symbol)
    if build is None:
        kind = "floats" if x.dtype.is_float else "integers"
        raise CompileError(
            f"{symbol} is not defined on {kind} ({x.dtype})",
            hint="bitwise operators take integers and masks; convert with x.to(tw.i32)"
            if x.dtype.is_float
            else None,
        )
    a, b = computed(x), computed(y)
    op = build(a, b, emitter().fastmath) if x.dtype.is_float else build(a, b)
    return _like(x, op, weak=x.weak and y.weak)


def _like(x: Value, op: Operation, *, weak: bool | None = None) -> Value:
    """The result of ``op`` as a value of x's dtype and shape."""
    return Value(emitter().result(op), x.dtype, x.shape, weak=x.weak if weak is None else weak)


def _compare(symbol: str, x: Value, y: Value) -> Value:
    a, b = computed(x), computed(y)
    if x.dtype.is_float:
        op: Operation = arith.CmpfOp(a, b, _FLOAT_PREDICATE[symbol], emitter().fastmath)
    else:
        unsigned = x.dtype.is_unsigned or x.dtype.is_bool
        op = arith.CmpiOp(a, b, (_UNSIGNED_PREDICATE if unsigned else _SIGNED_PREDICATE)[symbol])
    return Value(emitter().result(op), dtypes.i1, x.shape)


# --- How operands meet -----------------------------------------------------------------------


def meet(a: Operand, b: Operand, symbol: str = "this operation") -> tuple[Value, Value]:
    """Both operands in one dtype and one shape."""
    dtype, weak = _common_dtype(a, b, symbol)
    x, y = _as_dtype(a, dtype), _as_dtype(b, dtype)
    x.weak = y.weak = weak
    try:
        shape = broadcast_shapes(x.shape, y.shape)
    except CompileError as error:
        error.message = f"{symbol}: {error.message}"
        raise
    return _weakly(broadcast_to(x, shape), weak), _weakly(broadcast_to(y, shape), weak)


def _weakly(value: Value, weak: bool) -> Value:
    value.weak = weak
    return value


def _as_dtype(x: Operand, dtype: DType) -> Value:
    return to(x, dtype) if isinstance(x, Value) else constant(x, dtype)


def _common_dtype(a: Operand, b: Operand, symbol: str) -> tuple[DType, bool]:
    """The dtype in which two operands meet, and whether it stays weak."""
    if not isinstance(a, Value) and not isinstance(b, Value):
        a = as_value(a)
    if not isinstance(a, Value):
        assert isinstance(b, Value)
        return _with_number(b, a, symbol)
    if not isinstance(b, Value):
        return _with_number(a, b, symbol)
    if a.is_scalar == b.is_scalar:
        return _scalars(a, b) if a.is_scalar else (promote(a.dtype, b.dtype), False)
    tile, scalar = (b, a) if a.is_scalar else (a, b)
    return _with_scalar(tile, scalar.dtype, symbol), False


def _with_number(value: Value, number: Number, symbol: str) -> tuple[DType, bool]:
    """A value and a compile-time number: the value's dtype, unless a scalar integer meets a float."""
    if value.is_scalar:
        if isinstance(number, float) and not value.dtype.is_float:
            return dtypes.f32, True
        if value.dtype.is_bool and not isinstance(number, bool):
            return dtypes.index, False
        return (dtypes.f32 if value.dtype is dtypes.tf32 else value.dtype), value.weak
    kind = dtypes.i1 if isinstance(number, bool) else dtypes.f32
    if isinstance(number, int) and not isinstance(number, bool):
        kind = dtypes.index
    return _with_scalar(value, kind, symbol), False


def _with_scalar(tile: Value, scalar: DType, symbol: str) -> DType:
    """A tile and a scalar meet in the tile's dtype; a scalar of a wider kind is refused."""
    if scalar.is_float and not tile.dtype.is_float:
        raise CompileError(
            f"{symbol} combines {describe_type(tile)} with a float scalar",
            rule="a scalar never widens a tile's dtype",
            hint="convert the tile first, e.g. x.to(tw.f32)",
        )
    if tile.dtype.is_bool and not scalar.is_bool:
        raise CompileError(
            f"{symbol} combines {describe_type(tile)} (a mask) with a number",
            rule="a scalar never widens a tile's dtype",
            hint="convert the mask first, e.g. x.to(tw.i32)",
        )
    return dtypes.f32 if tile.dtype is dtypes.tf32 else tile.dtype


def _scalars(a: Value, b: Value) -> tuple[DType, bool]:
    """Two run-time scalars: a weak float or an index takes the other's kind of float."""
    if a.weak and b.weak:
        return dtypes.f32, True
    for one, other in ((a, b), (b, a)):
        if one.weak and other.dtype.is_float:
            return promote(other.dtype, other.dtype), False
        if one.weak:
            return dtypes.f32, True
        if one.dtype.is_index and other.dtype.is_float:
            return promote(other.dtype, other.dtype), other.weak
    return promote(a.dtype, b.dtype), False


def _numbers(symbol: str, mask: Value) -> Value:
    if mask.is_scalar:
        return to(mask, dtypes.index)
    raise CompileError(
        f"{symbol} is arithmetic, but the operands are masks (i1)",
        hint="combine masks with & | ^ ~, or convert them, e.g. mask.to(tw.i32)",
    )


def _identity(symbol: str, a: Operand, b: Operand) -> Value | None:
    """``x + 0``, ``x - 0``, ``x * 1``, ``x // 1`` on integer scalars: no op is needed."""
    if isinstance(a, Value) and a.is_scalar and a.dtype.is_integer and type(b) is int:
        if (b == 0 and symbol in ("+", "-")) or (b == 1 and symbol in ("*", "//")):
            return a
    elif (
        isinstance(b, Value)
        and b.is_scalar
        and b.dtype.is_integer
        and type(a) is int
        and ((a == 0 and symbol == "+") or (a == 1 and symbol == "*"))
    ):
        return b
    return None


# --- Powers, unary operators, truth ----------------------------------------------------------

_UNROLLED_POWER = 16
"""Constant integer exponents up to this are a chain of multiplications."""


def _power(a: Operand, b: Operand) -> Value:
    if isinstance(a, Value) and isinstance(b, (int, float)) and not isinstance(b, bool):
        if a.dtype.is_float and b == 0.5:
            return _like(a, math.SqrtOp(computed(to_computable(a)), emitter().fastmath))
        if abs(b) <= _UNROLLED_POWER and float(b).is_integer():
            return _integer_power(to_computable(a), int(b))
    x, y = meet(a, b, "**")
    if x.dtype.is_float:
        return _like(x, math.PowFOp(x.ssa, y.ssa, emitter().fastmath))
    if x.dtype.is_bool or x.dtype.is_unsigned or x.dtype.is_index:
        raise CompileError(
            f"** with a run-time exponent is not defined on {x.dtype}",
            hint="convert both operands, e.g. x.to(tw.i64) or x.to(tw.f32)",
        )
    return _like(x, math.IPowIOp(x.ssa, y.ssa))


def _integer_power(x: Value, exponent: int) -> Value:
    if exponent < 0:
        if not x.dtype.is_float:
            raise CompileError(
                f"an integer ({x.dtype}) to the power {exponent}",
                rule="integers have no negative powers, as in numpy",
                hint="convert to a float first, e.g. x.to(tw.f32)",
            )
        return binary("/", 1.0, _integer_power(x, -exponent))
    if exponent == 0:
        one = constant(1.0 if x.dtype.is_float else 1, x.dtype)
        return broadcast_to(one, x.shape)
    result: Value | None = None
    square = x
    while True:  # square and multiply
        if exponent & 1:
            result = square if result is None else binary("*", result, square)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = binary("*", square, square)


def to_computable(x: Value) -> Value:
    """The value in a dtype that arithmetic has: tf32 becomes f32."""
    return to(x, dtypes.f32) if x.dtype is dtypes.tf32 else x


def unary(symbol: str, x: Value) -> Value:
    """``-x`` and ``~x``."""
    x = to_computable(x)
    if symbol == "-":
        if x.dtype.is_float:
            return _like(x, arith.NegfOp(x.ssa, emitter().fastmath))
        if x.dtype.is_bool:
            x = _numbers("-", x)
        zero = broadcast_to(constant(0, x.dtype), x.shape)
        return _apply(_SIGNED, "-", zero, x)
    if x.dtype.is_float:
        raise CompileError(
            f"~ is not defined on floats ({x.dtype})", hint="~ inverts integers and masks"
        )
    # All bits set: in two's complement -1, which unsigned integers do not have.
    ones = (1 << x.dtype.bits) - 1 if x.dtype.is_unsigned or x.dtype.is_bool else -1
    ones = Value(constant_ssa(ones, x.dtype), x.dtype, ())
    return _apply(_SIGNED, "^", x, broadcast_to(ones, x.shape))


def truth(x: Value, what: str = "a condition") -> Value:
    """An i1 scalar that says whether a scalar is non-zero."""
    if not x.is_scalar:
        raise CompileError(
            f"{what} must be a scalar, not a {describe_type(x)}",
            rule="control flow is one decision for the whole tile",
            hint="x.item() is the only element of a value"
            if set(x.shape) == {1}
            else "use tw.where(mask, a, b) to choose elementwise, or reduce the mask to a scalar:"
            " tw.any(mask).item()",
        )
    if x.dtype.is_bool:
        return x
    return binary("!=", x, 0.0 if x.dtype.is_float else 0)
