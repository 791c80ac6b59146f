"""Named barriers and fences of a lane -> callees.

| op | callee |
|---|---|
| alloc_nbarrier | nothing: barriers are counted where they are bound |
| init_nbarrier %id, %count | the pair (id, count), both constants |
| nbarrier_arrive, nbarrier_wait | `@xe_nbar_arrive_<id>_<count>`, `@xe_nbar_wait_<id>_<count>` |
| fence global, workgroup | `@xe_fence_global_workgroup_none` |

A named barrier's id is part of the instruction: one that differs between subgroups is chosen by a branch in the
program, which then has one init_nbarrier per id.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dialects import xegpu
from tilewright.targets.xe.blocks import Blocks
from tilewright.targets.xe.building import Index


@dataclass(frozen=True)
class Named:
    """A named barrier and the number of subgroups that take part."""

    number: int
    count: int


def bind(s: Blocks, op: xegpu.InitNbarrierOp) -> Named:
    found: list[int] = []
    for value, what in zip(op.operands, ("id", "number of participants"), strict=True):
        number: Index = s.b.known(value)
        if not isinstance(number, int):
            raise s.b.refuse(
                f"the barrier's {what} is known at run time only",
                "bind one barrier per id, in branches",
            )
        found.append(number & 0xFF)
    s.machine.require(op.name, "named_barriers", found[0])
    if found[0] == 0:
        raise s.b.refuse("barrier 0 is the workgroup's own", "use gpu.barrier, or another id")
    return Named(*found)


def arrive(s: Blocks, barrier: Named) -> None:
    s.b.call(f"xe_nbar_arrive_{barrier.number}_{barrier.count}", [])


def wait(s: Blocks, barrier: Named) -> None:
    s.b.call(f"xe_nbar_wait_{barrier.number}_{barrier.count}", [])


def fence(s: Blocks, op: xegpu.FenceOp) -> None:
    flush = "none" if op.fence_op_flush is None else op.fence_op_flush.data.value
    kind, scope = op.memory_kind.data.value, op.fence_scope.data.value
    s.b.call(f"xe_fence_{kind}_{scope}_{flush}", [])
