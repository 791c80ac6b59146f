"""What micro-kernels have in common: the family of instructions, and where they find their operands."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.frozen import frozen
from tilewright.targets.cpu.panels import PanelFormat


@frozen
class Family:
    """A way to multiply: the accumulator's type, what the operands are packed as, and the block it computes."""

    name: str
    """`fma`, `mul`, `dot` (see `dots`), or the name of an AMX instruction."""
    accumulator: Attribute
    mr: int
    nr: int
    a: PanelFormat
    b: PanelFormat
    depth: int
    """k per block."""
    panels: int = 1
    """Panels of B, `nr` columns each, that it multiplies at once."""
    instruction: str = ""
    """Of a dot product, in the table."""
    swapped: bool = False
    """It takes the elements of B first."""
    by_rows: bool = False
    """A panel of A, which lies in its array, is multiplied by all of B's before the next one is."""

    @property
    def in_place(self) -> bool:
        """Are rows of A so read where they lie, however many columns are beside them?"""
        return self.by_rows and not self.tiles

    @property
    def single(self) -> bool:
        """Does it multiply floats of one k, as they are in their arrays?"""
        return self.name == "fma"

    @property
    def tiles(self) -> bool:
        """Does it multiply tiles of AMX?"""
        return self.name.startswith("tdp")

    @property
    def group(self) -> int:
        """Depths come in multiples of this."""
        return max(self.a.group, self.b.group)


@frozen
class Fetch:
    """What a micro-kernel brings into a cache: with each step of k so many lines of a row, one after the other, and
    after `parts` steps the next row, `step` bytes further on."""

    pointer: SSAValue
    lines: int
    step: Idx = 0
    near: bool = False
    """Into the first cache instead of the second."""
    parts: int = 1

    def issue(self, b: Builder, k: Idx = 0) -> None:
        """The lines of a step."""
        row, part = b.div(k, self.parts), b.rem(k, self.parts)
        at = b.ptr(b.ptr(self.pointer, b.times(row, self.step)), b.times(part, 64 * self.lines))
        for line in range(self.lines):
            b.prefetch(b.ptr(at, 64 * line), locality=3 if self.near else 2)


@frozen
class FetchWhere:
    """Several of them, where there is something to fetch."""

    there: SSAValue
    fetches: Sequence[Fetch]

    def issue(self, b: Builder, k: Idx = 0) -> None:
        """The lines of a step."""
        with b.when(self.there):
            for each in self.fetches:
                each.issue(b, k)


@frozen
class Later:
    """What a workgroup will copy from its array into a panel for the next block of k, where it does (`here`): the
    address of the first row, and bytes between rows."""

    here: SSAValue
    pointer: SSAValue
    pitch: Idx


@frozen
class PanelOperand:
    """Where a micro-kernel finds an operand: address of element (0, 0), bytes to the next x and k group."""

    pointer: SSAValue
    x_bytes: Idx
    k_bytes: Idx
    next_bytes: Idx | None = None
    """Bytes from here to the panel that comes next, where panels follow one another."""
    below_bytes: Idx = 0
    """Bytes from here to the same x of the block of k that comes next, where it is in memory."""
    after_bytes: Idx = 0
    """The same to the panel's place in the next program along x, which reads other rows of A, in its first block."""
    later: Later | None = None
    lanes: Idx | None = None
    """x from here on that its array has, where that may be less than a panel: what stands behind them is not of it."""
    whole: Idx = 0
    """k up to which there is memory for the whole panel then."""
    copy: SSAValue | None = None
    """Where the micro-kernel leaves what it reads, as a panel: steps of tiles one after the other."""
