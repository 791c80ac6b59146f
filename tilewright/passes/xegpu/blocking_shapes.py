"""Blocking: ops that only rearrange elements, piece by piece.

Part of :mod:`tilewright.passes.xegpu.blocking`. What does not fall into pieces stays whole.
"""

from __future__ import annotations

from math import lcm

from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    VectorType,
)
from xdsl.ir import SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.passes.xegpu.blocking_memory import BlockedMemory
from tilewright.passes.xegpu.fragments import Free
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.ownership import box_of_insertion, shape_of, slice_attributes
from tilewright.passes.xegpu.pieces import Shape, grid_of, starts


class BlockedShapes(BlockedMemory):
    """Handlers of rearrangements."""

    # --- Shapes ------------------------------------------------------------------------------------------

    def broadcast(self, op: vector.BroadcastOp) -> None:
        source, result = op.source, op.vector
        if not isinstance(source.type, VectorType):
            self.grids[result] = Free(source.type, None, self.env[source])
            return
        held = self.grids[source]
        if isinstance(held, Free):
            self.grids[result] = held
            return
        piece, shape = self.owners.piece(result), shape_of(source)
        lead = len(piece) - len(shape)
        part = tuple(1 if n == 1 else p for n, p in zip(shape, piece[lead:], strict=True))
        made: list[SSAValue] = []
        for start in starts(shape_of(result), piece):
            where = tuple(0 if n == 1 else s for n, s in zip(shape, start[lead:], strict=True))
            value = self.box(source, where, part)
            if part != piece:
                kind = self.typed(result, piece)
                value = self.once(("broadcast", value, kind), vector.BroadcastOp(value, kind))
            made.append(value)
        self.hold(result, piece, made)

    def transpose(self, op: more.TransposeOp) -> None:
        """Piece by piece where the source is dealt as the result is, else in tiles of whole pieces of both."""
        p = op.permutation
        piece, given = self.owners.piece(op.result), self.owners.piece(op.vector)
        if tuple(given[d] for d in p) != piece:
            tile = tuple(lcm(n, given[d]) for n, d in zip(piece, p, strict=True))
            shape = shape_of(op.result)
            if all(extent % n == 0 for extent, n in zip(shape, tile, strict=True)):
                piece = tile
        part = tuple(piece[p.index(d)] for d in range(len(p)))
        made: list[SSAValue] = []
        for start in starts(shape_of(op.result), piece):
            where = tuple(start[p.index(d)] for d in range(len(p)))
            made.append(self.add(more.TransposeOp(self.box(op.vector, where, part), p)))
        self.hold(op.result, piece, made)

    def shape_cast(self, op: more.ShapeCastOp) -> None:
        before, after = shape_of(op.source), shape_of(op.result)
        held = self.grids[op.source]
        if isinstance(held, Free):
            self.grids[op.result] = held
            return
        piece = self.owners.piece(op.result)
        if [n for n in before if n != 1] != [n for n in after if n != 1]:
            self.hold(op.result, after, [self.cast(self.whole(op.source), after)])
            return
        long = [d for d, n in enumerate(after) if n != 1]

        def back(values: Shape, otherwise: int) -> Shape:
            inner = iter(values[d] for d in long)
            return tuple(otherwise if n == 1 else next(inner) for n in before)

        part = back(piece, 1)
        made = [
            self.cast(self.box(op.source, back(start, 0), part), piece)
            for start in starts(after, piece)
        ]
        self.hold(op.result, piece, made)

    def bitcast(self, op: vector.BitcastOp) -> None:
        before, after = shape_of(op.source)[-1], shape_of(op.result)[-1]
        piece = self.owners.piece(op.result)
        last = piece[-1] * before
        if last % after or last < after:
            self.unblocked(op)
            return
        part = (*piece[:-1], last // after)
        values = self.cut(op.source, part)
        kind = self.typed(op.result, piece)
        made = [self.add(vector.BitcastOp(v, kind)) for v in values]
        self.hold(op.result, piece, made)

    def extract_strided_slice(self, op: more.ExtractStridedSliceOp) -> None:
        offsets, _ = slice_attributes(op)
        held = self.grids[op.source]
        if isinstance(held, Free):
            self.grids[op.result] = held
            return
        piece = self.owners.piece(op.result)
        made = [
            self.box(op.source, tuple(o + s for o, s in zip(offsets, start, strict=True)), piece)
            for start in starts(shape_of(op.result), piece)
        ]
        self.hold(op.result, piece, made)

    def extract(self, op: vector.ExtractOp) -> None:
        position = [int(n) for n in op.static_position.get_values()]
        if DYNAMIC_INDEX in position:
            raise self.refuse("a position that is known at run time only")
        shape = shape_of(op.vector)
        rest = shape[len(position) :]
        ones = (1,) * len(position)
        if isinstance(op.result.type, VectorType):
            piece = self.owners.piece(op.result)
            made = [
                self.cast(self.box(op.vector, (*position, *start), (*ones, *piece)), piece)
                for start in starts(rest, piece)
            ]
            self.hold(op.result, piece, made)
            return
        held = self.grids[op.vector]
        if isinstance(held, Free):
            self.env[op.result] = self.element_at(self.splat(held, (1,)), [0])
            return
        index = tuple(p // n for p, n in zip(position, held.piece, strict=True))
        local = [p % n for p, n in zip(position, held.piece, strict=True)]
        number = 0
        for i, n in zip(index, grid_of(held.shape, held.piece), strict=True):
            number = number * n + i
        self.env[op.result] = self.element_at(held.values[number], local)

    def insert_strided_slice(self, op: more.InsertStridedSliceOp | vector.InsertOp) -> None:
        """The destination with the source in a box of it, piece by piece."""
        result, source, dest = op.result, op.source, op.dest
        box = box_of_insertion(op)
        if box is None:
            raise self.refuse("a position that is known at run time only")
        offsets, size, lead = box
        if not isinstance(source.type, VectorType):
            self.grids[source] = Free(source.type, None, self.env[source])
        piece = self.owners.piece(result)
        made: list[SSAValue] = []
        for start in starts(shape_of(result), piece):
            low = [max(a, b) for a, b in zip(start, offsets, strict=True)]
            high = [
                min(a + p, b + n) for a, p, b, n in zip(start, piece, offsets, size, strict=True)
            ]
            if any(a >= b for a, b in zip(low, high, strict=True)):
                made.append(self.box(dest, start, piece))
                continue
            extent = tuple(b - a for a, b in zip(low, high, strict=True))
            where = tuple(a - b for a, b in zip(low, offsets, strict=True))
            part = (
                self.cast(self.box(source, where[lead:], extent[lead:]), extent)
                if extent[lead:]
                else (self.splat(self._free(source), extent))
            )
            if extent != piece:
                local = [a - b for a, b in zip(low, start, strict=True)]
                part = self.add(
                    more.InsertStridedSliceOp(part, self.box(dest, start, piece), local)
                )
            made.append(part)
        self.hold(result, piece, made)

    insert = insert_strided_slice

    def _free(self, value: SSAValue) -> Free:
        held = self.grids[value]
        assert isinstance(held, Free)
        return held

    def convert_layout(self, op: xegpu.ConvertLayoutOp) -> None:
        if not isinstance(op.source.type, VectorType):
            self.env[op.result] = self.env[op.source]
            return
        held = self.grids[op.source]
        if isinstance(held, Free):
            self.grids[op.result] = held
            return
        layout = self.owners.layout(op.result)
        target = lane_attribute(layout)
        values = self.cut(op.source, layout.shape)
        if target is not None:
            values = [self.add(xegpu.ConvertLayoutOp(v, target)) for v in values]
        self.hold(op.result, layout.shape, values)
