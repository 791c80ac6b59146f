"""What stands past the end of an extent in a tile that reaches over it, and where it has to be masked.

Loads give 0 there. A product over k needs a zero on one side and something finite on the other; a sum needs zeros; any
other reduction its neutral element. What is not known to be so is masked.
"""

from __future__ import annotations

from tilewright.frozen import record
from tilewright.graph.costs import Tiling
from tilewright.graph.nest import Nest, Statement
from tilewright.graph.nodes import Access, Gather, Index, Operand, TiledEdge

ZERO_AT_ZERO = frozenset(
    ("copy", "cast", "neg", "add", "sub", "max", "min", "abs", "tanh", "erf", "sin", "sqrt", "floor", "ceil", "rint")
)  # fmt: skip
"""Operations that give 0 where all operands are 0."""

FINITE = ZERO_AT_ZERO - {"sqrt"} | {"mul", "mma", "cos", "sigmoid"}
"""Operations that give something finite where all operands are (which a value near the largest is not taken for)."""


@record
class Padding:
    """Questions about the elements of a nest's values past the end of an axis."""

    nest: Nest
    tiling: Tiling

    def is_padded(self, axis: str) -> bool:
        """Does the last tile along ``axis`` reach over the end?"""
        return axis in self.tiling.tiled and self.nest.extents[axis] % self.tiling.step[axis] != 0

    def to_mask(self, factors: tuple[TiledEdge, TiledEdge], axis: str) -> list[int]:
        """The operands of a product over ``axis`` that need a mask, by number."""
        if not self.is_padded(axis):
            return []
        zero = [self.is_zero(f, axis) for f in factors]
        finite = [self.is_finite(f) for f in factors]
        if (zero[0] and finite[1]) or (zero[1] and finite[0]):
            return []
        return [n for n in (0, 1) if not (zero[n] and finite[n])]

    def is_zero_term(self, statement: Statement, axis: str) -> bool:
        """Are the terms of a sum zero past the end?"""
        op, operands = statement.operation.op, statement.operation.operands
        if op in ZERO_AT_ZERO:
            return all(self.is_zero(o, axis) for o in operands)
        if op in ("mul", "mma"):
            zero = [self.is_zero(o, axis) for o in operands]
            finite = [self.is_finite(o) for o in operands]
            return (zero[0] and finite[1]) or (zero[1] and finite[0])
        return False

    def is_zero(self, operand: Operand, axis: str) -> bool:
        """Is an operand zero past the end of an axis?"""
        if not isinstance(operand, TiledEdge):
            return operand == 0
        name = operand.access.buffer
        if name not in self.nest.statements:
            return self.is_outside(operand.access, axis)
        statement = self.nest.statements[name]
        if axis not in statement.kept or statement.combine not in (None, "add"):
            return False
        return self.is_zero_term(statement, axis)

    def is_outside(self, access: Access, axis: str) -> bool:
        """Does a load past the end of an axis lie past the end of its Buffer, where loads give 0?"""
        for entry, size in zip(
            access.entries, self.nest.graph.buffers[access.buffer].shape, strict=True
        ):
            if isinstance(entry, Gather):
                if entry.index.buffer not in self.nest.statements and self.is_outside(
                    entry.index, axis
                ):
                    return True
            elif isinstance(entry, Index) and entry.at.coefficient(axis) == 1:
                least = entry.at.constant + self.nest.extents[axis]
                if least >= (size.number or 0) and all(factor > 0 for _, factor in entry.at.terms):
                    return True
        return False

    def is_finite(self, operand: Operand) -> bool:
        """Is an operand finite past the end, as far as what was loaded is?"""
        if not isinstance(operand, TiledEdge):
            return True
        name = operand.access.buffer
        if name not in self.nest.statements:
            return True
        statement = self.nest.statements[name]
        if statement.operation.op not in FINITE:
            return False
        return all(self.is_finite(o) for o in statement.operation.operands)
