"""Loops that follow one another and are rotated alike: the last product of one runs beside the first iteration of the
next (`rotate` has the words: A is an iteration up to its last product L, which is left to the next iteration).

    x = for j in r { A1; L }            if r { A1(0); for j in r from the second { A1 beside L }
    y = for j in s (x) { A2; L }    ->         for j in s { A2 beside L }; L }
                                        else if s { A2(0); for j in s from the second { A2 beside L }; L }

Masks make such loops: blocks that need none, then those at the edge. Without this each loop would end by waiting for
its last product, and begin by waiting for its first.

Requires: plans of the single loops. Guarantees: as `rotate`.

Takes part: a loop whose carried values all begin as the results, in order, of a loop of the same block, when both leave
the same L to the next iteration (equal ops on the same rings, arrays and carried values), nothing else reads what the
first loop gives, and nothing between the two has an effect; and where the second begins depends on the program, so
that it runs in most of them (one that is there for a ragged end would cost registers for nothing). At most `MOST`
loops: their code is made once for each loop before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, scf
from xdsl.ir import Block, Region, SSAValue

from tilewright.passes.memory_objects import is_pure
from tilewright.targets.cuda.passes.rings import PROGRAMS
from tilewright.targets.cuda.passes.rotation import Rotation, Values

MOST = 3
"""Loops of a run."""


def chained(rotations: Sequence[Rotation]) -> list[list[Rotation]]:
    """Rotations of loops that follow one another, in runs; each loop is in one."""
    runs: list[list[Rotation]] = []
    for each in rotations:
        run = next((r for r in runs if _follows(each, r[-1])), None)
        if run is None or len(run) == MOST:
            runs.append([each])
        else:
            run.append(each)
    return runs


def _follows(rotation: Rotation, before: Rotation) -> bool:
    loop, other = rotation.loop, before.loop
    if (
        loop.parent is None
        or loop.parent is not other.parent
        or list(loop.iter_args) != list(other.results)
    ):
        return False
    if any(use.operation is not loop for result in other.results for use in result.uses):
        return False
    between = [
        op for op in loop.parent.ops if other.is_before_in_block(op) and op.is_before_in_block(loop)
    ]
    if not other.is_before_in_block(loop) or any(op.regions or not is_pure(op) for op in between):
        return False
    return _varies(loop.lb) and _same_late(before, rotation)


def _varies(value: SSAValue) -> bool:
    """Does a value differ from program to program? A second loop that begins there runs in most of them."""
    seen: set[SSAValue] = set()
    work = [value]
    while work:
        here = work.pop()
        if here in seen:
            continue
        seen.add(here)
        owner = here.owner
        if isinstance(owner, Block):
            around = owner.parent_op()
            if isinstance(around, scf.ForOp) and PROGRAMS in around.attributes:
                return True
        elif isinstance(owner, gpu.BlockIdOp):
            return True
        elif not owner.regions:
            work += owner.operands
    return False


def _same_late(a: Rotation, b: Rotation) -> bool:
    """Are the ops of L equal, on values that correspond?"""
    if len(a.late) != len(b.late) or len(a.crossing) != len(b.crossing):
        return False
    if [a.is_late(y) for y in a.yields] != [b.is_late(y) for y in b.yields]:
        return False
    match: Values = dict(zip(a.loop.body.block.args, b.loop.body.block.args, strict=True))
    match |= dict(zip(a.crossing, b.crossing, strict=True))
    for x, y in zip(a.late, b.late, strict=True):
        if x.name != y.name or x.properties != y.properties or x.attributes != y.attributes:
            return False
        if x.result_types != y.result_types or len(x.operands) != len(y.operands):
            return False
        for p, q in zip(x.operands, y.operands, strict=True):
            if match.get(p, p) is not q and not _same_constant(p, q):
                return False
        match |= dict(zip(x.results, y.results, strict=True))
    ends = zip(a.yields, b.yields, strict=True)
    return all(match.get(p) is q for p, q in ends if a.is_late(p))


def _same_constant(a: SSAValue, b: SSAValue) -> bool:
    x, y = a.owner, b.owner
    return (
        isinstance(x, arith.ConstantOp) and isinstance(y, arith.ConstantOp) and x.value == y.value
    )


# The new program --------------------------------------------------------------------------------


def rewrite_chain(run: Sequence[Rotation]) -> None:
    """Replaces the loops of a run, at the place of the last of them."""
    end = run[-1].loop
    place = Block()
    results = _from(run, place, list(run[0].loop.iter_args))
    parent = end.parent
    assert parent is not None
    for op in list(place.ops):
        op.detach()
        parent.insert_op_before(op, end)
    for result, fresh in zip(end.results, results, strict=True):
        fresh.name_hint = result.name_hint
        result.replace_all_uses_with(fresh)
    for each in reversed(run):
        each.loop.detach()
        each.loop.erase()


def _from(run: Sequence[Rotation], into: Block, start: list[SSAValue]) -> list[SSAValue]:
    """The loops of a run from its first on, none before which ran: what is carried after all of them."""
    if not run:
        return start
    first, last = run[0], run[-1]
    loop = first.loop
    then = Block()
    made = first.first_iteration(then, start)
    second = arith.AddiOp(loop.lb, loop.step)
    then.add_op(second)
    state: list[SSAValue] = [loop.lb, *made]
    for each in run:
        begin = second.result if each is first else each.loop.lb
        new = scf.ForOp(begin, each.loop.ub, each.loop.step, state, Region(each.body()))
        new.attributes.update(each.loop.attributes)
        then.add_op(new)
        state = list(new.results)
    then.add_op(scf.YieldOp(*last.last_product(then, state)))
    otherwise = Block()
    otherwise.add_op(scf.YieldOp(*_from(run[1:], otherwise, start)))
    ran = arith.CmpiOp(loop.lb, loop.ub, "slt")
    choice = scf.IfOp(ran, list(loop.result_types), Region(then), Region(otherwise))
    into.add_ops([ran, choice])
    return list(choice.results)
