"""Slices of values on tiles: elements of the source, further along (see `evaluate`)."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Idx, lane_type
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp, TransposeOp
from tilewright.targets.cpu.evaluate import Evaluator, Place, evaluates
from tilewright.targets.cpu.memory import element_of, itemsize, rows_cols


@evaluates(ExtractStridedSliceOp)
def extract_strided_slice(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    assert isinstance(op, ExtractStridedSliceOp)
    rank = len(op.source.type.get_shape())  # pyright: ignore
    missing = rank - len(op.offsets)
    offsets = [*op.offsets, *[0] * missing]
    strides = [*op.strides, *[1] * missing]
    if rank > 2:
        raise error_at(
            op, f"a slice of a value of rank {rank} on the cpu target", kind=UnsupportedError
        )
    if rank == 1:
        offsets, strides = [0, *offsets], [1, *strides]
    b = e.b

    def one(p: Place) -> SSAValue:
        row = b.add(b.mul(p.row, strides[0]), offsets[0])
        col = b.add(b.mul(p.col, strides[1]), offsets[1])
        return e.at(op.source, replace(p, row=row, col=col, inside=False))

    if strides[place.axis] == 1:
        return one(place)
    return e.by_lane(place, element_of(op.source.type), one)


@evaluates(vector.ExtractOp)
def extract(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    """Leading dimensions fold into rows: what is left after static positions starts at a row."""
    assert isinstance(op, vector.ExtractOp)
    positions = op.static_position.get_values()
    shape = op.vector.type.get_shape()  # pyright: ignore
    if op.dynamic_position:
        raise error_at(
            op, "vector.extract on tiles needs constant positions", kind=UnsupportedError
        )
    number = 0
    for position, size in zip(positions, shape, strict=False):
        number = number * size + position
    for size in shape[len(positions) :]:
        number *= size
    row, col = divmod(number, rows_cols(op.vector.type)[1])
    b = e.b
    return e.at(
        op.vector,
        replace(place, row=b.add(place.row, row), col=b.add(place.col, col), inside=False),
    )


@evaluates(TransposeOp)
def transpose(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    """Leading dimensions fold into rows: the coordinates of an element, in the order of the source's dimensions."""
    assert isinstance(op, TransposeOp)
    b, source = e.b, op.operands[0]
    shape, order = op.results[0].type.get_shape(), list(op.permutation)  # pyright: ignore
    rank = len(shape)
    place = replace(place, inside=False)
    if order == list(range(rank)):
        return e.at(source, place)
    if rank == 2:
        return e.at(source, replace(place, row=place.col, col=place.row, axis=1 - place.axis))
    # Along a row of the result the source's elements lie along a row or down a column, or further apart.
    steps = {rank - 1: 1, rank - 2: 0}.get(order[-1])
    if place.lanes > 1 and (place.axis == 0 or steps is None):
        return e.by_lane(place, element_of(source.type), lambda p: transpose(e, op, p, 0))
    at: list[Idx] = [0] * rank
    row = place.row
    at[order[-1]] = place.col
    for d in reversed(range(rank - 1)):
        at[order[d]] = row if d == 0 else b.rem(row, shape[d])
        row = b.div(row, shape[d])
    number: Idx = 0
    for d in range(rank - 1):
        number = b.add(b.mul(number, source.type.get_shape()[d]), at[d])  # pyright: ignore
    axis = place.axis if steps is None else steps
    return e.at(source, replace(place, row=number, col=at[-1], axis=axis))


@evaluates(vector.BitcastOp)
def bitcast(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    """Elements of the same bytes: each of the source's is followed by its parts, lowest bytes first."""
    b = e.b
    source, kind = op.operands[0], element_of(op.results[0].type)
    wide, narrow = 8 * itemsize(element_of(source.type)), 8 * itemsize(kind)
    if wide == narrow:
        return b.value(arith.BitcastOp(e.at(source, place), lane_type(kind, place.lanes)))
    if wide < narrow:
        raise error_at(
            op, "a bitcast of tiles to wider elements on the cpu target", kind=UnsupportedError
        )
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
        arith.IndexCastOp(b.idx(b.mul(b.rem(place.col, ratio), narrow)), IntegerType(wide))
    )
    number = b.value(arith.ShRUIOp(number, b.splat(shift, place.lanes)))
    part = b.value(arith.TruncIOp(number, lane_type(IntegerType(narrow), place.lanes)))  # pyright: ignore[reportArgumentType]
    return b.value(arith.BitcastOp(part, lane_type(kind, place.lanes)))
