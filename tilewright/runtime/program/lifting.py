"""One kernel of a program as a module of its own, compiled for a target, from the level that its text has.

What a subgroup or a lane runs is lifted to a program of a workgroup where it can be; else it is compiled as it is, lane
by lane (the emu target).
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute

from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.passes.branches_to_loops import branches_to_loops
from tilewright.passes.idle_barriers import remove_idle_barriers
from tilewright.passes.lane_to_subgroup import lane_to_subgroup
from tilewright.passes.level import LANES, LEVEL
from tilewright.passes.merge_slices import merge_slices
from tilewright.passes.subgroup_to_workgroup import subgroup_to_workgroup
from tilewright.runtime.program.kernels import Facts
from tilewright.targets.base import CompileOptions, Executable, Grid, get_target


def lifted(
    kernel: gpu.FuncOp, level: str, subgroups: int, block: Grid, facts: Facts, target: str
) -> Executable:
    """The kernel as a workgroup's program, compiled for a target of those."""
    module = alone(kernel, level, subgroups)
    copy = _kernel_of(module)
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
    module = alone(kernel, level, subgroups)
    copy = _kernel_of(module)
    copy.attributes["tilewright.subgroups"] = IntegerAttr(subgroups, i64)
    copy.attributes["tilewright.block"] = DenseArrayBase.from_list(i64, list(block))
    return get_target("emu").build(module, CompileOptions(target="emu"))


def _facts_attribute(facts: Facts) -> Attribute:
    """The facts as `tilewright.args` of the kernel."""
    return ArrayAttr([DictionaryAttr({"noalias": UnitAttr()} if f else {}) for f in facts])


def alone(kernel: gpu.FuncOp, level: str, subgroups: int) -> ModuleOp:
    """A module with only this kernel (and what its gpu.module has besides kernels), its level written down."""
    outer = kernel.parent_op()
    assert isinstance(outer, gpu.ModuleOp)
    copy = outer.clone()
    for op in list(copy.body.block.ops):
        if isinstance(op, gpu.FuncOp) and op.sym_name != kernel.sym_name:
            op.detach()
            op.erase(safe_erase=False)
    module = ModuleOp([copy])
    function = _kernel_of(module)
    function.attributes[LEVEL] = StringAttr(level)
    if level == "subgroup":
        function.attributes["tilewright.subgroups"] = IntegerAttr(subgroups, i64)
    return module


def _kernel_of(module: ModuleOp) -> gpu.FuncOp:
    return next(op for op in module.walk() if isinstance(op, gpu.FuncOp))


def _as_xetile(module: ModuleOp) -> ModuleOp:
    """XeGPU text as XeTile, which the targets take."""
    if any(op.name.startswith("xegpu.") for op in module.walk()):
        from tilewright.dialects import make_context
        from tilewright.passes.xegpu_to_xetile import XeGPUToXeTile

        try:
            XeGPUToXeTile().apply(make_context(), module)
        except TilewrightError as error:
            raise UnsupportedError(error.message, location=error.location) from error
    return module
