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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IntegerAttr, VectorType, i64
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from tilewright.codegen.tiles import itemsize
from tilewright.dialects import stage, xetile
from tilewright.dialects.stage.products import vector_of
from tilewright.passes.memory_objects import is_pure

Values = dict[SSAValue, SSAValue]


@dataclass
class _Plan:
    """A loop to rotate: its products, the ops of L in order, and what they read of the rest."""

    loop: scf.ForOp
    first: stage.ProductIssueOp
    last: stage.ProductIssueOp
    late: list[Operation]
    crossing: list[SSAValue]

    @property
    def rest(self) -> list[Operation]:
        """The ops of A, in order."""
        ops = [op for op in self.loop.body.block.ops if op not in set(self.late)]
        return ops[:-1]

    @property
    def yields(self) -> list[SSAValue]:
        end = self.loop.body.block.last_op
        assert end is not None
        return list(end.operands)

    def is_late(self, value: SSAValue) -> bool:
        return value.owner in self.late


MOST_REGISTERS = 200
"""Registers of a thread that the products of a rotated loop, and what is carried to L, may take together."""


def rotate_loops(function: gpu.FuncOp, groups: int) -> int:
    """Rewrites one kernel whose products `groups` warpgroups share; how many loops changed."""
    count = 0
    for op in list(function.walk()):
        if not isinstance(op, scf.ForOp) or op.parent is None:
            continue
        plan = _plan(op)
        if plan is not None and _registers(plan, groups) <= MOST_REGISTERS:
            _rewrite(plan)
            count += 1
    return count


def _registers(plan: _Plan, groups: int) -> int:
    """Registers of 32 bits of a thread: both products, and the operand that waits for L."""
    values = (plan.first.result, plan.last.result, plan.last.a)
    total = 0
    for value in values:
        type = vector_of(value.type)
        total += prod(type.get_shape()) * itemsize(type.element_type) // (4 * 128 * groups)
    return total


# Which loops ------------------------------------------------------------------------------------


def _plan(loop: scf.ForOp) -> _Plan | None:
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
    if not _depends(last.a, waits[0].values[0], block):
        return None
    carried = block.args[uses[0].index + 1]
    if any(_depends(v, carried, block) for v in first.operands):
        return None
    late = _late_ops(last, waits[1], block)
    if late is None:
        return None
    plan = _Plan(loop, first, last, late, [])
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


def _depends(value: SSAValue, on: SSAValue, block: Block) -> bool:
    """Does a value of a block's iteration depend on another?"""
    seen: set[SSAValue] = set()
    work = [value]
    while work:
        here = work.pop()
        if here is on:
            return True
        if here in seen:
            continue
        seen.add(here)
        if isinstance(here.owner, Operation) and here.owner.parent is block:
            work += here.owner.operands
            for inner in here.owner.walk():
                work += inner.operands
    return False


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


# The new program --------------------------------------------------------------------------------


def _clone(ops: Iterable[Operation], into: Block, values: Values) -> None:
    for op in ops:
        into.add_op(op.clone(values))


def _rewrite(plan: _Plan) -> None:
    loop = plan.loop
    old, parent = loop.body.block, loop.parent
    assert parent is not None
    iv, *args = old.args
    late = [plan.is_late(y) for y in plan.yields]
    then = Block()
    # A of the first iteration.
    values: Values = {iv: loop.lb, **dict(zip(args, loop.iter_args, strict=True))}
    _clone(plan.rest, then, values)
    state = [
        start if is_late else values.get(y, y)
        for start, y, is_late in zip(loop.iter_args, plan.yields, late, strict=True)
    ]
    extra = [values[x] for x in plan.crossing]
    second = arith.AddiOp(loop.lb, loop.step)
    then.add_op(second)
    carried = [loop.lb, *state, *extra]
    body = Block(arg_types=[iv.type, *(v.type for v in carried)])
    _fill(plan, body, late)
    new = scf.ForOp(second.result, loop.ub, loop.step, carried, Region(body))
    new.attributes.update(loop.attributes)
    then.add_op(new)
    # L of the last iteration.
    before, *after = new.results
    values = {iv: before, **dict(zip(args, after, strict=False))}
    values |= dict(zip(plan.crossing, after[len(args) :], strict=True))
    _clone(plan.late, then, values)
    results = [
        values[y] if is_late else after[i]
        for i, (y, is_late) in enumerate(zip(plan.yields, late, strict=True))
    ]
    then.add_op(scf.YieldOp(*results))
    otherwise = Block([scf.YieldOp(*loop.iter_args)])
    ran = arith.CmpiOp(loop.lb, loop.ub, "slt")
    choice = scf.IfOp(ran, list(loop.result_types), Region(then), Region(otherwise))
    parent.insert_ops_before([ran, choice], loop)
    for result, fresh in zip(loop.results, choice.results, strict=True):
        fresh.name_hint = result.name_hint
        result.replace_all_uses_with(fresh)
    loop.detach()
    loop.erase()


def _fill(plan: _Plan, body: Block, late: list[bool]) -> None:
    """One iteration: the next first product, L, the rest of A, with each wait before the first use."""
    loop = plan.loop
    iv, *args = loop.body.block.args
    new_iv, before, *others = body.args
    state, extra = others[: len(args)], others[len(args) :]
    of_late: Values = {iv: before, **dict(zip(args, state, strict=True))}
    of_late |= dict(zip(plan.crossing, extra, strict=True))
    values: Values = {iv: new_iv, **dict(zip(args, state, strict=True))}
    head, middle, tail = _parts(plan)
    issue = plan.late.index(plan.last) + 1
    _clone(head, body, values)
    _clone(plan.late[:issue], body, of_late)
    _clone(middle, body, values)
    _clone(plan.late[issue:], body, of_late)
    # From here on L is done: what it gives is what the iteration began with.
    current = [of_late[y] if is_late else s
               for y, is_late, s in zip(plan.yields, late, state, strict=True)]  # fmt: skip
    values |= dict(zip(args, current, strict=True))
    _clone(tail, body, values)
    yields = [
        now if is_late else values.get(y, y)
        for now, y, is_late in zip(current, plan.yields, late, strict=True)
    ]
    body.add_op(scf.YieldOp(new_iv, *yields, *(values[x] for x in plan.crossing)))
    waits = [op for op in body.ops if isinstance(op, stage.ProductWaitOp) and op.products]
    # The first product was issued before L, and is waited for while L is under way.
    waits[0].properties["pending"] = IntegerAttr(1, i64)


def _parts(plan: _Plan) -> tuple[list[Operation], list[Operation], list[Operation]]:
    """A in three parts: up to the first product's issue; up to the first use of what L gives; the rest."""
    ops = plan.rest
    at = ops.index(plan.first) + 1
    block = plan.loop.body.block
    late = {block.args[i + 1] for i, y in enumerate(plan.yields) if plan.is_late(y)}
    need = next(
        (i for i, op in enumerate(ops) if any(v in late for o in op.walk() for v in o.operands)),
        len(ops),
    )
    need = max(need, at)
    return ops[:at], ops[at:need], ops[need:]
