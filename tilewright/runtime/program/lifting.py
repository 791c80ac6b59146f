"""One kernel of a program as a module of its own, compiled for a target, from the level that its text has.

What a subgroup or a lane runs is lifted to a program of a workgroup where it can be; else it is compiled as it is, lane
by lane (the emu target).
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.passes.branches_to_loops import branches_to_loops
from tilewright.passes.idle_barriers import remove_idle_barriers
from tilewright.passes.kernel import kernel_of
from tilewright.passes.lane_to_subgroup import lane_to_subgroup
from tilewright.passes.level import BLOCK, LANES, LEVEL
from tilewright.passes.merge_slices import merge_slices
from tilewright.passes.subgroup_to_workgroup import subgroup_to_workgroup
from tilewright.runtime.program.kernels import Facts
from tilewright.targets.base import CompileOptions, Executable, Grid, get_target


def lifted(
    kernel: gpu.FuncOp, level: str, subgroups: int, block: Grid, facts: Facts, target: str
) -> Executable:
    """The kernel as a workgroup's program, compiled for a target of those."""
    module = alone(kernel, level, subgroups)
    copy = kernel_of(module)
    _settle_ids(copy, block)
    branches_to_loops(copy)
    if level == "lane":
        lane_to_subgroup(copy, LANES, block)
    module = _as_xetile(module)
    copy.attributes["tilewright.args"] = _facts_attribute(facts)
    if level != "workgroup":
        remove_idle_barriers(copy)
        subgroup_to_workgroup(copy, subgroups, block)
    merge_slices(copy)
    return get_target(target).build(module, CompileOptions(target=target))


def emulated(kernel: gpu.FuncOp, level: str, subgroups: int, block: Grid) -> Executable:
    """The kernel as its subgroups' program, for launches of `block` threads."""
    module = alone(kernel, level, subgroups, block)
    return get_target("emu").build(module, CompileOptions(target="emu"))


_IDS = (
    gpu.ThreadIdOp,
    gpu.BlockDimOp,
    gpu.SubgroupIdOp,
    gpu.LaneIdOp,
    gpu.NumSubgroupsOp,
    gpu.SubgroupSizeOp,
)
"""Ids of threads and subgroups: compilers write all of them down at the start of a kernel, used or not."""


def _settle_ids(kernel: gpu.FuncOp, block: Grid) -> None:
    """Ids that nothing uses go, and the threads of a workgroup are those of the launch."""
    for op in list(kernel.walk()):
        if isinstance(op, gpu.BlockDimOp) and op.result.first_use is not None:
            threads = block["xyz".index(str(op.dimension.data))]
            constant = arith.ConstantOp(IntegerAttr(threads, IndexType()))
            constant.location = op.location
            Rewriter.replace_op(op, constant)
        elif isinstance(op, _IDS) and op.results[0].first_use is None:
            Rewriter.erase_op(op)


def _facts_attribute(facts: Facts) -> Attribute:
    """The facts as `tilewright.args` of the kernel."""
    return ArrayAttr([DictionaryAttr({"noalias": UnitAttr()} if f else {}) for f in facts])


def alone(kernel: gpu.FuncOp, level: str, subgroups: int, block: Grid | None = None) -> ModuleOp:
    """A module with only this kernel (and what its gpu.module has besides kernels), its level written down.

    `block`: the threads of the launch, for what runs the text at its own level.
    """
    outer = kernel.parent_op()
    assert isinstance(outer, gpu.ModuleOp)
    copy = outer.clone()
    for op in list(copy.body.block.ops):
        if isinstance(op, gpu.FuncOp) and op.sym_name != kernel.sym_name:
            op.detach()
            op.erase(safe_erase=False)
    module = ModuleOp([copy])
    function = kernel_of(module)
    function.attributes[LEVEL] = StringAttr(level)
    if level != "workgroup":
        function.attributes["tilewright.subgroups"] = IntegerAttr(subgroups, i64)
        if block is not None:
            function.attributes[BLOCK] = DenseArrayBase.from_list(i64, list(block))
    return module


def _as_xetile(module: ModuleOp) -> ModuleOp:
    """XeGPU text as XeTile, which the targets take."""
    if any(op.name.startswith("xegpu.") for op in module.walk()):
        from tilewright.dialects import make_context
        from tilewright.passes.xegpu.to_xetile import XeGPUToXeTile

        try:
            XeGPUToXeTile().apply(make_context(), module)
        except TilewrightError as error:
            raise UnsupportedError(error.message, location=error.location) from error
    return module
