"""The passes that lower a workgroup's XeGPU to lanes, in the order in which they run.

Every stage is text that the reference executor runs; `tilewright check --target xe-pvc` does. A stage's name
is what `--emit` calls the program behind its last pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.observer import Observer, ignore
from tilewright.passes.carry_offsets import CARRY_OFFSETS
from tilewright.passes.expand_ops import EXPAND_OPS
from tilewright.passes.kernel import IN_PASSES, integer, level_of
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.passes.outer_loops_to_grid import outer_loops_to_grid
from tilewright.passes.own_memory import own_memory
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline, Unit
from tilewright.passes.retile import compute_in_passes, shared_memory
from tilewright.passes.sink_broadcasts import sink_broadcasts
from tilewright.passes.vector_reductions import reductions_alike
from tilewright.passes.views import FOLD_VIEWS, fold_views
from tilewright.passes.xegpu.atomic_results import atomic_results
from tilewright.passes.xegpu.block_messages import ROW
from tilewright.passes.xegpu.blocking import block
from tilewright.passes.xegpu.blockop_fallback import mark
from tilewright.passes.xegpu.bools_as_bytes import store_booleans_as_bytes
from tilewright.passes.xegpu.check_legal import check_legal
from tilewright.passes.xegpu.complete import complete
from tilewright.passes.xegpu.exchange_slm import exchange_through_slm
from tilewright.passes.xegpu.from_xetile import XETILE_TO_XEGPU
from tilewright.passes.xegpu.insert_barriers import insert_barriers
from tilewright.passes.xegpu.k_loops import k_loops
from tilewright.passes.xegpu.lane_elements import lane_elements
from tilewright.passes.xegpu.lane_memory import lane_memory
from tilewright.passes.xegpu.merge_inductions import merge_inductions
from tilewright.passes.xegpu.narrow_index import NARROW_INDEX
from tilewright.passes.xegpu.pad import pad
from tilewright.passes.xegpu.positions_as_masks import positions_as_masks
from tilewright.passes.xegpu.propagate_layout import KINDS, check_kind
from tilewright.passes.xegpu.propagate_layout import propagate_layout as give_layouts
from tilewright.passes.xegpu.slm_layout import lay_out
from tilewright.passes.xegpu.subgroup_distribute import subgroup_distribute
from tilewright.passes.xegpu.subgroup_parts import subgroup_parts
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile
from tilewright.passes.xegpu.upgrade import keeps_map, upgrade, upgrade_older
from tilewright.passes.xegpu.wg_to_sg import distribute
from tilewright.uarch.xe import XeMachine, xe_machine

XeUnit = Unit[XeMachine]
W, S = ("workgroup",), ("subgroup",)
BOTH = (*W, *S)
KM = "kernel machine"


def compute_parts(passes: int = 0) -> Pass[XeUnit]:
    """A kernel's tiles are computed in so many passes; as it says itself (`tilewright.passes`) without a number."""

    def apply(unit: XeUnit) -> None:
        """Computes tiles that exceed a subgroup's registers, or the shared memory, in several passes."""
        kernel = unit.kernel
        count = passes or integer(kernel, IN_PASSES, 1)
        room = unit.machine.memories["slm"].size if _shares_too_much(unit) else None
        if (room or count > 1) and not any(op.name.startswith("xetile.") for op in kernel.walk()):
            # Tiles are what is split: they say the same.
            xegpu_to_xetile(unit.module)
            fold_views(kernel)
        unit.passes = compute_in_passes(kernel, count, room)
        kernel.attributes.pop(IN_PASSES, None)
        if unit.passes > 1:
            unit.remarks.append(
                f"a workgroup's tiles are computed in {unit.passes} passes, one after the other"
            )

    return Pass(
        "retile",
        apply,
        BOTH,
        "unit",
        optional=True,
        when=lambda u: IN_PASSES in u.kernel.attributes or _shares_too_much(u),
        machine=True,
        make=compute_parts,
    )


def _shares_too_much(unit: XeUnit) -> bool:
    """Does a workgroup's program make more shared memory than there is?"""
    used = sum(shared_memory(unit.kernel).values())
    return level_of(unit.kernel) == "workgroup" and used > unit.machine.memories["slm"].size


