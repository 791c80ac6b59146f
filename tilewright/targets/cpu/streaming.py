"""Streaming stores: rows of a large result go to memory past the caches.

A normal store reads its line first, a third of the traffic of a kernel that only streams. Stores that bypass the cache
need whole aligned lines, and hurt when the result is small enough to be found in the cache again. So the choice is made
at run time, per fused group: the result's matrix is at least `STREAM_BYTES` large. The row then runs as

    [0, head)    one masked vector, up to the first aligned element
    [head, main) aligned vectors past the cache
    [main, end)  masked vectors

Only rows of at least `MIN_BYTES` take part, in levels that do nothing but store one result. Two rows share a line,
which is written in parts and so read first, and the stores of a row wait for memory while no other level computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import BlockArgument, SSAValue

from tilewright.codegen.builder import Idx, index
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.memory import Tile, element_of, itemsize
from tilewright.targets.cpu.sweeps import LINE, Ahead, main_part

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter
    from tilewright.targets.cpu.fused_plan import Root

STREAM_BYTES = 16 << 20
"""Results of this size and more do not stay in a core's share of the caches."""
MIN_BYTES = 2 << 10, 8 << 10
"""Of a row of a fused group of one level, and of one of several."""


def streamed_tile(s: FusedEmitter, roots: list[Root], width: int, lanes: int) -> Tile | None:
    """The tile that a level may stream to, or None."""
    store = roots[0].op
    if len(roots) != 1 or not isinstance(store, xt.StoreTileOp) or store.mask is not None:
        return None
    tile = s.e.values.tiles[s.e.values.real(store.tile)]
    if not isinstance(tile, Tile) or tile.strides[1] != 1:
        return None
    if width * itemsize(tile.element) < MIN_BYTES[s.current.levels > 1]:
        return None
    base = tile.base
    if not isinstance(base, BlockArgument) or not isinstance(base.type, MemRefType):
        return None
    if lanes * itemsize(tile.element) % LINE or base in s.loaded:
        return None
    return tile if element_of(roots[0].value.type) == tile.element else None


def phase_of(s: FusedEmitter, tile: Tile, row: Idx) -> Idx:
    """Bytes from the start of a cache line to that of a row."""
    pointer = s.e.address(tile, Position(row, 0))
    return s.b.rem(s.b.value(mach.IntFromPtrOp(pointer, index)), LINE)


def streams(s: FusedEmitter, tile: Tile, row: Idx) -> SSAValue:
    """Is the tile's matrix large, and does a row start with a whole element?"""
    b = s.b
    size = itemsize(tile.element)
    large = b.cmp("sge", b.times(b.times(tile.extents[0], tile.strides[0]), size), STREAM_BYTES)
    found = b.both(large, b.cmp("eq", b.rem(phase_of(s, tile, row), size), 0))
    assert found is not None
    return found


def emit_streamed(
    s: FusedEmitter, root: Root, tile: Tile, row: Idx, width: int, lanes: int, ahead: Ahead
) -> None:
    """One row, past the cache or not."""
    b, e = s.b, s.e
    phase = phase_of(s, tile, row)

    def past() -> None:
        with e.scope():
            _past_cache(s, root, tile, row, width, lanes, phase, ahead)

    def normal() -> None:
        with e.scope():
            s.sweep([root], row, width, lanes, ahead)

    b.choose(streams(s, tile, row), past, normal)


def _past_cache(
    s: FusedEmitter,
    root: Root,
    tile: Tile,
    row: Idx,
    width: int,
    lanes: int,
    phase: Idx,
    ahead: Ahead,
) -> None:
    b, e = s.b, s.e
    head = b.rem(b.div(b.minus(LINE, phase), itemsize(tile.element)), lanes)
    end = s.main_end([root], row, width)
    with e.scope():
        s.finish(root, Position(row, 0, 1, lanes), b.mask_first(head, lanes))
    sweep = s.sweep_of([root], row, lanes, ahead, tile)
    sweep.reads = [t for t in s.tiles_read([root]) if t.strides[1] == 1]
    main = b.plus(head, b.times(b.div(b.max(b.minus(end, head), 0), sweep.step), sweep.step))
    main_part(s, [sweep], head, main)
    with b.loop(main, width, lanes) as loop, e.scope():
        place = Position(row, loop.iv, 1, lanes)
        s.finish(root, place, b.mask_first(b.minus(width, loop.iv), lanes))
