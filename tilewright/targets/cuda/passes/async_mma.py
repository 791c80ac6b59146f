"""async-mma: a tile_mma whose operands a warpgroup instruction can read becomes an asynchronous product.

    %d = xetile.tile_mma %a, %b, %c    ->    %p = stage.mma.issue %a, %b, %c
                                             %d = stage.mma.wait %p {pending = 0}

Requires: multi-buffers formed. Guarantees: the same results, each product waited for at once, or, where only another
product adds to it, with that. Other uses of a tile read it from its slot.

B must lie in a multi-buffer (as it is, or transposed); A may, or is a value that threads hold. The machine's table says
which types and shapes the instruction has; operands whose lines run along m or n (not k) exist for 16-bit types only:
threads read such an A. Every other tile_mma stays, and is lowered to instructions of single warps.
"""

from __future__ import annotations

from itertools import takewhile

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import stage, xetile
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import move, ops_behind
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.dialects.upstream.vector import InterleaveOp
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.fold_identities import splat
from tilewright.targets.cuda.passes.wgmma_legality import (
    TRANSPOSES,
    through_transposes,
    unsuited,
    untransposed,
    warpgroups,
)
from tilewright.uarch.base import Machine


def issue_async_mma(function: gpu.FuncOp, machine: Machine, remarks: list[str]) -> int:
    """Issues products asynchronously to warpgroups (wgmma). Returns how many."""
    made = 0
    products = [op for op in function.walk() if isinstance(op, xetile.TileMmaOp)]
    # What is stored or added meets the sums of all.
    paired = all(readable(op.a, 1) is None for op in products) and any(
        _neighbours(op.a, False, set()) for op in products
    )
    groups = warpgroups(function)
    for op in products:
        reason = _obstacle(op, machine, groups)
        if reason is not None:
            remarks.append(f"tile_mma is not done by warpgroups: {reason}")
            continue
        _rewrite(op, paired)
        made += 1
    eliminate_dead(function.body.block)
    _read_others(function)
    for op in list(function.walk()):
        if isinstance(op, stage.ProductWaitOp):
            _leave_pending(op)
    return made


_READERS = (stage.ProductIssueOp, stage.ReadOp)


def _read_others(function: gpu.FuncOp) -> None:
    """What is no operand of a product is read from its slot into registers."""
    for op in list(function.walk()):
        if not isinstance(op, stage.CopyWaitOp):
            continue
        for value in op.values:
            others = [u for u in value.uses if not isinstance(u.operation, _READERS)]
            if others:
                read = stage.ReadOp(value)
                read.result.name_hint = value.name_hint
                Rewriter.insert_op(read, InsertPoint.after(op))
                for use in others:
                    use.operation.operands[use.index] = read.result


def _leave_pending(wait: stage.ProductWaitOp) -> None:
    """A product to which only the next of its block adds is waited for with that: so late its slots are released."""
    (product,), (value,) = wait.products, wait.values
    uses = list(value.uses)
    following = uses[0].operation if len(uses) == 1 else None
    block = wait.parent
    if not isinstance(following, stage.ProductIssueOp) or following.c is not value:
        return
    if following.parent is not block or block is None:
        return
    last = following.next_op
    assert isinstance(last, stage.ProductWaitOp)
    between = [*takewhile(lambda op: op is not following, ops_behind(wait))]
    if any(isinstance(op, stage.ProductIssueOp) for op in between):
        return
    for op in reversed(between):
        if isinstance(op, stage.CopyReleaseOp):
            move([op], InsertPoint.after(last))
    following.operands[2] = product
    Rewriter.erase_op(wait)


def staged(value: SSAValue) -> tuple[stage.CopyWaitOp, int, bool] | None:
    """(wait, part, transposed) of a value that lies in a multi-buffer."""
    source, transposed = untransposed(value)
    if not isinstance(source, OpResult) or not isinstance(source.op, stage.CopyWaitOp):
        return None
    return source.op, source.index, transposed


def _obstacle(op: xetile.TileMmaOp, machine: Machine, groups: int) -> str | None:
    if (reason := unsuited(op, machine, groups)) is not None:
        return reason
    if staged(op.b) is None:
        return "B does not lie in shared memory"
    if readable(op.b, 0) is None:
        return "B has its lines across k, which only 16-bit types may"
    return None


def readable(value: SSAValue, along_k: int) -> tuple[stage.CopyWaitOp, int, bool] | None:
    """Where the instruction reads an operand whose dimension `along_k` is summed over.

    None where threads hold it, or its lines run across k in a type that may not.
    """
    place = staged(value)
    if place is None:
        return None
    wait, part, transposed = place
    held = wait.buffer.type.parts.data[part]  # pyright: ignore
    fast = 1 if held.row_major else 0
    return place if (fast == along_k) != transposed or held.itemsize == 2 else None


def _neighbours(value: SSAValue, turned: bool, seen: set[tuple[SSAValue, bool]]) -> bool:
    """Do threads compute an operand of bytes whose lines run along rows, or of numbers that alternate along them?"""
    op = value.owner
    if not isinstance(op, Operation) or not shape_of(value) or (value, turned) in seen:
        return False
    seen.add((value, turned))
    if isinstance(op, stage.CopyWaitOp):
        part = buffer_type(op.buffer).parts.data[list[SSAValue](op.values).index(value)]
        return part.itemsize == 1 and part.row_major == turned
    if isinstance(op, InterleaveOp) and turned:
        return True
    turned ^= isinstance(op, TRANSPOSES)
    moves = isinstance(op, TRANSPOSES | InterleaveOp) or is_elementwise_on_vectors(op)
    return moves and any(_neighbours(each, turned, seen) for each in op.operands)


def _rewrite(op: xetile.TileMmaOp, paired: bool) -> None:
    block = op.parent
    assert block is not None and isinstance(op.result.type, VectorType)
    operands: list[SSAValue] = []
    flips: list[bool] = []
    for value, along_k in ((op.a, 1), (op.b, 0)):
        place = readable(value, along_k)
        flips.append(place is not None and place[2])
        if place is not None:
            value = through_transposes(value)
        elif isinstance(value.owner, stage.CopyWaitOp):
            read = stage.ReadOp(value)
            block.insert_op_before(read, op)
            value = read.result
        operands.append(value)
    (a, b), (flip_a, flip_b) = operands, flips
    start = None if op.c is not None and splat(op.c) == 0 else op.c
    issue = stage.ProductIssueOp(
        a, b, start, stage.PendingType(op.result.type, paired), flip_a, flip_b
    )
    wait = stage.ProductWaitOp([issue.result])
    block.insert_ops_before([issue, wait], op)
    wait.values[0].name_hint = op.result.name_hint
    Rewriter.replace_op(op, [], [wait.values[0]])
