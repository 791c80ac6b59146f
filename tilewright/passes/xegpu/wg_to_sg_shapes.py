"""xegpu-wg-to-sg-distribute, ops that change shapes: broadcast, transpose, shape_cast, slices, bitcast.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. Each is local: the operand's layout is the one that
gives every subgroup what its part of the result is made of.
"""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import (
    ExtractStridedSliceOp,
    InsertStridedSliceOp,
    ShapeCastOp,
    TransposeOp,
)
from tilewright.layout import Bound
from tilewright.passes.emit import with_shape
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.layout_relations import operand_map
from tilewright.passes.xegpu.split import local
from tilewright.passes.xegpu.wg_to_sg import Distributor, rule


@rule("vector.broadcast")
def broadcast(to: Distributor, op: vector.BroadcastOp) -> None:
    result = op.results[0]
    source = op.operands[0]
    d, shape = to.cut_of(op.results[0]), own.shape_of(result)
    kind = to.typed(result, d)
    if not isinstance(source.type, VectorType):
        new = vector.BroadcastOp(to.same(source), kind)
        made = to.add(to.mark(new, d))
        to.give(result, d, [made] * to.count(d, shape))
        return
    narrow = own.shape_of(source)
    have = operand_map(op, 0, d)
    pieces = to.pieces(source, have, "the source")
    numbers = np.arange(len(pieces)).reshape(to.grid(have, narrow))
    found: list[SSAValue] = []
    made_of: dict[SSAValue, SSAValue] = {}
    for number in np.broadcast_to(numbers, to.grid(d, shape)).flat:
        piece = pieces[number]
        if own.shape_of(piece) == kind.get_shape():
            found.append(piece)
            continue
        if piece not in made_of:
            made_of[piece] = to.add(to.mark(vector.BroadcastOp(piece, kind), d))
        found.append(made_of[piece])
    to.give(result, d, found)


@rule("vector.transpose")
def transpose(to: Distributor, op: TransposeOp) -> None:
    d = to.cut_of(op.result)
    have = operand_map(op, 0, d)
    pieces = to.pieces(op.vector, have, "the source")
    numbers = np.arange(len(pieces)).reshape(to.grid(have, own.shape_of(op.vector)))
    found = [
        to.add(to.mark(TransposeOp(pieces[n], op.permutation), d))
        for n in numbers.transpose(op.permutation).flat
    ]
    to.give(op.result, d, found)


