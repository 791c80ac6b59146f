"""The passes of the emu target, from a kernel to the program of its subgroups, and what a launch must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, StringAttr

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.gpu.lanes import DEFAULT_LANES, LANES
from tilewright.frozen import record
from tilewright.observer import Observer
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import LEVEL, integer, level_of, subgroups_of
from tilewright.passes.pipeline import Pass, Pipeline, Unit, run
from tilewright.passes.thread_ids import threads_in_line
from tilewright.passes.xegpu.from_xetile import XETILE_TO_XEGPU
from tilewright.passes.xegpu.upgrade import upgrade_older
from tilewright.targets.emu.lowering import Lowering

__all__ = ["PASSES", "PIPELINE", "run_pipeline"]


@record
class EmuUnit(Unit[None]):
    """A kernel on its way to code for the CPU, lane by lane."""

    lanes: int = 1
    """Of a subgroup; 1 where the text is the subgroups'."""
    block: tuple[int, int, int] = (1, 1, 1)
    """The threads of a launch."""
    lowered: Lowering | None = None
    """The program of a subgroup, and what a launch must know of it."""


def _legalize(unit: EmuUnit) -> None:
    """Rewrites ops into the forms that the next pass lowers."""
    kernel = unit.kernel
    inline_calls(kernel)
    unit.lanes = integer(kernel, LANES, DEFAULT_LANES) if level_of(kernel) == "lane" else 1
    unit.block = threads_in_line(kernel, unit.lanes)


def _lower(unit: EmuUnit) -> None:
    """Vectorizes over the lanes of a subgroup; each subgroup becomes a fiber."""
    unit.lowered = Lowering(unit.kernel, unit.lanes, subgroups_of(unit.kernel), unit.block)
    unit.module = unit.lowered.run()


PASSES: Sequence[Pass[EmuUnit]] = (
    replace(
        XETILE_TO_XEGPU, when=lambda u: any(op.name.startswith("xetile.") for op in u.module.walk())
    ),
    Pass("xegpu-upgrade", upgrade_older, ("subgroup", "lane"), "module"),
    Pass("emu-legalize", _legalize, ("subgroup", "lane"), "unit", stage="xegpu"),
    Pass("lanes-to-vectors", _lower, given="unit", stage="vectors", whole=True),
)
PIPELINE = Pipeline[EmuUnit]("emu", PASSES, lambda module, _: EmuUnit(module, None), "")


def run_pipeline(
    module: ModuleOp, stage: Observer, observe: Observer, off: frozenset[str]
) -> Lowering:
    """The program of one subgroup of a module's kernel, at subgroup level or lane level."""
    PIPELINE.check(off, "emu")
    unit = EmuUnit(module, None, off)
    unit.only = kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    level = level_of(kernel)
    if level == "workgroup":
        raise unsupported(
            kernel,
            "the emulator runs kernels at subgroup and lane level, this one is a workgroup's",
            hint="--target cpu compiles it",
        )
    kernel.attributes[LEVEL] = StringAttr(level)
    run(PASSES, unit, observe, stage)
    assert unit.lowered is not None
    return unit.lowered
