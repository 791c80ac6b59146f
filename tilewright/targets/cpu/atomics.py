"""`xetile.atomic_rmw` -> one machine atomic per element, in row-major order, outside or masked off skipped; sums that a
thread has of its own (`private_sums`) without."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    i1,
)

from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu.evaluate import Evaluator, Position
from tilewright.targets.cpu.memory import Buffer, ScatteredTile, Tile, rows_cols
from tilewright.targets.cpu.private_sums import add_to_own


def emit_atomics(e: Evaluator, op: xt.AtomicRmwOp, old: Buffer | None, vector_bytes: int) -> None:
    """All elements of one atomic_rmw; `old` receives the values before, or the padding 0 where nothing was done."""
    tile = e.values.tile(op.tile)
    own = None if tile.base is None else e.values.sums.get(tile.base)
    if own is None:
        _one_by_one(e, op, tile, old)
        return
    e.b.choose(
        own.there,
        lambda: add_to_own(e, op, tile, own, vector_bytes),
        lambda: _one_by_one(e, op, tile, old),
    )


def _one_by_one(
    e: Evaluator, op: xt.AtomicRmwOp, tile: Tile | ScatteredTile, old: Buffer | None
) -> None:
    b = e.b
    rows, cols = rows_cols(op.value.type)
    with b.loop(0, rows, nonempty=True) as i, b.loop(0, cols, nonempty=True) as j, e.scope():
        place = Position(i.iv, j.iv)
        if isinstance(tile, ScatteredTile):
            offset, on = e.scattered(tile, op.mask, place)
            pointer = b.ptr(tile.pointer, offset)
        else:
            on = e.lanes_inside(tile, place)
            if op.mask is not None:
                on = b.both(on, e.at(op.mask, place))
            on = on if on is not None else b.constant(i1, 1)
            pointer = e.address(tile, place)
        value = e.at(op.value, place)
        (before,) = b.choose(
            on,
            lambda v=value, p=pointer: [b.value(mach.AtomicRmwOp(op.kind, v, p))],
            lambda v=value: [b.constant(v.type, 0)],
        )
        if old is not None:
            b.store(before, old.address(b, i.iv, j.iv))
