"""What ops that only rearrange do: to elements, and to who owns them. One entry for each op, which all readers apply.

`moved(op, *operands)` is the op in numpy. Applied to values it is the op's meaning; applied to numbers of elements,
registers or bytes it says of which element each element of the results is a copy:

    numbers of %v : vector<2x3xf32>        moved(vector.transpose %v, [1, 0])
    [[0, 1, 2], [3, 4, 5]]                 [[0, 3], [1, 4], [2, 5]]

Arrays have the shapes of the operands' types; axes before those are batches (the rows of the reference executor), of
equal extents for all operands. Scalars are arrays of no axes. Positions known only at run time are operands too.

The other half says which layouts keep every element with its owner: that of the result, given the operand's, and that
of the operands, given the result's. An op without such a rule, or whose rule raises LayoutError, moves elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import gcd
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.layout import BoundMap, Layout, LayoutError

Array = NDArray[Any]
Elements = Callable[..., Array | tuple[Array, ...]]
L = TypeVar("L", Layout, BoundMap)
"""Who owns what: in the normal form, or as text says it."""
Change = Callable[[Operation, Any], Any]

ELEMENTS: dict[str, Elements] = {}
"""What the ops that only rearrange do to elements."""
LAYOUTS: dict[str, tuple[Change | None, Change | None]] = {}
"""For ops, those of `ELEMENTS` and bitcasts: the layout of the results, given that of the operands; and the reverse."""


BROADCASTS = ("vector.broadcast", "xetile.broadcast")
"""Those of them that repeat."""


def moves(
    *names: str, result: Change | None = None, operand: Change | None = None
) -> Callable[[Elements], Elements]:
    """Decorator: the function is what the ops called `names` do to elements."""

    def register(elements: Elements) -> Elements:
        ELEMENTS.update(dict.fromkeys(names, elements))
        LAYOUTS.update(dict.fromkeys(names, (result, operand)))
        return elements

    return register


def moved(op: Operation, *operands: Array) -> tuple[Array, ...]:
    """The op applied to arrays: one array for each result. KeyError for an op that does not rearrange."""
    made = ELEMENTS[op.name](op, *operands)
    return made if isinstance(made, tuple) else (made,)


def numbered(op: Operation, at: Sequence[int] = ()) -> tuple[Array, ...]:
    """For each result the number of the element that each of its elements copies: those of the first operand come
    first, row-major, then those of the next. Positions that are known only at run time are `at`, else 0."""
    start, numbers, given = 0, list[Array](), iter(at)
    for value in op.operands:
        if value in positions_at_run_time(op):
            numbers.append(np.asarray(next(given, 0)))
            continue
        shape = shape_of(value)
        size = int(np.prod(shape, dtype=np.int64))
        numbers.append(np.arange(start, start + size).reshape(shape))
        start += size
    return moved(op, *numbers)


def kept_dimensions(op: Operation) -> tuple[dict[int, int], tuple[set[int], set[int]]]:
    """How the dimensions of an op's one operand go on in its one result: {operand's: result's} along which elements, or
    runs of them where one is longer, keep their number; and the others of either along which elements differ, but for
    repetitions."""
    shape, result = shape_of(op.operands[0]), shape_of(op.results[0])
    kept: dict[int, int] = {}
    varying: set[int] = set()
    for dim, extent in enumerate(shape):
        (coordinate,) = moved(op, np.broadcast_to(_along(dim, shape), shape))
        for after in range(len(result)):
            if not np.array_equal(
                coordinate, coordinate.take([0], after).repeat(result[after], after)
            ):
                varying.add(after)
                line = np.broadcast_to(_along(after, result), result)
                runs = gcd(extent, result[after])
                numbers = coordinate // (extent // runs), line // (result[after] // runs)
                if runs == min(extent, result[after]) and np.array_equal(*numbers):
                    kept[dim] = after
    return kept, ({d for d, n in enumerate(shape) if n > 1} - {*kept}, varying - {*kept.values()})


def _along(dim: int, shape: Sequence[int]) -> Array:
    """The coordinates in one dimension, to be repeated to a shape."""
    return np.arange(shape[dim]).reshape(-1, *[1] * (len(shape) - dim - 1))


def result_layout(op: Operation, layout: L) -> L:
    """The layout of the results with which nothing moves, given that of the operands; LayoutError where none is."""
    return _changed(op, LAYOUTS[op.name][0], layout)


def operand_layout(op: Operation, layout: L) -> L:
    """The layout of the operands with which nothing moves, given that of a result; LayoutError where none is."""
    return _changed(op, LAYOUTS[op.name][1], layout)


def _changed(op: Operation, change: Change | None, layout: L) -> L:
    if change is None:
        raise LayoutError(f"{op.name} moves elements")
    return change(op, layout)


# Attributes ---------------------------------------------------------------------------------------


def shape_of_type(type: Attribute) -> tuple[int, ...]:
    """The extents of a vector's type; none of a scalar's."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The extents of a vector; none of a scalar."""
    return shape_of_type(value.type)


