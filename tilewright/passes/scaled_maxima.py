"""scaled maxima: the maximum of a tile times a positive constant is that constant times the maximum.

    %s = arith.mulf %x, %c                                %m = xetile.reduction <maximumf>, %x [1]
    %m = xetile.reduction <maximumf>, %s [1]       ->     %r = arith.mulf %m, %c'
    ... %s ...                                            %s = arith.mulf %x, %c
                                                          ... %s ...

Requires: nothing. Guarantees: the same values bit by bit: rounding keeps order, and a positive finite factor too. A
negative constant turns a maximum into a minimum, and the other way round.

The product may then be part of a multiply-add where it is used, and a tile is multiplied once less: scores
of which the maximum is subtracted.
"""

from __future__ import annotations

from math import isfinite

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.passes.neutral import splat

SWAPPED = {
    "maximumf": "minimumf",
    "minimumf": "maximumf",
    "maxnumf": "minnumf",
    "minnumf": "maxnumf",
}


def scale_maxima(function: gpu.FuncOp) -> int:
    """Rewrites one kernel; how many reductions changed."""
    count = 0
    for op in list(function.walk()):
        if isinstance(op, xt.ReductionOp) and op.kind in SWAPPED:
            product = op.source.owner
            if isinstance(product, arith.MulfOp):
                for tile, other in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
                    factor = _factor(other)
                    if factor:
                        _rewrite(op, product, tile, factor)
                        count += 1
                        break
    return count


def _factor(value: SSAValue) -> float | None:
    """The finite number that all elements of a tile are; None for other tiles."""
    number = splat(value)
    return number if isinstance(number, float) and isfinite(number) else None


def _rewrite(op: xt.ReductionOp, product: arith.MulfOp, tile: SSAValue, factor: float) -> None:
    block = op.parent
    assert block is not None and isinstance(op.result.type, VectorType)
    kind = op.kind if factor > 0 else SWAPPED[op.kind]
    reduced = xt.ReductionOp(kind, tile, op.dims, op.reduction_size)
    scale = arith.ConstantOp(_splat(op.result.type, factor), op.result.type)  # pyright: ignore
    scaled = arith.MulfOp(reduced.result, scale.result, product.fastmath)
    new: list[Operation] = [reduced, scale, scaled]
    for each in new:
        each.location = op.location  # pyright: ignore
        block.insert_op_before(each, op)
    scaled.result.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(scaled.result)
    op.detach()
    op.erase()


def _splat(type: Attribute, number: float) -> Attribute:
    return DenseIntOrFPElementsAttr.from_list(type, [number])  # pyright: ignore
