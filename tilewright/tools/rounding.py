"""How far two right runs of a program may be apart at its results, by where and how coarsely it rounds.

A sum of n terms in a type with steps of u differs by about u * sqrt(n) / 4 from one in another order, whatever type
the result has that is stored: a product that is accumulated in f16 and stored as f32 is no better than f16. This is
relative to what the sum is made up of, which may be much more than what is left of it. What is rounded last, before it
is stored, is another matter: where two sums lie on two sides of a step of bf16, the results are one step of theirs
apart, however many terms there were. What was rounded before it is summed again, as the weights of an attention are, is
something of both: of its steps only few are taken, on both sides of the right sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
    IntegerType,
    MemRefType,
    ModuleOp,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright import dtypes
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.effects import written
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.upstream.combining import kind_of
from tilewright.frozen import frozen
from tilewright.passes.carried import LOOPS, operands_of, origins
from tilewright.passes.integers import Solver
from tilewright.passes.memory_objects import chosen_from, memory_roots

FLOAT32 = 16
"""Steps of float32 that results are apart by what no sum shows: elementary functions, contractions."""
MARGIN = 4.0
"""An element's error is at most so many times the one that is expected of one."""
NEAR = 4
"""What a row or column holds so many places around an element is as large as what it may be made up of."""
_PRODUCTS = (xetile.TileMmaOp, xegpu.DpasOp)
_REDUCTIONS = ("xetile.reduction", "vector.multi_reduction", "vector.reduction")
_NARROWING = (arith.TruncFOp, xegpu.TruncfOp)
_WHOLE = (
    *("arith.fptosi", "arith.fptoui", "math.floor", "math.ceil", "math.trunc"),
    *("math.round", "math.roundeven"),
)
WHOLE = 128
"""How large what is rounded to whole numbers is taken to be."""
_KEEPING = (
    *("arith.extf", "arith.select", "arith.negf", "math.absf"),
    *("arith.extsi", "arith.extui", "arith.trunci"),
    *("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"),
)
"""Arithmetic whose results are elements of its operands."""


@frozen
class Rounding:
    """How far two runs may be apart at a value."""

    terms: float = 0.0
    """Relative to what the value is made up of."""
    step: dtypes.DType | None = None
    """The coarsest type that it was rounded to since: they may be a step of it apart."""
    whole: bool = False
    """Whether something was rounded to a whole number on the way: to another one, in few elements."""

    def __or__(self, other: Rounding) -> Rounding:
        """Of what is one or the other."""
        steps = [s for s in (self.step, other.step) if s is not None]
        step = max(steps, key=step_of, default=None)
        return Rounding(max(self.terms, other.terms), step, self.whole or other.whole)

    def bound(
        self, dtype: dtypes.DType, right: np.ndarray[Any, Any], terms: np.ndarray[Any, Any] | None
    ) -> np.ndarray[Any, Any]:
        """How far each element may be off. `terms`: how large what it is made up of is, where that is known.

        No element is taken to be made up of less than those around it: a function that levels off follows no input.
        What f32 loses on the way is held against all of them: where zeros come of a rotation, that is all there is.
        """
        size = np.abs(right) if terms is None else np.maximum(np.abs(right), terms)
        size = np.maximum(size, _around(size))
        least = FLOAT32 * step_of(dtype if dtype.mantissa_bits > 23 else dtypes.f32)
        mean = float(np.linalg.norm(right)) / max(right.size, 1) ** 0.5
        found = MARGIN * np.maximum(self.terms * size, least * np.maximum(size, mean))
        coarsest = (self | Rounding(step=dtype)).step if dtype.mantissa_bits < 23 else self.step
        return found if coarsest is None else found + _spacing(coarsest, right)

    def flips(self, size: int) -> float:
        """How many of so many elements may have become another whole number: those that lay beside the border."""
        terms = max(self.terms, FLOAT32 * step_of(dtypes.f32))
        return 1 + MARGIN * terms * WHOLE * size if self.whole else 0


EXACT = Rounding()
"""Two runs give the same."""


