"""xegpu-merge-inductions: what marches through a loop in step is carried once.

    scf.for %k = %c0 to %n step %c32 iter_args(%ta = %c0, %tap = %c96) {        scf.for %k = %c0 to %n step %c32 {
      load_nd %a[%i, %ta]  ;  prefetch_nd %a[%i, %tap]                            %tap = arith.addi %k, %c96
      %n1 = arith.addi %ta, %c32  ;  %n2 = arith.addi %tap, %c32           ->     load_nd %a[%i, %k]
      scf.yield %n1, %n2                                                          prefetch_nd %a[%i, %tap]
    }                                                                           }

Descriptors that a text moves by update_nd_offset become carried numbers, one per descriptor and dimension; each takes
a register and an addition per turn. Those that grow by the loop's step are its counter and a distance; those that grow
by another step are one of them and distances.

Requires: offsets as numbers (xegpu-upgrade). Guarantees: the same results; of carried indices that grow by the same
number, which the loop does not change, one is left, or none where the loop counts so. A number whose value behind the
loop is used is carried as before.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.dialects.upstream.arith import constant

Step = int | SSAValue


def merge_inductions(kernel: gpu.FuncOp) -> None:
    """Rewrites the loops of one kernel."""
    for loop in [x for x in kernel.walk() if isinstance(x, scf.ForOp)]:
        _trim(loop)


def _trim(loop: scf.ForOp) -> None:
    body = loop.body.block
    leads: dict[Step, tuple[SSAValue, SSAValue]] = {}
    if isinstance(body.args[0].type, IndexType):
        leads[_known(loop.step)] = (body.args[0], loop.lb)
    derived: list[int] = []
    for n, argument in enumerate(body.args[1:]):
        step = _step(loop, argument)
        if step is None:
            continue
        start = loop.iter_args[n]
        if step not in leads:
            leads[step] = (argument, start)
        elif loop.results[n].first_use is None:
            lead, origin = leads[step]
            argument.replace_all_uses_with(_at(loop, lead, start, origin))
            derived.append(n)
    if derived:
        _without(loop, derived)


def _known(value: SSAValue) -> Step:
    number = constant(value)
    return value if number is None else number


def _step(loop: scf.ForOp, argument: BlockArgument) -> Step | None:
    """By how much a carried index grows in every turn; None where it does something else."""
    ends = loop.body.block.last_op
    assert ends is not None
    add = ends.operands[argument.index - 1].owner
    if not isinstance(argument.type, IndexType) or not isinstance(add, arith.AddiOp):
        return None
    if add.lhs is argument:
        step = add.rhs
    elif add.rhs is argument:
        step = add.lhs
    else:
        return None
    known = _known(step)
    return known if isinstance(known, int) or _stands_outside(step, loop) else None


def _stands_outside(value: SSAValue, loop: scf.ForOp) -> bool:
    place = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    while place is not None:
        if place is loop:
            return False
        place = place.parent_op()
    return True


def _at(loop: scf.ForOp, lead: SSAValue, start: SSAValue, origin: SSAValue) -> SSAValue:
    """The number that starts at `start` and marches with `lead`, which starts at `origin`."""
    a, b = constant(start), constant(origin)
    if start is origin or (a is not None and a == b):
        return lead
    if a is not None and b is not None:
        far = _before(loop, arith.ConstantOp(IntegerAttr(a - b, IndexType())))
    else:
        far = start if b == 0 else _before(loop, arith.SubiOp(start, origin))
    add = arith.AddiOp(lead, far)
    add.location = loop.location
    first = loop.body.block.first_op
    assert first is not None
    loop.body.block.insert_op_before(add, first)
    add.result.name_hint = start.name_hint
    return add.result


def _before(loop: scf.ForOp, op: Operation) -> SSAValue:
    op.location = loop.location
    assert loop.parent is not None
    loop.parent.insert_op_before(op, loop)
    return op.results[0]


def _without(loop: scf.ForOp, derived: list[int]) -> None:
    """The loop, without some of its carried values, which nobody uses."""
    body, ends = loop.body.block, loop.body.block.last_op
    assert ends is not None and loop.parent is not None
    kept = [n for n in range(len(loop.results)) if n not in derived]
    old = scf.YieldOp(*(ends.operands[n] for n in kept))
    body.insert_op_before(old, ends)
    ends.detach()
    ends.erase()
    for n in reversed(derived):
        body.erase_arg(body.args[n + 1])
    inits = [loop.iter_args[n] for n in kept]
    new = scf.ForOp(loop.lb, loop.ub, loop.step, inits, loop.detach_region(loop.body))
    new.location = loop.location
    new.attributes.update(loop.attributes)
    loop.parent.insert_op_before(new, loop)
    for place, n in enumerate(kept):
        new.results[place].name_hint = loop.results[n].name_hint
        loop.results[n].replace_all_uses_with(new.results[place])
    loop.detach()
    loop.erase()