def is_vector(value: SSAValue) -> bool:
    return isinstance(value.type, VectorType)


def vector_type(value: SSAValue) -> VectorType:
    """The type of a value that is a vector."""
    assert isinstance(value.type, VectorType)
    return value.type


def memref_type(value: SSAValue) -> MemRefType:
    """The type of a value that is a memref."""
    assert isinstance(value.type, MemRefType)
    return value.type


def integers(op: Operation, name: str) -> list[int]:
    """A property that lists integers, in whichever form it has."""
    found = op.properties[name]
    if isinstance(found, DenseArrayBase):
        return [int(v) for v in found.get_values()]
    assert isinstance(found, ArrayAttr)
    return [a.value.data for a in found.data if isinstance(a, IntegerAttr)]


def static_position(op: Operation) -> tuple[int, ...]:
    """Where `vector.extract` and `vector.insert` read or write; DYNAMIC_INDEX where an operand says it."""
    return tuple(integers(op, "static_position"))


def positions_at_run_time(op: Operation) -> Sequence[SSAValue]:
    """The operands that are parts of a position; none of an op without."""
    if "static_position" not in op.properties:
        return ()
    return op.operands[len(op.operands) - static_position(op).count(DYNAMIC_INDEX) :]


def positions(shape: Sequence[int], at: Sequence[int]) -> list[tuple[int, ...]]:
    """All positions that one may be whose DYNAMIC_INDEX entries run over their dimensions."""
    ranges = [range(n) if x == DYNAMIC_INDEX else (x,) for n, x in zip(shape, at, strict=False)]
    return list(product(*ranges))


def box(op: Operation, sizes: Sequence[int]) -> tuple[slice, ...]:
    """What a strided slice selects in the dimensions that `offsets` lists, given its extents there."""
    strides = [*integers(op, "strides")]
    strides = [1] * (len(sizes) - len(strides)) + strides
    return tuple(
        slice(o, o + (n - 1) * s + 1, s)
        for o, n, s in zip(integers(op, "offsets"), sizes, strides, strict=True)
    )


def _batches(array: Array, value: SSAValue) -> int:
    return array.ndim - len(shape_of(value))


def _at(op: Operation, array: Array, value: SSAValue, dynamic: Sequence[Array]) -> tuple[Any, ...]:
    """An index of `array`, whose value is `value`, for the position of an op."""
    batches = _batches(array, value)
    if not dynamic:
        return (*[slice(None)] * batches, *static_position(op))
    given = iter(dynamic)
    rows = np.ix_(*(np.arange(n) for n in array.shape[:batches]))
    return (*rows, *(next(given) if x == DYNAMIC_INDEX else x for x in static_position(op)))


# Whole values -------------------------------------------------------------------------------------