def _spacing(dtype: dtypes.DType, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The step of a type at each of these, at most."""
    least = float(ml_dtypes.finfo(dtype.numpy).smallest_normal)
    return step_of(dtype) * np.maximum(np.abs(values), least)


def _around(size: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The mean square of what lies around each element in its last two dimensions, rooted."""
    square = size.astype(np.float64) ** 2
    for axis in range(max(0, size.ndim - 2), size.ndim):
        total = np.insert(np.cumsum(square, axis), 0, 0.0, axis)
        at = np.arange(size.shape[axis])
        first, last = np.maximum(at - NEAR, 0), np.minimum(at + NEAR + 1, len(at))
        count = (last - first).reshape(-1, *[1] * (size.ndim - 1 - axis))
        square = (total.take(last, axis) - total.take(first, axis)) / count
    return np.sqrt(np.maximum(square, 0.0))


def roundings_of(module: ModuleOp, iterations: int) -> Sequence[Rounding]:
    """Of what each argument of a module's kernel holds in the end. Loops run so often where nobody knows better."""
    apart = _Apart(module, iterations)
    kernel = next((op for op in module.walk() if isinstance(op, gpu.FuncOp)), None)
    if kernel is None:
        return ()
    return [apart.of(argument) for argument in kernel.body.blocks[0].args]


class _Apart(Solver[Rounding]):
    """How far two runs of a program may be apart at a value, or at what an array or a tile holds."""

    def __init__(self, module: ModuleOp, iterations: int) -> None:
        super().__init__(EXACT)
        self.iterations = iterations
        self.stored: dict[SSAValue, list[SSAValue]] = defaultdict(list)
        """Of an array, the values that are stored there."""
        self.added: set[SSAValue] = set()
        """Arrays whose elements are combined with what comes, in any order."""
        for op in module.walk():
            places = [root for place in written(op) for root in _arrays(place)]
            if "atomic" in op.name:
                self.added.update(places)
            for value in op.operands if places else ():
                if _is_number(_inner(value.type)):
                    for root in places:
                        self.stored[root].append(value)

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        if isinstance(value.type, MemRefType):
            return [v for root in memory_roots(value) for v in self.stored.get(root, ())]
        return chosen_from(value) or operands_of(value)

    def fact(self, value: SSAValue) -> Rounding:
        given = EXACT
        for source in self.sources(value):
            given |= self.known.get(source, EXACT)
        inner, op = _inner(value.type), value.owner
        op = op.parent_op() if isinstance(op, Block) else op
        if isinstance(inner, IndexType) or inner == i1:  # places, and decisions
            return EXACT
        if isinstance(op, _NARROWING) or (isinstance(op, Operation) and op.name in _WHOLE):
            whole = op.name in _WHOLE
            step = Rounding(step=dtypes.from_mlir(inner), whole=whole)
            return given if given == EXACT else given | step
        if isinstance(value.type, MemRefType) and not self.added.isdisjoint(memory_roots(value)):
            return given | Rounding(_of(value.type.element_type, self.iterations))
        if isinstance(op, scf.ForOp):
            return given | Rounding(_of(value.type, self.iterations))
        if isinstance(op, Operation) and _computes(op):
            return self._computed(op, value.type, given)
        return given

    def joined(self, a: Rounding, b: Rounding) -> Rounding:
        return a | b

    def _computed(self, op: Operation, type: Attribute, given: Rounding) -> Rounding:
        """What an op makes of what was rounded before, and adds to it: a sum by its order, other ops where they are
        contracted or approximate."""
        floats = given.step is not None and given.step.is_float
        before = step_of(given.step) if floats else 0.0  # pyright: ignore
        step = None
        if isinstance(op, _PRODUCTS):
            depth = prod(shape_of(op.operands[0])[1:])
            often = self.iterations if enclosing(op, *LOOPS) else 1
            before, own = before / 2, _of(type, depth * often)
        elif op.name in _REDUCTIONS:
            whole, left = (prod(shape_of(v)) for v in (op.operands[0], op.results[0]))
            before, own = before / 2, _of(type, whole // max(1, left))
        else:
            flags = op.properties.get("fastmath")
            free = isinstance(flags, arith.FastMathFlagsAttr) and flags.data
            step = _element(type) if free or op.name.startswith("math.") or given != EXACT else None
            own = _of(type) if step is not None and step.mantissa_bits >= 23 else 0.0
        return Rounding(max(given.terms, before, own), step, given.whole)


def _computes(op: Operation) -> bool:
    """Whether a result is more than elements of operands."""
    if op.name in _REDUCTIONS:
        return kind_of(op) in ("add", "mul")
    if isinstance(op, _PRODUCTS):
        return True
    return op.name.startswith(("arith.", "math.")) and op.name not in _KEEPING


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


def _is_number(inner: Attribute) -> bool:
    return isinstance(inner, AnyFloat) or (isinstance(inner, IntegerType) and inner != i1)


def _inner(type: Attribute) -> Attribute:
    return type.element_type if isinstance(type, VectorType) else type


def _of(type: Attribute, terms: int = 1) -> float:
    element = _element(type)
    return 0.0 if element is None else step_of(element) * max(1.0, sqrt(terms) / 4)


def step_of(dtype: dtypes.DType) -> float:
    """From 1 to the next number of a type."""
    return 2.0**-dtype.mantissa_bits if dtype.is_float else 1.0
