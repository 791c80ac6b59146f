"""Lane layouts of fragments: the natural distribution, what attributes say, and how ops carry ownership along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from tilewright import layout as ly
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SliceAttr
from tilewright.layout.blocks import group_of, lane_distribution

Shape = tuple[int, ...]


def power_of_two(number: int, most: int) -> int:
    """The largest power of two that divides `number` and is at most `most`."""
    part = number & -number
    while part > most:
        part //= 2
    return part


def default_fragment(shape: Shape, bits: int, lanes: int) -> Shape:
    """A fragment of a tile that no instruction asks for: as wide as the subgroup, at most eight registers."""
    if not shape:
        return ()
    wide = power_of_two(shape[-1], lanes * group_of(bits, lanes))
    if len(shape) == 1:
        return (wide,)
    rows = power_of_two(shape[-2], max(1, 8 * lanes // wide))
    return (*[1] * (len(shape) - 2), rows, wide)


def natural(shape: Shape, bits: int, lanes: int) -> ly.Layout:
    """Lanes along the rows as block messages distribute them; lanes that are left hold replicas."""
    try:
        return lane_distribution(shape, bits, lanes)
    except (ly.LayoutError, IndexError):
        pass
    rest = lanes
    lane: list[tuple[int, int | None, int]] = []
    register: list[tuple[int, int | None, int]] = []
    for dim in reversed(range(len(shape))):
        count = gcd(power_of_two(shape[dim], rest), rest)
        lane.append((count, dim, 1))
        register.append((shape[dim] // count, dim, count))
        rest //= count
    lane.append((rest, None, 0))
    digits = ly.number(ly.Axis.LANE, lane) + ly.number(ly.Axis.REGISTER, register)
    return ly.Layout.of(shape, digits)


@lru_cache(4096)
def bind(
    attribute: Ownership, shape: Shape, bits: int, lanes: int, *, whole: bool
) -> ly.Layout | None:
    """The ownership that an attribute gives to a fragment (`whole`: all) of a value; None if it cannot."""
    if isinstance(attribute, SliceAttr):
        root, dropped = attribute.flatten()
        inst = root.field("inst_data")
        spread = root.field("lane_layout")
        data = root.field("lane_data") or (1,) * root.rank
        if spread is None:
            return None
        lead = root.rank
        inner = iter(shape if whole else (inst and _kept(inst, dropped)) or shape)
        # A sliced dimension was reduced: what the lanes and the instruction cover of it.
        full = tuple(
            max(spread[d] * data[d], (inst or (1,) * lead)[d]) if d in dropped else next(inner)
            for d in range(lead)
        )
        try:
            return ly.layout(lane_layout=spread, lane_data=data).over(full).sliced(*dropped)
        except ly.LayoutError:
            return None
    assert isinstance(attribute, LayoutAttr)
    inst, spread = attribute.field("inst_data"), attribute.field("lane_layout")
    lead = len(shape) - attribute.rank
    if lead < 0 or (lead and not whole):
        return None
    if spread is None:
        if whole or inst is None:
            return None
        return natural(inst, bits, lanes)
    data = attribute.field("lane_data") or (1,) * attribute.rank
    fragment = shape if whole else inst
    if fragment is None:
        usual = default_fragment(shape, bits, lanes)
        fragment = tuple(
            max(n, s * d) if extent % max(n, s * d) == 0 else s * d
            for n, s, d, extent in zip(usual, spread, data, shape, strict=True)
        )
    ones = (1,) * lead
    order = attribute.field("order")
    try:
        return ly.layout(
            lane_layout=(*ones, *spread),
            lane_data=(*ones, *data),
            order=order if not lead else None,
        ).over(fragment)
    except ly.LayoutError:
        return None


def _kept(values: Shape, dropped: Sequence[int]) -> Shape:
    return tuple(v for d, v in enumerate(values) if d not in dropped)


def with_chunk(lanes: ly.Layout, chunk: int) -> ly.Layout:
    """Each element becomes `chunk` along a new last dimension, in registers side by side."""
    return lanes.reshaped((*lanes.shape, 1)).expanded(lanes.rank, chunk)


@lru_cache(4096)
def lane_attribute(layout: ly.Layout, *, packed: int = 1) -> LayoutAttr | None:
    """`#xegpu.layout<lane_layout, lane_data>` of an ownership; None where none says it.

    `packed` rows are one unit of a lane: the same ownership, other registers of the hardware.
    """
    spread, data = [1] * layout.rank, [1] * layout.rank
    for digit in layout.on(ly.Axis.LANE):
        if digit.dim is None:
            return None
        if spread[digit.dim] == 1:
            data[digit.dim] = digit.stride
        spread[digit.dim] *= digit.size
    if packed > 1:
        data = [*[1] * (layout.rank - 2), packed, 1]
    try:
        same = ly.layout(lane_layout=spread, lane_data=data).over(layout.shape) == layout
    except ly.LayoutError:
        return None
    return LayoutAttr(lane_layout=spread, lane_data=data) if same else None
