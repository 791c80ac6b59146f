"""The passes of the cuda target, in the order in which they run.

A kernel goes one of two ways. Where copies and products can run beside the program (sm_90a: TMA, wgmma), `ASYNCHRONOUS`
rewrites it; everywhere else, and where shared memory has no room for that, `SYNCHRONOUS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Operation

from tilewright import uarch
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import stage as st
from tilewright.dialects.tw import PrintOp
from tilewright.frozen import record
from tilewright.layout import LayoutError
from tilewright.observer import Observer, ignore
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.eliminate_barriers import eliminate_barriers
from tilewright.passes.kernel import level_of, programs_of
from tilewright.passes.memory_objects import arg_facts
from tilewright.passes.merge_programs import merge_programs
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline, Unit, run
from tilewright.passes.precision import loosen_exponents
from tilewright.passes.scaled_maxima import scale_maxima
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.interleave_products import interleave_products
from tilewright.targets.cuda.loop_unrolling import short_loops, unroll_loops
from tilewright.targets.cuda.loop_work import work_of
from tilewright.targets.cuda.lower import lower_kernel
from tilewright.targets.cuda.lower_lanes import lanes_of, legalize_lanes, lower_lanes
from tilewright.targets.cuda.lowered import LoweredThread, annotate
from tilewright.targets.cuda.ownership import Ownership, plan_ownership
from tilewright.targets.cuda.passes.async_mma import issue_async_mma
from tilewright.targets.cuda.passes.atomic_aggregation import aggregate_atomics
from tilewright.targets.cuda.passes.cp_async import MOST_STAGES, copy_ahead
from tilewright.targets.cuda.passes.deferred_reduction import defer_reductions
from tilewright.targets.cuda.passes.deferred_wait import defer_waits
from tilewright.targets.cuda.passes.drop_prefetches import drop_prefetches
from tilewright.targets.cuda.passes.index_set_splitting import split_index_sets
from tilewright.targets.cuda.passes.k_coarsening import coarsen_k, steps_per_line
from tilewright.targets.cuda.passes.k_slicing import slice_products_along_k
from tilewright.targets.cuda.passes.load_ahead import load_ahead
from tilewright.targets.cuda.passes.local_stores import store_operands, stored_operand_bytes
from tilewright.targets.cuda.passes.mma_pipelining import pipeline_products
from tilewright.targets.cuda.passes.multi_buffering import (
    BufferBudget,
    buffered_loads,
    multi_buffer_loads,
    will_form,
)
from tilewright.targets.cuda.passes.pad_tiles import pad_tiles
from tilewright.targets.cuda.passes.persistent import make_persistent
from tilewright.targets.cuda.passes.ping_pong import schedule_ping_pong
from tilewright.targets.cuda.passes.single_elements import single_elements
from tilewright.targets.cuda.passes.split_k import shared_loop, split_k
from tilewright.targets.cuda.passes.stored_bounds import note_stored_bounds
from tilewright.targets.cuda.passes.swap_operands import swap_operands
from tilewright.targets.cuda.passes.tf32_rounding import round_at_loads
from tilewright.targets.cuda.passes.tile_rematerialization import rematerialize_tiles
from tilewright.targets.cuda.passes.tma_stores import form_tma_stores, room_of_panels
from tilewright.targets.cuda.passes.warp_specialization import specialize_warps
from tilewright.targets.cuda.passes.wgmma_legality import warpgroups
from tilewright.targets.cuda.retile import retile
from tilewright.targets.cuda.retiling import retiled
from tilewright.targets.cuda.smem import SPARE, SharedMemoryError
from tilewright.targets.cuda.warps import (
    choose_warps,
    resident_workgroups,
    synchronous_accumulators,
)
from tilewright.targets.cuda.work_split import UNSPLIT, LoopWork, WorkSplit
from tilewright.targets.workgroup import BEGIN, begin
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import WARPGROUP


@record
class CudaUnit(Unit[Machine]):
    """A kernel on its way to PTX."""

    together = True
    stages: int | None = None
    """Slots of multi-buffers, where the user says it."""
    split: WorkSplit = UNSPLIT
    """How several workgroups compute one program."""
    rest: int | None = None
    """Bytes of shared memory that the kernel needs besides the multi-buffers of copies, where that is known."""
    taken: int = 0
    """Bytes that these take."""
    resident: int = 1
    """Workgroups of a multiprocessor that they leave room for."""
    work: LoopWork | None = None
    """The kernel's loop, if several workgroups may compute one of its programs."""
    copied: list[Operation] | None = None
    """The loads that multi-buffers will bring, once they are known."""
    merges: bool = False
    """May a launch ask for other programs, with other tiles?"""
    lowered: LoweredThread | None = None
    """The last stage, and what a launch must know of it."""

    def runs(self, name: str) -> bool:
        return name in ("cuda", self.machine.name)

    @property
    def warpgroups(self) -> int:
        """That share the products."""
        return warpgroups(self.kernel)

    def buffered_loads(self) -> Sequence[Operation]:
        """The loads that multi-buffers will bring."""
        if self.copied is None:
            self.copied = list(buffered_loads(self.kernel, self.machine))
        return self.copied


