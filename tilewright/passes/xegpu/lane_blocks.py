"""Subgroup to lane: block loads, stores and prefetches as messages.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. A load becomes the message whose form distributes the block
as the value's users want it: row by row, packed (VNNI), or transposed.
"""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, UnitAttr, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu.rules_block import full_load_shape
from tilewright.layout.blocks import lane_distribution
from tilewright.passes.carried import reached
from tilewright.passes.xegpu.block_messages import (
    SCATTERED,
    BlockShape,
    created,
    fits,
    form_layout,
    stays_in_lanes,
    surface_fault,
)
from tilewright.passes.xegpu.lane_addresses import scattered_prefetch
from tilewright.passes.xegpu.lane_layouts import natural
from tilewright.passes.xegpu.lane_rows import scattered_load, scattered_store
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.row_access import whole_units

# --- Descriptors -----------------------------------------------------------------------------


@rule("xegpu.create_nd_tdesc")
def create_nd_tdesc(d: LaneProgram, op: xegpu.CreateNdDescOp) -> None:
    operands = [d.env[v] for v in op.operands]
    made = d.add(retyped(op, operands, [op.tdesc.without_layout()], {}))
    made.name_hint = op.result.name_hint
    d.env[op.result] = made


def access_properties(op: Operation) -> dict[str, Attribute]:
    dropped = ("layout", "packed", "transpose", "transpose_bit_width")
    return {k: v for k, v in op.properties.items() if k not in dropped}


def is_scattered(d: LaneProgram, op: xegpu.BlockAccess) -> bool:
    if SCATTERED in op.attributes:
        return True
    if len(op.tdesc.get_shape()) < 2:
        return True
    source = created(op)
    return source is not None and surface_fault(d.owners.xe, source) is not None


# --- Blocks ------------------------------------------------------------------------------------


@rule("xegpu.load_nd")
def load_nd(d: LaneProgram, op: xegpu.LoadNdOp) -> None:
    if is_scattered(d, op):
        scattered_load(d, op)
        return
    layout, extra = load_form(d, op)
    if layout is None:
        scattered_load(d, op)
        return
    operands, properties = [d.env[v] for v in op.operands], access_properties(op) | extra
    kind = d.typed(op.value, layout)
    new = op.create(operands=operands, properties=properties, result_types=[kind])
    d.give_vector(op.value, d.add(new), layout)


def load_form(d: LaneProgram, op: xegpu.LoadNdOp) -> tuple[ly.Layout | None, dict[str, Attribute]]:
    """The form of a block load: what it distributes to the lanes, and its properties."""
    tdesc, value = op.tdesc, op.value
    shape, count = tdesc.get_shape(), tdesc.array_length
    bits = element_bits(tdesc.element_type)
    given = shape_of(value)
    if op.packed or op.transposes:
        return written_form(d, op), {
            k: v
            for k, v in op.properties.items()
            if k in ("packed", "transpose", "transpose_bit_width")
        }
    if len(shape) < 2:
        return natural(shape, bits, d.lanes), {}
    block = BlockShape(shape[0], shape[1], count)
    wanted = d.owners.layout(value)
    right = feeds_right_operand(value)
    forms = ("transform", "load", "transpose") if right else ("load", "transpose")
    fallback: tuple[ly.Layout | None, dict[str, Attribute]] = (None, {})
    for form in forms:
        if not fits(d.owners.xe, form, bits, block):
            continue
        layout = form_layout(form, block.shape, bits, d.lanes)
        if layout is None:
            continue
        layout = layout if layout.shape == given else layout.reshaped(given)
        extra: dict[str, Attribute] = {}
        if form == "transform":
            extra["packed"] = UnitAttr()
        elif form == "transpose":
            extra["transpose"] = DenseArrayBase.from_list(i64, [1, 0])
            if bits < 32:
                if not whole_units(op, 32):
                    continue
                extra["transpose_bit_width"] = IntegerAttr(32, i32)
        if stays_in_lanes(layout, wanted):
            return layout, extra
        if form != "transpose" and fallback[0] is None:
            fallback = layout, extra
    return fallback


def written_form(d: LaneProgram, op: xegpu.LoadNdOp) -> ly.Layout:
    """Ownership of what a load gives that is packed or transposed in the text already."""
    tdesc = op.tdesc
    shape, count = tdesc.get_shape(), tdesc.array_length
    bits = element_bits(tdesc.element_type)
    packed = max(1, 32 // bits)
    one = shape if op.packed else full_load_shape(op)
    unit = 0
    if op.transposes:
        unit = op.together
    blocks = (count, *one) if count > 1 else one
    try:
        layout = lane_distribution(blocks, bits, d.lanes, unit, packed if op.packed else 1)
    except ly.LayoutError as error:
        raise d.refuse(str(error)) from None
    if op.packed and len(shape_of(op.value)) > len(blocks):
        *lead, k, n = blocks
        layout = layout.reshaped((*lead, k // packed, packed, n))
        rank = layout.rank
        layout = layout.permuted((*range(rank - 2), rank - 1, rank - 2))
    given = shape_of(op.value)
    return layout if layout.shape == given else layout.reshaped(given)


@rule("xegpu.store_nd")
def store_nd(d: LaneProgram, op: xegpu.StoreNdOp) -> None:
    tdesc = op.tdesc
    shape, bits = tdesc.get_shape(), element_bits(tdesc.element_type)
    fit = len(shape) < 2 or fits(d.owners.xe, "store", bits, BlockShape(*shape))
    layout = form_layout("load", shape, bits, d.lanes) if fit else None
    if is_scattered(d, op) or layout is None:
        scattered_store(d, op)
        return
    value, *rest = op.operands
    operands = [d.taken(value, layout), *(d.env[v] for v in rest)]
    d.put(op.create(operands=operands, properties=access_properties(op)))


@rule("xegpu.prefetch_nd")
def prefetch_nd(d: LaneProgram, op: xegpu.PrefetchNdOp) -> None:
    if is_scattered(d, op):
        scattered_prefetch(d, op)
        return
    operands = [d.env[v] for v in op.operands]
    d.put(op.create(operands=operands, properties=access_properties(op)))


def feeds_right_operand(value: SSAValue) -> bool:
    """Does a dpas take it, or slices of it, as B?"""

    def parts(value: SSAValue) -> list[SSAValue]:
        return [use.operation.results[0] for use in value.uses if use.operation.name in _PARTS]

    uses = (use for each in reached([value], parts) for use in each.uses)
    return any(isinstance(use.operation, xegpu.DpasOp) and use.index == 1 for use in uses)


_PARTS = (
    "vector.extract",
    "vector.extract_strided_slice",
    "vector.shape_cast",
    "xegpu.convert_layout",
)
