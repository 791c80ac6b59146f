"""What an op is to `row-fusion`: how many rows it has, and whether its elements depend on their own row only."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import UnrealizedConversionCastOp, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import ELEMENTS, numbered, positions_at_run_time, shape_of
from tilewright.passes.sums import positionwise

WRITES = (xt.StoreTileOp, xt.StoreScatterOp, xt.AtomicRmwOp)
LOADS = (xt.LoadTileOp, xt.LoadGatherOp)
FREE = (arith.ConstantOp, UnrealizedConversionCastOp, xt.ConvertLayoutOp)
ONE_ROW = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp, arith.CmpiOp)
"""Ops that cost no more than reading their results from memory, so that one row of them is made wherever it is used."""
SHARED_BY = 8
"""Rows that share a row of conversions: with so many, it is made once."""
SHARED_BYTES = 2 << 10
"""Of such a row, which stays in the first cache beside what its users keep there."""
MASKS = (arith.CmpiOp, arith.AndIOp)
COUNTING = (arith.AddiOp, arith.SubiOp, arith.IndexCastOp, *MASKS)
LONGEST_SUM = 8
"""Ops of a chain that is looked through."""
CASTS = ("vector.shape_cast", "vector.transpose")
MOVERS = (*CASTS, "vector.extract", "vector.extract_strided_slice")
"""Ops that cost nothing where their results are used."""


def rows_of(type: object) -> int:
    """Rows of a vector: the product of all dimensions but the last."""
    assert isinstance(type, VectorType)
    rows = 1
    for n in type.get_shape()[:-1]:
        rows *= n
    return rows


def columns_of(type: object) -> int:
    """Of a vector: its last dimension."""
    assert isinstance(type, VectorType)
    return (1, *type.get_shape())[-1]


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


def shared_row(op: Operation) -> bool | None:
    """Of one row of `ONE_ROW`: is it a short one of wider floats or integers that many rows are computed from? None for
    any other op."""
    result = op.results[0] if isinstance(op, ONE_ROW) else None
    if result is None or not isinstance(result.type, VectorType) or rows_of(result.type) != 1:
        return None
    if isinstance(op, arith.CmpiOp):
        return False
    size = prod(result.type.get_shape()) * result.type.element_type.size  # pyright: ignore
    rows = [rows_of(r.type) for use in result.uses for r in use.operation.results if is_tile(r)]
    return max(rows, default=0) >= SHARED_BY and size <= SHARED_BYTES


def is_position(value: SSAValue, depth: int = 0) -> bool:
    """Is a value a sum of index vectors and numbers, some of them one for each row, or a mask of such sums, which costs
    no more than reading it from memory?"""
    if not is_tile(value):
        return True
    op = value.owner
    if depth > LONGEST_SUM or not isinstance(op, Operation):
        return False
    if op.name == "vector.step" or isinstance(op, arith.ConstantOp):
        return True
    if isinstance(op, xt.BroadcastOp) and depth and columns_of(op.source.type) == 1:
        return True
    if isinstance(op, (*COUNTING, vector.BroadcastOp, xt.BroadcastOp)) or op.name in CASTS:
        return all(is_position(v, depth + 1) for v in op.operands)
    return False


def counts(op: Operation) -> bool:
    """Is what one of `COUNTING` gives made anew wherever it is asked for? Masks only where accesses of memory do so,
    which take counts instead: vectors of truth values, once per use, take longer than to read them."""
    (value,) = op.results
    return is_position(value) and (not isinstance(op, MASKS) or _only_masks(value))


def _only_masks(value: SSAValue) -> bool:
    """Is a value asked for only by accesses of memory, or by masks of such?"""
    asked = [value]
    for each in asked:  # each once, however often ways lead to it
        for op in {use.operation for use in each.uses}:
            if isinstance(op, (arith.AndIOp, xt.BroadcastOp)):
                asked += [r for r in op.results if r not in asked]
            elif not isinstance(op, (*LOADS, *WRITES)):
                return False
    return True


def is_mover(op: Operation) -> bool:
    """Does the result at a place need the operand at another row?"""
    if isinstance(op, xt.TransposeOp):
        return op.permutation != (0, 1)
    if isinstance(op, xt.BroadcastOp):
        return op.broadcast_size is not None or rows_of(op.source.type) != rows_of(op.result.type)
    if isinstance(op, vector.BroadcastOp):
        return is_tile(op.operands[0])
    return op.name in CASTS or (op.name in ELEMENTS and not keeps_rows(op))


def keeps_rows(op: Operation) -> bool:
    """Are all elements of row i of the results of a rearrangement in row i of operands?"""
    if positions_at_run_time(op):
        return False
    for result, numbers in zip(op.results, numbered(op), strict=True):
        first, rows = 0, rows_of(result.type) if is_tile(result) else 1
        numbers = numbers.reshape(rows, -1)
        for operand in op.operands:
            shape = shape_of(operand)
            size, columns = prod(shape), (*shape, 1)[max(0, len(shape) - 1)]
            own = (numbers >= first) & (numbers < first + size)
            if np.any(own & ((numbers - first) // columns != np.arange(rows)[:, None])):
                return False
            first += size
    return True


def moves(op: Operation) -> bool:
    """Does element [i, j] of the result, or of what is stored, need operands elsewhere than at [i, j], other than
    through a reduction or a repetition along row i?"""
    if isinstance(op, WRITES) or is_local_reduction(op):
        return False
    if isinstance(op, xt.BroadcastOp | xt.TransposeOp):
        return is_mover(op)
    return not positionwise(op)


def reduction_inputs(block: Block, ops: Sequence[Operation]) -> set[Operation]:
    """Gathers, and elementwise ops on loads, that only reductions down columns use: done where these are."""
    found: set[Operation] = set()
    for op in reversed(ops):
        gathers = isinstance(op, xt.LoadGatherOp)
        if not op.results or not is_tile(op.results[0]):
            continue
        if not (gathers or op.name.startswith("arith.")):
            continue
        users = {use.operation for r in op.results for use in r.uses}
        down = {u for u in users if isinstance(u, xt.ReductionOp) and not is_local_reduction(u)}
        if not users or not users <= down | found:
            continue
        if gathers or all(_from_loads(block, v, 0) for v in op.operands if is_tile(v)):
            found.add(op)
    return found


def _from_loads(block: Block, value: SSAValue, depth: int) -> bool:
    if not isinstance(value, OpResult) or value.op.parent is not block:
        return True
    op = value.op
    if isinstance(op, (*LOADS, arith.ConstantOp, vector.BroadcastOp)):
        return True
    if not op.name.startswith("arith.") and not isinstance(op, (*FREE, xt.BroadcastOp)):
        return False
    return depth < 8 and all(_from_loads(block, v, depth + 1) for v in op.operands if is_tile(v))
