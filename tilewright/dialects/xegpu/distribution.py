"""From XeGPU's ownership attributes to `tilewright.layout`, which alone knows who owns what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright import layout as ly
from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SgMapAttr, SliceAttr

if TYPE_CHECKING:
    from tilewright.dialects.xegpu.types import MemDescType


def distribution(attribute: Ownership) -> ly.Distribution:
    """The map that an attribute writes down, not yet bound to a shape."""
    match attribute:
        case LayoutAttr():
            return ly.layout(
                attribute.field("sg_layout"),
                attribute.field("sg_data"),
                attribute.field("inst_data"),
                attribute.field("lane_layout"),
                attribute.field("lane_data"),
                attribute.field("order"),
            )
        case SgMapAttr():
            return ly.sg_map(ints(attribute.wi_layout), ints(attribute.wi_data))
        case _:
            root, dropped = attribute.flatten()
            return ly.slice_(distribution(root), dropped)


def fault(attribute: Ownership, shape: Sequence[int]) -> str | None:
    """Why the map cannot distribute `shape`, in a sentence; None if it can."""
    return distribution(attribute).fault(shape)


def subgroups(attribute: Ownership) -> tuple[list[int], list[int]] | None:
    """(sg_layout, sg_data) of a layout, or what a slice leaves of them; None without."""
    if isinstance(attribute, LayoutAttr):
        layout, data = attribute.field("sg_layout"), attribute.field("sg_data")
        return None if layout is None or data is None else (list(layout), list(data))
    if isinstance(attribute, SliceAttr):
        root, dropped = attribute.flatten()
        found = subgroups(root)
        if found is not None:
            layout, data = ([n for d, n in enumerate(part) if d not in dropped] for part in found)
            return layout, data
    return None


def is_shared(attribute: Ownership, shape: Sequence[int]) -> bool:
    """Whether subgroups own the same elements because a dimension has no share for each: MLIR refuses that."""
    parts = subgroups(attribute)
    return parts is not None and any(
        extent % count for count, extent in zip(parts[0], shape, strict=False)
    )


def fragment_shape(attribute: Ownership, shape: Sequence[int]) -> tuple[int, ...]:
    """What one lane holds of `shape`: `[units, packed]` of an sg_map, else 1-D."""
    return distribution(attribute).fragment_shape(shape)


def memory(desc: MemDescType) -> ly.Layout:
    """Element coordinates of a shared matrix -> its addresses, in elements."""
    return ly.mem_layout(desc.get_shape(), desc.stride, desc.block)
