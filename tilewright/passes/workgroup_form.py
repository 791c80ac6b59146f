"""workgroup-form: a kernel of any level, in XeTile or XeGPU, as the program of a workgroup in XeTile.

| the text | becomes |
|---|---|
| a lane's | its subgroup's (`lane_to_subgroup`) |
| XeGPU | XeTile (`xegpu.to_xetile`) |
| a subgroup's, where subgroups neither meet nor share memory | a workgroup's of its own (`subgroup_to_workgroup`) |
| of a workgroup: named barriers, fences | nothing: its memory is in program order, and all of its subgroups meet |
| of a workgroup: a branch that a run of its subgroups takes (`sg_id_range`) | the ops of the branch |

    scf.if %c { .. } {sg_id_range = #xegpu.range<[2, 18]>}     ->     ..
    xegpu.nbarrier_arrive %b                                   ->

Guarantees: the same results. A subgroup's kernel is launched with as many workgroups along x for each of the launch's
as a workgroup had subgroups (attribute `PROGRAMS`). Raises UnsupportedError where there is no such form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import TilewrightError, UnsupportedError, error_at
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.kernel import BLOCK, LEVEL, PROGRAMS, SUBGROUPS, kernel_of
from tilewright.passes.strided_memrefs import strided_memrefs

Run = Callable[[str, Callable[[], object]], None]
Block = tuple[int, int, int]


def workgroup_form(module: ModuleOp, run: Run) -> int:
    """Rewrites the kernel of a module; how many programs along x stand for one of the launch's from here on.

    `run` is given each step with its name.
    """
    strided_memrefs(module)
    kernel = kernel_of(module)
    known = kernel.attributes.pop(BLOCK, None)
    block = _three(known) if isinstance(known, DenseArrayBase) else None
    plain = not speaks_xegpu(kernel)
    if plain and kernel.attributes.get(LEVEL) == StringAttr("workgroup"):
        _settle_ids(kernel, block)
        return 1
    # Imported here: they bring the XeGPU dialect, which most kernels have no use for.
    from tilewright.passes.level import LANES, infer_level

    level = infer_level(kernel)
    kernel.attributes[LEVEL] = StringAttr(level)
    count = _number(kernel, SUBGROUPS, 1)
    if level == "workgroup":
        _program_order(kernel)
    _settle_ids(kernel, block)
    if level == "workgroup" and plain:
        return 1
    if level == "lane":
        from tilewright.passes.lane_to_subgroup import lane_to_subgroup

        lanes = _number(kernel, "tilewright.lanes", LANES)
        block = block or (count * lanes, 1, 1)
        run("lane-to-subgroup", lambda: lane_to_subgroup(kernel, lanes, block))
    if not plain:
        run("xegpu-to-xetile", lambda: _to_xetile(module))
    if level != "workgroup":
        run("subgroup-to-workgroup", lambda: _lift(kernel, count, block or (count, 1, 1)))
    from tilewright.passes.merge_slices import merge_slices

    run("merge-slices", lambda: merge_slices(kernel))
    return count if level != "workgroup" else 1


def speaks_xegpu(kernel: Operation) -> bool:
    """Has a kernel XeGPU ops, or attributes on others' that XeGPU gives a meaning?"""
    return any(
        op.name.startswith("xegpu.") or "sg_id_range" in op.attributes for op in kernel.walk()
    )


def _three(block: DenseArrayBase[Any]) -> Block:
    x, y, z = (int(n) for n in block.get_values())
    return x, y, z


def _number(kernel: Operation, name: str, otherwise: int) -> int:
    found = kernel.attributes.get(name)
    return found.value.data if isinstance(found, IntegerAttr) else otherwise


# Ids -----------------------------------------------------------------------------------------------------------

_IDS = (
    gpu.ThreadIdOp,
    gpu.BlockDimOp,
    gpu.SubgroupIdOp,
    gpu.LaneIdOp,
    gpu.NumSubgroupsOp,
    gpu.SubgroupSizeOp,
)
"""Ids of threads and subgroups: compilers write all of them down at the start of a kernel, used or not."""


def _settle_ids(kernel: gpu.FuncOp, block: Block | None) -> None:
    """Ids that nothing uses go, and the threads of a workgroup are those of the launch."""
    for op in list(kernel.walk()):
        if isinstance(op, _IDS) and op.results[0].first_use is None:
            Rewriter.erase_op(op)
        elif isinstance(op, gpu.BlockDimOp) and block is not None:
            threads = block["xyz".index(str(op.dimension.data))]
            constant = arith.ConstantOp(IntegerAttr(threads, IndexType()))
            constant.location = op.location
            Rewriter.replace_op(op, constant)


# A workgroup's text ----------------------------------------------------------------------------------------------


def _program_order(kernel: gpu.FuncOp) -> None:
    """What only tells subgroups of one another: at workgroup level memory is in program order."""
    from tilewright.dialects import xegpu
    from tilewright.passes.level import range_of, region_of_run, subgroups_at

    for op in list(kernel.walk()):
        if isinstance(op, xegpu.InitNbarrierOp):
            expected, there = _constant(op.operands[1]), subgroups_at(op)
            if None not in (expected, there) and expected != there:
                raise error_at(
                    op,
                    f"the barrier expects {expected} subgroups, and {there} do this op of the workgroup's text",
                    kind=UnsupportedError,
                )
    dropped = (
        xegpu.NbarrierArriveOp,
        xegpu.NbarrierWaitOp,
        xegpu.AllocNbarrierOp,
        xegpu.FenceOp,
        xegpu.CompileHintOp,
    )
    for op in list(kernel.walk()):
        if isinstance(op, dropped):
            Rewriter.erase_op(op)
    for op in list(kernel.walk()):
        if isinstance(op, xegpu.InitNbarrierOp) and op.results[0].first_use is None:
            Rewriter.erase_op(op)
        elif isinstance(op, scf.IfOp) and range_of(op) is not None:
            inner = region_of_run(op).block
            assert inner.last_op is not None
            Rewriter.erase_op(inner.last_op)
            Rewriter.inline_block(inner, InsertPoint.before(op))
            Rewriter.erase_op(op)
    eliminate_dead(kernel.body.block)


def _constant(value: object) -> int | None:
    owner = getattr(value, "owner", None)
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data & 0xFF
    return None


# Other texts -----------------------------------------------------------------------------------------------------


def _to_xetile(module: ModuleOp) -> None:
    from tilewright.dialects import make_context
    from tilewright.passes.xegpu.to_xetile import XeGPUToXeTile

    try:
        XeGPUToXeTile().apply(make_context(), module)
    except TilewrightError as error:
        raise UnsupportedError(error.message, location=error.location, hint=error.hint) from error


def _lift(kernel: gpu.FuncOp, count: int, block: Block) -> None:
    from tilewright.passes.idle_barriers import remove_idle_barriers
    from tilewright.passes.subgroup_to_workgroup import subgroup_to_workgroup

    remove_idle_barriers(kernel)
    subgroup_to_workgroup(kernel, count, block)
    if count > 1:
        kernel.attributes[PROGRAMS] = IntegerAttr(count, i64)
