"""Masks by position: `arange < n`, `row >= column` and the like without a vector of positions.

Along a row, a value that grows by one per column (an index vector, what one number is added to, repetitions down the
rows) compared with what is one number on that row is true for the first lanes or for the last ones: a mask made of a
count; and for all of them where the row is known to go on as far. Elements at offsets that grow by one per column are a
run of memory, as rows of a table are whose numbers are loaded (`run_of`); offsets that are held between bounds, as at
the edges of an image, are one between the columns that reach these (`Columns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IndexType, IntegerType, VectorType, i1
from xdsl.ir import OpResult, SSAValue

from tilewright.codegen.builder import Builder, Idx, lane_type
from tilewright.codegen.tiles import ScatteredTile, Tile, element_of, rows_cols
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import PREDICATES, SWAPPED, folded
from tilewright.frozen import record
from tilewright.passes.fold_identities import splat
from tilewright.targets.cpu.evaluate import Evaluator, Position, evaluates


@evaluates(arith.CmpiOp)
def compare(e: Evaluator, op: arith.CmpiOp, place: Position, result: int) -> SSAValue:
    """A mask of the first or last lanes where that is what the op is, else the op itself."""
    if place.axis == 1 and place.lanes > 1 and (found := _compared(e, op, place)) is not None:
        how, first, limit = found
        whole = place.inside and first is place.col and limit in e.ends
        if whole and how in ("slt", "sle"):
            return e.b.constant(lane_type(i1, place.lanes), 1)
        return first_lanes(e, how, e.b.minus(limit, first), place.lanes)
    return e.elementwise(op, place, result)


def _compared(
    e: Evaluator, op: arith.CmpiOp, place: Position, within: Columns | None = None
) -> tuple[str, Idx, Idx] | None:
    """How an index value that grows by one per lane is compared, its first element, and the number beside it."""
    predicate = PREDICATES[op.predicate.value.data]
    if predicate in SWAPPED:
        for x, y, how in ((op.lhs, op.rhs, predicate), (op.rhs, op.lhs, SWAPPED[predicate])):
            first, limit = ramp(e, x, place, within), one_number(e, y, place)
            if first is not None and limit is not None:
                return how, first, limit
    return None


def first_lanes(e: Evaluator, how: str, count: Idx, lanes: int) -> SSAValue:
    """Lanes i with `i how count`."""
    b = e.b
    all_on = b.constant(lane_type(i1, lanes), 1)
    mask = b.mask_first(_first(b, how, count), lanes)
    below = all_on if mask is None else mask
    return below if how in ("slt", "sle") else b.value(arith.XOrIOp(below, all_on))


def _first(b: Builder, how: str, count: Idx) -> Idx:
    """The lane from which on `i how count` is another than before."""
    return b.plus(count, 1) if how in ("sle", "sgt") else count


@record
class Columns:
    """Between which columns of a row what is asked for holds."""

    begin: Idx = 0
    end: Idx | None = None
    """None: to the last."""

    def narrow(self, b: Builder, at: Idx, below: bool) -> None:
        """To those below a column, or to it and those behind it."""
        if not below:
            self.begin = b.max(self.begin, at)
        else:
            self.end = at if self.end is None else b.min(self.end, at)


def ramp(
    e: Evaluator, value: SSAValue, place: Position, within: Columns | None = None
) -> Idx | None:
    """The first element of an index value that grows by one per lane; None if it does not, or nobody knows. `within`:
    as it is between the bounds that it is held to, from column 0 on; these are noted there."""
    value = e.values.real(value)
    if not isinstance(value, OpResult) or value in e.values.buffers:
        return None
    if not _counts(value):
        return None
    op, columns = value.op, rows_cols(value.type)[1]
    if columns == 1:
        return None
    if isinstance(op, more.StepOp):
        return place.col
    if isinstance(op, arith.IndexCastOp):
        return ramp(e, op.input, place, within)
    if op.name == "vector.shape_cast" and rows_cols(value.type)[0] == 1:
        return ramp(e, op.operands[0], place, within)
    if isinstance(op, vector.BroadcastOp | xt.BroadcastOp) and isinstance(
        op.operands[0].type, VectorType
    ):
        if isinstance(op, xt.BroadcastOp) and op.broadcast_size is not None:
            return None
        return ramp(e, op.operands[0], Position(0, place.col, 1, place.lanes), within)
    if within is not None and isinstance(op, arith.SelectOp):
        return _chosen(e, op, place, within)
    if not isinstance(op, arith.AddiOp | arith.SubiOp) and (
        within is None or not isinstance(op, arith.MinSIOp | arith.MaxSIOp)
    ):
        return None
    pairs = [(op.lhs, op.rhs)] + ([] if isinstance(op, arith.SubiOp) else [(op.rhs, op.lhs)])
    for x, y in pairs:
        first, number = ramp(e, x, place, within), one_number(e, y, place)
        if first is None or number is None:
            continue
        if isinstance(op, arith.SubiOp):
            return e.b.minus(first, number)
        if within is None or isinstance(op, arith.AddiOp):
            return e.b.plus(first, number)
        below = isinstance(op, arith.MinSIOp)
        within.narrow(e.b, e.b.plus(e.b.minus(number, first), int(below)), below)
        return first
    return None


def _chosen(e: Evaluator, op: arith.SelectOp, place: Position, within: Columns) -> Idx | None:
    """Likewise of what a comparison of positions chooses, as at the edges of an image that is reflected there."""
    mask = e.values.real(op.cond).owner
    found = _compared(e, mask, place, within) if isinstance(mask, arith.CmpiOp) else None
    if found is None:
        return None
    how, start, limit = found
    for value, yes in ((op.rhs, False), (op.lhs, True)):
        if (first := ramp(e, value, place, within)) is not None:
            below = (how in ("slt", "sle")) == yes
            within.narrow(e.b, _first(e.b, how, e.b.minus(limit, start)), below)
            return first
    return None


def one_number(e: Evaluator, value: SSAValue, place: Position) -> Idx | None:
    """The number that an index value is everywhere on a row; None if it is several, or nobody knows."""
    value = e.values.real(value)
    if not _counts(value):
        return None
    known = splat(value)
    if isinstance(known, int):
        return known
    op = value.owner
    if isinstance(op, vector.BroadcastOp) and not isinstance(op.operands[0].type, VectorType):
        return _number(e, e.scalar(op.operands[0]))
    if rows_cols(value.type)[1] == 1 or e.same_along_row(value):
        return _number(e, e.at(value, Position(place.row, 0)))
    return None


def _counts(value: SSAValue) -> bool:
    """Is a value a vector of numbers in which sums of positions are exact?"""
    exact = (IndexType(), IntegerType(64))
    return isinstance(value.type, VectorType) and element_of(value.type) in exact


def _number(e: Evaluator, value: SSAValue) -> Idx:
    if value.type != IndexType():
        value = e.b.value(arith.IndexCastOp(value, IndexType()))
    return folded(value)


def parts_of(
    e: Evaluator, mask: SSAValue, row: Idx
) -> Iterator[tuple[Idx | None, SSAValue | None]]:
    """The parts of a mask that must all say yes on a row: the number of columns below which one does, as `arange < n`
    says, or what is the same on the whole row; neither where nobody knows."""
    waiting, seen = [mask], set[SSAValue]()
    while waiting:
        value = e.values.real(waiting.pop())
        if value in seen:
            continue
        seen.add(value)
        op, limit, place = value.owner, None, Position(row, 0, 1, rows_cols(value.type)[1])
        if e.same_along_row(value):
            yield None, e.at(value, Position(row, 0))
        elif value not in e.values.buffers and isinstance(op, arith.AndIOp | xt.BroadcastOp):
            waiting += op.operands
        else:
            if isinstance(op, arith.CmpiOp) and PREDICATES[op.predicate.value.data] == "slt":
                first, number = ramp(e, op.lhs, place), one_number(e, op.rhs, place)
                limit = None if first is None or number is None else e.b.minus(number, first)
            yield limit, None


def row_of(
    e: Evaluator, tile: Tile | ScatteredTile, row: Idx, shape: tuple[int, int]
) -> Tile | None:
    """Row `row` of a tile as a tile of one row; None where that is not known to be a run of memory."""
    if isinstance(tile, ScatteredTile):
        return run_of(e, tile, row, shape)
    return replace(tile.moved(e.b, row, 0), shape=(1, shape[1]))


def run_at(
    e: Evaluator, op: xt.LoadGatherOp | xt.StoreScatterOp | xt.AtomicRmwOp, place: Position
) -> tuple[Tile, Position, SSAValue | None] | None:
    """The run of memory that a row of a scattered tile is, a place of the row in it, and what is left of the op's mask
    there; None where it is no run, or nobody knows."""
    tile = e.values.tile(op.tile)
    assert isinstance(tile, ScatteredTile)
    if place.axis == 0 or place.lanes == 1:
        return None
    inside = place.inside and op in e.runs
    run = run_of(e, tile, place.row, rows_cols(tile.offsets.type), Columns() if inside else None)
    if run is None:
        return None
    asked = op.mask is not None and (not inside or e.runs[op])
    mask = e.at(op.mask, place) if asked else None  # pyright: ignore
    return run, replace(place, row=0, inside=inside), mask


def run_of(
    e: Evaluator,
    tile: ScatteredTile,
    row: Idx,
    shape: tuple[int, int],
    within: Columns | None = None,
) -> Tile | None:
    """The run of memory that row `row` of a scattered tile is, or is between the columns that are noted in `within`, as
    a tile of one row; None if its elements do not lie one behind the other, or nobody knows."""
    first = ramp(e, tile.offsets, Position(row, 0, 1, shape[1]), within)
    if first is None:
        return None
    return Tile(tile.pointer, tile.element, (0, first), (1, tile.count), (0, 1), (1, shape[1]))
