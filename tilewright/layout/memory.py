"""Memory layouts as ownership on the memory axis: matrices, blocked and padded buffers, packed panels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.layout.digits import (
    Axis,
    Digit,
    Layout,
    LayoutError,
    Swizzle,
    number,
    row_strides,
)


def strided(shape: Sequence[int], strides: Sequence[int], swizzle: Swizzle | None = None) -> Layout:
    """Element ``i`` of a dimension at ``i * stride``; strides in elements, padding allowed."""
    if len(shape) != len(strides):
        raise LayoutError(f"{len(strides)} strides for {len(shape)} dimensions")
    digits = [
        Digit(Axis.MEMORY, step, extent, dim, 1)
        for dim, (extent, step) in enumerate(zip(shape, strides, strict=True))
    ]
    return Layout.of(shape, digits, swizzle)


def row_major(shape: Sequence[int], swizzle: Swizzle | None = None) -> Layout:
    """Contiguous, last dimension fastest."""
    return strided(shape, row_strides(shape), swizzle)


def column_major(shape: Sequence[int], swizzle: Swizzle | None = None) -> Layout:
    """Contiguous, first dimension fastest (`order = [0, 1]`)."""
    return strided(shape, [prod(shape[:i]) for i in range(len(shape))], swizzle)


def mem_layout(
    shape: Sequence[int], stride: Sequence[int] | None = None, block: Sequence[int] | None = None
) -> Layout:
    """XeGPU's `#xegpu.mem_layout`: blocks stored whole, elements within a block in the same order.

    ``stride`` (default row-major, in elements) gives the strides as if the buffer were plain; it fixes
    the order of dimensions, and padding. mem_desc<32x256xf16, block = [16, 8], stride = [1, 32]> is
    seen as shape [2, 32, 16, 8] with strides [128, 256, 1, 16].
    """
    steps = tuple(stride) if stride is not None else row_strides(shape)
    if block is None:
        return strided(shape, steps)
    if len(block) != len(shape) or len(steps) != len(shape):
        raise LayoutError(f"stride {[*steps]} and block {[*block]} must have rank {len(shape)}")
    digits: list[Digit] = []
    inner = 1
    for dim in sorted(range(len(shape)), key=lambda d: steps[d]):
        extent, size = shape[dim], block[dim]
        if extent % size:
            raise LayoutError(f"{extent} elements in blocks of {size} in dimension {dim}")
        # The fastest dimension's next block follows a whole block; the others' follow a row of blocks.
        outer = prod(block) if inner == 1 else steps[dim] * size
        digits.append(Digit(Axis.MEMORY, inner, size, dim, 1))
        digits.append(Digit(Axis.MEMORY, outer, extent // size, dim, size))
        inner *= size
    return Layout.of(shape, digits)


def panels(shape: Sequence[int], digits: Sequence[tuple[int, int, int]]) -> Layout:
    """Packed panels: address digits as (size, dim, stride), fastest first, without gaps."""
    return Layout.of(shape, number(Axis.MEMORY, digits))


def contiguous_run(fragment: Layout, memory: Layout) -> int:
    """Elements that a lane's registers 0, 1, 2, ... hold at consecutive addresses: a vector access.

    The largest n such that every aligned group of n registers of every lane is one aligned run of n
    addresses. Both layouts must have the same shape.
    """
    addresses = memory.address(*fragment.table()).reshape(-1, fragment.registers)
    n = 1
    while fragment.registers % (2 * n) == 0:
        group = addresses.reshape(addresses.shape[0], -1, 2 * n)
        first = group[..., :1]
        if np.any(first % (2 * n)) or np.any(group != first + np.arange(2 * n)):
            break
        n *= 2
    return n


def bank_conflicts(
    fragment: Layout, memory: Layout, itemsize: int, *, vector: int = 1, banks: int = 32
) -> int:
    """Worst number of passes that one access of a subgroup needs on a memory of 4-byte ``banks``.

    Each lane accesses ``vector`` consecutive registers at once; lanes go in groups that together move
    at most one line of ``4 * banks`` bytes, as the hardware splits wide accesses. 1 is free of
    conflicts. The same word read by several lanes counts once.
    """
    words = memory.address(*fragment.table()) * itemsize // 4
    per_lane = max(1, vector * itemsize // 4)
    group = max(1, banks // per_lane)
    worst = 1
    for s in range(fragment.subgroups):
        for lane in range(0, fragment.lanes, group):
            for register in range(0, fragment.registers, vector):
                taken = np.unique(words[s, lane : lane + group, register : register + vector])
                worst = max(worst, int(np.bincount(taken % banks).max()))
    return worst
