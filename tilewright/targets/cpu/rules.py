"""The meaning of every op on tiles, as elements at a place (see `evaluate`): one rule per op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    UnrealizedConversionCastOp,
    VectorType,
)
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import lane_type
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream import vector as more
from tilewright.targets.cpu.divisions import divide
from tilewright.targets.cpu.evaluate import Evaluator, Place, evaluates
from tilewright.targets.cpu.memory import ScatteredTile, Tile, element_of, rows_cols


@evaluates(arith.ConstantOp)
def constant(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    assert isinstance(op, arith.ConstantOp)
    value = op.value
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise error_at(op, "a tile constant is a dense attribute", kind=UnsupportedError)
    type = lane_type(element_of(op.result.type), place.lanes)
    if value.is_splat():
        return e.b.constant(type, value.get_values()[0])  # pyright: ignore
    raise AssertionError("constants of several values are written to a buffer first")


@evaluates(vector.BroadcastOp)
def broadcast_scalar(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    source = op.operands[0]
    if not isinstance(source.type, VectorType):
        return e.b.splat(e.scalar(source), place.lanes)
    shape, given = op.results[0].type.get_shape(), source.type.get_shape()  # pyright: ignore
    if len(shape) > 2 and rows_cols(source.type)[0] not in (1, prod(shape[:-1])):
        return spread(e, source, shape, given, place)
    return repeat(e, source, place)


def spread(
    e: Evaluator, source: SSAValue, shape: Sequence[int], given: Sequence[int], place: Place
) -> SSAValue:
    """A broadcast in which some of the dimensions that fold into rows repeat and others do not."""
    if place.lanes > 1 and place.axis == 0:
        return e.by_lane(
            place, element_of(source.type), lambda p: spread(e, source, shape, given, p)
        )
    b = e.b
    row, number, step = place.row, 0, 1
    for size, own in zip(reversed(shape[:-1]), reversed(given[:-1]), strict=False):
        if own > 1:
            number, step = b.add(number, b.mul(b.rem(row, size), step)), step * own
        row = b.div(row, size)
    return repeat(e, source, replace(place, row=number, inside=False))


def repeat(e: Evaluator, source: SSAValue, place: Place) -> SSAValue:
    """`source` repeated along the dimensions in which it has one element."""
    rows, cols = rows_cols(source.type)
    row = 0 if rows == 1 else place.row
    col = 0 if cols == 1 else place.col
    if (rows, cols)[place.axis] == 1:
        one = e.at(source, replace(place, row=row, col=col, lanes=1, inside=False))
        return e.b.splat(one, place.lanes)
    return e.at(source, replace(place, row=row, col=col))


@evaluates(xt.BroadcastOp)
def broadcast(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    assert isinstance(op, xt.BroadcastOp)
    if op.broadcast_size is None:
        return repeat(e, op.source, place)
    place = replace(place, inside=False)
    rows, cols = rows_cols(op.source.type)
    result_rows, result_cols = rows_cols(op.result.type)
    b = e.b
    row_step, col_step = result_rows // rows, result_cols // cols

    def one(p: Place) -> SSAValue:
        return e.at(op.source, replace(p, row=b.div(p.row, row_step), col=b.div(p.col, col_step)))

    if (row_step, col_step)[place.axis] == 1:
        return e.at(
            op.source,
            replace(place, row=b.div(place.row, row_step), col=b.div(place.col, col_step)),
        )
    return e.by_lane(place, element_of(op.source.type), one)


@evaluates(xt.TransposeOp)
def transpose(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    assert isinstance(op, xt.TransposeOp)
    if op.permutation == (0, 1):
        return e.at(op.value, place)
    return e.at(
        op.value, replace(place, row=place.col, col=place.row, axis=1 - place.axis, inside=False)
    )


@evaluates(xt.ConvertLayoutOp)
def convert_layout(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    return e.at(op.operands[0], place)


@evaluates(UnrealizedConversionCastOp)
def conversion_cast(e: Evaluator, op: Operation, place: Place, result: int) -> SSAValue:
    return e.at(op.operands[result], place)


@evaluates(arith.BitcastOp)
def bitcast(e: Evaluator, op: Operation, place: Place, result: int) -> SSAValue:
    return e.elementwise(op, place, result)


@evaluates(xt.LoadTileOp)
def load_tile(e: Evaluator, op: Operation, place: Place, result: int) -> SSAValue:
    assert isinstance(op, xt.LoadTileOp)
    tile = e.values.tiles[e.values.real(op.tile)]
    assert isinstance(tile, Tile)
    if op.permutation == (1, 0):
        place = replace(place, row=place.col, col=place.row, axis=1 - place.axis, inside=False)
    if result:
        place = replace(place, inside=False)
        fast = 1 if op.tile_type.order == (1, 0) else 0
        step = tile.shape[fast] * result
        tile = tile.moved(e.b, 0, step) if fast == 1 else tile.moved(e.b, step, 0)
    return e.load(tile, place, op.padding_value)


@evaluates(xt.LoadGatherOp)
def load_gather(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    assert isinstance(op, xt.LoadGatherOp)
    tile = e.values.tiles[e.values.real(op.tile)]
    assert isinstance(tile, ScatteredTile)
    offsets, on = e.scattered(tile, op.mask, place)
    b = e.b
    type = lane_type(tile.element, place.lanes)
    if place.lanes == 1:
        assert e.values.spare is not None
        pointer = b.value(arith.SelectOp(on, b.ptr(tile.pointer, offsets), e.values.spare))
        return b.value(
            arith.SelectOp(on, b.load(pointer, type), b.constant(type, op.padding_value))
        )
    return b.value(mach.GatherOp(tile.pointer, offsets, on, b.constant(type, op.padding_value)))


@evaluates(more.ShapeCastOp)
def shape_cast(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    """Elements keep their row-major number."""
    source = op.operands[0]
    rows, cols = rows_cols(op.results[0].type)
    source_rows, source_cols = rows_cols(source.type)
    b = e.b
    if cols == source_cols:
        return e.at(source, place)
    if cols == 1 and source_rows == 1:
        return e.at(source, replace(place, row=0, col=place.row, axis=1, inside=False))
    if rows == 1 and source_cols == 1:
        return e.at(source, replace(place, row=place.col, col=0, axis=0, inside=False))

    def one(p: Place) -> SSAValue:
        number = b.add(b.mul(p.row, cols), p.col)
        return e.at(
            source, replace(p, row=b.div(number, source_cols), col=b.rem(number, source_cols))
        )

    return e.by_lane(place, element_of(source.type), one)


@evaluates(more.StepOp)
def step(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    """0, 1, 2, ... along a row."""
    b = e.b
    if place.lanes == 1:
        return b.idx(place.col)
    base = b.splat(b.idx(place.col), place.lanes)
    return b.value(arith.AddiOp(base, b.iota(place.lanes)))


@evaluates(
    *(arith.DivSIOp, arith.RemSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp),
    *(arith.DivUIOp, arith.RemUIOp, arith.CeilDivUIOp),
)
def division(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    x, y = (e.at(v, place) for v in op.operands)
    return divide(e.b, op, x, y, lambda x, y: e.clone(op, [x, y], place.lanes))


@evaluates(vector.FMAOp)
def fused_multiply_add(e: Evaluator, op: Operation, place: Place, _: int) -> SSAValue:
    a, x, c = (e.at(v, place) for v in op.operands)
    return e.b.value(math.FmaOp(a, x, c))
