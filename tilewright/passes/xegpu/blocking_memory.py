"""Blocking, memory: block ops as the machine's largest messages, scattered and matrix ops fragment by fragment.

Part of :mod:`tilewright.passes.xegpu.blocking`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu.attrs import BlockTensorDescAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import split_indices
from tilewright.frozen import frozen
from tilewright.layout.blocks import group_of
from tilewright.passes.new_body import without_layouts
from tilewright.passes.xegpu import row_access
from tilewright.passes.xegpu.block_messages import (
    SCATTERED,
    BlockShape,
    best_block,
    created,
    fits,
    form_layout,
    stays_in_lanes,
    surface_fault,
)
from tilewright.passes.xegpu.inst_fragments import Fragments, Shape, grid_of, rule
from tilewright.passes.xegpu.lane_layouts import default_fragment, lane_attribute, power_of_two

APART_REGISTERS = 32
"""Registers of a subgroup that a block without 2D block messages fills at most at once; the attribute `APART` of a
kernel says another number."""
APART = "tilewright.apart_registers"
WIDE_ALIGN = 16
"""Bytes: where rows are aligned to less, a ragged block moves single elements, which fill a register each. Where
accumulators fill half of the registers (machines with 2D blocks, layout_defaults), blocks are half as large then."""
WORDS_PER_LANE = 8
"""Of one row that one message gives a lane (uarch, `rows`)."""


@frozen
class MessagePlan:
    """How a block op is cut: the messages' shape, and whether lanes compute the addresses instead."""

    block: tuple[int, ...]
    count: int = 1
    packed: int = 1
    scattered: str | None = None

    @property
    def step(self) -> Shape:
        """Elements that one message covers."""
        return (*self.block[:-1], self.block[-1] * self.count)

    @property
    def value(self) -> Shape:
        """Shape of what one message loads."""
        return (self.count, *self.block) if self.count > 1 else self.block


def _apart_registers(op: Operation) -> int:
    kernel = enclosing(op, gpu.FuncOp)
    stated = None if kernel is None else kernel.attributes.get(APART)
    return stated.value.data if isinstance(stated, IntegerAttr) else APART_REGISTERS


# --- Plans -------------------------------------------------------------------------------------


def plan_of(d: Fragments, op: xegpu.BlockAccess) -> MessagePlan:
    if op not in d.plans:
        d.plans[op] = _planned(d, op)
    return d.plans[op]


def _planned(d: Fragments, op: xegpu.BlockAccess) -> MessagePlan:
    tdesc, xe = op.tdesc, d.owners.xe
    shape = tdesc.get_shape()
    if len(shape) > 2:
        raise d.refuse(f"a block of rank {len(shape)}", "blocks have one or two dimensions")
    source = created(op)
    if source is None:
        raise d.refuse("its descriptor is carried by a loop or an if", "run xegpu-upgrade first")
    fault = None if len(shape) < 2 else surface_fault(xe, source)
    if SCATTERED in op.attributes:
        stated = op.attributes[SCATTERED]
        fault = stated.data if isinstance(stated, StringAttr) else fault or "the text asks for it"
    if isinstance(op, xegpu.LoadNdOp) and (tdesc.array_length > 1 or op.packed or op.transposes):
        return MessagePlan(shape, tdesc.array_length, scattered=fault)  # chosen in the text
    if fault is not None:
        return MessagePlan(_apart(d, op, source), scattered=fault)
    if len(shape) == 1:
        return _row(d, op, shape[0])
    match op:
        case xegpu.LoadNdOp():
            return _load(d, op, shape)  # pyright: ignore
        case xegpu.StoreNdOp():
            return _store(d, op, shape)
        case _:
            return _prefetch(d, op, shape)


def _fragment(d: Fragments, op: xegpu.BlockAccess) -> Shape:
    """The fragment of the value that an op moves."""
    match op:
        case xegpu.LoadNdOp() | xegpu.StoreNdOp():
            return d.owners.fragment(op.value)
        case _:
            return op.tdesc.get_shape()


