"""xe-split-loads: one block load whose parts are used one by one becomes a load per part.

    %v = load_nd %t[%k, %n] : tensor_desc<32x16xf16, array_length 2> -> vector<64xf16>
    %a = extract_strided_slice %v {offsets = [0], sizes = [16], ..} ; %b = .. {offsets = [32], ..}
    ->
    %a = load_nd %s[%k, %n] : tensor_desc<16x16xf16> -> vector<16xf16>
    %b = load_nd %s[%k, (%n + 16)] : tensor_desc<16x16xf16> -> vector<16xf16>

A message fills its registers at once, and they are free again after its last part was used: parts that are loaded by
themselves need fewer registers and more messages. So it runs only where registers would not suffice, with
xe-schedule-for-pressure behind it.

Requires: a lane program. Guarantees: the same results; every new load is a message of the machine, of `limit` bytes at
the most where its parts allow it, and distributes its elements to lanes as the old one did.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.dialects.xegpu.attrs import BlockTensorDescAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import split_indices
from tilewright.frozen import frozen
from tilewright.passes.emit import Before
from tilewright.passes.xegpu.block_messages import ROW
from tilewright.targets.xe.blocks import Table, wanted
from tilewright.targets.xe.building import bits_of
from tilewright.uarch.xe import XeMachine


def split_loads(kernel: gpu.FuncOp, machine: XeMachine, lanes: int, limit: int) -> bool:
    """Splits the block loads of a kernel into messages of `limit` bytes; True where there was one to split."""
    changed = False
    for op in list(kernel.walk()):
        if isinstance(op, xegpu.LoadNdOp) and _may_split(op):
            changed |= _split(op, machine, lanes, limit)
    return changed


def _may_split(op: xegpu.LoadNdOp) -> bool:
    if len(op.tdesc.get_shape()) != 2 or op.tdesc.space.number or ROW in op.attributes:
        return False
    if op.ownership is not None or op.mixed_offsets is None:
        return False
    if not isinstance(op.value.type, VectorType) or len(op.value.type.get_shape()) != 1:
        return False
    source = op.operands[op.tdesc_operand].owner
    users = [use.operation for use in op.value.uses]
    plain = all(isinstance(u, ExtractStridedSliceOp) and list(u.strides) == [1] for u in users)
    return plain and len(users) > 1 and isinstance(source, xegpu.CreateNdDescOp)


@frozen
class _Part:
    """Components `first` .. `first + count` of a fragment, and the block that holds them."""

    first: int
    count: int
    row: int
    column: int
    load: xegpu.LoadNdOp
    """Detached; its offsets are the old op's."""


def _split(op: xegpu.LoadNdOp, machine: XeMachine, lanes: int, limit: int) -> bool:
    table = wanted(op, lanes)
    bits = bits_of(op.tdesc.element_type)
    slices: list[Any] = [use.operation for use in op.value.uses]
    ranges = sorted({(_start(s), _length(s)) for s in slices})
    if any(a + n > b for (a, n), (b, _) in itertools.pairwise(ranges)):
        return False
    parts: list[_Part] = []
    at = 0
    while at < len(ranges):
        found: _Part | None = None
        taken = at
        for end in range(at, len(ranges)):
            first, count = ranges[at][0], ranges[end][0] + ranges[end][1] - ranges[at][0]
            if found is not None and count * lanes * bits // 8 > limit:
                break
            part = _part(op, machine, lanes, table, first, count)
            if part is not None:
                found, taken = part, end
        if found is None:
            return False
        parts.append(found)
        at = taken + 1
    if len(parts) < 2:
        return False
    for part in parts:
        _place(op, part)
    for each in slices:
        start = _start(each)
        part = next(p for p in parts if p.first <= start < p.first + p.count)
        value: SSAValue = part.load.value
        if (start, _length(each)) != (part.first, part.count):
            cut = ExtractStridedSliceOp(value, [start - part.first], [_length(each)])
            value = Before(each).add(cut)
        Before(each).replace(value)
    Rewriter.erase_op(op)
    return True


def _start(op: ExtractStridedSliceOp) -> int:
    return next(iter(op.offsets))


def _length(op: ExtractStridedSliceOp) -> int:
    return next(iter(op.sizes))


def _part(
    op: xegpu.LoadNdOp, machine: XeMachine, lanes: int, table: Table, first: int, count: int
) -> _Part | None:
    """A load of some components alone; None where no one message gives lanes the same elements."""
    mine = table[:, first : first + count]
    low, high = mine.min(axis=(0, 1)), mine.max(axis=(0, 1)) + 1
    rows, columns = (int(n) for n in high - low)
    if rows * columns != mine.shape[0] * mine.shape[1]:
        return None
    bits = bits_of(op.tdesc.element_type)
    width = op.transpose_bit_width
    unit = 1 if width is None else width // bits
    form = "transform" if op.packed else "transpose" if op.transposes else "load"
    if columns % unit or int(low[1]) * bits % 32:
        return None
    try:
        machine.block("block", form, bits * unit, columns // unit, rows, 1)
    except UnsupportedError:
        return None
    encoding = None if op.tdesc.boundary_check else BlockTensorDescAttr(boundary_check=False)
    kind = TensorDescType([rows, columns], op.tdesc.element_type, encoding)
    source = op.operands[op.tdesc_operand].owner
    assert isinstance(source, xegpu.CreateNdDescOp) and isinstance(op.value.type, VectorType)
    desc = retyped(source, source.operands, [kind], {})
    operands = list(op.operands)
    operands[op.tdesc_operand] = desc.results[0]
    load = retyped(op, operands, [VectorType(op.value.type.element_type, [count])])
    if not np.array_equal(wanted(load, lanes) + low, mine):
        return None
    return _Part(first, count, int(low[0]), int(low[1]), load)


def _place(op: xegpu.LoadNdOp, part: _Part) -> None:
    """Puts the load and its descriptor where they belong, and moves it to its block."""
    source, load = op.operands[op.tdesc_operand].owner, part.load
    desc = load.operands[load.tdesc_operand].owner
    assert isinstance(source, Operation) and isinstance(desc, Operation)
    Rewriter.insert_op(desc, InsertPoint.after(source))
    offsets, at = op.mixed_offsets, Before(op)
    assert offsets is not None
    static, dynamic = split_indices(at.shifted(offsets, (part.row, part.column)))
    load.operands = [desc.results[0], *dynamic]
    load.properties["const_offsets"] = static
    desc.location = op.location
    at.insert(load)
