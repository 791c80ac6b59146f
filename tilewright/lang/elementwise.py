"""Elementwise functions: exp .. ceil, maximum, minimum, where, fma."""

# pyright: reportReturnType=false
# Functions of one float are a signature and a sentence: `_of_floats` makes what they do.

from __future__ import annotations

import builtins
import math as python_math
from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, TypeVar, cast

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from tilewright import dtypes
from tilewright.lang.arithmetic import binary, meet, to_computable
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import broadcast_shapes, broadcast_to, computed, constant, to
from tilewright.lang.maps import WgMap, mapped
from tilewright.lang.registry import language
from tilewright.lang.values import Operand, Value, describe_type, load_hint

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
OperandT = TypeVar("OperandT", Value, float)
"""A value gives a value; a number of compile time gives one of compile time."""


def _float_function(
    name: str,
    x: Any,
    build: Callable[..., Operation],
    fold: Callable[[float], float],
    wg_map: WgMap | None,
) -> Any:
    if isinstance(x, (int, float)):
        try:
            return fold(x)
        except (ValueError, OverflowError) as error:
            raise ArgumentError("x", f"{name}({x!r}): {error}") from None
    if not isinstance(x, Value):
        what = f"{name} takes a value or a number, not {describe_type(x)}"
        raise ArgumentError("x", what, hint=load_hint(x))
    if not x.dtype.is_float:
        if not (x.is_scalar and x.dtype.is_index):
            raise ArgumentError(
                "x",
                f"{name} is not defined on {x.dtype}",
                rule=f"{name} takes floats",
                hint="convert first, e.g. x.to(tw.f32)",
            )
        x = to(x, dtypes.f32)
    x = to_computable(x)
    op = build(computed(x), emitter(name).fastmath)
    return mapped(Value(emitter(name).result(op), x.dtype, x.shape, weak=x.weak), wg_map)


def _of_floats(
    build: Callable[..., Operation], fold: Callable[[float], float], *, at: float, gives: float
) -> Callable[[FunctionT], FunctionT]:
    """Makes a signature and what it gives of one float a function of the language: the op of values, Python's of
    numbers, and an example, `at` a number, in its docstring."""

    def declare(said: FunctionT) -> FunctionT:
        name = said.__name__

        @wraps(said)
        def function(x: Any, *, wg_map: WgMap | None = None) -> Any:
            return _float_function(name, x, build, fold, wg_map)

        function.__doc__ = _EXAMPLE.format(what=said.__doc__, name=name, at=at, gives=gives)
        return cast(FunctionT, language(function))

    return declare


_EXAMPLE = """{what}, elementwise, of floats; in x's dtype.

    >>> @tw.kernel
    ... def apply(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 1)))
    ...     tw.store_tile(tw.{name}(x), tw.init_tile(Y, [0], (1, 1)))
    >>> x = np.array([{at}], np.float32); y = np.empty_like(x)
    >>> apply[1](x, y); round(float(y[0]), 4)
    {gives}
    """


