"""branches-to-loops: kernels written with branches get the loops and ifs that passes know.

      cf.br ^head(%a)                                   %r = scf.while (%i = %a) : (index) -> index {
    ^head(%i: index):                                     %c = arith.cmpi slt, %i, %n
      %c = arith.cmpi slt, %i, %n                          scf.condition(%c) %i
      cf.cond_br %c, ^body, ^end             ->         } do {
    ^body:                                              ^bb0(%i: index):
      .. %m = arith.addi %i, %s                            .. %m = arith.addi %i, %s
      cf.br ^head(%m)                                      scf.yield %m
    ^end:                                               }

Requires: nothing.  Guarantees: the same results.  Rewritten until nothing changes: a block after its only predecessor,
a branch around a block or over two of them, a loop whose test stands at its head or at its end.  What remains (jumps
into loops, several exits) stays as it is.
"""

from __future__ import annotations

from xdsl.dialects import arith, cf, scf
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.nesting import terminator


def branches_to_loops(kernel: Operation) -> bool:
    """Rewrite the body of a function; whether it is one block now."""
    region = kernel.regions[0]
    while len(region.blocks) > 1 and (_joined(region) or _chosen(region) or _looped(region)):
        pass
    return len(region.blocks) == 1


def _predecessors(region: Region) -> dict[Block, list[Block]]:
    found: dict[Block, list[Block]] = {block: [] for block in region.blocks}
    for block in region.blocks:
        last = block.last_op
        for successor in last.successors if last is not None else ():
            found[successor].append(block)
    return found


def _joined(region: Region) -> bool:
    """A block that only one branch reaches moves to the place of that branch."""
    before = _predecessors(region)
    for block in list(region.blocks)[1:]:
        if not before[block]:
            region.detach_block(block)
            block.erase(safe_erase=False)
            return True
        if len(before[block]) != 1:
            continue
        (only,) = before[block]
        branch = only.last_op
        if isinstance(branch, cf.BranchOp) and only is not block:
            Rewriter.erase_op(branch)
            Rewriter.inline_block(block, InsertPoint.at_end(only), branch.arguments)
            return True
    return False


def _ways(op: cf.ConditionalBranchOp) -> list[tuple[Block, list[SSAValue]]]:
    return [(op.then_block, list(op.then_arguments)), (op.else_block, list(op.else_arguments))]


def _chosen(region: Region) -> bool:
    """Two ways that meet again become an if."""
    before = _predecessors(region)
    for block in region.blocks:
        branch = block.last_op
        if not isinstance(branch, cf.ConditionalBranchOp):
            continue
        ways = _ways(branch)
        meets = [_meeting(target, before, block) or target for target, _ in ways]
        if meets[0] is not meets[1] or meets[0] is block:
            continue
        join = meets[0]
        if all(target is join for target, _ in ways):
            values = [
                arith.SelectOp(branch.cond, a, b)
                for a, b in zip(ways[0][1], ways[1][1], strict=True)
            ]
            _end(branch, [*values, cf.BranchOp(join, *[v.result for v in values])])
            return True
        regions = [_way(target, arguments, join) for target, arguments in ways]
        choice = scf.IfOp(branch.cond, [a.type for a in join.args], regions[0], regions[1])
        _end(branch, [choice, cf.BranchOp(join, *choice.results)])
        return True
    return False


def _meeting(target: Block, before: dict[Block, list[Block]], source: Block) -> Block | None:
    """Where a way goes on, if it is a block that only `source` reaches."""
    last = target.last_op
    if before[target] == [source] and isinstance(last, cf.BranchOp):
        return last.successor
    return None


def _way(target: Block, arguments: list[SSAValue], join: Block) -> Region:
    if target is join:
        return Region(Block([scf.YieldOp(*arguments)]))
    block = Block()
    Rewriter.inline_block(target, InsertPoint.at_end(block), arguments)
    last = terminator(block)
    assert isinstance(last, cf.BranchOp)
    Rewriter.replace_op(last, scf.YieldOp(*last.arguments))
    return Region(block)


def _end(branch: Operation, new: list[Operation]) -> None:
    for op in new:
        op.location = branch.location
    Rewriter.replace_op(branch, new, [])


def _looped(region: Region) -> bool:
    """A head that tests, a body that goes back to it: a while. A block that goes back to itself: one too."""
    before = _predecessors(region)
    for head in list(region.blocks)[1:]:
        test = head.last_op
        if not isinstance(test, cf.ConditionalBranchOp):
            continue
        ways = _ways(test)
        for stays, leaves in ((0, 1), (1, 0)):
            (body, to_body), (out, to_out) = ways[stays], ways[leaves]
            again = body.last_op
            if out is head or out is body:
                continue
            if body is head:
                _while(region, head, None, test, stays == 1, to_body, out, to_out)
                return True
            if (
                isinstance(again, cf.BranchOp)
                and again.successor is head
                and before[body] == [head]
            ):
                _while(region, head, body, test, stays == 1, to_body, out, to_out)
                return True
    return False


def _while(
    region: Region,
    head: Block,
    body: Block | None,
    test: cf.ConditionalBranchOp,
    negate: bool,
    to_body: list[SSAValue],
    out: Block,
    to_out: list[SSAValue],
) -> None:
    """The loop as an scf.while in a block of its own, which the branches to the head now reach.

    What the head makes and others use is carried along, after the values that the branch to the body has.
    """
    defined: list[SSAValue] = [*head.args, *(r for op in head.ops for r in op.results)]
    passed = [
        v
        for v in defined
        if v in to_out or any(not head.is_ancestor(use.operation) for use in v.uses)
    ]
    types = [v.type for v in [*to_body, *passed]]
    before, after = Block(arg_types=[a.type for a in head.args]), Block(arg_types=types)
    values: dict[SSAValue, SSAValue] = dict(zip(head.args, before.args, strict=True))
    before.add_ops([op.clone(values) for op in head.ops if op is not test])
    condition = values.get(test.cond, test.cond)
    if negate:
        one = arith.ConstantOp(IntegerAttr(1, i1))
        flip = arith.XOrIOp(condition, one.result)
        before.add_ops([one, flip])
        condition = flip.result
    before.add_op(scf.ConditionOp(condition, *[values.get(v, v) for v in [*to_body, *passed]]))
    count = len(to_body)
    if body is None:
        after.add_op(scf.YieldOp(*after.args[:count]))
    else:
        values = dict(zip([*body.args, *passed], after.args, strict=True))
        back = body.last_op
        assert isinstance(back, cf.BranchOp)
        after.add_ops([op.clone(values) for op in body.ops if op is not back])
        after.add_op(scf.YieldOp(*[values.get(v, v) for v in back.arguments]))
    entry = Block(arg_types=[a.type for a in head.args])
    loop = scf.WhileOp(list(entry.args), types, Region(before), Region(after))
    loop.location = test.location
    results: dict[SSAValue, SSAValue] = dict(zip(passed, loop.results[count:], strict=True))
    entry.add_ops([loop, cf.BranchOp(out, *[results.get(v, v) for v in to_out])])
    region.insert_block_before(entry, head)
    for block in region.blocks:
        last = block.last_op
        if last is not None and head in last.successors and block not in (head, body):
            last.successors = [entry if s is head else s for s in last.successors]
    for old, new in results.items():
        old.replace_all_uses_with(new)
    for block in (head, body):
        if block is not None:
            region.detach_block(block)
            block.erase(safe_erase=False)
