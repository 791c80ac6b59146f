"""Slices of values on tiles: elements of the source, further along (see `evaluate`)."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import vector
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.targets.cpu.evaluate import Evaluator, Place, evaluates
from tilewright.targets.cpu.memory import element_of, rows_cols


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
