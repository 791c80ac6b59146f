"""eliminate-barriers: barriers that order nothing are removed.

    scf.for .. {                                    scf.for .. {
      gpu.barrier                        ->           %a = xetile.load_tile %t
      %a = xetile.load_tile %t .. }                   .. }

Programs for subgroups hold barriers in their loops that only keep the subgroups together, so that what one of them
prefetched is still in the cache when the next one loads it.

Requires: XeTile of one subgroup. Guarantees: the same results. A barrier orders what one subgroup writes before it
against what another reads after it (or the other way round). It orders nothing where the kernel has no memory of the
workgroup's own, no atomics, and every array that it reads is never written, or is read only exactly where the
same subgroup's stores will write.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.rewriter import Rewriter

from tilewright.passes.access import Access, AccessAnalysis, AccessKind, same_matrix
from tilewright.passes.memory_objects import is_memref, may_alias, memory_root, memory_space

READERS = (
    "memref.load",
    "vector.load",
    "vector.maskedload",
    "vector.transfer_read",
    "vector.gather",
)


def eliminate_barriers(kernel: gpu.FuncOp) -> bool:
    """Removes barriers that order no memory accesses. Returns whether none is left."""
    barriers = [op for op in kernel.walk() if isinstance(op, gpu.BarrierOp)]
    if not barriers:
        return True
    if not _ordered_without(kernel):
        return False
    for op in barriers:
        Rewriter.erase_op(op)
    return True


def _ordered_without(kernel: gpu.FuncOp) -> bool:
    analysis = AccessAnalysis(kernel)
    stores = [a for a in analysis.accesses if a.kind is AccessKind.STORE]
    for op in kernel.walk():
        for value in op.results:
            if isinstance(value.type, MemRefType) and memory_space(value) == 3:
                return False
        if op.name in READERS:
            roots = [memory_root(v) for v in op.operands if is_memref(v)]
            if not all(analysis.read_only(root) for root in roots):
                return False
    for access in analysis.accesses:
        if access.kind is AccessKind.ATOMIC or access.memory_space == 3:
            return False
        if access.kind is not AccessKind.LOAD or analysis.read_only(access.root):
            continue
        others = [s for s in stores if may_alias(s.root, access.root)]
        if any(not same_matrix(access, store) for store in others):
            return False
        if not any(_same_place(access, store) for store in others):
            return False
    return True


def _same_place(load: Access, store: Access) -> bool:
    """Do a load and a store of one subgroup touch the same elements, whatever the loops around them do?"""
    return (
        same_matrix(load, store)
        and load.offsets == store.offsets
        and load.shape == store.shape
        and not any(load.depends_on(loop) for loop in load.loops)
    )
