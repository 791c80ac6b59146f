"""Which dtype the result of an operation has. Pure functions of dtypes, no IR.

- A scalar never widens a tile: ``f16_tile * 2.5`` is f16, ``i8_tile + n`` is i8.
- Two tiles, or two typed scalars, follow numpy's promotion, with these differences: f16, bf16 and
  f8 with a wider float give the wider one (numpy refuses some of these pairs), two different floats
  of the same width give f32, as do bf16 and f8 with integers of more than 8 bits; tf32 computes as
  f32; index counts as i64.
- Division ``/`` of integers gives f64, as in numpy; of two Python-style scalars f32.
"""

from __future__ import annotations

from tilewright import dtypes
from tilewright.dtypes import DType

_NUMPY_FLOATS = (dtypes.f64, dtypes.f32, dtypes.f16)


def promote(a: DType, b: DType) -> DType:
    """The dtype in which two operands of equal standing meet."""
    if a is b:
        return dtypes.f32 if a is dtypes.tf32 else a
    a, b = _computed(a), _computed(b)
    if a is b:
        return a
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_float and b.is_float:
        if a.itemsize == b.itemsize:
            return dtypes.f32
        return a if a.itemsize > b.itemsize else b
    if a.is_float or b.is_float:
        real, whole = (a, b) if a.is_float else (b, a)
        if real in _NUMPY_FLOATS:
            return _numpy(real, whole)
        return real if whole.bits == 8 else dtypes.f32
    return _numpy(a, b)


def division(dtype: DType) -> DType:
    """The dtype of ``/`` on operands that met in ``dtype``."""
    return dtype if dtype.is_float else dtypes.f64


def exact_in(value: int, dtype: DType) -> bool:
    """Whether an integer constant is a value of an integer dtype."""
    low, high = dtype.integers
    return low <= value <= high


def _computed(dtype: DType) -> DType:
    """What a dtype computes as: tf32 as f32, index as i64."""
    if dtype is dtypes.tf32:
        return dtypes.f32
    return dtypes.i64 if dtype.is_index else dtype


def _numpy(a: DType, b: DType) -> DType:
    import numpy

    return dtypes.from_numpy(numpy.promote_types(a.numpy, b.numpy))
