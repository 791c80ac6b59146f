"""What the operations need of arrays, for numpy and torch alike: dtype, new results, flattened views."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.arguments import HOST
from tilewright.diagnostics import LaunchError
from tilewright.dtypes import DType
from tilewright.runtime.arrays import describe, torch_type

HUGE_BYTES: Final = 4 << 20
PAGE: Final = mmap.PAGESIZE
MADV_HUGEPAGE: Final = getattr(mmap, "MADV_HUGEPAGE", 14)

_DTYPES: dict[Any, DType] = {}
_DEVICES: dict[Any, str] = {}


def dtype_of(array: Any) -> DType:
    """The element type of an array as the tile language names it. LaunchError where it has no name there."""
    found = _DTYPES.get(array.dtype)
    if found is None:
        found = _DTYPES[array.dtype] = describe(array).dtype
    return found


def device_of(array: Any) -> str:
    """Where an array lies, as `describe` says it. `dtype_of` knows its element type from then on, without an array.
    LaunchError where it has no name there."""
    if type(array) is np.ndarray:
        dtype_of(array)
        return HOST
    key = type(array), array.dtype, getattr(array, "device", None)
    found = _DEVICES.get(key)
    if found is None:
        described = describe(array)
        _DTYPES[array.dtype] = described.dtype
        found = _DEVICES[key] = described.device
    return found


def lies_along(array: Any, axis: int) -> bool:
    """Do elements that follow one another along an axis, counted from the last, lie together?"""
    if type(array) is np.ndarray:
        return array.strides[axis:][:1] == (array.itemsize,)
    of_torch: Any = getattr(array, "stride", None)
    strides = of_torch() if of_torch is not None else describe(array).strides
    return tuple(strides)[axis:][:1] == (1,)


def check_operands(what: str, least: int, *, floats: bool = True, **operands: Any) -> None:
    """Raises LaunchError where an operand of the operation `what` is no array, has fewer than `least` dimensions,
    elements of another type than the first operand, or (`floats`) integers.
    """
    first: tuple[str, DType] | None = None
    for name, x in operands.items():
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise LaunchError(
                f"{what}: {name} is a {type(x).__name__}, which is no array",
                hint="numpy arrays and torch tensors are: np.asarray(x, np.float32)",
            )
        if len(x.shape) < least:
            raise LaunchError(
                f"{what} of {name} with shape {tuple(x.shape)}: it takes {least} dimensions or more"
            )
        kind = dtype_of(x)
        if floats and not kind.is_float:
            raise LaunchError(
                f"{what}: {name} has elements of {kind.name}, and it takes floats",
                hint=f"convert it: {name}.astype(np.float32)",
            )
        if first is None:
            first = name, kind
        elif kind != first[1]:
            raise LaunchError(
                f"{what}: {first[0]} has elements of {first[1].name}, {name} of {kind.name}",
                rule="the operands have one element type",
                hint="convert one of them",
            )


def empty(shape: Sequence[int], like: Any, dtype: DType | None = None) -> Any:
    """A new array of `shape` of the kind, device and (unless `dtype` is given) element type of `like`."""
    if hasattr(like, "new_empty"):  # torch
        if dtype is None or dtype == dtype_of(like):
            return in_huge_pages(like.new_empty(tuple(shape)))
        return in_huge_pages(like.new_empty(tuple(shape), dtype=torch_type(dtype)))
    return np.empty(tuple(shape), like.dtype if dtype is None else dtype.numpy)


def in_huge_pages(tensor: Any) -> Any:
    """A new tensor of torch, with leave for the system to back it by huge pages if it is large and on the CPU.

    The first touch of each page is a trap: one per 4 KB costs more than a softmax of what is in it (14 ms for 32 MB,
    3.6 ms in huge pages, on the machine measured). numpy asks for the same where it allocates.
    """
    if type(tensor).__name__ != "Tensor" or tensor.device.type != HOST:
        return tensor
    size = tensor.numel() * tensor.element_size()
    if size >= HUGE_BYTES:
        start = tensor.data_ptr()
        first = -(-start // PAGE) * PAGE
        libc = ctypes.CDLL(None)
        bytes_ = (start + size - first) // PAGE * PAGE
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(bytes_), MADV_HUGEPAGE)
    return tensor


def flattened(array: Any, keep: int) -> Any:
    """`array` with all but its last `keep` dimensions merged into one (1 where there is none).

    A view where the strides allow it, else a copy: for operands, not for results.
    """
    shape = array.shape
    leading = len(shape) - keep
    if leading < 2:
        return array if leading else array[None]
    return array.reshape((prod(shape[:leading]), *shape[leading:]))


def stacked(array: Any) -> Any:
    """The rows of all matrices as one matrix, a view; None where they do not follow one another at one distance."""
    shape, strides = array.shape, array.stride() if hasattr(array, "stride") else array.strides
    if any(strides[d] != strides[d + 1] * shape[d + 1] for d in range(len(shape) - 2)):
        return None
    return array.reshape((prod(shape[:-1]), shape[-1]))


def result(out: Any, shape: Sequence[int], like: Any, dtype: DType | None = None) -> Any:
    """The array to return: `out` where given (its shape is checked), else a new one."""
    if out is None:
        return empty(shape, like, dtype)
    if tuple(out.shape) != tuple(shape):
        raise LaunchError(f"out has shape {tuple(out.shape)}, the result {tuple(shape)}")
    return out


def is_view(flat: Any, array: Any) -> bool:
    """Does what `flattened` made of an array lie where the array lies?"""
    if len(array.shape) < 3 or flat is array:
        return True
    if hasattr(array, "data_ptr"):
        return flat.data_ptr() == array.data_ptr()
    return np.shares_memory(flat, array) or array.size == 0


def filled(out: Any, keep: int) -> tuple[Any, Any]:
    """A flattened array to store to, and what copies it into `out` afterwards (None where it is a view)."""
    flat = flattened(out, keep)
    if len(out.shape) < keep + 2 or is_view(flat, out):
        return flat, None

    def copy_back() -> None:
        out[...] = flat.reshape(out.shape)

    return flat, copy_back
