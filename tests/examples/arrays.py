"""Arrays of the RFCs' fragments: random ones, garbage where a fragment writes, and how elements lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tests.draws import fresh_rng

Case: TypeAlias = "tuple[list[Any], list[tuple[Any, Any]]]"
"""Arguments, and pairs: a part of an argument that is written, and what must be there afterwards."""

Shape = tuple[int, ...]
BF16 = ml_dtypes.bfloat16
F16 = np.float16


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    rng = fresh_rng()
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


garbage = numbers
"""Of an array that a fragment writes: an element that it does not write is wrong."""


def wide(a: Any) -> Any:
    return a.astype(np.float64)


def made(
    given: Shape,
    out: Shape,
    does: Callable[[Any], Any],
    *more: int,
    into: Any = ...,
    dtype: Any = np.float32,
) -> Callable[[], Case]:
    """The case of a fragment that makes a part of one array of another; `more` are its other arguments."""

    def case() -> Case:
        a, o = numbers(*given, dtype=dtype), garbage(*out, dtype=dtype)
        return [a, o, *more], [(o[into], does(a))]

    return case


def packed(b: Any, count: int = 2) -> Any:
    """[K, N] -> [K/2, N, 2]: the VNNI form."""
    k, n = b.shape
    return b.reshape(k // count, count, n).transpose(0, 2, 1)


def outside(a: Any, row: int, column: int, shape: tuple[int, int], value: float) -> Any:
    """A tile that begins at a place of a matrix, with `value` for what lies outside of it."""
    whole = np.full(shape, value, a.dtype)
    part = a[row : row + shape[0], column : column + shape[1]]
    whole[: part.shape[0], : part.shape[1]] = part
    return whole
