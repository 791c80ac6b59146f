"""Meaning of the math dialect."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
from xdsl.ir import Operation

from tilewright.reference import numerics
from tilewright.reference.meanings.arith import as_unsigned, floating
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array


def elementary(name: str, function: Callable[..., Array]) -> None:
    """An elementary function, computed in float64."""

    @meaning(f"math.{name}")
    def run(site: Site, op: Operation, *operands: Array) -> Array:
        return numerics.transcendental(function, op.results[0].type, *operands)


def _round_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + (np.abs(x) % 1 >= 0.5) * 0.5), x)


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """numpy has no error function; the C library's is called for each element."""

    def run(x: Array) -> Array:
        return np.array([function(e) for e in x.ravel().tolist()], np.float64).reshape(x.shape)

    return run


floating("math.absf", np.abs)
floating("math.ceil", np.ceil)
floating("math.floor", np.floor)
floating("math.trunc", np.trunc)
floating("math.roundeven", np.rint)
floating("math.round", _round_away)
floating("math.copysign", np.copysign)
floating("math.sqrt", np.sqrt)
floating("math.fma", numerics.fma)
elementary("rsqrt", lambda x: 1.0 / np.sqrt(x))
for _name in (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
):
    elementary(_name, getattr(np, _name))
for _name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh"):
    elementary(f"a{_name}", getattr(np, f"arc{_name}"))
elementary("powf", np.power)
elementary("erf", _each(math.erf))
elementary("erfc", _each(math.erfc))


@meaning("math.fpowi")
def fpowi(site: Site, op: Operation, base: Array, exponent: Array) -> Array:
    return numerics.transcendental(np.power, op.results[0].type, base, exponent)


@meaning("math.ipowi")
def ipowi(site: Site, op: Operation, base: Array, exponent: Array) -> Array:
    base, exponent = np.broadcast_arrays(base, exponent)
    if ((base == 0) & (exponent < 0)).any():
        site.report("error", "division", "math.ipowi: zero to a negative power")
    result = np.ones_like(base)
    square, left = base.copy(), np.where(exponent < 0, 0, exponent)
    while left.any():
        result = np.where(left & 1, result * square, result)
        square, left = square * square, left >> 1
    odd = np.where(exponent & 1, base, np.ones_like(base))
    inverse = np.where(base == 1, 1, np.where(base == -1, odd, 0))
    return np.where(exponent < 0, inverse, result).astype(base.dtype)


@meaning("math.absi")
def absi(site: Site, op: Operation, value: Array) -> Array:
    return np.abs(value)


@meaning("math.ctpop")
def ctpop(site: Site, op: Operation, value: Array) -> Array:
    return np.bitwise_count(as_unsigned(value)).astype(value.dtype)


@meaning("math.ctlz")
def ctlz(site: Site, op: Operation, value: Array) -> Array:
    bits = 8 * value.dtype.itemsize
    return (bits - _width(as_unsigned(value))).astype(value.dtype)


@meaning("math.cttz")
def cttz(site: Site, op: Operation, value: Array) -> Array:
    bits = 8 * value.dtype.itemsize
    lowest = _width(as_unsigned(value & -value)) - 1
    return np.where(value == 0, bits, lowest).astype(value.dtype)


def _width(value: Array) -> Array:
    """Bits up to the highest one that is set."""
    width = np.zeros(value.shape, np.int64)
    left = value.copy()
    while left.any():
        width += left != 0
        left >>= np.ones((), left.dtype)
    return width


_CLASSES = {"math.isnan": np.isnan, "math.isinf": np.isinf, "math.isfinite": np.isfinite}


@meaning(*_CLASSES)
def classify(site: Site, op: Operation, value: Array) -> Array:
    return _CLASSES[op.name](numerics.widen(value))


@meaning("math.isnormal")
def isnormal(site: Site, op: Operation, value: Array) -> Array:
    wide = np.abs(value.astype(np.float64))
    return np.isfinite(wide) & (wide >= float(ml_dtypes.finfo(value.dtype).smallest_normal))


@meaning("math.sincos")
def sincos(site: Site, op: Operation, value: Array) -> tuple[Array, Array]:
    type = op.results[0].type
    return (
        numerics.transcendental(np.sin, type, value),
        numerics.transcendental(np.cos, type, value),
    )


@meaning("math.clampf")
def clampf(site: Site, op: Operation, value: Array, low: Array, high: Array) -> Array:
    type = op.results[0].type
    return numerics.floats(np.minimum, type, numerics.floats(np.maximum, type, value, low), high)
