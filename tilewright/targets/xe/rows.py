"""load_nd and store_nd of one row that a pass chose: 1-D block messages.

    %v = xegpu.load_nd %t[%y, %x] {tilewright.row} : !xegpu.tensor_desc<1x32xf16, ..> -> vector<4xf16>     (8 lanes)
    ->
    %p = mach.ptr_add %base, (%y * pitch + 2 * %x)
    %w = mach.call @xe_row_load_32b_x2(%p) : vector<2xi32> ; %v = vector.bitcast %w

`tilewright.row` says that the row is inside of its base and aligned for a message: words of the elements that a lane
owns side by side, word i of lane l at i * lanes + l. Other rows are accesses of single lanes (xegpu-lane-elements).
"""

from __future__ import annotations

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.views import moved
from tilewright.layout.blocks import group_of
from tilewright.targets.xe.building import GLOBAL, LANES_MOST, SHARED, bits_of, words
from tilewright.targets.xe.context import Context, hints_of
from tilewright.targets.xe.forms import RowMessage


def load(s: Context, op: xegpu.LoadNdOp) -> SSAValue:
    """Component i of lane l is element i * lanes + l, in words of neighbours where the row is distributed so."""
    b, kind = s.b, op.value.type
    form = _form(s, op, kind)
    call = b.call(form.name, [_start(s, op)], [words(form.count, form.bits)])
    loaded = call.results[0]
    if kind.element_count() <= LANES_MOST:
        return loaded if loaded.type == kind else b.add(vector.BitcastOp(loaded, kind))
    return b.in_memory(loaded, form.bits, kind)


def store(s: Context, op: xegpu.StoreNdOp) -> None:
    b = s.b
    form = _form(s, op, op.value.type)
    b.call(form.name, [_start(s, op), b.as_words(op.value, form.count, form.bits)])


def _form(s: Context, op: xegpu.LoadNdOp | xegpu.StoreNdOp, kind: VectorType) -> RowMessage:
    bits, count = bits_of(kind.element_type), kind.element_count()
    width = op.tdesc.get_shape()[-1]
    word = group_of(bits, s.lanes) if len(op.tdesc.get_shape()) > 1 else 1
    word = word if width % (s.lanes * word) == 0 else 1
    base = s.surface(op.operands[op.tdesc_operand]).base
    form = RowMessage(
        "load" if isinstance(op, xegpu.LoadNdOp) else "store",
        bits * word,
        count // word,
        base.type == SHARED,
        hints_of(s, op),
    )
    known = s.machine.row_form(form.kind, form.bits)
    if known is None or form.count not in known.counts or base.type not in (GLOBAL, SHARED):
        raise s.b.refuse(
            f"{s.machine.name} has no 1-D block {form.kind} of {form.count} words of {form.bits} bits"
        )
    return form


def _start(s: Context, op: xegpu.BlockAccess) -> SSAValue:
    """Address of the row's first element: the same for all lanes."""
    b = s.b
    surface = s.surface(op.operands[op.tdesc_operand])
    if (offsets := op.mixed_offsets) is not None:
        surface = surface.moved(b, offsets)
    strides = (b.times(stride, surface.element_bytes) for stride in surface.strides)
    return b.address(surface.base, moved(0, surface.offsets, strides, b))
