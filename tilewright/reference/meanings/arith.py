"""Meaning of the arith dialect: every op rounds to its type, integers wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation

from tilewright.diagnostics import unsupported
from tilewright.reference import numerics
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array


def constant_rows(op: Operation, value: Attribute, type: Attribute) -> Array:
    """The single row of a constant attribute."""
    shape = numerics.shape_of(type)
    if isinstance(value, DenseIntOrFPElementsAttr):
        numbers: list[Any] = list(value.get_values())
        splat = len(numbers) > 0 and value.is_splat()
    elif isinstance(value, (IntegerAttr, FloatAttr)):
        numbers, splat = [value.value.data], True
    else:
        raise unsupported(op, f"a constant of kind {value.name} cannot be run")
    if splat:
        return np.full((1, *shape), as_number(numbers[0], type), numerics.numpy_type(type))
    return as_numbers(numbers, type).reshape(1, *shape)


def as_number(number: Any, type: Attribute) -> Any:
    """One number of an attribute or a padding as an element of `type`."""
    return as_numbers([number], type)[0]


def as_numbers(numbers: list[Any], type: Attribute) -> Array:
    dtype = numerics.numpy_type(type)
    if dtype.kind == "b":
        return np.array([int(n) & 1 for n in numbers], bool)
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        raw = [int(n) & ((1 << bits) - 1) for n in numbers]
        return np.array(raw, numerics.unsigned_type(dtype)).view(dtype)
    return numerics.round_to(
        np.array(numbers, np.float64).astype(np.float64 if dtype == np.float64 else np.float32),
        type,
    )


@meaning("arith.constant", "index.constant", "index.bool.constant")
def constant(site: Site, op: Operation) -> Array:
    cache = site.machine.constants
    if op not in cache:
        cache[op] = constant_rows(op, op.properties["value"], op.results[0].type)
    return cache[op]


# Integers. numpy's fixed-width integers wrap as MLIR's do; bool is i1 and adds modulo two.


def integer(name: str, function: Callable[..., Array], *, signed: bool = True) -> None:
    """An op on integers of one type, as they are or read as unsigned."""

    @meaning(f"arith.{name}i", f"index.{name}")
    def run(site: Site, op: Operation, *operands: Array) -> Array:
        dtype = operands[0].dtype
        if not signed:
            operands = tuple(map(as_unsigned, operands))
        elif dtype.kind == "b":
            wide = (operand.astype(np.int8) for operand in operands)
            return (function(*wide) & 1).astype(bool)
        return function(*operands).astype(dtype, copy=False)


def as_unsigned(value: Array) -> Array:
    return value.view(numerics.unsigned_type(value.dtype))


integer("add", np.add)
integer("sub", np.subtract)
integer("mul", np.multiply)
integer("and", np.bitwise_and)
integer("or", np.bitwise_or)
integer("xor", np.bitwise_xor)
integer("mins", np.minimum)
integer("maxs", np.maximum)
integer("minu", np.minimum, signed=False)
integer("maxu", np.maximum, signed=False)


def divide(site: Site, a: Array, b: Array, by: Callable[[Array, Array], Array]) -> Array:
    """A division; by zero, and the quotient that does not fit, are undefined and give 0."""
    undefined = b == 0
    if a.dtype.kind == "i":
        undefined = undefined | ((b == -1) & (a == np.iinfo(a.dtype).min))
    if undefined.any():
        what = "by zero" if (b == 0).any() else "whose quotient does not fit"
        site.report("error", "division", f"{site.op.name}: division {what}")
    safe = np.where(undefined, np.ones((), b.dtype), b)
    return np.where(undefined, np.zeros((), a.dtype), by(a, safe)).astype(a.dtype)


def truncating(a: Array, b: Array) -> Array:
    """Quotient towards zero."""
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0)))


def ceiling(a: Array, b: Array) -> Array:
    return a // b + (a % b != 0)


def division(name: str, by: Callable[[Array, Array], Array], *, signed: bool) -> None:
    @meaning(name)
    def run(site: Site, op: Operation, a: Array, b: Array) -> Array:
        if signed:
            return divide(site, a, b, by)
        return divide(site, as_unsigned(a), as_unsigned(b), by).astype(a.dtype)


for _dialect in ("arith.{}i", "index.{}"):
    division(_dialect.format("divs"), truncating, signed=True)
    division(_dialect.format("divu"), np.floor_divide, signed=False)
    division(_dialect.format("rems"), np.fmod, signed=True)
    division(_dialect.format("remu"), np.remainder, signed=False)
    division(_dialect.format("floordivs"), np.floor_divide, signed=True)
    division(_dialect.format("ceildivs"), ceiling, signed=True)
    division(_dialect.format("ceildivu"), ceiling, signed=False)


def shift(name: str, function: Callable[[Array, Array], Array], *, signed: bool) -> None:
    @meaning(f"arith.{name}i", f"index.{name}")
    def run(site: Site, op: Operation, a: Array, b: Array) -> Array:
        bits = 8 * a.dtype.itemsize if a.dtype.kind != "b" else 1
        count = as_unsigned(b)
        if (count >= bits).any():
            site.report("error", "shift", f"{op.name}: shift by the width of the type or more")
            count = np.where(count >= bits, 0, count)
        value = a if signed else as_unsigned(a)
        return function(value, count.astype(value.dtype)).astype(a.dtype)


shift("shl", np.left_shift, signed=True)
shift("shrs", np.right_shift, signed=True)
shift("shru", np.right_shift, signed=False)


@meaning("arith.addui_extended")
def addui_extended(site: Site, op: Operation, a: Array, b: Array) -> tuple[Array, Array]:
    total = as_unsigned(a) + as_unsigned(b)
    return total.astype(a.dtype), total < as_unsigned(a)


@meaning("arith.mulsi_extended", "arith.mului_extended")
def mul_extended(site: Site, op: Operation, a: Array, b: Array) -> tuple[Array, Array]:
    signed = op.name == "arith.mulsi_extended"
    bits = 8 * a.dtype.itemsize
    x, y = ((v if signed else as_unsigned(v)).astype(object) for v in np.broadcast_arrays(a, b))
    product = x * y
    mask = (1 << bits) - 1
    unsigned_of = numerics.unsigned_type(a.dtype)
    low = (product & mask).astype(unsigned_of).view(a.dtype)
    high = ((product >> bits) & mask).astype(unsigned_of).view(a.dtype)
    return low, high


_INTEGER_TESTS: list[Callable[[Array, Array], Array]] = [
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.less, np.less_equal, np.greater, np.greater_equal),
]


@meaning("arith.cmpi")
def cmpi(site: Site, op: arith.CmpiOp, a: Array, b: Array) -> Array:
    number = op.predicate.value.data
    if number >= 6:
        a, b = as_unsigned(a), as_unsigned(b)
    elif a.dtype.kind == "b":
        a, b = -a.astype(np.int8), -b.astype(np.int8)  # i1 true is -1
    return _INTEGER_TESTS[number](a, b)


# Floats.


def floating(name: str, function: Callable[..., Array]) -> None:
    """A float op that rounds once."""

    @meaning(name)
    def run(site: Site, op: Operation, *operands: Array) -> Array:
        return numerics.floats(function, op.results[0].type, *operands)


floating("arith.addf", np.add)
floating("arith.subf", np.subtract)
floating("arith.mulf", np.multiply)
floating("arith.divf", np.divide)
floating("arith.remf", np.fmod)
floating("arith.negf", np.negative)
floating("arith.maximumf", numerics.maximum)
floating("arith.minimumf", numerics.minimum)
floating("arith.maxnumf", numerics.maxnum)
floating("arith.minnumf", numerics.minnum)

_FLOAT_TESTS: list[Callable[[Array, Array], Array]] = [
    *(np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)
]


@meaning("arith.cmpf")
def cmpf(site: Site, op: arith.CmpfOp, a: Array, b: Array) -> Array:
    number = op.predicate.value.data
    a, b = numerics.widen(a), numerics.widen(b)
    unordered = np.isnan(a) | np.isnan(b)
    if number in (0, 15):
        return np.full(unordered.shape, number == 15)
    if number in (7, 14):
        return unordered if number == 14 else ~unordered
    ordered_form = 1 <= number <= 6
    test = _FLOAT_TESTS[number - 1 if ordered_form else number - 8](a, b)
    return test & ~unordered if ordered_form else test | unordered


@meaning("arith.select")
def select(site: Site, op: Operation, condition: Array, yes: Any, no: Any) -> Any:
    if isinstance(yes, np.ndarray):
        return np.where(_like(condition, yes), yes, no)
    return yes.mapped(no, by=lambda a, b: np.where(_like(condition, a), a, b))


def _like(condition: Array, value: Array) -> Array:
    return condition.reshape(condition.shape + (1,) * (value.ndim - condition.ndim))


# Conversions.


@meaning("arith.extf", "arith.truncf")
def convert_float(site: Site, op: Operation, value: Array) -> Array:
    with np.errstate(all="ignore"):
        if value.dtype == np.float64:
            return from_double(value, op.results[0].type)
        return numerics.round_to(numerics.widen(value), op.results[0].type)


def from_double(value: Array, type: Attribute) -> Array:
    """float64 to a narrower type with one rounding: to odd in float32 first, then to the type."""
    dtype = numerics.numpy_type(type)
    if dtype == np.float64 or (dtype == np.float32 and numerics.is_plain_f32(type)):
        return value.astype(dtype)
    return numerics.round_to(numerics.odd_float32(value), type)


@meaning("arith.sitofp", "arith.uitofp")
def from_integer(site: Site, op: Operation, value: Array) -> Array:
    if op.name == "arith.uitofp":
        value = as_unsigned(value)
    elif value.dtype.kind == "b":
        value = -value.astype(np.int8)
    type = op.results[0].type
    if value.dtype.itemsize == 8:
        # numpy rounds once to float32 and float64.
        dtype = numerics.numpy_type(type)
        if numerics.compute_type(dtype) == dtype and numerics.is_plain_f32(type):
            return value.astype(dtype)
        value = numerics.odd_integer(value)
    wide = value.astype(np.float64)
    return from_double(wide, type)


@meaning("arith.fptosi", "arith.fptoui")
def to_integer(site: Site, op: Operation, value: Array) -> Array:
    dtype = numerics.numpy_type(op.results[0].type)
    target = dtype if op.name == "arith.fptosi" else numerics.unsigned_type(dtype)
    if dtype.kind == "b":
        return numerics.to_integer(numerics.widen(value), np.dtype(np.int8)) != 0
    wide = value.astype(np.float64)
    limits = np.iinfo(target)
    if (
        site.checking
        and not (
            (np.trunc(wide) >= float(limits.min)) & (np.trunc(wide) <= float(limits.max))
        ).all()
    ):
        site.report("error", "conversion", f"{op.name}: a number that does not fit {target}")
    return numerics.to_integer(wide, target).astype(dtype)


@meaning("arith.extsi", "arith.index_cast", "arith.trunci", "index.casts")
def convert_signed(site: Site, op: Operation, value: Array) -> Array:
    return to_width(-value.astype(np.int8) if value.dtype.kind == "b" else value, op)


@meaning("arith.extui", "arith.index_castui", "index.castu")
def convert_unsigned(site: Site, op: Operation, value: Array) -> Array:
    return to_width(as_unsigned(value), op)


def to_width(value: Array, op: Operation) -> Array:
    dtype = numerics.numpy_type(op.results[0].type)
    return (value & 1).astype(bool) if dtype.kind == "b" else value.astype(dtype)


@meaning("arith.bitcast")
def bitcast(site: Site, op: Operation, value: Array) -> Array:
    return np.ascontiguousarray(value).view(numerics.numpy_type(op.results[0].type))
