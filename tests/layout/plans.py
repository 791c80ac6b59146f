"""Plans of ops that repeat and reshape, and what places hold of a tile, for tests of the plans' arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.layout.digits import Layout, LayoutError, row_strides
from tilewright.layout.plan import ConversionPlan, Coords, gather


def broadcast(source: Layout, target: Layout, dim: int) -> ConversionPlan:
    """Each element repeated along ``dim`` as often as the target is longer (`broadcast_size`)."""
    size, rest = divmod(target.shape[dim], source.shape[dim])
    if rest:
        raise LayoutError(f"{source.shape[dim]} elements do not stretch to {target.shape[dim]}")
    assert source.shape == target.contracted(dim, size).shape
    return gather(
        source, target, lambda c: tuple(x // size if d == dim else x for d, x in enumerate(c))
    )


def reshape(source: Layout, target: Layout) -> ConversionPlan:
    """`vector.shape_cast`: the row-major order of elements is kept."""
    if source.size != target.size:
        raise LayoutError(f"{source.size} elements do not fill {[*target.shape]}")
    steps = row_strides(target.shape)

    def through(c: Coords) -> Coords:
        linear = sum((x * w for x, w in zip(c, steps, strict=True)), np.zeros((), np.intp))
        return tuple(np.unravel_index(linear, source.shape))

    return gather(source, target, through)


def apply(plan: ConversionPlan, data: NDArray[np.generic]) -> NDArray[np.generic]:
    """``data[subgroup, lane, register]`` of the source at the target's places."""
    return data[plan.subgroup, plan.lane, plan.register]


def distribute(layout: Layout, tile: NDArray[np.generic]) -> NDArray[np.generic]:
    """What each place holds of ``tile``: an array [subgroups, lanes, registers]."""
    assert tile.shape == layout.shape
    return tile[layout.table()]


def collect(layout: Layout, data: NDArray[np.generic]) -> NDArray[np.generic]:
    """The tile that ``data[subgroup, lane, register]`` holds. LayoutError where replicas differ."""
    tile = np.empty(layout.shape, data.dtype)
    tile[layout.table()] = data
    again = tile[layout.table()]
    if not np.array_equal(again.view(np.uint8), np.ascontiguousarray(data).view(np.uint8)):
        raise LayoutError("replicas of one element hold different values")
    return tile
