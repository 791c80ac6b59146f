"""The passes that lower a workgroup's XeGPU to lanes, in the order in which they run.

Every stage is text that the reference executor runs; `tilewright check --target xe-pvc` does. A stage's name
is what `--emit` calls the program behind its last pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import UnsupportedError
from tilewright.passes.expand_ops import EXPAND_OPS
from tilewright.passes.k_loops import k_loops
from tilewright.passes.kernel import IN_PASSES, integer
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.passes.observer import Observer, ignore
from tilewright.passes.outer_loops_to_grid import outer_loops_to_grid
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline, Unit
from tilewright.passes.retile import compute_in_passes
from tilewright.passes.scalar_memory import scalar_memory
from tilewright.passes.sink_broadcasts import sink_broadcasts
from tilewright.passes.vector_reductions import reductions_alike
from tilewright.passes.views import FOLD_VIEWS
from tilewright.passes.xegpu.blocking import block
from tilewright.passes.xegpu.blockop_fallback import mark
from tilewright.passes.xegpu.bools_as_bytes import store_booleans_as_bytes
from tilewright.passes.xegpu.check_legal import check_legal
from tilewright.passes.xegpu.complete import complete
from tilewright.passes.xegpu.exchange_slm import exchange_through_slm
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.passes.xegpu.insert_barriers import insert_barriers
from tilewright.passes.xegpu.merge_inductions import merge_inductions
from tilewright.passes.xegpu.narrow_index import NARROW_INDEX
from tilewright.passes.xegpu.pad import pad
from tilewright.passes.xegpu.positions_as_masks import positions_as_masks
from tilewright.passes.xegpu.propagate_layout import KINDS, check_kind
from tilewright.passes.xegpu.propagate_layout import propagate_layout as give_layouts
from tilewright.passes.xegpu.sg_maps import has_types
from tilewright.passes.xegpu.slm_layout import lay_out
from tilewright.passes.xegpu.subgroup_distribute import subgroup_distribute
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile
from tilewright.passes.xegpu.upgrade import upgrade, upgrade_older
from tilewright.passes.xegpu.wg_to_sg import distribute
from tilewright.uarch.xe import XeMachine, xe_machine

XeUnit = Unit[XeMachine]
W, S = ("workgroup",), ("subgroup",)
BOTH = (*W, *S)

KERNEL_OUTLINING = Pass[Unit[Any]](
    "gpu-kernel-outlining",
    "turns the regions of gpu.launch into kernels",
    lambda u: outline_launches(u.module),
    whole=True,
)
OUTER_LOOPS_TO_GRID = Pass[Unit[Any]](
    "outer-loops-to-grid",
    "turns independent outer loops into the grid",
    lambda u: outer_loops_to_grid(u.module),
    requires=W,
    whole=True,
)


def compute_parts(passes: int = 0) -> Pass[Unit[Any]]:
    """A kernel's tiles are computed in so many passes; as it says itself (`tilewright.passes`) without a number."""

    def apply(unit: Unit[Any]) -> None:
        count = passes or integer(unit.kernel, IN_PASSES, 1)
        if count > 1 and not any(op.name.startswith("xetile.") for op in unit.kernel.walk()):
            # Tiles are what is split: they say the same.
            xegpu_to_xetile(unit.module)
        compute_in_passes(unit.kernel, count)
        unit.kernel.attributes.pop(IN_PASSES, None)
        if count > 1:
            unit.remarks.append(
                f"a workgroup's tiles are computed in {count} passes, one after the other"
            )

    return Pass(
        "retile",
        "computes tiles that exceed a subgroup's registers in several passes",
        apply,
        requires=BOTH,
        optional=True,
        when=lambda u: IN_PASSES in u.kernel.attributes,
        make=compute_parts,
    )


def _loop_over_k(unit: XeUnit) -> None:
    # A row of A in a step is one element for each lane.
    lanes = unit.machine.matrix[0].n[0]
    k_loops(unit.kernel, lanes, lambda op: not has_types(unit.machine, op))


