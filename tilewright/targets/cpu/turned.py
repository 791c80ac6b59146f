"""What a fused group reads along the other dimension of its arrays, or stores along it: in blocks, transposed in
registers.

    store_tile (transpose (load_tile %X)), %Y       for each block of 16 x 16:
                                                      16 registers, each a part of a row of %X
                                                ->    transposed
                                                      16 registers, each a part of a row of %Y

Elements of a column lie in as many lines of memory. Where rows are a large power of two of bytes apart, these lines
share a few sets of every cache, and each is fetched again for each of its elements. A block reads whole lines, or parts
of them, and writes whole lines; past the caches where `streaming.py` says so, for the lines that are written collide
likewise. Blocks follow one another along the lines that are written, strip by strip of these: what is read of a line is
whole lines of memory, and what is written are few pages at a time.

    for strip of lines:
      for elements of them, as many as a block has:
        for block of the strip

Requires: a group of one level whose roots are stores without masks or values to keep, and that writes no array which it
reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, VectorType, i1
from xdsl.ir import OpResult, SSAValue

from tilewright.codegen.builder import Idx, lane_type
from tilewright.codegen.tiles import Tile, element_of, itemsize, rows_cols
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import ELEMENTS, numbered
from tilewright.frozen import frozen
from tilewright.targets.cpu.evaluate import Evaluator, Position, TurnedBlock
from tilewright.targets.cpu.fused_plan import FusedPlan, Root
from tilewright.targets.cpu.panels import UNIT, columns
from tilewright.targets.cpu.reductions import power_of_two
from tilewright.targets.cpu.streaming import past_caches, streamed_tile
from tilewright.targets.cpu.sweeps import LINE

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter

REGISTERS = 16
"""Of a block: machines have as many, or twice as many."""
Ways = Mapping[SSAValue, set[bool]]
"""Values that roots are computed from, and whether their rows are the roots' (False) or the roots' columns."""


@frozen
class Blocks:
    """How a group runs in blocks."""

    roots: Sequence[Root]
    ways: Ways
    axis: int
    """Along which the lines of the results run: 1, or 0 where these are stored to arrays whose columns are lines."""
    extents: tuple[int, int]
    """Of the results: their number of lines, and elements of each."""
    lines: int
    """Of the results, in a block."""
    lanes: int
    """Elements of a line in a block."""
    strip: int
    """Of the results' lines, whose blocks follow one another."""


def _ways(s: FusedEmitter, roots: Sequence[Root]) -> Ways:
    found: dict[SSAValue, set[bool]] = {}
    waiting = [(root.value, False) for root in roots]
    while waiting:
        value, turned = waiting.pop()
        value = s.e.values.real(value)
        if not isinstance(value.type, VectorType) or turned in found.setdefault(value, set()):
            continue
        found[value].add(turned)
        if value in s.e.values.buffers or not isinstance(value, OpResult):
            continue
        if value.op.name in ELEMENTS and len(value.op.operands) == 1:
            turned ^= _transposes(value)
        waiting += [(v, turned) for v in s.inputs(value.op)]
    return found


def _transposes(value: OpResult) -> bool:
    """Are its rows the columns of the operand?"""
    rows, cols = rows_cols(value.type)
    numbers = numbered(value.op)[value.index].reshape(rows, cols)
    return min(rows, cols) > 1 and np.array_equal(
        numbers, np.arange(rows * cols).reshape(cols, rows).T
    )


def _loaded(s: FusedEmitter, ways: Ways) -> list[tuple[Tile, bool, tuple[int, int]]]:
    """Tiles that are loaded, whether their rows are the roots' columns, and how many rows and columns are read."""
    found: list[tuple[Tile, bool, tuple[int, int]]] = []
    for value, asked in ways.items():
        if value in s.e.values.buffers or not isinstance(value, OpResult):
            continue
        if isinstance(value.op, xt.LoadTileOp):
            tile = s.e.values.tile(value.op.tile)
            assert isinstance(tile, Tile)
            found += [(tile, turned, rows_cols(value.type)) for turned in asked]
    return found


def _turned(tile: Tile) -> Tile:
    """The same elements, rows as columns."""
    return replace(
        tile,
        offsets=tile.offsets[::-1],
        extents=tile.extents[::-1],
        strides=tile.strides[::-1],
        shape=tile.shape[::-1],
        next=None,
    )


