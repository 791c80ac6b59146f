"""Streaming stores: rows of a large result go to memory past the caches.

A normal store reads its line first, a third of the traffic of a kernel that only streams. Stores that bypass the cache
need whole aligned lines, and hurt when the result is small enough to be found in the cache again. So the choice is made
at run time, per fused group: the result's matrix is at least `STREAM_BYTES` large, together with what the launch reads
again and again, operands of products. The row then runs as

    [0, head)    one masked vector, up to the first aligned element
    [head, main) aligned vectors past the cache
    [main, end)  as where it does not stream: there, head and main are 0

Only levels that do nothing but store one result take part, and rows that start with a line or have `MIN_BYTES`: two
rows that share a line write it in parts, and so read it first. Nor is a row taken from behind its head where elements
are rearranged in blocks, which would be put together one by one there. The stores of a row of several levels wait for
memory while no other level computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.codegen.builder import Idx, index
from tilewright.codegen.tiles import Tile, element_of, itemsize
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu import moves
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.machine import MIN_BYTES, STREAM_BYTES
from tilewright.targets.cpu.sweeps import LINE, Ahead, main_part

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter
    from tilewright.targets.cpu.fused_plan import Root


def streamed_tile(
    s: FusedEmitter, roots: Sequence[Root], width: int, lanes: int, tile: Tile | None = None
) -> Tile | None:
    """The tile that a level may stream to, or None; `tile`: where it is seen as another than it is stored to."""
    store = roots[0].op
    if len(roots) != 1 or not isinstance(store, xt.StoreTileOp) or store.mask is not None:
        return None
    tile = tile or s.e.values.tile(store.tile)  # pyright: ignore
    if not isinstance(tile, Tile) or tile.strides[1] != 1:
        return None
    if s.current.levels > 1 and width * itemsize(tile.element) < MIN_BYTES[1]:
        return None
    if s.current.levels > 1 and not starts_anywhere(s, roots):
        return None
    base = tile.base
    if not isinstance(base, BlockArgument) or not isinstance(base.type, MemRefType):
        return None
    if lanes * itemsize(tile.element) % LINE or base in s.loaded:
        return None
    return tile if element_of(roots[0].value.type) == tile.element else None


def starts_anywhere(s: FusedEmitter, roots: Sequence[Root]) -> bool:
    """May the vectors of a row begin at any column?"""
    reached = (v.owner for v in s.reached(roots) if v not in s.e.values.buffers)
    return all(moves.starts_anywhere(op) for op in reached if isinstance(op, Operation))


def phase_of(s: FusedEmitter, tile: Tile, row: Idx) -> Idx:
    """Bytes from the start of a cache line to that of a row."""
    pointer = s.e.address(tile, Position(row, 0))
    return s.b.rem(s.b.value(mach.IntFromPtrOp(pointer, index)), LINE)


def streams(s: FusedEmitter, tile: Tile, row: Idx) -> SSAValue:
    """Is the tile's matrix large, and does a row start with a whole element?"""
    b = s.b
    size = itemsize(tile.element)
    bytes = b.times(b.times(tile.extents[0], tile.strides[0]), size)
    large = b.cmp("sge", b.plus(bytes, s.operand_bytes), STREAM_BYTES)
    found = b.both(large, b.cmp("eq", b.rem(phase_of(s, tile, row), size), 0))
    assert found is not None
    return found


def past_caches(
    s: FusedEmitter, root: Root, tile: Tile, row: Idx, width: int, end: Idx, lanes: int
) -> tuple[SSAValue, Idx]:
    """Does a row go past the caches, as far as `end`, and from which element on?"""
    b, size = s.b, itemsize(tile.element)
    past, phase = streams(s, tile, row), phase_of(s, tile, row)
    whole = b.cmp("eq", phase, 0)
    cut = width * size >= MIN_BYTES[0] and starts_anywhere(s, [root])
    if cut:
        whole = b.either(b.cmp("sge", b.times(end, size), MIN_BYTES[0]), whole)
    past = b.both(past, whole)
    assert past is not None
    if not cut:
        return past, 0
    return past, b.select(past, b.rem(b.div(b.minus(LINE, phase), size), lanes), 0)


def emit_streamed(
    s: FusedEmitter, root: Root, tile: Tile, row: Idx, width: int, lanes: int, ahead: Ahead
) -> None:
    """One row: its whole lines past the cache where it streams, the rest as any row."""
    b, e = s.b, s.e
    end = s.main_end([root], row, width)
    past, head = past_caches(s, root, tile, row, width, end, lanes)
    if head != 0:
        with b.when(b.cmp("ne", head, 0)), e.scope():
            s.finish(root, Position(row, 0, 1, lanes), b.mask_first(head, lanes))
    sweep = s.sweep_of([root], row, lanes, [each for each in ahead if not each[2]], tile)
    sweep.reads = [t for t in s.tiles_read([root]) if t.strides[1] == 1]
    main = b.plus(head, b.times(b.div(b.max(b.minus(end, head), 0), sweep.step), sweep.step))
    main = b.select(past, main, 0)
    main_part(s, [sweep], head, main)
    s.sweep([root], row, width, lanes, ahead, main)
