"""Reductions: what the elements of a value along an axis, or all of them, combine to."""

from __future__ import annotations

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.xetile import REDUCTION_KINDS
from tilewright.lang.arithmetic import binary, to_computable
from tilewright.lang.compute import axis_of, matrix
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import computed, to
from tilewright.lang.creation import arange
from tilewright.lang.elementwise import where
from tilewright.lang.maps import WgMap, wg_attr
from tilewright.lang.parts import reshape
from tilewright.lang.registry import language
from tilewright.lang.values import Value


@language
def reduction(
    kind: str,
    x: Value,
    axis: int | None,
    *,
    reduction_size: int | None = None,
    wg_map: WgMap | None = None,
) -> Value:
    """Combines the elements of ``x`` along ``axis``, which stays with extent 1.

    ``kind`` is MLIR's: "add", "mul", "maximumf", "minimumf", "maxnumf", "minnumf", "maxsi",
    "maxui", "minsi", "minui", "and", "or", "xor". ``axis=None`` reduces both dimensions. With
    ``reduction_size=s`` runs of s contiguous elements are combined and extent / s remain. The
    combination is in x's dtype, its order is free. Source: XeTile RFC, reduction.

    >>> @tw.kernel
    ... def pairs(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 8)))
    ...     s = tw.reduction("add", x, 1, reduction_size=2)
    ...     tw.store_tile(s, tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.arange(8, dtype=np.int32)[None]; y = np.empty((1, 4), np.int32)
    >>> pairs[1](x, y); y
    array([[ 1,  5,  9, 13]], dtype=int32)
    """
    x = to_computable(matrix(x, "x"))
    if kind not in REDUCTION_KINDS:
        raise ArgumentError(
            "kind",
            f"{kind!r} is no kind of reduction",
            hint=f"tw.{kind}(x, axis) is that of any dtype"
            if kind in ("sum", "prod", "max", "min")
            else f"one of {', '.join(REDUCTION_KINDS)}",
        )
    if kind in _FLOAT_KINDS and not x.dtype.is_float:
        raise ArgumentError(
            "kind",
            f"kind {kind!r} is for floats, but the value is of {x.dtype}",
            hint="maxsi and minsi are for integers, maxui and minui for unsigned ones",
        )
    if kind not in ("add", "mul", *_FLOAT_KINDS) and x.dtype.is_float:
        raise ArgumentError(
            "kind",
            f"kind {kind!r} is for integers, but the value is of {x.dtype}",
            hint="add, mul, maximumf and minimumf are for floats",
        )
    dims = [0, 1] if axis is None else [axis_of(axis)]
    if reduction_size is not None:
        extent = x.shape[dims[0]]
        if axis is None:
            raise ArgumentError(
                "reduction_size",
                "reduction_size goes with one axis",
                hint="name it: axis=0 or axis=1",
            )
        if not isinstance(reduction_size, int) or reduction_size < 1 or extent % reduction_size:
            raise ArgumentError(
                "reduction_size",
                f"reduction_size={reduction_size!r} does not divide the extent {extent}",
                rule="each element of the result is that of reduction_size neighbours",
            )
    op = xetile.ReductionOp(
        kind, computed(x), dims, reduction_size=reduction_size, wg_map=wg_attr(wg_map)
    )
    result = emitter("reduction").emit_checked(op).result
    return Value(result, x.dtype, result.type.get_shape())


_FLOAT_KINDS = ("maximumf", "minimumf", "maxnumf", "minnumf")


@language
def sum(x: Value, axis: int | None = None, *, wg_map: WgMap | None = None) -> Value:
    """The sum along ``axis`` (over all elements for None), which stays with extent 1; in x's dtype.

    Of a mask it is how many elements are true, in i32.

    >>> @tw.kernel
    ... def rows(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.sum(x, 1), tw.init_tile(Y, [0, 0], (2, 1)))
    >>> x = np.arange(8, dtype=np.float32).reshape(2, 4); y = np.empty((2, 1), np.float32)
    >>> rows[1](x, y); y.ravel().tolist()
    [6.0, 22.0]
    """
    return reduction("add", counted(matrix(x, "x")), axis, wg_map=wg_map)


@language
def prod(x: Value, axis: int | None = None, *, wg_map: WgMap | None = None) -> Value:
    """The product along ``axis`` (over all elements for None), which stays with extent 1; in x's dtype.

    Of a mask it is in i32.

    >>> @tw.kernel
    ... def rows(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.prod(x, 1), tw.init_tile(Y, [0, 0], (2, 1)))
    >>> x = np.full((2, 4), 2.0, np.float32); y = np.empty((2, 1), np.float32)
    >>> rows[1](x, y); y.ravel().tolist()
    [16.0, 16.0]
    """
    return reduction("mul", counted(matrix(x, "x")), axis, wg_map=wg_map)


