"""Block descriptors: a tensor_desc becomes the numbers that a 2D block message takes.

    %t = xegpu.create_nd_tdesc %a : memref<4096x4096xf16> -> !xegpu.tensor_desc<32x16xf16, ..>
      base = %a's address, width = 8192 bytes, height = 4096 rows, pitch = 8192 bytes, x = y = 0

A base must be a multiple of 64 bytes: where it is not known to be, the misalignment moves into x and width
(`base & ~63`), as SPV_INTEL_2d_block_io asks for. Dimensions beyond the block's two select a matrix: their
offsets move the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from tilewright.dialects import mach, xegpu
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.strided import Metadata
from tilewright.dialects.upstream.views import moved
from tilewright.frozen import frozen
from tilewright.targets.xe.building import GLOBAL, Index, LaneBuilder, bits_of

ALIGNMENT = 64
"""Bytes to which a 2D block message's base is aligned (SPV_INTEL_2d_block_io)."""


@frozen
class BlockSurface:
    """A base matrix and the position of a block in it; numbers count elements but for `element_bytes`."""

    base: SSAValue
    element_bytes: int
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    offsets: tuple[Index, ...]
    aligned: bool
    """Is the base known to be a multiple of 64 bytes?"""

    def moved(self, b: LaneBuilder, deltas: Sequence[Index]) -> BlockSurface:
        """At offsets that count the innermost dimensions."""
        return replace(self, offsets=tuple(b.shifted(self.offsets, deltas)))


@frozen
class Message:
    """Operands of a 2D block message: `base` aligned; width and pitch in bytes, x in elements."""

    base: SSAValue
    width: Index
    height: Index
    pitch: Index
    x: Index
    y: Index

    def operands(self, b: LaneBuilder, x: Index = 0, y: Index = 0) -> list[SSAValue]:
        """As the callees take them, moved by (x, y)."""
        numbers = (self.width, self.height, self.pitch, b.plus(self.x, x), b.plus(self.y, y))
        return [self.base, *(b.word(n) for n in numbers)]


def surface_of(b: LaneBuilder, op: xegpu.CreateNdDescOp) -> BlockSurface:
    """The surface that a create_nd_tdesc describes."""
    source = op.source
    element_bytes = bits_of(op.tdesc.element_type) // 8
    sizes: list[Index] = list(op.mixed_shape)
    strides: list[Index] = list(op.mixed_strides)
    start: Index = 0
    aligned = False
    if isinstance(source.type, MemRefType):
        found = Metadata(source, b.insert)
        start, sizes, strides = found.offset, sizes or found.sizes, strides or found.strides
        aligned = start == 0
    sizes = [folded(n) for n in (sizes or [1 << 24])]
    strides = [folded(n) for n in (strides or [1])]
    base = b.address(b.base(source), b.times(start, element_bytes))
    offsets = (0,) * len(sizes)
    return BlockSurface(base, element_bytes, tuple(sizes), tuple(strides), offsets, aligned)


def message(b: LaneBuilder, s: BlockSurface) -> Message:
    """The operands of a block message on a surface of at least two dimensions."""
    size = s.element_bytes
    if s.strides[-1] != 1:
        raise b.refuse(
            "rows of the base matrix are not contiguous: its innermost stride is "
            + (str(s.strides[-1]) if isinstance(s.strides[-1], int) else "known only at run time"),
            "load a column-major matrix as its transpose",
        )
    base, aligned = s.base, s.aligned
    strides = (b.times(stride, size) for stride in s.strides[:-2])
    start = moved(0, s.offsets[:-2], strides, b)
    if start != 0:
        base = b.address(base, start)
        aligned = aligned and isinstance(start, int) and start % ALIGNMENT == 0
    width, x = b.times(s.sizes[-1], size), b.place(s.offsets[-1])
    if not aligned:
        address = b.add(mach.IntFromPtrOp(base))
        low = b.add(arith.AndIOp(address, b.idx(ALIGNMENT - 1)))
        high = b.add(arith.AndIOp(address, b.idx(-ALIGNMENT)))
        base = b.add(mach.PtrFromIntOp(high, GLOBAL))
        width, x = b.plus(width, low), b.plus(x, b.divided(low, size))
    return Message(
        base, width, s.sizes[-2], b.times(s.strides[-2], size), x, b.place(s.offsets[-2])
    )
