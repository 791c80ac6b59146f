"""rematerialize-tiles: a load's tile is made where it is loaded, from offsets alone.

    scf.for %k .. iter_args(%t = %t0) {                   scf.for %k .. iter_args(%t = %t0) {
      %v = xetile.load_tile %t                     ->       %u = xetile.init_tile %A[%m, %k]
      %t1 = xetile.update_tile_offset %t, [0, 64]           %v = xetile.load_tile %u
      scf.yield %t1 }                                       ... }

Requires: XeTile at workgroup level. Guarantees: the same accesses. Offsets that have no closed form (access analysis)
leave the load as it is. Tiles that loops of a counter then carry for nobody are carried no more.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xetile
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.loops import drop_unread
from tilewright.passes.materialise import Materialiser, NoValue


def rematerialize_tiles(function: gpu.FuncOp) -> int:
    """Rematerializes each tile, with its offsets, where it is loaded. Returns how many loads changed."""
    analysis = AccessAnalysis(function)
    changed = 0
    for op in list(function.walk()):
        if not isinstance(op, xetile.LoadTileOp) or isinstance(op.tile.owner, xetile.InitTileOp):
            continue
        access = analysis.find(op)
        if access is None or access.scattered:
            continue
        origin = access.origin
        materialiser = Materialiser(InsertPoint.before(op))
        needed = (origin.source, *origin.sizes, *origin.strides)
        if not all(materialiser.available(v) for v in needed):
            continue
        rank = len(origin.mixed_offsets)
        try:
            places = [materialiser.value(e) for e in access.offsets[-rank:]]
        except NoValue:
            continue
        tile = xetile.InitTileOp(
            origin.source,
            origin.tile_type,
            places,
            sizes=origin.mixed_sizes,
            strides=origin.mixed_strides,
        )
        materialiser.insert(tile)
        tile.result.name_hint = op.tile.name_hint
        op.operands[0] = tile.result
        changed += 1
    if changed:
        drop_unread(function)
    return changed
