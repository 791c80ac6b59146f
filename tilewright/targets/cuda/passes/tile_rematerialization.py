"""rematerialize-tiles: a load's offsets are computed where it is loaded, from counters and program ids alone.

    scf.for %n .. iter_args(%k = %c0) {                   scf.for %n .. {
      %t = xetile.init_tile %A[%m, %k]                      %k = arith.muli %n, %c64
      %v = xetile.load_tile %t                     ->       %t = xetile.init_tile %A[%m, %k]
      %k1 = arith.addi %k, %c64                             %v = xetile.load_tile %t
      scf.yield %k1 }                                       ... }

Requires: XeTile at workgroup level, tiles that no loop carries (carry-offsets). Guarantees: the same accesses. Offsets
that have no closed form (access analysis) leave the load as it is. What loops of a counter then carry for nobody is
carried no more.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xetile
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.carried import given_by, operands_of, reached
from tilewright.passes.loops import drop_unread
from tilewright.passes.materialise import Materialiser, NoValue


def rematerialize_tiles(function: gpu.FuncOp) -> int:
    """Rematerializes each tile, with its offsets, where it is loaded. Returns how many loads changed."""
    analysis = AccessAnalysis(function)
    changed = 0
    for op in list(function.walk()):
        access = analysis.find(op) if isinstance(op, xetile.LoadTileOp) else None
        if access is None or access.scattered or not _is_carried(access.origin):
            continue
        materialiser = Materialiser(InsertPoint.before(op))
        try:
            op.operands[0] = materialiser.tile(access.origin, access.offsets)
        except NoValue:
            continue
        changed += 1
    if changed:
        drop_unread(function)
    return changed


def _is_carried(tile: xetile.InitTileOp) -> bool:
    """Do its offsets come of what a loop carries?"""
    return any(map(given_by, reached(tile.offsets, operands_of)))
