"""What the operations need of arrays, for numpy and torch alike: dtype, new results, flattened views."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.diagnostics import LaunchError
from tilewright.dtypes import DType
from tilewright.runtime.arrays import describe, torch_type


def dtype_of(array: Any) -> DType:
    """The element type of an array as the tile language names it."""
    return describe(array).dtype


def empty(shape: Sequence[int], like: Any, dtype: DType | None = None) -> Any:
    """A new array of `shape` of the kind, device and (unless `dtype` is given) element type of `like`."""
    if hasattr(like, "new_empty"):  # torch
        if dtype is None or dtype == dtype_of(like):
            return like.new_empty(tuple(shape))
        return like.new_empty(tuple(shape), dtype=torch_type(dtype))
    return np.empty(tuple(shape), like.dtype if dtype is None else dtype.numpy)


def flattened(array: Any, keep: int) -> Any:
    """`array` with all but its last `keep` dimensions merged into one (1 where there is none).

    A view where the strides allow it, else a copy: for operands, not for results.
    """
    shape = tuple(array.shape)
    return array.reshape((prod(shape[: len(shape) - keep]), *shape[len(shape) - keep :]))


def result(out: Any, shape: Sequence[int], like: Any, dtype: DType | None = None) -> Any:
    """The array to return: `out` where given (its shape is checked), else a new one."""
    if out is None:
        return empty(shape, like, dtype)
    if tuple(out.shape) != tuple(shape):
        raise LaunchError(f"out has shape {tuple(out.shape)}, the result {tuple(shape)}")
    return out


def filled(out: Any, keep: int) -> tuple[Any, Any]:
    """A flattened array to store to, and what copies it into `out` afterwards (None where it is a view)."""
    flat = flattened(out, keep)
    shares = (
        flat.data_ptr() == out.data_ptr()
        if hasattr(out, "data_ptr")
        else np.shares_memory(flat, out) or out.size == 0
    )
    if shares:
        return flat, None

    def copy_back() -> None:
        out[...] = flat.reshape(out.shape)

    return flat, copy_back
