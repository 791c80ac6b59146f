"""host-unroll-and-jam: rounds of a loop around a sum run side by side, each sum in its own order.

    scf.for %j = %lo to %hi step %1 {                scf.for %j = %lo to %mid step %8 {
      %s = scf.for %k .. iter_args(%a = %z) {          %s:8 = scf.for %k .. iter_args(%a0 = %z, .. %a7 = %z) {
        %x = memref.load %m[%i, %k]                      .. one load of %m[%i, %k], eight of %n, eight sums ..
        %y = memref.load %n[%j, %k]          ->          scf.yield %b0, .. %b7
        .. scf.yield %b                                }
      }                                                memref.store %s#0, %o[%i, %j] ..
      memref.store %s, %o[%i, %j]                    }
    }                                                scf.for %j = %mid to %hi step %1 { .. as before .. }

A sum must be taken in its order, so it waits for one addition after another: sums of several rounds wait together, and
where neighbours lie side by side in memory they become vectors. So do rounds of the loop around: what they read alike,
a column of %n, is then read once for all of them.

Requires: the loop is independent (`HostMemory.independent`).  It qualifies when its body is straight code with loops
that carry values, or with one loop that qualifies itself, whose bounds do not depend on the counter.
Guarantees: every element is computed by the same operations in the same order.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects.upstream.arith import constant
from tilewright.passes.emit import Before
from tilewright.passes.host.memory import HostMemory

WIDTH = 16
"""Rounds side by side: a register of f32 with AVX-512."""
ROWS = 8
"""Rounds of the loop around: so many registers of sums, with room for what they add up."""


def unroll_and_jam(function: Operation, memory: HostMemory) -> int:
    """Jam every loop of a function that qualifies; returns how many."""
    loops = [
        op
        for op in function.walk()
        if isinstance(op, scf.ForOp) and _qualifies(op) and memory.independent(op)
    ]
    around = [
        op
        for loop in loops
        if isinstance(op := loop.parent_op(), scf.ForOp)
        and _qualifies(op, loop)
        and memory.independent(op)
    ]
    for loop in loops:
        _jam(loop, WIDTH)
    for loop in around:
        _jam(loop, ROWS)
    return len(loops) + len(around)


def _qualifies(loop: scf.ForOp, jammed: scf.ForOp | None = None) -> bool:
    """`jammed`: the loop in it that qualifies, if one does."""
    inner = [op for op in loop.body.walk() if isinstance(op, scf.ForOp)]
    return (
        bool(inner)
        and constant(loop.step) == 1
        and all(list(op.iter_args) or op is jammed for op in inner)
        and all(_same(loop, v) for op in inner for v in (op.lb, op.ub, op.step))
        and not any(isinstance(op, scf.IfOp) for op in loop.body.walk())
    )


def _same(loop: scf.ForOp, value: SSAValue) -> bool:
    """Whether all rounds of a loop see the same value."""
    return not loop.is_ancestor(value.owner) or isinstance(value.owner, arith.ConstantOp)


def _jam(loop: scf.ForOp, count: int) -> None:
    rest = loop.clone()
    before = Before(loop)
    width = before.index(count)
    length = before.add(arith.SubiOp(loop.ub, loop.lb))
    groups = before.add(arith.DivSIOp(length, width))
    middle = before.add(arith.AddiOp(loop.lb, before.add(arith.MuliOp(groups, width))))
    rest.operands[0] = middle
    block = Block(arg_types=[IndexType()])
    together = scf.ForOp(loop.lb, middle, width, [], Region(block))
    maps: list[dict[SSAValue, SSAValue]] = []
    for lane in range(count):
        at = block.args[0]
        if lane:
            shift = arith.ConstantOp(IntegerAttr(lane, IndexType()))
            sum_ = arith.AddiOp(at, shift.result)
            block.add_ops([shift, sum_])
            at = sum_.result
        maps.append({loop.body.block.args[0]: at})
    _copy(loop.body.block, block, maps)
    for op in (together, rest):
        before.insert(op)
    Rewriter.erase_op(loop, safe_erase=False)


def _copy(source: Block, target: Block, maps: list[dict[SSAValue, SSAValue]]) -> None:
    """The ops of `source` once per map; loops once, with what they carry once per map."""
    for op in source.ops:
        if isinstance(op, scf.YieldOp):
            values = [m.get(v, v) for m in maps for v in op.operands]
            target.add_op(scf.YieldOp(*values))
        elif isinstance(op, scf.ForOp):
            target.add_op(_loops(op, maps))
        else:
            for values in maps:
                target.add_op(op.clone(values))


def _loops(op: scf.ForOp, maps: list[dict[SSAValue, SSAValue]]) -> scf.ForOp:
    carried = [m.get(v, v) for m in maps for v in op.iter_args]
    block = Block(arg_types=[IndexType(), *(v.type for v in carried)])
    first = maps[0]  # bounds are the same in all of them
    lb, ub, step = (first.get(v, v) for v in (op.lb, op.ub, op.step))
    together = scf.ForOp(lb, ub, step, carried, Region(block))
    together.location = op.location
    count = len(op.results)
    for lane, values in enumerate(maps):
        values[op.body.block.args[0]] = block.args[0]
        for i in range(count):
            values[op.body.block.args[1 + i]] = block.args[1 + lane * count + i]
    _copy(op.body.block, block, maps)
    for lane, values in enumerate(maps):
        for i in range(count):
            values[op.results[i]] = together.results[lane * count + i]
    return together