W, L = ("workgroup",), ("lane",)


def _retile(unit: CudaUnit) -> None:
    """Splits a workgroup whose tiles exceed the registers into several."""
    fits = retile(unit.kernel, unit.remarks)
    if unit.split.tiles > 1:
        retile(unit.kernel, unit.remarks, least=fits * unit.split.tiles)


def _retile_again(unit: CudaUnit) -> None:
    """Splits a workgroup whose tiles exceed the registers into several."""
    retile(unit.kernel, unit.remarks, synchronous_accumulators(unit.kernel, unit.machine))


SPLIT = Pass[CudaUnit]("split-workgroups", _retile, W, "unit", optional="split")
REMATERIALIZE_TILES = Pass[CudaUnit]("rematerialize-tiles", rematerialize_tiles, W)
MERGE_PROGRAMS = Pass[CudaUnit]("merge-programs", merge_programs, W, optional=True)
COMMON: Sequence[Pass[CudaUnit]] = (
    *BEGIN,
    MERGE_PROGRAMS,
    Pass("scaled-maxima", scale_maxima, W),
    Pass("exponents", loosen_exponents, W, optional=True),
    CLEANUP,
    Pass("drop-prefetches", drop_prefetches, W, optional="cp-async"),
    CLEANUP,
    Pass("single-elements", single_elements, W, optional=True),
    Pass("eliminate-barriers", eliminate_barriers, W),
    Pass("pad-tiles", pad_tiles, W, optional=True),
    CLEANUP,
    SPLIT,
    CLEANUP,
)
"""What every kernel goes through."""


def coarsening(times: int = 0) -> Pass[CudaUnit]:
    """So many iterations at once; 0: as many as fill a line of shared memory."""

    def wanted(unit: CudaUnit) -> int:
        return times or unit.split.steps * steps_per_line(unit.kernel)

    def due(unit: CudaUnit) -> bool:
        return wanted(unit) > 1

    def apply(unit: CudaUnit) -> None:
        """Merges short steps of k until they fill a line of shared memory, where the extents are divisible."""
        coarsen_k(unit.kernel, wanted(unit))

    return Pass("k-coarsening", apply, W, "unit", optional=True, when=due, make=coarsening)


def _note_loop_work(unit: CudaUnit) -> None:
    """Records the loop of products for the cost model of launches with few programs."""
    unit.work = None if _is_planned(unit) else work_of(unit.kernel, unit.machine)


def _is_planned(unit: CudaUnit) -> bool:
    """Is it said already how launches of few programs run?"""
    off = unit.off - {MERGE_PROGRAMS.name}
    return unit.split != UNSPLIT or bool(off) or unit.stages is not None


