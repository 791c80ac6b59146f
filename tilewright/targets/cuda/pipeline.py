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
from tilewright.passes.idle_barriers import remove_idle_barriers
from tilewright.passes.kernel import programs_of
from tilewright.passes.observer import Observer, ignore
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline, Unit, run
from tilewright.passes.scaled_maxima import scale_maxima
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.lower import lower_kernel
from tilewright.targets.cuda.lowered import Lowered, annotate
from tilewright.targets.cuda.ownership import Ownership, plan_ownership
from tilewright.targets.cuda.passes.clusters import form_clusters
from tilewright.targets.cuda.passes.masks import split_masked
from tilewright.targets.cuda.passes.overlap import overlap_products
from tilewright.targets.cuda.passes.partial import keep_partial
from tilewright.targets.cuda.passes.persistent import make_persistent
from tilewright.targets.cuda.passes.positions import place_tiles
from tilewright.targets.cuda.passes.prefetches import leave_out_prefetches
from tilewright.targets.cuda.passes.products import issue_products
from tilewright.targets.cuda.passes.puts import put_bytes, put_operands
from tilewright.targets.cuda.passes.rings import Budget, form_rings, ring_loads, will_form
from tilewright.targets.cuda.passes.roles import split_roles
from tilewright.targets.cuda.passes.rotate import rotate_loops
from tilewright.targets.cuda.passes.rounding import round_where_loaded
from tilewright.targets.cuda.passes.shares import share_loop
from tilewright.targets.cuda.passes.slices import slice_products
from tilewright.targets.cuda.passes.steps import merge_steps, narrow_steps
from tilewright.targets.cuda.passes.stores import engine_stores, room_of_panels
from tilewright.targets.cuda.passes.suits import warpgroups
from tilewright.targets.cuda.passes.swap_operands import swap_operands
from tilewright.targets.cuda.passes.turns import take_turns
from tilewright.targets.cuda.retile import retile
from tilewright.targets.cuda.rules_pipeline import MOST_STAGES
from tilewright.targets.cuda.sharing import ALONE, SPARE, Share, Work
from tilewright.targets.cuda.warps import (
    choose_warps,
    resident_workgroups,
    synchronous_accumulators,
)
from tilewright.targets.cuda.work import work_of
from tilewright.targets.workgroup import BEGIN, begin
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import WARPGROUP

CLUSTERS = False
"""Whether neighbouring programs form clusters. On an H200 products of 2048 to 8192 cubed are no faster with them
(0.96, 0.99 and 1.00 of the speed without): L2 feeds the copies of one workgroup per multiprocessor as it is."""


@dataclass
class CudaUnit(Unit[Machine]):
    """A kernel on its way to PTX."""

    stages: int | None = None
    """Slots of rings, where the user says it."""
    share: Share = ALONE
    """How several workgroups compute one program."""
    spare: int = SPARE[0]
    """Bytes of shared memory that are left for other things than rings and panels."""
    work: Work | None = None
    """The kernel's loop, if several workgroups may compute one of its programs."""
    copied: list[Operation] | None = None
    """The loads that rings will bring, once they are known."""
    lowered: Lowered | None = None
    """The last stage, and what a launch must know of it."""

    def runs(self, name: str) -> bool:
        return name in ("cuda", self.machine.name)

    def ring_loads(self) -> Sequence[Operation]:
        """The loads that rings will bring."""
        if self.copied is None:
            self.copied = list(ring_loads(self.kernel, self.machine))
        return self.copied


W = ("workgroup",)


def _retile(unit: CudaUnit) -> None:
    fits = retile(unit.kernel, unit.remarks)
    if unit.share.tiles > 1:
        retile(unit.kernel, unit.remarks, least=fits * unit.share.tiles)


def _retile_again(unit: CudaUnit) -> None:
    retile(unit.kernel, unit.remarks, synchronous_accumulators(unit.kernel, unit.machine))


SPLIT = Pass[CudaUnit](
    "split-workgroups",
    "tiles too large for the registers are shared by several workgroups",
    _retile,
    requires=W,
    optional="split",
)
POSITIONS = Pass[CudaUnit](
    "positions",
    "tiles are placed where they are loaded",
    lambda u: place_tiles(u.kernel),
    requires=W,
)
COMMON: Sequence[Pass[CudaUnit]] = (
    *BEGIN,
    Pass(
        "scaled-maxima",
        "the maximum of scaled values is that of the values, scaled",
        lambda u: scale_maxima(u.kernel),
        requires=W,
    ),
    CLEANUP,
    Pass(
        "prefetches",
        "prefetches of what is copied ahead of its loop anyway go",
        lambda u: leave_out_prefetches(u.kernel),
        requires=W,
        optional="copies",
    ),
    CLEANUP,
    Pass(
        "idle-barriers",
        "barriers that order nothing go",
        lambda u: remove_idle_barriers(u.kernel),
        requires=W,
    ),
    SPLIT,
    CLEANUP,
)
"""What every kernel goes through."""


