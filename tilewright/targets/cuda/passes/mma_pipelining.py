"""mma-pipelining: a loop's last products run beside the next iteration, whose first are issued before them.

    for j {                                        A(0)
      s = product(q, k(j))           \\             for j from the second {
      p, scale = f(s)                 | A(j)         issue s = product(q, k(j))
      c = o * scale                  /       ->      issue o = product(p, v(j-1), c)      L(j-1)
      o = product(p, v(j), c)          L(j)          wait s;  p', scale = f(s)
    }                                                wait o;  c' = o * scale }
                                                   L(last)

Requires: products issued. Guarantees: the same values in the same order of operations; a loop that runs no iteration
still gives what it began with.

Takes part: a loop with products (L) that multiply what was computed from others of the iteration, and give carried
values that nothing else in the iteration reads. The others (of A) then do not need L's results, and while L runs the
arithmetic on theirs can proceed: L is the second stage of the loop (`loop_pipeliner`), so what it reads is carried to
the next iteration instead of its results. Loops that follow one another hand L on (`chains`). And a loop whose threads
write the right operands of its products: these are L, and the next are written meanwhile (`written_operands`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import IntegerAttr, VectorType, i64
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.codegen.tiles import itemsize
from tilewright.dialects import stage
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import terminator
from tilewright.dialects.stage.products import computes, vector_of
from tilewright.passes.loop_pipeliner import PipelineSchedule, expand
from tilewright.passes.loops import depends
from tilewright.passes.memory_objects import is_pure
from tilewright.targets.cuda.passes.cross_loop_pipelining import chained
from tilewright.targets.cuda.passes.warp_specialization import compute_registers
from tilewright.targets.cuda.passes.wgmma_legality import clocks
from tilewright.targets.cuda.passes.written_operands import write_ahead
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import SPECIAL_FUNCTIONS, SPECIAL_LANES

OTHERS, HANDED_ON = 32, 48
"""Registers of a thread that computes, kept for addresses and arithmetic beside the products of a rotated loop and what
is carried to L; and so many where loops hand L on, which keeps the scalars of both at hand (else it is slower than to
wait in between)."""

CopyOp = stage.CopyIssueOp | stage.GatherIssueOp | stage.CopyWaitOp | stage.CopyReleaseOp
_DONE = (stage.ProductWaitOp, stage.CopyReleaseOp)
Waits = dict[stage.ProductIssueOp, stage.ProductWaitOp]


def pipeline_products(function: gpu.FuncOp, machine: Machine, groups: int) -> int:
    """Software-pipelines products: a loop's last product overlaps the next iteration, also across loops. Returns
    how many loops changed; `groups` warpgroups share the products."""
    room = compute_registers(groups)
    loops = [op for op in function.walk() if isinstance(op, scf.ForOp)]
    plans = [plan for loop in loops if (plan := _plan(loop, machine, groups)) is not None]
    found = [plan for plan in plans if _registers(plan, groups) <= room - OTHERS]
    roomy = all(_registers(plan, groups) <= room - HANDED_ON for plan in found)
    for plan in found:
        block = plan.loop.body.block
        block.insert_ops_before([op for op in plan.order if op.parent is None], terminator(block))
    for run in chained(found) if roomy else [[plan] for plan in found]:
        expand(run)
    _wait_late(function)
    return len(found)


def _registers(plan: PipelineSchedule, groups: int) -> int:
    """Registers of 32 bits of a thread: the products, and the operands that wait for L."""
    issues = [op for op in plan.order if isinstance(op, stage.ProductIssueOp)]
    sums = [
        op.result
        for op in issues
        if op.c is None or not isinstance(op.c.owner, stage.ProductIssueOp)
    ]
    values = sums + [op.a for op in issues if plan.stage(op)]
    total = 0
    for value in values:
        type = vector_of(value.type)
        total += prod(type.get_shape()) * itemsize(type.element_type) // (4 * 128 * groups)
    return total


def _wait_late(function: gpu.FuncOp) -> None:
    """Each wait leaves the products in flight that were issued after those that it is for."""
    for wait in function.walk():
        if not isinstance(wait, stage.ProductWaitOp) or not wait.products:
            continue
        later, op = 0, wait.prev_op
        while op is not None and not set(op.results) & set(wait.products):
            later, op = later + isinstance(op, stage.ProductIssueOp), op.prev_op
        if op is not None:
            wait.properties["pending"] = IntegerAttr(later, i64)


# Which loops ------------------------------------------------------------------------------------


def _plan(loop: scf.ForOp, machine: Machine, groups: int) -> PipelineSchedule | None:
    """L in the second stage; None for a loop that has none."""
    block = loop.body.block
    issues = [op for op in loop.walk() if isinstance(op, stage.ProductIssueOp)]
    waits = {op: wait for op in issues if (wait := _sole_wait(op, block)) is not None}
    if len(waits) < len(issues):
        return None
    if issues and (found := write_ahead(loop, issues, list(dict.fromkeys(waits.values())))):
        return found
    last, count = issues, len(issues) + 1
    while len(last) < count:
        count = len(last)
        last = [op for op in last if _can_be_late(op, last, waits, block)]
    late = _late_ops(last, waits, block)
    order = _order(block, late, machine, groups)
    if order is None:
        return None
    return PipelineSchedule(loop, dict.fromkeys(late, 1), order)


def _sole_wait(issue: stage.ProductIssueOp, block: Block) -> stage.ProductWaitOp | None:
    """The wait for a product, or for the last of those that add to it in turn."""
    users = [use.operation for use in issue.result.uses]
    if len(users) != 1 or users[0].parent is not block:
        return None
    if isinstance(users[0], stage.ProductIssueOp):
        return _sole_wait(users[0], block)
    wait = users[0]
    return wait if isinstance(wait, stage.ProductWaitOp) and len(wait.products) == 1 else None


def _can_be_late(
    op: stage.ProductIssueOp, last: Collection[Operation], waits: Waits, block: Block
) -> bool:
    """Can a product be left to the next iteration, together with the others of `last`?"""
    uses = list(waits[op].values[0].uses)
    if len(uses) != 1 or uses[0].operation is not block.last_op:
        return False
    if any(waits[each] is waits[op] and each not in last for each in waits):
        return False
    if not any(depends(op.a, wait.values[0], block) for wait in waits.values()):
        return False
    carried = block.args[uses[0].index + 1]
    first = [each for each in waits if each not in last]
    if any(depends(v, carried, block) for each in first for v in each.operands):
        return False
    staged = op.b.owner
    if not isinstance(staged, stage.CopyWaitOp) or staged.parent is not block:
        return False
    if any(use.operation not in last for value in staged.values for use in value.uses):
        return False
    states = {each.state for each in _of_multi_buffer(staged.buffer, block)}
    return isinstance(staged.state, BlockArgument) and states == {staged.state}


def _of_multi_buffer(buffer: SSAValue, block: Block) -> list[CopyOp]:
    return [op for op in block.ops if isinstance(op, CopyOp) and op.buffer is buffer]


def _late_ops(last: Iterable[stage.ProductIssueOp], waits: Waits, block: Block) -> list[Operation]:
    """The ops of L: products, their waits, all that their multi-buffers do in the iteration, and what only they
    need.
    """
    found: set[Operation] = set()
    for op in last:
        staged = op.b.owner
        assert isinstance(staged, stage.CopyWaitOp)
        steps = (use.operation for use in staged.state.uses)
        found |= {op, waits[op], *_of_multi_buffer(staged.buffer, block)}
        found |= {each for each in steps if isinstance(each, stage.AdvanceOp)}
    for op in reversed(list(block.ops)):
        if op in found or not op.results or op.regions or not is_pure(op):
            continue
        if any(isinstance(r.type, VectorType) for r in op.results):
            continue
        uses = [use.operation for r in op.results for use in r.uses]
        if uses and all(use in found for use in uses):
            found.add(op)
    return [op for op in block.ops if op in found]


def _order(
    block: Block, late: Sequence[Operation], machine: Machine, groups: int
) -> list[Operation] | None:
    """A step: A up to its first products, the products of L, A as far as it needs nothing of L, the rest of L and of A.

    None where there is no such order. Two warpgroups may keep the special function unit busy: they wait for L before
    its functions, which the arithmetic that needs L then fills up; or, where L is short, issue it only there, to be
    spread among them (`interleave_products`), and wait behind them. An op that is new enters the loop with its plan.
    """
    end = terminator(block)
    given = [a for a, v in zip(block.args[1:], end.operands, strict=True) if v.owner in late]
    rest = [op for op in block.ops if op not in late and op is not end]
    behind = {op for op in rest if any(depends(v, a, block) for v in _operands(op) for a in given)}
    wait = next((i for i, op in enumerate(rest) if isinstance(op, stage.ProductWaitOp)), 0)
    issues = [i for i, op in enumerate(rest[:wait]) if isinstance(op, stage.ProductIssueOp)]
    if not late or not issues:
        return None
    head, others = rest[: issues[-1] + 1], rest[issues[-1] + 1 :]
    moved = [op for op in head if op in behind]
    if any(op.regions or not is_pure(op) for op in moved):
        return None
    need = next((i for i, op in enumerate(others) if op in behind), len(others))
    products = [i for i, op in enumerate(late) if isinstance(op, stage.ProductIssueOp)]
    begin = [op for op in late[: products[-1] + 1] if not isinstance(op, _DONE)]
    special = _special(others[:need]) if groups == 2 else None
    first, free, then = others[: special or 0], others[special or 0 : need], others[need:]
    if special is None:
        middle = [*begin, *free]
    elif _is_short(late, free, machine):
        handed_on = [op for op in free if _is_given(op, late)]
        kept = [op for op in free if op not in handed_on]
        middle, then = [*first, *begin, *kept, stage.SchedBarrierOp()], handed_on + then
    else:
        middle, then = [*begin, *first, stage.SchedBarrierOp()], free + then
    return [
        *(op for op in head if op not in behind),
        *middle,
        *(op for op in late if op not in begin),
        *moved,
        *then,
    ]


def _is_given(op: Operation, late: Collection[Operation]) -> bool:
    """Does an op make what only L reads, and nothing else happen?"""
    return is_pure(op) and all(use.operation in late for r in op.results for use in r.uses)


def _is_short(late: Sequence[Operation], free: Sequence[Operation], machine: Machine) -> bool:
    """Do the products of L take at most half as long as the functions of A?"""
    products = [clocks(machine, op) for op in late if isinstance(op, stage.ProductIssueOp)]
    functions = [prod(shape_of(op.results[0])) for op in free if op.name in SPECIAL_FUNCTIONS]
    return 2 * sum(products) <= sum(functions) / SPECIAL_LANES


def _special(ops: Sequence[Operation]) -> int | None:
    """Where among some ops the special function unit begins to work on whole tiles, or what is computed of the same
    tile right before it; None where it does not."""
    for at, op in enumerate(ops):
        if op.name not in SPECIAL_FUNCTIONS or prod(shape := shape_of(op.results[0])) == max(shape):
            continue
        while at and computes(ops[at - 1]) and shape_of(ops[at - 1].results[0]) == shape:
            at -= 1
        return at
    return None


def _operands(op: Operation) -> list[SSAValue]:
    return [v for inner in op.walk() for v in inner.operands]