MERGE_INDUCTIONS = Pass[Unit[Any]]("xegpu-merge-inductions", merge_inductions, BOTH, optional=True)
POSITIONS = Pass[Unit[Any]]("xegpu-positions-as-masks", positions_as_masks, BOTH)
PAD = Pass[XeUnit]("xegpu-pad", pad, BOTH, "kernel machine remarks", optional=True)
INSERT_BARRIERS = Pass[Unit[Any]]("xegpu-insert-barriers", insert_barriers, W)
BLOCKOP_FALLBACK = Pass[XeUnit]("xegpu-blockop-fallback", mark, S, KM)
TO_TODAY = Pass[Unit[Any]]("xegpu-upgrade", upgrade, BOTH, "module")
OWN_MEMORY = Pass[XeUnit]("own-memory", own_memory, (*BOTH, "lane"))


def _own_elements(unit: XeUnit) -> None:
    """Has each lane load and store its own elements where no block message gives it these: subgroups that are smaller
    than the machine's share one of these."""
    kernel, machine = unit.kernel, unit.machine
    lanes = integer(kernel, LANES, machine.lanes)
    size = machine.subgroup_for(lanes)
    if size is None or size == lanes:
        lane_elements(kernel, lanes, _is_of_lanes)
        return
    lane_elements(kernel, lanes)
    lane_memory(kernel, lanes, lambda op: getattr(op, "subgroup_block_io", False))
    subgroup_parts(kernel, lanes, size)


def _is_of_lanes(op: Operation) -> bool:
    """Has no message that gives lanes these elements: others than its own, or a row that is not known to be aligned?"""
    row = isinstance(op, xegpu.LoadNdOp | xegpu.StoreNdOp) and len(op.tdesc.get_shape()) == 1
    return keeps_map(op) or (row and ROW not in op.attributes)


LANE_ELEMENTS = Pass[XeUnit]("xegpu-lane-elements", _own_elements, ("lane",), "unit", machine=True)
OLDER_LANES = Pass[XeUnit]("xegpu-upgrade", upgrade_older, ("lane",), "module")


def propagate_layout(kind: str = "subgroup") -> Pass[XeUnit]:
    """Layouts of a `kind`: subgroup, inst or lane."""
    check_kind(kind)
    return Pass(
        "xegpu-propagate-layout",
        partial(give_layouts, kind=kind),
        W if kind == "subgroup" else S,
        KM,
        make=propagate_layout,
        told=KINDS[kind],
    )


def _settled(unit: XeUnit) -> None:
    """In today's text, with one op for all reductions."""
    upgrade_older(unit.module)
    reductions_alike(unit.kernel)


def _to_subgroups(unit: XeUnit) -> None:
    """Distributes to subgroups: one subgroup's program on its fragments of the values."""
    _settled(unit)
    complete(unit.kernel, unit.machine)
    distribute(unit.kernel)


def _block(unit: XeUnit) -> None:
    """Splits ops to the size of an instruction."""
    _settled(unit)
    block(unit.kernel, unit.machine)


WG_TO_SG = Pass[XeUnit]("xegpu-wg-to-sg-distribute", _to_subgroups, W, "unit", machine=True)
BLOCKING = Pass[XeUnit]("xegpu-blocking", _block, S, "unit", machine=True)


def distribute_to_lanes(reduction: str = "tree") -> Pass[XeUnit]:
    """One lane's program; `reduction` across lanes: tree or hardware."""
    if reduction not in ("tree", "hardware"):
        raise UnsupportedError(f"reduction is tree or hardware, not {reduction}")

    def apply(unit: XeUnit) -> None:
        """Distributes to lanes: one lane's program, with fragments and shuffles."""
        _settled(unit)
        subgroup_distribute(unit.kernel, unit.machine, hardware=reduction == "hardware")

    name = "xegpu-subgroup-distribute"
    return Pass(name, apply, S, "unit", machine=True, make=distribute_to_lanes)


def check_limits(grf: int = 128) -> Pass[XeUnit]:
    """The machine's limits, with `grf` registers per thread: 128 or 256."""
    return Pass(
        "xegpu-check-legal",
        partial(check_legal, grf=grf),
        given="module machine",
        make=check_limits,
        told="checks XeGPU ops against the limits of a machine",
    )


