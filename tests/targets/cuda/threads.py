"""The cuda target without a GPU: its passes, and the reference executor on the last stage, thread by thread.

A launch is one of checking mode, so that races, reads of what nothing wrote, and deadlocks are errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import uarch
from tilewright.arguments import DEVICE_ALIGNMENT
from tilewright.observer import ignore
from tilewright.reference.engine import Schedule
from tilewright.targets.base import Target
from tilewright.targets.cuda.interpret import interpret
from tilewright.targets.cuda.lowered import LoweredThread, plan_of
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.stages import printed_into


def run_threads(
    lowered: LoweredThread,
    args: Sequence[Any],
    grid: tuple[int, int, int],
    schedule: Schedule = "late",
    seed: int = 0,
) -> None:
    """Launch on arrays of the host (`ArrayArg`) and scalars, in place; CheckError where something is undefined."""
    plan = plan_of(lowered)
    report = interpret(lowered.module, plan, grid, args, check=True, schedule=schedule, seed=seed)
    report.raise_on_error()


class ThreadsExecutable:
    """What `ThreadsTarget` builds."""

    def __init__(self, lowered: LoweredThread, ir: dict[str, str], remarks: list[str]):
        self.lowered = lowered
        self.ir = ir
        self.asm: dict[str, str] = {}
        self.remarks = remarks

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        run_threads(self.lowered, args, grid)


class ThreadsTarget(Target):
    """The cuda target's passes, run in numpy instead of on a device."""

    name = "cuda"
    alignment = DEVICE_ALIGNMENT
    aligned = True

    def __init__(self, machine: str = "sm_80"):
        self.table = uarch.machine(machine)
        self.last: ThreadsExecutable | None = None

    def build(self, module: Any, options: Any, observe: Any = ignore) -> ThreadsExecutable:
        ir: dict[str, str] = {}
        remarks: list[str] = []
        lowered = run_pipeline(module, self.table, options, remarks, printed_into(ir), observe)
        lowered.module.verify()
        ir["mach"] = str(lowered.module)
        self.last = ThreadsExecutable(lowered, ir, remarks)
        return self.last

    def fingerprint(self, options: Any) -> str:
        return f"threads of {self.table.name}"