@rule("vector.shape_cast")
def shape_cast(to: Distributor, op: ShapeCastOp) -> None:
    """Piece by piece, where each piece of the result is a run of one piece of the source."""
    result, source = own.shape_of(op.result), own.shape_of(op.source)
    want = to.cut_of(op.results[0])
    have = operand_map(op, 0, want)
    pieces = to.pieces(op.source, have, "the source")
    plan = ly.plan.reshape(own.bound(have, source), own.bound(want, result))
    order = plan.permutation
    if plan.exchanging_subgroups or order is None:
        raise to.refuse(
            f"from {own.attribute(have)} to {own.attribute(want)} moves data between subgroups"
        )
    part = to.part(want, result)
    count, size = to.count(want, result), prod(part)
    if size != prod(to.part(have, source)):
        raise to.refuse(
            f"makes pieces of {size} elements from pieces of {prod(to.part(have, source))}"
        )
    found: list[SSAValue] = []
    for n in range(count):
        first = int(order[n * size])
        if first % size or any(
            int(order[n * size + i]) != first + i for i in range(0, size, max(1, size // 64))
        ):
            raise to.refuse("deals the elements of a piece to several pieces")
        piece = pieces[first // size]
        if own.shape_of(piece) == part:
            found.append(piece)
        else:
            new = ShapeCastOp(piece, with_shape(op.result.type, part))
            found.append(to.add(to.mark(new, want)))
    to.give(op.result, want, found)


@rule("vector.bitcast", "vector.interleave", "vector.deinterleave")
def resized(to: Distributor, op: Operation) -> None:
    d = to.cut_of(op.results[0])
    local(to, op, *(operand_map(op, n, d) for n in range(len(op.operands))))


@rule("xegpu.convert_layout")
def convert_layout(to: Distributor, op: xegpu.ConvertLayoutOp) -> None:
    """Between layouts that give every subgroup the same elements: only pieces and lanes change."""
    if not isinstance(op.source.type, VectorType):
        to.env[op.result] = to.same(op.source)
        return
    want, shape = to.cut_of(op.results[0]), own.shape_of(op.result)
    have = to.cut_of(op.source)
    pieces = to.pieces(op.source, want, "the source")
    before, after = own.remainder(have), own.remainder(want)
    if before is not None and after is not None and not own.alike(before, after):
        pieces = [
            to.add(xegpu.ConvertLayoutOp(piece, own.attribute(after), own.attribute(before)))
            for piece in pieces
        ]
    assert len(pieces) == to.count(want, shape)
    to.give(op.result, want, pieces)


# --- Slices: along dimensions that every subgroup holds whole --------------------------------------


@rule("vector.extract_strided_slice")
def extract_strided_slice(to: Distributor, op: ExtractStridedSliceOp) -> None:
    d, shape = to.cut_of(op.results[0]), own.shape_of(op.result)
    source = own.shape_of(op.source)
    have = operand_map(op, 0, d)
    pieces = to.pieces(op.source, have, "the source")
    part, whole = to.part(d, shape), to.part(have, source)
    offsets = [*op.offsets, *[0] * (len(source) - len(op.offsets))]
    found: list[SSAValue] = []
    for piece in pieces:
        starts = [o if n != m else 0 for o, n, m in zip(offsets, source, shape, strict=True)]
        if part == whole:
            found.append(piece)
            continue
        new = ExtractStridedSliceOp(piece, starts, part, [1] * len(part))
        found.append(to.add(to.mark(new, d)))
    to.give(op.result, d, found)


@rule("vector.insert_strided_slice")
def insert_strided_slice(to: Distributor, op: InsertStridedSliceOp) -> None:
    d, shape = to.cut_of(op.results[0]), own.shape_of(op.result)
    small = own.shape_of(op.source)
    lead = len(shape) - len(small)
    have = operand_map(op, 0, d)
    sources = to.pieces(op.source, have, "the inserted value")
    dests = to.pieces(op.dest, d, "the destination")
    grid = to.grid(d, shape)
    if any(n > 1 for n in grid[:lead]):
        raise to.refuse("into a value that is dealt out along its outer dimensions")
    offsets = [
        o if dim < lead or shape[dim] != small[dim - lead] else 0
        for dim, o in enumerate(op.offsets)
    ]
    found: list[SSAValue] = []
    for piece, dest in zip(sources, dests, strict=True):
        new = InsertStridedSliceOp(piece, dest, offsets)
        found.append(to.add(to.mark(new, d)))
    to.give(op.result, d, found)


@rule("vector.extract")
def extract(to: Distributor, op: vector.ExtractOp) -> None:
    result, source = op.results[0], own.shape_of(op.operands[0])
    if isinstance(result.type, VectorType):
        d = to.cut_of(op.results[0])
        have = operand_map(op, 0, d)
        kind = to.typed(result, d)
    else:
        d, kind = None, result.type
        have = own.replicated(to.subgroups, len(source), source)
    pieces = to.pieces(op.operands[0], have, "the source")
    positions = _positions(to, op)
    made: list[SSAValue] = []
    for piece in pieces:
        new = vector.ExtractOp(piece, positions, kind)
        made.append(to.add(to.mark(new, d) if d is not None else new))
    if d is None:
        (to.env[result],) = made
    else:
        to.give(result, d, made)


@rule("vector.insert")
def insert(to: Distributor, op: vector.InsertOp) -> None:
    result = op.results[0]
    d, shape = to.cut_of(op.results[0]), own.shape_of(result)
    source, dest = op.operands[0], op.operands[1]
    if isinstance(source.type, VectorType):
        have = operand_map(op, 0, d)
        sources = to.pieces(source, have, "the inserted value")
    else:
        sources = [to.same(source)]
    dests = to.pieces(dest, d, "the destination")
    positions = _positions(to, op)
    if len(sources) != len(dests) or any(
        not Bound(d, shape).is_whole(dim) for dim in range(len(positions))
    ):
        raise to.refuse("into a value that is dealt out along the position's dimensions")
    found = [
        to.add(to.mark(vector.InsertOp(s, t, positions), d))
        for s, t in zip(sources, dests, strict=True)
    ]
    to.give(result, d, found)


def _positions(to: Distributor, op: vector.ExtractOp | vector.InsertOp) -> list[SSAValue | int]:
    dynamic = iter(op.dynamic_position)
    return [
        to.same(next(dynamic)) if int(p) == DYNAMIC_INDEX else int(p)
        for p in op.static_position.get_values()
    ]
