"""Texts in the language that a target speaks: workgroups' XeGPU reaches every target as XeTile."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, StringAttr

from tilewright.diagnostics import TilewrightError
from tilewright.dialects import make_context
from tilewright.passes.level import LEVEL, infer_level
from tilewright.targets.base import split_name

SPEAKS_XEGPU = ("xe", "reference", "emu")


def spoken(module: ModuleOp, target: str) -> ModuleOp:
    """The module in XeTile, where the target takes no XeGPU and it is a workgroup's; else the module itself.

    What has no such form stays, so that the target says which op it does not know.
    """
    kernels = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    if split_name(target)[0] in SPEAKS_XEGPU or not any(
        op.name.startswith("xegpu.") for op in module.walk()
    ):
        return module
    if not kernels or any(infer_level(kernel) != "workgroup" for kernel in kernels):
        return module
    from tilewright.passes.xegpu.to_xetile import XeGPUToXeTile

    changed = module.clone()
    for kernel in changed.walk():
        if isinstance(kernel, gpu.FuncOp):
            kernel.attributes[LEVEL] = StringAttr("workgroup")
    try:
        XeGPUToXeTile().apply(make_context(), changed)
    except TilewrightError:
        return module
    return changed
