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

from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import BlockArgument

from tilewright.codegen.builder import Idx, index
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.memory import Tile, element_of, itemsize

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter
    from tilewright.targets.cpu.fused_plan import Root

STREAM_BYTES = 16 << 20
"""Results of this size and more do not stay in a core's share of the caches."""
MIN_BYTES = 2 << 10, 8 << 10
"""Of a row of a fused group of one level, and of one of several."""
READ_AHEAD = 2048
"""Bytes. Stores past the cache hold buffers between core and memory: too few loads are under way by themselves."""
LINE = 64


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


def emit_streamed(
    s: FusedEmitter,
    root: Root,
    tile: Tile,
    row: Idx,
    width: int,
    lanes: int,
    ahead: list[tuple[Tile, int, bool]],
) -> None:
    """One row, past the cache or not."""
    b, e = s.b, s.e
    size = itemsize(tile.element)
    pointer = e.address(tile, Position(row, 0))
    phase = b.rem(b.value(mach.IntFromPtrOp(pointer, index)), LINE)
    large = b.cmp("sge", b.times(b.times(tile.extents[0], tile.strides[0]), size), STREAM_BYTES)
    large = b.both(large, b.cmp("eq", b.rem(phase, size), 0))
    assert large is not None

    def past() -> None:
        with e.scope():
            _past_cache(s, root, tile, row, width, lanes, phase, ahead)

    def normal() -> None:
        with e.scope():
            s.sweep([root], row, width, lanes, ahead)

    b.choose(large, past, normal)


def _past_cache(
    s: FusedEmitter,
    root: Root,
    tile: Tile,
    row: Idx,
    width: int,
    lanes: int,
    phase: Idx,
    ahead: list[tuple[Tile, int, bool]],
) -> None:
    b, e = s.b, s.e
    size = itemsize(tile.element)
    head = b.rem(b.div(b.minus(LINE, phase), size), lanes)
    end = s.main_end([root], row, width)
    with e.scope():
        s.finish(root, Position(row, 0, 1, lanes), b.mask_first(head, lanes))
    unroll = max(1, 2 * s.vector_bytes // (4 * lanes))
    step = lanes * unroll
    reads = [t for t in s.tiles_read([root]) if t.strides[1] == 1]
    main = b.plus(head, b.times(b.div(b.max(b.minus(end, head), 0), step), step))
    with b.loop(head, main, step) as loop, e.scope():
        for u in range(unroll):
            place = Position(row, b.plus(loop.iv, u * lanes), 1, lanes, True)
            s.prefetch(ahead, place)
            for source in reads:
                later = replace(
                    place, col=b.plus(place.col, READ_AHEAD // itemsize(source.element))
                )
                b.prefetch(e.address(source, later))
            value, target = e.at(root.value, place), e.address(tile, place)
            b.op(mach.StoreOp(value, target, alignment=LINE, nontemporal=True))
    with b.loop(main, width, lanes) as loop, e.scope():
        place = Position(row, loop.iv, 1, lanes)
        s.finish(root, place, b.mask_first(b.minus(width, loop.iv), lanes))