def _broadcast_operand(op: Operation, layout: L) -> L:
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    lead = len(result) - len(source)
    for dim, n in enumerate(source, lead):
        if n != result[dim]:
            layout = layout.contracted(dim, min(result[dim] // n, layout.shape[dim]))
    return layout.sliced(*range(lead))


def _broadcast_result(op: Operation, layout: L) -> L:
    shape = shape_of(op.results[0])
    layout = layout.reshaped([1] * (len(shape) - layout.rank) + [*layout.shape])
    for dim, (n, m) in enumerate(zip(shape, layout.shape, strict=True)):
        if n != m:
            layout = layout.expanded(dim, n // m)
    return layout


@moves("vector.broadcast", result=_broadcast_result, operand=_broadcast_operand)
def broadcast(op: Operation, a: Array) -> Array:
    shape, own = shape_of(op.results[0]), shape_of(op.operands[0])
    batch = a.shape[: _batches(a, op.operands[0])]
    a = a.reshape(*batch, *[1] * (len(shape) - len(own)), *own)
    return np.broadcast_to(a, (*batch, *shape))


@moves("xetile.broadcast", result=_broadcast_result, operand=_broadcast_operand)
def broadcast_runs(op: Operation, a: Array) -> Array:
    """Each element fills a run; one of a dimension of 1 the whole dimension."""
    shape, own = shape_of(op.results[0]), shape_of(op.operands[0])
    batches = _batches(a, op.operands[0])
    for dim, (n, m) in enumerate(zip(shape, own, strict=True), batches):
        if m == 1:
            a = np.broadcast_to(a, (*a.shape[:dim], n, *a.shape[dim + 1 :]))
        elif n != m:
            a = np.repeat(a, n // m, axis=dim)
    return a


@moves(
    "vector.transpose",
    "xetile.transpose",
    result=lambda op, y: y.permuted(integers(op, "permutation")),
    operand=lambda op, y: y.permuted(np.argsort(integers(op, "permutation")).tolist()),
)
def transpose(op: Operation, a: Array) -> Array:
    batches = _batches(a, op.operands[0])
    return a.transpose(*range(batches), *(batches + d for d in integers(op, "permutation")))


def _reshaped(layout: L, source: SSAValue, result: SSAValue) -> L:
    """Of a box only where dimensions of extent 1 come and go."""
    before, after = shape_of(source), shape_of(result)
    if layout.shape == before:
        return layout.reshaped(after)
    sizes = iter(n for n, extent in zip(layout.shape, before, strict=True) if extent != 1)
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        raise LayoutError("a reshape of a box")
    return layout.reshaped([1 if extent == 1 else next(sizes) for extent in after])


@moves(
    "vector.shape_cast",
    result=lambda op, y: _reshaped(y, op.operands[0], op.results[0]),
    operand=lambda op, y: _reshaped(y, op.results[0], op.operands[0]),
)
def shape_cast(op: Operation, a: Array) -> Array:
    return a.reshape(*a.shape[: _batches(a, op.operands[0])], *shape_of(op.results[0]))


@moves("xetile.convert_layout", result=lambda op, y: y, operand=lambda op, y: y)
def convert_layout(op: Operation, a: Array) -> Array:
    return a


def _resized(layout: L, source: SSAValue, result: SSAValue) -> L:
    """The last dimension in more or fewer elements: each split, or as many joined, which one owner must have."""
    last, have, want = layout.rank - 1, shape_of(source)[-1], shape_of(result)[-1]
    if want >= have:
        return layout.expanded(last, want // have)
    return layout.joined(last, have // want)


def _resized_result(op: Operation, layout: L) -> L:
    return _resized(layout, op.operands[0], op.results[0])


def _resized_operand(op: Operation, layout: L) -> L:
    return _resized(layout, op.results[0], op.operands[0])


LAYOUTS["vector.bitcast"] = (_resized_result, _resized_operand)


@moves("vector.interleave", result=_resized_result, operand=_resized_operand)
def interleave(op: Operation, a: Array, b: Array) -> Array:
    return np.stack([a, b], axis=-1).reshape(*a.shape[:-1], 2 * a.shape[-1])


@moves("vector.deinterleave", result=_resized_result, operand=_resized_operand)
def deinterleave(op: Operation, a: Array) -> tuple[Array, Array]:
    return a[..., 0::2], a[..., 1::2]


@moves("vector.shuffle")
def shuffle(op: Operation, a: Array, b: Array) -> Array:
    """Rows of both; where the mask names none, which gives anything, the first."""
    batches = _batches(a, op.operands[0])
    parts = [x.reshape(*x.shape[:batches], -1, *x.shape[batches + 1 :]) for x in (a, b)]
    rows = [max(n, 0) for n in integers(op, "mask")]
    return np.concatenate(parts, axis=batches).take(rows, axis=batches)


@moves("vector.from_elements")
def from_elements(op: Operation, *elements: Array) -> Array:
    shape = shape_of(op.results[0])
    return np.stack(elements, axis=-1).reshape(*elements[0].shape, *shape)


@moves("vector.to_elements")
def to_elements(op: Operation, a: Array) -> tuple[Array, ...]:
    flat = a.reshape(*a.shape[: _batches(a, op.operands[0])], -1)
    return tuple(flat[..., n] for n in range(flat.shape[-1]))


# Parts of values ----------------------------------------------------------------------------------


def _extract_result(op: Operation, layout: L) -> L:
    outer = range(len(static_position(op)))
    if positions_at_run_time(op):
        raise LayoutError("which registers are extracted is known only at run time")
    if not all(layout.is_whole(dim) for dim in outer):
        raise LayoutError("an outer dimension has several owners")
    return layout.sliced(*outer)


def _slice_result(op: Operation, layout: L) -> L:
    return layout.boxed(integers(op, "offsets"), shape_of(op.results[0]))


@moves("vector.extract", result=_extract_result)
def extract(op: Operation, a: Array, *dynamic: Array) -> Array:
    return np.asarray(a[_at(op, a, op.operands[0], dynamic)])


@moves("vector.insert")
def insert(op: Operation, part: Array, whole: Array, *dynamic: Array) -> Array:
    made = np.array(whole)
    made[_at(op, whole, op.operands[1], dynamic)] = part
    return made


@moves("vector.extract_strided_slice", result=_slice_result)
def extract_strided_slice(op: Operation, a: Array) -> Array:
    batches = _batches(a, op.operands[0])
    return a[(*[slice(None)] * batches, *box(op, integers(op, "sizes")))]


@moves("vector.insert_strided_slice")
def insert_strided_slice(op: Operation, part: Array, whole: Array) -> Array:
    shape, own = shape_of(op.results[0]), shape_of(op.operands[0])
    sizes = [1] * (len(shape) - len(own)) + list(own)
    batch = whole.shape[: _batches(whole, op.operands[1])]
    made = np.array(whole)
    made[(*[slice(None)] * len(batch), *box(op, sizes))] = part.reshape(*batch, *sizes)
    return made
