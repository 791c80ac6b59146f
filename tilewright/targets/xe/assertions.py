"""Assertions: nothing stops a program, so one that fails leaves its number where the launch looks.

    cf.assert %c, "message"    ->    scf.if (not %c) { mach.atomic_rmw "minu" %number, %failed[i] }

A scalar division of the program's text (`mark_divisions`; those that passes write have no divisor of 0, and elements of
tiles divide as they will) asserts that its divisor is not 0, and goes on as a division by 1.

The kernel has one more argument where it asserts something: a 32-bit word for each assertion, whose bits are all set
before the launch. Afterwards a word holds the lowest number of a program whose assertion failed:
((z * programs along y + y) * programs along x + x) * subgroups of a workgroup + subgroup.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, cf, gpu
from xdsl.dialects.builtin import StringAttr, UnitAttr, VectorType, i1, i32
from xdsl.ir import Operation, SSAValue

from tilewright.arguments import Grid
from tilewright.diagnostics import CheckError
from tilewright.dialects import mach
from tilewright.dialects.elementwise import DIVISIONS
from tilewright.passes.integers import bounds
from tilewright.targets.failed_programs import failure, text_of
from tilewright.targets.xe.building import GLOBAL, LaneBuilder

HELD = 0xFFFFFFFF
"""A word whose assertion held in every program."""


KIND = "tilewright.kind"
"""On an assertion that a pass writes: what failed, in place of the assertion."""
DIVISION = "tilewright.division"
"""On a scalar division of the program's text: its divisor may be 0."""


def mark_divisions(kernel: gpu.FuncOp) -> None:
    """Marks the scalar divisions of integers whose divisor is not known to differ from 0."""
    for op in kernel.walk():
        if op.name in DIVISIONS and not isinstance(op.results[0].type, VectorType):
            low, high = bounds(op.operands[1])
            if not (low is not None and low > 0) and not (high is not None and high < 0):
                op.attributes[DIVISION] = UnitAttr()


class Assertions:
    """The assertions of a kernel that is being lowered: the text of each, and its word."""

    def __init__(self, b: LaneBuilder, subgroups: int):
        self.b, self.subgroups = b, subgroups
        self.words: dict[str, int] = {}
        self._failed: SSAValue | None = None

    def lower(self, op: cf.AssertOp) -> None:
        kind = op.attributes.get(KIND)
        told = kind.data if isinstance(kind, StringAttr) else "assertion failed"
        self._tell_unless(op.arg, text_of(op, told, op.msg.data))

    def divide(self, op: Operation) -> None:
        """A division that is marked is defined by every divisor, and tells of 0."""
        b, by = self.b, op.operands[1]
        del op.attributes[DIVISION]
        fine = b.add(arith.CmpiOp(by, b.constant(by.type, 0), "ne"))
        self._tell_unless(fine, text_of(op, "integer division by zero"))
        op.operands[1] = b.add(arith.SelectOp(fine, by, b.constant(by.type, 1)))

    def _tell_unless(self, holds: SSAValue, text: str) -> None:
        b = self.b
        word = self.words.setdefault(text, len(self.words))
        if self._failed is None:
            self._failed = b.entry.insert_arg(GLOBAL, len(b.entry.args))
            self._failed.name_hint = "failed"
        place = self._failed
        fails = b.add(arith.XOrIOp(holds, b.constant(i1, 1)))

        def tell() -> None:
            at = b.address(place, 4 * word)
            number = b.add(arith.IndexCastOp(self._program(), i32))
            b.insert(mach.AtomicRmwOp("minu", number, at, ordering="monotonic", scope="device"))

        b.choose(fails, [], tell)

    def _program(self) -> SSAValue:
        """The number of this subgroup's program."""
        b = self.b
        x, y, z = (b.add(gpu.BlockIdOp(gpu.DimensionAttr(d))) for d in _DIMENSIONS)
        columns, rows, _ = (b.add(gpu.GridDimOp(gpu.DimensionAttr(d))) for d in _DIMENSIONS)
        number = b.plus(b.times(b.plus(b.times(z, rows), y), columns), x)
        if self.subgroups > 1:
            number = b.plus(b.times(number, self.subgroups), b.add(gpu.SubgroupIdOp()))
        return b.idx(number)


_DIMENSIONS = (gpu.DimensionEnum.X, gpu.DimensionEnum.Y, gpu.DimensionEnum.Z)


def failed(
    texts: Sequence[str], words: Sequence[int], grid: Grid, subgroups: int, whole: bool
) -> CheckError | None:
    """The error of a launch that left these words: that of the first program that failed, in the order of the grid, and
    of its assertions the first in the text. `whole`: subgroups do together what the kernel says of a workgroup."""
    number, text = min(zip(words, texts, strict=True), key=lambda pair: pair[0])
    if number == HELD:
        return None
    program, subgroup = divmod(number, subgroups)
    row, x = divmod(program, grid[0])
    z, y = divmod(row, grid[1])
    if whole:
        return failure((z, y, x), text, 1)
    return failure((z, y, x * subgroups + subgroup), text, subgroups)
