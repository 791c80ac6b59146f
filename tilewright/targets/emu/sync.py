"""Barriers of a workgroup: calls of the scheduler (`fibers`). Memory is always coherent, so fences do nothing."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import mach, xegpu
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import index
from tilewright.targets.emu.lowering import Lowering, lowers


def _call(low: Lowering, name: str, *numbers: SSAValue) -> None:
    pointer = low.b.pointer(low.base)
    low.b.op(mach.CallOp(name, [pointer, low.site(), *numbers]))


@lowers("gpu.barrier")
def barrier(low: Lowering, op: Operation) -> None:
    low.together()
    _call(low, "tw_emu_barrier")


@lowers("xegpu.fence", "xegpu.alloc_nbarrier", "gpu.wait")
def nothing(low: Lowering, op: Operation) -> None:
    """Memory is coherent, and barriers exist once somebody binds to them."""


def _byte(low: Lowering, value: SSAValue, what: str) -> SSAValue:
    number = low.uniform(value, what)
    wide = number
    if number.type != index and number.type != i64:
        wide = low.b.value(arith.ExtUIOp(number, i64))
    if wide.type != index:
        wide = low.b.value(arith.IndexCastOp(wide, index))
    return low.b.value(arith.AndIOp(wide, low.b.constant(index, 255)))


@lowers("xegpu.init_nbarrier")
def init_nbarrier(low: Lowering, op: xegpu.InitNbarrierOp) -> None:
    number = _byte(low, op.nbarrier_id, "the barrier's number")
    count = _byte(low, op.participant_thread_num, "the number of participants")
    low.env[op.results[0]] = v.Barrier(number, count)


def _named(low: Lowering, name: str, barrier: v.Barrier) -> None:
    low.together()
    low.uses_named = True
    numbers = [
        low.b.value(arith.IndexCastOp(low.b.idx(n), i64))
        for n in (barrier.number, barrier.participants)
    ]
    _call(low, name, *numbers)


@lowers("xegpu.nbarrier_arrive")
def arrive(low: Lowering, op: xegpu.NbarrierArriveOp) -> None:
    found = low.env[op.nbarrier]
    assert isinstance(found, v.Barrier)
    _named(low, "tw_emu_arrive", found)


@lowers("xegpu.nbarrier_wait")
def wait(low: Lowering, op: xegpu.NbarrierWaitOp) -> None:
    found = low.env[op.nbarrier]
    assert isinstance(found, v.Barrier)
    _named(low, "tw_emu_wait", found)


@lowers("tw.named_barrier_arrive", "tw.named_barrier_wait")
def of_the_language(low: Lowering, op: Operation) -> None:
    number, count = (low.index(x, "a barrier's operand") for x in op.operands)
    name = "tw_emu_arrive" if op.name.endswith("arrive") else "tw_emu_wait"
    _named(low, name, v.Barrier(number, count))
