"""The passes of the cuda target, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import UnsupportedError
from tilewright.layout import LayoutError
from tilewright.passes.idle_barriers import remove_idle_barriers
from tilewright.passes.kernel import kernel_of, programs_of
from tilewright.passes.scaled_maxima import scale_maxima
from tilewright.targets.base import CompileOptions, Observer, ignore
from tilewright.targets.cuda.asynchronous import ABLATIONS as ASYNCHRONOUS
from tilewright.targets.cuda.asynchronous import SPARE, make_asynchronous, team_ownership
from tilewright.targets.cuda.lower import lower_kernel
from tilewright.targets.cuda.lowered import Lowered
from tilewright.targets.cuda.ownership import plan_ownership
from tilewright.targets.cuda.passes.positions import place_tiles
from tilewright.targets.cuda.passes.prefetches import leave_out_prefetches
from tilewright.targets.cuda.retile import retile, share_programs
from tilewright.targets.cuda.rules_pipeline import MOST_STAGES
from tilewright.targets.cuda.sharing import ALONE, Share
from tilewright.targets.cuda.warps import (
    choose_warps,
    resident_workgroups,
    synchronous_accumulators,
)
from tilewright.targets.workgroup import begin
from tilewright.uarch.base import Machine

ABLATIONS = ("reciprocal", "mma", "split", "copies", *ASYNCHRONOUS)
"""Optimisations that `options.disable` can switch off; results stay right.

mma: matrix instructions instead of multiply-add element by element. split: large tiles are shared by
several workgroups. copies: loads of products are copied ahead of their loop (cp.async)."""


def run_pipeline(
    module: ModuleOp,
    machine: Machine,
    options: CompileOptions,
    remarks: list[str],
    stage: Observer = ignore,
    observe: Observer = ignore,
    share: Share = ALONE,
) -> Lowered:
    """From XeTile at workgroup level to the last stage.

    `stage` sees the module at every stage, `observe` after every pass, by its name.
    """
    owners = "warps own what the instructions give them"

    def runs(name: str) -> bool:
        return name in ("cuda", machine.name)

    begun = begin(module, options, ABLATIONS, remarks, stage, observe, owners=owners, runs=runs)
    kernel, run, off = begun.kernel, begun.run, options.disable
    share_programs(kernel, begun.subgroups)
    run("scaled-maxima", lambda: scale_maxima(kernel))
    begun.cleanup()
    if "copies" not in off:
        run("prefetches", lambda: leave_out_prefetches(kernel))
        begun.cleanup()
    run("idle-barriers", lambda: remove_idle_barriers(kernel))
    if "split" not in off:
        run("split-workgroups", lambda: _retile(kernel, remarks, share))
        begun.cleanup()
    lowered = _asynchronous(module, machine, options, remarks, stage, observe, share)
    if lowered is None:
        if "split" not in off:
            most = synchronous_accumulators(kernel, machine)
            run("split-workgroups", lambda: retile(kernel, remarks, most))
            begun.cleanup()
        run("positions", lambda: place_tiles(kernel))
        begun.cleanup()
        warps = choose_warps(kernel)
        ownership = plan_ownership(kernel.body.block, warps, use_mma="mma" not in off)
        if "copies" not in off:
            ownership.stages = options.num_stages or MOST_STAGES
            ownership.resident = resident_workgroups(ownership)
        try:
            lowered = lower_kernel(kernel, ownership, machine)
        except LayoutError as error:
            raise UnsupportedError(
                f"a tile of this kernel cannot be dealt to threads: {error}",
                hint="tiles whose extents are powers of two can",
            ) from error
        lowered.split = programs_of(kernel)
    return lowered


def _retile(kernel: gpu.FuncOp, remarks: list[str], share: Share) -> None:
    """Tiles that fit; and `share.tiles` times as many of them, if they can be split further."""
    fits = retile(kernel, remarks)
    if share.tiles > 1:
        retile(kernel, remarks, least=fits * share.tiles)


def _asynchronous(
    module: ModuleOp,
    machine: Machine,
    options: CompileOptions,
    remarks: list[str],
    stage: Observer,
    observe: Observer,
    share: Share,
) -> Lowered | None:
    """The kernel with copies and products beside the program; None where it has no use for that, or no room.

    What shared memory a kernel needs besides rings is known only when it is lowered: so rings are made as deep as
    fits, and shallower when the rest does not.
    """
    reason = ""
    for spare in SPARE:
        copy = module.clone()
        kernel = kernel_of(copy)
        said: list[str] = []

        def run(name: str, action: Callable[[], object], copy: ModuleOp = copy) -> None:
            action()
            observe(name, copy)

        made = make_asynchronous(kernel, machine, options, run, said, spare, share)
        if made is None:
            remarks += said
            return None
        ownership = team_ownership(kernel)
        assert ownership is not None
        try:
            lowered = lower_kernel(kernel, ownership, machine)
        except (UnsupportedError, LayoutError) as error:
            reason = error.message if isinstance(error, UnsupportedError) else str(error)
            continue
        stage("stage", copy)
        remarks += said
        lowered.split, lowered.work = programs_of(kernel), made.work
        return lowered
    remarks.append(f"copies and products do not run beside the program: {reason}")
    return None