def _apart(d: Fragments, op: xegpu.BlockAccess, base: xegpu.CreateNdDescOp) -> Shape:
    """What is asked at once whether it is inside of its base: fragments side by side, as many as a lane reads of
    a row, then below each other, a few registers in all. Single elements stay fragments: each fills a register
    until its fragment is put together."""
    shape, fragment = op.tdesc.get_shape(), list(_fragment(d, op))
    if not isinstance(op, (xegpu.LoadNdOp, xegpu.StoreNdOp)) or len(fragment) != 2:
        return tuple(fragment)
    layout, registers = d.owners.layout(op.value), _apart_registers(op)
    if layout.shape == tuple(fragment):
        question = row_access.asked(d.owners.xe, op, base, layout)
        if row_access.best(question).is_narrow(question.bits):
            return tuple(fragment)
        if question.align < WIDE_ALIGN and d.owners.xe.blocks:
            registers //= 2
    most = registers * d.owners.xe.grf_bytes * 8 // element_bits(op.tdesc.element_type)
    wide = WORDS_PER_LANE * max(fragment[1], d.owners.lanes)
    for dim, limit in ((1, wide), (0, most)):
        while (
            shape[dim] % (2 * fragment[dim]) == 0
            and 2 * fragment[dim] <= limit
            and 2 * fragment[0] * fragment[1] <= most
        ):
            fragment[dim] *= 2
    return tuple(fragment)


def _row(d: Fragments, op: xegpu.BlockAccess, extent: int) -> MessagePlan:
    """1-D: consecutive elements, up to eight per lane."""
    if isinstance(op, xegpu.PrefetchNdOp):
        return MessagePlan((extent,))
    lanes = d.owners.lanes
    for count in (8, 4, 2, 1):
        if extent % (lanes * count) == 0:
            return MessagePlan((lanes * count,))
    return MessagePlan(
        _fragment(d, op), scattered=f"{extent} elements are not distributed to {lanes} lanes"
    )


