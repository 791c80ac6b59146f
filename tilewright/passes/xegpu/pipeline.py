"""The passes that lower a workgroup's XeGPU to lanes, in the order in which they run.

Every stage is text that the reference executor runs; `tilewright check --target xe-pvc` does. A stage's name
is what `--emit` calls the program behind its last pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from tilewright.passes.cleanup import cleanup
from tilewright.passes.late_broadcasts import LateBroadcasts
from tilewright.passes.outer_loops_to_grid import OuterLoopsToGrid
from tilewright.passes.views import FoldViews
from tilewright.passes.xegpu.blocking import XeGPUBlocking
from tilewright.passes.xegpu.blockop_fallback import XeGPUBlockOpFallback
from tilewright.passes.xegpu.booleans import XeGPUBytesOfBooleans
from tilewright.passes.xegpu.exchange_slm import XeGPUExchangeThroughSlm
from tilewright.passes.xegpu.from_xetile import XeTileToXeGPU
from tilewright.passes.xegpu.modernize import XeGPUModernize
from tilewright.passes.xegpu.one_induction import XeGPUOneInduction
from tilewright.passes.xegpu.place_barriers import XeGPUPlaceBarriers
from tilewright.passes.xegpu.propagate_layout import XeGPUPropagateLayout
from tilewright.passes.xegpu.slm_layout import XeGPUSlmLayout
from tilewright.passes.xegpu.subgroup_distribute import XeGPUSubgroupDistribute
from tilewright.passes.xegpu.wg_to_sg import XeGPUWgToSgDistribute

Observer = Callable[[str, ModuleOp], None]


@dataclass(frozen=True)
class Entry:
    """One pass: what it is for, and the stage whose text stands behind it."""

    make: Callable[[str], ModulePass]
    """The pass for a machine (`pvc`, `bmg`, `dg2`)."""
    story: str
    stage: str


@dataclass(frozen=True)
class Cleanup(ModulePass):
    """Dead code, common subexpressions, loop-invariant scalars (tilewright.passes.cleanup)."""

    name = "cleanup"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in [f for f in op.walk() if isinstance(f, gpu.FuncOp)]:
            if len(kernel.body.blocks) == 1:
                cleanup(kernel)


WORKGROUP: Sequence[Entry] = (
    Entry(lambda _: OuterLoopsToGrid(), "independent outer loops become the grid", "xetile"),
    Entry(lambda _: FoldViews(), "tiles of parts of arrays become tiles of the arrays", "xetile"),
    Entry(lambda _: XeTileToXeGPU(), "XeTile becomes XeGPU, op by op", "xegpu"),
    Entry(lambda _: XeGPUModernize(), "older text in today's form: offsets on memory ops", "xegpu"),
    Entry(lambda _: XeGPUBytesOfBooleans(), "arrays of truth values hold bytes", "xegpu"),
    Entry(lambda _: XeGPUOneInduction(), "what marches in step is carried once", "xegpu"),
    Entry(lambda _: LateBroadcasts(), "masks are rows and columns while they can be", "xegpu"),
    Entry(lambda _: Cleanup(), "what nobody uses is not dealt out", "xegpu"),
    Entry(
        lambda chip: XeGPUPropagateLayout("subgroup", chip),
        "every value learns which subgroup owns what",
        "xegpu",
    ),
    Entry(
        lambda chip: XeGPUExchangeThroughSlm(chip),
        "what crosses subgroups goes through shared memory",
        "xegpu",
    ),
    Entry(lambda _: XeGPUPlaceBarriers(), "program order of memory, by barriers", "xegpu"),
    Entry(
        lambda chip: XeGPUWgToSgDistribute(chip),
        "one subgroup's program, values in pieces",
        "xegpu-sg",
    ),
    Entry(lambda _: Cleanup(), "index arithmetic said once, in front of the loops", "xegpu-sg"),
)
"""From a workgroup's program to that of a subgroup."""

SUBGROUP: Sequence[Entry] = (
    Entry(
        lambda chip: XeGPUBlockOpFallback(chip),
        "block ops that no 2D block message reaches are found",
        "xegpu-sg",
    ),
    Entry(
        lambda chip: XeGPUSlmLayout(chip),
        "shared matrices lie so that a lane's registers lie side by side",
        "xegpu-sg",
    ),
    Entry(
        lambda chip: XeGPUPropagateLayout("inst", chip),
        "every value learns the size of its instructions",
        "xegpu-sg",
    ),
    Entry(
        lambda chip: XeGPUBlocking(chip), "every op has the size of an instruction", "xegpu-inst"
    ),
    Entry(lambda _: Cleanup(), "descriptors and offsets said once", "xegpu-inst"),
    Entry(
        lambda chip: XeGPUPropagateLayout("lane", chip),
        "every piece learns which lane owns what",
        "xegpu-inst",
    ),
    Entry(
        lambda chip: XeGPUSubgroupDistribute(chip),
        "one lane's program: fragments, shuffles",
        "xegpu-lane",
    ),
    Entry(lambda _: Cleanup(), "lane arithmetic said once, in front of the loops", "xegpu-lane"),
)
"""From a subgroup's program to that of a lane."""


def lower(
    module: ModuleOp,
    context: Context,
    chip: str = "pvc",
    observe: Observer = lambda name, module: None,
    entries: Sequence[Entry] = (*WORKGROUP, *SUBGROUP),
) -> None:
    """Runs the passes on a module, in place; `observe` is told of each."""
    for entry in entries:
        each = entry.make(chip)
        each.apply(context, module)
        observe(each.name, module)
