"""Descriptors and tiles as what they are: a base that stays, and a position that moves.

A descriptor (or tile) that is created with offsets, moved by update ops and carried through loops is
split into the op that made it and a list of numbers, its position. Loops and ifs then carry the position:

    %t0 = create_nd_tdesc %m[%i, 0]                    %t = create_nd_tdesc %m
    scf.for .. iter_args(%t = %t0) {                   scf.for .. iter_args(%x = %i, %y = 0) {
      %v = load_nd %t                          ->        %v = load_nd %t[%x, %y]
      %u = update_nd_offset %t, [0, 32]                  %y2 = arith.addi %y, 32
      scf.yield %u }                                     scf.yield %x, %y2 }

Who uses it says what a root, a move and an access are (`Client`). Requires: all descriptors that meet at a
loop or an if are of one base; others are refused. Guarantees: no op moves or carries a descriptor any
more; coordinates that a loop never changes are not carried. scf.for, scf.if and scf.while are handled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IndexType, IntegerAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects.upstream.arith import constant, folded
from tilewright.dialects.xetile.assembly import Index


@dataclass
class Placed:
    """A descriptor at a position: `root` is the op or block argument that it began as."""

    root: SSAValue
    parts: list[Index]
    """Coordinates in elements, or the single vector of offsets of a scattered descriptor."""


class Client(Protocol):
    """What the ops of a dialect mean to the rewriting."""

    def is_moving(self, type: Attribute) -> bool:
        """Is a value of this type split into base and position?"""
        ...

    def root(self, op: Operation) -> Placed | None:
        """The position that a creating op gives its result; None if the op does not create one.

        The client may replace the op; `Placed.root` is then the new value.
        """
        ...

    def moved(self, op: Operation, operand: Placed) -> list[Index] | None:
        """The distance by which an op moves its operand; None if the op does not move."""
        ...

    def access(self, op: Operation, placed: dict[int, Placed]) -> None:
        """Rewrites an op that uses descriptors; `placed` has them by operand number."""
        ...


def materialize(index: Index, at: InsertPoint) -> SSAValue:
    """An index as an SSA value."""
    if isinstance(index, SSAValue):
        return index
    op = arith.ConstantOp(IntegerAttr(index, IndexType()))
    Rewriter.insert_op(op, at)
    return op.result


def _is_zero(value: Index) -> bool:
    if isinstance(value, int):
        return value == 0
    if constant(value) == 0:
        return True
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, DenseIntOrFPElementsAttr):
        numbers = owner.value.get_values()
        return all(number == 0 for number in numbers)
    return False


def add(a: Index, b: Index, at: Operation) -> Index:
    """The sum of two coordinates, folded where that needs no op."""
    if _is_zero(b):
        return a
    if _is_zero(a):
        return b
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    point = InsertPoint.before(at)
    left, right = materialize(a, point), materialize(b, point)
    if left.type != right.type:
        raise error_at(
            at, f"offsets of types {left.type} and {right.type} are added", kind=UnsupportedError
        )
    op = arith.AddiOp(left, right)
    op.location = at.location
    Rewriter.insert_op(op, point)
    return op.result


class PositionRewriter:
    """Applies a client to a region."""

    def __init__(self, client: Client):
        self.client = client
        self.placed: dict[SSAValue, Placed] = {}
        self._dead: list[Operation] = []

    def run(self, region: Region) -> None:
        self._region(region)
        for op in reversed(self._dead):
            if op.parent is not None and not any(result.first_use for result in op.results):
                Rewriter.erase_op(op)

    def _region(self, region: Region) -> None:
        for block in region.blocks:
            for argument in block.args:
                if self.client.is_moving(argument.type) and argument not in self.placed:
                    where = block.first_op or block.parent_op()
                    assert where is not None
                    raise error_at(
                        where,
                        f"a value of type {argument.type} enters this block from elsewhere; only "
                        "scf.for, scf.while and scf.if may carry one",
                        kind=UnsupportedError,
                    )
            self._block(block)

    def _block(self, block: Block) -> None:
        for op in list(block.ops):
            self._op(op)

    def _op(self, op: Operation) -> None:
        if (created := self.client.root(op)) is not None:
            self.placed[op.results[0]] = created
            self._dead.append(op)
            return
        used = {n: self.placed[v] for n, v in enumerate(op.operands) if v in self.placed}
        if used and (distance := self.client.moved(op, used[min(used)])) is not None:
            here = used[min(used)]
            parts = _aligned_sum(here.parts, distance, op)
            self.placed[op.results[0]] = Placed(here.root, parts)
            self._dead.append(op)
            return
        if isinstance(op, (scf.ForOp, scf.IfOp, scf.WhileOp)):
            self._structured(op)
            return
        if used and not isinstance(op, (scf.YieldOp, scf.ConditionOp)):
            self.client.access(op, used)
            return
        for region in op.regions:
            self._region(region)

    # --- Structured control flow ---------------------------------------------------------

    def _structured(self, op: scf.ForOp | scf.IfOp | scf.WhileOp) -> None:
        match op:
            case scf.ForOp():
                self._for(op)
            case scf.WhileOp():
                self._while(op)
            case scf.IfOp():
                self._if(op)

    def _for(self, loop: scf.ForOp) -> None:
        body = loop.body.block
        moving = [n for n, v in enumerate(loop.iter_args) if v in self.placed]
        if not moving:
            self._block(body)
            return
        starts = [self.placed[loop.iter_args[n]] for n in moving]
        names = [body.args[n + 1].name_hint for n in moving]
        inside = self._open_block(body, [n + 1 for n in moving], starts, names)
        self._block(body)
        terminator = body.last_op
        assert isinstance(terminator, scf.YieldOp)
        ends = [self._placed_at(terminator, terminator.operands[n]) for n in moving]
        carried = self._carried(loop, starts, inside, ends)
        kept = [n for n in range(len(loop.iter_args)) if n not in moving]
        point = InsertPoint.before(loop)
        inits = [loop.iter_args[n] for n in kept]
        inits += [materialize(starts[d].parts[p], point) for d, p in carried]
        self._close_block(body, inside, carried, starts)
        new_yields = [terminator.operands[n] for n in kept]
        new_yields += [
            materialize(ends[d].parts[p], InsertPoint.before(terminator)) for d, p in carried
        ]
        _replace_terminator(terminator, scf.YieldOp(*new_yields))
        for argument in sorted((body.args[n + 1] for n in moving), key=lambda a: -a.index):
            argument.block.erase_arg(argument, safe_erase=False)
        region = loop.detach_region(loop.body)
        new = scf.ForOp(loop.lb, loop.ub, loop.step, inits, region)
        self._finish(loop, new, kept, moving, starts, carried)

    def _while(self, loop: scf.WhileOp) -> None:
        before, after = loop.before_region.block, loop.after_region.block
        moving = [n for n, v in enumerate(loop.arguments) if v in self.placed]
        passed = [n for n, arg in enumerate(after.args) if self.client.is_moving(arg.type)]
        if not moving and not passed:
            self._block(before)
            self._block(after)
            return
        kept = [n for n in range(len(loop.arguments)) if n not in moving]
        kept_after = [n for n in range(len(after.args)) if n not in passed]
        starts = [self.placed[loop.arguments[n]] for n in moving]
        hints = [before.args[n].name_hint for n in moving]
        self._open_block(before, moving, starts, hints)
        self._block(before)
        condition = before.last_op
        assert isinstance(condition, scf.ConditionOp)
        middle = [self._placed_at(condition, condition.args[n]) for n in passed]
        hints = [after.args[n].name_hint for n in passed]
        self._open_block(after, passed, middle, hints)
        self._block(after)
        terminator = after.last_op
        assert isinstance(terminator, scf.YieldOp)
        ends = [self._placed_at(terminator, terminator.operands[n]) for n in moving]
        # Every coordinate is carried: what stays the same is found by canonicalisation.
        carried = [(d, p) for d, start in enumerate(starts) for p in range(len(start.parts))]
        handed = [(d, p) for d, start in enumerate(middle) for p in range(len(start.parts))]
        self._check_roots(loop, starts, ends)
        point = InsertPoint.before(loop)
        inits = [loop.arguments[n] for n in kept]
        inits += [materialize(starts[d].parts[p], point) for d, p in carried]
        at_condition = InsertPoint.before(condition)
        conditions = [condition.args[n] for n in kept_after]
        conditions += [materialize(middle[d].parts[p], at_condition) for d, p in handed]
        _replace_terminator(condition, scf.ConditionOp(condition.condition, *conditions))
        at_yield = InsertPoint.before(terminator)
        yields = [terminator.operands[n] for n in kept]
        yields += [materialize(ends[d].parts[p], at_yield) for d, p in carried]
        _replace_terminator(terminator, scf.YieldOp(*yields))
        for block, numbers in ((before, moving), (after, passed)):
            for argument in sorted((block.args[n] for n in numbers), key=lambda a: -a.index):
                argument.block.erase_arg(argument, safe_erase=False)
        types = [loop.results[n].type for n in kept_after]
        types += [_type_of(middle[d].parts[p]) for d, p in handed]
        regions = [loop.detach_region(r) for r in (loop.before_region, loop.after_region)]
        new = scf.WhileOp(inits, types, regions[0], regions[1])
        self._finish(loop, new, kept_after, passed, middle, handed)

    def _if(self, op: scf.IfOp) -> None:
        for region in op.regions:
            for block in region.blocks:
                self._block(block)
        moving = [n for n, r in enumerate(op.results) if self.client.is_moving(r.type)]
        if not moving:
            return
        branches: list[list[Placed]] = []
        terminators: list[Operation] = []
        for region in op.regions:
            terminator = region.block.last_op
            assert isinstance(terminator, scf.YieldOp)
            terminators.append(terminator)
            branches.append([self._placed_at(terminator, terminator.operands[n]) for n in moving])
        self._check_roots(op, *branches)
        carried = [
            (d, p)
            for d, start in enumerate(branches[0])
            for p in range(len(start.parts))
            if any(branch[d].parts[p] is not start.parts[p] for branch in branches)
        ]
        kept = [n for n in range(len(op.results)) if n not in moving]
        types = [op.results[n].type for n in kept]
        types += [_type_of(branches[0][d].parts[p]) for d, p in carried]
        for terminator, branch in zip(terminators, branches, strict=True):
            at = InsertPoint.before(terminator)
            yields = [terminator.operands[n] for n in kept]
            yields += [materialize(branch[d].parts[p], at) for d, p in carried]
            _replace_terminator(terminator, scf.YieldOp(*yields))
        then, otherwise = [op.detach_region(region) for region in list(op.regions)]
        new = scf.IfOp(op.cond, types, then, otherwise)
        self._finish(op, new, kept, moving, branches[0], carried)

    # --- Helpers ---------------------------------------------------------------------------

    def _placed_at(self, terminator: Operation, value: SSAValue) -> Placed:
        if value not in self.placed:
            raise error_at(
                terminator, f"the position of this {value.type} is unknown", kind=UnsupportedError
            )
        return self.placed[value]

    def _open_block(
        self, block: Block, numbers: Sequence[int], starts: list[Placed], names: list[str | None]
    ) -> list[Placed]:
        """Adds an argument per coordinate and places the descriptors of the block at them."""
        inside: list[Placed] = []
        for number, start, name in zip(numbers, starts, names, strict=True):
            parts: list[Index] = []
            for part, value in enumerate(start.parts):
                argument = block.insert_arg(_type_of(value), len(block.args))
                argument.name_hint = None if name is None else f"{name}_{part}"
                parts.append(argument)
            placed = Placed(start.root, parts)
            self.placed[block.args[number]] = placed
            inside.append(placed)
        return inside

    def _carried(
        self,
        op: Operation,
        starts: list[Placed],
        inside: list[Placed],
        ends: list[Placed],
    ) -> list[tuple[int, int]]:
        """(descriptor, coordinate) that the loop changes."""
        self._check_roots(op, starts, ends)
        return [
            (d, p)
            for d, start in enumerate(starts)
            for p in range(len(start.parts))
            if ends[d].parts[p] is not inside[d].parts[p]
        ]

    def _close_block(
        self,
        block: Block,
        inside: list[Placed],
        carried: list[tuple[int, int]],
        starts: list[Placed],
    ) -> None:
        """Removes the arguments of coordinates that the loop leaves alone."""
        for d, placed in enumerate(inside):
            for p, argument in enumerate(placed.parts):
                if (d, p) in carried or not isinstance(argument, BlockArgument):
                    continue
                first = block.first_op
                assert first is not None
                start = starts[d].parts[p]
                value = materialize(start, InsertPoint.before(first))
                argument.replace_all_uses_with(value)
                for other in self.placed.values():
                    other.parts = [start if part is argument else part for part in other.parts]
                block.erase_arg(argument)
                if value.first_use is None and isinstance(value.owner, arith.ConstantOp):
                    Rewriter.erase_op(value.owner)

    def _check_roots(self, op: Operation, first: list[Placed], *others: list[Placed]) -> None:
        for other in others:
            for a, b in zip(first, other, strict=True):
                if not _meet(a.root, b.root, op) or len(a.parts) != len(b.parts):
                    raise error_at(
                        op,
                        "descriptors of two different bases reach this value, so there is no single "
                        "position to carry",
                        kind=UnsupportedError,
                    )

    def _finish(
        self,
        old: Operation,
        new: Operation,
        kept: list[int],
        moving: list[int],
        placed: list[Placed],
        carried: list[tuple[int, int]],
    ) -> None:
        """Puts the rebuilt op into its place and gives its results their meaning."""
        new.attributes |= old.attributes
        new.location = old.location
        Rewriter.insert_op(new, InsertPoint.before(old))
        for number, n in enumerate(kept):
            new.results[number].name_hint = old.results[n].name_hint
            old.results[n].replace_all_uses_with(new.results[number])
        for d, n in enumerate(moving):
            parts = list(placed[d].parts)
            for number, (which, p) in enumerate(carried):
                if which == d:
                    parts[p] = new.results[len(kept) + number]
            self.placed[old.results[n]] = Placed(placed[d].root, parts)
        # The shell stays until the walk has rewritten every use of the descriptors that it gave.
        self._dead.append(old)


def _meet(a: SSAValue, b: SSAValue, op: Operation) -> bool:
    """Are two descriptors of one base, of which the first is known before the op at which they meet?"""
    makes, other = a.owner, b.owner
    if a is not b and not (
        isinstance(makes, Operation)
        and isinstance(other, Operation)
        and a.type == b.type
        and (makes.name, makes.properties) == (other.name, other.properties)
        and [folded(v) for v in makes.operands] == [folded(v) for v in other.operands]
    ):
        return False
    if isinstance(makes, Operation) and op.is_ancestor(makes):
        if any(_within(op, v) for v in makes.operands):
            return False
        makes.detach()
        Rewriter.insert_op(makes, InsertPoint.before(op))
    return True


def _within(op: Operation, value: SSAValue) -> bool:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    parent = None if block is None else block.parent_op()
    return parent is not None and op.is_ancestor(parent)


def _aligned_sum(parts: list[Index], distance: list[Index], at: Operation) -> list[Index]:
    """Coordinate-wise sum; a shorter list counts the innermost dimensions."""
    length = max(len(parts), len(distance))
    left: list[Index] = [*([0] * (length - len(parts))), *parts]
    right: list[Index] = [*([0] * (length - len(distance))), *distance]
    return [add(a, b, at) for a, b in zip(left, right, strict=True)]


def _type_of(index: Index) -> Attribute:
    return index.type if isinstance(index, SSAValue) else IndexType()


def _replace_terminator(old: Operation, new: Operation) -> None:
    new.location = old.location
    Rewriter.insert_op(new, InsertPoint.before(old))
    Rewriter.erase_op(old)
