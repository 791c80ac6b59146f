"""Values that are put together from parts of others: slices, joins, columns in turn. No element is computed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import VectorType

from tilewright.diagnostics import CompileError
from tilewright.dialects.upstream import vector
from tilewright.lang.compute import axis_of, matrix, transpose
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import computed, item
from tilewright.lang.creation import zeros
from tilewright.lang.registry import language
from tilewright.lang.tiles import static_shape
from tilewright.lang.values import Value, describe_type


def indexed(x: Value, index: object) -> Value | None:
    """``x[:, None]``, a row or a column as a column, ``x[None, :]``, as a row, ``x[a:b, c:d]``, what is in these rows
    and columns, ``x[i]``, ``x[:, j]``, one of them, and ``x[i, j]``, a scalar; None for any other index. Numbers are of
    compile time."""
    places = index if isinstance(index, tuple) else (index,)
    kinds = {type(p) for p in places}
    if x.ndim != 2 or len(places) > 2 or not kinds <= {type(None), slice, int}:
        return None
    if type(None) in kinds:
        return _turned(x, places) if int not in kinds else None
    for place, extent in zip(places, x.shape, strict=False):
        if isinstance(place, int) and not -extent <= place < extent:
            raise CompileError(f"{place} is none of {extent} rows or columns of {describe_type(x)}")
    places = [slice(p, p + 1 or None) if isinstance(p, int) else p for p in places]
    bounds = list[range]()
    for place, extent in zip((*places, slice(None))[:2], x.shape, strict=True):
        assert isinstance(place, slice)
        if not all(b is None or isinstance(b, int) for b in (place.start, place.stop, place.step)):
            raise CompileError(
                "a slice of a value has bounds that are integers of compile time",
                hint="a part somewhere else is loaded: tw.load_tile(tw.init_tile(array, offsets, shape))",
            )
        bounds.append(range(extent)[place])
        if bounds[-1].step != 1 or not bounds[-1]:
            raise CompileError(
                f"a slice of {len(bounds[-1])} of {extent} elements with the step {bounds[-1].step}",
                rule="a part of a value has elements side by side, one at least",
                hint="the other way round: X[rows, n - 1 - tw.arange(n)] of an array"
                if bounds[-1].step < 0
                else "every other column: even, odd = tw.deinterleave(x)",
            )
    rows, columns = bounds
    found = part(x, (rows.start, columns.start), (len(rows), len(columns)))
    return item(found) if kinds == {int} and len(places) == 2 else found


def part(x: Value, offsets: Sequence[int], shape: tuple[int, int]) -> Value:
    """What begins at some row and column of a value."""
    if x.shape == shape:
        return x
    op = vector.ExtractStridedSliceOp(computed(x), offsets, shape)
    return Value(emitter("a slice").result(op), x.dtype, shape)


def _turned(x: Value, places: Sequence[object]) -> Value | None:
    if len(places) != 2 or slice(None) not in places:
        return None
    dim = places.index(None)
    if 1 not in x.shape:
        raise CompileError(
            f"{describe_type(x)} is neither a row nor a column",
            rule="x[:, None] makes a column of a row, x[None, :] a row of a column",
            hint="values have two dimensions, and operators broadcast: leave it out",
        )
    return x if x.shape[dim] == 1 else transpose(x)


@language
def concat(values: Sequence[Value], axis: int) -> Value:
    """The ``values``, of one dtype, behind one another along ``axis``; in the other dimension their extents are alike.

    Raises ArgumentError where they are not. Parts of a value are slices of it, such as ``x[:, :32]``.

    >>> @tw.kernel
    ... def rotated(X, Y):  # the halves of rows change places, one of them negated
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 4)))
    ...     tw.store_tile(tw.concat((-x[:, 2:], x[:, :2]), 1), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 2, 3, 4]], np.float32); y = np.empty_like(x)
    >>> rotated[1](x, y); y.tolist()
    [[-3.0, -4.0, 1.0, 2.0]]
    """
    if not isinstance(values, (tuple, list)) or not values:
        raise ArgumentError("values", "concat takes values: tw.concat((a, b), 1)")
    parts, dim = [matrix(v, "values") for v in values], axis_of(axis)
    if len({(v.dtype, v.shape[1 - dim]) for v in parts}) > 1:
        raise ArgumentError(
            "values",
            f"concat along axis {dim} of {', '.join(map(describe_type, parts))}",
            rule="parts have one dtype, and one extent in the other dimension",
        )
    shape = [*parts[0].shape]
    shape[dim] = sum(v.shape[dim] for v in parts)
    made, place = zeros(shape, parts[0].dtype), [0, 0]
    for v in parts:
        op = vector.InsertStridedSliceOp(computed(v), computed(made), place)
        made = Value(emitter("concat").result(op), v.dtype, tuple(shape))
        place[dim] += v.shape[dim]
    return made


@language
def roll(x: Value, shift: int, axis: int) -> Value:
    """The elements of ``x`` ``shift`` places further along ``axis``; those that leave at an end come in at the other.

    ``shift`` is a number of compile time, negative to move them back. Source: numpy.roll.

    >>> @tw.kernel
    ... def moved(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 4)))
    ...     tw.store_tile(tw.roll(x, 1, 1), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 2, 3, 4]], np.int32); y = np.empty_like(x)
    >>> moved[1](x, y); y.tolist()
    [[4, 1, 2, 3]]
    """
    x, dim = matrix(x, "x"), axis_of(axis)
    if not isinstance(shift, int) or isinstance(shift, bool):
        what = f"shift is an integer of compile time, not {describe_type(shift)}"
        raise ArgumentError("shift", what, hint="load the tile from another place")
    n = x.shape[dim]
    if not (ahead := -shift % n):
        return x
    halves = (slice(ahead, None), slice(None, ahead))
    rows = [indexed(x, (h,) if dim == 0 else (slice(None), h)) for h in halves]
    return concat([v for v in rows if v is not None], dim)


@language
def interleave(a: Value, b: Value) -> Value:
    """The columns of ``a`` and ``b`` in turn, ``a`` first: ``[M, 2 N]`` of two values ``[M, N]`` of one dtype.

    Raises ArgumentError where shapes or dtypes differ. Source: MLIR, vector.interleave.

    >>> @tw.kernel
    ... def unpack(X, Y):  # two numbers of four bits in a byte, the low bits first
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 2)))
    ...     tw.store_tile(tw.interleave(x << 4 >> 4, x >> 4), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[0x21, 0x7F]], np.int8); y = np.empty((1, 4), np.int8)
    >>> unpack[1](x, y); y
    array([[ 1,  2, -1,  7]], dtype=int8)
    """
    a, b = matrix(a, "a"), matrix(b, "b")
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        mine, other = describe_type(a), describe_type(b)
        raise ArgumentError(
            "b",
            f"interleave takes two values of one type, not {mine} and {other}",
            hint="convert one: b.to(a.dtype)"
            if a.shape == b.shape
            else "take a part of one: a[:, 0:8]",
        )
    m, n = a.shape
    return Value(
        emitter("interleave").result(vector.InterleaveOp(computed(a), computed(b))),
        a.dtype,
        (m, 2 * n),
    )


@language
def deinterleave(x: Value) -> tuple[Value, Value]:
    """The even columns of ``x`` and the odd ones: two values ``[M, N / 2]`` of a value ``[M, N]``.

    Raises ArgumentError where N is odd. Source: MLIR, vector.deinterleave.

    >>> @tw.kernel
    ... def squares(Z, Y):  # of complex numbers, (re, im) in turn
    ...     re, im = tw.deinterleave(tw.load_tile(tw.init_tile(Z, [0, 0], (1, 4))))
    ...     tw.store_tile(re * re + im * im, tw.init_tile(Y, [0, 0], (1, 2)))
    >>> z = np.array([[3, 4, 1, 2]], np.float32); y = np.empty((1, 2), np.float32)
    >>> squares[1](z, y); y.ravel().tolist()
    [25.0, 5.0]
    """
    x = matrix(x, "x")
    m, n = x.shape
    if n % 2:
        raise ArgumentError(
            "x",
            f"deinterleave takes columns in pairs, and x has {n}",
            hint="load one column more: beyond the array's edge it is padding",
        )
    op = vector.DeinterleaveOp(computed(x))
    even, odd = emitter("deinterleave").emit(op).results
    return Value(even, x.dtype, (m, n // 2)), Value(odd, x.dtype, (m, n // 2))


@language
def reshape(x: Value, shape: Sequence[int] | int, *more: int) -> Value:
    """The elements of ``x``, row by row, as the rows of another ``shape``: ``[P, Q]`` with P Q = M N.

    Two extents may be given without parentheses; -1 is what the other leaves, and one alone is that of a row:
    ``tw.reshape(x, -1)``. Raises ArgumentError where ``shape`` has more or fewer elements, or more dimensions.
    Source: MLIR, vector.shape_cast.

    >>> @tw.kernel
    ... def groups(X, Y):  # each four columns minus their mean
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 8)))
    ...     g = tw.reshape(x, (2, 4))
    ...     tw.store_tile(tw.reshape(g - tw.sum(g, 1) / 4, (1, 8)), tw.init_tile(Y, [0, 0], (1, 8)))
    >>> x = np.array([[1, 2, 3, 6, 0, 0, 0, 4]], np.float32); y = np.empty_like(x)
    >>> groups[1](x, y); y.tolist()
    [[-2.0, -1.0, 0.0, 3.0, -1.0, -1.0, -1.0, 3.0]]
    """
    x = matrix(x, "x")
    count, given = (
        prod(x.shape),
        tuple(shape) if isinstance(shape, (tuple, list)) else (shape, *more),
    )
    numbers = [extent for extent in given if isinstance(extent, int)]
    if numbers.count(-1) == 1:
        left = count // prod(extent for extent in numbers if extent > 0) or 1
        given = tuple(left if isinstance(e, int) and e == -1 else e for e in given)
    extents = static_shape(given, "shape")
    if prod(extents) != count:
        raise ArgumentError(
            "shape",
            f"{describe_type(x)} does not reshape to {given}: it has {count} elements",
            rule="the shapes have as many elements; one extent may be -1",
        )
    if x.shape == extents:
        return x
    op = vector.ShapeCastOp(computed(x), VectorType(x.dtype.arith, extents))
    return Value(emitter("reshape").result(op), x.dtype, extents)
