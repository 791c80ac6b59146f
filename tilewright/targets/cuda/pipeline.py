"""The passes of the cuda target, in the order in which they run.

A kernel goes one of two ways. Where copies and products can run beside the program (sm_90a: TMA, wgmma), `ASYNCHRONOUS`
rewrites it; everywhere else, and where shared memory has no room for that, `SYNCHRONOUS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright import uarch
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import stage as st
from tilewright.dialects.tw import PrintOp
from tilewright.layout import LayoutError
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.eliminate_barriers import eliminate_barriers
from tilewright.passes.kernel import programs_of
from tilewright.passes.observer import Observer, ignore
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline, Unit, run
from tilewright.passes.scalar_memory import scalar_memory
from tilewright.passes.scaled_maxima import scale_maxima
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.loop_work import work_of
from tilewright.targets.cuda.lower import lower_kernel
from tilewright.targets.cuda.lowered import LoweredThread, annotate
from tilewright.targets.cuda.ownership import Ownership, plan_ownership
from tilewright.targets.cuda.passes.async_mma import issue_async_mma
from tilewright.targets.cuda.passes.deferred_reduction import defer_reductions
from tilewright.targets.cuda.passes.deferred_wait import defer_waits
from tilewright.targets.cuda.passes.drop_prefetches import drop_prefetches
from tilewright.targets.cuda.passes.index_set_splitting import split_index_sets
from tilewright.targets.cuda.passes.k_coarsening import coarsen_k, steps_per_line
from tilewright.targets.cuda.passes.k_slicing import slice_products_along_k
from tilewright.targets.cuda.passes.local_stores import store_operands, stored_operand_bytes
from tilewright.targets.cuda.passes.mma_pipelining import pipeline_products
from tilewright.targets.cuda.passes.multi_buffering import (
    BufferBudget,
    buffered_loads,
    multi_buffer_loads,
    will_form,
)
from tilewright.targets.cuda.passes.persistent import make_persistent
from tilewright.targets.cuda.passes.ping_pong import schedule_ping_pong
from tilewright.targets.cuda.passes.split_k import split_k
from tilewright.targets.cuda.passes.swap_operands import swap_operands
from tilewright.targets.cuda.passes.tf32_rounding import round_at_loads
from tilewright.targets.cuda.passes.tile_rematerialization import rematerialize_tiles
from tilewright.targets.cuda.passes.tma_stores import form_tma_stores, room_of_panels
from tilewright.targets.cuda.passes.warp_specialization import specialize_warps
from tilewright.targets.cuda.passes.wgmma_legality import warpgroups
from tilewright.targets.cuda.retile import retile
from tilewright.targets.cuda.rules_cp_async import MOST_STAGES
from tilewright.targets.cuda.warps import (
    choose_warps,
    resident_workgroups,
    synchronous_accumulators,
)
from tilewright.targets.cuda.work_split import SPARE, UNSPLIT, LoopWork, WorkSplit
from tilewright.targets.workgroup import BEGIN, begin
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import WARPGROUP


@dataclass
class CudaUnit(Unit[Machine]):
    """A kernel on its way to PTX."""

    stages: int | None = None
    """Slots of multi-buffers, where the user says it."""
    split: WorkSplit = UNSPLIT
    """How several workgroups compute one program."""
    spare: int = SPARE[0]
    """Bytes of shared memory that are left for other things than multi-buffers and panels."""
    work: LoopWork | None = None
    """The kernel's loop, if several workgroups may compute one of its programs."""
    copied: list[Operation] | None = None
    """The loads that multi-buffers will bring, once they are known."""
    lowered: LoweredThread | None = None
    """The last stage, and what a launch must know of it."""

    def runs(self, name: str) -> bool:
        return name in ("cuda", self.machine.name)

    def buffered_loads(self) -> Sequence[Operation]:
        """The loads that multi-buffers will bring."""
        if self.copied is None:
            self.copied = list(buffered_loads(self.kernel, self.machine))
        return self.copied


W = ("workgroup",)


def _retile(unit: CudaUnit) -> None:
    fits = retile(unit.kernel, unit.remarks)
    if unit.split.tiles > 1:
        retile(unit.kernel, unit.remarks, least=fits * unit.split.tiles)


def _retile_again(unit: CudaUnit) -> None:
    retile(unit.kernel, unit.remarks, synchronous_accumulators(unit.kernel, unit.machine))


