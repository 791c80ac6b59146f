"""Which values share memory: buffers for the results of stage ops and for what loops carry.

Every tile-shaped value that must exist in memory is a *memory value*: results of `stage.fused` and `stage.contract`,
values carried by loops, results of branches. Values whose lives do not overlap may be one buffer; it pays where one is
made from the other: a contraction's result from its initial value, a loop's next value from the one before it. Such
pairs are merged when no value of the one class is alive while one of the other is; what cannot be merged is copied.

Lives are intervals of positions in program order; a value from outside a loop that is used inside lives to its end.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.codegen.tiles import element_of, rows_cols
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, FusedOp
from tilewright.dialects.nesting import blocks_in, terminator
from tilewright.frozen import field, record
from tilewright.passes.carried import LOOPS_AND_BRANCHES, reached

MOVERS = (xt.TransposeOp, xt.ReductionOp)
_HOLDERS = (FusedOp, ContractOp, *LOOPS_AND_BRANCHES)
"""Ops whose results have buffers of their own."""


@record
class Class:
    """Values that share one buffer."""

    values: list[SSAValue] = field(default_factory=list[SSAValue])


def is_tile(value: SSAValue) -> bool:
    return isinstance(value.type, VectorType)


class Storage:
    """The classes of one function."""

    def __init__(self, body: Block, *, share: bool = True):
        self.start: dict[Operation, int] = {}
        self.end: dict[Operation, int] = {}
        self._count = 0
        self._number(body)
        self.classes: dict[SSAValue, Class] = {}
        self._pairs: list[tuple[SSAValue, SSAValue]] = []
        self._lives: dict[SSAValue, tuple[int, int]] = {}
        self._collect(body)
        for x, y in self._pairs if share else ():
            self.merge(x, y)

    def _number(self, block: Block) -> None:
        for op in block.ops:
            self._count += 1
            self.start[op] = self._count
            for inner in blocks_in(op):
                self._number(inner)
            self._count += 1
            self.end[op] = self._count

    def _add(self, *values: SSAValue) -> None:
        """Values that share a buffer whatever happens."""
        tiles = [v for v in values if is_tile(v)]
        if tiles:
            shared = Class(tiles)
            for value in tiles:
                self.classes[value] = shared

    def _collect(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, FusedOp):
                for result in op.results:
                    self._add(result)
            elif isinstance(op, ContractOp):
                for init, result in zip(op.inits, op.values, strict=True):
                    self._add(result)
                    self._pairs.append((init, result))
            elif isinstance(op, scf.ForOp):
                body = op.body.block
                last = terminator(body)
                for init, arg, result, out in zip(
                    op.iter_args, body.args[1:], op.results, last.operands, strict=True
                ):
                    self._add(arg, result)
                    self._pairs += [(out, arg), (init, arg)]
                self._collect(body)
            elif isinstance(op, scf.WhileOp):
                before, after = op.before_region.block, op.after_region.block
                last = terminator(after)
                for init, arg, out in zip(op.arguments, before.args, last.operands, strict=True):
                    self._add(arg)
                    self._pairs += [(out, arg), (init, arg)]
                for arg, result in zip(after.args, op.results, strict=True):
                    self._add(arg, result)
                self._collect(before)
                self._collect(after)
            elif isinstance(op, scf.IfOp):
                for i, result in enumerate(op.results):
                    self._add(result)
                    for region in op.regions:
                        if region.blocks and region.block.last_op is not None:
                            self._pairs.append((region.block.last_op.operands[i], result))
                for inner in blocks_in(op):
                    self._collect(inner)

    # Lives ----------------------------------------------------------------------------------------------------

    def life(self, value: SSAValue) -> tuple[int, int]:
        """Positions from definition to last use."""
        if value not in self._lives:
            self._lives[value] = self._life(value)
        return self._lives[value]

    def _life(self, value: SSAValue) -> tuple[int, int]:
        if isinstance(value, OpResult):
            home, first = value.op.parent, self.end[value.op]
        else:
            assert isinstance(value, BlockArgument)
            home = value.block
            parent = home.parent_op()
            assert parent is not None
            first = self.start.get(parent, 0)
        assert home is not None
        last = first
        for use in value.uses:
            if use.operation in self.start:
                inside = home.find_ancestor_op_in_block(use.operation)
                last = max(last, self.use_point(inside or use.operation, value))
        for result in self.made_where_used(value):
            last = max(last, self.life(result)[1])
        return first, last

    def made_where_used(self, value: SSAValue) -> list[SSAValue]:
        """Results without a buffer of ops on a value (broadcasts): they read it where they are used."""
        return [
            result
            for use in value.uses
            if use.operation in self.start
            and not isinstance(use.operation, _HOLDERS)
            and not isinstance(use.operation.parent_op(), FusedOp | ContractOp)
            for result in use.operation.results
            if is_tile(result) and result not in self.classes
        ]

    def read_through(self, value: SSAValue, fused: FusedOp) -> bool:
        """Does a fused group read a value through one that is made from it outside?"""
        apart = [r for r in self.made_where_used(value) if not fused.is_ancestor(r.owner)]  # pyright: ignore
        values = reached(apart, self.made_where_used)
        return any(fused.is_ancestor(use.operation) for v in values for use in v.uses)

    def use_point(self, op: Operation, value: SSAValue) -> int:
        """A use as an operand ends before the op's regions run; a use inside lives to its end."""
        direct = any(v is value for v in op.operands)
        inside = isinstance(op, FusedOp | ContractOp) or any(
            use.operation is not op and op.is_ancestor(use.operation) for use in value.uses
        )
        return self.end[op] if inside or not direct else self.start[op]

    def merge(self, x: SSAValue, y: SSAValue) -> None:
        """Let two values share their buffer if their classes allow it."""
        a, b = self.classes.get(x), self.classes.get(y)
        if a is None or b is None or a is b:
            return
        if rows_cols(x.type) != rows_cols(y.type) or element_of(x.type) != element_of(y.type):
            return
        for u in a.values:
            for v in b.values:
                if self.interfere(u, v):
                    return
        a.values += b.values
        for v in b.values:
            self.classes[v] = a

    def interfere(self, u: SSAValue, v: SSAValue) -> bool:
        """Are both needed at some point?"""
        (u0, u1), (v0, v1) = self.life(u), self.life(v)
        if u0 == v0:
            # Arguments of a block, results of an op: both are written, also what nobody reads.
            return True
        if u1 < v0 or v1 < u0:
            return False
        if u1 == v0 or v1 == u0:
            older, newer = (u, v) if u1 == v0 else (v, u)
            op = newer.owner
            if isinstance(op, ContractOp):
                index = list(op.values).index(newer)  # pyright: ignore
                inside = any(
                    op.is_ancestor(use.operation) for use in older.uses if use.operation is not op
                )
                return (
                    inside or sum(v is older for v in op.inits) != 1 or op.inits[index] is not older
                )
            if isinstance(op, FusedOp):
                return self.read_through(older, op) or not in_place(op, older, newer)
            return False
        return True


