"""while-to-for: a while that counts becomes a for, so that passes need to know one kind of counted loop.

    %r:2 = scf.while (%n = %lo, %x = %x0) {          %trips = ceildiv(max(%hi - %lo, 0), %step)
      %c = arith.cmpi slt, %n, %hi                   %last = %lo + %trips * %step
      scf.condition(%c) %n, %x                  ->   %r1 = scf.for %n = %lo to %hi step %step
    } do {                                                 iter_args(%x = %x0) {
      ... %n ... %x ...                                ... %n ... %x ...
      %m = arith.addi %n, %step                        scf.yield %y
      scf.yield %m, %y                               }
    }                                                (%r#0 is %last)

Requires: invariants of the condition stand outside of the loop (cleanup puts them there). A loop qualifies
when its condition compares a carried number with a bound from outside (`n < hi`, `n <= hi`, or the other way round),
passes on what it carries in order, and the body's last word on the number is to add a positive constant to it. A
number of fewer bits than an index is counted as an index: by ones, for larger steps might wrap before the bound is met.
Guarantees: same results; other loops stay as they are.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import PREDICATES, IndexCastUIOp, constant
from tilewright.frozen import frozen
from tilewright.passes.emit import Before

INDEX_BITS = 64


def while_to_for(kernel: Operation) -> None:
    """Turns a counting `while` into a `for`. Innermost loops come first."""
    for op in reversed([op for op in kernel.walk() if isinstance(op, scf.WhileOp)]):
        counting = _counting(op)
        if counting is not None:
            _rewrite(op, counting)


@frozen
class _Counting:
    """Position of the counter among the carried values, its bound and its step."""

    position: int
    bound: SSAValue
    step: SSAValue
    inclusive: bool
    """Does the counter reach the bound?"""
    unsigned: bool


def _counting(op: scf.WhileOp) -> _Counting | None:
    before, after = op.before_region.block, op.after_region.block
    compare, condition = before.first_op, before.last_op
    if (
        not isinstance(compare, arith.CmpiOp)
        or not isinstance(condition, scf.ConditionOp)
        or compare.next_op is not condition
        or condition.condition is not compare.result
        or tuple(condition.args) != tuple(before.args)
    ):
        return None
    predicate = PREDICATES[compare.predicate.value.data]
    counter, bound = compare.lhs, compare.rhs
    if predicate[1:] in ("gt", "ge"):
        counter, bound = bound, counter
    elif predicate[1:] not in ("lt", "le"):
        return None
    if not isinstance(counter, BlockArgument) or counter.block is not before:
        return None
    if op.is_ancestor(bound.owner):
        return None
    last = after.last_op
    assert isinstance(last, scf.YieldOp)
    step = _step(last.arguments[counter.index], after.args[counter.index])
    if step is None or op.is_ancestor(step.owner):
        return None
    unsigned, kind = predicate[0] == "u", counter.type
    narrow = isinstance(kind, IntegerType) and kind.width.data < INDEX_BITS
    if constant(step) != 1 if narrow else unsigned:
        return None
    return _Counting(counter.index, bound, step, predicate[2] == "e", unsigned)


def _step(following: SSAValue, counter: SSAValue) -> SSAValue | None:
    """What is added to the counter: a positive constant; None when it is anything else."""
    if not isinstance(following, OpResult) or not isinstance(following.op, arith.AddiOp):
        return None
    add = following.op
    step = add.rhs if add.lhs is counter else add.lhs if add.rhs is counter else None
    return step if (constant(step) or 0) > 0 else None


def _rewrite(op: scf.WhileOp, counting: _Counting) -> None:
    at, outside = counting.position, Before(op)
    cast = IndexCastUIOp if counting.unsigned else arith.IndexCastOp

    def converted(where: Before, value: SSAValue, kind: Attribute) -> SSAValue:
        return value if value.type == kind else where.add(cast(value, kind))

    start, bound = (converted(outside, x, IndexType()) for x in (op.arguments[at], counting.bound))
    step = outside.index(constant(counting.step) or 0)
    if counting.inclusive:
        bound = outside.add(arith.AddiOp(bound, outside.index(1)))
    others = [i for i in range(len(op.arguments)) if i != at]
    after = op.after_region.block
    # The body: the counter comes first, and is no longer among the carried values.
    body = Block(arg_types=[start.type, *(op.arguments[i].type for i in others)])
    last = after.last_op
    assert isinstance(last, scf.YieldOp)
    yielded = [last.arguments[i] for i in others]
    Rewriter.erase_op(last)
    carried: list[SSAValue] = [*body.args[1:]]
    carried.insert(at, body.args[0])
    for new, old in zip(carried, after.args, strict=True):
        new.name_hint = old.name_hint
    body.add_op(scf.YieldOp(*yielded))
    inside = Before(terminator(body))
    carried[at] = converted(inside, carried[at], after.args[at].type)
    for new, old in zip(carried, after.args, strict=True):
        old.replace_all_uses_with(new)
    Rewriter.inline_block(after, InsertPoint.before(terminator(body)))
    loop = scf.ForOp(start, bound, step, [op.arguments[i] for i in others], Region(body))
    outside.insert(loop)
    for result, i in zip(loop.results, others, strict=True):
        result.name_hint = op.results[i].name_hint
        op.results[i].replace_all_uses_with(result)
    if op.results[at].first_use is not None:
        exit = converted(outside, first_not_below(outside, start, bound, step), op.results[at].type)
        op.results[at].replace_all_uses_with(exit)
    Rewriter.erase_op(op)


def first_not_below(at: Before, start: SSAValue, bound: SSAValue, step: SSAValue) -> SSAValue:
    """The first value of a counter from `start` on that is not below a bound: what it is when its loop has ended."""
    away = at.add(arith.MaxSIOp(at.add(arith.SubiOp(bound, start)), at.index(0)))
    steps = at.add(arith.CeilDivSIOp(away, step))
    return at.add(arith.AddiOp(start, at.add(arith.MuliOp(steps, step))))
