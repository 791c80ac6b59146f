"""Values with a part put in from another: a choice by position (see `evaluate`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import element_of, rows_cols
from tilewright.dialects.movement import numbered
from tilewright.dialects.upstream.vector import InsertStridedSliceOp
from tilewright.targets.cpu.evaluate import Evaluator, Position, evaluates
from tilewright.targets.cpu.moves import chosen, moved_at_run_time


@evaluates(InsertStridedSliceOp, vector.InsertOp)
def insert(e: Evaluator, op: Operation, place: Position, _: int) -> SSAValue:
    """Leading dimensions fold into rows; a box of such rows that has gaps is put in element by element."""
    source, dest = op.operands[:2]
    numbers = numbered(op)[0].reshape(rows_cols(dest.type))
    rows, cols = rows_cols(source.type) if isinstance(source.type, VectorType) else (1, 1)
    row, col = (int(at[0]) for at in np.nonzero(numbers < rows * cols))
    box = numbers[row : row + rows, col : col + cols]
    if not np.array_equal(box, np.arange(rows * cols).reshape(rows, cols)):
        return e.by_lane(place, element_of(dest.type), lambda p: chosen(e, op, numbers, p))
    down, along = moved_at_run_time(e, op)
    return _insert(e, source, dest, e.b.plus(row, down), e.b.plus(col, along), place)


def _insert(
    e: Evaluator, source: SSAValue, dest: SSAValue, row: Idx, col: Idx, place: Position
) -> SSAValue:
    """`dest` with the box of `source` from [row, col] on replaced by it."""
    b = e.b
    place = replace(place, inside=False)
    scalar = not isinstance(source.type, VectorType)
    rows, cols = (1, 1) if scalar else rows_cols(source.type)
    known = _known(place, row, col, rows, cols)
    if known is False:
        return e.at(dest, place)
    across = place.axis == 1 and cols == rows_cols(dest.type)[1] and col == 0
    if place.lanes > 1 and not across and known is None and not scalar:
        one = lambda p: _insert(e, source, dest, row, col, p)  # noqa: E731
        return e.by_lane(place, element_of(dest.type), one)
    if scalar:
        new = b.splat(e.scalar(source), place.lanes)
    else:
        line = across or place.lanes > 1
        at = replace(
            place,
            row=_moved(b, place.row, row, rows),
            col=_moved(b, place.col, col, cols, free=line),
        )
        new = e.at(source, at)
    whole = rows_cols(dest.type)
    parts = [
        _below(e, place, dim, start, extent)
        for dim, (start, extent) in enumerate(((row, rows), (col, cols)))
        if known is None and (start, extent) != (0, whole[dim])
    ]
    if not parts:
        return new
    inside = parts[0] if len(parts) == 1 else b.value(arith.AndIOp(parts[0], parts[1]))
    return b.value(arith.SelectOp(inside, new, e.at(dest, place)))


def _known(place: Position, row: Idx, col: Idx, rows: int, cols: int) -> bool | None:
    """Whether all of a place lies in a box (False: none of it does), where that shows."""
    down, along = (place.lanes, 1) if place.axis == 0 else (1, place.lanes)
    inside = True
    for at, length, start, extent in ((place.row, down, row, rows), (place.col, along, col, cols)):
        if not (isinstance(at, int) and isinstance(start, int)):
            inside = False
            continue
        if at + length <= start or at >= start + extent:
            return False
        inside = inside and start <= at and at + length <= start + extent
    return True if inside else None


def _moved(b: Builder, at: Idx, start: Idx, extent: int, free: bool = False) -> Idx:
    """The position in the part, kept within it: what lies outside is not looked at, but must be there."""
    if isinstance(at, int) and isinstance(start, int):
        return at - start if free else min(max(at - start, 0), extent - 1)
    if free and start == 0:
        return at
    moved = b.value(arith.SubiOp(b.idx(at), b.idx(start)))
    low = b.value(arith.MaxSIOp(moved, b.idx(0)))
    return b.value(arith.MinSIOp(low, b.idx(extent - 1)))


def _below(e: Evaluator, place: Position, dim: int, start: Idx, extent: Idx) -> SSAValue:
    """Whether the coordinate of each element lies in [start, start + extent)."""
    b = e.b
    at = place.row if dim == 0 else place.col
    value = b.splat(b.idx(at), place.lanes)
    if place.axis == dim and place.lanes > 1:
        value = b.value(arith.AddiOp(value, b.iota(place.lanes)))
    bound = b.splat(b.idx(extent), place.lanes)
    if start == 0:
        return b.value(arith.CmpiOp(value, bound, "slt"))
    moved = b.value(arith.SubiOp(value, b.splat(b.idx(start), place.lanes)))
    return b.value(arith.CmpiOp(moved, bound, "ult"))
