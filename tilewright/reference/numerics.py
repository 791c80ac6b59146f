"""Element types as numpy sees them, and how each op rounds to its type.

Every arith and math op computes on exactly converted operands in a wider type and rounds once to
its own (DESIGN §3): f16, bf16 and f8 in float32, tf32 in float32 and then to ten mantissa bits,
f32 and f64 in themselves. Integers wrap. A transcendental function of f32 is computed in float64,
so that its result is the nearest f32 but for rare ties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import FloatTF32Type, IntegerType, MemRefType, VectorType
from xdsl.ir import Attribute

from tilewright import dtypes
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.xetile import TileType
from tilewright.reference.values import Array

SMALL = {"f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn)}
"""Floats that are no element type of a tile: halves of a byte (which numpy keeps in a byte each)."""


def element_type(type: Attribute) -> Attribute:
    """The element type of a vector, memref or tile; a scalar type is its own."""
    if isinstance(type, (VectorType, MemRefType, TileType)):
        return type.element_type
    return type


def shape_of(type: Attribute) -> tuple[int, ...]:
    """The shape of a vector or tile; scalars have none."""
    return type.get_shape() if isinstance(type, (VectorType, TileType)) else ()


def numpy_type(type: Attribute) -> np.dtype[Any]:
    """The numpy type that holds elements of an MLIR type, in memory and in row values."""
    element = element_type(type)
    if (small := SMALL.get(element.name)) is not None:
        return small
    try:
        return dtypes.from_mlir(element).numpy
    except TypeError:
        raise UnsupportedError(
            f"the reference executor has no numbers of type {element}",
            hint="it knows f64 .. f8, i64 .. i8, i1 and index",
        ) from None


def unsigned_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integer type of the same width; bool stays."""
    return dtype if dtype.kind in "bu" else np.dtype(f"u{dtype.itemsize}")


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which an op on floats is computed before it is rounded."""
    return dtype if dtype == np.float64 else np.dtype(np.float32)


def is_float(type: Attribute) -> bool:
    return not isinstance(element_type(type), IntegerType) and numpy_type(type).kind not in "biu"


def widen(value: Array) -> Array:
    """The same numbers in the type that ops on them compute in."""
    return value.astype(compute_type(value.dtype), copy=False)


def round_to(value: Array, type: Attribute) -> Array:
    """Rounds a computed value to an element type, to nearest even; what is too large is infinite."""
    with np.errstate(over="ignore"):
        rounded = value.astype(numpy_type(type), copy=False)
    return round_tf32(rounded) if isinstance(element_type(type), FloatTF32Type) else rounded


def round_tf32(value: Array) -> Array:
    """float32 to the nearest number with ten mantissa bits; NaN and infinity stay."""
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32)
    kept = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    kept &= np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), kept.view(np.float32), value)


def convert(value: Array, type: Attribute) -> Array:
    """The numbers of a value in another element type of the same kind (widening, or rounding)."""
    if value.dtype == numpy_type(type):
        return value
    return round_to(widen(value), type) if is_float(type) else value.astype(numpy_type(type))


def floats(function: Callable[..., Array], type: Attribute, *operands: Array) -> Array:
    """An exactly rounded float op (add, mul, sqrt, ...) in the arithmetic of `type`."""
    with np.errstate(all="ignore"):
        return round_to(function(*map(widen, operands)), type)


def transcendental(function: Callable[..., Array], type: Attribute, *operands: Array) -> Array:
    """exp and its kind: computed in float64 and rounded once."""
    with np.errstate(all="ignore"):
        return round_to(function(*(x.astype(np.float64) for x in operands)), type)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding, for float32 and float64 arrays.

    float32: the product is exact in float64; the sum is rounded to odd there, so that the last
    rounding to float32 sees on which side of a tie the exact sum lies.
    """
    with np.errstate(all="ignore"):
        if a.dtype != np.float64:
            product = a.astype(np.float64) * b
            total, error = _two_sum(product, c.astype(np.float64))
            even = (total.view(np.uint64) & np.uint64(1)) == 0
            nudge = even & (error != 0) & np.isfinite(total)
            towards = np.where(error > 0, np.inf, -np.inf)
            return np.where(nudge, np.nextafter(total, towards), total).astype(np.float32)
        product, low = _two_product(a, b)
        total, error = _two_sum(product, c)
        exact = total + (error + low)
        return np.where(np.isfinite(exact), exact, a * b + c)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = np.ascontiguousarray(a + b)
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2^27 + 1: halves of 26 bits each
    high = scaled - (scaled - a)
    return high, a - high


def maximum(a: Array, b: Array) -> Array:
    """IEEE 754 maximum: NaN if either is, and -0 < +0."""
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def minimum(a: Array, b: Array) -> Array:
    """IEEE 754 minimum: NaN if either is, and -0 < +0."""
    return np.where((a == 0) & (b == 0), -(-a - b), np.minimum(a, b))


def maxnum(a: Array, b: Array) -> Array:
    """The larger, or the one that is a number."""
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, maximum(a, b)))


def minnum(a: Array, b: Array) -> Array:
    """The smaller, or the one that is a number."""
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, minimum(a, b)))


def is_plain_f32(type: Attribute) -> bool:
    """False for tf32, which is held in float32 but has fewer bits."""
    return not isinstance(element_type(type), FloatTF32Type)


def odd_float32(value: Array) -> Array:
    """float64 to float32 rounded to odd: rounding on to a narrower type then rounds only once."""
    with np.errstate(all="ignore"):
        near = np.ascontiguousarray(value.astype(np.float32))
        even = (near.view(np.uint32) & np.uint32(1)) == 0
        inexact = (near.astype(np.float64) != value) & np.isfinite(near) & ~np.isnan(value)
        towards = np.where(value > near, np.inf, -np.inf).astype(np.float32)
        return np.where(even & inexact, np.nextafter(near, towards), near)


def odd_integer(value: Array) -> Array:
    """Integers of 64 bits rounded to odd at 53 digits, which float64 holds: rounding on rounds only once."""
    size, last = np.abs(value.astype(np.float64)), value.dtype.type(1 << 11)
    odd = value | np.where(value % last != 0, last, value.dtype.type(0))
    return np.where(size < 2.0**53, value, odd - odd % last)


def to_integer(value: Array, dtype: np.dtype[Any]) -> Array:
    """Floats to integers, towards zero; what does not fit saturates, NaN gives 0."""
    info = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(value.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    with np.errstate(all="ignore"):
        result = np.clip(wide, float(info.min), float(info.max)).astype(dtype)
    # The largest 64-bit numbers have no float64: what rounds up to 2^63 or 2^64 saturates.
    result = np.where(wide >= float(info.max), info.max, result)
    return np.where(wide <= float(info.min), info.min, result).astype(dtype)
