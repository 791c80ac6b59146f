"""load_nd, store_nd, prefetch_nd of a lane -> 2D block messages.

    %a = xegpu.load_nd %t[%m, %k] : !xegpu.tensor_desc<32x16xf16, ..array_length = 2..> -> vector<64xf16>
    ->
    %p = mach.alloca {bytes = 128 : i64, ..}
    mach.call @xe_load2d_16b_32x16x2(%base, %width, %height, %pitch, %k, %m, %p)
    %a = mach.load %p : !llvm.ptr -> vector<64xf16>

A message distributes its elements to lanes in one way (`forms`), the text in another (`tilewright.layout`): they are
compared element by element. Where they differ by the order of components only, narrower messages or a shuffle
of components make it right; where lanes differ, the op is refused. Slices of a loaded fragment are read from
private memory one by one, in the form that their user wants, so that drivers see no moves of payload.

Shapes that no message has (a machine without 2D blocks, a narrow pitch, a pair that begins at an odd column)
become the same callees with `soft` in front: guarded loads of single elements, defined in the module itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import mach, xegpu
from tilewright.dialects.xegpu import elements
from tilewright.frozen import frozen
from tilewright.layout.blocks import group_of
from tilewright.passes.xegpu.block_messages import ROW
from tilewright.passes.xegpu.row_access import whole_units
from tilewright.targets.xe.building import LaneBuilder, Private, bits_of
from tilewright.targets.xe.context import Context, hints_of
from tilewright.targets.xe.forms import LOCALITY, Block2D, Hints
from tilewright.targets.xe.rows import load as load_row
from tilewright.targets.xe.rows import store as store_row
from tilewright.targets.xe.surfaces import Message, message
from tilewright.uarch.xe import XeMachine

Table = NDArray[np.int64]
"""(lane, component, 2): row and column in the block of every element."""


# Which element is where ---------------------------------------------------------------------------------


def wanted(op: xegpu.LoadNdOp | xegpu.StoreNdOp, lanes: int) -> Table:
    """Rows and columns (through all blocks of the array) as the text distributes them to lanes."""
    numbers = (
        elements.stored(op, lanes)
        if isinstance(op, xegpu.StoreNdOp)
        else elements.loaded(op, lanes)
    )
    places = numbers.reshape(-1, lanes).T
    return np.stack(np.divmod(places, elements.wide_shape(op.tdesc)[-1]), axis=-1)


def held(form: Block2D, lanes: int, unit: int = 1) -> Table:
    """The same for a message; `unit` elements of the text are one of a transposing message."""
    found = form.positions(lanes).reshape(lanes, -1, 2)
    if unit == 1:
        return found
    row = np.repeat(found[..., 0], unit, axis=1)
    column = np.repeat(found[..., 1] * unit, unit, axis=1) + np.tile(
        np.arange(unit), found.shape[1]
    )
    return np.stack([row, column], axis=-1)


def component_order(want: Table, have: Table) -> list[int] | None:
    """Which component of `have` is each one of `want`, the same for all lanes; None if there is none."""
    if want.shape == have.shape and np.array_equal(want, have):
        return list(range(want.shape[1]))
    places = {tuple(have[:, j].reshape(-1).tolist()): j for j in range(have.shape[1])}
    order = [places.get(tuple(want[:, i].reshape(-1).tolist())) for i in range(want.shape[1])]
    return None if None in order else [i for i in order if i is not None]


# Choosing messages --------------------------------------------------------------------------------------


@frozen
class BlockMessage:
    """One message of a block: its form, where it begins in the block, and the first component that it fills."""

    form: Block2D
    x: int
    y: int
    first: int
    soft: bool

    @property
    def callee(self) -> str:
        return f"xe_soft_{self.form.name[3:]}" if self.soft else self.form.name


def _fault(machine: XeMachine, form: Block2D) -> str | None:
    kind = {"vnni": "transform"}.get(form.kind, form.kind)
    try:
        machine.block("block", kind, form.bits, form.columns, form.rows, form.count)
    except UnsupportedError as error:
        return error.message
    return None


def _candidates(
    form: Block2D, lanes: int, machine: XeMachine
) -> list[list[tuple[Block2D, int, int]]]:
    """Ways to move a block: whole, as blocks side by side, as columns, as bands of rows."""
    choices = [[(form, 0, 0)]]
    span = form.columns * form.count
    step = lanes * group_of(form.bits, lanes) if form.kind != "vnni" else lanes
    if (
        form.kind in ("load", "vnni", "prefetch")
        and form.columns % step == 0
        and form.columns > step
    ):
        for count in (4, 2):
            if form.columns == step * count and form.count == 1:
                choices.append([(replace(form, columns=step, count=count), 0, 0)])
        choices.append([(replace(form, columns=step, count=1), x, 0) for x in range(0, span, step)])
    # Of a transposed block each lane takes one row.
    limit = {"store": 8, "transpose": lanes}.get(form.kind, 32)
    if form.rows > limit and form.rows % limit == 0:
        choices.append([(replace(form, rows=limit), 0, y) for y in range(0, form.rows, limit)])
    if form.count > 1:
        one = replace(form, count=1)
        choices.append([(one, i * form.columns, 0) for i in range(form.count)])
    return choices


def messages(
    s: Context,
    form: Block2D,
    m: Message,
    want: Table | None,
    unit: int = 1,
    soft: bool = False,
) -> tuple[list[BlockMessage], list[int]]:
    """Messages that move a block, and the order of components that they leave; refuses one that none move.

    `unit` elements of the text are one of the form's; `soft`: none of the machine's messages will do.
    """
    why = ""
    soft = soft or _too_narrow(m)
    rounds = [False, True] if not soft and form.kind != "prefetch" else [soft]
    for gathers in rounds:
        if gathers:
            # Any column and any width of the matrix is possible: elements need not go together.
            form, unit = replace(form, bits=form.bits // unit, columns=form.columns * unit), 1
        for way in _candidates(form, s.lanes, s.machine):
            parts: list[BlockMessage] = []
            tables: list[Table] = []
            first = 0
            fault = None
            for each, x, y in way:
                if not gathers and (fault := _fault(s.machine, each)) is not None:
                    break
                parts.append(BlockMessage(each, x, y, first, gathers))
                if want is not None:
                    table = held(each, s.lanes, unit)
                    tables.append(table + np.array([y, x * unit]))
                    first += table.shape[1]
            if fault is not None:
                why = why or fault
                continue
            if want is None:
                return parts, []
            order = component_order(want, np.concatenate(tables, axis=1))
            if order is not None:
                return parts, order
            why = why or (
                f"a message of {form.rows}x{form.columns} elements of {form.bits} bits gives lanes other "
                "elements than the text does"
            )
    raise s.b.refuse(why, "give the block an inst_data that one message can move")


def _too_narrow(m: Message) -> bool:
    """Is the base matrix known to be beyond what block messages can do?"""
    narrow = isinstance(m.width, int) and (m.width < 64 or m.width % 4 != 0)
    pitch = isinstance(m.pitch, int) and (m.pitch < 64 or m.pitch % 16 != 0)
    return narrow or pitch


# The ops ------------------------------------------------------------------------------------------------


def _message(s: Context, op: xegpu.BlockAccess) -> Message:
    surface = s.surface(op.operands[op.tdesc_operand])
    shape = op.tdesc.get_shape()
    if any(n != 1 for n in shape[:-2]):
        raise s.b.refuse(f"a block of {'x'.join(map(str, shape))} has more than two dimensions")
    if (offsets := op.mixed_offsets) is not None:
        surface = surface.moved(s.b, offsets)
    return message(s.b, surface)


def load_nd(s: Context, op: xegpu.LoadNdOp) -> SSAValue:
    """The fragment's value; `LaneBuilder.private` knows where it lies."""
    b, kind = s.b, op.value.type
    if ROW in op.attributes:
        return load_row(s, op)
    bits = bits_of(op.tdesc.element_type)
    rows, columns = op.tdesc.get_shape()[-2:]
    unit, form_kind = 1, "load"
    if op.packed and bits < 32:
        form_kind = "vnni"
    elif op.transposes:
        unit, form_kind = op.together, "transpose"
    form = Block2D(
        form_kind, bits * unit, rows, columns // unit, op.tdesc.array_length, hints_of(s, op)
    )
    m = _message(s, op)
    split = unit > 1 and not whole_units(op, bits * unit)
    parts, order = messages(s, form, m, wanted(op, s.lanes), unit, split)
    reason = f"{s.machine.name} has no block message for it"
    if split:
        reason = f"{bits * unit}-bit units need a column that is known to be a multiple of {unit}"
    _say_soft(s, op, parts, reason)
    bytes = kind.element_count() * bits // 8
    pointer = b.scratch(bytes)
    last: Operation | None = None
    for part in parts:
        place = b.address(pointer, part.first * bits // 8)
        # A transposing message counts x in its own units, the operands in the text's.
        last = b.call(part.callee, [*_place(b, m, part, part.form.bits // bits), place])
    assert last is not None
    here = Private(pointer, 0, parts[0].form.word_bits(s.lanes), last)
    value = b.read_private(here, kind)
    if order == list(range(len(order))):
        b.private[value] = here
        return value
    return b.shuffled(value, order, kind)


def _place(b: LaneBuilder, m: Message, part: BlockMessage, unit: int = 1) -> list[SSAValue]:
    """Operands of one message. x counts its own elements: `unit` of the text's are one."""
    moved = replace(m, x=b.divided(m.x, unit)) if unit > 1 else m
    return moved.operands(b, part.x, part.y)


def _say_soft(s: Context, op: Operation, parts: list[BlockMessage], why: str) -> None:
    if parts[0].soft:
        s.remark(op, f"{op.name} moves single elements: {why}")


def store_nd(s: Context, op: xegpu.StoreNdOp) -> None:
    b, kind = s.b, op.value.type
    if ROW in op.attributes:
        store_row(s, op)
        return
    bits = bits_of(op.tdesc.element_type)
    rows, columns = op.tdesc.get_shape()[-2:]
    form = Block2D("store", bits, rows, columns, 1, hints_of(s, op))
    m = _message(s, op)
    parts, order = messages(s, form, m, wanted(op, s.lanes))
    _say_soft(s, op, parts, f"{s.machine.name} has no block message for it")
    value = op.value
    if order != list(range(len(order))):
        back = [order.index(i) for i in range(len(order))]
        value = b.shuffled(value, back, kind)
    pointer = b.scratch(kind.element_count() * bits // 8)
    b.insert(mach.StoreOp(value, pointer, alignment=64))
    for part in parts:
        place = b.address(pointer, part.first * bits // 8)
        b.call(part.callee, [*_place(b, m, part), place])


def prefetch_nd(s: Context, op: xegpu.PrefetchNdOp) -> None:
    """A prefetch without policies goes to all levels; locality<n> says which."""
    if len(op.tdesc.get_shape()) == 1 or not s.machine.blocks:
        s.remark(op, f"{op.name} is left out: {s.machine.name} prefetches 2D blocks only")
        return
    b = s.b
    hints = hints_of(s, op)
    if not hints:
        locality = 3 if op.locality is None else op.locality
        hints = Hints(*LOCALITY[locality])
    bits = bits_of(op.tdesc.element_type)
    rows, columns = op.tdesc.get_shape()[-2:]
    form = Block2D("prefetch", bits, rows, columns, op.tdesc.array_length, hints)
    m = _message(s, op)
    if _too_narrow(m):
        s.remark(op, f"{op.name} is left out: the base matrix is too narrow for block messages")
        return
    for part in messages(s, _portable(form), m, None)[0]:
        b.call(part.callee, m.operands(b, part.x, part.y))


def _portable(form: Block2D) -> Block2D:
    """Twice as wide as a row of the portable set is two blocks (SPV_INTEL_2d_block_io, prefetch)."""
    row = {8: 32, 16: 16}.get(form.bits, form.columns)
    if form.count == 1 and form.columns == 2 * row:
        return replace(form, columns=row, count=2)
    return form