def split_k_pass(parts: int = 0) -> Pass[CudaUnit]:
    """Clusters of so many workgroups; 0: as many as the launch asked for."""

    def due(unit: CudaUnit) -> bool:
        return unit.split.parts > 1

    def apply(unit: CudaUnit) -> None:
        """Split-K: the workgroups of a cluster share the iterations of one program and add up their sums."""
        split_k(unit.kernel, parts or unit.split.parts)

    return Pass("split-k", apply, W, "unit", optional=True, when=due, make=split_k_pass)


def _persists(unit: CudaUnit) -> bool:
    if unit.split.parts > 1:
        return False
    # Where threads load everything, several workgroups of a multiprocessor hide one another's waiting.
    return bool(unit.buffered_loads()) or warpgroups(unit.kernel) > 1


def _multi_buffer(unit: CudaUnit) -> None:
    """Loads the operands of products through multi-buffers in shared memory, filled by TMA."""
    kernel, machine = unit.kernel, unit.machine
    rest = unit.rest
    if rest is None:
        panels = room_of_panels(kernel, warpgroups(kernel)) if unit.on("tma-stores") else 0
        rest = SPARE + panels + stored_operand_bytes(kernel, machine, unit.buffered_loads())
    budget = BufferBudget(machine.memories["smem"].size - rest, unit.stages)
    unit.taken = multi_buffer_loads(kernel, machine, budget, unit.remarks)


def _defer_reductions(unit: CudaUnit) -> None:
    """Keeps loop-carried reductions per lane and combines the lanes after the loop."""
    defer_reductions(unit.kernel, lambda: _ownership(unit))


def _copy_ahead(unit: CudaUnit) -> None:
    """Threads copy operands of products ahead of loops (cp.async): on sm_80 and where warpgroups cannot multiply."""
    kernel, stages = unit.kernel, unit.stages or MOST_STAGES
    rest = SPARE if unit.rest is None else unit.rest
    unit.taken, unit.resident = copy_ahead(
        kernel, unit.machine, stages, rest, lambda: choose_warps(kernel), unit.on("mma")
    )


DEFER_REDUCTIONS = Pass[CudaUnit](
    "deferred-reduction", _defer_reductions, W, "unit", optional=True, machine=True
)
PLACED: Sequence[Pass[CudaUnit]] = (
    REMATERIALIZE_TILES,
    Pass("swap-operands", swap_operands, W, "kernel machine", optional=True),
    Pass("tf32-rounding", round_at_loads, W),
    CLEANUP,
)
"""What is done before it is known whether warpgroups have anything to multiply."""

ASYNCHRONOUS: Sequence[Pass[CudaUnit]] = (
    Pass("index-set-splitting", split_index_sets, W, optional=True),
    CLEANUP,
    coarsening(),
    CLEANUP,
    Pass("stored-bounds", note_stored_bounds, W, optional=True),
    Pass("loop-work", _note_loop_work, W, "unit"),
    split_k_pass(),
    Pass("persistent", make_persistent, W, "kernel remarks", optional=True, when=_persists),
    Pass("multi-buffering", _multi_buffer, W, "unit", optional=True, machine=True),
    Pass("local-stores", store_operands, W, "kernel machine"),
    Pass("async-mma", issue_async_mma, W, "kernel machine remarks"),
    Pass("k-slicing", slice_products_along_k, W, "kernel machine", optional=True),
    DEFER_REDUCTIONS,
    Pass("mma-pipelining", pipeline_products, W, "kernel machine warpgroups", optional=True),
    Pass("ping-pong", schedule_ping_pong, W, "kernel machine warpgroups", optional=True),
    Pass("deferred-wait", defer_waits, W, optional=True),
    Pass("load-ahead", load_ahead, W, optional=True),
    Pass("tma-stores", form_tma_stores, W, "kernel warpgroups remarks", optional=True),
    Pass("warp-specialization", specialize_warps, W, "kernel machine remarks", optional=True),
    CLEANUP,
)
"""From a workgroup's program to the `stage` dialect: copies and products run beside the program."""

