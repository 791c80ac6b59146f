"""What an op is to `strips`: how many rows it has, and whether its elements depend on their own row only."""

from __future__ import annotations

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import UnrealizedConversionCastOp, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.passes.sums import positionwise

WRITES = (xt.StoreTileOp, xt.StoreScatterOp, xt.AtomicRmwOp)
LOADS = (xt.LoadTileOp, xt.LoadGatherOp)
FREE = (arith.ConstantOp, UnrealizedConversionCastOp, xt.ConvertLayoutOp)
MOVERS = ("vector.shape_cast", "vector.transpose")


def rows_of(type: object) -> int:
    """Rows of a vector: the product of all dimensions but the last."""
    assert isinstance(type, VectorType)
    rows = 1
    for n in type.get_shape()[:-1]:
        rows *= n
    return rows


def is_tile(value: SSAValue) -> bool:
    return isinstance(value.type, VectorType)


def is_local_reduction(op: Operation) -> bool:
    """Combines elements of one row only."""
    if not isinstance(op, xt.ReductionOp):
        return False
    shape = op.source.type.get_shape()  # pyright: ignore
    if all((op.reduction_size or shape[d]) == 1 for d in op.dims):
        return True
    return op.dims == (1,) and op.reduction_size is None and len(shape) == 2


def is_mover(op: Operation) -> bool:
    """Does the result at a place need the operand at another row?"""
    if isinstance(op, xt.TransposeOp):
        return op.permutation != (0, 1)
    if isinstance(op, xt.BroadcastOp):
        return op.broadcast_size is not None or rows_of(op.source.type) != rows_of(op.result.type)
    if isinstance(op, vector.BroadcastOp):
        return is_tile(op.operands[0])
    return op.name in MOVERS


def moves(op: Operation) -> bool:
    """Does element [i, j] of the result, or of what is stored, need operands elsewhere than at [i, j], other than
    through a reduction or a repetition along row i?"""
    if isinstance(op, WRITES) or is_local_reduction(op):
        return False
    if isinstance(op, xt.BroadcastOp | xt.TransposeOp):
        return is_mover(op)
    return not positionwise(op)
