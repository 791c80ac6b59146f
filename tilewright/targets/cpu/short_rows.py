"""A fused group that only stores short rows: masks of a row's few vectors are the same for all rows, and made once.

    for row in those that the matrix has:
      the row's vectors, one after the other, each with its mask

A loop along such a row, and whether the row goes past the caches, would take longer than the row: that is asked once,
of the group, and where it does, rows are stored as longer ones are (`streaming`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tilewright.codegen.tiles import Tile, rows_cols
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.reductions import power_of_two
from tilewright.targets.cpu.streaming import streamed_tile, streams

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter
    from tilewright.targets.cpu.fused_plan import FusedPlan

VECTORS = 4
"""Of a short row at most."""


def short_tile(s: FusedEmitter, plan: FusedPlan) -> Tile | None:
    """The tile that such a group stores to; None: it is another."""
    if len(plan.roots) != 1 or plan.levels != 1:
        return None
    (root,) = plan.roots
    width = rows_cols(root.value.type)[1]
    if root.kind != "store" or not isinstance(root.op, xt.StoreTileOp) or root.op.mask is not None:
        return None
    tile = s.e.values.tile(root.op.tile)
    if not isinstance(tile, Tile) or tile.strides[1] != 1:
        return None
    lanes = min(s.lanes([root]), power_of_two(width))
    short = 1 < width <= VECTORS * lanes and all(s.b.is_nonnegative(o) for o in tile.offsets)
    other = any(s.moved_about([root], width)) or any(s.gathered([root], 0, width))
    return tile if short and not other and s.tiles_read([root]) == [] else None


def emit_short(s: FusedEmitter, plan: FusedPlan, tile: Tile, step: int) -> None:
    """The group that stores to it; `step`: rows that run together where it streams."""
    (root,) = plan.roots
    width = rows_cols(root.value.type)[1]
    lanes = min(s.lanes([root]), power_of_two(width))
    b, e = s.b, s.e

    def rows() -> None:
        masks: list[tuple[int, SSAValue | None]] = []
        for col in range(0, width, lanes):
            inside = e.lanes_inside(tile, Position(0, col, 1, lanes, there=True))
            masks.append((col, b.both(inside, b.mask_first(width - col, lanes))))
        with b.loop(0, s.last_row(plan)) as loop, e.scope():
            s.hoist([root], loop.iv, lanes)
            for col, mask in masks:
                place = Position(loop.iv, col, 1, lanes)
                register = e.in_order(root.value, place)
                e.store(register, tile, replace(place, inside=True), mask)

    if streamed_tile(s, [root], width, lanes) is None:
        rows()
        return
    b.choose(streams(s, tile, 0), lambda: s.by_blocks(plan, step), rows)
