"""xegpu-subgroup-parts: subgroups that are smaller than a machine's share one of these.

    // 6 subgroups of 8 lanes                              // 3 of 16
    %l = gpu.lane_id                               ->      %l = %lane % 8                %lane = gpu.lane_id
    %s = gpu.subgroup_id                                   %s = %subgroup * 2 + %lane / 8
    %x = gpu.subgroup_reduce add %v                        %x = gpu.subgroup_reduce add %v cluster(size = 8)

Where their number leaves one of the machine's subgroups with parts that nobody has, these do what the last one does,
but for what it writes, and for branches and loops that lanes take apart: what an atomic gives them is not theirs to
wait for.
Requires: a lane's program without blocks and products (xegpu-lane-elements). Guarantees: the same results. Raises
UnsupportedError for named barriers, and for what lanes do together in a branch or loop that the parts of a subgroup may
not all take.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i32, i64
from xdsl.ir import Block, Operation, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.effects import written
from tilewright.dialects.nesting import ops_around
from tilewright.dialects.upstream.gpu import ShuffleOp, SubgroupReduceOp
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.passes.emit import Before
from tilewright.passes.kernel import SUBGROUPS, subgroups_of
from tilewright.passes.thread_ids import threads_in_line
from tilewright.passes.uniformity import Uniformity

TOGETHER = (ShuffleOp, SubgroupReduceOp, gpu.BarrierOp, gpu.AllReduceOp)
NAMED = (xegpu.InitNbarrierOp, xegpu.NbarrierArriveOp, xegpu.NbarrierWaitOp)


def subgroup_parts(kernel: gpu.FuncOp, lanes: int, size: int) -> None:
    """Rewrites a kernel of subgroups of so many lanes for subgroups of `size`, in place."""
    count, parts = subgroups_of(kernel), size // lanes
    threads_in_line(kernel, lanes)
    kinds = Uniformity(lanes, subgroups=True)
    for op in kernel.walk():
        if isinstance(op, NAMED):
            raise unsupported(
                op, f"{op.name}: subgroups of {lanes} lanes, which share one of {size}, meet apart"
            )
        if isinstance(op, TOGETHER) and (scope := _parted(op, kinds)) is not None:
            raise unsupported(
                op,
                f"{op.name}: {parts} subgroups of {lanes} lanes share one of {size}, and may part in the {scope.name}",
            )
    found, apart = list(kernel.walk()), list(_apart(kernel.body.block, kinds))
    assert kernel.body.block.first_op is not None
    at = Before(kernel.body.block.first_op)
    own = at.add(gpu.LaneIdOp())
    lane = at.add(arith.RemUIOp(own, at.index(lanes)))
    first = at.add(arith.MuliOp(at.add(gpu.SubgroupIdOp()), at.index(parts)))
    subgroup = at.add(arith.AddiOp(first, at.add(arith.DivUIOp(own, at.index(lanes)))))
    real = None
    if count % parts:
        real = at.compare("ult", subgroup, count)
        subgroup = at.add(arith.MinUIOp(subgroup, at.index(count - 1)))
    for op in found:
        match op:
            case gpu.LaneIdOp():
                Before(op).replace(lane)
            case gpu.SubgroupIdOp():
                Before(op).replace(subgroup)
            case gpu.NumSubgroupsOp():
                Before(op).replace(Before(op).index(count))
            case gpu.SubgroupSizeOp():
                Before(op).replace(Before(op).index(lanes))
            case SubgroupReduceOp() if op.cluster_size is None:
                many = lanes // (op.cluster_stride or 1)
                op.properties["cluster_size"] = IntegerAttr(many, i32)
            case _:
                pass
    if real is not None:
        for op in apart:
            _only_where(real, op)
    kernel.attributes[LANES] = IntegerAttr(size, i64)
    kernel.attributes[SUBGROUPS] = IntegerAttr(-(-count // parts), i64)


def _parted(op: Operation, kinds: Uniformity) -> Operation | None:
    """The innermost branch or loop around an op that some lanes of a workgroup may take and others not."""
    within = takewhile(lambda each: not isinstance(each, gpu.FuncOp), ops_around(op))
    return next(filter(kinds.parts, within), None)


def _apart(block: Block, kinds: Uniformity) -> Iterator[Operation]:
    """What a part that nobody has leaves out: ops that write, and the outermost branches and loops that lanes take
    apart, in which they do nothing together. Arrays that these give are none of its numbers: of them it leaves out the
    inside."""
    for op in block.ops:
        numbers = not any(isinstance(r.type, MemRefType) for r in op.results)
        if op.regions and numbers and kinds.parts(op):
            yield op
        elif op.regions:
            for inner in (b for region in op.regions for b in region.blocks):
                yield from _apart(inner, kinds)
        elif _writes(op):
            yield op


def _writes(op: Operation) -> bool:
    kinds = (memref.AllocOp, memref.AllocaOp, memref.DeallocOp, xegpu.FenceOp, gpu.BarrierOp)
    return bool(written(op)) and not isinstance(op, kinds)


def _only_where(real: SSAValue, op: Operation) -> None:
    """Puts an op into a branch; elsewhere its results are zeros."""
    at = Before(op)
    nothing = [at.constant(r.type, 0) for r in op.results]
    kinds = [r.type for r in op.results]
    at.replace(*at.choose(real, kinds, lambda: at.insert(op.clone()).results, lambda: nothing))