K_LOOPS = Pass[XeUnit](
    "k-loops",
    "turns deep products of types that no matrix instruction has into loops over k",
    _loop_over_k,
    requires=BOTH,
    optional=True,
    machine=True,
)
ATOMICS_OF_NUMBERS = Pass[Unit[Any]](
    "scalar-memory",
    "turns atomics of numbers whose results are used into those of tiles of one element",
    lambda u: scalar_memory(u.kernel, atomics=True),
    requires=BOTH,
)
XETILE_TO_XEGPU = Pass[Unit[Any]](
    "xetile-to-xegpu",
    "converts XeTile to XeGPU, op by op",
    lambda u: xetile_to_xegpu(u.module),
    requires=BOTH,
    whole=True,
)
MERGE_INDUCTIONS = Pass[Unit[Any]](
    "xegpu-merge-inductions",
    "merges induction variables that advance by the same step",
    lambda u: merge_inductions(u.kernel),
    requires=BOTH,
    optional=True,
)
SINK_BROADCASTS = Pass[Unit[Any]](
    "sink-broadcasts",
    "sinks broadcasts: masks stay rows and columns as long as possible",
    lambda u: sink_broadcasts(u.kernel),
    optional=True,
)
BYTES_OF_BOOLEANS = Pass[Unit[Any]](
    "xegpu-bools-as-bytes",
    "stores arrays of i1 as bytes",
    lambda u: store_booleans_as_bytes(u.kernel),
    requires=BOTH,
)
POSITIONS = Pass[Unit[Any]](
    "xegpu-positions-as-masks",
    "reads an element at a run-time position by comparing indices",
    lambda u: positions_as_masks(u.kernel),
    requires=W,
)


def _pad(unit: XeUnit) -> None:
    unit.remarks += pad(unit.kernel, unit.machine)


PAD = Pass[XeUnit](
    "xegpu-pad",
    "pads extents that lanes or instruction blocks do not divide",
    _pad,
    requires=BOTH,
    optional=True,
    machine=True,
)
EXCHANGE = Pass[XeUnit](
    "xegpu-exchange-through-slm",
    "exchanges data between subgroups through shared memory",
    lambda u: exchange_through_slm(u.kernel, u.machine),
    requires=W,
    machine=True,
)
INSERT_BARRIERS = Pass[Unit[Any]](
    "xegpu-insert-barriers",
    "inserts barriers that keep memory accesses in program order",
    lambda u: insert_barriers(u.kernel),
    requires=W,
)
BLOCKOP_FALLBACK = Pass[XeUnit](
    "xegpu-blockop-fallback",
    "marks block ops that no 2D block message can do",
    lambda u: mark(u.kernel, u.machine),
    requires=S,
    machine=True,
)
SLM_LAYOUT = Pass[XeUnit](
    "xegpu-slm-layout",
    "lays out shared matrices so that a lane's elements are contiguous",
    lambda u: lay_out(u.kernel, u.machine),
    requires=S,
    optional=True,
    machine=True,
)


TO_TODAY = Pass[Unit[Any]](
    "xegpu-upgrade",
    "upgrades older text to today's: offsets on memory ops",
    lambda u: upgrade(u.module),
    requires=BOTH,
    whole=True,
)


OLDER_LANES = Pass[XeUnit](
    "xegpu-upgrade",
    "upgrades older text of a lane: its own offset instead of a descriptor of all lanes' offsets",
    lambda u: upgrade_older(u.module),
    requires=("lane",),
)


def propagate_layout(kind: str = "subgroup") -> Pass[XeUnit]:
    """Layouts of a `kind`: subgroup, inst or lane."""
    check_kind(kind)
    return Pass(
        "xegpu-propagate-layout",
        KINDS[kind],
        lambda u: give_layouts(u.kernel, u.machine, kind),
        requires=W if kind == "subgroup" else S,
        machine=True,
        make=propagate_layout,
    )


