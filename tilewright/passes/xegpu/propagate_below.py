"""xegpu-propagate-layout{kind=inst|lane}: the instruction's piece of a subgroup's value, and its lanes.

Part of :mod:`tilewright.passes.xegpu.propagate_layout`. What decides is
:class:`~tilewright.passes.xegpu.ownership.OwnershipAnalysis`; blocking and distribution to lanes ask it too, so that
the text shows what they will do, and may be edited in between.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.xegpu import LayoutAttr
from tilewright.dialects.xegpu.types import element_bits
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.ownership import OwnershipAnalysis, is_free, is_vector
from tilewright.uarch.xe import XeMachine


def propagate_below(kernel: gpu.FuncOp, machine: XeMachine, *, lanes_only: bool) -> None:
    """Writes inst_data and lanes (`lanes_only`: of pieces that are instructions already) to every value."""
    analysis = OwnershipAnalysis(kernel, machine, whole=lanes_only)
    found: list[tuple[SSAValue, LayoutAttr]] = []
    stores: list[tuple[Operation, LayoutAttr]] = []
    for op in kernel.walk():
        for result in op.results:
            if is_vector(result) and not is_free(result):
                layout = _text(analysis, result, lanes_only)
                if layout is not None:
                    found.append((result, layout))
        if isinstance(op, (xegpu.StoreNdOp, xegpu.StoreMatrixOp)) and is_vector(op.value):
            layout = _text(analysis, op.value, lanes_only)
            if layout is not None:
                stores.append((op, layout))
    for value, layout in found:
        stated = own.layout_of(value)
        before = None if stated is None else own.attribute(stated)
        d = own.from_attribute(_completed(before, layout))
        if d is not None:
            own.set_layout(value, d)
    for op, layout in stores:
        op.properties["layout"] = _completed(op.properties.get("layout"), layout)


def _text(analysis: OwnershipAnalysis, value: SSAValue, lanes_only: bool) -> LayoutAttr | None:
    layout = analysis.layout(value)
    bits = element_bits(value.type.element_type) if is_vector(value) else 32  # pyright: ignore
    packed = max(1, 32 // bits) if analysis.is_right_operand(value) else 1
    lanes = (lane_attribute(layout, packed=packed) if packed > 1 else None) or lane_attribute(
        layout
    )
    if lanes_only:
        return lanes
    return (
        LayoutAttr(inst_data=layout.shape)
        if lanes is None
        else lanes.replace(inst_data=layout.shape)
    )


def _completed(stated: Attribute | None, found: LayoutAttr) -> Attribute:
    """What the text says, with the fields that it leaves open."""
    if not isinstance(stated, LayoutAttr):
        return found if stated is None else stated
    missing = {
        name: found.field(name)
        for name in ("inst_data", "lane_layout", "lane_data")
        if stated.field(name) is None and found.field(name) is not None
    }
    return stated.replace(**missing)