SYNCHRONOUS: Sequence[Pass[CudaUnit]] = (
    replace(SPLIT, rewrite=_retile_again, machine=True),
    CLEANUP,
    REMATERIALIZE_TILES,
    CLEANUP,
    DEFER_REDUCTIONS,
    Pass("atomic-aggregation", aggregate_atomics, W, "kernel remarks", optional=True),
    Pass("cp-async", _copy_ahead, W, "unit", optional=True, machine=True),
)
"""Threads wait for their copies (cp.async ahead of loops) and products (mma.sync)."""


def _team_ownership(kernel: gpu.FuncOp, machine: Machine) -> Ownership | None:
    """Ownership of a kernel that was made asynchronous: roles choose their own; None for any other kernel."""
    roles = next((op for op in kernel.walk() if isinstance(op, st.RolesOp)), None)
    if roles is not None:
        return Ownership(sum(role.warps for role in roles.roles))
    if any(
        isinstance(op, st.ProductIssueOp)
        or (isinstance(op, st.MultiBufferOp) and not op.by_threads)
        for op in kernel.walk()
    ):
        return plan_ownership(kernel.body.block, WARPGROUP * warpgroups(kernel), machine)
    return None


def _thread_ownership(unit: CudaUnit) -> Ownership:
    """Ownership of a kernel whose threads wait for their products."""
    block = unit.kernel.body.block
    machine = unit.machine if unit.on("mma") else None
    found = plan_ownership(block, choose_warps(unit.kernel), machine)
    if unit.on("cp-async"):
        found.resident = resident_workgroups(found.products.values(), found.warps)
    return found


def _ownership(unit: CudaUnit) -> Ownership:
    """Who owns what of a kernel as it is."""
    return _team_ownership(unit.kernel, unit.machine) or _thread_ownership(unit)


def _lower(unit: CudaUnit) -> None:
    """Distributes values to warps and lanes, selects instructions: the program of one thread."""
    ownership = _ownership(unit)
    try:
        lowered = lower_kernel(unit.kernel, ownership, unit.machine)
    except LayoutError as error:
        raise UnsupportedError(
            f"a tile of this kernel cannot be distributed to threads: {error}",
            hint="tiles whose extents are powers of two can",
        ) from error
    if unit.on("interleave-products"):
        interleave_products(lowered.module)
    lowered.split, lowered.work = programs_of(unit.kernel), unit.work
    lowered.merges = unit.merges
    annotate(lowered)
    arrays = [a for a in unit.kernel.body.block.args if isinstance(a.type, MemRefType)]
    apart = all(arg_facts(a).noalias for a in arrays)
    if unit.split.ahead or lowered.persistent == 1:
        unroll_loops(lowered.module, lowered.threads, apart)
    elif not _is_planned(unit):
        lowered.short = bool(short_loops(lowered.module, lowered.threads, apart))
    unit.lowered, unit.module = lowered, lowered.module


TO_MACH = Pass[CudaUnit](
    "cuda-to-mach",
    _lower,
    given="unit",
    choices={
        "mma": "uses matrix instructions instead of multiply-adds of single elements",
        "interleave-products": "issues products one by one among the arithmetic behind them",
    },
    machine=True,
    whole=True,
)


def _lower_lanes(unit: CudaUnit) -> None:
    """Makes the program of a lane that of a thread: subgroups are warps, or parts of them."""
    lowered = lower_lanes(unit.kernel, lanes_of(unit.kernel))
    annotate(lowered)
    unit.module = lowered.module
    # The emitter writes accesses of vectors anew, in place.
    unit.lowered = replace(lowered, module=lowered.module.clone())


LANES: Sequence[Pass[CudaUnit]] = (
    Pass("cuda-legalize-lanes", legalize_lanes, L, "unit"),
    CLEANUP,
    Pass("cuda-lanes-to-threads", _lower_lanes, L, given="unit", whole=True),
)
"""From the program of a lane to that of a thread."""
PASSES: Sequence[Pass[CudaUnit]] = (
    *(*COMMON, *PLACED, *ASYNCHRONOUS, *SYNCHRONOUS, TO_MACH),
    *LANES,
)
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
    module = retiled(module, split)
    unit = CudaUnit(
        module, machine, options.disable, remarks, stages=options.num_stages, split=split
    )
    begin(unit, options, stage, observe, owners="warps own what the instructions give them")
    if level_of(unit.kernel) == "lane":
        run(LANES, unit, observe)
        assert unit.lowered is not None
        return unit.lowered
    run(COMMON[len(BEGIN) :], unit, observe)
    return _asynchronous(unit, stage, observe) or _sized(
        unit, SYNCHRONOUS, stage, observe, bare=True
    )