@_of_floats(math.ExpOp, python_math.exp, at=0.5, gives=1.6487)
def exp(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """e to the power x"""


@_of_floats(math.Exp2Op, python_math.exp2, at=0.5, gives=1.4142)
def exp2(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """2 to the power x"""


@_of_floats(math.LogOp, python_math.log, at=0.5, gives=-0.6931)
def log(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The natural logarithm of x"""


@_of_floats(math.Log2Op, python_math.log2, at=0.5, gives=-1.0)
def log2(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The logarithm of x to base 2"""


@_of_floats(math.SqrtOp, python_math.sqrt, at=0.25, gives=0.5)
def sqrt(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The square root of x"""


@_of_floats(math.RsqrtOp, lambda v: 1.0 / python_math.sqrt(v), at=0.25, gives=2.0)
def rsqrt(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """1 / sqrt(x)"""


@_of_floats(math.TanhOp, python_math.tanh, at=0.5, gives=0.4621)
def tanh(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The hyperbolic tangent of x"""


@_of_floats(math.AtanOp, python_math.atan, at=0.5, gives=0.4636)
def atan(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The angle between -pi/2 and pi/2 whose tangent is x"""


@_of_floats(math.ErfOp, python_math.erf, at=0.5, gives=0.5205)
def erf(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The error function of x"""


@_of_floats(math.SinOp, python_math.sin, at=0.5, gives=0.4794)
def sin(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The sine of x, in radians"""


@_of_floats(math.CosOp, python_math.cos, at=0.5, gives=0.8776)
def cos(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The cosine of x, in radians"""


@_of_floats(math.FloorOp, lambda v: float(python_math.floor(v)), at=-1.5, gives=-2.0)
def floor(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The largest whole number not above x"""


@_of_floats(math.RoundEvenOp, lambda v: float(builtins.round(v)), at=2.5, gives=2.0)
def round(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The whole number next to x, halves to the even one"""


@_of_floats(math.CeilOp, lambda v: float(python_math.ceil(v)), at=-1.5, gives=-1.0)
def ceil(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The smallest whole number not below x"""


@_of_floats(math.ExpM1Op, python_math.expm1, at=0.5, gives=0.6487)
def expm1(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """e to the power x, minus 1: with all digits near 0"""


@_of_floats(math.Log1pOp, python_math.log1p, at=0.5, gives=0.4055)
def log1p(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The natural logarithm of 1 + x: with all digits near 0"""


@_of_floats(math.Log10Op, python_math.log10, at=0.5, gives=-0.301)
def log10(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The logarithm of x to base 10"""


@_of_floats(math.TanOp, python_math.tan, at=0.5, gives=0.5463)
def tan(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The tangent of x, in radians"""


@_of_floats(math.AsinOp, python_math.asin, at=0.5, gives=0.5236)
def asin(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The angle between -pi/2 and pi/2 whose sine is x"""


@_of_floats(math.AcosOp, python_math.acos, at=0.5, gives=1.0472)
def acos(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The angle between 0 and pi whose cosine is x"""


@_of_floats(math.SinhOp, python_math.sinh, at=0.5, gives=0.5211)
def sinh(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The hyperbolic sine of x"""


@_of_floats(math.CoshOp, python_math.cosh, at=0.5, gives=1.1276)
def cosh(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The hyperbolic cosine of x"""


@_of_floats(math.TruncOp, lambda v: float(python_math.trunc(v)), at=-1.5, gives=-1.0)
def trunc(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The whole number next to x towards 0"""


@language
def sigmoid(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """1 / (1 + exp(-x)), elementwise, of floats; in x's dtype.

    >>> @tw.kernel
    ... def apply(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 1)))
    ...     tw.store_tile(tw.sigmoid(x), tw.init_tile(Y, [0], (1, 1)))
    >>> x = np.array([0.0], np.float32); y = np.empty_like(x)
    >>> apply[1](x, y); float(y[0])
    0.5
    """
    if isinstance(x, Value):
        return 1.0 / (exp(-x, wg_map=wg_map) + 1.0)
    return 1.0 / (1.0 + exp(-x))


@language
def abs(x: OperandT, *, wg_map: WgMap | None = None) -> OperandT:
    """The absolute value of floats and integers, elementwise.

    >>> @tw.kernel
    ... def apply(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 1)))
    ...     tw.store_tile(tw.abs(x), tw.init_tile(Y, [0], (1, 1)))
    >>> x = np.array([-3], np.int32); y = np.empty_like(x)
    >>> apply[1](x, y); int(y[0])
    3
    """
    if isinstance(x, Value) and not x.dtype.is_float:
        if x.dtype.is_unsigned or x.dtype.is_bool:
            return x
        op = math.AbsIOp(computed(x))
        return mapped(Value(emitter("abs").result(op), x.dtype, x.shape), wg_map)
    return _float_function("abs", x, math.AbsFOp, python_math.fabs, wg_map)


def _known(*operands: Operand) -> bool:
    """Are all numbers of compile time? CompileError where none is a value and one is no number either."""
    if any(isinstance(x, Value) for x in operands):
        return False
    for x in operands:
        if not isinstance(x, Real):
            constant(cast(Any, x), dtypes.f32)
    return True


@language
def maximum(a: Operand, b: Operand, *, wg_map: WgMap | None = None) -> Value:
    """The larger of ``a`` and ``b``, elementwise; NaN wins, as in numpy. Broadcasts.

    >>> @tw.kernel
    ... def relu(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 2)))
    ...     tw.store_tile(tw.maximum(x, 0), tw.init_tile(Y, [0], (1, 2)))
    >>> x = np.array([-1, 2], np.float32); y = np.empty_like(x)
    >>> relu[1](x, y); y.tolist()
    [0.0, 2.0]
    """
    if _known(a, b):
        return cast(Value, builtins.max(a, b))
    return mapped(binary("max", a, b), wg_map)


@language
def minimum(a: Operand, b: Operand, *, wg_map: WgMap | None = None) -> Value:
    """The smaller of ``a`` and ``b``, elementwise; NaN wins, as in numpy. Broadcasts.

    >>> @tw.kernel
    ... def cap(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 2)))
    ...     tw.store_tile(tw.minimum(x, 0), tw.init_tile(Y, [0], (1, 2)))
    >>> x = np.array([-1, 2], np.float32); y = np.empty_like(x)
    >>> cap[1](x, y); y.tolist()
    [-1.0, 0.0]
    """
    if _known(a, b):
        return cast(Value, builtins.min(a, b))
    return mapped(binary("min", a, b), wg_map)


@language
def where(condition: Value | bool, a: Operand, b: Operand, *, wg_map: WgMap | None = None) -> Value:
    """``a`` where ``condition`` (a mask or an i1 scalar) is true, ``b`` elsewhere. Broadcasts.

    ``a`` and ``b`` meet in one dtype as the operands of ``+`` do; both are evaluated. Two numbers
    give f32 or i64.

    >>> @tw.kernel
    ... def positive(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 2)))
    ...     tw.store_tile(tw.where(x > 0, x, -10), tw.init_tile(Y, [0], (1, 2)))
    >>> x = np.array([-1, 2], np.float32); y = np.empty_like(x)
    >>> positive[1](x, y); y.tolist()
    [-10.0, 2.0]
    """
    if isinstance(condition, bool):
        return cast(Value, a if condition else b)
    if not isinstance(condition, Value) or not condition.dtype.is_bool:
        raise ArgumentError(
            "condition",
            f"condition must be a mask (i1), not {describe_type(condition)}",
            hint="a comparison returns a mask: x < 3",
        )
    if not isinstance(a, Value) and not isinstance(b, Value):
        floats = isinstance(a, float) or isinstance(b, float)
        a = constant(a, dtypes.f32 if floats else dtypes.i64)
    x, y = meet(a, b, "where")
    shape = broadcast_shapes(condition.shape, x.shape)
    weak = x.weak and not shape
    x, y = broadcast_to(x, shape), broadcast_to(y, shape)
    if condition.shape:
        condition = broadcast_to(condition, shape)
    op = arith.SelectOp(computed(condition), computed(x), computed(y))
    return mapped(Value(emitter("where").result(op), x.dtype, shape, weak=weak), wg_map)


@language
def fma(a: Operand, b: Operand, c: Operand, *, wg_map: WgMap | None = None) -> Value:
    """``a * b + c`` with one rounding, elementwise, of floats. Broadcasts.

    >>> @tw.kernel
    ... def apply(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 1)))
    ...     tw.store_tile(tw.fma(x, 2.0, 1.0), tw.init_tile(Y, [0], (1, 1)))
    >>> x = np.array([3.0], np.float32); y = np.empty_like(x)
    >>> apply[1](x, y); float(y[0])
    7.0
    """
    if _known(a, b, c):
        return cast(Value, a * b + c)
    values = [x for x in (a, b, c) if isinstance(x, Value)]
    operands = (a, b, c)
    first = next((x for x in values if x.shape), values[0])
    # One dtype and one shape for three: each meets what the others have met in.
    x, _ = meet(first, operands[0], "fma")
    for operand in operands[1:]:
        x, _ = meet(x, operand, "fma")
    if not x.dtype.is_float:
        raise ArgumentError("a", f"fma is not defined on {x.dtype}", hint="write a * b + c")
    p, q, r = (meet(x, operand, "fma")[1] for operand in operands)
    op = math.FmaOp(p.ssa, q.ssa, r.ssa, emitter("fma").fastmath)
    return mapped(Value(emitter("fma").result(op), x.dtype, x.shape, weak=x.weak), wg_map)
