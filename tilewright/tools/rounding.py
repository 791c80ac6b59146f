"""How much a program's own sums may differ by the order in which they are made.

A sum of n terms in a type with steps of u differs by about u * sqrt(n) / 2 from one in another order, whatever type
the result has that is stored: a product that is accumulated in f16 and stored as f32 is no better than f16. Nor is a
product of what was summed in f32 and rounded to f16: where two orders lie on two sides of a step, they are one apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod, sqrt

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, MemRefType, ModuleOp, VectorType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tilewright import dtypes
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.effects import written
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import enclosing
from tilewright.frozen import frozen
from tilewright.passes.carried import operands_of, origins
from tilewright.passes.integers import Solver
from tilewright.passes.memory_objects import chosen_from, memory_roots

FLOAT32 = 16
"""Steps that float32 results are apart by what no sum shows: elementary functions, contractions."""
_PRODUCTS = (xetile.TileMmaOp, xegpu.DpasOp)
_REDUCTIONS = ("xetile.reduction", "vector.multi_reduction", "vector.reduction")
_NARROWING = (arith.TruncFOp, xegpu.TruncfOp)


@frozen
class Rounding:
    """What the sums of a program do to its results."""

    coarsest: float = 0.0
    """How far the results of its coarsest sum may be apart, relative to them."""

    def unit(self, dtype: dtypes.DType) -> float:
        """How far results of a type may be apart, relative to them."""
        own = step_of(dtype)
        return max(self.coarsest, own if dtype.mantissa_bits < 23 else own * FLOAT32)


def rounding_of(module: ModuleOp, iterations: int) -> Rounding:
    """Of what a program stores, whose loops run so many times where nobody knows better."""
    apart = _Apart(module, iterations)
    stored = {value: apart.of(value) for values in apart.stored.values() for value in values}
    return Rounding(max((u for v, u in stored.items() if u > _of(v.type)), default=0.0))


class _Apart(Solver[float]):
    """How far two runs of a program may be apart at a value, or at what an array or a tile holds, relative to it."""

    def __init__(self, module: ModuleOp, iterations: int) -> None:
        super().__init__(0.0)
        self.iterations = iterations
        self.stored: dict[SSAValue, list[SSAValue]] = defaultdict(list)
        """Of an array, the values that are stored there."""
        for op in module.walk():
            places = [root for place in written(op) for root in _arrays(place)]
            for value in op.operands if places else ():
                if _element(value.type) is not None and not isinstance(value.type, MemRefType):
                    for root in places:
                        self.stored[root].append(value)

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        if isinstance(value.type, MemRefType):
            return [v for root in memory_roots(value) for v in self.stored.get(root, ())]
        return chosen_from(value) or operands_of(value)

    def fact(self, value: SSAValue) -> float:
        given = max((self.known.get(v, 0.0) for v in self.sources(value)), default=0.0)
        if (element := _element(value.type)) is None:
            return 0.0 if isinstance(_inner(value.type), IntegerType | IndexType) else given
        op = value.owner.parent_op() if isinstance(value, BlockArgument) else value.owner
        if isinstance(op, _NARROWING) and given:
            return max(given, step_of(element))
        return max(given, self._own(op, value.type)) if isinstance(op, Operation) else given

    def joined(self, a: float, b: float) -> float:
        return max(a, b)

    def _own(self, op: Operation, type: Attribute) -> float:
        """What an op itself adds to that: a sum by its order, other ops where they are contracted or approximate."""
        if isinstance(op, scf.ForOp):
            return _of(type, self.iterations)
        if isinstance(op, _PRODUCTS):
            depth = prod(shape_of(op.operands[0])[1:])
            return _of(
                type, depth * (self.iterations if enclosing(op, scf.ForOp, scf.WhileOp) else 1)
            )
        if op.name in _REDUCTIONS:
            given, left = (prod(shape_of(v)) for v in (op.operands[0], op.results[0]))
            return _of(type, given // max(1, left))
        flags = op.properties.get("fastmath")
        free = isinstance(flags, arith.FastMathFlagsAttr) and flags.data
        return _of(type) if free or op.name.startswith("math.") else 0.0


def _arrays(place: SSAValue) -> list[SSAValue]:
    """The roots of the arrays that a memref, a tile or a descriptor is of."""

    def step(value: SSAValue) -> Sequence[SSAValue]:
        if isinstance(value.type, MemRefType):
            return ()
        return chosen_from(value) or operands_of(value)[:1]

    found = origins([place], step)
    return [r for v in found if isinstance(v.type, MemRefType) for r in memory_roots(v)]


def _element(type: Attribute) -> dtypes.DType | None:
    """The type of a value's elements, where that is a float."""
    element = _inner(type)
    return dtypes.from_mlir(element) if isinstance(element, AnyFloat) else None


def _inner(type: Attribute) -> Attribute:
    return type.element_type if isinstance(type, VectorType) else type


def _of(type: Attribute, terms: int = 1) -> float:
    element = _element(type)
    return 0.0 if element is None else step_of(element) * max(1.0, sqrt(terms) / 2)


def step_of(dtype: dtypes.DType) -> float:
    """From 1 to the next number of a type."""
    return 2.0**-dtype.mantissa_bits
