"""What is known of places in memory before a kernel runs: alignment of rows, and whether a block lies inside.

Sources: static shapes and strides, what specialisation promises of arguments (`tilewright.args`), loop bounds. A text
without promises is taken at its word where it asks for block messages: its bases are multiples of 64 bytes, its pitches
of 16. What is not known is not assumed: `row_alignment` falls back to the element, `inside` to False.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
)
from xdsl.ir import BlockArgument, OpResult, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.xegpu.types import element_bits
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.xegpu.blocks import argument, promised, surface
from tilewright.passes.xegpu.multiples import is_multiple
from tilewright.passes.xegpu.positions import constant

MOST = 64
"""The largest alignment that anybody asks for, in bytes."""
_PROMISED_PITCH = 16
_DEPTH = 12


def promise(source: SSAValue) -> DictionaryAttr | None:
    """What `promised` says, where it says an alignment; None where it does not."""
    entry = promised(source)
    return entry if entry is not None and "align" in entry.data else None


def _promised_align(source: SSAValue) -> int | None:
    entry = promise(source)
    align = None if entry is None else entry.data["align"]
    return align.value.data if isinstance(align, IntegerAttr) else None


def power(number: int) -> int:
    """The largest power of two, of at most 64, that divides a number."""
    return MOST if number == 0 else min(MOST, number & -number)


def divisor(value: Index) -> int:
    """A power of two that is known to divide an index."""
    if isinstance(value, int):
        return power(value)
    promised = _promised_divisor(value)
    found = 1
    while found < MOST and is_multiple(value, 2 * found):
        found *= 2
    return max(found, promised)


def _promised_divisor(value: SSAValue) -> int:
    """Of an extent of an argument."""
    if not isinstance(value, OpResult) or not isinstance(value.op, memref.DimOp):
        return 1
    entry, dim = promise(value.op.source), constant(value.op.index)
    div = None if entry is None else entry.data.get("div")
    if not isinstance(div, ArrayAttr) or dim is None or dim >= len(div.data):
        return 1
    number = div.data[dim]
    return power(number.value.data) if isinstance(number, IntegerAttr) else 1


# --- Alignment -----------------------------------------------------------------------------------------------


def _base_alignment(op: xegpu.CreateNdDescOp, itemsize: int) -> int:
    source = op.source
    if not isinstance(source.type, MemRefType):
        return min(itemsize, MOST)
    layout = source.type.layout
    offset = 0
    if isinstance(layout, StridedLayoutAttr):
        given = getattr(layout.offset, "data", None)
        if given is None:
            return itemsize
        offset = given
    elif not isinstance(layout, NoneAttr):
        return itemsize
    if isinstance(argument(source), BlockArgument) or isinstance(source.owner, memref.AllocOp):
        promised = _promised_align(source)
        return gcd(MOST if promised is None else promised, power(offset * itemsize))
    return itemsize


def _stride_alignment(op: xegpu.CreateNdDescOp, stride: Index | None, itemsize: int) -> int:
    if isinstance(stride, int):
        return power(stride * itemsize)
    trusted = _promised_align(op.source)
    if stride is not None and (number := constant(stride)) is not None:
        return power(number * itemsize)
    metadata = stride is None or (
        isinstance(stride, OpResult)
        and isinstance(stride.op, memref.ExtractStridedMetaDataOp)
        and argument(stride.op.source) is argument(op.source)
    )
    if metadata and isinstance(argument(op.source), BlockArgument):
        return _PROMISED_PITCH if trusted is None else power(trusted)
    if metadata:
        return itemsize
    return min(MOST, divisor(stride) * itemsize) if stride is not None else itemsize


def row_alignment(op: xegpu.CreateNdDescOp, offsets: Sequence[Sequence[Index]]) -> int:
    """Bytes that divide the address of every element of column `offsets` of the base, whatever its row.

    `offsets`: lists of coordinates that are added up, the last of each is the column.
    """
    itemsize = max(1, element_bits(op.tdesc.element_type) // 8)
    _, strides = surface(op)
    if not strides or strides[-1] != 1:
        return itemsize
    found = _base_alignment(op, itemsize)
    for stride in strides[:-1]:
        found = gcd(found, _stride_alignment(op, stride, itemsize))
    for parts in offsets:
        if parts:
            found = gcd(found, min(MOST, divisor(parts[-1]) * itemsize))
    return max(found, min(itemsize, MOST))


# --- Bounds ---------------------------------------------------------------------------------------------------

Range = tuple[int | None, int | None]
"""Least and greatest value, None where there is no bound."""


def bounds(value: Index, depth: int = _DEPTH) -> Range:
    """What an index is known to lie between."""
    if isinstance(value, int):
        return value, value
    if depth == 0:
        return None, None
    if isinstance(value, BlockArgument):
        return _carried(value, depth)
    op = value.owner
    match op:
        case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
            return op.value.value.data, op.value.value.data
        case arith.AddiOp():
            (a, b), (c, d) = (bounds(v, depth - 1) for v in op.operands)
            return _sum(a, c), _sum(b, d)
        case arith.MuliOp():
            (a, b), (c, d) = (bounds(v, depth - 1) for v in op.operands)
            if a is None or c is None or a < 0 or c < 0:
                return None, None
            return a * c, None if b is None or d is None else b * d
        case arith.DivUIOp():
            (a, b), (c, d) = (bounds(v, depth - 1) for v in op.operands)
            if a is None or a < 0 or c is None or c <= 0 or c != d:
                return None, None
            return a // c, None if b is None else b // c
        case arith.RemUIOp():
            _, (c, d) = (bounds(v, depth - 1) for v in op.operands)
            return (0, d - 1) if c is not None and d is not None and c > 0 else (None, None)
        case arith.IndexCastOp():
            return bounds(op.input, depth - 1)
        case gpu.SubgroupIdOp():
            return 0, _subgroups(op) - 1
        case gpu.BlockIdOp() | gpu.LaneIdOp() | gpu.GridDimOp() | memref.DimOp():
            return 0, None
        case _:
            return None, None


def _subgroups(op: gpu.SubgroupIdOp) -> int:
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, gpu.FuncOp):
        parent = parent.parent_op()
    number = parent.attributes.get("tilewright.subgroups") if parent is not None else None
    return number.value.data if isinstance(number, IntegerAttr) else 1 << 16


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _carried(value: BlockArgument, depth: int) -> Range:
    """A loop's counter, or a number that grows by a constant in every turn."""
    loop = value.block.parent_op()
    if not isinstance(loop, scf.ForOp):
        return None, None
    low, _ = bounds(loop.lb, depth - 1)
    _, over = bounds(loop.ub, depth - 1)
    step = constant(loop.step)
    first, last = constant(loop.lb), constant(loop.ub)
    turns: int | None = None
    if first is not None and last is not None and step:
        turns = max(0, -(-(last - first) // step))
    if value.index == 0:
        if turns is not None and step and first is not None:
            return first, first + max(0, turns - 1) * step
        return low, None if over is None else over - 1
    grows = _growth(loop, value)
    start, end = bounds(loop.iter_args[value.index - 1], depth - 1)
    if grows is None or grows < 0:
        return None, None
    high = end + grows * max(0, turns - 1) if end is not None and turns is not None else None
    return start, high


def _growth(loop: scf.ForOp, value: BlockArgument) -> int | None:
    """By how much a carried number grows in every turn."""
    ends = loop.body.block.last_op
    assert ends is not None
    step = ends.operands[value.index - 1]
    if step is value:
        return 0
    if isinstance(step, OpResult) and isinstance(step.op, arith.AddiOp):
        rest = [v for v in step.op.operands if v is not value]
        return constant(rest[0]) if len(rest) == 1 else None
    return None


def is_natural(value: Index) -> bool:
    """Is an index known not to be negative?"""
    low, _ = bounds(value)
    return low is not None and low >= 0


def inside(offset: Index, extent: int, size: Index | None) -> bool:
    """Is offset .. offset + extent known to lie in 0 .. size?"""
    low, high = bounds(offset)
    if low is None or low < 0 or size is None:
        return False
    number = size if isinstance(size, int) else constant(size)
    if number is not None:
        return high is not None and high + extent <= number
    return not isinstance(size, int) and _divides_loop(offset, extent, size)


def _divides_loop(offset: Index, extent: int, size: SSAValue) -> bool:
    """Does the offset count in steps of `extent` from 0 to below `size`, which is a multiple of it?"""
    if not isinstance(offset, BlockArgument) or divisor(size) % extent:
        return False
    loop = offset.block.parent_op()
    if not isinstance(loop, scf.ForOp) or not same_extent(loop.ub, size):
        return False
    if constant(loop.lb) != 0 or constant(loop.step) != extent:
        return False
    if offset.index == 0:
        return True
    start = loop.iter_args[offset.index - 1]
    return constant(start) == 0 and _growth(loop, offset) == extent


def same_extent(a: SSAValue, b: SSAValue) -> bool:
    """Are two numbers the same extent of the same array?"""
    if a is b:
        return True
    if not isinstance(a, OpResult) or not isinstance(b, OpResult):
        return False
    if isinstance(a.op, memref.DimOp) and isinstance(b.op, memref.DimOp):
        number = constant(a.op.index)
        return a.op.source is b.op.source and number is not None and number == constant(b.op.index)
    return False