def in_place(fused: FusedOp, older: SSAValue, newer: SSAValue) -> bool:
    """May the fused group write its result `newer` over `older`, which it reads?

    Yes if every element of `older` is read for the last time where the same element of `newer` is written: nothing that
    moves elements reads it, and whatever depends on it is finished no later than `newer`. Of a level, columns are
    finished before the rest.
    """

    def turn(value: SSAValue, level: int) -> tuple[int, bool]:
        return level, rows_cols(value.type)[1] > 1

    levels: dict[SSAValue, int] = {}
    touched: set[SSAValue] = {older}
    late = (-1, False)
    last = terminator(fused.body.block)
    target = last.operands[list(fused.values).index(newer)]  # pyright: ignore
    roots: list[SSAValue] = []
    for op in fused.body.block.ops:
        if op is last:
            continue
        level = max((levels.get(v, 0) for v in op.operands), default=0)
        reads = any(v in touched for v in op.operands)
        if reads and (
            isinstance(op, xt.AtomicRmwOp) or op.name in ("vector.transpose", "vector.shape_cast")
        ):
            return False
        if (
            reads
            and isinstance(op, MOVERS)
            and not (
                isinstance(op, xt.ReductionOp) and op.dims == (1,) and op.reduction_size is None
            )
        ):
            return False
        if isinstance(op, xt.ReductionOp):
            if reads:
                late = max(late, turn(op.source, level))
            level += 1
        else:
            for result in op.results:
                if reads:
                    touched.add(result)
            if reads and not op.results:
                roots.append(op.operands[0])
        for result in op.results:
            levels[result] = level
    roots += [v for v in last.operands if v in touched and v is not target]
    mine = turn(target, levels.get(target, 0))
    if late > mine or any(turn(v, levels.get(v, 0)) > mine for v in roots):
        return False
    return target in touched or (not roots and late < mine)
