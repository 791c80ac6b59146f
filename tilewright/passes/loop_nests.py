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

from xdsl.dialects import gpu, memref, scf, vector
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, BoolAttr, MemRefType, VectorType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.nesting import terminator
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


def parallel_to_for(op: scf.ParallelOp) -> None:
    """Nested scf.for in place of an scf.parallel; what its iterations reduce is carried."""
    at = Before(op)

    def body(counters: Sequence[SSAValue], carried: Sequence[SSAValue]) -> list[SSAValue]:
        inside, reduce = InsertPoint.before(at.op), terminator(op.body.block)
        operands, regions = list(reduce.operands), list(reduce.regions)
        Rewriter.inline_block(op.body.block, inside, counters)
        found: list[SSAValue] = []
        for before, operand, region in zip(carried, operands, regions, strict=True):
            given = terminator(region.block)
            Rewriter.inline_block(region.block, inside, [before, operand])
            found.append(given.operands[0])
            Rewriter.erase_op(given)
        Rewriter.erase_op(reduce)
        return found

    bounds = zip(op.lowerBound, op.upperBound, op.step, strict=True)
    at.replace(*at.nest(bounds, body, op.initVals))


def _copy(op: memref.CopyOp, whole: bool) -> None:
    at, (source, target) = Before(op), (op.source, op.destination)
    assert isinstance(source.type, MemRefType) and isinstance(target.type, MemRefType)
    shapes, element = (source.type.get_shape(), target.type.get_shape()), source.type.element_type
    extents = [max(pair) for pair in zip(*shapes, strict=True)]
    rank = len(extents)
    most = BLOCKS[min(rank, 2)] if whole else ()
    block = [1] * (rank - len(most)) + [
        limit if n < 0 else min(n, limit)
        for n, limit in zip(extents[rank - len(most) :], most)  # noqa: B905
    ]
    sizes = [
        at.add(memref.DimOp(source, at.index(dim))) if n < 0 else n for dim, n in enumerate(extents)
    ]

    def body(place: Sequence[SSAValue], _: Sequence[SSAValue]) -> None:
        if not most:
            value = at.add(memref.LoadOp.get(source, place))
            at.insert(memref.StoreOp.get(value, target, place))
            return
        fits = [n >= 0 and n % size == 0 for n, size in zip(extents, block, strict=True)]
        within = ArrayAttr(BoolAttr.from_bool(fit) for fit in fits[-len(most) :])
        kind = VectorType(element, block[-len(most) :])
        order = AffineMapAttr(AffineMap.minor_identity(rank, len(most)))
        padding = at.constant(element, 0)
        value = at.add(vector.TransferReadOp(source, place, padding, kind, within, order))
        at.insert(vector.TransferWriteOp(value, target, place, within, permutation_map=order))

    at.nest(((0, size, step) for size, step in zip(sizes, block, strict=True)), body)
    Rewriter.erase_op(op)
