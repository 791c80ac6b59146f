"""What a launch is given, whoever made it: arrays as address, extents and strides, numbers, and a grid."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from tilewright.diagnostics import LaunchError
from tilewright.dtypes import DType, meant
from tilewright.frozen import guarded, record

HOST = "cpu"
"""The device of arrays in the memory of this process."""
NOWHERE = "spec"
"""The device of a shape without memory."""

HOST_ALIGNMENT = 16
"""What numpy and malloc give. More is a matter of chance on the host, so it is not looked at: the
same program would compile another variant in every run."""
DEVICE_ALIGNMENT = 64
"""What the block loads of devices ask for; their allocators give more."""
_LARGEST = (1 << 63) - 1
BLOCK_ROW = 64
"""Bytes that a row has at least which 2D block messages reach (Xe): whole words of 4 bytes."""


@record
class ArrayArg:
    """One array argument of a launch."""

    pointer: int
    """Address of element ``[0, 0, ...]`` (not the lowest address when a stride is negative)."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; negative and zero strides are as the array has them."""
    dtype: DType
    device: str
    """``cpu`` (`HOST`), ``cuda:0``, or ``spec`` (`NOWHERE`)."""
    readonly: bool
    owner: object
    """The user's object: keeps the memory alive, and names the array in messages."""

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def on_device(self) -> bool:
        """Whether it lies in a device's memory."""
        return self.device not in (HOST, NOWHERE)

    def byte_range(self) -> tuple[int, int]:
        """First and past-the-last byte that the elements cover; an empty range without elements."""
        low = high = self.pointer
        size = self.dtype.itemsize
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 0:
                return self.pointer, self.pointer
            reach = (extent - 1) * stride * size
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high + size


def check_dtype(dtype: Any, what: str) -> None:
    """Raises LaunchError where ``dtype`` is no :class:`DType`, with its name here where it is numpy's or PyTorch's."""
    if not isinstance(dtype, DType):
        known = meant(dtype)
        raise LaunchError(
            f"{what} takes a dtype such as tw.f16, not {dtype!r}",
            hint=f"use {known!r}" if known else f"{what}(shape, tw.f32)",
        )


@guarded
class ArraySpec:
    """An array that does not exist yet: enough to compile for, not to launch with.

    ``strides`` are in elements, C order by default; the memory is taken to be 64-byte aligned.
    LaunchError for what is no shape, no strides or no dtype of the language.
    """

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_dtype(self.dtype, "tw.spec")
        if not _are_integers(self.shape, 0):
            raise LaunchError(
                f"tw.spec takes an extent for each dimension, not {self.shape!r}",
                hint="tw.spec((rows, columns), tw.f32)",
            )
        if self.strides is None:
            return
        if not _are_integers(self.strides) or len(self.strides) != len(self.shape):
            raise LaunchError(
                f"tw.spec takes a stride for each of {len(self.shape)} dimensions, not {self.strides!r}",
                rule="strides count elements; without any the array is in C order",
            )


def _are_integers(numbers: Any, least: int = -_LARGEST) -> bool:
    return isinstance(numbers, (tuple, list)) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) and least <= n <= _LARGEST
        for n in cast(Sequence[Any], numbers)
    )


Argument: TypeAlias = "ArrayArg | int | float | bool"
"""One run-time argument, in the order of the kernel's parameters."""

Grid: TypeAlias = tuple[int, int, int]
"""Number of programs along axes 0, 1, 2; each at least 1 when a launch reaches the target."""

_GRID_LIMIT = (1 << 31) - 1
_PROGRAM_LIMIT = 1 << 56
"""Programs are counted in 64 bits with a sign, times the subgroups of each."""


def full_grid(grid: Any) -> Grid:
    """``grid`` with three axes; LaunchError for what is no grid."""
    axes = grid if type(grid) is tuple else tuple(grid) if isinstance(grid, list) else (grid,)
    if not 1 <= len(axes) <= 3:
        raise LaunchError(
            f"a grid has 1 to 3 axes, not {len(axes)}: {axes}",
            hint="one axis serves for two: tw.program_id(0) // n and tw.program_id(0) % n",
        )
    full: list[int] = [1, 1, 1]
    for i, extent in enumerate(axes):
        if type(extent) is not int:
            if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)):
                raise LaunchError(
                    f"axis {i} of the grid is {extent!r}, which is no integer",
                    hint="tw.cdiv(n, B) is how many tiles of B cover n",
                )
            extent = int(extent)
        if not 0 <= extent <= _GRID_LIMIT:
            raise LaunchError(
                f"axis {i} of the grid is {extent}", rule=f"each axis is 0 to {_GRID_LIMIT}"
            )
        full[i] = extent
    if full[0] * full[1] * full[2] > _PROGRAM_LIMIT:
        raise LaunchError(
            f"a grid of {' x '.join(map(str, full))} has {full[0] * full[1] * full[2]} programs",
            rule=f"a launch runs at most {_PROGRAM_LIMIT} programs",
            hint="let each program do more: loop over tiles inside of the kernel",
        )
    return full[0], full[1], full[2]


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


class _Span:
    """An object that numpy takes for a piece of memory, `offset` elements behind an address."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int, offset: int
    ):
        self.offset = offset
        self.__array_interface__ = {
            "data": (address + offset * size, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{size}",
            "version": 3,
        }


def array_at(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype[Any],
    offset: int = 0,
) -> np.ndarray[Any, Any]:
    """A view of raw memory, which the caller has checked, `offset` elements behind an address; strides count bytes.

    Without elements no address is read.
    """
    if min(shape, default=1) <= 0:
        return np.empty([max(n, 0) for n in shape], dtype)
    span = _Span(address, tuple(shape), tuple(strides), dtype.itemsize, offset)
    return np.asarray(span).view(dtype)


def offset_of(array: np.ndarray[Any, Any]) -> int:
    """How many elements behind its memref's address a view begins, as `array_at` was told."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner.offset if isinstance(owner, _Span) else 0


def array_of_memref(rank: int, descriptor: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A view of a memref from where {allocated, aligned, offset, sizes[rank], strides[rank]} lie, 64 bits each."""
    words = (ctypes.c_int64 * (3 + 2 * rank)).from_address(descriptor)
    steps = [stride * dtype.itemsize for stride in words[3 + rank :]]
    return array_at(words[1], words[3 : 3 + rank], steps, dtype, words[2])


def numpy_view(arg: ArrayArg) -> np.ndarray[Any, Any]:
    """A numpy array over the memory of ``arg`` (on the host), whoever owns it."""
    if isinstance(arg.owner, np.ndarray):
        return arg.owner if arg.owner.ndim else arg.owner.reshape(arg.shape)
    dtype = arg.dtype.numpy
    steps = [stride * dtype.itemsize for stride in arg.strides]
    view = array_at(arg.pointer, arg.shape, steps, dtype)
    view.flags.writeable = not arg.readonly
    return view
