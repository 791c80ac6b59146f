"""Combining kinds, shared by reductions of every dialect and by atomics.

A reduction of floats is computed in float64 and rounded once at its end: the order of combination
is free (DESIGN §3), and this is the result that no order is far from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from tilewright.dialects.upstream.combining import reduction_of
from tilewright.reference import numerics
from tilewright.reference.values import Array

Combine = Callable[[Array, Array], Array]

_FLOAT: dict[str, Combine] = {
    "add": np.add,
    "mul": np.multiply,
    "minimumf": numerics.minimum,
    "maximumf": numerics.maximum,
    "minnumf": numerics.minnum,
    "maxnumf": numerics.maxnum,
}
_INTEGER: dict[str, Combine] = {
    "add": np.add,
    "mul": np.multiply,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": np.minimum,
    "maxui": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce(kind: str, type: Attribute, value: Array, axes: tuple[int, ...]) -> Array:
    """Combines the elements along axes of a row value, which disappear."""
    if not axes:
        return value
    if numerics.is_float(type):
        wide = value.astype(np.float64)
        if kind == "add":
            result = wide.sum(axis=axes)
        elif kind == "mul":
            result = wide.prod(axis=axes)
        else:
            result = _fold(_FLOAT[kind], wide, axes)
        return numerics.round_to(result, type)
    result = _fold(_INTEGER[kind], _as_read(kind, value), axes)
    return result.astype(value.dtype)


def combine(kind: str, type: Attribute, a: Array, b: Array) -> Array:
    """Combines two values element by element, rounding to their type."""
    if numerics.is_float(type):
        return numerics.floats(_FLOAT[kind], type, a, b)
    result = _INTEGER[kind](_as_read(kind, a), _as_read(kind, b))
    return result.astype(a.dtype)


def atomic(kind: str, type: Attribute) -> Combine:
    """The combination of an atomic kind (arith.AtomicRMWKind), old value first."""
    if kind == "assign":
        return lambda _, new: new
    name = reduction_of(kind)
    return lambda old, new: combine(name, type, old, new)


def _as_read(kind: str, value: Array) -> Array:
    if kind in ("minui", "maxui") and value.dtype.kind == "i":
        return value.view(numerics.unsigned_type(value.dtype))
    if kind in ("minsi", "maxsi") and value.dtype.kind == "b":
        return -value.astype(np.int8)
    return value


def _fold(function: Combine, value: Array, axes: tuple[int, ...]) -> Array:
    """Halves each axis until one element is left, so that few numpy calls are made."""
    for axis in sorted(axes, reverse=True):
        moved: Any = np.moveaxis(value, axis, 0)
        while moved.shape[0] > 1:
            half = moved.shape[0] // 2
            rest = moved[2 * half :]
            with np.errstate(all="ignore"):
                moved = function(moved[:half], moved[half : 2 * half])
            if moved.dtype != value.dtype:
                moved = moved.astype(value.dtype)
            if rest.shape[0]:
                moved = np.concatenate([moved, rest])
        value = moved[0]
    return value