def _settled(unit: XeUnit) -> None:
    """In today's text, with one op for all reductions."""
    upgrade_older(unit.module)
    reductions_alike(unit.kernel)


def _to_subgroups(unit: XeUnit) -> None:
    _settled(unit)
    complete(unit.kernel, unit.machine)
    distribute(unit.kernel)


WG_TO_SG = Pass[XeUnit](
    "xegpu-wg-to-sg-distribute",
    "distributes to subgroups: one subgroup's program on its fragments of the values",
    _to_subgroups,
    requires=W,
    machine=True,
)


def _block(unit: XeUnit) -> None:
    _settled(unit)
    block(unit.kernel, unit.machine)


BLOCKING = Pass[XeUnit](
    "xegpu-blocking",
    "splits ops to the size of an instruction",
    _block,
    requires=S,
    machine=True,
)


def distribute_to_lanes(reduction: str = "tree") -> Pass[XeUnit]:
    """One lane's program; `reduction` across lanes: tree or hardware."""
    if reduction not in ("tree", "hardware"):
        raise UnsupportedError(f"reduction is tree or hardware, not {reduction}")

    def apply(unit: XeUnit) -> None:
        _settled(unit)
        subgroup_distribute(unit.kernel, unit.machine, hardware=reduction == "hardware")

    return Pass(
        "xegpu-subgroup-distribute",
        "distributes to lanes: one lane's program, with fragments and shuffles",
        apply,
        requires=S,
        machine=True,
        make=distribute_to_lanes,
    )


def check_limits(grf: int = 128) -> Pass[XeUnit]:
    """The machine's limits, with `grf` registers per thread: 128 or 256."""
    return Pass(
        "xegpu-check-legal",
        "checks XeGPU ops against the limits of a machine",
        lambda u: check_legal(u.module, u.machine, grf),
        machine=True,
        whole=True,
        make=check_limits,
    )


WORKGROUP: Sequence[Pass[XeUnit]] = (
    KERNEL_OUTLINING.to("xetile"),
    OUTER_LOOPS_TO_GRID.to("xetile"),
    FOLD_VIEWS.to("xetile"),
    compute_parts().to("xetile"),
    K_LOOPS.to("xetile"),
    ATOMICS_OF_NUMBERS.to("xetile"),
    XETILE_TO_XEGPU.to("xegpu"),
    TO_TODAY.to("xegpu"),
    BYTES_OF_BOOLEANS.to("xegpu"),
    MERGE_INDUCTIONS.to("xegpu"),
    POSITIONS.to("xegpu"),
    PAD.to("xegpu"),
    NARROW_INDEX.to("xegpu"),
    SINK_BROADCASTS.to("xegpu"),
    CLEANUP.to("xegpu", "removes unused values before they are distributed"),
    propagate_layout("subgroup").to("xegpu"),
    EXCHANGE.to("xegpu"),
    INSERT_BARRIERS.to("xegpu"),
    WG_TO_SG.to("xegpu-sg"),
    CLEANUP.to("xegpu-sg", "removes duplicate index arithmetic and hoists it out of loops"),
)
"""From a workgroup's program to that of a subgroup."""

SUBGROUP: Sequence[Pass[XeUnit]] = (
    PAD.to("xegpu-sg"),
    BLOCKOP_FALLBACK.to("xegpu-sg"),
    SLM_LAYOUT.to("xegpu-sg"),
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

    return Pass(name, story, apply, requires=requires, machine=True)


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
    (EXPAND_OPS, check_limits(), *IMEX),
)


def entries(level: str) -> Sequence[Pass[XeUnit]]:
    """The passes that a program of a level still has before it."""
    if level == "workgroup":
        return (*WORKGROUP, *SUBGROUP)
    if level == "subgroup":
        return (*(e for e in WORKGROUP if level in e.requires), *SUBGROUP)
    return (OLDER_LANES,)


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
