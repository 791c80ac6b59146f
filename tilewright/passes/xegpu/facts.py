"""What is known of places in memory before a kernel runs: alignment of rows, and whether a block lies inside.

Sources: static shapes and strides, what specialisation promises of arguments (`tilewright.args`), loop bounds. A text
without promises is taken at its word where it asks for block messages: its bases are multiples of 64 bytes, its pitches
of 16. What is not known is not assumed: `row_alignment` falls back to the element, `inside` to False.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.ir import BlockArgument, OpResult, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import constant, element_bits
from tilewright.passes.carried import given_by
from tilewright.passes.integers import Index, bounds, divisor, growth
from tilewright.passes.memory_objects import arg_facts, promised
from tilewright.passes.xegpu.block_messages import argument, surface

MOST = 64
"""The largest alignment that anybody asks for, in bytes."""
_PROMISED_PITCH = 16


def _promised_align(source: SSAValue) -> int | None:
    entry = promised(source)
    return arg_facts(source).align if entry is not None and "align" in entry.data else None


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
        trusted = _promised_align(source)
        return gcd(MOST, trusted or MOST, offset * itemsize)
    return itemsize


def _stride_alignment(op: xegpu.CreateNdDescOp, stride: Index | None, itemsize: int) -> int:
    if isinstance(stride, int):
        return gcd(MOST, stride * itemsize)
    trusted = _promised_align(op.source)
    if stride is not None and (number := constant(stride)) is not None:
        return gcd(MOST, number * itemsize)
    metadata = stride is None or (
        isinstance(stride, OpResult)
        and isinstance(stride.op, memref.ExtractStridedMetaDataOp)
        and argument(stride.op.source) is argument(op.source)
    )
    if metadata and isinstance(argument(op.source), BlockArgument):
        return _PROMISED_PITCH if trusted is None else gcd(MOST, trusted)
    if metadata:
        return itemsize
    return gcd(MOST, divisor(stride) * itemsize) if stride is not None else itemsize


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
            found = gcd(found, divisor(parts[-1]) * itemsize)
    return max(found, min(itemsize, MOST))


# --- Places ---------------------------------------------------------------------------------------------------


def inside(offset: Index, extent: int, size: Index | None) -> bool:
    """Is offset .. offset + extent known to lie in 0 .. size?"""
    low, high = bounds(offset)
    if low is None or low < 0 or size is None:
        return False
    number = size if isinstance(size, int) else constant(size)
    if number is not None:
        return high is not None and high - high % (divisor(offset) or 1) + extent <= number
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
    given = given_by(offset)
    return bool(given) and constant(given[0]) == 0 and growth(offset, given[1]) == extent


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
