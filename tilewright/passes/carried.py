"""Values that control flow makes one: what a loop carries under several names, what the sides of a branch give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright.dialects.nesting import terminator

LOOPS = (scf.ForOp, scf.WhileOp)
LOOPS_AND_BRANCHES = (*LOOPS, scf.IfOp)

Given = tuple[Operation, int]
"""An operand: of an op, the one of this number."""


def given_as(op: Operation) -> Iterator[tuple[list[Given], tuple[SSAValue, ...]]]:
    """What an scf op makes one: operands of it and of the ops that end its regions, and the names that they get, the
    result first. Nothing for any other op.
    """
    if isinstance(op, scf.ForOp):
        last = terminator(op.body.block)
        for n, names in enumerate(zip(op.results, op.body.block.args[1:], strict=True)):
            yield [(op, 3 + n), (last, n)], names
    elif isinstance(op, scf.WhileOp):
        before, after = op.before_region.block, op.after_region.block
        condition, last = terminator(before), terminator(after)
        for n, argument in enumerate(before.args):
            yield [(op, n), (last, n)], (argument,)
        for n, names in enumerate(zip(op.results, after.args, strict=True)):
            yield [(condition, 1 + n)], names
    elif isinstance(op, scf.IfOp):
        ends = [terminator(r.block) for r in op.regions if r.blocks]
        for n, result in enumerate(op.results):
            yield [(end, n) for end in ends], (result,)


def carried_together(op: Operation) -> Iterator[tuple[SSAValue, ...]]:
    """Groups of values of an scf op that are names of one value: (initial, yielded, result, argument) of a loop,
    (yielded .., result) of a branch. Nothing for any other op.
    """
    for given, names in given_as(op):
        yield (*(user.operands[n] for user, n in given), *names)


def names_of(op: scf.ForOp | scf.IfOp, number: int) -> tuple[SSAValue, ...]:
    """One of the groups of `carried_together`: of the result of this number."""
    return next(islice(carried_together(op), number, None))


def given_by(value: SSAValue) -> tuple[SSAValue, ...]:
    """The values that control flow makes a value of: the initial one and that of the iteration before, those
    of the sides of a branch. Nothing for counters of loops, what a loop that is being built has no start or no end for
    yet, and what else is no matter of control flow.
    """
    if isinstance(value, BlockArgument):
        match value.block.parent_op():
            case scf.ForOp() as op if 0 < value.index <= len(op.iter_args):
                last, n = value.block.last_op, value.index - 1
                return (op.iter_args[n], last.operands[n]) if isinstance(last, scf.YieldOp) else ()
            case scf.WhileOp() as op if value.block is op.before_region.block:
                if value.index >= len(op.arguments):
                    return ()
                following = terminator(op.after_region.block).operands[value.index]
                return op.arguments[value.index], following
            case scf.WhileOp() as op:
                return tuple(terminator(op.before_region.block).operands[value.index + 1 :][:1])
            case _:
                return ()
    assert isinstance(value, OpResult)
    match value.op:
        case scf.ForOp() as op:
            return op.iter_args[value.index], terminator(op.body.block).operands[value.index]
        case scf.WhileOp() as op:
            return (terminator(op.before_region.block).operands[value.index + 1],)
        case scf.IfOp() as op:
            return tuple(terminator(region.block).operands[value.index] for region in op.regions)
        case _:
            return ()


def reached(
    start: Iterable[SSAValue], step: Callable[[SSAValue], Iterable[SSAValue]]
) -> dict[SSAValue, None]:
    """The values at the start, and all that step after step leads to, each once."""
    found = dict.fromkeys(start)
    work = list(found)
    while work:
        new = [v for v in dict.fromkeys(step(work.pop())) if v not in found]
        found.update(dict.fromkeys(new))
        work.extend(new)
    return found


def origins(
    start: Iterable[SSAValue], step: Callable[[SSAValue], Iterable[SSAValue]]
) -> list[SSAValue]:
    """Of what `reached` gives, the values that no step leads on from."""
    return [value for value in reached(start, step) if not tuple(step(value))]


def operands_of(value: SSAValue, block: Block | None = None) -> Sequence[SSAValue]:
    """The operands of the op that makes a value; nothing where it is none, or stands in another block than this."""
    op = value.owner
    return op.operands if isinstance(op, Operation) and block in (None, op.parent) else ()


def behind(value: SSAValue, constants: bool = False) -> InsertPoint:
    """Right behind the op that makes a value, or where the block of an argument begins: behind the `constants` that it
    begins with, for ops that use them."""
    owner = value.owner
    if isinstance(owner, Operation):
        return InsertPoint.after(owner)
    first = owner.first_op
    while constants and isinstance(first, arith.ConstantOp):
        first = first.next_op
    return InsertPoint.at_end(owner) if first is None else InsertPoint.before(first)


def earlier(a: Operation, b: Operation) -> Operation:
    """Of two ops of a block the one that stands first."""
    return b if b.is_before_in_block(a) else a


def later(a: Operation, b: Operation) -> Operation:
    """Of two ops of a block the one that stands last."""
    return b if a.is_before_in_block(b) else a
