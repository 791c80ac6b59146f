"""Loops whose threads write the right operands of products: the next is written beside the products of this iteration
(`mma-pipelining` rotates them).

    for i {                                              A(0)
      t = wait buffer(i);  write b = f(t)    A           for i from the second {
      b = wait;  a = read wait buffer(i)     L     ->      b = wait;  a = read wait buffer(i-1);  issue sum += a b
      issue sum += a b;  wait sum                          free buffer(i-1);  A(i) writes the other slot
      free b, buffer(i)                                    wait sum;  free b }
    }                                                    L(last)

Before, the matrix unit stood still while an operand was written, for the warpgroups that share it meet at its slot
(tf32, both operands with lines across k, 4096 cubed on an H200: half of its peak).

Takes part: a loop all of whose products multiply what threads hold by what threads write, to sums that it carries and
nothing else in the iteration reads. What threads read and compute for the left operands belongs to L: registers that
products in flight read are then written by nothing. A tile of which A and L both read is waited for in both, and its
slot is free as soon as the products are issued.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import stage
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.loop_pipeliner import PipelineSchedule
from tilewright.passes.memory_objects import is_pure

Issues = Sequence[stage.ProductIssueOp]
Waits = Collection[stage.ProductWaitOp]
_READS = (stage.ReadOp, stage.ReadPartOp)


def write_ahead(loop: scf.ForOp, issues: Issues, waits: Waits) -> PipelineSchedule | None:
    """L in the second stage, for all products of a loop; None where it has another form."""
    block = loop.body.block
    written = [op.b.owner for op in issues if isinstance(op.b.owner, stage.CopyWaitOp)]
    if len(written) < len(issues) or not all(_is_written(wait, block) for wait in written):
        return None
    if any(_is_staged(op.a) for op in issues) or not all(_is_only_carried(w, block) for w in waits):
        return None
    held = reached(
        (op.a for op in issues), lambda v: () if _is_staged(v) else operands_of(v, block)
    )
    late: set[Operation] = {*issues, *waits, *written}
    for op in reversed(list(block.ops)):
        made = not held.keys().isdisjoint(op.results) and not isinstance(op, stage.CopyWaitOp)
        if made and all(use.operation in late for value in op.results for use in value.uses):
            if op.regions or not (is_pure(op) or isinstance(op, _READS)):
                return None
            late.add(op)
    read = [op for op in block.ops if isinstance(op, stage.CopyWaitOp) and _reads(late, op)]
    read = [op for op in read if op not in written]
    if any(buffer_type(op.buffer).slots.data < 2 for op in read):
        return None
    first = next(op for op in block.ops if op in late)
    for wait in read:
        again = wait.clone()
        block.insert_op_before(again, first)
        late.add(again)
        for value, other in zip(wait.values, again.values, strict=True):
            value.replace_uses_with_if(other, lambda use: use.operation in late)
    freed = releases_of(block, read)
    begin = [*(op for op in block.ops if op in late and op not in waits), *freed]
    end = [*waits, *releases_of(block, written)]
    late.update(freed, end)
    rest = [op for op in block.ops if op not in late and op is not block.last_op]
    return PipelineSchedule(loop, dict.fromkeys(late, 1), [*begin, *rest, *end])


def _is_staged(value: SSAValue) -> bool:
    return isinstance(value.owner, stage.CopyWaitOp)


def _is_written(wait: stage.CopyWaitOp, block: Block) -> bool:
    """Do threads write, in an iteration, what it waits for there?"""
    users = [use.operation for use in wait.buffer.uses]
    return wait.parent is block and any(
        isinstance(op, stage.LocalStoreOp) and op.parent is block for op in users
    )


def _is_only_carried(wait: stage.ProductWaitOp, block: Block) -> bool:
    """Does nothing in an iteration read a sum but the next product that adds to it?"""
    uses = [use for value in wait.values for use in value.uses]
    if len(uses) != 1 or uses[0].operation is not block.last_op:
        return False
    added = block.args[uses[0].index + 1].uses
    return all(isinstance(u.operation, stage.ProductIssueOp) and u.index == 2 for u in added)


def _reads(late: Collection[Operation], wait: stage.CopyWaitOp) -> bool:
    return any(use.operation in late for value in wait.values for use in value.uses)


def releases_of(block: Block, waits: Sequence[stage.CopyWaitOp]) -> list[stage.CopyReleaseOp]:
    """Those of the slots that are waited for."""
    buffers = [wait.buffer for wait in waits]
    return [op for op in block.ops if isinstance(op, stage.CopyReleaseOp) and op.buffer in buffers]
