"""How much a program's own sums may differ by the order in which they are made.

A sum of n terms in a type with steps of u differs by about u * sqrt(n) / 2 from one in another order, whatever type
the result has that is stored: a product that is accumulated in f16 and stored as f32 is no better than f16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt

from xdsl.dialects import scf
from xdsl.dialects.builtin import AnyFloat, ModuleOp, VectorType
from xdsl.ir import Attribute, Operation

from tilewright import dtypes
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import enclosing

FLOAT32 = 16
"""Steps that float32 results are apart by what no sum shows: elementary functions, contractions."""
_PRODUCTS = (xetile.TileMmaOp, xegpu.DpasOp)
_REDUCTIONS = ("xetile.reduction", "vector.multi_reduction", "vector.reduction")


@dataclass(frozen=True)
class Rounding:
    """What the sums of a program do to its results."""

    coarsest: float = 0.0
    """How far the results of its coarsest sum may be apart, relative to them."""

    def unit(self, dtype: dtypes.DType) -> float:
        """How far results of a type may be apart, relative to them."""
        own = _step(dtype)
        return max(self.coarsest, own if dtype.mantissa_bits < 23 else own * FLOAT32)


def rounding_of(module: ModuleOp, iterations: int) -> Rounding:
    """Of the sums of a program, whose loops run so many times where nobody knows better."""
    return Rounding(max((u for op in module.walk() for u in _sums(op, iterations)), default=0.0))


def _sums(op: Operation, iterations: int) -> Iterator[float]:
    """The steps of the sums that an op makes."""
    if isinstance(op, scf.ForOp):
        yield from (_of(v.type, iterations) for v in op.iter_args)
    elif isinstance(op, _PRODUCTS):
        depth = prod(shape_of(op.operands[0])[1:])
        yield _of(
            op.results[0].type, depth * (iterations if enclosing(op, scf.ForOp, scf.WhileOp) else 1)
        )
    elif op.name in _REDUCTIONS:
        given, left = (prod(shape_of(v)) for v in (op.operands[0], op.results[0]))
        yield _of(op.results[0].type, given // max(1, left))


def _of(type: Attribute, terms: int) -> float:
    element = type.element_type if isinstance(type, VectorType) else type
    if not isinstance(element, AnyFloat):
        return 0.0
    return _step(dtypes.from_mlir(element)) * max(1.0, sqrt(terms) / 2)


def _step(dtype: dtypes.DType) -> float:
    return 2.0**-dtype.mantissa_bits
