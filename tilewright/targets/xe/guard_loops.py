"""xe-guard-loops: a loop that might not run at all runs at least once, and its results are chosen afterwards.

    %r = scf.for %k = %lb to %ub step %s iter_args(%c = %zero)      %some = arith.cmpi slt, %lb, %ub
                                                              ->    %high = arith.maxsi %ub, (%lb + 1)
                                                                    %x = scf.for %k = %lb to %high .. {mach.nonempty}
                                                                    %r = arith.select %some, %x, %zero

A loop that may be skipped joins its results with their initial values behind it, and a compiler that gives the two
sides different registers holds an accumulator twice: a tile that fills half of them spills. The choice afterwards
writes over the results.

Requires: a lane program. Guarantees: the same results. Done only where initial values of fragments are constants and
where one more run of the body harms nothing: block loads, which are bounded, prefetches, products and arithmetic do
not; a lane's own accesses get `%some` into their masks, and a branch that holds anything else into its condition.
Nor do barriers (whoever meets at one, skips the loop with all others) and accesses of shared memory at places that no
step changes, which the rest of the kernel does not touch, in a loop that comes once.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, UnitAttr, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.nesting import blocks_in
from tilewright.dialects.upstream.arith import constant
from tilewright.passes import memory_objects
from tilewright.passes.carried import reached
from tilewright.passes.emit import Before, Behind
from tilewright.passes.xegpu.block_messages import ROW, memory_of
from tilewright.passes.xegpu.lane_addresses import CLAMPED

_MEETINGS = (gpu.BarrierOp, xegpu.FenceOp)
_MATRIX = (xegpu.LoadMatrixOp, xegpu.StoreMatrixOp)
_MASKED = (xegpu.LoadGatherOp, xegpu.StoreScatterOp, xegpu.AtomicRMWOp)


def guard_loops(kernel: gpu.FuncOp) -> None:
    """Makes loops run at least once, masking the accesses of an iteration too many."""
    for op in list(kernel.walk()):
        if not isinstance(op, scf.ForOp) or not _may_be_empty(op):
            continue
        guarded: list[Operation] = []
        own = _own_memory(kernel, op) if op.parent_op() is kernel else None
        if _is_harmless(op.body.block, guarded, own):
            _rewrite(op, guarded)


def _may_be_empty(loop: scf.ForOp) -> bool:
    """With fragments that it would join behind it, all of which begin as constants."""
    low, high = constant(loop.lb), constant(loop.ub)
    if (low is not None and high is not None) or "mach.nonempty" in loop.attributes:
        return False
    if not isinstance(loop.lb.type, IndexType) or "unsignedCmp" in loop.properties:
        return False
    fragments = [v for v in loop.iter_args if isinstance(v.type, VectorType)]
    return bool(fragments) and all(_is_constant(v) for v in fragments)


def _is_constant(value: SSAValue) -> bool:
    """A constant, or one broadcast to a fragment."""
    if not isinstance(value, OpResult):
        return False
    if value.op.name == "vector.broadcast":
        return _is_constant(value.op.operands[0])
    return isinstance(value.op, arith.ConstantOp)


def _own_memory(kernel: gpu.FuncOp, loop: scf.ForOp) -> set[Operation]:
    """A loop's accesses of shared memory that nothing outside of it accesses, at places that no step changes."""
    inside = set(loop.walk())
    accesses = [op for op in kernel.walk() if isinstance(op, _MATRIX)]
    outside = {memory_of(op) for op in accesses if op not in inside}
    kept: set[Operation] = {
        op
        for op in accesses
        if op in inside
        and (root := memory_of(op)) is not None
        and memory_objects.is_allocation(root)
        and root not in outside
        and _touched_by_matrices_only(root)
        and all(_is_fixed(v, inside) for v in op.offsets)
    }
    return kept if None not in outside else set()


def _touched_by_matrices_only(root: SSAValue) -> bool:
    """Do all users of an allocation make descriptors of matrices of it, whose users access them?"""
    return all(
        isinstance(use.operation, xegpu.CreateMemDescOp)
        and all(isinstance(each.operation, _MATRIX) for each in use.operation.mem_desc.uses)
        for use in root.uses
    )


def _is_fixed(value: SSAValue, inside: set[Operation]) -> bool:
    """Is a number the same in every step: from outside of a loop, or made inside of such numbers?"""

    def needed(value: SSAValue) -> Sequence[SSAValue]:
        owner = value.owner
        return owner.operands if isinstance(owner, Operation) and owner in inside else ()

    def fixed(owner: Operation | Block) -> bool:
        if isinstance(owner, Block):
            return owner.parent_op() not in inside
        return owner not in inside or memory_objects.is_pure(owner)

    return all(fixed(v.owner) for v in reached([value], needed))


def _is_harmless(block: Block, guarded: list[Operation], own: set[Operation] | None) -> bool:
    """Can the body run once more? `guarded` receives ops that must not, and can be kept from it. `own`: accesses of
    shared memory that harm nothing, where barriers do not either."""
    for op in block.ops:
        if own is not None and (op in own or isinstance(op, _MEETINGS)):
            continue
        bounded = isinstance(op, xegpu.LoadNdOp) and op.tdesc.boundary_check
        if isinstance(op, scf.YieldOp | xegpu.CompileHintOp) or memory_objects.is_quiet(op):
            continue
        if bounded and ROW not in op.attributes:
            continue
        if CLAMPED in op.attributes:
            continue
        if isinstance(op, _MASKED) and not isinstance(op.mask.type, VectorType):
            guarded.append(op)
        elif isinstance(op, scf.IfOp):
            inner: list[Operation] = []
            if all(_is_harmless(each, inner, own) for each in blocks_in(op)):
                guarded += inner
            elif all(_is_harmless(each, guarded, own) for each in op.false_region.blocks):
                guarded.append(op)
            else:
                return False
        elif not isinstance(op, scf.ForOp) or not _is_harmless(op.body.block, guarded, own):
            return False
    return True


def _rewrite(loop: scf.ForOp, guarded: Sequence[Operation]) -> None:
    """`guarded` are masked accesses and branches, which are kept from a run that should not be."""
    before, behind = Before(loop), Behind(loop)
    one = before.index(1)
    some = before.add(arith.CmpiOp(loop.lb, loop.ub, "slt"))
    high = before.add(arith.MaxSIOp(loop.ub, before.add(arith.AddiOp(loop.lb, one))))
    for result, initial in zip(loop.results, loop.iter_args, strict=True):
        if result.first_use is not None:
            behind.instead(result, arith.SelectOp(some, result, initial))
    for op in guarded:
        at = 0 if isinstance(op, scf.IfOp) else op.operands.index(op.mask)  # pyright: ignore
        op.operands[at] = Before(op).add(arith.AndIOp(op.operands[at], some))
    loop.operands[1] = high
    loop.attributes["mach.nonempty"] = UnitAttr()
