"""The meaning of every op on tiles, as elements at a place (see `evaluate`): one rule per op."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, UnrealizedConversionCastOp
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import lane_type
from tilewright.codegen.divisions import divide
from tilewright.codegen.tiles import ScatteredTile, Tile, element_of
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream import vector as more
from tilewright.targets.cpu.evaluate import Evaluator, Position, evaluates
from tilewright.targets.cpu.positions import run_at
from tilewright.targets.cpu.turned import read_block


@evaluates(arith.ConstantOp)
def constant(e: Evaluator, op: arith.ConstantOp, place: Position, _: int) -> SSAValue:
    value = op.value
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise unsupported(op, "a tile constant is a dense attribute")
    type = lane_type(element_of(op.result.type), place.lanes)
    if value.is_splat():
        return e.b.constant(type, value.get_values()[0])  # pyright: ignore
    raise AssertionError("constants of several values are written to a buffer first")


@evaluates(UnrealizedConversionCastOp)
def conversion_cast(e: Evaluator, op: Operation, place: Position, result: int) -> SSAValue:
    return e.at(op.operands[result], place)


@evaluates(arith.BitcastOp)
def bitcast(e: Evaluator, op: Operation, place: Position, result: int) -> SSAValue:
    return e.elementwise(op, place, result)


@evaluates(xt.LoadTileOp)
def load_tile(e: Evaluator, op: xt.LoadTileOp, place: Position, result: int) -> SSAValue:
    tile = e.values.tile(op.tile)
    assert isinstance(tile, Tile)
    if result:
        place = replace(place, inside=False)
        fast = 1 if op.tile_type.order == (1, 0) else 0
        step = tile.shape[fast] * result
        tile = tile.moved(e.b, 0, step) if fast == 1 else tile.moved(e.b, step, 0)
    elif (made := read_block(e, op.results[0], tile, place, op.padding_value)) is not None:
        return made
    if e.values.real(op.results[result]) in e.whole:
        place = replace(place, inside=True)
    return e.load(tile, place, op.padding_value)


@evaluates(xt.LoadGatherOp)
def load_gather(e: Evaluator, op: xt.LoadGatherOp, place: Position, _: int) -> SSAValue:
    run = run_at(e, op, place)
    if run is not None:
        return e.load(*run[:2], op.padding_value, run[2])
    tile = e.values.tile(op.tile)
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


@evaluates(more.StepOp)
def step(e: Evaluator, op: Operation, place: Position, _: int) -> SSAValue:
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
def division(e: Evaluator, op: Operation, place: Position, _: int) -> SSAValue:
    x, y = (e.at(v, place) for v in op.operands)
    return divide(e.b, op, x, y, lambda x, y: e.clone(op, [x, y], place.lanes))


@evaluates(vector.FMAOp)
def fused_multiply_add(e: Evaluator, op: Operation, place: Position, _: int) -> SSAValue:
    a, x, c = (e.at(v, place) for v in op.operands)
    return e.b.value(math.FmaOp(a, x, c))
