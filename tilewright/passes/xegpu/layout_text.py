"""Who owns each value, read from and written to the text of a workgroup or subgroup program.

A value's layout stands on the op that makes it: in the op's own property where it has one
(`layout`, `layout_cd`, `target_layout`), else in the attribute `layout_result_<n>`; the carried values
of an scf.for have that of its results, the inputs of an scf.while stand in `layout_operand_<n>`. A
load's or store's own `layout` comes before that of its descriptor's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from xdsl.dialects import scf
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of as shape_of
from tilewright.dialects.xegpu import LayoutAttr, SliceAttr
from tilewright.dialects.xegpu.distribution import distribution
from tilewright.dialects.xegpu.layouts import FIELDS, Ownership, is_ownership
from tilewright.layout import Distribution, Layout

RESULT = "layout_result_"
OPERAND = "layout_operand_"

PROPERTY = {
    "xegpu.load_nd": "layout",
    "xegpu.load": "layout",
    "xegpu.atomic_rmw": "layout",
    "xegpu.load_matrix": "layout",
    "xegpu.dpas": "layout_cd",
    "xegpu.convert_layout": "target_layout",
}
"""Ops whose result's layout is a property of theirs."""


@lru_cache(4096)
def attribute(d: Distribution) -> Ownership:
    """The map as text: a layout, or a slice of one."""
    fields = {name: getattr(d, name) for name in FIELDS}
    whole = LayoutAttr(**fields)
    return SliceAttr(whole, d.sliced) if d.sliced else whole


def from_attribute(value: object) -> Distribution | None:
    """The map that an attribute is; None for anything else."""
    if not isinstance(value, Attribute) or not is_ownership(value):
        return None
    return _distribution(value)  # pyright: ignore[reportArgumentType]


_distribution = lru_cache(4096)(distribution)


def subgroup_part(d: Distribution) -> Distribution:
    """What the map says of subgroups only."""
    return replace(d, inst_data=None, lane_layout=None, lane_data=None, packed=False)


def completed(d: Distribution, shape: Sequence[int]) -> Distribution:
    """The map with its sg_data, where the text leaves it to the shape: an even part of each extent."""
    if d.sg_layout is None or d.sg_data is not None or d.sliced:
        return d
    return replace(d, sg_data=subgroup_part(d).part_shape(shape))


def remainder(d: Distribution) -> Distribution | None:
    """What is left of the map when the value is one subgroup's fragment; None where that is nothing."""
    left = replace(d, sg_layout=None, sg_data=None)
    if left.inst_data is None and left.lane_layout is None:
        return None
    if left.lane_layout is None:
        left = replace(left, order=None)
    return left


def alike(a: Distribution, b: Distribution) -> bool:
    """Whether two maps say the same; an order that is row-major anyway says nothing."""
    return _ordered(a) == _ordered(b)


def _ordered(d: Distribution) -> Distribution:
    row_major = d.order == tuple(reversed(range(d.field_rank)))
    return replace(d, order=None) if row_major else d


def bound(d: Distribution, shape: Sequence[int]) -> Layout:
    """The normal form at subgroup level. Raises LayoutError where the map does not fit."""
    return subgroup_part(d).over(shape)


def same_owners(a: Distribution, b: Distribution, shape: Sequence[int]) -> bool:
    """Whether both give every subgroup the same elements."""
    if a == b:
        return True
    try:
        return bound(a, shape).on(ly.Axis.SUBGROUP) == bound(b, shape).on(ly.Axis.SUBGROUP)
    except ly.LayoutError:
        return False


def replicas(d: Distribution, shape: Sequence[int]) -> int:
    """How many subgroups hold each element."""
    return bound(d, shape).replicas(ly.Axis.SUBGROUP)


def replicated(subgroups: int, rank: int, shape: Sequence[int]) -> Distribution:
    """Every subgroup holds the whole value."""
    return Distribution((subgroups, *[1] * (rank - 1)), tuple(shape))


# --- In the text ------------------------------------------------------------------------------


def layout_of(value: SSAValue) -> Distribution | None:
    """The layout that the text gives a value; None where it says nothing."""
    if isinstance(value, OpResult):
        return result_layout(value.op, value.index)
    assert isinstance(value, BlockArgument)
    parent = value.owner.parent_op()
    if isinstance(parent, scf.ForOp) and value.index > 0:
        return result_layout(parent, value.index - 1)
    if isinstance(parent, scf.WhileOp):
        if value.owner is parent.before_region.block:
            return from_attribute(parent.attributes.get(f"{OPERAND}{value.index}"))
        return result_layout(parent, value.index)
    return None


def result_layout(op: Operation, index: int) -> Distribution | None:
    name = PROPERTY.get(op.name)
    if name is None:
        return from_attribute(op.attributes.get(f"{RESULT}{index}"))
    stated = from_attribute(op.properties.get(name) or op.attributes.get(f"{RESULT}{index}"))
    if stated is None and isinstance(op, xegpu.LoadNdOp):
        return from_attribute(op.tdesc.ownership)
    return stated


def set_layout(value: SSAValue, d: Distribution) -> None:
    """Writes a value's layout to the text."""
    text = attribute(d)
    if isinstance(value, BlockArgument):
        parent = value.owner.parent_op()
        assert parent is not None
        if isinstance(parent, scf.WhileOp) and value.owner is parent.before_region.block:
            parent.attributes[f"{OPERAND}{value.index}"] = text
        elif isinstance(parent, scf.WhileOp):
            parent.attributes[f"{RESULT}{value.index}"] = text
        else:
            parent.attributes[f"{RESULT}{value.index - 1}"] = text
        return
    assert isinstance(value, OpResult)
    op = value.op
    name = PROPERTY.get(op.name)
    if name is None:
        op.attributes[f"{RESULT}{value.index}"] = text
        return
    op.attributes.pop(f"{RESULT}{value.index}", None)
    op.properties[name] = text


def clear_layouts(op: Operation) -> None:
    """Takes the layouts off an op."""
    for name in [n for n in op.attributes if n.startswith((RESULT, OPERAND))]:
        del op.attributes[name]
    for name in ("layout", "layout_a", "layout_b", "layout_cd", "input_layout", "target_layout"):
        op.properties.pop(name, None)
