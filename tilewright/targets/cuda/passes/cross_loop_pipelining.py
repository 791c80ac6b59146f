"""Loops that follow one another and are rotated alike: the last product of one runs beside the first iteration of the
next (`mma-pipelining` has the words: A is an iteration up to its last product L, which is left to the next iteration).

    x = for j in r { A1; L }            if r { A1(0); for j in r from the second { A1 beside L }
    y = for j in s (x) { A2; L }    ->         for j in s { A2 beside L }; L }
                                        else if s { A2(0); for j in s from the second { A2 beside L }; L }

Masks make such loops: blocks that need none, then those at the edge. Without this each loop would end by waiting for
its last product, and begin by waiting for its first.

Requires: plans of the single loops. Guarantees: as `mma-pipelining`.

Takes part: a loop whose carried values all begin as the results, in order, of a loop of the same block, when both leave
the same L to the next iteration (equal ops on the same multi-buffers, arrays and carried values), nothing else reads
what the first loop gives, and nothing between the two has an effect; and where the second begins depends on the
program, so that it runs in most of them (one that is there for a ragged end would cost registers for nothing). At most
`MOST` loops: their code is made once for each loop before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, scf
from xdsl.ir import Block, Operation, SSAValue

from tilewright.passes.carried import operands_of, reached
from tilewright.passes.loop_pipeliner import PipelineSchedule
from tilewright.passes.memory_objects import is_pure
from tilewright.targets.cuda.passes.multi_buffering import PROGRAMS

MOST = 3
"""Loops of a run."""


def chained(schedules: Sequence[PipelineSchedule]) -> list[list[PipelineSchedule]]:
    """Schedules of loops that follow one another, in runs; each loop is in one."""
    runs: list[list[PipelineSchedule]] = []
    for each in schedules:
        run = next((r for r in runs if _follows(each, r[-1])), None)
        if run is None or len(run) == MOST:
            runs.append([each])
        else:
            run.append(each)
    return runs


def _follows(schedule: PipelineSchedule, before: PipelineSchedule) -> bool:
    loop, other = schedule.loop, before.loop
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
    return _varies(loop.lb) and _same_late(before, schedule)


def _varies(value: SSAValue) -> bool:
    """Does a value differ from program to program? A second loop that begins there runs in most of them."""
    values = reached([value], lambda v: () if _has_regions(v.owner) else operands_of(v))
    return any(isinstance(v.owner, gpu.BlockIdOp) or _counts_programs(v.owner) for v in values)


def _has_regions(owner: Operation | Block) -> bool:
    return isinstance(owner, Operation) and bool(owner.regions)


def _counts_programs(owner: Operation | Block) -> bool:
    around = owner.parent_op() if isinstance(owner, Block) else None
    return isinstance(around, scf.ForOp) and PROGRAMS in around.attributes


def _same_late(a: PipelineSchedule, b: PipelineSchedule) -> bool:
    """Are the ops of L equal, on values that correspond?"""
    late, other = ([op for op in x.order if x.stage(op)] for x in (a, b))
    if len(late) != len(other) or [n for _, n in a.carried] != [n for _, n in b.carried]:
        return False
    pairs = zip(a.carried, b.carried, strict=True)
    match: dict[SSAValue, SSAValue] = {p: q for (p, _), (q, _) in pairs}
    for x, y in zip(late, other, strict=True):
        if x.name != y.name or x.properties != y.properties or x.attributes != y.attributes:
            return False
        if x.result_types != y.result_types or len(x.operands) != len(y.operands):
            return False
        for p, q in zip(x.operands, y.operands, strict=True):
            if match.get(p, p) is not q and not _same_constant(p, q):
                return False
        match |= dict(zip(x.results, y.results, strict=True))
    if [a.end_stage(x) for x in a.args] != [b.end_stage(y) for y in b.args]:
        return False
    ends = zip(a.args, b.args, strict=True)
    return all(match.get(a.ends[x]) is b.ends[y] for x, y in ends if a.end_stage(x))


def _same_constant(a: SSAValue, b: SSAValue) -> bool:
    x, y = a.owner, b.owner
    return (
        isinstance(x, arith.ConstantOp) and isinstance(y, arith.ConstantOp) and x.value == y.value
    )