def _stored(s: FusedEmitter, root: Root, axis: int) -> Tile | None:
    """The tile that a root is stored to, whose rows are lines."""
    if not isinstance(root.op, xt.StoreTileOp):
        return None
    tile = s.e.values.tile(root.op.tile)
    assert isinstance(tile, Tile)
    return tile if axis == 1 else _turned(tile)


def blocks_of(s: FusedEmitter, plan: FusedPlan) -> Blocks | None:
    """How a group runs in blocks; None where it needs none, or cannot."""
    roots = plan.roots
    shapes = {rows_cols(root.value.type) for root in roots}
    if plan.levels > 1 or len(shapes) != 1 or s.loaded & s.written or s.in_place:
        return None
    (shape,) = shapes
    if min(shape) < 2 or shape[0] != plan.rows:
        return None
    axes: set[int] = set()
    for root in roots:
        if root.kind == "keep":
            axes.add(1)
            continue
        if not isinstance(root.op, xt.StoreTileOp) or root.op.mask is not None:
            return None
        strides = s.e.values.tile(root.op.tile).strides  # pyright: ignore
        if 1 not in strides:
            return None
        axes.add(1 if strides[1] == 1 else 0)
    if len(axes) != 1:
        return None
    (axis,) = axes
    ways = _ways(s, roots)
    if any(isinstance(v, OpResult) and isinstance(v.op, xt.LoadGatherOp) for v in ways):
        return None
    turned = [
        itemsize(tile.element)
        for tile, flipped, _ in _loaded(s, ways)
        if tile.strides[axis ^ flipped] != 1 and tile.strides[1 ^ axis ^ flipped] == 1
        and tile.element != IntegerType(1)
    ]  # fmt: skip
    if not turned:
        return None
    extents = shape if axis == 1 else (shape[1], shape[0])
    size = min(itemsize(element_of(root.value.type)) for root in roots)
    lanes = min(max(s.lanes(roots), LINE // size), power_of_two(extents[1]))
    lines = max(REGISTERS * s.vector_bytes // (lanes * max(turned)), UNIT // min(turned))
    while lines > lanes or extents[0] % lines:
        lines //= 2
    if lines * min(turned) < UNIT:
        return None
    strip = max(2 * lines, -(-LINE // (lines * min(turned))) * lines)
    return Blocks(roots, ways, axis, extents, lines, lanes, strip)


def _inside(s: FusedEmitter, blocks: Blocks) -> tuple[Idx, Idx]:
    """Lines from 0 on, and elements of each, that lie in every matrix (may be negative)."""
    b = s.b
    end: list[Idx] = [*blocks.extents]
    across, along = 1 - blocks.axis, blocks.axis
    tiles = _loaded(s, blocks.ways)
    for root in blocks.roots:
        if isinstance(root.op, xt.StoreTileOp):
            tile = s.e.values.tile(root.op.tile)
            assert isinstance(tile, Tile)
            tiles.append((tile, False, rows_cols(root.value.type)))
    for tile, flipped, shape in tiles:
        for k, axis in enumerate((across ^ flipped, along ^ flipped)):
            limit = tile.limit(b, axis)
            if shape[axis] == 1:  # it is repeated
                limit = b.select(b.cmp("sgt", limit, 0), end[k], 0)
            if not b.is_nonnegative(tile.offsets[axis]):
                limit = b.select(b.cmp("sge", tile.offsets[axis], 0), limit, 0)
            end[k] = b.min(end[k], limit)
    return end[0], end[1]


def _kept(s: FusedEmitter, blocks: Blocks) -> tuple[Idx, Idx]:
    """Lines, and elements of each, behind which nothing leaves a trace."""
    b, found = s.b, blocks.extents
    stores = [_stored(s, root, blocks.axis) for root in blocks.roots]
    ends: list[Idx] = [0, 0]
    for tile in stores:
        for axis, extent in enumerate(found):
            limit = extent if tile is None else b.min(extent, tile.limit(b, axis))
            ends[axis] = b.max(ends[axis], limit)
    return ends[0], ends[1]


def emit_turned(s: FusedEmitter, blocks: Blocks) -> None:
    """All blocks: those without masks first, then what is left at the edges."""
    b, e, lines, lanes = s.b, s.e, blocks.lines, blocks.lanes
    width = blocks.extents[1]
    inside, end = _inside(s, blocks)
    inside = b.times(b.div(b.max(inside, 0), lines), lines)
    root, head, past = blocks.roots[0], 0, b.constant(i1, 0)
    tile = _stored(s, root, blocks.axis)
    if tile is not None and s.streaming and streamed_tile(s, blocks.roots, width, lanes, tile):
        # All lines must begin as the first one does.
        step = b.times(tile.strides[0], itemsize(tile.element))
        past, head = past_caches(s, root, tile, 0, width, end, lanes)
        alike = b.cmp("eq", b.rem(step, LINE), 0)
        past, head = b.both(past, alike), b.select(alike, head, 0)
        assert past is not None
    main = b.plus(head, b.times(b.div(b.max(b.minus(end, head), 0), lanes), lanes))

    with b.loop(0, inside, blocks.strip) as strip, b.loop(head, main, lanes) as along:
        behind = b.min(inside, b.plus(strip.iv, blocks.strip))
        with b.loop(strip.iv, behind, lines) as across, e.scope():
            _block(s, blocks, across.iv, along.iv, None, past)
    last, width = _kept(s, blocks)
    with b.loop(0, last, lines) as across:
        done = b.cmp("slt", across.iv, inside)
        before = b.select(done, head, 0)
        further = b.select(b.cmp("sgt", before, 0), lanes, 0)
        with b.loop(b.select(done, main, 0), b.plus(width, further), lanes) as along, e.scope():
            # What lies before the main part comes last.
            again = b.cmp("sge", along.iv, width)
            start = b.select(again, 0, along.iv) if head != 0 else along.iv
            left = b.minus(width, start)
            left = b.select(again, before, left) if head != 0 else left
            _block(s, blocks, across.iv, start, left, b.constant(i1, 0))


def _block(
    s: FusedEmitter, blocks: Blocks, across: Idx, along: Idx, left: Idx | None, past: SSAValue
) -> None:
    """One block; `left`: of so many elements of each line, as far as these lie in the matrices; None is all. `past`: do
    they go past the caches?"""
    b, e, lanes = s.b, s.e, blocks.lanes
    lines = [b.plus(across, i) for i in range(blocks.lines)]
    inside = left is None
    mask = None if left is None else b.mask_first(left, lanes)
    e.block = TurnedBlock(lines, along, lanes, inside)
    made: list[list[SSAValue]] = []
    for root in blocks.roots:
        at = [(line, along) if blocks.axis else (along, line) for line in lines]
        places = [Position(row, col, blocks.axis, lanes, inside) for row, col in at]
        made.append([e.at(root.value, place) for place in places])
    e.block = None

    def near() -> None:
        for root, registers in zip(blocks.roots, made, strict=True):
            tile = _stored(s, root, blocks.axis)
            for line, register in zip(lines, registers, strict=True):
                if tile is not None:
                    e.store(register, tile, Position(line, along, 1, lanes, inside), mask)
                    continue
                assert root.buffer is not None
                pointer = root.buffer.address(b, line, along)
                if mask is None:
                    b.store(register, pointer)
                else:
                    b.op(mach.MaskedStoreOp(register, pointer, mask))

    def far() -> None:
        tile = _stored(s, blocks.roots[0], blocks.axis)
        assert tile is not None
        for line, register in zip(lines, made[0], strict=True):
            target = e.address(tile, Position(line, along))
            b.op(mach.StoreOp(register, target, alignment=LINE, nontemporal=True))

    b.choose(past, far, near)


def read_block(
    e: Evaluator,
    value: SSAValue,
    tile: Tile,
    place: Position,
    padding: int | float,
) -> SSAValue | None:
    """The register at a place whose elements lie in as many lines, of a block's first line; those of the others are
    remembered. None where the place is no block's."""
    block, b = e.block, e.b
    if block is None or place.lanes != block.lanes:
        return None
    number, along = (place.row, place.col) if place.axis == 1 else (place.col, place.row)
    if number is not block.lines[0] or along is not block.along:
        return None
    lines, size = len(block.lines), itemsize(tile.element)
    if tile.strides[place.axis] == 1 or tile.strides[1 - place.axis] != 1 or lines * size < UNIT:
        return None
    bits = lane_type(IntegerType(8 * size), lines)
    rows: list[SSAValue] = []
    for i in range(block.lanes):
        further = b.plus(along, i)
        at = (number, further) if place.axis == 1 else (further, number)
        part = e.load(tile, Position(*at, 1 - place.axis, lines, block.inside), padding)
        rows.append(b.value(arith.BitcastOp(part, bits)))
    kind = lane_type(tile.element, block.lanes)
    made = [b.value(arith.BitcastOp(column, kind)) for column in columns(b, rows)]
    for line, register in zip(block.lines, made, strict=True):
        other = replace(place, row=line) if place.axis == 1 else replace(place, col=line)
        e.remember(value, other, register)
    return made[0]
