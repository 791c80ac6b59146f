"""Whether a layout can deal out a shape at all, said in a sentence.

Divisibility as the RFC and DESIGN §2 state it; who then owns what is computed by `tilewright.layout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.dialects.xegpu.layouts import LayoutAttr, SgMapAttr, SliceAttr
from tilewright.dialects.xetile.attrs import ints


def sliced_fields(layout: LayoutAttr | SliceAttr) -> dict[str, tuple[int, ...] | None]:
    """The fields of a layout; those of a slice without the dropped dimensions."""
    names = ("sg_layout", "sg_data", "inst_data", "lane_layout", "lane_data")
    if isinstance(layout, LayoutAttr):
        return {name: layout.field(name) for name in names}
    root, dropped = layout.flatten()
    fields: dict[str, tuple[int, ...] | None] = {}
    for name in names:
        value = root.field(name)
        fields[name] = (
            None if value is None else tuple(v for d, v in enumerate(value) if d not in dropped)
        )
    return fields


def subgroup_shape(layout: LayoutAttr | SliceAttr, shape: Sequence[int]) -> tuple[int, ...]:
    """The part of `shape` that a subgroup owns in one round: sg_data, or an even share."""
    fields = sliced_fields(layout)
    if fields["sg_data"] is not None:
        return fields["sg_data"]
    if fields["sg_layout"] is not None:
        return tuple(max(1, e // n) for e, n in zip(shape, fields["sg_layout"], strict=True))
    return tuple(shape)


def layout_fault(layout: LayoutAttr | SliceAttr, shape: Sequence[int]) -> str | None:
    """Why `layout` cannot deal out `shape`, None if it can.

    Subgroups: `shape % sg_data == 0`, and one of `shape` and `sg_layout * sg_data` divides the other
    (several rounds, or sharing by wrapping). `inst_data` divides the subgroup's part, and
    `lane_layout * lane_data` divides what one instruction handles.
    """
    if layout.rank != len(shape):
        return f"its rank is {layout.rank}, the shape's is {len(shape)}"
    fields = sliced_fields(layout)
    part = list(shape)
    for dim, extent in enumerate(shape):
        if fields["sg_layout"] is None:
            break
        count = fields["sg_layout"][dim]
        if fields["sg_data"] is None:
            if extent % count and count % extent:
                return f"{extent} elements over {count} subgroups in dimension {dim}"
            part[dim] = max(1, extent // count)
            continue
        size = fields["sg_data"][dim]
        round_ = count * size
        if extent % size or (extent % round_ and round_ % extent):
            return f"{extent} elements over {count} subgroups of {size} each in dimension {dim}"
        part[dim] = size
    if fields["inst_data"] is not None:
        for dim, (extent, size) in enumerate(zip(part, fields["inst_data"], strict=True)):
            if extent % size:
                return f"{extent} elements in instructions of {size} in dimension {dim}"
            part[dim] = size
    if fields["lane_layout"] is not None:
        data = fields["lane_data"] or (1,) * len(part)
        for dim, (extent, count, size) in enumerate(
            zip(part, fields["lane_layout"], data, strict=True)
        ):
            if extent % (count * size):
                return f"{extent} elements over {count} lanes of {size} each in dimension {dim}"
    return None


def sg_map_fault(sg_map: SgMapAttr, shape: Sequence[int]) -> str | None:
    """Why an sg_map cannot deal out `shape`; the first dimension of the map is ignored for 1-D shapes.

    Of a shape of higher rank (blocks of a load with array_length) the last two dimensions are dealt.
    """
    layout, data = ints(sg_map.wi_layout), ints(sg_map.wi_data)
    if len(shape) == 1:
        if layout[0] != 1 or data[0] != 1:
            return "a 1-D shape needs wi_layout[0] = 1 and wi_data[0] = 1"
        layout, data = layout[1:], data[1:]
    for dim, (extent, count, size) in enumerate(
        zip(shape[-len(layout) :], layout, data, strict=True)
    ):
        if extent % (count * size):
            return f"{extent} elements over {count} work items of {size} each in dimension {dim}"
    return None


def fragment_shape(sg_map: SgMapAttr, shape: Sequence[int]) -> tuple[int, int]:
    """`[units, wi_data_size]`: what one work item holds of `shape` (RFC, "Resulting WI Data Fragment")."""
    lanes, packed = prod(ints(sg_map.wi_layout)), prod(ints(sg_map.wi_data))
    return prod(shape) // (lanes * packed), packed
