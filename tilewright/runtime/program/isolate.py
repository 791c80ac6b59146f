"""One kernel of a program as a module of its own, compiled for a target, from the level that its text has."""

from __future__ import annotations

from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.rewriter import Rewriter

from tilewright.arguments import Grid
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.passes.kernel import BLOCK, LEVEL, SUBGROUPS, kernel_of
from tilewright.passes.level import lanes_of_launch
from tilewright.passes.memory_objects import ARGS
from tilewright.runtime.program.kernels import Facts
from tilewright.targets.base import CompileOptions, Executable
from tilewright.targets.entry import build_text


def compiled(
    kernel: gpu.FuncOp, level: str, subgroups: int, block: Grid, facts: Facts, target: str
) -> Executable:
    """The kernel compiled for a target, for launches of `block` threads."""
    module = alone(kernel, level, subgroups, block)
    kernel_of(module).attributes[ARGS] = ArrayAttr(facts)
    return build_text(module, CompileOptions(target=target))


def alone(kernel: gpu.FuncOp, level: str, subgroups: int, block: Grid | None = None) -> ModuleOp:
    """A module with only this kernel (and what its gpu.module has besides kernels), its level written down.

    `block`: the threads of the launch.
    """
    outer = kernel.parent_op()
    assert isinstance(outer, gpu.ModuleOp)
    copy = outer.clone()
    for op in list(copy.body.block.ops):
        if isinstance(op, gpu.FuncOp) and op.sym_name != kernel.sym_name:
            Rewriter.erase_op(op, safe_erase=False)
    module = ModuleOp([copy])
    function = kernel_of(module)
    function.attributes[LEVEL] = StringAttr(level)
    if level != "workgroup":
        function.attributes[SUBGROUPS] = IntegerAttr(subgroups, i64)
    if block is not None and level == "lane":
        function.attributes[LANES] = IntegerAttr(lanes_of_launch(kernel, prod(block)), i64)
    if block is not None:
        function.attributes[BLOCK] = DenseArrayBase.from_list(i64, list(block))
    return module