SPLIT = Pass[CudaUnit](
    "split-workgroups",
    "splits a workgroup whose tiles exceed the registers into several",
    _retile,
    requires=W,
    optional="split",
)
REMATERIALIZE_TILES = Pass[CudaUnit](
    "rematerialize-tiles",
    "rematerializes each tile, with its offsets, where it is loaded",
    lambda u: rematerialize_tiles(u.kernel),
    requires=W,
)
COMMON: Sequence[Pass[CudaUnit]] = (
    *BEGIN,
    Pass(
        "scalar-memory",
        "makes a number in memory a tile of one element",
        lambda u: scalar_memory(u.kernel),
        requires=W,
    ),
    Pass(
        "carry-offsets",
        "lets loops carry the offsets of scattered tiles",
        lambda u: carry_offsets(u.kernel),
        requires=W,
    ),
    Pass(
        "scaled-maxima",
        "moves a positive scale out of a maximum: max(s x) = s max(x)",
        lambda u: scale_maxima(u.kernel),
        requires=W,
    ),
    CLEANUP,
    Pass(
        "drop-prefetches",
        "removes prefetches of data that is copied asynchronously anyway",
        lambda u: drop_prefetches(u.kernel),
        requires=W,
        optional="cp-async",
    ),
    CLEANUP,
    Pass(
        "eliminate-barriers",
        "removes barriers that order no memory accesses",
        lambda u: eliminate_barriers(u.kernel),
        requires=W,
    ),
    SPLIT,
    CLEANUP,
)
"""What every kernel goes through."""


def coarsening(times: int = 0) -> Pass[CudaUnit]:
    """So many iterations at once; 0: as many as fill a line of shared memory."""

    def wanted(unit: CudaUnit) -> int:
        return times or unit.split.steps * steps_per_line(unit.kernel)

    return Pass(
        "k-coarsening",
        "merges short steps of k until they fill a line of shared memory, where the extents are divisible",
        lambda u: coarsen_k(u.kernel, wanted(u)),
        requires=W,
        optional=True,
        when=lambda u: wanted(u) > 1,
        make=coarsening,
    )


def _note_loop_work(unit: CudaUnit) -> None:
    planned = unit.split != UNSPLIT or bool(unit.off) or unit.stages is not None
    unit.work = None if planned else work_of(unit.kernel, unit.machine)


def split_k_pass(parts: int = 0) -> Pass[CudaUnit]:
    """Clusters of so many workgroups; 0: as many as the launch asked for."""
    return Pass(
        "split-k",
        "split-K: the workgroups of a cluster share the iterations of one program and add up their sums",
        lambda u: split_k(u.kernel, parts or u.split.parts),
        requires=W,
        optional=True,
        when=lambda u: u.split.parts > 1,
        make=split_k_pass,
    )


def _persists(unit: CudaUnit) -> bool:
    if unit.split.parts > 1:
        return False
    # Where threads load everything, several workgroups of a multiprocessor hide one another's waiting.
    return bool(unit.buffered_loads()) or warpgroups(unit.kernel) > 1


def _multi_buffer(unit: CudaUnit) -> None:
    kernel, machine = unit.kernel, unit.machine
    panels = room_of_panels(kernel, warpgroups(kernel)) if unit.on("tma-stores") else 0
    room = machine.memories["smem"].size - unit.spare - panels
    room -= stored_operand_bytes(kernel, machine, unit.buffered_loads())
    multi_buffer_loads(kernel, machine, BufferBudget(room, unit.stages), unit.remarks)


DEFER_REDUCTIONS = Pass[CudaUnit](
    "deferred-reduction",
    "keeps loop-carried reductions per lane and combines the lanes after the loop",
    lambda u: defer_reductions(u.kernel, lambda: _ownership(u)),
    requires=W,
    optional=True,
    machine=True,
)
PLACED: Sequence[Pass[CudaUnit]] = (
    REMATERIALIZE_TILES,
    Pass(
        "swap-operands",
        "computes a product transposed if it has few rows, or if warpgroups can read its operands only so",
        lambda u: swap_operands(u.kernel, u.machine),
        requires=W,
        optional=True,
        machine=True,
    ),
    Pass(
        "tf32-rounding",
        "rounds f32 operands to tf32 where they are loaded",
        lambda u: round_at_loads(u.kernel),
        requires=W,
    ),
    CLEANUP,
)
"""What is done before it is known whether warpgroups have anything to multiply."""