def steps(times: int = 0) -> Pass[CudaUnit]:
    """So many iterations at once; 0: as many as fill a line of shared memory."""

    def wanted(unit: CudaUnit) -> int:
        return times or unit.share.steps * narrow_steps(unit.kernel)

    return Pass(
        "steps",
        "short steps of k are merged, until a line in shared memory is full, where the extents' divisors allow it",
        lambda u: merge_steps(u.kernel, wanted(u)),
        requires=W,
        optional=True,
        when=lambda u: wanted(u) > 1,
        make=steps,
    )


def _note_work(unit: CudaUnit) -> None:
    planned = unit.share != ALONE or bool(unit.off) or unit.stages is not None
    unit.work = None if planned else work_of(unit.kernel, unit.machine)


def shares(parts: int = 0) -> Pass[CudaUnit]:
    """Clusters of so many workgroups; 0: as many as the launch asked for."""
    return Pass(
        "shares",
        "few programs with long loops: clusters do a program's iterations in turn and add up",
        lambda u: share_loop(u.kernel, parts or u.share.parts),
        requires=W,
        optional=True,
        when=lambda u: u.share.parts > 1,
        make=shares,
    )


def _persists(unit: CudaUnit) -> bool:
    if unit.share.parts > 1:
        return False
    # Where threads load everything, several workgroups of a multiprocessor hide one another's waiting.
    return bool(unit.ring_loads()) or warpgroups(unit.kernel) > 1


def _rings(unit: CudaUnit) -> None:
    kernel, machine = unit.kernel, unit.machine
    panels = room_of_panels(kernel, warpgroups(kernel)) if unit.on("stores") else 0
    room = machine.memories["smem"].size - unit.spare - panels
    room -= put_bytes(kernel, machine, unit.ring_loads())
    form_rings(kernel, machine, Budget(room, unit.stages), unit.remarks)


PARTIAL = Pass[CudaUnit](
    "partial",
    "what a loop reduces stays apart, lane by lane, until its end",
    lambda u: keep_partial(u.kernel, lambda: _ownership(u)),
    requires=W,
    optional=True,
    machine=True,
)
PLACED: Sequence[Pass[CudaUnit]] = (
    POSITIONS,
    Pass(
        "swap-operands",
        "products with few rows, or operands that warpgroups read only transposed, are computed transposed",
        lambda u: swap_operands(u.kernel, u.machine),
        requires=W,
        optional=True,
        machine=True,
    ),
    Pass(
        "rounding",
        "f32 becomes tf32 where it is loaded",
        lambda u: round_where_loaded(u.kernel),
        requires=W,
    ),
    CLEANUP,
)
"""What is done before it is known whether warpgroups have anything to multiply."""

