"""What of an array the copy engine addresses."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arguments import Argument, ArrayArg
from tilewright.targets.cuda.lowered import Extent, LaunchPlan, TensorMapOf
from tilewright.uarch.sm90 import SM90

MOST_EXTENT = 1 << 30
"""Coordinates are signed 32-bit numbers (PTX ISA); half of them are left for places outside (`coordinates.py`)."""
STRIDE = SM90.limits["tma_stride"]


def unreachable(plan: LaunchPlan, args: Sequence[Argument]) -> str | None:
    """Why the copy engine cannot address an array of a launch; None if it can address all that it is to copy."""
    for slot in plan.slots:
        if isinstance(slot, Extent) and slot.bits == 32:
            stored = args[slot.argument]
            assert isinstance(stored, ArrayArg)
            extent = stored.shape[slot.dimension]
            if extent >= MOST_EXTENT:
                return f"argument {slot.argument}: dimension {slot.dimension} has {extent} elements"
        if not isinstance(slot, TensorMapOf):
            continue
        array = args[slot.argument]
        assert isinstance(array, ArrayArg)
        size = array.dtype.itemsize
        for place, dim in enumerate(slot.dimensions):
            if dim < 0:
                continue
            extent, stride = array.shape[dim], array.strides[dim] * size
            what = f"argument {slot.argument}: dimension {dim}"
            if not 0 < extent < MOST_EXTENT:
                return f"{what} has {extent} elements"
            if place and extent > 1 and STRIDE.fault(stride):
                return f"{what} has a stride of {stride} bytes"
            if place == 1 and slot.ended and stride >= 1 << 34:
                return f"{what} has a stride of {stride} bytes, and ends where a copy says"
    return None
