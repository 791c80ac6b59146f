"""The passes of the cpu target, in the order in which they run."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from tilewright.passes.cleanup import cleanup
from tilewright.passes.contraction import Contraction
from tilewright.passes.strips import form_strips
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu.lower import Lowered, lower_kernel
from tilewright.targets.cpu.machine import Machine


def kernel_of(module: ModuleOp) -> gpu.FuncOp:
    """The module's kernel."""
    for op in module.walk():
        if isinstance(op, gpu.FuncOp):
            return op
    raise AssertionError("no kernel")


def run_pipeline(module: ModuleOp, m: Machine, options: CompileOptions, remarks: list[str], ir: dict[str, str]) -> Lowered:
    """From XeTile at workgroup level to the last stage; `ir` receives the text of every stage."""
    kernel = kernel_of(module)
    ir["xetile"] = str(module)
    cleanup(kernel)
    Contraction(kernel, remarks).run()
    cleanup(kernel)
    form_strips(kernel)
    ir["stage"] = str(module)
    lowered = lower_kernel(kernel, m)
    ir["mach"] = str(lowered.module)
    return lowered
