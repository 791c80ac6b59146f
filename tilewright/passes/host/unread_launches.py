"""unread-launches: marks launches in loops whose results nothing reads, as benchmark loops have them.

    gpu.launch_func @m::@k .. args(%c)           gpu.launch_func @m::@k .. args(%c)
    gpu.memcpy %host, %c                         gpu.memcpy %host, %c
    scf.for %i = .. {                      ->    scf.for %i = .. {
      gpu.launch_func @m::@k .. args(%c)           gpu.launch_func @m::@k .. args(%c) {tilewright.unread}
    }                                            }
    gpu.dealloc %c                               gpu.dealloc %c

Requires: host functions as written (before host-to-calls).
Guarantees: a marked launch may be left out without a difference in what the program computes: every array that it
gets is allocated in the same activation of its function, and after it only other marked launches, copies onto it
and deallocations touch it.  What a program measures with such a loop is the time of a launch, which a runner knows
after running one.
"""

from __future__ import annotations

from xdsl.dialects import func, gpu, memref, scf
from xdsl.dialects.builtin import MemRefType, ModuleOp, UnitAttr
from xdsl.ir import Operation, SSAValue

UNREAD = "tilewright.unread"

_VIEWS = (memref.CastOp, memref.MemorySpaceCastOp, memref.ReinterpretCastOp, memref.SubviewOp)


def mark_unread_launches(module: ModuleOp) -> int:
    """Mark the launches; returns how many there are."""
    count = 0
    for function in module.body.block.ops:
        if isinstance(function, func.FuncOp) and not function.is_declaration:
            marked = _unread(function)
            count += len(marked)
            for launch in marked:
                launch.attributes[UNREAD] = UnitAttr()
    return count


def _unread(function: func.FuncOp) -> set[gpu.LaunchFuncOp]:
    launches = {
        op
        for op in function.walk()
        if isinstance(op, gpu.LaunchFuncOp)
        and isinstance(op.parent_op(), scf.ForOp)
        and len(function.body.blocks) == 1
    }
    # The greatest set that holds itself up: a launch may read what another of the set wrote.
    while True:
        dropped = {launch for launch in launches if not _is_unread(function, launch, launches)}
        if not dropped:
            return launches
        launches -= dropped


def _is_unread(
    function: func.FuncOp, launch: gpu.LaunchFuncOp, marked: set[gpu.LaunchFuncOp]
) -> bool:
    if launch.results and any(r.uses for r in launch.results):
        return False
    place = _ancestor(function, launch)
    arrays = [v for v in launch.kernelOperands if isinstance(v.type, MemRefType)]
    return all(
        (root := _root(value)) is not None and _only_written_after(function, root, place, marked)
        for value in arrays
    )


def _root(value: SSAValue) -> SSAValue | None:
    """The allocation that a value is a view of; None where it is not one of this function's body."""
    while isinstance(value.owner, _VIEWS):
        value = value.owner.operands[0]
    owner = value.owner
    known = isinstance(owner, gpu.AllocOp | memref.AllocOp) and isinstance(
        owner.parent_op(), func.FuncOp
    )
    return value if known else None


def _only_written_after(
    function: func.FuncOp, root: SSAValue, place: Operation, marked: set[gpu.LaunchFuncOp]
) -> bool:
    """Whether no use of the memory reads it in or after `place`, an op of the function's body."""
    pending, order = [root], {op: i for i, op in enumerate(function.body.block.ops)}
    while pending:
        value = pending.pop()
        for use in value.uses:
            op = use.operation
            if isinstance(op, _VIEWS):
                pending += op.results
            elif order[_ancestor(function, op)] < order[place]:
                # Before the launch: whatever it is, unless it makes a second name of the memory.
                if any(isinstance(r.type, MemRefType) for r in op.results):
                    return False
                if not isinstance(op, _READERS):
                    return False
            elif isinstance(op, gpu.MemcpyOp) and use.index == list(op.operands).index(op.dst):
                continue
            elif not isinstance(op, gpu.DeallocOp | memref.DeallocOp) and op not in marked:
                return False
    return True


_READERS = (gpu.LaunchFuncOp, gpu.MemcpyOp, memref.CopyOp, memref.LoadOp, memref.StoreOp)
"""Ops that use memory without keeping its address."""


def _ancestor(function: func.FuncOp, op: Operation) -> Operation:
    """The op of the function's body that holds `op`."""
    while (parent := op.parent_op()) is not None and parent is not function:
        op = parent
    return op
