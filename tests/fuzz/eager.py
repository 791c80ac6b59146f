"""The tile language as plain Python runs it: one program after another, values as numpy arrays.

What a kernel of `tests.fuzz.sources` computes when its text is executed with this module in place of `tilewright`.
Integers are exact. A float is a double with a bound of how far away a result of its dtype may be (`Val.e`), infinite
where anything may stand: a quotient by zero, a choice that the bound leaves open. A branch left open raises `Unsure`.
"""
# pyright: basic

from __future__ import annotations

import operator
from math import erf
from typing import Any

import ml_dtypes
import numpy as np

REALS = {"f32": np.dtype("f4"), "f16": np.dtype("f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}
NAMES: dict[str, Any] = {
    "i1": np.bool_,
    **{
        f"{s}{b}": getattr(np, f"{'u' if s == 'u' else ''}int{b}")
        for s in "iu"
        for b in (8, 16, 32, 64)
    },
    **REALS,
}
BOOL = np.dtype(np.bool_)
LIMITS = {d: ml_dtypes.finfo(d) for d in REALS.values()}
ULPS = 2.0**-22
"""The relative error of a function in f32."""


class Unsure(Exception):
    """A branch or a place in memory depends on rounding."""


class Val:
    """A tile, or a scalar of no dimensions; `real` is the dtype of floats."""

    __array_ufunc__ = None

    def __init__(self, a: Any, e: Any = 0.0, real: Any = None):
        self.a, self.real = np.asarray(a), real
        self.e = np.broadcast_to(np.asarray(e, np.float64), self.a.shape)

    @property
    def dtype(self):
        return self.real or self.a.dtype

    @property
    def shape(self):
        return self.a.shape

    def sure(self):
        if self.e.any():
            raise Unsure
        return self.a

    def moved(self, f):
        return Val(f(self.a), f(self.e), self.real)

    def to(self, dtype):
        if dtype in LIMITS:
            return rounded(self.a.astype(np.float64), self.e, dtype)
        if dtype == np.bool_:
            return Val(self.a != 0, np.where(np.abs(self.a) > self.e, 0, open_(self.e)))
        if self.real is None:
            return Val(self.a.astype(dtype), self.e)
        with np.errstate(all="ignore"):
            low, high = np.trunc(self.a - self.e), np.trunc(self.a + self.e)
            limits = np.iinfo(dtype)
            known = (low == high) & (low >= limits.min) & (high <= limits.max)
            return Val(np.where(known, self.a, 0).astype(dtype), open_(~known))

    def item(self):
        return self.moved(lambda a: a.reshape(()))

    def __index__(self):
        return int(self.sure())

    __int__ = __index__

    def __bool__(self):
        assert self.a.ndim == 0
        return bool(self.sure())

    def __getitem__(self, at):
        return self.moved(
            lambda a: a.reshape(-1)[:, None] if at[1] is None else a.reshape(-1)[None, :]
        )

    def __abs__(self):
        return Val(np.abs(self.a), self.e, self.real)

    def __neg__(self):
        if self.real is not None:
            return Val(-self.a, self.e, self.real)
        return _binary(operator.sub, Val(np.zeros((), self.dtype)), self)

    def __pow__(self, n):
        r = constant(1, self.dtype, self.shape)
        for _ in range(n):
            r = _binary(operator.mul, r, self)
        return r

    def __invert__(self):
        return Val(~self.a, self.e)


def open_(e):
    """Errors of integers: none, or anything may stand there."""
    return np.where(np.asarray(e) > 0, np.inf, 0.0)


def rounded(a, e, dtype, ulps=0.5):
    """A float of this dtype: exact results `a` within `e`, and what the dtype's own rounding adds."""
    limits = LIMITS[dtype]
    least = limits.smallest_subnormal if limits.bits == 16 and limits.nmant > 8 else limits.tiny
    with np.errstate(all="ignore"):
        e = 1.01 * (e + np.abs(a) * float(limits.eps) * ulps) + float(least)
        known = np.abs(a) + e < float(limits.max)
    return Val(np.where(known, a, 0.0), np.where(known, e, np.inf), dtype)


def constant(x, dtype, shape=()):
    """A number of compile time, exact in its dtype."""
    a = np.full(shape, x).astype(dtype)
    return Val(a.astype(np.float64), 0.0, dtype) if dtype in LIMITS else Val(a)


def _meet(x, y):
    if not isinstance(y, Val):
        y = constant(y, x.dtype if x.dtype != np.bool_ or isinstance(y, bool) else np.int64)
    if not isinstance(x, Val):
        x = constant(x, y.dtype if y.dtype != np.bool_ or isinstance(x, bool) else np.int64)
    if x.dtype == y.dtype:
        return x, y
    if (x.a.ndim == 0) == (y.a.ndim == 0):
        assert x.real is None and y.real is None, "floats of one dtype"
        dtype = np.promote_types(x.dtype, y.dtype)
    else:
        dtype = x.dtype if x.a.ndim else y.dtype
    return x.to(dtype), y.to(dtype)


def _binary(op, x, y):
    x, y = _meet(x, y)
    (a, b), (d, e) = (x.a, y.a), (x.e, y.e)
    with np.errstate(all="ignore"):
        if x.real is None:
            return Val(op(a, b), open_(d + e))
        if op in _COMPARISONS:
            near = np.abs(a - b) <= d + e
            return Val(op(a, b), open_(near & (d + e > 0)))
        if op in (np.maximum, np.minimum):
            return Val(op(a, b), np.maximum(d, e), x.real)
        if op is operator.truediv:
            far = np.where(np.abs(b) > e, np.abs(b) - e, 0)
            v = np.nan_to_num(a / b)
            return rounded(v, np.where(far > 0, (d + np.abs(v) * e) / far, np.inf), x.real, 2)
        error = d + e if op is not operator.mul else np.abs(a) * e + np.abs(b) * d + d * e
        return rounded(op(a, b), np.where(np.isfinite(d + e), error, np.inf), x.real)


COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_COMPARISONS = [getattr(operator, n) for n in COMPARISONS]
for name in (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"),
    *COMPARISONS,
):
    op = getattr(operator, name)
    plain = name.rstrip("_")
    setattr(Val, f"__{plain}__", lambda x, y, op=op: _binary(op, x, y))
    if plain not in COMPARISONS:
        setattr(Val, f"__r{plain}__", lambda x, y, op=op: _binary(op, y, x))


def extreme(op):
    """Python's `min` or `max` of scalars."""

    def of(first, *rest):
        for x in rest:
            first = (
                _binary(op, first, x)
                if isinstance(first, Val) or isinstance(x, Val)
                else int(op(first, x))
            )
        return first

    return of


class Array:
    """An argument, or a part of one: floats as doubles, with their errors."""

    def __init__(self, a, e=None, dtype=None):
        self.dtype = dtype or a.dtype
        real = self.dtype in LIMITS
        self.a = a.astype(np.float64) if real and dtype is None else a
        self.e = np.zeros(a.shape) if e is None else e
        self.real = self.dtype if real else None

    @property
    def shape(self):
        return tuple(Val(np.int64(n)) for n in self.a.shape)

    ndim = property(lambda self: self.a.ndim)

    def value(self, x, shape=()):
        """What is stored of a value or a number."""
        if not isinstance(x, Val):
            return constant(x, self.dtype, shape)
        return (x if x.dtype == self.dtype else x.to(self.dtype)).moved(
            lambda a: np.broadcast_to(a, shape)
        )

    def put(self, at, x):
        self.a[at], self.e[at] = x.a, x.e

    def _at(self, at):
        at = tuple(map(int, at)) if isinstance(at, tuple) else (int(at),)
        return at, all(0 <= i < n for i, n in zip(at, self.a.shape, strict=True))

    def __getitem__(self, at):
        at, inside = self._at(at)
        return Val(self.a[at], self.e[at], self.real) if inside else constant(0, self.dtype)

    def __setitem__(self, at, x):
        at, inside = self._at(at)
        if inside:
            self.put(at, self.value(x))

    def flat(self):
        return self.a.reshape(-1), self.e.reshape(-1)


class Tile:
    def __init__(self, array, at, shape):
        self.array, self.at, self.shape = array, tuple(map(int, at)), tuple(shape)

    def places(self):
        *lead, r, c = self.at if len(self.at) > 1 else (0, *self.at)
        plane = Array(
            *(a[None] if a.ndim == 1 else a for a in (self.array.a, self.array.e)), self.array.dtype
        )
        for i in lead:
            if not 0 <= i < plane.a.shape[0]:
                return None, None, None
            plane = Array(plane.a[i], plane.e[i], plane.dtype)
        rows, columns = np.meshgrid(
            np.arange(r, r + self.shape[0]), np.arange(c, c + self.shape[1]), indexing="ij"
        )
        inside = (rows >= 0) & (rows < plane.a.shape[0])
        inside &= (columns >= 0) & (columns < plane.a.shape[1])
        return plane, (rows[inside], columns[inside]), inside


class Scattered:
    def __init__(self, array, at):
        self.array, self.at = array, at


def numbers(*bounds):
    """`range` of such programs: its numbers are as wide as scalars are."""
    return [Val(np.int64(i)) for i in range(*map(int, bounds))]


class Language:
    """`tw` within a program."""

    constexpr = None

    def __init__(self, ids, grid, subgroup=0):
        self.ids, self.grid, self.subgroup = ids, grid, subgroup
        for name, t in NAMES.items():
            setattr(self, name, np.dtype(t))

    index = np.dtype(np.int64)

    def program_id(self, axis):
        return Val(np.int64(self.ids[axis]))

    def num_programs(self, axis):
        return Val(np.int64(self.grid[axis]))

    def subgroup_id(self):
        return Val(np.int64(self.subgroup))

    def cdiv(self, a, b):
        return -(-a // b)

    def static_range(self, *a):
        return numbers(*a)

    def static_assert(self, c, m=""):
        assert c, m

    device_assert = static_assert

    def init_tile(self, base, at, shape=None):
        if shape is None:
            return Scattered(base, at)
        shape = tuple(shape) if len(shape) == 2 else (1, *shape)
        return Tile(base, at, shape)

    def update_tile_offset(self, t, by):
        if isinstance(t, Scattered):
            return Scattered(t.array, t.at + by)
        at = list(t.at)
        by = list(map(int, by))
        for k in range(1, len(by) + 1):
            at[-k] += by[-k]
        return Tile(t.array, at, t.shape)

    def view(self, base, at, shape):
        parts = []
        for o, n, e in zip(map(int, at), shape, base.a.shape, strict=True):
            if o < 0:
                parts.append(slice(0, 0))
                continue
            o = min(o, e)
            parts.append(slice(o, e if n is None else min(e, o + max(0, int(n)))))
        return Array(base.a[tuple(parts)], base.e[tuple(parts)], base.dtype)

    def load_tile(self, t, mask=None, padding=0):
        out = constant(padding, t.array.dtype, t.shape)
        plane, at, inside = t.places()
        if plane is not None:
            e = np.zeros(t.shape)
            out.a[inside], e[inside] = plane.a[at], plane.e[at]
            out = Val(out.a, e, out.real)
        return out if mask is None else self.where(mask, out, padding)

    def store_tile(self, x, t, mask=None):
        plane, at, inside = t.places()
        if plane is None:
            return
        new = plane.value(x, t.shape).moved(lambda a: a[inside])
        if mask is not None:
            mask = mask.moved(lambda a: np.broadcast_to(a, t.shape)[inside])
            new = self.where(mask, new, Val(plane.a[at], plane.e[at], plane.real))
        plane.put(at, new)

    def load_gather(self, t, mask=None, padding=0):
        flat, errors = t.array.flat()
        assert ((t.at.a >= 0) & (t.at.a < flat.size)).all()
        x = Val(flat[t.at.a], np.maximum(errors[t.at.a], t.at.e), t.array.real)
        return x if mask is None else self.where(mask, x, padding)

    def _scattered(self, x, t, mask):
        m = np.broadcast_to(True if mask is None else mask.sure(), t.at.shape)
        new = t.array.value(x, t.at.shape)
        return t.at.sure()[m], new.moved(lambda a: a[m])

    def store_scatter(self, x, t, mask=None):
        at, new = self._scattered(x, t, mask)
        flat, errors = t.array.flat()
        flat[at], errors[at] = new.a, new.e

    def atomic_rmw(self, kind, x, t, mask=None):
        assert kind == "add"
        at, new = self._scattered(x, t, mask)
        flat, errors = t.array.flat()
        with np.errstate(all="ignore"):
            np.add.at(flat, at, new.a)
            np.add.at(errors, at, new.e)
            if t.array.real is not None:  # the sum may have been larger on its way
                np.add.at(errors, at, (np.abs(new.a) + np.abs(flat[at])) * 2.0**-21)

    def zeros(self, shape, dtype):
        return constant(0, dtype, shape)

    def full(self, shape, x, dtype):
        x = x.to(dtype) if isinstance(x, Val) else constant(x, dtype)
        return x.moved(lambda a: np.broadcast_to(a, shape))

    def arange(self, start, stop=None, *, axis=1, shape=None):
        line = np.arange(start) if stop is None else np.arange(start, stop)
        line = line.astype(np.int64).reshape((1, -1) if axis == 1 else (-1, 1))
        return Val(line if shape is None else np.broadcast_to(line, shape))

    def where(self, c, a, b):
        x, y = _meet(a, b)
        with np.errstate(all="ignore"):
            either = np.abs(x.a.astype(np.float64) - y.a.astype(np.float64))
            either = open_(either) + np.maximum(x.e, y.e) if x.real is None else either + x.e + y.e
        return Val(
            np.where(c.a, x.a, y.a), np.where(c.e > 0, either, np.where(c.a, x.e, y.e)), x.real
        )

    def fma(self, a, b, c):
        return _binary(operator.add, _binary(operator.mul, a, b), c)

    def abs(self, x):
        return abs(x)

    def transpose(self, x):
        return x.moved(np.transpose)

    def reshape(self, x, shape):
        return x.moved(lambda a: a.reshape(shape))

    def broadcast(self, x, axis, size):
        return x.moved(lambda a: np.repeat(a, size, axis))

    def interleave(self, a, b):
        both = [np.stack(x, -1).reshape(a.shape[0], -1) for x in ((a.a, b.a), (a.e, b.e))]
        return Val(*both, a.real)

    def deinterleave(self, x):
        return x.moved(lambda a: a[:, ::2]), x.moved(lambda a: a[:, 1::2])

    def _reduce(self, f, x, axis):
        def over(f, a, **more):
            return f(a, axis=(0, 1) if axis is None else axis, keepdims=True, **more)

        x = x.to(NAMES["i32"]) if x.dtype == BOOL and f is np.add.reduce else x
        with np.errstate(all="ignore"):
            most = over(np.maximum.reduce, x.e)
            if x.real is None:
                kept = {"dtype": x.dtype} if f in (np.add.reduce, np.multiply.reduce) else {}
                return Val(over(f, x.a, **kept), most)
            if f in (np.maximum.reduce, np.minimum.reduce):
                return Val(over(f, x.a), most, x.real)
            v, size = over(f, x.a), over(f, np.abs(x.a) + x.e)
            error = size - over(f, np.abs(x.a)) + size * x.a.size * float(LIMITS[x.real].eps)
            return rounded(v, np.where(np.isfinite(error), error, np.inf), x.real)

    def reduction(self, kind, x, axis):
        return self._reduce(
            {
                "xor": np.bitwise_xor.reduce,
                "or": np.bitwise_or.reduce,
                "and": np.bitwise_and.reduce,
            }[kind],
            x,
            axis,
        )

    def tile_mma(self, a, b, c=None):
        lost = np.isinf(a.e).any(1)[:, None] | np.isinf(b.e).any(0)[None, :]
        if a.real is None:
            r = Val(a.a.astype(np.int32) @ b.a.astype(np.int32), open_(lost))
        else:
            (p, q), (d, e) = map(np.abs, (a.a, b.a)), (np.nan_to_num(x.e, posinf=0) for x in (a, b))
            error = p @ e + d @ (q + e) + (p + d) @ (q + e) * len(b.a) * 2.0**-22
            r = rounded(a.a @ b.a, np.where(lost, np.inf, error), REALS["f32"])
        return r if c is None else r + c


for name, op in (("sum", np.add), ("prod", np.multiply), ("max", np.maximum), ("min", np.minimum)):
    setattr(Language, name, lambda self, x, axis=None, f=op.reduce: self._reduce(f, x, axis))
for name, op in (("any", np.bitwise_or), ("all", np.bitwise_and)):
    setattr(
        Language, name, lambda self, x, axis=None, f=op.reduce: self._reduce(f, x.to(BOOL), axis)
    )
for name, op in (("maximum", np.maximum), ("minimum", np.minimum)):
    setattr(Language, name, lambda self, a, b, f=op: _binary(f, a, b))


def _function(f, slack=0.0):
    """A function of floats: what its argument's error does to it, and its own error."""

    def of(self, x):
        with np.errstate(all="ignore"):
            low, high = (
                np.maximum(x.a - x.e, 0) if f in (np.sqrt, np.log, np.log2) else x.a - x.e,
                x.a + x.e,
            )
            v = f(x.a)
            e = np.maximum(np.abs(f(low) - v), np.abs(f(high) - v)) + np.abs(v) * ULPS + slack
            if f in (np.floor, np.ceil, np.rint):
                return Val(v, np.where(np.isfinite(x.e), f(high) - f(low), np.inf), x.real)
            if f in (np.sin, np.cos):
                e = np.minimum(x.e, 2) + slack
            return rounded(v, np.where(np.isfinite(x.e) & np.isfinite(e), e, np.inf), x.real)

    return of


for name, f, slack in (
    ("exp", np.exp, 0),
    ("exp2", np.exp2, 0),
    ("log", np.log, 2.0**-18),
    ("log2", np.log2, 2.0**-18),
    ("sqrt", np.sqrt, 0),
    ("rsqrt", lambda a: 1 / np.sqrt(np.maximum(a, 1e-9)), 0),
    ("sin", np.sin, 2.0**-16),
    ("cos", np.cos, 2.0**-16),
    ("tanh", np.tanh, 2.0**-20),
    ("atan", np.arctan, 0),
    ("erf", np.vectorize(erf, otypes=[float]), 2.0**-20),
    ("floor", np.floor, 0),
    ("ceil", np.ceil, 0),
    ("round", np.rint, 0),
):
    setattr(Language, name, _function(f, slack))
# Of three operations, each of which rounds.
Language.sigmoid = lambda self, x: 1.0 / (self.exp(-x) + 1.0)
