"""The last stage in the reference executor: a launch as the driver would make it, thread by thread in numpy.

Arrays are copied to memory aligned as a device's is (`mirror.py` does the same for a device), and back; those that
overlap stay so. Parameters and grid are the launch plan's. Few multiprocessors are taken for granted, so that a
persistent workgroup has several programs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType, ModuleOp

from tilewright import reference
from tilewright.arguments import DEVICE_ALIGNMENT, Argument, ArrayArg, Grid
from tilewright.diagnostics import LaunchError
from tilewright.reference.engine import Schedule
from tilewright.reference.launch import find_entry
from tilewright.reference.pointers import TensorMapValue
from tilewright.reference.values import Array
from tilewright.targets.cuda.executable import launch_grid
from tilewright.targets.cuda.lowered import (
    Extent,
    LaunchPlan,
    Pointer,
    Programs,
    Scalar,
    Slot,
    Stride,
    TensorMapOf,
)

MULTIPROCESSORS = 2
_GUARD = 4096
"""Bytes between arrays, so that what reaches beyond one hits none."""


def interpret(
    module: ModuleOp,
    plan: LaunchPlan,
    grid: Grid,
    args: Sequence[Argument],
    *,
    check: bool = False,
    schedule: Schedule = "late",
    seed: int | None = None,
) -> reference.Report:
    """Runs a kernel's last stage on arrays of the host, in place.

    With `check` the report has all that is undefined (races, reads of what has not arrived); without it `CheckError`
    is raised at the first that cannot be passed over. `schedule` and `seed` say when copies and products are done.
    """
    programs = (grid[0] * plan.split, grid[1], grid[2])
    # Clusters are launched only where each has one program (`work_split.choose`).
    room = MULTIPROCESSORS if plan.cluster == (1, 1, 1) else 1 << 20
    launched = launch_grid(plan, programs, room)
    with _on_device(args) as there:
        whole = any(
            isinstance(a.type, MemRefType) for a in find_entry(module).regions[0].block.args
        )
        # An array's extents and strides are parts of it, where the program takes it whole.
        slots = [s for s in plan.slots if not (whole and isinstance(s, Extent | Stride))]
        values = [_parameter(slot, args, there, programs) for slot in slots]
        return reference.run(
            module, launched, values, kernel=plan.entry, check=check, schedule=schedule, seed=seed
        )


@contextmanager
def _on_device(args: Sequence[Argument]) -> Generator[dict[int, Array]]:
    """The array arguments by number, in memory of their own while they are there."""
    arrays = {i: a for i, a in enumerate(args) if isinstance(a, ArrayArg)}
    spans: list[tuple[int, int, list[int]]] = []
    """Bytes [low, high) of the host, and the arguments in them: those that overlap stay so."""
    for (low, high), i in sorted((a.byte_range(), i) for i, a in arrays.items()):
        if spans and (low < spans[-1][1] or (low, high) == spans[-1][:2]):
            start, end, inside = spans.pop()
            spans.append((start, max(end, high), [*inside, i]))
        else:
            spans.append((low, high, [i]))
    views: dict[int, Array] = {}
    copies: list[tuple[int, Array]] = []
    for low, high, inside in spans:
        room = np.zeros(high - low + DEVICE_ALIGNMENT + _GUARD, np.uint8)
        first = -room.ctypes.data % DEVICE_ALIGNMENT
        data = room[first : first + high - low]
        ctypes.memmove(data.ctypes.data, low, high - low)
        copies.append((low, data))
        for i in inside:
            a = arrays[i]
            strides = tuple(s * a.dtype.itemsize for s in a.strides)
            views[i] = np.ndarray(a.shape, a.dtype.numpy, data, a.pointer - low, strides)
    yield views
    for low, data in copies:
        ctypes.memmove(low, data.ctypes.data, data.nbytes)


def _parameter(slot: Slot, args: Sequence[Argument], there: dict[int, Array], grid: Grid) -> Any:
    """What a parameter of the kernel is given."""
    match slot:
        case Pointer(argument):
            return there[argument]
        case Extent(argument, dimension):
            return there[argument].shape[dimension]
        case Stride(argument, dimension):
            return there[argument].strides[dimension] // there[argument].itemsize
        case Programs(axis):
            return grid[axis]
        case Scalar(argument):
            return args[argument]
        case TensorMapOf():
            return _tensor_map(slot, there)


def _tensor_map(slot: TensorMapOf, there: dict[int, Array]) -> TensorMapValue:
    array = there[slot.argument]
    if not array.size:
        raise LaunchError(f"argument {slot.argument} is empty: it has no tensor map")
    box = slot.box_of(lambda argument, dim: there[argument].shape[dim])
    sides = tuple(slot.sides(array.shape, array.strides))
    return TensorMapValue(array, box, slot.swizzle, slot.element, sides)
