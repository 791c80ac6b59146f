"""workgroup-form: a kernel of any level, in XeTile or XeGPU, as the program of a workgroup in XeTile.

| the text | becomes |
|---|---|
| XeGPU | XeTile (`xegpu.to_xetile`) |
| a subgroup's, where subgroups neither meet nor share memory | a workgroup's of its own (`subgroup_to_workgroup`) |
| a subgroup's, where they do, on cuda | a workgroup's, op by op for all of them (`subgroups_together`) |
| of a workgroup: named barriers, fences | nothing: its memory is in program order, and all of its subgroups meet |
| of a workgroup: a branch that a run of its subgroups takes (`sg_id_range`) | the ops of the branch |

    scf.if %c { .. } {sg_id_range = #xegpu.range<[2, 18]>}     ->     ..
    xegpu.nbarrier_arrive %b                                   ->

The passes of this file are parts of the lists of cpu and cuda, each with its condition.
Guarantees: the same results. A subgroup's kernel is launched with as many workgroups along x for each of the launch's
as a workgroup had subgroups (attribute `PROGRAMS`). Raises UnsupportedError where there is no such form.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.dialects.nesting import terminator
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before
from tilewright.passes.kernel import BLOCK, LEVEL, PROGRAMS, block_of, level_of, subgroups_of
from tilewright.passes.pipeline import Pass, Unit
from tilewright.passes.program_order import program_order
from tilewright.passes.strided_memrefs import strided_memrefs

Block = tuple[int, int, int]


def settle(unit: Unit[Any]) -> None:
    """Removes unused thread ids and writes the kernel's level on it. What only tells subgroups of one another goes
    at workgroup level."""
    strided_memrefs(unit.module)
    kernel = unit.kernel
    block = block_of(kernel)
    kernel.attributes[LEVEL] = StringAttr(level_of(kernel))
    if _level(unit) == "workgroup" and speaks_xegpu(kernel):
        program_order(kernel)
        _do_runs(kernel)
    if _level(unit) == "workgroup":
        kernel.attributes.pop(BLOCK, None)
    _settle_ids(kernel, block)


def _level(unit: Unit[Any]) -> str:
    return level_of(unit.kernel)


def _to_xetile(module: ModuleOp) -> None:
    """Converts XeGPU to XeTile."""
    from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile

    try:
        xegpu_to_xetile(module)
    except TilewrightError as error:
        raise UnsupportedError(error.message, location=error.location, hint=error.hint) from error


def _lift(kernel: gpu.FuncOp) -> None:
    """Turns subgroups that share no data into workgroups."""
    from tilewright.passes.eliminate_barriers import eliminate_barriers
    from tilewright.passes.subgroup_to_workgroup import subgroup_to_workgroup

    count = subgroups_of(kernel)
    eliminate_barriers(kernel)
    subgroup_to_workgroup(kernel)
    if count > 1:
        kernel.attributes[PROGRAMS] = IntegerAttr(count, i64)


def _meet(kernel: gpu.FuncOp) -> None:
    """Turns subgroups that share memory or meet into one program of their workgroup, where no emulator runs them."""
    from tilewright.passes.eliminate_barriers import eliminate_barriers
    from tilewright.passes.subgroup_to_workgroup import share
    from tilewright.passes.subgroups_together import subgroups_together

    eliminate_barriers(kernel)
    if subgroups_of(kernel) > 1 and share(kernel):
        subgroups_together(kernel)


OWN_FORM = (Pass[Unit[Any]]("settle-ids", settle, given="unit"),)
"""What a workgroup's XeTile still needs."""
OTHER_FORMS = (
    Pass[Unit[Any]](
        "xegpu-to-xetile", _to_xetile, given="module", when=lambda u: speaks_xegpu(u.kernel)
    ),
    Pass[Unit[Any]](
        "subgroups-together",
        _meet,
        ("subgroup",),
        when=lambda u: u.together and _level(u) == "subgroup",
    ),
    Pass[Unit[Any]](
        "subgroup-to-workgroup", _lift, ("subgroup",), when=lambda u: _level(u) == "subgroup"
    ),
)
"""From any other text to that of a workgroup in XeTile."""


def is_workgroup_xetile(kernel: gpu.FuncOp) -> bool:
    """Whether a settled kernel is a workgroup's in XeTile."""
    return kernel.attributes.get(LEVEL) == StringAttr("workgroup") and not speaks_xegpu(kernel)


def speaks_xegpu(kernel: Operation) -> bool:
    """Has a kernel XeGPU ops, or attributes on others' that XeGPU gives a meaning?"""
    return any(
        op.name.startswith("xegpu.") or "sg_id_range" in op.attributes for op in kernel.walk()
    )


def blocked_products(module: ModuleOp) -> bool:
    """Is an operand of a product another's too: are products cut into blocks that share what registers hold?"""
    seen: set[SSAValue] = set()
    for op in module.walk():
        if op.name in ("xegpu.dpas", "xetile.tile_mma", "vector.contract"):
            if not seen.isdisjoint(op.operands[:2]):
                return True
            seen |= {*op.operands[:2]}
    return False


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
            at = Before(op)
            at.replace(at.index(threads))


# A workgroup's text ----------------------------------------------------------------------------------------------


def _do_runs(kernel: gpu.FuncOp) -> None:
    """What a run of the subgroups does, the workgroup's program does."""
    from tilewright.passes.level import range_of, region_of_run

    for op in list(kernel.walk()):
        if isinstance(op, scf.IfOp) and range_of(op) is not None:
            inner = region_of_run(op).block
            Rewriter.erase_op(terminator(inner))
            Rewriter.inline_block(inner, InsertPoint.before(op))
            Rewriter.erase_op(op)
    eliminate_dead(kernel.body.block)
