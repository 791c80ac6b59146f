"""Cooperation of subgroups on a tile that is fetched for all of them: everyone takes one part.

a 256x32 tile of f16, 32 subgroups      each 8x32: whole rows, a cache line wide
a 32x256 tile of f16, 32 subgroups      each 8x32: four bands of rows, eight columns of a line
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.ir import Attribute

from tilewright.dialects.upstream.arith import element_bits
from tilewright.layout import Distribution
from tilewright.passes.axes import smallest_factor
from tilewright.passes.xegpu import layout_text as own

LINE = 64
"""Bytes of a cache line: a part of a row shorter than this fetches what its neighbour fetches too."""


def cooperative(
    shape: Sequence[int], element: Attribute, subgroups: int, stated: Distribution | None = None
) -> Distribution:
    """A layout of `shape` in which as few subgroups as possible share elements.

    `stated` is kept where it shares nothing. Rows are cut to a cache line at the least.
    """
    if stated is not None and stated.sg_layout is not None and not own.replicas(stated, shape) > 1:
        return stated
    line = max(1, LINE * 8 // element_bits(element))
    grid = [1] * len(shape)
    part = list(shape)
    left = subgroups
    for dim in range(len(shape)):
        # Rows last: first bands of rows, then fragments of a row that fill whole lines.
        least = line if dim == len(shape) - 1 else 1
        while left > 1:
            factor = smallest_factor(left)
            rows_left = dim < len(shape) - 1 and _prefers_columns(part, dim, factor, line)
            if part[dim] % factor or part[dim] // factor < least or rows_left:
                break
            grid[dim] *= factor
            part[dim] //= factor
            left //= factor
    for dim in range(len(shape)):
        while left > 1 and (factor := gcd(left, part[dim])) > 1:
            factor = smallest_factor(factor)
            grid[dim] *= factor
            part[dim] //= factor
            left //= factor
    grid[0] *= left
    return Distribution(tuple(grid), tuple(part))


def _prefers_columns(part: Sequence[int], dim: int, factor: int, line: int) -> bool:
    """Whether a row is so long that cutting it keeps more rows together in one message."""
    return part[dim] // factor < 8 and part[-1] // factor >= line and part[-1] % factor == 0
