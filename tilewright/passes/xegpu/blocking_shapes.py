"""Blocking: ops that only rearrange elements, piece by piece.

Part of :mod:`tilewright.passes.xegpu.blocking`. What does not fall into pieces stays whole.
"""

from __future__ import annotations

from math import lcm

from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    VectorType,
)
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import positions_at_run_time, shape_of, static_position
from tilewright.dialects.upstream import vector as more
from tilewright.passes.xegpu.fragments import Free
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.ownership import box_of_insertion
from tilewright.passes.xegpu.pieces import Pieces, Shape, rule, starts
from tilewright.passes.xegpu.split import rearranged


def rearrange(d: Pieces, op: Operation, piece: Shape) -> None:
    """Piece by piece; what is one number everywhere stays that."""
    (source,), (result,) = op.operands, op.results
    held = d.grids[source]
    if isinstance(held, Free):
        d.grids[result] = held
        return
    rearranged(d, op, piece)


@rule("vector.broadcast")
def broadcast(d: Pieces, op: vector.BroadcastOp) -> None:
    if isinstance(op.source.type, VectorType):
        rearrange(d, op, d.owners.piece(op.vector))
    else:
        d.grids[op.vector] = Free(op.source.type, None, d.env[op.source])


@rule("vector.transpose")
def transpose(d: Pieces, op: more.TransposeOp) -> None:
    """Piece by piece where the source is dealt as the result is, else in tiles of whole pieces of both."""
    p = op.permutation
    piece, given = d.owners.piece(op.result), d.owners.piece(op.vector)
    if tuple(given[d] for d in p) != piece:
        tile = tuple(lcm(n, given[d]) for n, d in zip(piece, p, strict=True))
        shape = shape_of(op.result)
        if all(extent % n == 0 for extent, n in zip(shape, tile, strict=True)):
            piece = tile
    rearrange(d, op, piece)


@rule("vector.shape_cast")
def shape_cast(d: Pieces, op: more.ShapeCastOp) -> None:
    """Piece by piece where dimensions of extent 1 come and go, else as a whole."""
    before, after = shape_of(op.source), shape_of(op.result)
    single = [n for n in before if n != 1] == [n for n in after if n != 1]
    rearrange(d, op, d.owners.piece(op.result) if single else after)


@rule("vector.extract_strided_slice")
def extract_strided_slice(d: Pieces, op: more.ExtractStridedSliceOp) -> None:
    rearrange(d, op, d.owners.piece(op.result))


@rule("vector.extract")
def extract(d: Pieces, op: vector.ExtractOp) -> None:
    if positions_at_run_time(op):
        raise d.refuse("a position that is known at run time only")
    if isinstance(op.result.type, VectorType):
        rearrange(d, op, d.owners.piece(op.result))
        return
    held = d.grids[op.vector]
    if isinstance(held, Free):
        d.env[op.result] = d.element_at(d.splat(held, (1,)), [0])
        return
    position = static_position(op)
    index = tuple(p // n for p, n in zip(position, held.piece, strict=True))
    local = [p % n for p, n in zip(position, held.piece, strict=True)]
    d.env[op.result] = d.element_at(held.values[held.number(index)], local)


@rule("vector.bitcast")
def bitcast(d: Pieces, op: vector.BitcastOp) -> None:
    before, after = shape_of(op.source)[-1], shape_of(op.result)[-1]
    piece = d.owners.piece(op.result)
    last = piece[-1] * before
    if last % after or last < after:
        d.unruled(op)
        return
    part = (*piece[:-1], last // after)
    values = d.pieces(op.source, part)
    kind = d.typed(op.result, piece)
    made = [d.add(vector.BitcastOp(v, kind)) for v in values]
    d.give(op.result, piece, made)


@rule("vector.insert_strided_slice", "vector.insert")
def insert_strided_slice(d: Pieces, op: more.InsertStridedSliceOp | vector.InsertOp) -> None:
    """The destination with the source in a box of it, piece by piece."""
    result, source, dest = op.result, op.source, op.dest
    box = box_of_insertion(op)
    if box is None:
        raise d.refuse("a position that is known at run time only")
    offsets, size, lead = box
    if not isinstance(source.type, VectorType):
        d.grids[source] = Free(source.type, None, d.env[source])
    piece = d.owners.piece(result)
    made: list[SSAValue] = []
    for start in starts(shape_of(result), piece):
        low = [max(a, b) for a, b in zip(start, offsets, strict=True)]
        high = [min(a + p, b + n) for a, p, b, n in zip(start, piece, offsets, size, strict=True)]
        if any(a >= b for a, b in zip(low, high, strict=True)):
            made.append(d.box(dest, start, piece))
            continue
        extent = tuple(b - a for a, b in zip(low, high, strict=True))
        where = tuple(a - b for a, b in zip(low, offsets, strict=True))
        part = (
            d.cast(d.box(source, where[lead:], extent[lead:]), extent)
            if extent[lead:]
            else (d.splat(_free(d, source), extent))
        )
        if extent != piece:
            local = [a - b for a, b in zip(low, start, strict=True)]
            part = d.add(more.InsertStridedSliceOp(part, d.box(dest, start, piece), local))
        made.append(part)
    d.give(result, piece, made)


def _free(d: Pieces, value: SSAValue) -> Free:
    held = d.grids[value]
    assert isinstance(held, Free)
    return held


@rule("xegpu.convert_layout")
def convert_layout(d: Pieces, op: xegpu.ConvertLayoutOp) -> None:
    if not isinstance(op.source.type, VectorType):
        d.env[op.result] = d.env[op.source]
        return
    held = d.grids[op.source]
    if isinstance(held, Free):
        d.grids[op.result] = held
        return
    layout = d.owners.layout(op.result)
    target = lane_attribute(layout)
    values = d.pieces(op.source, layout.shape)
    if target is not None:
        values = [d.add(xegpu.ConvertLayoutOp(v, target)) for v in values]
    d.give(op.result, layout.shape, values)
