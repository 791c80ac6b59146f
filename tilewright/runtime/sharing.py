"""Whether arrays have a byte in common: by their strides, not by the ranges that they span.

a = x[:, 0:4]      every other 16 bytes of rows of 32; b = x[:, 4:8] has the others: they share nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TypeAlias

from tilewright.arguments import ArrayArg

Lattice: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""Where elements lie, from the first on: bytes of one, and (extent, stride in bytes) of each dimension."""

_STEPS = 1000
"""After so many places tried, arrays count as sharing memory: the question is hard for strides of no order."""


def lattice(arg: ArrayArg) -> Lattice:
    """The places of an array's elements, counted from its address."""
    size = arg.dtype.itemsize
    return size, tuple(
        (n, stride * size) for n, stride in zip(arg.shape, arg.strides, strict=True) if n != 1
    )


def overlaps_itself(arg: ArrayArg) -> bool:
    """Whether elements may share bytes without being at one address, as rows of windows do. A stride of 0 repeats
    elements: that is no overlap, and strides that interleave are taken for one."""
    size, steps = lattice(arg)
    span = size
    for n, stride in sorted(((n, abs(stride)) for n, stride in steps if stride), key=itemgetter(1)):
        if stride < span:
            return True
        span += (n - 1) * stride
    return False


@lru_cache(4096)
def meet(a: Lattice, b: Lattice, distance: int) -> bool:
    """Whether some byte belongs to an element of both, where the address of `a` is `distance` bytes after that of `b`.

    The difference of two elements' addresses is `distance` plus a multiple of each stride, within bounds: strides are
    tried from the largest on, and of each only the multiples that the smaller ones can still make up for.
    """
    (size, own), (other_size, others) = a, b
    if any(n == 0 for n, _ in (*own, *others)):
        return False
    bounds: dict[int, tuple[int, int]] = {}
    for n, stride in (*own, *((n, -stride) for n, stride in others)):
        low, high = bounds.get(abs(stride), (0, 0))
        bounds[abs(stride)] = (low, high + n - 1) if stride > 0 else (low - n + 1, high)
    bounds.pop(0, None)
    strides = sorted(bounds, reverse=True)
    reach = [(0, 0)]
    for stride in reversed(strides):
        (low, high), (before, behind) = bounds[stride], reach[0]
        reach.insert(0, (before + low * stride, behind + high * stride))
    tried = iter(range(_STEPS))
    return _meet(distance, strides, [bounds[s] for s in strides], reach, (1 - size, other_size - 1), tried)  # fmt: skip


def _meet(
    at: int,
    strides: Sequence[int],
    bounds: Sequence[tuple[int, int]],
    reach: Sequence[tuple[int, int]],
    wanted: tuple[int, int],
    tried: Iterator[int],
) -> bool:
    """Whether `at` plus multiples of the strides, each within its bounds, can be in the range that is `wanted`.

    `reach`: what all these strides together add at least and at most, and those behind each.
    """
    (least, most), (before, behind) = wanted, reach[0]
    if at + behind < least or at + before > most:
        return False
    if not strides or next(tried, None) is None:
        return True
    (low, high), (before, behind), stride = bounds[0], reach[1], strides[0]
    first = max(low, -((at + behind - least) // stride))
    last = min(high, (most - at - before) // stride)
    return any(
        _meet(at + k * stride, strides[1:], bounds[1:], reach[1:], wanted, tried)
        for k in range(first, last + 1)
    )
