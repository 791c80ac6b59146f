"""xegpu-merge-inductions: what marches through a loop in step is carried once.

    scf.for %k = %c0 to %n step %c32 iter_args(%ta = %c0, %tap = %c96) {        scf.for %k = %c0 to %n step %c32 {
      load_nd %a[%i, %ta]  ;  prefetch_nd %a[%i, %tap]                            %tap = arith.addi %k, %c96
      %n1 = arith.addi %ta, %c32  ;  %n2 = arith.addi %tap, %c32           ->     load_nd %a[%i, %k]
      scf.yield %n1, %n2                                                          prefetch_nd %a[%i, %tap]
    }                                                                           }

Descriptors that a text moves by update_nd_offset become carried numbers, one per descriptor and dimension; each takes
a register and an addition. Those that grow by the loop's step are its counter and a distance; those that grow
by another step are one of them and distances.

Requires: offsets as numbers (xegpu-upgrade). Guarantees: the same results; of carried indices that grow by the same
number, which the loop does not change, one is left, or none where the loop counts so. A number whose value behind the
loop is used is carried as before.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import BlockArgument, SSAValue

from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before
from tilewright.passes.integers import growth
from tilewright.passes.loops import carrying


def merge_inductions(kernel: gpu.FuncOp) -> None:
    """Merges induction variables that advance by the same step."""
    for loop in [x for x in kernel.walk() if isinstance(x, scf.ForOp)]:
        _trim(loop)


def _trim(loop: scf.ForOp) -> None:
    body = loop.body.block
    leads: dict[Index, tuple[SSAValue, SSAValue]] = {}
    if isinstance(body.args[0].type, IndexType):
        leads[folded(loop.step)] = (body.args[0], loop.lb)
    kept: list[int] = []
    for n, argument in enumerate(body.args[1:]):
        step, start = _step(loop, argument), loop.iter_args[n]
        if step is not None and step in leads and loop.results[n].first_use is None:
            argument.replace_all_uses_with(_at(loop, *leads[step], start))
            continue
        kept.append(n)
        if step is not None:
            leads.setdefault(step, (argument, start))
    if len(kept) < len(loop.results):
        carrying(loop, kept)


def _step(loop: scf.ForOp, argument: BlockArgument) -> Index | None:
    """By how much a carried index grows in every iteration; None where it does something else."""
    if not isinstance(argument.type, IndexType):
        return None
    step = growth(argument, terminator(loop.body.block).operands[argument.index - 1]) or None
    return None if isinstance(step, SSAValue) and loop.is_ancestor(step.owner) else step


def _at(loop: scf.ForOp, lead: SSAValue, origin: SSAValue, start: SSAValue) -> SSAValue:
    """The number that starts at `start` and marches with `lead`, which starts at `origin`."""
    first, at = loop.body.block.first_op, Before(loop)
    assert first is not None
    far = 0 if start is origin else at.minus(folded(start), folded(origin))
    if far == 0:
        return lead
    made = arith.AddiOp(lead, at.index(far))
    made.location = loop.location
    loop.body.block.insert_op_before(made, first)
    made.result.name_hint = start.name_hint
    return made.result
