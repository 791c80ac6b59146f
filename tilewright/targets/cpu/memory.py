"""Where values live: scratch buffers of the workgroup, and registers.

A `Buffer` is a tile-shaped value in scratch memory, row after row, rows `ld` elements apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import itemsize
from tilewright.frozen import frozen


@dataclass
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

    def address(self, b: Builder, row: Idx, col: Idx) -> SSAValue:
        size = itemsize(self.element)
        row = b.rem(row, self.shape[0]) if self.ring else row
        return b.ptr(b.ptr(self.pointer, b.times(row, b.times(self.ld, size))), b.times(col, size))


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
