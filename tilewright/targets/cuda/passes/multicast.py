"""multicast: neighbouring programs that load the same tiles run in clusters of workgroups and share the copies.

    %b = xetile.load_tile %tb              // of program (x, y): at [%k, 256 * y]
    ->  %b = xetile.load_tile %tb {stage.multicast}, and the kernel gets {stage.cluster = 2, stage.cluster_axis = 0}

Requires: tiles placed where they are loaded. Guarantees: nothing is changed but attributes.

A load is shared along a grid axis when its place does not depend on that axis' program id (access analysis), and when
all programs along the axis come to it equally often: no loop around it has bounds that depend on the id, and no
condition stands around it. Of the two inner axes the one with more shared bytes is taken.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64

from tilewright.dialects import stage, xetile
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.memory_objects import memory_root
from tilewright.targets.cuda.passes.multi_buffering import buffered_loads, in_loop, part_of
from tilewright.targets.cuda.passes.wgmma_legality import shares_memory
from tilewright.uarch.base import Machine

SIZE = 2
"""Workgroups of a cluster: with two, each operand byte comes once from L2 for both."""

MULTICAST = "stage.multicast"
AXIS = "stage.cluster_axis"


def form_clusters(function: gpu.FuncOp, machine: Machine) -> bool:
    """Marks one kernel's shared loads; whether there are any."""
    if shares_memory(function) or any(isinstance(o, xetile.AtomicRmwOp) for o in function.walk()):
        return False  # a cluster's last workgroup may have no program, and must not act
    analysis = AccessAnalysis(function)
    loads = [
        load for load in buffered_loads(function, machine) if load.parent and in_loop(load.parent)
    ]
    best: tuple[int, int, list[xetile.LoadTileOp]] = (0, 0, [])
    for axis in (0, 1):
        shared = [load for load in loads if _is_shared(load, analysis, axis)]
        parts = [part_of(load.tile_type) for load in shared]
        size = sum(part.bytes for part in parts if part is not None)
        if size > best[0]:
            best = size, axis, shared
    if not best[2]:
        return False
    for load in best[2]:
        load.attributes[MULTICAST] = UnitAttr()
    function.attributes[stage.CLUSTER] = IntegerAttr(SIZE, i64)
    function.attributes[AXIS] = IntegerAttr(best[1], i64)
    return True


def cluster_axis(function: gpu.FuncOp) -> int:
    """The grid axis along which a cluster's programs are neighbours."""
    found = function.attributes.get(AXIS)
    return found.value.data if isinstance(found, IntegerAttr) else 0


def _is_shared(load: xetile.LoadTileOp, analysis: AccessAnalysis, axis: int) -> bool:
    access = analysis.find(load)
    part = part_of(load.tile_type)
    if access is None or part is None or access.conditional or pieces_of(part, SIZE) is None:
        return False
    symbol = analysis.program_id(axis)
    if axis not in analysis.used_axes or access.depends_on(symbol):
        return False
    for loop in access.loops:
        bounds = (loop.lower, loop.step, loop.trips)
        if any(b is None or symbol in b.atoms for b in bounds):
            return False
    return memory_root(access.base) is access.root


def pieces_of(part: stage.PartAttr, count: int) -> str | None:
    """How a part is cut into equal pieces: by lines; None if it is not."""
    lines, length = part.lines
    panels = length * part.itemsize // part.swizzle.data
    # Pieces of whole panels come out wrong in all workgroups but the first (seen on an H200): lines only.
    return "lines" if lines % (8 * count) == 0 and panels == 1 else None
