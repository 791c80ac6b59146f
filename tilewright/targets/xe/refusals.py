"""What no program for an Intel GPU does, refused with its place before it is lowered."""

from __future__ import annotations

from math import prod

from xdsl.dialects import gpu

from tilewright.diagnostics import unsupported
from tilewright.dialects.movement import shape_of
from tilewright.dialects.xegpu.descriptors import CreateDescOp
from tilewright.passes.retile import shared_memory
from tilewright.targets.xe.registers import lanes_of
from tilewright.uarch.xe import XeMachine


def refuse_prints(kernel: gpu.FuncOp) -> None:
    for op in kernel.walk():
        if op.name in ("tw.print", "tw.breakpoint", "gpu.printf", "vector.print"):
            raise unsupported(
                op,
                f"{op.name}: programs on Intel GPUs do not print",
                hint="run the kernel where they do: with --target reference, kernel.options(target='reference')",
            )


def refuse_instructions(kernel: gpu.FuncOp) -> None:
    for op in kernel.walk():
        if op.name == "mach.each":
            raise unsupported(
                op,
                "mach.each: no instruction of Intel GPUs is named element by element",
                hint="an implementation for them consists of arith, math, vector and xetile ops",
            )


def refuse_other_lanes(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Subgroups are the machine's or parts of these; in older text descriptors have the offsets of all lanes."""
    lanes = lanes_of(kernel, machine)
    if machine.subgroup_for(lanes) is None:
        raise unsupported(
            kernel,
            f"subgroups of {lanes} lanes are not possible on {machine.name}: they have "
            f"{' or '.join(map(str, machine.subgroup_sizes))}",
        )
    for op in kernel.walk():
        count = prod(shape_of(op.offsets)) if isinstance(op, CreateDescOp) else lanes
        if count != lanes:
            raise unsupported(
                op,
                f"{op.name}: {count} offsets, one for each lane; a subgroup of {machine.name} has {lanes} here",
                hint="one offset for each lane",
            )


def refuse_own_memory(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Refuses a program that itself allocates more shared memory than there is."""
    arrays = shared_memory(kernel)
    fault = machine.fault("the kernel", "slm", sum(arrays.values())) if arrays else None
    if fault is not None:
        own = " + ".join(map(str, arrays.values()))
        hint = f"the program allocates them itself ({own}): smaller shared tiles, or fewer slots of a multi-buffer"
        raise unsupported(list(arrays)[-1], fault, hint=hint)