WORKGROUP: Sequence[Pass[XeUnit]] = (
    Pass("gpu-kernel-outlining", outline_launches, given="module", stage="xetile"),
    Pass("outer-loops-to-grid", outer_loops_to_grid, W, "module", stage="xetile"),
    OWN_MEMORY.to("xetile"),
    CARRY_OFFSETS.to("xetile"),
    FOLD_VIEWS.to("xetile"),
    compute_parts().to("xetile"),
    Pass("k-loops", k_loops, BOTH, KM, optional=True, stage="xetile"),
    Pass("atomic-results", atomic_results, W, stage="xetile"),
    XETILE_TO_XEGPU.to("xegpu"),
    TO_TODAY.to("xegpu"),
    Pass("xegpu-bools-as-bytes", store_booleans_as_bytes, BOTH, stage="xegpu"),
    MERGE_INDUCTIONS.to("xegpu"),
    POSITIONS.to("xegpu"),
    PAD.to("xegpu"),
    NARROW_INDEX.to("xegpu"),
    Pass("sink-broadcasts", sink_broadcasts, optional=True, stage="xegpu"),
    CLEANUP.to("xegpu", "removes unused values before they are distributed"),
    propagate_layout("subgroup").to("xegpu"),
    Pass("xegpu-exchange-through-slm", exchange_through_slm, W, KM, stage="xegpu"),
    INSERT_BARRIERS.to("xegpu"),
    WG_TO_SG.to("xegpu-sg"),
    CLEANUP.to("xegpu-sg", "removes duplicate index arithmetic and hoists it out of loops"),
)
"""From a workgroup's program to that of a subgroup."""

SUBGROUP: Sequence[Pass[XeUnit]] = (
    Pass("xegpu-k-loops", k_loops, S, KM, optional=True, stage="xegpu-sg"),
    PAD.to("xegpu-sg"),
    BLOCKOP_FALLBACK.to("xegpu-sg"),
    Pass("xegpu-slm-layout", lay_out, S, KM, optional=True, stage="xegpu-sg"),
    propagate_layout("inst").to("xegpu-sg"),
    BLOCKING.to("xegpu-inst"),
    CLEANUP.to("xegpu-inst", "removes duplicate descriptors and offsets"),
    propagate_layout("lane").to("xegpu-inst"),
    distribute_to_lanes().to("xegpu-lane"),
    CLEANUP.to("xegpu-lane", "removes duplicate lane arithmetic and hoists it out of loops"),
)
"""From a subgroup's program to that of a lane."""


def known_as(
    name: str, story: str, passes: Sequence[Pass[XeUnit]], requires: Sequence[str] = BOTH
) -> Pass[XeUnit]:
    """Some passes under one name."""

    def apply(unit: XeUnit) -> None:
        for each in passes:
            each.apply(unit)

    return Pass(name, apply, requires, "unit", machine=True, told=story)


TO_XEGPU = (XETILE_TO_XEGPU, TO_TODAY)
IMEX: Sequence[Pass[XeUnit]] = (
    known_as(
        "xetile-init-duplicate",
        "does nothing: one descriptor without offsets serves loads, stores and prefetches",
        (),
    ),
    known_as(
        "xetile-canonicalization",
        "turns column-major tiles into row-major descriptors and transposes",
        (*TO_XEGPU, CLEANUP),
    ),
    known_as(
        "xetile-wg-to-sg",
        "distributes to subgroups, with exchange through shared memory",
        [each for each in WORKGROUP if each.stage != "xetile"],
        W,
    ),
    known_as(
        "xetile-blockop-fallback",
        "marks block ops that no 2D block message can do, for the blocking pass",
        (*TO_XEGPU, BLOCKOP_FALLBACK),
        S,
    ),
    known_as(
        "xetile-blocking",
        "splits ops to the size of an instruction",
        (*TO_XEGPU, propagate_layout("inst"), BLOCKING, CLEANUP),
        S,
    ),
    known_as("convert-xetile-to-xegpu", "converts XeTile to XeGPU, op by op", TO_XEGPU),
)
"""The passes of Intel's Extension for MLIR, by their names there. They take XeTile or XeGPU, and leave XeGPU."""

PIPELINE = Pipeline[XeUnit](
    "xe",
    (*WORKGROUP, *SUBGROUP),
    lambda module, chip: Unit(module, xe_machine(chip)),
    "pvc",
    (EXPAND_OPS, check_limits(), LANE_ELEMENTS, *IMEX),
)


def entries(level: str) -> Sequence[Pass[XeUnit]]:
    """The passes that a program of a level still has before it."""
    if level == "workgroup":
        return (*WORKGROUP, *SUBGROUP)
    if level == "subgroup":
        return (*(e for e in WORKGROUP if level in e.requires), *SUBGROUP)
    return (OWN_MEMORY, OLDER_LANES, LANE_ELEMENTS)


def lower(
    module: ModuleOp,
    passes: Sequence[Pass[XeUnit]] = (*WORKGROUP, *SUBGROUP),
    chip: str = "pvc",
    observe: Observer = ignore,
) -> None:
    """Does passes on every function of a module that they are for, in place; `observe` is called with each."""
    for each in passes:
        PIPELINE.alone(each, module, chip)
        observe(each.name, module)
