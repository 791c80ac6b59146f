"""From XeTile's maps to `tilewright.layout`, which alone knows who owns what."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import NoneAttr
from xdsl.utils.exceptions import VerifyException

from tilewright import layout
from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.xetile.attrs import SgMapAttr, WgMapAttr

UNEVEN = "data is not evenly distributed to each subgroup"


def distribution(wg: WgMapAttr | None, sg: SgMapAttr | None = None) -> layout.Distribution | None:
    """The ownership that maps describe, None without a map."""
    lanes = None if sg is None else layout.sg_map(ints(sg.wi_layout), ints(sg.wi_data))
    if wg is None:
        return lanes
    inst = None if isinstance(wg.inst_data, NoneAttr) else ints(wg.inst_data)
    groups = layout.wg_map(ints(wg.sg_layout), ints(wg.sg_data), inst)
    return groups if lanes is None else groups.with_sg(lanes)


def verify_map(
    shape: Sequence[int], wg: WgMapAttr | None, sg: SgMapAttr | None = None, what: str = "wg_map"
) -> None:
    """A map distributes all elements of a shape (RFC, as DESIGN §2 reads it)."""
    described = distribution(wg, sg)
    if described is None or len(shape) != 2:
        return
    fault = described.fault(shape)
    if fault is not None:
        raise VerifyException(f"{UNEVEN}: {what} on {'x'.join(map(str, shape))}: {fault}")
