"""A stand-in for an array, which records what is done with it (`trace.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.graph.affine import Affine, Extent, affine
from tilewright.graph.nodes import (
    GLOBAL,
    Access,
    Buffer,
    Combine,
    Entry,
    Index,
    Operand,
    TiledEdge,
)
from tilewright.graph.operations import OPERATIONS

if TYPE_CHECKING:
    from tilewright.graph.trace import Recorder


def _dim(number: int) -> str:
    return f"#{number}"


@dataclass(frozen=True, eq=False)
class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for an array: a Buffer under an access map in the placeholders #0, #1, ... of its dimensions.

    Its operators are numpy's ufuncs, comparisons included: what a graph lacks is refused by name.
    """

    recorder: Recorder
    buffer: str
    extents: tuple[Affine, ...]
    view: tuple[Entry, ...]
    dtype: DType

    __array_priority__ = 1000

    @staticmethod
    def of(recorder: Recorder, buffer: Buffer, around: int = 0) -> Traced:
        """A Buffer; of one made in a scan the part of the iteration at hand: its first ``around`` dimensions."""
        at = tuple(Index(affine(a.name)) for a in recorder.around[:around])
        view = tuple(Index(affine(_dim(i))) for i in range(len(buffer.shape) - around))
        return Traced(recorder, buffer.name, buffer.shape[around:], (*at, *view), buffer.dtype)

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.extents))}]"

    # What it is.

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents: numbers, and expressions where a symbol is in one."""
        return tuple(e if e.number is None else e.number for e in self.extents)

    @property
    def ndim(self) -> int:
        return len(self.extents)

    @property
    def is_plain(self) -> bool:
        """Is it its whole Buffer, as it stands in memory (in a scan: the part of the iteration at hand)?"""
        buffer, around = self.recorder.graph.buffers[self.buffer], len(self.recorder.around)
        for each in {0, around} if len(buffer.shape) >= around else {0}:
            own = Traced.of(self.recorder, buffer, each)
            if self.view == own.view and self.extents == own.extents:
                return True
        return False

    def at(self, positions: Sequence[Extent]) -> TiledEdge:
        """A load of the element at ``positions``."""
        values = {_dim(i): affine(p) for i, p in enumerate(positions)}
        return TiledEdge("load", Access(self.buffer, self.view).substitute(values))

    def copied(self) -> Traced:
        """The same elements in a Buffer of their own."""
        axes = self.recorder.axes(self.ndim)
        return self.recorder.add(
            "copy", [self.at(axes)], self.extents, range(self.ndim), self.dtype
        )

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> bool:
        raise CompileError(
            "a traced array has no truth value: its elements are not known yet",
            hint="np.where(condition, a, b) chooses per element",
        )

    def __iter__(self) -> Any:
        raise CompileError("a traced array cannot be iterated over", hint="index it: x[0], x[1]")

    # Arithmetic.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from tilewright.graph.functions import call_ufunc

        return call_ufunc(ufunc, method, inputs, options)

    def __getattr__(self, name: str) -> Any:
        """Methods of numpy's arrays that are functions of numpy: `x.clip(0, 1)` is `np.clip(x, 0, 1)`."""
        function = getattr(np, name, None)
        if name.startswith("_") or not hasattr(np.ndarray, name) or not callable(function):
            raise AttributeError(f"a traced array has no attribute {name!r}")
        return lambda *args, **kwargs: self.__array_function__(function, (), (self, *args), kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tilewright.graph.functions import call_function

        return call_function(function, args, kwargs)

    def astype(self, dtype: Any) -> Traced:
        """Converted to ``dtype``: a ``tw`` or numpy type."""
        wanted = dtype if isinstance(dtype, DType) else dtypes.from_numpy(dtype)
        if wanted is self.dtype:
            return self
        axes = self.recorder.axes(self.ndim)
        return self.recorder.add(
            "cast", [self.at(axes)], self.extents, range(self.ndim), wanted,
            attributes=(("dtype", wanted.name),),
        )  # fmt: skip

    # Reductions.

    def sum(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The sum along ``axis``: a number, several, or None for all; of whole numbers and masks in 64 bits."""
        return reduced("add", widened(self), axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The largest element along ``axis``."""
        return reduced("max", self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The smallest element along ``axis``."""
        return reduced("min", self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The product along ``axis``; of whole numbers and masks in 64 bits."""
        return reduced("mul", widened(self), axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The mean along ``axis``."""
        axes = normal_axes(axis, self.ndim)
        total = self.sum(axis, keepdims)
        for a in axes:
            total = total / self.extents[a]
        return total

    # Views.

    @property
    def T(self) -> Traced:
        return self.transpose()

    def transpose(self, *axes: Any) -> Traced:
        """With dimensions in another order, reversed by default."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = [int(a) % self.ndim for a in order] or list(range(self.ndim))[::-1]
        if sorted(order) != list(range(self.ndim)):
            raise CompileError(f"transpose to {order} of an array with {self.ndim} dimensions")
        values = {_dim(old): affine(_dim(new)) for new, old in enumerate(order)}
        return self.viewed(tuple(self.extents[old] for old in order), values)

    def swapaxes(self, a: int, b: int) -> Traced:
        """With two dimensions swapped."""
        order = list(range(self.ndim))
        order[a], order[b] = order[b], order[a]
        return self.transpose(order)

    def viewed(self, extents: tuple[Affine, ...], values: dict[str, Affine]) -> Traced:
        """The same Buffer with placeholders replaced."""
        view = Access(self.buffer, self.view).substitute(values).entries
        return replace(self, extents=extents, view=view)

    def reshape(self, *shape: Any) -> Traced:
        """Another shape of the same elements; one extent may be -1."""
        wanted = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        wanted = reshaped(self.extents, wanted)
        squeezed = [(i, e) for i, e in enumerate(self.extents) if e.number != 1]
        if [e for _, e in squeezed] == [e for e in wanted if e.number != 1]:
            values = {_dim(i): Affine() for i in range(self.ndim)}
            places = [i for i, e in enumerate(wanted) if e.number != 1]
            values |= {
                _dim(old): affine(_dim(new)) for (old, _), new in zip(squeezed, places, strict=True)
            }
            return self.viewed(tuple(wanted), values)
        base = self if self.is_plain else self.copied()
        graph = self.recorder.graph
        name = self.recorder.fresh(f"{base.buffer}_as")
        around = len(base.view) - base.ndim
        shape = (*graph.buffers[base.buffer].shape[:around], *wanted)
        alias = Buffer(name, GLOBAL, shape, self.dtype, "local", graph.memory(base.buffer))
        return Traced.of(self.recorder, graph.add(alias), around)

    def __getitem__(self, key: Any) -> Traced:
        from tilewright.graph.functions import index

        return index(self, key)


# `x += y` names another value, as for numbers: Buffers are written once.
for _sign in ("add", "sub", "mul", "truediv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(Traced, f"__i{_sign}__", getattr(Traced, f"__{_sign}__"))


def reshaped(old: Sequence[Affine], wanted: Sequence[Any]) -> list[Affine]:
    """The extents of a reshape; symbols must stay whole factors."""
    fixed = [None if isinstance(e, int) and e == -1 else affine(e) for e in wanted]

    def size(extents: Sequence[Affine]) -> tuple[int, list[str]]:
        names = [str(e) for e in extents if e.number is None]
        return prod(e.number for e in extents if e.number is not None), sorted(names)

    numbers, names = size(old)
    known, used = size([e for e in fixed if e is not None])
    if fixed.count(None) == 1:
        rest = list(names)
        for name in used:
            if name in rest:
                rest.remove(name)
        if known and numbers % known == 0 and len(rest) <= 1:
            factor = numbers // known
            symbol = next((e for e in old if str(e) == rest[0]), None) if rest else None
            fixed[fixed.index(None)] = affine(factor) if symbol is None else symbol * factor
    if None in fixed or size([e for e in fixed if e is not None]) != (numbers, names):
        scaled = [e for e in fixed if e is not None]
        if None in fixed or not _same_size(old, scaled):
            text = ", ".join(map(str, wanted))
            raise CompileError(
                f"reshape of [{', '.join(map(str, old))}] to [{text}]: the sizes differ"
            )
    return [e for e in fixed if e is not None]


def _same_size(a: Sequence[Affine], b: Sequence[Affine]) -> bool:
    """Do two shapes have as many elements, for some values of their symbols that no accident explains?"""
    names = sorted({n for e in (*a, *b) for n in e.names})
    values = {n: 1009 + 2 * i for i, n in enumerate(names)}
    return prod(e.value(values) for e in a) == prod(e.value(values) for e in b)


def normal_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """The numbers of the dimensions that `axis` names, ascending."""
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not -rank <= a < rank:
            raise CompileError(f"axis {a} of an array with {rank} dimensions")
    return tuple(sorted({a % rank for a in axes}))


def widened(x: Traced) -> Traced:
    """What numpy sums and multiplies instead of whole numbers and masks: numbers of 64 bits."""
    if x.dtype.is_float or x.dtype.itemsize == 8:
        return x
    return x.astype(dtypes.u64 if x.dtype.is_unsigned else dtypes.i64)


def reduced(combine: Combine, x: Traced, axis: Any, keepdims: bool = False) -> Traced:
    """The elements of ``x`` combined along ``axis``, in x's dtype; sums of whole numbers and masks in i32 at least."""
    axes = normal_axes(axis, x.ndim)
    if not axes:
        return x
    if x.dtype.is_bool and combine in ("max", "min"):
        return reduced(combine, x.astype(dtypes.i32), axis, keepdims).astype(dtypes.i1)
    names = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
    at = x.recorder.axes(x.ndim)
    kept = [i for i in range(x.ndim) if i not in axes]
    whole = combine in ("add", "mul") and not x.dtype.is_float
    dtype = dtypes.i32 if whole and x.dtype.itemsize < 4 else x.dtype
    x = x.astype(dtype)
    if combine in ("add", "mul") and any(x.extents[a].number == 0 for a in axes):
        extents = [x.extents[i] for i in kept]
        none = float(combine == "mul") if dtype.is_float else affine(int(combine == "mul"))
        made = x.recorder.add("copy", [none], extents, range(len(kept)), dtype, name=names[combine])
        return (
            made.reshape([1 if i in axes else e for i, e in enumerate(x.extents)])
            if keepdims
            else made
        )
    result = x.recorder.add(
        "copy", [x.at(at)], x.extents, kept, dtype, combine=combine, name=names[combine]
    )
    if not keepdims:
        return result
    return result.reshape([1 if i in axes else e for i, e in enumerate(x.extents)])


def elementwise(op: str, *operands: Any) -> Traced:
    """An elementwise operation on traced arrays, numbers and extents, which broadcast."""
    traced = [o for o in operands if isinstance(o, Traced)]
    recorder = traced[0].recorder
    for o in operands:
        if isinstance(o, np.ndarray) and o.ndim:
            raise CompileError(
                f"{op} of a traced array and a numpy array of shape {o.shape}",
                hint="pass the array as an argument of the function",
            )
        if not isinstance(o, (Traced, Affine, int, float, np.generic, np.ndarray)):
            raise CompileError(f"{op} of a traced array and {o!r}")
    dtype = result_dtype(op, operands)
    if op == "where" and dtype.is_bool:
        return _chosen(*operands)
    op = _OF_MASKS.get(op, op) if dtype.is_bool else op
    inner = computed_dtype(op, operands)  # whole numbers and masks become what is computed

    def fits(place: int, own: DType) -> bool:
        if op == "where":
            return place == 0 or not own.is_bool
        if len(traced) == 1:
            return own is inner
        return (own.is_float, own.is_bool) == (inner.is_float, inner.is_bool)

    operands = tuple(
        o.astype(inner) if isinstance(o, Traced) and not fits(i, o.dtype) else o
        for i, o in enumerate(operands)
    )
    extents = broadcast(op, [t.extents for t in traced])
    axes = recorder.axes(len(extents))
    parts: list[Operand] = []
    for o in operands:
        if isinstance(o, Traced):
            own = axes[len(extents) - o.ndim :]
            parts.append(
                o.at(
                    [Affine() if e.number == 1 else a for a, e in zip(own, o.extents, strict=True)]
                )
            )
        else:
            parts.append(o if isinstance(o, Affine) else _number(o))
    return recorder.add(op, parts, extents, range(len(extents)), dtype)


def where(condition: Traced, a: Any, b: Any) -> Traced:
    """Elements of ``a`` where the condition is true, else of ``b``: each an array or a number."""
    return elementwise("where", condition, a, b)


_OF_MASKS = {"add": "bitwise_or", "max": "bitwise_or", "mul": "bitwise_and", "min": "bitwise_and"}
"""What numpy takes arithmetic on masks for."""


def _chosen(condition: Traced, a: Any, b: Any) -> Traced:
    """One mask or another, either of which may be a number that is 0 or 1."""
    sides: list[Traced] = []
    for chosen, value in ((condition, a), (elementwise("invert", condition), b)):
        if isinstance(value, Traced):
            sides.append(elementwise("bitwise_and", chosen, value))
        elif value:
            sides.append(chosen)
    if not sides:
        return elementwise("ne", condition, condition)
    return sides[0] if len(sides) == 1 else elementwise("bitwise_or", *sides)


def _number(value: Any) -> Operand:
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    return affine(value) if isinstance(value, (bool, int)) else float(value)


def broadcast(op: str, shapes: Sequence[tuple[Affine, ...]]) -> tuple[Affine, ...]:
    """The extents of an elementwise result."""
    rank = max(map(len, shapes))
    result = [Affine((), 1)] * rank
    for shape in shapes:
        for place, extent in enumerate(shape, rank - len(shape)):
            if result[place].number == 1:
                result[place] = extent
            elif extent.number != 1 and extent != result[place]:
                texts = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
                raise CompileError(
                    f"{op} of {texts}: {result[place]} and {extent} do not broadcast"
                )
    return tuple(result)


def result_dtype(op: str, operands: Sequence[Any]) -> DType:
    """The element type of an elementwise result: numpy's, with numbers that widen nothing."""
    return dtypes.i1 if OPERATIONS[op].boolean else computed_dtype(op, operands)


def computed_dtype(op: str, operands: Sequence[Any]) -> DType:
    """The element type in which an elementwise operation is computed; of a comparison that of what is compared."""
    from tilewright.lang.promote import exact_in, promote

    values = operands[1:] if op == "where" else operands
    types = [o.dtype for o in values if isinstance(o, Traced)]
    if not types:
        if all(isinstance(v, (bool, np.bool_)) for v in values):
            return dtypes.i1
        return dtypes.f32 if any(isinstance(v, float) for v in values) else dtypes.i64
    result = types[0]
    for each in types[1:]:
        result = promote(result, each)
    compared = OPERATIONS[op].boolean and len(types) < len(values)
    whole = [v for v in values if type(v) is int]
    if result.is_bool and (compared or whole):
        result = dtypes.i64
    if compared and not (result.is_float or all(exact_in(v, result) for v in whole)):
        result = dtypes.i64
    floating = any(isinstance(v, (float, np.floating)) for v in values)
    widens = op in ("div", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid",
                    "sin", "cos", "atan")  # fmt: skip
    return dtypes.f32 if (floating or widens) and not result.is_float else result
