"""What a loop need not do again: operands of its products that no turn of it changes are packed by the first.

    for %i = %lo to %hi {                                    for %i = %lo to %hi {
      %s = contract { %q = load_tile %Q ..  %k = .. }   ->     if %i == %lo { pack %q }
                                                               multiply the panels of %q by %k

Memory for panels belongs to one product of the workgroup, so what is there stays for the turns that follow.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp
from tilewright.dialects.upstream.arith import folded
from tilewright.passes.memory_objects import is_pure, may_write
from tilewright.targets.cpu.evaluate import Evaluator


def first_turn(e: Evaluator, op: ContractOp, value: SSAValue) -> SSAValue | None:
    """i1: is this the first turn of the loop whose every turn multiplies, by `op`, the same `value`? None where the
    product stands in no such loop."""
    loop = op.parent_op()
    if not isinstance(loop, scf.ForOp) or not _stays(op, loop, value):
        return None
    if any(may_write(each) for each in loop.walk()):
        return None
    lo, counter = (e.scalar(v) for v in (loop.lb, loop.body.block.args[0]))
    return e.b.cmp("eq", folded(counter), folded(lo))


def _stays(op: ContractOp, loop: scf.ForOp, value: SSAValue) -> bool:
    """Does a value depend on nothing that turns of the loop change, memory aside?"""
    waiting, seen = [value], set[SSAValue]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        owner = each.owner
        if isinstance(owner, Block):
            if owner is op.body.block:
                waiting += (op.lo, op.hi, op.step)
            elif owner is loop.body.block or loop.is_ancestor(owner):
                return False
        elif loop.is_ancestor(owner):
            if owner.regions or not (is_pure(owner) or isinstance(owner, xt.LoadTileOp)):
                return False
            waiting += owner.operands
    return True
