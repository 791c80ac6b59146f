"""xe-split-accumulators: products that would add to a value that arithmetic made sum by themselves, and are added
behind.

    %s = arith.mulf %out, %keep                      %d = dpas %p0, %v0 ; %e = dpas %p1, %v1, %d
    %d = dpas %p0, %v0, %s ; %e = dpas %p1, %v1, %d  ->   %s = arith.mulf %out, %keep ; %r = arith.addf %s, %e

Arithmetic works on registers one by one, a product on eight that lie together: a compiler moves an accumulator that
both change, twice per step of a loop, and holds it twice meanwhile. A sum of its own lives for the length of its
products only, and multiplication and addition behind them are one instruction.

Requires: a lane program. Guarantees: the same results up to the order of accumulation, which is free; as many products.
Done in loops, where the value that arithmetic made has no other user.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise, retyped
from tilewright.passes.emit import Before, Behind


def split_accumulators(kernel: gpu.FuncOp) -> bool:
    """Splits accumulators: products get sums of their own, added behind. Returns whether there was a chain."""
    changed = False
    for op in list(kernel.walk()):
        if isinstance(op, xegpu.DpasOp) and isinstance(op.parent_op(), scf.ForOp):
            start = op.acc
            if start is not None and _is_computed(start):
                _rewrite(op, start)
                changed = True
    return changed


def _is_computed(value: SSAValue) -> bool:
    """By arithmetic of the same loop, on something that is no constant, for these products alone."""
    owner = value.owner
    if not isinstance(owner, Operation) or not is_elementwise(owner) or not owner.operands:
        return False
    return value.has_one_use() and isinstance(owner.parent_op(), scf.ForOp)


def _rewrite(first: xegpu.DpasOp, start: SSAValue) -> None:
    last = first
    while last.result.has_one_use():
        use = next(iter(last.result.uses))
        after = use.operation
        if not isinstance(after, xegpu.DpasOp) or after.acc is not last.result:
            break
        if after.parent is not first.parent or after.lhs is last.result:
            break
        last = after
    assert first.parent is not None
    kind = last.result.type
    alone = retyped(first, [first.lhs, first.rhs], [first.result.type])
    if last is first:
        last = alone
    at = Before(first)
    at.replace(at.add(alone))
    total: Operation
    if isinstance(kind.element_type, AnyFloat):
        maker = start.owner
        flags = getattr(maker, "fastmath", None)
        total = arith.AddfOp(start, last.result, flags=flags)
    else:
        total = arith.AddiOp(start, last.result)
    total.results[0].name_hint = last.result.name_hint
    Behind(last).instead(last.result, total)
