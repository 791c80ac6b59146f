"""Where values live: scratch buffers of the workgroup, and registers.

A `Buffer` is a tile-shaped value in scratch memory, row after row, rows `ld` elements apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach
from tilewright.frozen import field, frozen, record


@frozen
class Edge:
    """What the array has of a tile that is summed in it, rows and columns. Micro-kernels that reach beyond sum in
    `spare` memory, row after row."""

    rows: Idx
    cols: Idx
    spare: SSAValue


@record
class Buffer:
    """A tile-shaped value in scratch memory, or the part of an array that it is stored to."""

    pointer: SSAValue
    element: Attribute
    shape: tuple[int, int]
    ld: Idx
    """Elements from one row to the next."""
    padded_rows: int = 0
    fresh: bool = field(default=False, compare=False)
    ring: bool = False
    """Whether only the last rows are there, as many as the shape says: row r lies at r modulo that."""
    edge: Edge | None = None
    """Where its array may end within it."""

    def address(self, b: Builder, row: Idx, col: Idx) -> SSAValue:
        size = itemsize(self.element)
        row = b.rem(row, self.shape[0]) if self.ring else row
        return b.ptr(b.ptr(self.pointer, b.times(row, b.times(self.ld, size))), b.times(col, size))


@frozen
class Block:
    """Rows of vectors of a buffer, so many of both, from a row and a column on."""

    buffer: Buffer
    row: Idx
    col: Idx
    rows: int
    vectors: int
    type: VectorType

    def beyond(self, b: Builder) -> SSAValue | None:
        """Does it reach beyond the array that the buffer is part of? None: it does not."""
        edge = self.buffer.edge
        if edge is None:
            return None
        width = self.vectors * self.type.get_shape()[0]
        low = b.cmp("slt", b.minus(edge.rows, self.row), self.rows)
        return b.either(low, b.cmp("slt", b.minus(edge.cols, self.col), width))

    @property
    def spare(self) -> SSAValue:
        """Where it is summed then."""
        assert self.buffer.edge is not None
        return self.buffer.edge.spare

    def copy(self, b: Builder, back: bool) -> None:
        """What the array has of it, to the spare memory or `back`."""
        edge, (lanes,) = self.buffer.edge, self.type.get_shape()
        assert edge is not None
        step = lanes * itemsize(self.buffer.element)
        with b.loop(0, b.min(b.minus(edge.rows, self.row), self.rows)) as r:
            start = self.buffer.address(b, b.plus(self.row, r.iv), self.col)
            line = b.ptr(edge.spare, b.times(r.iv, self.vectors * step))
            for v in range(self.vectors):
                there, here = b.ptr(start, v * step), b.ptr(line, v * step)
                mask = b.mask_first(b.minus(b.minus(edge.cols, self.col), v * lanes), lanes)
                assert mask is not None
                if back:
                    b.op(mach.MaskedStoreOp(b.load(here, self.type), there, mask))
                else:
                    zero = b.constant(self.type, 0)
                    b.store(b.value(mach.MaskedLoadOp(there, mask, zero)), here)


def clear(
    b: Builder, vector_bytes: int, c: Buffer, rows: Idx = 0, cols: Idx = 0, end: int | None = None
) -> None:
    """Write zeros to C up to row `end`, or to all of its memory, but for its first rows and columns (whole vectors)."""
    lanes, edge = vector_bytes // itemsize(c.element), c.edge
    stop: Idx = max(c.shape[0], c.padded_rows) if end is None else end
    if c.ld == 1:  # a column lies without gaps
        with b.loop(rows, stop) as r:
            b.store(b.constant(c.element, 0), c.address(b, r.iv, 0))
        return
    zero, width = b.constant(VectorType(c.element, [lanes]), 0), c.shape[1]  # pyright: ignore
    stop, right = (stop, width) if edge is None else (b.min(stop, edge.rows), edge.cols)
    with b.loop(0, stop) as r:
        first = b.select(b.cmp("slt", r.iv, rows), cols, 0)
        with b.loop(first, right, lanes) as x:
            at = c.address(b, r.iv, x.iv)
            if edge is not None:
                mask = b.mask_first(b.minus(right, x.iv), lanes)
                assert mask is not None
                b.op(mach.MaskedStoreOp(zero, at, mask))
            else:
                b.store(zero, at)


def register_starts(shape: tuple[int, int], lanes: int) -> list[tuple[int, int]]:
    """Where the registers of a value of a shape begin, row after row: (row, column) of each."""
    rows, columns = shape
    return [(row, column) for row in range(rows) for column in range(0, columns, lanes)]


@frozen
class Registers:
    """A tile-shaped value row after row in registers of `lanes` elements, which divide its `columns`."""

    columns: int
    lanes: int
    parts: Sequence[SSAValue]

    def at(self, b: Builder, row: Idx, col: Idx, lanes: int) -> SSAValue | None:
        """`lanes` elements of a row from `col` on; None where they are no part of a register."""
        assert isinstance(row, int) and isinstance(col, int)
        number, first = divmod(row * self.columns + col, self.lanes)
        part = self.parts[number]
        if lanes == self.lanes and first == 0:
            return part
        if lanes == 1:
            return b.extract(part, first)
        if first + lanes <= self.lanes:
            return b.shuffle(part, part, range(first, first + lanes))
        return None
