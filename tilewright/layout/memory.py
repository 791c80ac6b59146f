"""Memory layouts as ownership on the memory axis: matrices, blocked and padded buffers, packed panels."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from tilewright.layout.digits import Axis, Digit, Layout, LayoutError, Swizzle, number, row_strides

_FAR = 1 << 24
"""Between rows that are no neighbours: a multiple of every run, and more than an extent."""


def strided(shape: Sequence[int], strides: Sequence[int], swizzle: Swizzle | None = None) -> Layout:
    """An array of ``shape``: element ``i`` of a dimension at ``i * stride``; strides in elements, padding allowed.

    ``swizzle`` moves elements within rows of banks by XOR. LayoutError where the ranks differ.
    """
    if len(shape) != len(strides):
        raise LayoutError(f"{len(strides)} strides for {len(shape)} dimensions")
    digits = [
        Digit(Axis.MEMORY, step, extent, dim, 1)
        for dim, (extent, step) in enumerate(zip(shape, strides, strict=True))
    ]
    return Layout.of(shape, digits, swizzle)


def row_major(shape: Sequence[int], swizzle: Swizzle | None = None) -> Layout:
    """An array of ``shape``, contiguous, last dimension fastest; ``swizzle`` as in :func:`strided`."""
    return strided(shape, row_strides(shape), swizzle)


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
    return run_of(memory.address(*fragment.table()).reshape(-1, fragment.registers))


def run_along(fragment: Layout, dim: int) -> int:
    """The same of neighbours along one dimension, wherever its rows lie."""
    steps, far = [1] * fragment.rank, _FAR
    for d, extent in enumerate(fragment.shape):
        if d != dim % fragment.rank:
            steps[d] = far
            far *= extent
    return contiguous_run(fragment, strided(fragment.shape, steps))


def run_of(addresses: np.ndarray) -> int:
    """`contiguous_run` of registers at these addresses [lanes, registers]."""
    n = 1
    while addresses.shape[1] % (2 * n) == 0:
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
    group = gcd(fragment.lanes, max(1, banks * 4 // (vector * itemsize)))
    split = words.reshape(fragment.subgroups, -1, group, fragment.registers // vector, vector)
    # One row per access: the words that a group of lanes touches with one of its vectors.
    rows = np.sort(split.swapaxes(2, 3).reshape(-1, group * vector), axis=1)
    first = np.ones_like(rows, dtype=np.bool_)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    access, _ = np.nonzero(first)
    return int(np.bincount(access * banks + rows[first] % banks).max())


def staging(source: Layout, target: Layout, itemsize: int, *, banks: int = 32) -> Layout:
    """The shared-memory layout through which a conversion goes: written by ``source``, read by ``target``.

    Candidates are row- and column-major buffers, plain, padded by one vector of 16 bytes or one bank, and
    swizzled where that keeps a row whole. The one with the fewest passes per element wins, first for the
    worse of the two sides, then in all, then by size. Both layouts have the shape of the tile.
    """
    best: tuple[tuple[float, float, int], Layout] | None = None
    for candidate in _staging_candidates(source.shape, itemsize):
        costs = [_cost(side, candidate, itemsize, banks) for side in (source, target)]
        rank = (max(costs), sum(costs), candidate.extent(Axis.MEMORY))
        if best is None or rank < best[0]:
            best = rank, candidate
    assert best is not None
    return best[1]


def _staging_candidates(shape: Sequence[int], itemsize: int) -> list[Layout]:
    found: list[Layout] = []
    row_first = tuple(reversed(range(len(shape))))
    for dims in sorted({row_first, row_first[::-1]}, reverse=True):
        for pad in sorted({0, max(1, 4 // itemsize), max(1, 16 // itemsize)}):
            steps = [0] * len(shape)
            reach = 1
            for i, dim in enumerate(dims):
                steps[dim] = reach
                reach = reach * shape[dim] + (pad if i == 0 else 0)
            found.append(strided(shape, steps))
            if pad == 0:
                row = shape[dims[0]] * itemsize
                widths = [w for w in (32, 64, 128) if row % w == 0 and not row & (row - 1)]
                found += [found[-1].swizzled(Swizzle.of_bytes(w, itemsize)) for w in widths]
    return found


def _cost(fragment: Layout, memory: Layout, itemsize: int, banks: int) -> float:
    """Passes of the banks per element that a lane moves, with the widest vectors of up to 16 bytes."""
    vector = min(contiguous_run(fragment, memory), max(1, 16 // itemsize))
    return bank_conflicts(fragment, memory, itemsize, vector=vector, banks=banks) / vector
