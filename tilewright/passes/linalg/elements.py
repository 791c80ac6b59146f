"""The body of a structured op on tiles: what its results need of it, each of its ops once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.linalg.ops import IndexOp
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dialects.elementwise import DIVISIONS, is_elementwise
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.linalg.accesses import Linear
from tilewright.passes.linalg.blocks import gather
from tilewright.passes.linalg.fusion import Node

if TYPE_CHECKING:
    from tilewright.passes.linalg.tiles import TileWriter

Bound = tuple[Linear | None, ...]
"""What each loop of an op is, in the loops of the program."""


class BodyOnTiles:
    """The body of an op on tiles: what its results need of it."""

    def __init__(
        self, tiles: TileWriter, node: Node, bound: Bound, values: Sequence[SSAValue | None]
    ) -> None:
        self.tiles, self.node, self.bound = tiles, node, bound
        self.known: dict[SSAValue, SSAValue] = {
            a: v for a, v in zip(node.body.arguments, values, strict=True) if v is not None
        }

    def of(self, *values: SSAValue) -> list[SSAValue]:
        return [self._value(v) for v in values]

    def _value(self, value: SSAValue) -> SSAValue:
        if value not in self.known:
            self.known[value] = self._made(value)
        return self.known[value]

    def _made(self, value: SSAValue) -> SSAValue:
        op = value.owner
        if not isinstance(op, Operation) or op.parent is not self.node.body.block:
            if isinstance(op, arith.ConstantOp):
                return self.tiles.at.add(op.clone())
            return self.tiles.argument(value, value.type)
        if isinstance(op, arith.ConstantOp):
            return self.tiles.at.add(op.clone())
        if isinstance(op, IndexOp):
            dim = op.properties["dim"]
            assert isinstance(dim, IntegerAttr)
            index = self.bound[dim.value.data]
            assert index is not None
            return self.tiles.position(index)
        if isinstance(op, memref.LoadOp):
            return gather(self.tiles, op.memref, self.of(*op.indices))
        if not is_elementwise(op):
            raise unsupported(
                op,
                f"{op.name} in the body of a structured op is no function of its elements",
                rule="a body has ops of arith and math, linalg.index, and loads",
                hint="what stores by computed indices is a kernel of its own",
            )
        operands = self.of(*op.operands)
        if (defined := self._defined(op)) is not None:
            operands[-1] = self.tiles.inside(operands[-1], defined)
        made = self.tiles.elementwise(op, operands)
        self.known.update(zip(op.results, made, strict=True))
        return self.known[value]

    def _defined(self, op: Operation) -> int | None:
        """What the last operand of an op is beyond the edges of a tile, where some numbers have no result: nobody
        wrote that program. None where all have."""
        if op.name in DIVISIONS:
            return 1
        if op.name in ("arith.shli", "arith.shrsi", "arith.shrui"):
            return 0
        return 0 if op.name in ("arith.fptosi", "arith.fptoui") and _has_poles(op) else None


def _has_poles(op: Operation) -> bool:
    """Whether what is computed in a body may be infinite, or no number, where its operands are 0."""
    makers = (v.owner for v in reached(op.operands, lambda v: operands_of(v, op.parent)))
    return any(
        isinstance(each, Operation) and each.parent is op.parent and each.name in _POLES
        for each in makers
    )


_POLES = (
    *("arith.divf", "arith.remf", "math.acosh", "math.fpowi", "math.log", "math.log10"),
    *("math.log2", "math.powf", "math.rsqrt"),
)