def _load(d: Fragments, op: xegpu.LoadNdOp, shape: tuple[int, int]) -> MessagePlan:
    xe, lanes = d.owners.xe, d.owners.lanes
    bits = element_bits(op.tdesc.element_type)
    wanted = d.owners.layout(op.value)
    right = d.owners.is_right_operand(op.value)
    forms = ("transform", "load", "transpose") if right else ("load", "transpose")
    fragment = wanted.shape
    assert len(fragment) == 2
    for form in forms:
        layout = form_layout(form, fragment, bits, lanes)
        if layout is None or not stays_in_lanes(layout, wanted):
            continue
        found = best_block(xe, form, bits, shape, fragment)
        if found is not None:
            packed = max(1, 32 // bits) if form == "transform" else 1
            return MessagePlan((found.height, found.width), found.count, packed)
    usual = default_fragment(shape, bits, lanes)
    if form_layout("load", usual, bits, lanes) is not None:
        found = best_block(xe, "load", bits, shape, usual)  # pyright: ignore
        if found is not None:
            return MessagePlan((found.height, found.width), found.count)
    return MessagePlan(
        fragment, scattered=f"no 2D block load of {xe.name} tiles {shape[0]}x{shape[1]}"
    )


def _store(d: Fragments, op: xegpu.StoreNdOp, shape: Shape) -> MessagePlan:
    xe, lanes = d.owners.xe, d.owners.lanes
    bits = element_bits(op.tdesc.element_type)
    fragment = d.owners.fragment(op.value)
    width = fragment[1]
    while width:
        for height in (8, 4, 2, 1):
            block = BlockShape(height, width)
            legal = shape[0] % height == 0 and fits(xe, "store", bits, block)
            if legal and form_layout("load", block.shape, bits, lanes) is not None:
                return MessagePlan((height, width))
        width = width // 2 if width % 2 == 0 else 0
    return MessagePlan(
        fragment, scattered=f"no 2D block store of {xe.name} tiles {shape[0]}x{shape[1]}"
    )


def _prefetch(d: Fragments, op: xegpu.BlockAccess, shape: Shape) -> MessagePlan:
    xe = d.owners.xe
    bits = element_bits(op.tdesc.element_type)
    wide = power_of_two(shape[1], d.owners.lanes * group_of(bits, d.owners.lanes))
    found = best_block(xe, "prefetch", bits, (shape[0], shape[1]), (1, wide))
    if found is None:
        return MessagePlan(shape, scattered=f"no 2D block prefetch of {xe.name} tiles {shape}")
    return MessagePlan((found.height, found.width), found.count)


# --- Descriptors -----------------------------------------------------------------------------------


@rule("xegpu.create_nd_tdesc")
def create_nd_tdesc(d: Fragments, op: xegpu.CreateNdDescOp) -> None:
    """One descriptor per shape of message that the op's users need."""
    for use in list(op.result.uses):
        user = use.operation
        if not isinstance(user, xegpu.BlockAccess):
            continue
        current, d.op = d.op, user
        plan = plan_of(d, user)
        d.op = current
        kind = _type(op.tdesc, plan)
        if (op.result, kind) not in d.descriptors:
            made = d.add(retyped(op, [d.env[v] for v in op.operands], [kind], {}))
            made.name_hint = op.result.name_hint
            d.descriptors[op.result, kind] = made


def _type(tdesc: TensorDescType, plan: MessagePlan) -> TensorDescType:
    encoding = BlockTensorDescAttr(
        memory_space="slm" if tdesc.space.number else None,
        array_length=plan.count if plan.count > 1 else None,
        boundary_check=None if tdesc.boundary_check else False,
    )
    return TensorDescType(plan.block, tdesc.element_type, encoding)


def _messages(
    d: Fragments,
    op: xegpu.BlockAccess,
    types: Sequence[Attribute] = (),
    values: Sequence[SSAValue] = (),
    layout: Attribute | None = None,
) -> list[SSAValue]:
    """The op as the messages of its plan, with results of these types; `values` are those that they store. What they
    load."""
    plan, shape = plan_of(d, op), op.tdesc.get_shape()
    desc = d.descriptors[op.operands[op.tdesc_operand], _type(op.tdesc, plan)]
    properties, attributes = dict(op.properties), without_layouts(op)
    properties.pop("layout", None)
    if layout is not None:
        properties["layout"] = layout
    if plan.scattered is not None:
        attributes[SCATTERED] = StringAttr(plan.scattered)
    loaded: list[SSAValue] = []
    for n, place in enumerate(d.places(op.mixed_offsets or [0] * len(shape), plan.step, shape)):
        static, dynamic = split_indices(place)
        new = op.create(
            operands=[*values[n : n + 1], desc, *dynamic],
            properties=properties | {"const_offsets": static},
            attributes=attributes,
            result_types=types,
        )
        loaded += d.put(new).results
    return loaded


# --- Blocks --------------------------------------------------------------------------------------------


@rule("xegpu.load_nd")
def load_nd(d: Fragments, op: xegpu.LoadNdOp) -> None:
    plan, shape = plan_of(d, op), op.tdesc.get_shape()
    if op.tdesc.array_length > 1 or op.packed or op.transposes:
        # That stands in the text: the op is an instruction already.
        d.give(op.value, shape_of(op.value), _messages(d, op, [op.value.type]))
        return
    kind = d.typed(op.value, plan.value)
    loads = _messages(d, op, [kind], layout=_load_layout(d, op, plan))
    for load in loads:
        load.name_hint = op.value.name_hint
    if plan.count == 1:
        d.give(op.value, plan.block, loads)
        return
    blocks: list[SSAValue] = []
    across = grid_of(shape, plan.step)[1]
    for row in range(shape[0] // plan.block[0]):
        for column in range(shape[1] // plan.block[1]):
            load = loads[row * across + column // plan.count]
            blocks.append(d.element_at(load, [column % plan.count]))
    d.give(op.value, plan.block, blocks)


def _load_layout(d: Fragments, op: xegpu.LoadNdOp, plan: MessagePlan) -> Attribute | None:
    """What lanes the loaded blocks belong to: the fragment's map, on the block."""
    wanted = d.owners.layout(op.value)
    if len(plan.block) != wanted.rank:
        return None
    layout = lane_attribute(wanted, packed=plan.packed)
    if layout is None:
        return None
    lanes, data = layout.field("lane_layout"), layout.field("lane_data")
    try:
        ly.layout(lane_layout=lanes, lane_data=data).over(plan.block)
    except ly.LayoutError:
        return None
    return layout


@rule("xegpu.store_nd")
def store_nd(d: Fragments, op: xegpu.StoreNdOp) -> None:
    _messages(d, op, values=d.fragments(op.value, plan_of(d, op).block))


@rule("xegpu.prefetch_nd")
def prefetch_nd(d: Fragments, op: xegpu.PrefetchNdOp) -> None:
    _messages(d, op)
