"""Ops that only rearrange: elements of the operands at other places, by `dialects.movement` (see `evaluate`).

A tile is seen as rows, its leading dimensions folded. Where an element of the result is found is a number for each
row and each column, which is turned into arithmetic on the place that is asked for:

    element [r, c] of a [4, 8, 2] -> [8, 4, 2] transpose     row 8 * (r % 4) + r / 4, column c of the source

so a register of the result is a register of the source where its elements lie side by side there, and is put together
from single elements where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx, index, lane_type
from tilewright.codegen.tiles import element_of, itemsize, rows_cols
from tilewright.dialects.movement import (
    ELEMENTS,
    numbered,
    positions_at_run_time,
    shape_of,
    static_position,
)
from tilewright.dialects.upstream.arith import folded
from tilewright.layout.digits import row_strides
from tilewright.passes.integers import is_multiple
from tilewright.targets.cpu.evaluate import Evaluator, Position, evaluates

Digits = list[tuple[int, int, int]]
"""A number made of another's digits: the sum of (x // weight % size) * step, for (weight, size, step)."""
MOST_DIGITS = 4


def digits_of(table: np.ndarray) -> Digits | None:
    """`table[x] - table[0]` as digits of x; None if there are more than a few."""
    found: Digits = []
    values = table - table[0]
    made, weight = np.zeros(1, np.int64), 1
    while weight < len(values) and len(found) < MOST_DIGITS:
        step = int(values[weight])
        parts = values[: len(values) // weight * weight].reshape(-1, weight)
        goes_on = np.all(parts == made + np.arange(len(parts))[:, None] * step, axis=1)
        size = len(parts) if goes_on.all() else int(np.argmin(goes_on))
        if size == 1:
            return None
        made = (made + np.arange(size)[:, None] * step).reshape(-1)
        found.append((weight, size, step))
        weight *= size
    return found if np.array_equal(made, values) else None


def linear(digits: Digits) -> int | None:
    """The step of a number with one digit; None with several."""
    return sum(step for *_, step in digits) if len(digits) <= 1 else None


def number_at(b: Builder, x: Idx, digits: Digits, extent: int) -> Idx:
    """The number made of the digits of `x`, which is below `extent`."""
    total: Idx = 0
    for weight, size, step in digits:
        if step:
            digit = b.div(x, weight)
            total = b.plus(
                total, b.times(digit if weight * size == extent else b.rem(digit, size), step)
            )
    return total


def starts_anywhere(op: Operation) -> bool:
    """Is a register of what an op rearranges found alike at whichever column it begins: does each element lie as far
    from the one before it as any other, down and along? Of an interleave, where runs are repeated and where rows follow
    one another, blocks of elements do."""
    if op.name not in ELEMENTS or not isinstance(op.operands[0].type, VectorType):
        return True
    columns = rows_cols(op.operands[0].type)[1]
    for result, numbers in zip(op.results, numbered(op), strict=True):
        for place in np.divmod(numbers.reshape(rows_cols(result.type)), columns):
            steps = np.diff(place, axis=1)
            if steps.size and np.any(steps != steps[0, 0]):
                return False
    return True


@evaluates(*ELEMENTS)
def rearrange(e: Evaluator, op: Operation, place: Position, result: int) -> SSAValue:
    source = op.operands[0]
    if not isinstance(source.type, VectorType):
        return e.b.splat(e.scalar(source), place.lanes)
    rows, cols = rows_cols(op.results[result].type)
    numbers = numbered(op)[result].reshape(rows, cols)
    if numbers.max() < np.prod(shape_of(source), dtype=np.int64):
        row, col = np.divmod(numbers, rows_cols(source.type)[1])
        found = [*_parted(row), *_parted(col)]
        if None not in found:
            made = _from_source(e, op, place, (int(row[0, 0]), int(col[0, 0])), found, numbers)  # pyright: ignore
            if made is not None:
                return made
    if (made := shuffled(e, op, place, numbers)) is not None:
        return made
    return e.by_lane(place, element_of(source.type), lambda p: chosen(e, op, numbers, p))


def _parted(table: np.ndarray) -> tuple[Digits | None, Digits | None]:
    """A number for each row and column as digits of the row and digits of the column, which add up."""
    if np.any(table != table[:, :1] + table[:1] - table[0, 0]):
        return None, None
    return digits_of(table[:, 0]), digits_of(table[0])


def _from_source(
    e: Evaluator,
    op: Operation,
    place: Position,
    start: tuple[int, int],
    found: Sequence[Digits],
    numbers: np.ndarray,
) -> SSAValue | None:
    """Elements of one source, whose row and column are each `start` and a sum of digits of the result's row and
    column; None where they are cheaper to find by their number."""
    b, source = e.b, op.operands[0]
    extents = rows_cols(op.results[0].type)
    moving = moved_at_run_time(e, op)

    def place_of(p: Position) -> Position:
        at: list[Idx] = []
        for k, first in enumerate(start):
            down, along = found[2 * k], found[2 * k + 1]
            value = b.plus(
                number_at(b, p.row, down, extents[0]), number_at(b, p.col, along, extents[1])
            )
            at.append(b.plus(b.plus(value, first), moving[k]))
        kept = all(
            linear(digits) in ((0, 1) if k in (0, 3) else (0,)) for k, digits in enumerate(found)
        )
        kept = kept and start == moving == (0, 0)
        return replace(p, row=at[0], col=at[1], inside=p.inside and kept)

    steps = (linear(found[place.axis]), linear(found[2 + place.axis]))
    if steps in ((1, 0), (0, 1)):
        return e.at(source, replace(place_of(place), axis=steps[1]))  # pyright: ignore
    if place.lanes > 1 and (steps == (0, 0) or one_for_all(place, numbers)):
        one = e.at(source, replace(place_of(place), lanes=1, inside=False))
        return b.splat(one, place.lanes)
    if (made := shuffled(e, op, place, numbers)) is not None:
        return made
    if any(linear(d) is None for d in found) and np.array_equal(
        numbers.reshape(-1), np.arange(numbers.size)
    ):
        return None
    return e.by_lane(place, element_of(source.type), lambda p: e.at(source, place_of(p)))


def one_for_all(place: Position, numbers: np.ndarray) -> bool:
    """Is a register along a row one element, repeated, wherever it starts at a multiple of its length?"""
    inner = min(place.lanes, numbers.shape[1])
    if place.axis == 0 or numbers.shape[1] % inner or not is_multiple(place.col, inner):
        return False
    windows = numbers.reshape(-1, inner)
    return bool(np.all(windows == windows[:, :1]))


def shuffled(e: Evaluator, op: Operation, place: Position, numbers: np.ndarray) -> SSAValue | None:
    """Elements along a row that registers of one or two operands hold, in one order wherever `place` may be, as a
    shuffle of these; None where there are no such registers. Of an interleave each operand gives half of them."""
    b, lanes = e.b, place.lanes
    cols = numbers.shape[1]
    inner = min(lanes, cols)  # of a place beyond the last, any element
    if lanes == 1 or place.axis == 0 or cols % inner or not is_multiple(place.col, inner):
        return None
    windows = numbers.reshape(-1, cols // inner, inner)
    read: list[tuple[SSAValue, np.ndarray, np.ndarray]] = []
    first = 0
    for source in op.operands:
        if not isinstance(source.type, VectorType):
            return None
        size = int(np.prod(shape_of(source), dtype=np.int64))
        mine = (windows >= first) & (windows < first + size)
        which = np.flatnonzero(mine[0, 0])
        if not np.array_equal(mine, np.broadcast_to(mine[0, 0], mine.shape)):
            return None
        if which.size:
            read.append((source, which, windows[..., which] - first))
        first += size
    if len(read) > 2:
        return None
    width = max(1 << int(np.ptp(at[0, 0])).bit_length() for _, _, at in read)
    widest = min(2 * lanes, *(rows_cols(source.type)[1] for source, _, _ in read))
    if width == 1 or width > widest:
        return None
    order = np.zeros(lanes, np.int64)
    registers: list[SSAValue] = []
    for n, (source, which, at) in enumerate(read):
        start, columns = at.min(-1), rows_cols(source.type)[1]
        beyond = max(0, int((start % columns).max()) + width - columns)
        if beyond > (start % columns).min():
            return None
        start = start - beyond
        picked = at - start[..., None]
        row, col = np.divmod(start, columns)
        places = [*_parted(row), *_parted(col)]
        same = np.array_equal(picked, np.broadcast_to(picked[0, 0], picked.shape))
        if not same or None in places or picked.max() >= width:
            return None
        order[which] = picked[0, 0] + n * width
        block, extents = b.div(place.col, inner), start.shape
        here = [
            b.plus(
                b.plus(
                    number_at(b, place.row, down, extents[0]),  # pyright: ignore
                    number_at(b, block, along, extents[1]),  # pyright: ignore
                ),
                int(base[0, 0]),
            )
            for base, down, along in ((row, *places[:2]), (col, *places[2:]))
        ]
        registers.append(e.at(source, Position(here[0], here[1], 1, width)))
    return b.shuffle(registers[0], registers[-1], [int(n) for n in order])


def moved_at_run_time(e: Evaluator, op: Operation) -> tuple[Idx, Idx]:
    """Rows and columns by which a position known only at run time moves what is extracted or inserted."""
    row: Idx = 0
    col: Idx = 0
    given = positions_at_run_time(op)
    if not given:
        return row, col
    at = iter(given)
    whole = shape_of(op.operands[1 if op.name == "vector.insert" else 0])
    for d, (x, step) in enumerate(zip(static_position(op), row_strides(whole), strict=False)):
        if x != DYNAMIC_INDEX:
            continue
        number = folded(e.scalar(next(at)))
        if d == len(whole) - 1:
            col = number
        else:
            row = e.b.plus(row, e.b.times(number, step // whole[-1]))
    return row, col


def chosen(e: Evaluator, op: Operation, numbers: np.ndarray, place: Position) -> SSAValue:
    """One element, of an operand that depends on the place; of a place beyond the last, any."""
    b = e.b
    flat = numbers.reshape(-1)
    at = b.plus(b.times(place.row, numbers.shape[1]), place.col)
    number: Idx
    if isinstance(at, int):
        number = int(flat[min(at, flat.size - 1)])
    elif (digits := digits_of(flat)) is not None:
        number = b.plus(number_at(b, at, digits, flat.size), int(flat[0]))
    else:
        table = b.dense(VectorType(index, [flat.size]), flat.tolist())
        number = b.value(vector.ExtractOp(table, [b.idx(b.min(at, flat.size - 1))], index))
        b.nonnegative.add(number)
    made: SSAValue | None = None
    first = 0
    for source in op.operands:
        size = int(np.prod(shape_of(source), dtype=np.int64))
        here = b.minus(number, first)
        if isinstance(here, int):
            if 0 <= here < size:
                made = e.at(source, _element(b, source, here, place))
        elif made is None:
            here = here if len(op.operands) == 1 else b.min(here, size - 1)
            made = e.at(source, _element(b, source, here, place))
        else:
            other = e.at(source, _element(b, source, b.max(here, 0), place))
            made = b.value(arith.SelectOp(b.cmp("sge", here, 0), other, made))
        first += size
    assert made is not None
    return made


def _element(b: Builder, source: SSAValue, number: Idx, place: Position) -> Position:
    cols = rows_cols(source.type)[1]
    return replace(place, row=b.div(number, cols), col=b.rem(number, cols), lanes=1, inside=False)


@evaluates(vector.BitcastOp)
def bitcast(e: Evaluator, op: Operation, place: Position, _: int) -> SSAValue:
    """Elements of the same bytes: each of the source's is followed by its parts, lowest bytes first."""
    b = e.b
    source, kind = op.operands[0], element_of(op.results[0].type)
    wide, narrow = 8 * itemsize(element_of(source.type)), 8 * itemsize(kind)
    if wide == narrow:
        return b.value(arith.BitcastOp(e.at(source, place), lane_type(kind, place.lanes)))
    if wide < narrow:
        return joined(e, source, kind, narrow // wide, place)
    ratio = wide // narrow
    if place.axis == 1 and place.lanes > 1:
        if isinstance(place.col, int) and place.col % ratio == 0 and place.lanes % ratio == 0:
            lanes = place.lanes // ratio
            at = replace(place, col=place.col // ratio, lanes=lanes, inside=False)
            register = e.at(source, at)
            if lanes > 1:
                return b.value(vector.BitcastOp(register, lane_type(kind, place.lanes)))
        return e.by_lane(place, kind, lambda p: bitcast(e, op, p, 0))
    register = e.at(source, replace(place, col=b.div(place.col, ratio), inside=False))
    bits = lane_type(IntegerType(wide), place.lanes)
    number = b.value(arith.BitcastOp(register, bits))
    shift = b.value(
        arith.IndexCastOp(b.idx(b.times(b.rem(place.col, ratio), narrow)), IntegerType(wide))
    )
    number = b.value(arith.ShRUIOp(number, b.splat(shift, place.lanes)))
    part = b.value(arith.TruncIOp(number, lane_type(IntegerType(narrow), place.lanes)))  # pyright: ignore[reportArgumentType]
    return b.value(arith.BitcastOp(part, lane_type(kind, place.lanes)))


def joined(
    e: Evaluator, source: SSAValue, kind: Attribute, ratio: int, place: Position
) -> SSAValue:
    """Elements of `kind`, each made of `ratio` neighbours of the source."""
    if place.axis == 0 and place.lanes > 1:
        return e.by_lane(place, kind, lambda p: joined(e, source, kind, ratio, p))
    b, lanes = e.b, place.lanes * ratio
    at = replace(place, col=b.times(place.col, ratio), axis=1, lanes=lanes, inside=False)
    made = b.value(vector.BitcastOp(e.at(source, at), VectorType(kind, [place.lanes])))  # pyright: ignore
    return b.extract(made, 0) if place.lanes == 1 else made
