"""vector's reductions of whole tiles, as the tile language has them.

    %s = vector.multi_reduction <add>, %v, %acc [0, 2]        %t = vector.transpose %v, [1, 0, 2]
        : vector<4x8x2xf32> to vector<8xf32>             ->   %m = vector.shape_cast %t : .. to vector<8x8xf32>
                                                              %r = xetile.reduction <add>, %m [1] : .. -> ..
                                                              %f = vector.shape_cast %r : .. to vector<8xf32>
                                                              %s = arith.addf %acc, %f

Guarantees: no vector.reduction and no vector.multi_reduction is left.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.combining import combining, neutral
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.passes.emit import Before, shape_of
from tilewright.passes.fold_identities import splat


def reductions_alike(kernel: Operation) -> None:
    """vector.reduction is the multi_reduction of one dimension, whose rules it then has."""
    for op in list(kernel.walk()):
        if not isinstance(op, vector.ReductionOp):
            continue
        at, kind, type, acc = Before(op), op.kind.data.value, op.dest.type, op.acc
        if acc is None:
            acc = at.constant(type, neutral(kind, type))
        at.replace(at.add(MultiReductionOp(kind, op.vector, acc, [0])))


def reductions_of_tiles(kernel: Operation) -> None:
    """Makes reductions of tiles of vector's, whatever dimensions they reduce."""
    reductions_alike(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, MultiReductionOp):
            reduction_of_tile(op)


def reduction_of_tile(op: MultiReductionOp) -> None:
    """XeTile reduces one dimension of two, keeps it as 1, and has no accumulator.

    Other ranks are seen as two: what is kept, and what is reduced; dimensions in between move last.
    """
    source, result = op.source, op.dest.type
    shape, reduced = shape_of(source), sorted(op.dims)
    kept = [d for d in range(len(shape)) if d not in reduced]
    at = Before(op)
    rows, columns = (prod(shape[d] for d in dims) for dims in (kept, reduced))
    if [*reduced, *kept] == list(range(len(shape))) and kept:
        plane, dim = at.cast(source, (columns, rows)), 0
    else:
        plane, dim = at.cast(at.transpose(source, (*kept, *reduced)), (rows, columns)), 1
    value = at.add(xt.ReductionOp(op.kind, plane, [dim]))
    if isinstance(result, VectorType):
        value = at.cast(value, result.get_shape())
    else:
        value = at.add(vector.ExtractOp(value, [0, 0], result))
    element = result.element_type if isinstance(result, VectorType) else result
    if splat(op.acc) != neutral(op.kind, element):
        value = at.add(combining(op.kind, op.acc, value))
    at.replace(value)
