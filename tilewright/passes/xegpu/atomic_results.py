"""atomic-results: the first subgroup does an atomic on a number, and the others get what it found from shared memory.

    %old = memref.atomic_rmw addi %x, %a[%i]   ->   %s = memref.alloc() : memref<1xi32, 3>    // where the kernel begins
                                                    scf.if %first {
                                                      %was = memref.atomic_rmw addi %x, %a[%i] : ..
                                                      memref.store %was, %s[0]
                                                    } {sg_id_range = #xegpu.range<[0, 1]>}
                                                    %old = memref.load %s[0]

Requires: a workgroup's program. Guarantees: the same results, and no atomic on a number whose result all subgroups use.
What stands in a branch that a run of several subgroups takes stays.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Block, Region
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dialects.upstream.gpu.memory import SHARED_MEMORY
from tilewright.dialects.xegpu import RangeAttr
from tilewright.passes.emit import Before
from tilewright.passes.level import RANGE, run_around


def atomic_results(kernel: gpu.FuncOp) -> None:
    """Has the first subgroup do atomics of numbers whose results are used, and hand those on."""
    for op in list(kernel.walk()):
        used = isinstance(op, memref.AtomicRMWOp | GenericAtomicRMWOp) and op.result.first_use
        if used and run_around(op) is None:
            _share(kernel, op)  # pyright: ignore[reportArgumentType]


def _share(kernel: gpu.FuncOp, op: memref.AtomicRMWOp | GenericAtomicRMWOp) -> None:
    at = Before(op)
    kind = MemRefType(op.result.type, [1], memory_space=IntegerAttr(SHARED_MEMORY, i64))
    shared = memref.AllocOp([], [], kind)
    shared.location = op.location
    Rewriter.insert_op(shared, InsertPoint.at_start(kernel.body.block))
    zero = at.index(0)
    first = at.add(arith.CmpiOp(at.add(gpu.SubgroupIdOp()), zero, "eq"))
    branch = scf.IfOp(first, [], Region(Block()))
    branch.attributes[RANGE] = RangeAttr(0, 1)
    at.insert(branch)
    result = at.add(memref.LoadOp.get(shared.memref, [zero]))
    op.result.replace_all_uses_with(result)
    op.detach()
    handed_on = memref.StoreOp.get(op.result, shared.memref, [zero])
    for inner in (op, handed_on, scf.YieldOp()):
        inner.location = op.location
        branch.true_region.block.add_op(inner)
