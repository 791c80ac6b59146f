"""xe-run-once: a loop that might not run at all runs at least once, and its results are chosen afterwards.

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
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, UnitAttr, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tilewright.codegen.scf import constant_integer
from tilewright.dialects import xegpu
from tilewright.passes import memory_objects
from tilewright.passes.xegpu.blocks import ROW
from tilewright.passes.xegpu.lane_addresses import CLAMPED

_HARMLESS = ("xegpu.prefetch_nd", "xegpu.dpas", "xegpu.compile_hint", "gpu.shuffle")
_MASKED = (xegpu.LoadGatherOp, xegpu.StoreScatterOp, xegpu.AtomicRMWOp)


def run_once(kernel: gpu.FuncOp) -> None:
    for op in list(kernel.walk()):
        if not isinstance(op, scf.ForOp) or not _may_be_empty(op):
            continue
        guarded: list[Operation] = []
        if _is_harmless(op.body.block, guarded):
            _rewrite(op, guarded)


def _may_be_empty(loop: scf.ForOp) -> bool:
    """With fragments that it would join behind it, all of which begin as constants."""
    low, high = constant_integer(loop.lb), constant_integer(loop.ub)
    if (low is not None and high is not None) or "mach.nonempty" in loop.attributes:
        return False
    if not isinstance(loop.lb.type, IndexType) or "unsignedCmp" in loop.properties:
        return False
    fragments = [v for v in loop.iter_args if isinstance(v.type, VectorType)]
    return bool(fragments) and all(_is_constant(v) for v in fragments)


def _is_constant(value: SSAValue) -> bool:
    """A constant, or one spread to a fragment."""
    if not isinstance(value, OpResult):
        return False
    if value.op.name == "vector.broadcast":
        return _is_constant(value.op.operands[0])
    return isinstance(value.op, arith.ConstantOp)


def _is_harmless(block: Block, guarded: list[Operation]) -> bool:
    """Can the body run once more? `guarded` receives ops that must not, and can be kept from it."""
    for op in block.ops:
        bounded = isinstance(op, xegpu.LoadNdOp) and op.tdesc.boundary_check
        if isinstance(op, scf.YieldOp) or op.name in _HARMLESS or memory_objects.is_pure(op):
            continue
        if bounded and ROW not in op.attributes:
            continue
        if CLAMPED in op.attributes:
            continue
        if isinstance(op, _MASKED) and not isinstance(op.mask.type, VectorType):
            guarded.append(op)
        elif isinstance(op, scf.IfOp):
            inner: list[Operation] = []
            if all(_is_harmless(each, inner) for region in op.regions for each in region.blocks):
                guarded += inner
            elif all(_is_harmless(each, guarded) for each in op.false_region.blocks):
                guarded.append(op)
            else:
                return False
        elif not isinstance(op, scf.ForOp) or not _is_harmless(op.body.block, guarded):
            return False
    return True


def _rewrite(loop: scf.ForOp, guarded: Sequence[Operation]) -> None:
    """`guarded` are masked accesses and branches, which are kept from a run that should not be."""
    block = loop.parent
    assert block is not None
    one = arith.ConstantOp(IntegerAttr(1, IndexType()))
    some = arith.CmpiOp(loop.lb, loop.ub, "slt")
    next_ = arith.AddiOp(loop.lb, one.result)
    high = arith.MaxSIOp(loop.ub, next_.result)
    before: list[Operation] = [one, some, next_, high]
    after: list[Operation] = []
    for result, initial in zip(loop.results, loop.iter_args, strict=True):
        uses = list(result.uses)
        if not uses:
            continue
        chosen = arith.SelectOp(some.result, result, initial)
        after.append(chosen)
        for use in uses:
            use.operation.operands[use.index] = chosen.result
    for op in guarded:
        at = 0 if isinstance(op, scf.IfOp) else op.operands.index(op.mask)  # pyright: ignore
        only = arith.AndIOp(op.operands[at], some.result)
        only.location = op.location
        assert op.parent is not None
        op.parent.insert_op_before(only, op)
        op.operands[at] = only.result
    for op in (*before, *after):
        op.location = loop.location
    block.insert_ops_before(before, loop)
    block.insert_ops_after(after, loop)
    loop.operands[1] = high.result
    loop.attributes["mach.nonempty"] = UnitAttr()