ASYNCHRONOUS: Sequence[Pass[CudaUnit]] = (
    Pass(
        "masks",
        "loops are split where a mask begins or ceases to hold for the whole tile",
        lambda u: split_masked(u.kernel),
        requires=W,
        optional=True,
    ),
    CLEANUP,
    steps(),
    CLEANUP,
    Pass("work", "the loop is noted, for launches of few programs", _note_work, requires=W),
    shares(),
    Pass(
        "clusters",
        "neighbours that load the same tile share one copy (multicast); off, for it gained nothing on an H200",
        lambda u: form_clusters(u.kernel, u.machine),
        requires=W,
        optional=True,
        when=lambda u: CLUSTERS and u.on("persistent") and _persists(u),
        machine=True,
    ),
    Pass(
        "persistent",
        "one workgroup per multiprocessor takes program after program, in groups of rows; the longest first where "
        "loops run longer in some",
        lambda u: make_persistent(u.kernel, u.remarks),
        requires=W,
        optional=True,
        when=_persists,
    ),
    Pass(
        "rings",
        "loads that feed products come through rings of shared-memory slots, filled by the copy engine (TMA)",
        _rings,
        requires=W,
        optional=True,
        machine=True,
    ),
    Pass(
        "puts",
        "right operands that the program computes are written to rings too",
        lambda u: put_operands(u.kernel, u.machine),
        requires=W,
        machine=True,
    ),
    Pass(
        "products",
        "products are done by warpgroups (wgmma), beside the program",
        lambda u: issue_products(u.kernel, u.machine, u.remarks),
        requires=W,
        machine=True,
    ),
    Pass(
        "slices",
        "a product whose A is computed (dequantised, activated) goes in slices of k: one is computed while another "
        "multiplies",
        lambda u: slice_products(u.kernel, u.machine),
        requires=W,
        optional=True,
        machine=True,
    ),
    PARTIAL,
    Pass(
        "rotate",
        "a loop's last product runs beside the next iteration; loops in a row hand it on",
        lambda u: rotate_loops(u.kernel, warpgroups(u.kernel)),
        requires=W,
        optional=True,
    ),
    Pass(
        "turns",
        "warpgroups take turns at the matrix unit: one multiplies while another computes",
        lambda u: take_turns(u.kernel, warpgroups(u.kernel)),
        requires=W,
        optional=True,
    ),
    Pass(
        "overlap",
        "a product that a loop adds up is waited for one iteration later",
        lambda u: overlap_products(u.kernel),
        requires=W,
        optional=True,
    ),
    Pass(
        "stores",
        "results go through shared memory and the copy engine",
        lambda u: engine_stores(u.kernel, warpgroups(u.kernel), u.remarks),
        requires=W,
        optional=True,
    ),
    Pass(
        "roles",
        "a warp that only copies, and warpgroups that only compute, by backward slice",
        lambda u: split_roles(u.kernel, u.machine, u.remarks),
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
    POSITIONS,
    CLEANUP,
    PARTIAL,
)
"""Threads wait for their copies (cp.async ahead of loops) and products (mma.sync)."""


def _team_ownership(kernel: gpu.FuncOp) -> Ownership | None:
    """Ownership of a kernel that was made asynchronous: roles choose their own; None for any other kernel."""
    roles = next((op for op in kernel.walk() if isinstance(op, st.RolesOp)), None)
    if roles is not None:
        return Ownership(sum(role.warps.value.data for role in roles.roles))
    if any(isinstance(op, st.ProductIssueOp | st.RingOp) for op in kernel.walk()):
        return plan_ownership(kernel.body.block, WARPGROUP * warpgroups(kernel))
    return None


def _thread_ownership(unit: CudaUnit) -> Ownership:
    """Ownership of a kernel whose threads wait for their products."""
    block = unit.kernel.body.block
    found = plan_ownership(block, choose_warps(unit.kernel), use_mma=unit.on("mma"))
    if unit.on("copies"):
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
            f"a tile of this kernel cannot be dealt to threads: {error}",
            hint="tiles whose extents are powers of two can",
        ) from error
    lowered.split, lowered.work = programs_of(unit.kernel), unit.work
    annotate(lowered)
    unit.lowered, unit.module = lowered, lowered.module


TO_MACH = Pass[CudaUnit](
    "cuda-to-mach",
    "one thread's program: values are dealt to warps and lanes, instructions chosen",
    _lower,
    choices={
        "copies": "on sm_80, and where warpgroups cannot multiply: cp.async ahead of the loop; prefetches of the same "
        "arrays are left out",
        "mma": "matrix instructions instead of multiply-add element by element",
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
    share: Share = ALONE,
) -> Lowered:
    """From XeTile at workgroup level to the last stage.

    `stage` sees the module at every stage, `observe` after every pass, by its name.
    """
    PIPELINE.check(options.disable, options.target)
    unit = CudaUnit(
        module, machine, options.disable, remarks, None, False, options.num_stages, share
    )
    begin(unit, options, stage, observe, owners="warps own what the instructions give them")
    run(COMMON[len(BEGIN) :], unit, observe)
    lowered = _asynchronous(unit, stage, observe)
    if lowered is None:
        run((*SYNCHRONOUS, TO_MACH), unit, observe)
        lowered = unit.lowered
        assert lowered is not None
    return lowered


def product_work(module: ModuleOp, machine: Machine, options: CompileOptions) -> Work | None:
    """The loop of products of a kernel as warpgroups would run it; None where they cannot, or it has another form.

    The module is changed on the way.
    """
    unit = CudaUnit(module, machine, options.disable, [], None, False, options.num_stages)
    if not unit.on("rings") or machine.name != "sm_90a":
        return None
    begin(unit, options, ignore, ignore, owners="")
    run((*COMMON[len(BEGIN) :], *PLACED), unit, ignore)
    return work_of(unit.kernel, machine) if will_form(unit.kernel, machine, []) else None


def _asynchronous(unit: CudaUnit, stage: Observer, observe: Observer) -> Lowered | None:
    """The kernel with copies and products beside the program; None, and nothing is changed, where it has no use for
    that, or no room.

    What shared memory a kernel needs besides rings is known only when it is lowered: so rings are made as deep as
    fits, and shallower when the rest does not.
    """
    if not unit.on("rings") or unit.machine.name != "sm_90a":
        return None
    if any(isinstance(op, PrintOp) for op in unit.kernel.walk()):
        unit.remarks.append("copies and products do not run beside a program that prints")
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
    unit.remarks.append(f"copies and products do not run beside the program: {reason}")
    return None
