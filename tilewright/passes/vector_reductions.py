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
        if not isinstance(op, MultiReductionOp):
            continue
        at, shape, dims = Before(op), shape_of(op.source), op.dims
        kept = [d for d in range(len(shape)) if d not in dims]
        source = at.transpose(op.source, [*kept, *dims])
        rows = prod(shape[d] for d in kept)
        matrix = at.cast(source, (rows, prod(shape[d] for d in dims)))
        reduced = at.add(xt.ReductionOp(op.kind, matrix, [1], None))
        if isinstance(op.acc.type, VectorType):
            found = at.cast(reduced, shape_of(op.acc))
        else:
            found = at.add(vector.ExtractOp(reduced, [0, 0], op.acc.type))  # pyright: ignore
        at.replace(at.add(combining(op.kind, op.acc, found)))
