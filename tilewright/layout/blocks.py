"""How a block of rows is distributed to the lanes of a subgroup by block loads, block stores and dpas."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layout.digits import Layout, LayoutError
from tilewright.layout.surface import layout


def group_of(bits: int, lanes: int) -> int:
    """Elements that a lane holds side by side: 16 bits with 16 lanes, 32 with 8."""
    return max(1, (16 if lanes >= 16 else 32) // bits)


def lane_map(
    shape: Sequence[int], bits: int, lanes: int, unit: int = 0, packed: int = 1
) -> tuple[list[int], list[int]]:
    """(lane_layout, lane_data) of a block of elements of `bits` bits.

    Lanes go along a row. Elements below 16 bits (32 bits with 8 lanes) go in groups that fill so much; `unit` sets
    the group. A row shorter than the subgroup takes several rows at once. `packed` rows are one group (VNNI).
    LayoutError where lanes cannot share rows. (SPV_INTEL_2d_block_io; the RFC's sg_map tables agree.)
    """
    width = shape[-1]
    lead = [1] * (len(shape) - 2)
    group = unit or group_of(bits, lanes)
    if len(shape) == 1:
        return [lanes], [1]
    if packed > 1 and width % lanes == 0:
        return [*lead, 1, lanes], [*lead, packed, 1]
    for size in (group, 1):
        if width % (lanes * size) == 0:
            return [*lead, 1, lanes], [*lead, 1, size]
    if lanes % width == 0 and shape[-2] % (lanes // width) == 0:
        return [*lead, lanes // width, width], [*lead, 1, 1]
    raise LayoutError(f"{lanes} lanes cannot share rows of {width} elements")


def lane_distribution(
    shape: Sequence[int], bits: int, lanes: int, unit: int = 0, packed: int = 1
) -> Layout:
    """Who owns what of such a block."""
    lane_layout, lane_data = lane_map(shape, bits, lanes, unit, packed)
    return layout(lane_layout=lane_layout, lane_data=lane_data).over(shape)
