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
from xdsl.ir import SSAValue

from tilewright.dialects import xetile as xt
from tilewright.passes.emit import Before
from tilewright.passes.fold_identities import splat

SWAPPED = {
    "maximumf": "minimumf",
    "minimumf": "maximumf",
    "maxnumf": "minnumf",
    "minnumf": "maxnumf",
}


def scale_maxima(function: gpu.FuncOp) -> int:
    """Moves a positive scale out of a maximum: max(s x) = s max(x). Returns how many reductions changed."""
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
    at = Before(op)
    kind = op.kind if factor > 0 else SWAPPED[op.kind]
    reduced = at.add(xt.ReductionOp(kind, tile, op.dims, op.reduction_size))
    scale = at.constant(op.result.type, factor)
    at.replace(at.add(arith.MulfOp(reduced, scale, product.fastmath)))