ASYNCHRONOUS: Sequence[Pass[CudaUnit]] = (
    Pass(
        "index-set-splitting",
        "splits loops into iterations with and without a mask (index-set splitting)",
        lambda u: split_index_sets(u.kernel),
        requires=W,
        optional=True,
    ),
    CLEANUP,
    coarsening(),
    CLEANUP,
    Pass(
        "loop-work",
        "records the loop of products for the cost model of launches with few programs",
        _note_loop_work,
        requires=W,
    ),
    split_k_pass(),
    Pass(
        "persistent",
        "runs one workgroup per multiprocessor, which takes programs in an order that reuses L2; the longest first "
        "where their loops differ in length",
        lambda u: make_persistent(u.kernel, u.remarks),
        requires=W,
        optional=True,
        when=_persists,
    ),
    Pass(
        "multi-buffering",
        "loads the operands of products through multi-buffers in shared memory, filled by TMA",
        _multi_buffer,
        requires=W,
        optional=True,
        machine=True,
    ),
    Pass(
        "local-stores",
        "stores computed right operands to multi-buffers, too",
        lambda u: store_operands(u.kernel, u.machine),
        requires=W,
        machine=True,
    ),
    Pass(
        "async-mma",
        "issues products asynchronously to warpgroups (wgmma)",
        lambda u: issue_async_mma(u.kernel, u.machine, u.remarks),
        requires=W,
        machine=True,
    ),
    Pass(
        "k-slicing",
        "splits a product whose A is computed (dequantized, activated) along k: one slice is computed while another "
        "multiplies",
        lambda u: slice_products_along_k(u.kernel, u.machine),
        requires=W,
        optional=True,
        machine=True,
    ),
    DEFER_REDUCTIONS,
    Pass(
        "mma-pipelining",
        "software-pipelines products: a loop's last product overlaps the next iteration, also across loops",
        lambda u: pipeline_products(u.kernel, warpgroups(u.kernel)),
        requires=W,
        optional=True,
    ),
    Pass(
        "ping-pong",
        "lets one warpgroup multiply while another computes",
        lambda u: schedule_ping_pong(u.kernel, warpgroups(u.kernel)),
        requires=W,
        optional=True,
    ),
    Pass(
        "deferred-wait",
        "waits for an accumulating product one iteration later",
        lambda u: defer_waits(u.kernel),
        requires=W,
        optional=True,
    ),
    Pass(
        "tma-stores",
        "stores results through shared memory by TMA",
        lambda u: form_tma_stores(u.kernel, warpgroups(u.kernel), u.remarks),
        requires=W,
        optional=True,
    ),
    Pass(
        "warp-specialization",
        "warp specialization: one warp copies, the other warpgroups compute",
        lambda u: specialize_warps(u.kernel, u.machine, u.remarks),
        requires=W,
        optional=True,
        machine=True,
    ),
    CLEANUP,
)
"""From a workgroup's program to the `stage` dialect: copies and products run beside the program."""

SYNCHRONOUS: Sequence[Pass[CudaUnit]] = (
    replace(SPLIT, apply=_retile_again, machine=True),
    CLEANUP,
    REMATERIALIZE_TILES,
    CLEANUP,
    DEFER_REDUCTIONS,
)
"""Threads wait for their copies (cp.async ahead of loops) and products (mma.sync)."""


def _team_ownership(kernel: gpu.FuncOp) -> Ownership | None:
    """Ownership of a kernel that was made asynchronous: roles choose their own; None for any other kernel."""
    roles = next((op for op in kernel.walk() if isinstance(op, st.RolesOp)), None)
    if roles is not None:
        return Ownership(sum(role.warps for role in roles.roles))
    if any(isinstance(op, st.ProductIssueOp | st.MultiBufferOp) for op in kernel.walk()):
        return plan_ownership(kernel.body.block, WARPGROUP * warpgroups(kernel))
    return None


def _thread_ownership(unit: CudaUnit) -> Ownership:
    """Ownership of a kernel whose threads wait for their products."""
    block = unit.kernel.body.block
    found = plan_ownership(block, choose_warps(unit.kernel), use_mma=unit.on("mma"))
    if unit.on("cp-async"):
        found.stages = unit.stages or MOST_STAGES
        found.resident = resident_workgroups(found)
    return found


