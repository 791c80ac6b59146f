"""Barriers of a workgroup: calls of the scheduler (`fibers`). Memory is always coherent, so fences do nothing."""

from __future__ import annotations

from xdsl.dialects.builtin import i64
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import mach, xegpu
from tilewright.targets.emu import values as v
from tilewright.targets.emu.lowering import Lowering, lowers


def _call(low: Lowering, name: str, *numbers: SSAValue) -> None:
    pointer = low.b.pointer(low.base)
    low.b.op(mach.CallOp(name, [pointer, low.site(), *numbers]))


@lowers("gpu.barrier")
def barrier(low: Lowering, op: Operation) -> None:
    low.together()
    _call(low, "tw_emu_barrier")


@lowers(
    *("memref.dealloc", "gpu.dealloc", "memref.assume_alignment", "xegpu.compile_hint"),
    *("memref.prefetch", "xegpu.prefetch_nd", "xegpu.prefetch"),
    *("xegpu.fence", "xegpu.alloc_nbarrier", "gpu.wait"),
)
def nothing(low: Lowering, op: Operation) -> None:
    """Memory lives as long as its workgroup and is coherent, caches are not modelled, and barriers exist once somebody
    binds to them."""
    for result, operand in zip(op.results, op.operands, strict=False):
        low.env[result] = low.env[operand]


@lowers("xegpu.init_nbarrier")
def init_nbarrier(low: Lowering, op: xegpu.InitNbarrierOp) -> None:
    number = low.index(op.nbarrier_id, "the barrier's number")
    count = low.index(op.participant_thread_num, "the number of participants")
    low.env[op.results[0]] = v.Barrier(low.b.rem(number, 256), low.b.rem(count, 256))


@lowers("xegpu.nbarrier_arrive", "xegpu.nbarrier_wait")
def at_named_barrier(low: Lowering, op: xegpu.NbarrierArriveOp | xegpu.NbarrierWaitOp) -> None:
    found = low.env[op.nbarrier]
    assert isinstance(found, v.Barrier)
    low.together()
    low.uses_named = True
    b, numbers = low.b, (found.number, found.participants)
    name = "tw_emu_arrive" if op.name.endswith("arrive") else "tw_emu_wait"
    _call(low, name, *(b.cast(b.idx(n), i64) for n in numbers))
