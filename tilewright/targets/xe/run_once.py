"""xe-run-once: a loop that might not run at all runs at least once, and its results are chosen afterwards.

    %r = scf.for %k = %lb to %ub step %s iter_args(%c = %zero)      %some = arith.cmpi slt, %lb, %ub
                                                              ->    %high = arith.maxsi %ub, (%lb + 1)
                                                                    %x = scf.for %k = %lb to %high .. {mach.nonempty}
                                                                    %r = arith.select %some, %x, %zero

A loop that may be skipped joins its results with their initial values behind it, and a compiler that gives the two
sides different registers holds an accumulator twice: a tile that fills half of them spills. The choice afterwards
writes over the results.

Requires: a lane program. Guarantees: the same results. Done only where one more run of the body harms nothing (block
loads, which are bounded, prefetches, products and arithmetic) and where initial values of fragments are constants.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, UnitAttr, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tilewright.codegen.scf import constant_integer
from tilewright.passes import memory_objects

_HARMLESS = ("xegpu.load_nd", "xegpu.prefetch_nd", "xegpu.dpas", "xegpu.compile_hint")


def run_once(kernel: gpu.FuncOp) -> None:
    for op in list(kernel.walk()):
        if isinstance(op, scf.ForOp) and _may_be_empty(op) and _is_harmless(op.body.block):
            _rewrite(op)


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


def _is_harmless(block: Block) -> bool:
    for op in block.ops:
        known = op.name in _HARMLESS or isinstance(op, scf.YieldOp | scf.ForOp | scf.IfOp)
        if not known and not memory_objects.is_pure(op):
            return False
        for region in op.regions:
            if not all(_is_harmless(inner) for inner in region.blocks):
                return False
    return True


def _rewrite(loop: scf.ForOp) -> None:
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
    for op in (*before, *after):
        op.location = loop.location
    block.insert_ops_before(before, loop)
    block.insert_ops_after(after, loop)
    loop.operands[1] = high.result
    loop.attributes["mach.nonempty"] = UnitAttr()