def _ownership(unit: CudaUnit) -> Ownership:
    """Who owns what of a kernel as it is."""
    return _team_ownership(unit.kernel) or _thread_ownership(unit)


def _lower(unit: CudaUnit) -> None:
    ownership = _ownership(unit)
    try:
        lowered = lower_kernel(unit.kernel, ownership, unit.machine)
    except LayoutError as error:
        raise UnsupportedError(
            f"a tile of this kernel cannot be distributed to threads: {error}",
            hint="tiles whose extents are powers of two can",
        ) from error
    lowered.split, lowered.work = programs_of(unit.kernel), unit.work
    annotate(lowered)
    unit.lowered, unit.module = lowered, lowered.module


TO_MACH = Pass[CudaUnit](
    "cuda-to-mach",
    "distributes values to warps and lanes, selects instructions: the program of one thread",
    _lower,
    choices={
        "cp-async": "copies operands ahead of the loop by cp.async, on sm_80 and where warpgroups cannot multiply; "
        "drops prefetches of the same arrays",
        "mma": "uses matrix instructions instead of multiply-adds of single elements",
    },
    machine=True,
    whole=True,
)
PASSES: Sequence[Pass[CudaUnit]] = (*COMMON, *PLACED, *ASYNCHRONOUS, *SYNCHRONOUS, TO_MACH)
PIPELINE = Pipeline[CudaUnit](
    "cuda", PASSES, lambda module, name: CudaUnit(module, uarch.machine(name)), "sm_90a"
)


def run_pipeline(
    module: ModuleOp,
    machine: Machine,
    options: CompileOptions,
    remarks: list[str],
    stage: Observer = ignore,
    observe: Observer = ignore,
    split: WorkSplit = UNSPLIT,
) -> LoweredThread:
    """From XeTile at workgroup level to the last stage.

    `stage` sees the module at every stage, `observe` after every pass, by its name.
    """
    PIPELINE.check(options.disable, options.target)
    unit = CudaUnit(
        module, machine, options.disable, remarks, None, False, options.num_stages, split
    )
    begin(unit, options, stage, observe, owners="warps own what the instructions give them")
    run(COMMON[len(BEGIN) :], unit, observe)
    lowered = _asynchronous(unit, stage, observe)
    if lowered is None:
        run((*SYNCHRONOUS, TO_MACH), unit, observe)
        lowered = unit.lowered
        assert lowered is not None
    return lowered


def product_work(module: ModuleOp, machine: Machine, options: CompileOptions) -> LoopWork | None:
    """The loop of products of a kernel as warpgroups would run it; None where they cannot, or it has another form.

    The module is changed on the way.
    """
    unit = CudaUnit(module, machine, options.disable, [], None, False, options.num_stages)
    if not unit.on("multi-buffering") or machine.name != "sm_90a":
        return None
    begin(unit, options, ignore, ignore, owners="")
    run((*COMMON[len(BEGIN) :], *PLACED), unit, ignore)
    return work_of(unit.kernel, machine) if will_form(unit.kernel, machine, []) else None


def _asynchronous(unit: CudaUnit, stage: Observer, observe: Observer) -> LoweredThread | None:
    """The kernel with copies and products beside the program; None, and nothing is changed, where it has no use for
    that, or no room.

    What shared memory a kernel needs besides multi-buffers is known only when it is lowered: so multi-buffers are made
    as deep as fits, and shallower when the rest does not.
    """
    if not unit.on("multi-buffering") or unit.machine.name != "sm_90a":
        return None
    if any(isinstance(op, PrintOp) for op in unit.kernel.walk()):
        unit.remarks.append("copies and products are not asynchronous in a program that prints")
        return None
    reason = ""
    for spare in SPARE:
        copy = replace(unit, module=unit.module.clone(), only=None, remarks=[], spare=spare)
        run(PLACED, copy, observe)
        if not will_form(copy.kernel, copy.machine, copy.remarks):
            unit.remarks += copy.remarks
            return None
        run(ASYNCHRONOUS, copy, observe)
        module = copy.module
        try:
            run((TO_MACH,), copy, observe)
        except UnsupportedError as error:
            reason = error.message
            continue
        stage("stage", module)
        unit.remarks += copy.remarks
        return copy.lowered
    unit.remarks.append(f"copies and products are not asynchronous: {reason}")
    return None
