"""Programs of one row each, seen as programs of longer tiles.

    %x = load_tile %X[%m, 0] : 1x256        %x = load_tile %X[%m, 0] : 1x256      (a row of its own in each program)
    %w = load_tile %W[0, 0] : 1x256         %w = load_tile %W[0, 0] : 1x256       (one that they share)
                                     ->     %v = xetile.broadcast %w [0] : 1x256
    %y = arith.mulf %x, %w                  %y = arith.mulf %x, %v

Of a tile of one row its type does not say whether a program's neighbour has another row or the same one: both are
`1x256`. What is computed from tiles that the program's number places has a row of its own. What else meets it is
repeated: once to begin with, as often as there are rows where they become more.

Requires: workgroup level. Guarantees: nothing of the kernel's meaning changes. Rows that loops or branches carry, or
that are rearranged, stay what they are.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import DenseArrayBase, VectorType, i64
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import is_elementwise
from tilewright.frozen import frozen
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.axes import shape_of
from tilewright.passes.carried import LOOPS_AND_BRANCHES
from tilewright.passes.emit import Before
from tilewright.passes.split_workgroups import SplitChoice


@frozen
class UnitRows:
    """Rows of their own, one each, of programs that follow one another along an axis of the grid."""

    own: set[SSAValue]
    """Tiles and vectors that have them."""
    shared: list[tuple[Operation, SSAValue]]
    """Rows that meet those, and where."""

    @property
    def choice(self) -> SplitChoice:
        return SplitChoice(tuple((value, 0) for value in self.own), 1)

    def repeat(self) -> None:
        """Gives each program what it shares with others as a row of its own."""
        for op, value in self.shared:
            properties = {"broadcast_dim": DenseArrayBase.from_list(i64, [0])}
            row = xt.BroadcastOp.create(
                operands=[value], result_types=[value.type], properties=properties
            )
            many = Before(op).add(row)
            value.replace_uses_with_if(many, lambda use, at=op: use.operation is at)
            self.own.add(many)


def unit_rows(kernel: gpu.FuncOp, analysis: AccessAnalysis, axis: int) -> UnitRows | None:
    """Those along an axis; None where there are none, or not all that is made of them is known."""
    symbol = analysis.program_id(axis)
    own: set[SSAValue] = {
        access.origin.result
        for access in analysis.accesses
        if not access.scattered and access.offsets[-2].depends_on(symbol)
    }
    shared: dict[tuple[Operation, SSAValue], None] = {}
    for op in kernel.walk() if own else ():
        mine = [v for v in op.operands if v in own]
        if not mine:
            continue
        if not _keeps_rows(op) or any((shape_of(v) or (0,))[0] != 1 for v in mine):
            return None
        for v in op.operands:
            if v in own:
                continue
            if isinstance(v.type, xt.TileType):
                return None  # several rows stored at one place
            if isinstance(v.type, VectorType):
                shared[op, v] = None
        own.update(op.results)
    return UnitRows(own, list(shared)) if own else None


def _keeps_rows(op: Operation) -> bool:
    """Is each row of the results computed from that row of the operands?"""
    if isinstance(op, LOOPS_AND_BRANCHES):
        return False
    if isinstance(op, xt.LoadTileOp):
        return len(op.values) == 1
    if isinstance(op, xt.ReductionOp):
        return op.dims == (1,) and op.reduction_size is None
    if isinstance(op, xt.BroadcastOp):
        return op.dims == (1,) and op.broadcast_size is None
    known = (xt.StoreTileOp, xt.ConvertLayoutOp, xt.PrefetchTileOp)
    return isinstance(op, known) or is_elementwise(op)
