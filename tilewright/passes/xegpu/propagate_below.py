"""xegpu-propagate-layout{kind=inst|lane}: the instruction's fragment of a subgroup's value, and its lanes.

Part of :mod:`tilewright.passes.xegpu.propagate_layout`. What decides is
:class:`~tilewright.passes.xegpu.ownership.OwnershipAnalysis`; blocking and distribution to lanes ask it too, so that
the text shows what they will do, and may be edited in between.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import remark_at
from tilewright.dialects import xegpu
from tilewright.dialects.movement import is_vector
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import LayoutAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.layout import Layout
from tilewright.passes.kernel import add_remarks
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.legalize import legalize
from tilewright.passes.xegpu.ownership import OwnershipAnalysis, is_free
from tilewright.uarch.xe import XeMachine


def propagate_below(kernel: gpu.FuncOp, machine: XeMachine, *, lanes_only: bool) -> None:
    """Writes inst_data and lanes (`lanes_only`: of fragments that are instructions already) to every value."""
    _realisable(kernel, machine)
    legalize(kernel, machine)
    analysis = OwnershipAnalysis(kernel, machine, whole=lanes_only)
    found: list[tuple[SSAValue, LayoutAttr]] = []
    operands: list[tuple[Operation, str, LayoutAttr]] = []
    for op in kernel.walk():
        for result in op.results:
            if is_vector(result) and not is_free(result):
                layout = _text(analysis, result, lanes_only)
                if layout is not None:
                    found.append((result, layout))
        for name, value in _wanted(op):
            layout = _text(analysis, value, lanes_only)
            if layout is not None:
                operands.append((op, name, layout))
    remarks: list[str] = []
    for value, layout in found:
        stated = own.layout_of(value)
        before = None if stated is None else own.attribute(stated)
        assert isinstance(value.owner, Operation)
        before = _in_fragments(value.owner, before, layout, remarks)
        d = own.from_attribute(_completed(before, layout))
        if d is not None:
            own.set_layout(value, d)
    for op, name, layout in operands:
        stated = _in_fragments(op, op.properties.get(name), layout, remarks)
        op.properties[name] = _completed(stated, layout)
    add_remarks(kernel, remarks)


def _wanted(op: Operation) -> list[tuple[str, SSAValue]]:
    """Operands whose layout an op's text states: a store's value, a product's factors."""
    match op:
        case xegpu.StoreNdOp() | xegpu.StoreMatrixOp() | xegpu.StoreScatterOp():
            found = [("layout", op.value)]
        case xegpu.DpasOp():
            found = [("layout_a", op.lhs), ("layout_b", op.rhs)]
        case _:
            return []
    return [(name, value) for name, value in found if is_vector(value)]


def _realisable(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Lanes that the machine does not have are taken out of the text, with a remark."""
    remarks: list[str] = []

    def kept(op: Operation, layout: Attribute) -> Attribute | None:
        if not isinstance(layout, LayoutAttr):
            return layout
        grid = layout.field("lane_layout")
        if grid is None or prod(grid) == machine.lanes:
            return layout
        remark = (
            f"{op.name}: lane_layout = {[*grid]} is for {prod(grid)} lanes, {machine.name} has "
            f"{machine.lanes}: its own distribution is used"
        )
        remarks.append(remark_at(op, remark))
        if layout.is_workgroup() or layout.field("inst_data") is not None:
            bare = layout.is_workgroup()
            return layout.replace(
                lane_layout=None, lane_data=None, **({} if bare else {"order": None})
            )
        return None

    for op in list(kernel.walk()):
        for table in (op.properties, op.attributes):
            for name, layout in list(table.items()):
                new = kept(op, layout)
                if new is None:
                    del table[name]
                elif new is not layout:
                    table[name] = new
        for result in list(op.results):
            if isinstance(kind := result.type, TensorDescType) and kind.ownership is not None:
                new = kept(op, kind.ownership)
                if new is not kind.ownership:
                    form = None if isinstance(kind.encoding, NoneAttr) else kind.encoding
                    layout = new if isinstance(new, LayoutAttr) else None
                    changed = TensorDescType(kind.get_shape(), kind.element_type, form, layout)
                    Rewriter.replace_value_with_new_type(result, changed)
    add_remarks(kernel, remarks)


def _text(analysis: OwnershipAnalysis, value: SSAValue, lanes_only: bool) -> LayoutAttr | None:
    layout = analysis.layout(value)
    bits = element_bits(value.type.element_type) if is_vector(value) else 32  # pyright: ignore
    packed = max(1, 32 // bits) if analysis.is_right_operand(value) else 1
    return _layout_text(layout, packed, lanes_only)


@lru_cache(4096)
def _layout_text(layout: Layout, packed: int, lanes_only: bool) -> LayoutAttr | None:
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


def _in_fragments(
    op: Operation, stated: Attribute | None, found: LayoutAttr, remarks: list[str]
) -> Attribute | None:
    """The text's layout, without an inst_data that is not made of the fragments found, which is remarked on."""
    if not isinstance(stated, LayoutAttr):
        return stated
    asked, fragment = stated.field("inst_data"), found.field("inst_data")
    if (
        asked is None
        or fragment is None
        or not any(a % p for a, p in zip(asked, fragment, strict=False))
    ):
        return stated
    remark = f"{op.name}: inst_data = {[*asked]} is not what its users multiply or move: {[*fragment]} is used"
    remarks.append(remark_at(op, remark))
    if not stated.is_workgroup():
        return None
    return stated.replace(inst_data=None, lane_layout=None, lane_data=None)


@lru_cache(4096)
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
