"""From a kernel of any level to a lowered lane program: the stages whose texts `--emit` prints.

`xetile` -> `xegpu` -> `xegpu-sg` -> `xegpu-inst` -> `xegpu-lane` -> `mach`; a text enters at its own level.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, StringAttr

from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import make_context
from tilewright.dialects.text import print_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.level import LEVEL, infer_level
from tilewright.passes.xegpu import pipeline as passes
from tilewright.targets.base import Observer, ignore
from tilewright.targets.xe.lower import Lowered, lower
from tilewright.targets.xe.registers import Pressure, choose_mode
from tilewright.targets.xe.run_once import run_once
from tilewright.targets.xe.schedule import order_by_demand
from tilewright.uarch.xe import XeMachine

MANY_ADDRESSES = 32
"""Scattered loads of a kernel from which on it is ordered by demand: an address is one or two registers."""

STAGES = ("xetile", "xegpu", "xegpu-sg", "xegpu-inst", "xegpu-lane", "mach")


def _entries(level: str) -> Sequence[passes.Entry]:
    """The passes that a program of a level still has before it."""
    if level == "workgroup":
        return (*passes.WORKGROUP, *passes.SUBGROUP)
    if level == "subgroup":
        same = ("xetile", "xegpu")
        early = ("xetile-to-xegpu", "xegpu-modernize")
        shared = [e for e in passes.WORKGROUP if e.stage in same and e.make("pvc").name in early]
        return (*shared, *passes.SUBGROUP)
    return ()


def _is_crowded(kernel: gpu.FuncOp, machine: XeMachine) -> bool:
    """Would registers not suffice in the order of the program? Addresses of scattered loads take many."""
    scattered = sum(op.name in ("xegpu.load", "xegpu.load_matrix") for op in kernel.walk())
    if scattered >= MANY_ADDRESSES:
        return True
    try:
        choose_mode(kernel, machine)
    except UnsupportedError:
        return True
    return False


def run(
    module: ModuleOp, machine: XeMachine, ir: dict[str, str], observe: Observer = ignore
) -> tuple[Lowered, int, Pressure]:
    """The lowered kernel, the registers per thread that it is compiled with, and its pressure.

    `ir` receives the text of every stage; `observe` sees the module after every pass.
    """
    chip = machine.name.removeprefix("xe-")
    context = make_context()
    kernel = kernel_of(module)
    level = infer_level(kernel)
    kernel.attributes.setdefault(LEVEL, StringAttr(level))
    if level == "workgroup":
        uses_tiles = any(op.name.startswith("xetile.") for op in kernel.walk())
        ir["xetile" if uses_tiles else "xegpu"] = print_module(module, readable=True)
    for entry in _entries(level):
        each = entry.make(chip)
        each.apply(context, module)
        observe(each.name, module)
        ir[entry.stage] = print_module(module, readable=True)
    kernel = kernel_of(module)
    reached = infer_level(kernel)
    if reached != "lane":
        raise UnsupportedError(
            f"the kernel stands at {reached} level: passes to lanes are not part of this installation"
        )
    ir["xegpu-lane"] = print_module(module, readable=True)
    if _is_crowded(kernel, machine):
        order_by_demand(kernel)
        observe("xe-order-by-demand", module)
        ir["xegpu-lane"] = print_module(module, readable=True)
    registers, pressure = choose_mode(kernel, machine)
    run_once(kernel)
    observe("xe-run-once", module)
    lowered = lower(kernel, machine)
    if pressure.registers + pressure.addresses > registers:
        lowered.remarks.append(
            f"{pressure.registers} registers of data and about {pressure.addresses} of addresses of single elements "
            f"are more than {registers}: the compiler may spill; smaller subgroup tiles, or rows of a multiple of 16 "
            "bytes, which block messages can load, avoid it"
        )
    observe("xe-lane-to-mach", lowered.module)
    ir["mach"] = print_module(lowered.module, readable=True)
    return lowered, registers, pressure
