"""Rebuilding loops and conditions: values carried through them, and the part of a program that some ops need.

`carry` gives a value that an inner block updates to the blocks after it, through every scf.for and scf.if around it.
`carry_what_changes` takes out of a loop what it carries as it is.
`keep` removes from a block all that a set of ops does not depend on, dead loop-carried values included; `drop_unread`
all that nothing that acts does.
`depends` tells what hangs together within one iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from xdsl.dialects import gpu, scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.nesting import blocks_in, terminator
from tilewright.passes.carried import names_of, reached
from tilewright.passes.memory_objects import is_pure


def with_carried(loop: scf.ForOp, initial: SSAValue) -> tuple[scf.ForOp, BlockArgument]:
    """A loop that carries one more value, yielded unchanged; the loop and its new argument."""
    block = loop.body.block
    arg = block.insert_arg(initial.type, len(block.args))
    _yield(block, [*terminator(block).operands, arg])
    return with_start(loop, [*loop.iter_args, initial]), arg


def with_start(
    loop: scf.ForOp, start: Sequence[SSAValue], kept: Iterable[int] | None = None
) -> scf.ForOp:
    """A loop that begins with other values, of the types of its block's arguments. `kept`: what its first results were
    the results of before, by number; all by default."""
    new = scf.ForOp(loop.lb, loop.ub, loop.step, list(start), loop.detach_region(0))
    new.location = loop.location
    new.attributes.update(loop.attributes)
    new.properties.update(loop.properties)
    Rewriter.insert_op(new, InsertPoint.before(loop))
    for i, fresh in zip(range(len(loop.results)) if kept is None else kept, new.results):  # noqa: B905
        fresh.name_hint = loop.results[i].name_hint
        loop.results[i].replace_all_uses_with(fresh)
    _drop(loop)
    return new


def set_yield(block: Block, position: int, value: SSAValue) -> None:
    """Let the block yield another value at a position (the last for -1)."""
    last = terminator(block)
    last.operands[position % len(last.operands)] = value


def _yield(block: Block, values: Sequence[SSAValue]) -> None:
    """Let the block yield these instead."""
    Rewriter.replace_op(terminator(block), scf.YieldOp(*values), [])


def _giving(op: scf.IfOp, given: Sequence[Sequence[SSAValue]], kept: Iterable[int]) -> scf.IfOp:
    """A condition whose sides give other values. `kept`: what its first results were the results of before."""
    regions: list[Region] = []
    for values in given:
        region = op.detach_region(0)
        if not region.blocks:
            region.add_block(Block([scf.YieldOp()]))
        _yield(region.block, values)
        regions.append(region)
    new = scf.IfOp(op.cond, [value.type for value in given[0]], regions[0], regions[1])
    new.location = op.location
    new.attributes.update(op.attributes)
    Rewriter.insert_op(new, InsertPoint.before(op))
    for i, fresh in zip(kept, new.results):  # noqa: B905
        op.results[i].replace_all_uses_with(fresh)
    _drop(op)
    return new


Update = Callable[[SSAValue], SSAValue]


def carry(initial: SSAValue, places: Mapping[Operation, Update], block: Block) -> SSAValue:
    """Gives a value that changes at some ops to each of them, as it is there; what it is at the end of `block`.

    It begins as `initial`. An update is called with the value at hand before its op and gives the one after it. Every
    loop and condition around an op carries it. UnsupportedError where another kind of region stands around one.
    """
    value = initial
    for op in list(block.ops):
        if op in places:
            value = places[op](value)
        if not op.regions or not any(
            p is not op and block.find_ancestor_op_in_block(p) is op for p in places
        ):
            continue
        if isinstance(op, scf.ForOp):
            loop, arg = with_carried(op, value)
            set_yield(loop.body.block, -1, carry(arg, places, loop.body.block))
            value = loop.results[-1]
        elif isinstance(op, scf.IfOp):
            last = [carry(value, places, r.block) if r.blocks else value for r in op.regions]
            before = [terminator(r.block).operands if r.blocks else () for r in op.regions]
            ends = [[*given, new] for given, new in zip(before, last, strict=True)]
            value = _giving(op, ends, range(len(op.results))).results[-1]
        else:
            raise unsupported(op, f"nothing is carried through {op.name}")
    return value


# What some ops depend on.
def _live(roots: Iterable[Operation], top: Block) -> tuple[set[Operation], set[SSAValue]]:
    """Ops in `top` (nested ones too) that must stay for `roots`, and the values that they need."""
    ops: set[Operation] = set()
    values: set[SSAValue] = set()
    work: list[SSAValue] = []

    def need_op(op: Operation, operands: Iterable[SSAValue]) -> None:
        here: Operation | None = op
        if op not in ops:
            ops.add(op)
            work.extend(operands)
        while here is not None and here.parent is not top:
            here = here.parent_op()
            if here is not None and here not in ops:
                ops.add(here)
                work.extend(_control_operands(here))

    for root in roots:
        need_op(root, root.operands)
    while work:
        value = work.pop()
        if value in values:
            continue
        values.add(value)
        if isinstance(value, OpResult):
            op = value.op
            if top.find_ancestor_op_in_block(op) is None:
                continue
            if isinstance(op, scf.ForOp | scf.IfOp):
                need_op(op, _control_operands(op))
                work += names_of(op, value.index)
            else:
                need_op(op, op.operands)
                if op.regions:
                    for inner in op.walk():
                        need_op(inner, inner.operands)
        else:
            parent = value.owner.parent_op() if isinstance(value.owner, Block) else None
            if isinstance(parent, scf.ForOp) and isinstance(value, BlockArgument) and value.index:
                work += names_of(parent, value.index - 1)
    return ops, values


def _control_operands(op: Operation) -> list[SSAValue]:
    if isinstance(op, scf.ForOp):
        return [op.lb, op.ub, op.step]
    if isinstance(op, scf.IfOp):
        return [op.cond]
    return list(op.operands)


def keep(top: Block, roots: Iterable[Operation]) -> None:
    """Remove from `top` every op that `roots` do not depend on, and loop-carried values that none needs."""
    ops, values = _live(list(roots), top)
    _prune(top, ops, values)


def drop_unread(function: gpu.FuncOp) -> None:
    """Remove what no op that acts depends on, in a kernel all of whose regions are those of loops and branches."""
    ops = [op for op in function.walk() if op is not function]
    if all(isinstance(op, scf.ForOp | scf.IfOp) for op in ops if op.regions):
        keep(function.body.block, [op for op in ops if acts(op)])


def acts(op: Operation) -> bool:
    """Must an op stay whether or not its results are used? Loops and branches stay for what is in them."""
    if op.regions or op.name in ("scf.yield", "gpu.return"):
        return False
    return not is_pure(op) or not op.results


def _prune(block: Block, ops: set[Operation], values: set[SSAValue]) -> None:
    last = block.last_op
    for op in reversed(list(block.ops)):
        if op is last and op.name in ("scf.yield", "gpu.return"):
            continue
        if op not in ops:
            _drop(op)
            continue
        if isinstance(op, scf.ForOp):
            _narrow_loop(op, ops, values)
        elif isinstance(op, scf.IfOp):
            _narrow_if(op, ops, values)


def _drop(op: Operation) -> None:
    """Erase an op; what still names its results is a yield that is about to be cut."""
    op.detach()
    op.drop_all_references()
    op.erase(safe_erase=False)


def _narrow_loop(loop: scf.ForOp, ops: set[Operation], values: set[SSAValue]) -> None:
    kept = [i for i, result in enumerate(loop.results) if result in values]
    if len(kept) != len(loop.results):
        loop = carrying(loop, kept)
        values.update(loop.results)
    _prune(loop.body.block, ops, values)


def carrying(loop: scf.ForOp, kept: Sequence[int]) -> scf.ForOp:
    """The loop with these of its carried values alone; what still names the others in it is about to go."""
    block = loop.body.block
    last = terminator(block)
    last.operands = [last.operands[i] for i in kept]
    for i in reversed(range(len(loop.results))):
        if i not in kept:
            block.erase_arg(block.args[i + 1], safe_erase=False)
    return with_start(loop, [loop.iter_args[i] for i in kept], kept)


def carry_what_changes(loop: scf.ForOp) -> scf.ForOp:
    """What a loop hands on from round to round as it is has the name that it has outside."""
    arguments, handed_on = loop.body.block.args[1:], terminator(loop.body.block).operands
    pairs = enumerate(zip(arguments, handed_on, strict=True))
    kept = [i for i, (argument, next_) in pairs if next_ is not argument]
    if len(kept) == len(arguments):
        return loop
    for i, outside in enumerate(loop.iter_args):
        if i not in kept:
            arguments[i].replace_all_uses_with(outside)
            loop.results[i].replace_all_uses_with(outside)
    return carrying(loop, kept)


def give_what_differs(op: scf.IfOp) -> None:
    """What both sides of a branch give has the name that it has outside."""
    ends = [terminator(region.block).operands for region in op.regions if region.blocks]
    kept = [i for i in range(len(op.results)) if any(end[i] is not ends[0][i] for end in ends)]
    if len(kept) == len(op.results):
        return
    for i, result in enumerate(op.results):
        if i not in kept:
            result.replace_all_uses_with(ends[0][i])
    _giving(op, [[end[i] for i in kept] for end in ends], kept)


def _narrow_if(op: scf.IfOp, ops: set[Operation], values: set[SSAValue]) -> None:
    kept = [i for i in range(len(op.results)) if op.results[i] in values]
    if len(kept) != len(op.results):
        ends = [terminator(region.block).operands for region in op.regions]
        op = _giving(op, [[end[i] for i in kept] for end in ends], kept)
        values.update(op.results)
    for block in blocks_in(op):
        _prune(block, ops, values)


def depends(value: SSAValue, on: SSAValue, block: Block) -> bool:
    """Does a value of one run through a block depend on another? What comes from outside of it does not."""

    def needed(value: SSAValue) -> Iterable[SSAValue]:
        made = isinstance(value.owner, Operation) and value.owner.parent is block
        return [v for op in value.owner.walk() for v in op.operands] if made else ()

    return on in reached([value], needed)
