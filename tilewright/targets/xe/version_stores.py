"""xe-version-stores: masked stores that follow each other ask once whether all of their lanes' masks are set.

    xegpu.store %x, %p[%i], %m               scf.if (%m & %n) { store %x, %p[%i], true ; store %y, %p[%j], true }
    xegpu.store %y, %p[%j], %n         ->    else { store %x, %p[%i], %m ; store %y, %p[%j], %n }

A masked store is a branch. A compiler moves what only that branch reads into it, arithmetic of the whole fragment too,
and holds the operands up to there: an accumulator and what is added to it, twice the registers. What two branches read
stays where it was made. And lanes away from the edge take one branch for a fragment, not one for each element.

Requires: a lane program. Guarantees: the same stores in the same order.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xegpu
from tilewright.dialects.nesting import move, terminator
from tilewright.passes import memory_objects
from tilewright.passes.emit import Before
from tilewright.targets.xe.building import is_true

TOGETHER = 8
"""Stores of one branch at most: those of a fragment's rows."""
LEAST = 4


def version_stores(kernel: gpu.FuncOp) -> bool:
    """Versions consecutive masked stores: one check whether all masks are set. Returns whether there were some."""
    groups: list[list[xegpu.StoreScatterOp]] = []
    for block in kernel.walk_blocks():
        _collect(block, groups)
    for group in groups:
        _rewrite(group)
    return bool(groups)


def _collect(block: Block, groups: list[list[xegpu.StoreScatterOp]]) -> None:
    run: list[xegpu.StoreScatterOp] = []

    def end() -> None:
        for first in range(0, len(run), TOGETHER):
            part = run[first : first + TOGETHER]
            if len(part) >= LEAST:
                groups.append(part)
        run.clear()

    for op in block.ops:
        if isinstance(op, xegpu.StoreScatterOp) and (
            not isinstance(op.mask.type, VectorType) and not is_true(op.mask)
        ):
            run.append(op)
        elif op.regions or not memory_objects.is_pure(op):
            end()
    end()


def _rewrite(group: list[xegpu.StoreScatterOp]) -> None:
    at = Before(group[-1])
    true = at.constant(i1, 1)
    every: SSAValue = group[0].mask
    for op in group[1:]:
        if op.mask is not every:
            every = at.also(every, op.mask)
    plain: list[Operation] = []
    for op in group:
        copy = op.clone()
        copy.operands[copy.operands.index(op.mask)] = true
        copy.location = op.location
        plain.append(copy)
    branch = scf.IfOp(
        every, [], Region(Block([*plain, scf.YieldOp()])), Region(Block([scf.YieldOp()]))
    )
    at.insert(branch)
    otherwise = branch.false_region.block
    move(group, InsertPoint.before(terminator(otherwise)))
