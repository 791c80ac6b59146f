"""Named barriers and fences of a lane -> callees.

| op | callee |
|---|---|
| alloc_nbarrier | nothing: barriers are counted where they are bound |
| init_nbarrier %id, %count | the pair (id, count); the count is a constant |
| nbarrier_arrive, nbarrier_wait | `@xe_nbar_arrive_<id>_<count>`, `@xe_nbar_wait_<id>_<count>` |
| the same, of an id known at run time | `@xe_nbar_arrive_n_<count>(i8 %id)`, `@xe_nbar_wait_n_<count>(i8 %id)` |
| fence global, workgroup | `@xe_fence_global_workgroup_none` |

An id that differs between subgroups is a register of the instruction. Barrier 0 is the workgroup's own: as a number in
the text it is refused.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import folded
from tilewright.frozen import frozen
from tilewright.targets.xe.context import Context


@frozen
class NamedBarrierValue:
    """A named barrier and the number of subgroups that take part."""

    number: int | SSAValue
    """i8 where it is known only at run time."""
    count: int

    @property
    def name(self) -> str:
        return f"{self.number if isinstance(self.number, int) else 'n'}_{self.count}"

    @property
    def operands(self) -> list[SSAValue]:
        return [] if isinstance(self.number, int) else [self.number]


def bind(s: Context, op: xegpu.InitNbarrierOp) -> NamedBarrierValue:
    number, count = (folded(value) for value in op.operands)
    if not isinstance(count, int):
        raise s.b.refuse(
            "the barrier's number of participants is known only at run time",
            "one barrier per number, in branches",
        )
    named = number & 0xFF if isinstance(number, int) else 1
    if why := s.machine.limits["named_barriers"].fault(named):
        raise s.b.refuse(f"{s.machine.name} has no named barrier {named}: {why}")
    if not isinstance(number, int):
        return NamedBarrierValue(op.nbarrier_id, count & 0xFF)
    if number & 0xFF == 0:
        raise s.b.refuse("barrier 0 is the workgroup's own", "use gpu.barrier, or another id")
    return NamedBarrierValue(number & 0xFF, count & 0xFF)


def arrive(s: Context, barrier: NamedBarrierValue) -> None:
    s.b.call(f"xe_nbar_arrive_{barrier.name}", barrier.operands)


def wait(s: Context, barrier: NamedBarrierValue) -> None:
    s.b.call(f"xe_nbar_wait_{barrier.name}", barrier.operands)


def fence(s: Context, op: xegpu.FenceOp) -> None:
    flush = "none" if op.fence_op_flush is None else op.fence_op_flush.data.value
    kind, scope = op.memory_kind.data.value, op.fence_scope.data.value
    s.b.call(f"xe_fence_{kind}_{scope}_{flush}", [])


def highest(barrier: NamedBarrierValue, kernel: Operation) -> int:
    """The highest number that a barrier may have: what the text sets aside, where it is known only at run time."""
    if isinstance(barrier.number, int):
        return barrier.number
    counts = [op.count or 0 for op in kernel.walk() if isinstance(op, xegpu.AllocNbarrierOp)]
    return max(counts, default=32) - 1
