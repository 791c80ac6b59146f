"""deferred-wait: a product that a loop adds up is waited for one iteration later, while the next one runs.

    %r = scf.for .. iter_args(%acc = %z) {            %p0 = stage.mma.start %z
      %a, %b = stage.copy.wait %buffer[%c]              %q = scf.for .. iter_args(%acc = %p0, .., %before = %c) {
      %p = stage.mma.issue %a, %b, %acc                 %a, %b = stage.copy.wait %buffer[%c]
      %d = stage.mma.wait %p {pending = 0}       ->     %p = stage.mma.issue %a, %b, %acc
      stage.copy.release %buffer[%c]                      stage.mma.wait {pending = 1}
      scf.yield %d }                                    stage.copy.release %buffer[%before] when not the first
                                                        scf.yield %p, .., %c }
                                                      %r = stage.mma.wait %q {pending = 0}
                                                      stage.copy.release %buffer[%last] when any

Requires: products issued. Guarantees: the same sums; a slot is released only after every product that reads it.

A loop takes part when all its products are sums that it carries: the result of each wait is used only by the yield,
its accumulator only by the issue; several products may add to one in turn. Any other product reads or makes a value in
the same iteration and is waited for. So is one whose A the iteration computes: it is read from registers, which the
next iteration would write meanwhile (to wait for it only there does not help: ptxas takes such registers for free where
the loop begins again, and loads other things into them above the wait; seen on an H200). So are all where a
multi-buffer has one slot: the next iteration's copy waits for this one's product.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import gpu, scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import stage
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.frozen import record
from tilewright.passes.loop_pipeliner import PipelineSchedule, expand_predicated
from tilewright.passes.loops import with_start
from tilewright.targets.cuda.passes.written_operands import releases_of


@record
class _AccumulatedSum:
    """Products that add in turn to carried value `position` of the loop."""

    issues: list[stage.ProductIssueOp]
    wait: stage.ProductWaitOp
    position: int


def defer_waits(function: gpu.FuncOp) -> int:
    """Waits for an accumulating product one iteration later. Returns in how many loops."""
    count = 0
    for op in list(function.walk()):
        if isinstance(op, scf.ForOp) and op.parent is not None and (sums := _sums(op)) is not None:
            _rewrite(op, sums)
            count += 1
    return count


def _sums(loop: scf.ForOp) -> list[_AccumulatedSum] | None:
    block = loop.body.block
    found: list[_AccumulatedSum] = []
    inside = [op for op in loop.walk() if isinstance(op, stage.ProductIssueOp)]
    for op in inside:
        if op.parent is not block or _computed(op.a, block):
            return None
        if isinstance(op.c, BlockArgument):
            each = _sum(op, block)
            if each is None:
                return None
            found.append(each)
    if sum(len(each.issues) for each in found) < len(inside):
        return None
    if any(buffer_type(release.buffer).slots.data < 2 for release in _releases(loop, found)):
        return None
    return found or None


def _sum(first: stage.ProductIssueOp, block: Block) -> _AccumulatedSum | None:
    """The products from the first that adds to a carried value to the one that the loop yields; None for others."""
    acc, issues = first.c, [first]
    assert isinstance(acc, BlockArgument)
    user = _only_user(first.result)
    while isinstance(user, stage.ProductIssueOp):
        issues.append(user)
        user = _only_user(user.result)
    if not isinstance(user, stage.ProductWaitOp) or user.parent is not block:
        return None
    uses = list(user.values[0].uses)
    carried = len(uses) == 1 and uses[0].operation is block.last_op
    if acc.owner is not block or not acc.has_one_use() or not carried:
        return None
    return _AccumulatedSum(issues, user, acc.index - 1) if uses[0].index == acc.index - 1 else None


def _only_user(value: SSAValue) -> Operation | None:
    return next(iter(value.uses)).operation if value.has_one_use() else None


def _computed(a: SSAValue, block: Block) -> bool:
    """Does the iteration make this operand in registers? (Not a staged tile, nor one from outside.)"""
    return a.owner is block or (
        isinstance(a.owner, Operation)
        and a.owner.parent is block
        and not isinstance(a.owner, stage.CopyWaitOp)
    )


def _releases(loop: scf.ForOp, sums: list[_AccumulatedSum]) -> list[stage.CopyReleaseOp]:
    """Releases of the slots that the products of the loop read."""
    block = loop.body.block
    owners = [o.owner for each in sums for issue in each.issues for o in (issue.a, issue.b)]
    waits = [op for op in owners if isinstance(op, stage.CopyWaitOp) and op.parent is block]
    return releases_of(block, waits)


def _rewrite(loop: scf.ForOp, sums: list[_AccumulatedSum]) -> None:
    """The waits, and the releases of what the products read, are the loop's second stage."""
    releases = _releases(loop, sums)
    loop = _carry_pending(loop, sums)
    block = loop.body.block
    # After the last issue, all products but those of this iteration are done.
    issues = [issue for each in sums for issue in each.issues]
    drain = stage.ProductWaitOp(pending=len(issues))
    late = [drain, *releases]
    early = [op for op in block.ops if op not in releases and op is not block.last_op]
    at = max(early.index(issue) for issue in issues) + 1
    block.insert_op_after(drain, early[at - 1])
    schedule = PipelineSchedule(loop, dict.fromkeys(late, 1), [*early[:at], *late, *early[at:]])
    kernel, last, *_ = expand_predicated(schedule, _predicate, _initial_state)
    final = stage.ProductWaitOp([kernel.results[s.position] for s in sums])
    for each, old in zip(sums, final.values, strict=True):
        kernel.results[each.position].replace_uses_with_if(
            old, lambda use: use.operation is not final
        )
    Rewriter.replace_op(last, final, [])


def _predicate(op: Operation, holds: Callable[[], SSAValue]) -> Operation:
    """There is no slot to release where there was no iteration; to wait does no harm."""
    if isinstance(op, stage.CopyReleaseOp):
        op.operands = [op.buffer, op.state, holds()]
    return op


def _carry_pending(loop: scf.ForOp, sums: list[_AccumulatedSum]) -> scf.ForOp:
    """The loop with pending products in place of their values."""
    parent = loop.parent
    assert parent is not None
    block = loop.body.block
    inits = list(loop.iter_args)
    for each in sums:
        start = stage.ProductStartOp(inits[each.position])
        parent.insert_op_before(start, loop)
        inits[each.position] = start.result
        Rewriter.replace_value_with_new_type(block.args[each.position + 1], start.result.type)
        each.wait.values[0].replace_all_uses_with(each.issues[-1].result)
        Rewriter.erase_op(each.wait)
    return with_start(loop, inits)


def _initial_state(state: SSAValue) -> SSAValue:
    """A pipeline state to start with, of the multi-buffer's type; what it names is not used in the first iteration."""
    if isinstance(state, BlockArgument):
        block: Block = state.owner
        parent = block.parent_op()
        assert isinstance(parent, scf.ForOp)
        return parent.iter_args[state.index - 1]
    assert isinstance(state.owner, stage.AdvanceOp)
    return _initial_state(state.owner.state)
