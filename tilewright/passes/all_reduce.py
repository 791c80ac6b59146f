"""all-reduce: what all lanes of a workgroup combine to, each subgroup's through shared memory.

    %r = gpu.all_reduce add %x      ->      %s = gpu.subgroup_reduce add %x ; first lane: memref.store %s, %m[%subgroup]
                                            gpu.barrier ; %p = memref.load %m[%lane], neutral beyond the last subgroup
                                            gpu.barrier ; %r = gpu.subgroup_reduce add %p

Requires: a kernel of lanes that says how many subgroups it has. The second barrier lets the memory be used again.
Guarantees: the same results, alike for all lanes.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, VectorType, i64
from xdsl.ir import SSAValue

from tilewright.dialects.kernel_attributes import SUBGROUPS
from tilewright.dialects.upstream.combining import combining, kind_of, neutral
from tilewright.dialects.upstream.gpu.lanes import DEFAULT_LANES, LANES, SubgroupReduceOp
from tilewright.passes.emit import Before

SHARED = IntegerAttr(3, i64)


def all_reduce(kernel: gpu.FuncOp) -> None:
    """Expands the reductions of numbers over the workgroup, in place."""
    stated, subgroups = (kernel.attributes.get(name) for name in (LANES, SUBGROUPS))
    if not isinstance(subgroups, IntegerAttr):
        return
    lanes = stated.value.data if isinstance(stated, IntegerAttr) else DEFAULT_LANES
    for op in [op for op in kernel.walk() if isinstance(op, gpu.AllReduceOp)]:
        if not isinstance(op.operand.type, VectorType):
            _expand(op, lanes, subgroups.value.data)


def _expand(op: gpu.AllReduceOp, lanes: int, subgroups: int) -> None:
    at, kind, element = Before(op), kind_of(op), op.operand.type
    memory = at.add(memref.AllocaOp.get(element, shape=[subgroups], memory_space=SHARED))
    mine, lane = at.add(SubgroupReduceOp(kind, op.operand)), at.add(gpu.LaneIdOp())

    def keep() -> None:
        at.insert(memref.StoreOp.get(mine, memory, [at.add(gpu.SubgroupIdOp())]))

    at.choose(at.compare("eq", lane, 0), [], keep)
    at.insert(gpu.BarrierOp())
    nothing = at.constant(element, neutral(kind, element))
    total: SSAValue | None = None
    for first in range(0, subgroups, lanes):
        place = at.add_index(lane, at.index(first))
        there = at.compare("ult", place, subgroups)
        place = at.add(arith.SelectOp(there, place, at.index(0)))
        part = at.add(memref.LoadOp.get(memory, [place]))
        part = at.add(arith.SelectOp(there, part, nothing))
        total = part if total is None else at.add(combining(kind, total, part))
    at.insert(gpu.BarrierOp())
    assert total is not None
    at.replace(at.add(SubgroupReduceOp(kind, total)))