def product_work(
    module: ModuleOp, machine: Machine, options: CompileOptions, coarse: bool = False
) -> LoopWork | None:
    """The loop of products of a kernel as warpgroups would run it; None where they cannot, or it has another form.

    The module is changed on the way. `coarse`: with iterations that fill lines, as they will be.
    """
    unit = CudaUnit(module, machine, options.disable, stages=options.num_stages)
    if not unit.on("multi-buffering") or machine.name != "sm_90a":
        return None
    begin(unit, options, ignore, ignore, owners="")
    run(
        (*COMMON[len(BEGIN) :], *PLACED, *((coarsening(), CLEANUP) if coarse else ())), unit, ignore
    )
    analysis = AccessAnalysis(unit.kernel)
    if not will_form(analysis, machine, []):
        return None
    if unit.on("stored-bounds"):
        note_stored_bounds(unit.kernel, analysis)
    return work_of(unit.kernel, machine, analysis)


def _asynchronous(unit: CudaUnit, stage: Observer, observe: Observer) -> LoweredThread | None:
    """The kernel with copies and products beside the program; None, and nothing is changed, where it has no use for
    that, or no room."""
    if not unit.on("multi-buffering") or unit.machine.name != "sm_90a":
        return None
    if any(isinstance(op, PrintOp) for op in unit.kernel.walk()):
        unit.remarks.append("copies and products are not asynchronous in a program that prints")
        return None
    copy = replace(unit, module=unit.module.clone(), only=None, remarks=[])
    run(PLACED, copy, observe)
    free = unit.on(MERGE_PROGRAMS.name) and not _is_planned(unit)
    unit.merges = copy.merges = free and shared_loop(copy.kernel) is not None
    if not will_form(AccessAnalysis(copy.kernel), copy.machine, copy.remarks):
        unit.remarks += copy.remarks
        return None
    try:
        lowered = _sized(copy, ASYNCHRONOUS, stage, observe)
    except UnsupportedError as error:
        unit.remarks.append(f"copies and products are not asynchronous: {error.message}")
        return None
    unit.remarks += copy.remarks
    return lowered


def _sized(
    unit: CudaUnit,
    passes: Sequence[Pass[CudaUnit]],
    stage: Observer,
    observe: Observer,
    bare: bool = False,
) -> LoweredThread:
    """The program of a thread, behind passes that give a kernel multi-buffers as deep as shared memory has room for.

    What it needs besides them is known exactly when it is lowered: where they leave too little of it, for one workgroup
    or as many as were to share a multiprocessor, it is made again with others. A second time is enough unless the rest
    grows as they shrink: sums of a cluster that no longer find room in them. SharedMemoryError where there is no room,
    unless it is made `bare` of multi-buffers then.
    """
    refused: SharedMemoryError | None = None
    rest, size = None, unit.machine.memories["smem"].size
    while True:
        copy = replace(unit, module=unit.module.clone(), only=None, remarks=[], rest=rest)
        run(passes, copy, observe)
        if refused is not None and not (copy.taken or bare):
            raise refused
        module = copy.module
        try:
            run((TO_MACH,), copy, observe)
            lowered = copy.lowered
            assert lowered is not None
            needed = lowered.shared_bytes
            if not copy.taken or needed <= size // copy.resident:
                break
        except SharedMemoryError as error:
            if not copy.taken:
                raise
            refused, needed = error, size + error.excess
        rest = needed - copy.taken
    if any(op.name.startswith("stage.") for op in module.walk()):
        stage("stage", module)
    unit.remarks += copy.remarks
    return lowered