@language
def max(x: Value, axis: int | None = None, *, wg_map: WgMap | None = None) -> Value:
    """The largest element along ``axis`` (over all elements for None), which stays with extent 1.

    NaN wins, as in numpy; ``tw.reduction("maxnumf", x, axis)`` ignores it. Of a mask: whether any
    element is true.

    >>> @tw.kernel
    ... def columns(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.max(x, 0), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 5, 2, 0], [4, 3, 2, 1]], np.int32); y = np.empty((1, 4), np.int32)
    >>> columns[1](x, y); y
    array([[4, 5, 2, 1]], dtype=int32)
    """
    kinds = {"float": "maximumf", "unsigned": "maxui", "bool": "or"}
    return reduction(kinds.get(matrix(x, "x").dtype.kind, "maxsi"), x, axis, wg_map=wg_map)


@language
def min(x: Value, axis: int | None = None, *, wg_map: WgMap | None = None) -> Value:
    """The smallest element along ``axis`` (over all elements for None), which stays with extent 1.

    NaN wins, as in numpy; ``tw.reduction("minnumf", x, axis)`` ignores it. Of a mask: whether all
    elements are true.

    >>> @tw.kernel
    ... def columns(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.min(x, 0), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 5, 2, 0], [4, 3, 2, 1]], np.int32); y = np.empty((1, 4), np.int32)
    >>> columns[1](x, y); y
    array([[1, 3, 2, 0]], dtype=int32)
    """
    kinds = {"float": "minimumf", "unsigned": "minui", "bool": "and"}
    return reduction(kinds.get(matrix(x, "x").dtype.kind, "minsi"), x, axis, wg_map=wg_map)


@language
def any(x: Value, axis: int | None = None, *, wg_map: WgMap | None = None) -> Value:
    """Whether any element along ``axis`` (or of all ``x``), which stays with extent 1, is true: not zero; a mask.

    >>> @tw.kernel
    ... def rows(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.any(x > 6, 1), tw.init_tile(Y, [0, 0], (2, 1)))
    >>> x = np.arange(8, dtype=np.float32).reshape(2, 4); y = np.empty((2, 1), np.bool_)
    >>> rows[1](x, y); y.ravel().tolist()
    [False, True]
    """
    return reduction("or", to(matrix(x, "x"), dtypes.i1), axis, wg_map=wg_map)


@language
def all(x: Value, axis: int | None = None, *, wg_map: WgMap | None = None) -> Value:
    """Whether all elements along ``axis`` (or all of ``x``), which stays with extent 1, are true: not zero; a mask.

    >>> @tw.kernel
    ... def rows(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.all(x < 6, 1), tw.init_tile(Y, [0, 0], (2, 1)))
    >>> x = np.arange(8, dtype=np.float32).reshape(2, 4); y = np.empty((2, 1), np.bool_)
    >>> rows[1](x, y); y.ravel().tolist()
    [True, False]
    """
    return reduction("and", to(matrix(x, "x"), dtypes.i1), axis, wg_map=wg_map)


@language
def argmax(x: Value, axis: int | None = None) -> Value:
    """Where along ``axis``, which stays with extent 1, the largest element is, the first of several; in i32.

    For None it is the place in the rows of ``x`` behind one another. NaN wins, as in numpy.

    >>> @tw.kernel
    ... def rows(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.argmax(x, 1), tw.init_tile(Y, [0, 0], (2, 1)))
    >>> x = np.array([[1, 5, 2, 5], [4, 3, 2, 1]], np.float32); y = np.empty((2, 1), np.int32)
    >>> rows[1](x, y); y.ravel().tolist()
    [1, 0]
    """
    x, axis = _line(x, axis)
    return _first(x, max(x, axis), axis)


@language
def argmin(x: Value, axis: int | None = None) -> Value:
    """Where along ``axis``, which stays with extent 1, the smallest element is, the first of several; in i32.

    For None it is the place in the rows of ``x`` behind one another. NaN wins, as in numpy.

    >>> @tw.kernel
    ... def columns(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.argmin(x, 0), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 5, 2, 5], [4, 3, 2, 1]], np.float32); y = np.empty((1, 4), np.int32)
    >>> columns[1](x, y); y.tolist()
    [[0, 1, 0, 1]]
    """
    x, axis = _line(x, axis)
    return _first(x, min(x, axis), axis)


def _first(x: Value, best: Value, axis: int) -> Value:
    """The first place of a number that is there, of NaN too."""
    dim = axis_of(axis)
    here = binary("==", x, best)
    if x.dtype.is_float:
        here = binary("|", here, binary("!=", x, x))
    n = x.shape[dim]
    return to(min(where(here, arange(n, axis=dim), n), dim), dtypes.i32)


def _line(x: Value, axis: int | None) -> tuple[Value, int]:
    """What an index along one axis can tell a place in."""
    return (reshape(x, (1, -1)), 1) if axis is None else (matrix(x, "x"), axis)


def counted(x: Value) -> Value:
    """A mask as numbers that can be added up."""
    return to(x, dtypes.i32) if x.dtype.is_bool else x
