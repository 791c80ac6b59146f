"""subgroup-to-workgroup: subgroups that share nothing become workgroups of their own.

    // 4 subgroups per workgroup                      // grid.x is 4 times as large
    %s = gpu.subgroup_id                       ->     %b = gpu.block_id x
    %x = gpu.block_id x                               %s = arith.remui %b, 4     %x = arith.divui %b, 4

Requires: a kernel at subgroup level whose subgroups, where there are several, neither meet (barriers, named barriers)
nor share memory of the workgroup (SLM).  Launch threads are subgroups, or lanes of which only the subgroup matters.
Guarantees: the kernel is at workgroup level and computes the same when launched with a grid `subgroups` times as
large along x.  Raises UnsupportedError, before anything is changed, where subgroups do meet or share.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import MemRefType, StringAttr
from xdsl.ir import Operation

from tilewright.diagnostics import unsupported
from tilewright.passes.emit import Before, Behind
from tilewright.passes.kernel import LEVEL, SUBGROUPS, subgroups_of
from tilewright.passes.program_order import program_order
from tilewright.passes.thread_ids import thread_ids_to_subgroup_ids


def subgroup_to_workgroup(kernel: gpu.FuncOp) -> None:
    """Lift `kernel` in place."""
    subgroups = subgroups_of(kernel)
    for op in kernel.walk():
        refuse_lanes(op)
        if subgroups > 1 and (why := _shared(op)):
            raise unsupported(op, why)
    program_order(kernel)
    thread_ids_to_subgroup_ids(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, gpu.BlockIdOp | gpu.GridDimOp) and str(op.dimension.data) == "x":
            if subgroups > 1:
                _divide(op, subgroups)
        elif isinstance(op, gpu.SubgroupIdOp):
            at = Before(op)
            workgroup = at.add(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
            at.replace(at.add(arith.RemUIOp(workgroup, at.index(subgroups))))
        elif isinstance(op, gpu.NumSubgroupsOp):
            at = Before(op)
            at.replace(at.index(subgroups))
    kernel.attributes[LEVEL] = StringAttr("workgroup")
    kernel.attributes.pop(SUBGROUPS, None)


def refuse_lanes(op: Operation) -> None:
    if op.name in ("gpu.shuffle", "gpu.lane_id"):
        raise unsupported(op, f"{op.name} is an op of lanes")
    if isinstance(op, gpu.GlobalIdOp):
        raise unsupported(op, "gpu.global_id counts threads, not subgroups")


def share(kernel: gpu.FuncOp) -> bool:
    """Whether the subgroups of a workgroup share memory, or meet."""
    return any(_shared(op) for op in kernel.walk())


def _shared(op: Operation) -> str | None:
    if op.name in ("gpu.barrier", "xegpu.alloc_nbarrier", "xegpu.init_nbarrier"):
        return f"{op.name}: subgroups of a workgroup meet"
    kinds = (v.type for v in op.results if isinstance(v.type, MemRefType))
    if any(str(kind.memory_space).startswith("3") for kind in kinds):
        return "subgroups of a workgroup share its local memory"
    return None


def _divide(op: gpu.BlockIdOp | gpu.GridDimOp, subgroups: int) -> None:
    """The op counts workgroups of one subgroup now: users want workgroups of the program."""
    behind = Behind(op)
    behind.instead(op.result, arith.DivUIOp(op.result, behind.index(subgroups)))
