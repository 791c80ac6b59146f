"""loop-nests: loops of several dimensions in kernels, and copies of arrays, become nested scf.for.

    scf.parallel (%i, %j) = ..                       scf.for %i = .. { scf.for %j = .. { .. } }
    %s = scf.parallel .. init (%z) {            ->   %s = scf.for .. iter_args(%t = %z) { .. scf.yield %t + %x }
      scf.reduce(%x) { .. } }
    memref.copy %a, %b                               scf.for %i .. { vector.transfer_read %a[%i, 0] ; transfer_write }

A workgroup copies blocks of its two innermost dimensions, a subgroup and a lane numbers: each instance copies all.
Requires: no scf.forall. Guarantees: iterations in order, and none of these ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xdsl.dialects import gpu, memref, scf, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BoolAttr,
    IndexType,
    MemRefType,
    VectorType,
)
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.nesting import terminator
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before
from tilewright.passes.kernel import level_of

BLOCKS = ((), (1024,), (16, 64))
"""What a workgroup copies at once, at most, of an array of no, one, and more dimensions."""


def loop_nests(module: Operation) -> None:
    """Rewrites the modules of kernels in a module, in place."""
    for kernels in [op for op in module.walk() if isinstance(op, gpu.ModuleOp)]:
        levels = {level_of(op) for op in kernels.walk() if isinstance(op, gpu.FuncOp)}
        _rewrite(kernels, levels == {"workgroup"})


def _rewrite(kernels: gpu.ModuleOp, whole: bool) -> None:
    for op in list(kernels.walk()):
        match op:
            case scf.ParallelOp():
                parallel_to_for(op)
            case memref.CopyOp():
                _copy(op, whole)
            case _:
                pass


def _nest(
    at: Before,
    lows: Sequence[Index],
    highs: Sequence[Index],
    steps: Sequence[Index],
    start: Sequence[SSAValue] = (),
) -> tuple[list[scf.ForOp], Before]:
    """Loops that carry values, which the innermost yields as they are, and where that does."""
    loops: list[scf.ForOp] = []
    bounds = [[at.index(n) for n in numbers] for numbers in (lows, highs, steps)]
    carried = list(start)
    for low, high, step in zip(*bounds, strict=True):
        block = Block(arg_types=[IndexType(), *(v.type for v in carried)])
        loops.append(scf.ForOp(low, high, step, carried, block))
        carried = list(block.args[1:])
    for outer, inner in pairwise(loops):
        inner.location = at.op.location
        outer.body.block.add_ops([inner, scf.YieldOp(*inner.results)])
    at.insert(loops[0])
    end = scf.YieldOp(*carried)
    end.location = at.op.location
    loops[-1].body.block.add_op(end)
    return loops, Before(end)


def parallel_to_for(op: scf.ParallelOp) -> None:
    """Nested scf.for in place of an scf.parallel; what its iterations reduce is carried."""
    loops, end = _nest(Before(op), op.lowerBound, op.upperBound, op.step, op.initVals)
    reduce = op.body.block.last_op
    assert isinstance(reduce, scf.ReduceOp)
    carried = list(end.op.operands)
    inside = InsertPoint.before(end.op)
    operands, regions = list(reduce.args), list(reduce.reductions)
    Rewriter.inline_block(op.body.block, inside, [loop.body.block.args[0] for loop in loops])
    for n, (operand, region) in enumerate(zip(operands, regions, strict=True)):
        given = terminator(region.block)
        Rewriter.inline_block(region.block, inside, [carried[n], operand])
        end.op.operands[n] = given.operands[0]
        Rewriter.erase_op(given)
    Rewriter.erase_op(reduce)
    Before(op).replace(*loops[0].results)


def _copy(op: memref.CopyOp, whole: bool) -> None:
    at, (source, target) = Before(op), (op.source, op.destination)
    assert isinstance(source.type, MemRefType) and isinstance(target.type, MemRefType)
    shapes = source.type.get_shape(), target.type.get_shape()
    extents = [max(pair) for pair in zip(*shapes, strict=True)]
    rank = len(extents)
    most = BLOCKS[min(rank, 2)] if whole else ()
    block = [1] * (rank - len(most)) + [
        limit if n < 0 else min(n, limit)
        for n, limit in zip(extents[rank - len(most) :], most)  # noqa: B905
    ]
    place: list[SSAValue] = []
    if extents:
        sizes = [
            at.add(memref.DimOp(source, at.index(dim))) if n < 0 else n
            for dim, n in enumerate(extents)
        ]
        loops, at = _nest(at, [0] * rank, sizes, block)
        place = [loop.body.block.args[0] for loop in loops]
    if not most:
        value = at.add(memref.LoadOp.get(source, place))
        at.insert(memref.StoreOp.get(value, target, place))
    else:
        fits = [n >= 0 and n % size == 0 for n, size in zip(extents, block, strict=True)]
        within = ArrayAttr(BoolAttr.from_bool(fit) for fit in fits[-len(most) :])
        kind = VectorType(source.type.element_type, block[-len(most) :])
        order = AffineMapAttr(AffineMap.minor_identity(rank, len(most)))
        padding = at.constant(kind.element_type, 0)
        value = at.add(vector.TransferReadOp(source, place, padding, kind, within, order))
        at.insert(vector.TransferWriteOp(value, target, place, within, permutation_map=order))
    Rewriter.erase_op(op)
