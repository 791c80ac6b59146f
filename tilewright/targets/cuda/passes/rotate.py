"""rotate: a loop's last product runs beside the next iteration, whose first product is issued before it.

    for j {                                        A(0)
      s = product(q, k(j))           \\             for j from the second {
      p, scale = f(s)                 | A(j)         issue s = product(q, k(j))
      c = o * scale                  /       ->      issue o = product(p, v(j-1), c)      L(j-1)
      o = product(p, v(j), c)          L(j)          wait s;  p', scale = f(s)
    }                                                wait o;  c' = o * scale }
                                                   L(last)

Requires: products issued. Guarantees: the same values in the same order of operations; a loop that runs no iteration
still gives what it began with.

Takes part: a loop of two products, of which the last (L) multiplies what was computed from the first and gives a
carried value that nothing else in the iteration reads. The first then does not need L's result, and while L runs the
arithmetic between the products can proceed: what L reads is carried to the next iteration instead of its result.
Loops that follow one another hand L on (`chains`).
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, BlockArgument, Operation

from tilewright.codegen.tiles import itemsize
from tilewright.dialects import stage, xetile
from tilewright.dialects.stage.products import vector_of
from tilewright.passes.memory_objects import is_pure
from tilewright.targets.cuda.passes.chains import chained, rewrite_chain
from tilewright.targets.cuda.passes.loops import depends
from tilewright.targets.cuda.passes.rotation import Rotation, rewrite

REGISTERS = {1: 232, 2: 232, 3: 160}
"""Of a thread that computes, by the number of warpgroups."""
OTHERS, HANDED_ON = 32, 48
"""Of these, kept for addresses and arithmetic beside the products of a rotated loop and what is carried to L; and so
many where loops hand L on, which keeps the scalars of both at hand (else it is slower than to wait in between)."""


def rotate_loops(function: gpu.FuncOp, groups: int) -> int:
    """Rewrites one kernel whose products `groups` warpgroups share; how many loops changed."""
    found: list[Rotation] = []
    for op in list(function.walk()):
        if not isinstance(op, scf.ForOp) or op.parent is None:
            continue
        plan = _plan(op)
        if plan is not None and _registers(plan, groups) <= REGISTERS[groups] - OTHERS:
            found.append(plan)
    roomy = all(_registers(plan, groups) <= REGISTERS[groups] - HANDED_ON for plan in found)
    for run in chained(found) if roomy else [[plan] for plan in found]:
        if len(run) > 1:
            rewrite_chain(run)
        else:
            rewrite(run[0])
    return len(found)


def _registers(plan: Rotation, groups: int) -> int:
    """Registers of 32 bits of a thread: both products, and the operand that waits for L."""
    values = (plan.first.result, plan.last.result, plan.last.a)
    total = 0
    for value in values:
        type = vector_of(value.type)
        total += prod(type.get_shape()) * itemsize(type.element_type) // (4 * 128 * groups)
    return total


# Which loops ------------------------------------------------------------------------------------


def _plan(loop: scf.ForOp) -> Rotation | None:
    block = loop.body.block
    issues = [op for op in loop.walk() if isinstance(op, stage.ProductIssueOp)]
    if len(issues) != 2 or any(op.parent is not block for op in issues):
        return None
    first, last = issues
    waits = [_sole_wait(op, block) for op in issues]
    if waits[0] is None or waits[1] is None or isinstance(last.a.owner, stage.CopyWaitOp):
        return None
    uses = list(waits[1].values[0].uses)
    if len(uses) != 1 or uses[0].operation is not block.last_op:
        return None
    if not depends(last.a, waits[0].values[0], block):
        return None
    carried = block.args[uses[0].index + 1]
    if any(depends(v, carried, block) for v in first.operands):
        return None
    late = _late_ops(last, waits[1], block)
    if late is None:
        return None
    plan = Rotation(loop, first, last, late, [])
    for op in late:
        for value in op.operands:
            inside = isinstance(value.owner, Operation) and value.owner.parent is block
            if inside and value.owner not in late and value not in plan.crossing:
                plan.crossing.append(value)
    if any(isinstance(v.type, xetile.TileType) for v in plan.crossing):
        return None
    return plan


def _sole_wait(issue: stage.ProductIssueOp, block: Block) -> stage.ProductWaitOp | None:
    users = [use.operation for use in issue.result.uses]
    if len(users) != 1 or not isinstance(users[0], stage.ProductWaitOp):
        return None
    wait = users[0]
    return wait if wait.parent is block and len(wait.products) == 1 else None


def _late_ops(
    last: stage.ProductIssueOp, wait: stage.ProductWaitOp, block: Block
) -> list[Operation] | None:
    """The ops of L: the product, its wait, all that its ring does in the iteration, and what only they need."""
    found: set[Operation] = {last, wait}
    staged = last.b.owner
    if not isinstance(staged, stage.CopyWaitOp) or staged.parent is not block:
        return None
    for value in staged.values:
        if any(use.operation is not last for use in value.uses):
            return None
    for op in block.ops:
        if isinstance(op, stage.CopyIssueOp | stage.CopyWaitOp | stage.CopyReleaseOp):
            if op.ring is staged.ring:
                if op.cursor is not staged.cursor:
                    return None
                found.add(op)
        elif isinstance(op, stage.AdvanceOp) and op.cursor is staged.cursor:
            found.add(op)
    if not isinstance(staged.cursor, BlockArgument):
        return None
    for op in reversed(list(block.ops)):
        if op in found or not op.results or op.regions or not is_pure(op):
            continue
        if any(isinstance(r.type, VectorType) for r in op.results):
            continue
        uses = [use.operation for r in op.results for use in r.uses]
        if uses and all(use in found for use in uses):
            found.add(op)
    return [op for op in block.ops if op in found]
