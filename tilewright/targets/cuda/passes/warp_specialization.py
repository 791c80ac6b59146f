"""warp-specialization: one part of the workgroup copies, another computes.

    for { issue; wait; product; release } store
    ->
    stage.roles {
        stage.role "copy" { for { issue } }
        stage.role "compute" { for { wait; product; release } store } }

Requires: multi-buffers formed. Guarantees: the same results; copies depend on nothing that the other role computes.

The program is cloned: what the issues of copies depend on (a backward slice: loops, coordinates, pipeline states) makes
the first role, everything else the second. Multi-buffers, pipeline states, constants and extents before the first other
op stay outside, seen by both. Single elements that a copy's place depends on (the number of a page) are loaded by the
copying role too; when it depends on anything else that is computed, the program is left with a single role.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import stage, xetile
from tilewright.dialects.nesting import move, terminator
from tilewright.passes.loops import acts, keep
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.tile_origin import is_read_only
from tilewright.targets.cuda.passes.wgmma_legality import warpgroups
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import REGISTER_FILE, WARPGROUP

_ISSUES = stage.CopyIssueOp | stage.GatherIssueOp
COPY_REGISTERS = {1: 40, 2: 40, 3: 32}
"""Of a thread that copies, by warpgroups that compute: with three, every eight more for them count."""
GATHER_REGISTERS = {1: 72, 2: 72, 3: 56}
"""Of a thread that copies lines, each from an address of its own."""
MOST_REGISTERS = 240


def compute_registers(groups: int, copying: int | None = None) -> int:
    """Of a thread that computes, where so many warpgroups do, and one copies with `copying` registers a thread."""
    left = REGISTER_FILE // (32 * WARPGROUP) - (copying or COPY_REGISTERS[groups])
    return min(left // groups // 8 * 8, MOST_REGISTERS)


def specialize_warps(function: gpu.FuncOp, machine: Machine, remarks: list[str]) -> bool:
    """Warp specialization: one warp copies, the other warpgroups compute. Returns whether it was done."""
    top = function.body.block
    groups = warpgroups(function)
    issues = [op for op in function.walk() if isinstance(op, _ISSUES)]
    gathers = any(isinstance(op, stage.GatherIssueOp) for op in issues)
    if not issues:
        return False
    last = terminator(top)
    moved = [op for op in top.ops if op is not last and not _common(op)]
    copy = _cloned(moved)
    compute = Block()
    move(moved, InsertPoint.at_end(compute))
    keep(copy, [op for op in copy.walk() if isinstance(op, _ISSUES)])
    if any(_computes(op, gathers) for op in copy.walk()):
        remarks.append("copies depend on computed values: one role does both")
        Rewriter.inline_block(compute, InsertPoint.before(last))
        return False
    keep(compute, [op for op in compute.walk() if _effect(op)])
    copying = (GATHER_REGISTERS if gathers else COPY_REGISTERS)[groups]
    registers = compute_registers(groups, copying) if groups > 1 else None
    roles = stage.RolesOp(
        [
            stage.RoleOp(
                "copy",
                WARPGROUP,
                Region(copy),
                None if registers is None else copying,
            ),
            stage.RoleOp("compute", WARPGROUP * groups, Region(compute), registers),
        ]
    )
    top.insert_op_before(roles, last)
    return True


def _common(op: Operation) -> bool:
    """Whether an op stays before the roles: multi-buffers, and scalars of the whole launch."""
    if isinstance(op, stage.MultiBufferOp | stage.PipelineStateOp):
        return True
    return op.name in (
        "arith.constant",
        "memref.dim",
        "memref.extract_strided_metadata",
        "gpu.block_id",
        "gpu.grid_dim",
    ) and not any(isinstance(r.type, VectorType) for r in op.results)


def _effect(op: Operation) -> bool:
    """Ops of the computing role that must stay: whatever acts, but for the start of copies."""
    return acts(op) and not isinstance(op, _ISSUES)


def _computes(op: Operation, gathers: bool) -> bool:
    """Whether an op belongs to the computing role whatever depends on it.

    Single elements may be loaded (the number of a page, an expert) and computed with by the thread that copies too,
    where nothing in the kernel writes their array; and vectors of them where all threads of the role copy (`gathers`).
    """
    if isinstance(op, stage.GatherIssueOp):
        return False
    if isinstance(op, stage.CopyWaitOp | stage.ProductIssueOp | stage.ProductWaitOp):
        return True
    values = [v for v in (*op.operands, *op.results) if isinstance(v.type, VectorType)]
    if not values:
        return False
    if not gathers and any(prod(v.type.get_shape()) != 1 for v in values):  # pyright: ignore
        return True
    if isinstance(op, xetile.LoadTileOp | xetile.LoadGatherOp):
        return not is_read_only(op.tile)
    return not (op.regions or is_pure(op))  # what stands in a region is asked about by itself


def _cloned(ops: list[Operation]) -> Block:
    block = Block()
    values: dict[SSAValue, SSAValue] = {}
    for op in ops:
        block.add_op(op.clone(values))
    return block
