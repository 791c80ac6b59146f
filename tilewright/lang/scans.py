"""Running combinations along an axis: of any associative function, sums, products."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul
from typing import Any

from xdsl.dialects.builtin import VectorType
from xdsl.dialects.vector import BroadcastOp

from tilewright.dialects.prefixes import Prefixes
from tilewright.dialects.upstream import vector
from tilewright.lang.arithmetic import to_computable
from tilewright.lang.compute import axis_of, matrix, transpose
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import computed, constant
from tilewright.lang.creation import arange, zeros
from tilewright.lang.elementwise import where
from tilewright.lang.parts import concat, deinterleave, interleave, part
from tilewright.lang.reductions import counted
from tilewright.lang.registry import language
from tilewright.lang.values import Value, describe_type

Values = tuple[Value, ...]


@language
def associative_scan(
    x: Any, axis: int, combine: Callable[..., Any], *, reverse: bool = False
) -> Any:
    """What the elements of ``x`` up to each along ``axis`` combine to; with ``reverse`` those from each on.

    ``x`` is a value, or a tuple of values of one shape. ``combine(a, b)``, of tuples
    ``combine(a0, a1, .., b0, b1, ..)``, gives what two neighbouring runs combine to, ``a`` the one that
    comes first (with ``reverse`` the one behind), in the types of ``x``. It is associative, applied to
    whole values, in any grouping: a function of the language such as ``tw.maximum``, or one defined
    outside of the kernel. Raises ArgumentError where it gives something else.

    >>> def decayed(a0, h0, a1, h1):  # h[i] = a[i] * h[i - 1] + x[i]
    ...     return a0 * a1, h0 * a1 + h1
    >>> @tw.kernel
    ... def recurrence(A, X, H):
    ...     a = tw.load_tile(tw.init_tile(A, [0, 0], (2, 4)))
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.associative_scan((a, x), 1, decayed)[1], tw.init_tile(H, [0, 0], (2, 4)))
    >>> a = np.full((2, 4), 0.5, np.float32); x = np.ones((2, 4), np.float32); h = np.empty_like(x)
    >>> recurrence[1](a, x, h); h[0].tolist()
    [1.0, 1.5, 1.75, 1.875]
    """
    given = x if isinstance(x, tuple) else (x,)
    values = tuple(to_computable(matrix(v, "x")) for v in given)
    if not values or any(v.shape != values[0].shape for v in values):
        raise ArgumentError("x", "a scan takes values of one shape", rule="one, or a tuple of them")
    if not callable(combine) or isinstance(combine, type):
        raise ArgumentError("combine", f"combine is a function, not {describe_type(combine)}")
    down = axis_of(axis) == 0
    rows = tuple(map(transpose, values)) if down else values
    made = _Scan(combine, reverse).inclusive(rows)
    result = tuple(map(transpose, made)) if down else made
    return result if isinstance(x, tuple) else result[0]


class _Scan(Prefixes[Values]):
    def __init__(self, combine: Callable[..., Any], backwards: bool):
        self.combine = combine
        self.backwards = backwards

    def extent(self, x: Values) -> int:
        return x[0].shape[1]

    def halves(self, x: Values) -> tuple[Values, Values]:
        even, odd = zip(*map(deinterleave, x), strict=True)
        return even, odd

    def joined(self, even: Values, odd: Values) -> Values:
        return tuple(map(interleave, even, odd))

    def resized(self, x: Values, extent: int, offset: int) -> Values:
        m, n = x[0].shape
        if extent < n:
            return tuple(part(v, (0, offset), (m, extent)) for v in x)
        made: list[Value] = []
        for v in x:
            more = zeros((m, extent - n), v.dtype)
            made.append(concat((more, v) if offset else (v, more), 1))
        return tuple(made)

    def combined(self, before: Values, x: Values) -> Values:
        made = self.combine(*before, *x)
        found = made if isinstance(made, tuple) else (made,)
        wanted = [(v.dtype, v.shape) for v in x]
        if [(getattr(v, "dtype", None), getattr(v, "shape", None)) for v in found] != wanted:
            gives = ", ".join(map(describe_type, found))
            types = ", ".join(map(describe_type, x))
            raise ArgumentError(
                "combine",
                f"combine gives {gives} of two times {types}",
                rule="it gives what it takes: two runs become one",
            )
        return found

    def following(self, before: Values, x: Values) -> Values:
        n = self.extent(x)
        first = arange(n) == (n - 1 if self.backwards else 0)
        return tuple(where(first, v, c) for v, c in zip(x, self.combined(before, x), strict=True))

    def start(self, x: Values) -> Values:
        return x


def _running(
    name: str, kind: str, x: Value, axis: int, combine: Callable[..., Any], reverse: bool
) -> Value:
    x = to_computable(counted(matrix(x, "x")))
    if reverse:
        return associative_scan(x, axis, combine, reverse=True)
    dim = axis_of(axis)
    kept = VectorType(x.dtype.arith, [x.shape[1 - dim]])
    start = emitter().result(BroadcastOp(constant(0, x.dtype).ssa, kept))
    op = vector.ScanOp(kind, computed(x), start, True, dim)
    return Value(emitter(name).emit(op).results[0], x.dtype, x.shape)


@language
def cumsum(x: Value, axis: int, *, reverse: bool = False) -> Value:
    """The sums of the elements up to each along ``axis``, with ``reverse`` of those from each on; in x's dtype.

    Of a mask they are counts, in i32: less one, where each true element goes when they are put side by side. The order
    of addition is free. Source: MLIR, vector.scan.

    >>> @tw.kernel
    ... def running(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.cumsum(x, 1), tw.init_tile(Y, [0, 0], (2, 4)))
    >>> x = np.arange(8, dtype=np.int32).reshape(2, 4); y = np.empty_like(x)
    >>> running[1](x, y); y.tolist()
    [[0, 1, 3, 6], [4, 9, 15, 22]]
    """
    return _running("cumsum", "add", x, axis, add, reverse)


@language
def cumprod(x: Value, axis: int, *, reverse: bool = False) -> Value:
    """The products of the elements up to each along ``axis``, with ``reverse`` of those from each on; in x's dtype.

    The order of multiplication is free. Source: MLIR, vector.scan.

    >>> @tw.kernel
    ... def running(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 4)))
    ...     tw.store_tile(tw.cumprod(x, 1), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 2, 3, 4]], np.int32); y = np.empty_like(x)
    >>> running[1](x, y); y.tolist()
    [[1, 2, 6, 24]]
    """
    return _running("cumprod", "mul", x, axis, mul, reverse)
