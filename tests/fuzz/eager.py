"""The tile language as plain Python runs it: one program after another, values as numpy arrays of integers.

What a kernel of `tests.fuzz.sources` computes when its text is executed with this module in place of `tilewright`.
"""
# pyright: basic

from __future__ import annotations

import operator
from typing import Any

import numpy as np

NAMES = {
    "i1": np.bool_,
    **{
        f"{s}{b}": getattr(np, f"{'u' if s == 'u' else ''}int{b}")
        for s in "iu"
        for b in (8, 16, 32, 64)
    },
}


class Val:
    """A tile, or a scalar of no dimensions."""

    __array_ufunc__ = None

    def __init__(self, a: Any):
        self.a = np.asarray(a)

    @property
    def dtype(self):
        return self.a.dtype

    @property
    def shape(self):
        return self.a.shape

    def to(self, dtype):
        return Val(self.a != 0 if dtype == np.bool_ else self.a.astype(dtype))

    def item(self):
        return Val(self.a.reshape(()))

    def __index__(self):
        return int(self.a)

    __int__ = __index__

    def __bool__(self):
        assert self.a.ndim == 0
        return bool(self.a)

    def __getitem__(self, at):
        return Val(self.a.reshape(-1)[:, None] if at[1] is None else self.a.reshape(-1)[None, :])

    def __abs__(self):
        return Val(np.abs(self.a))

    def __neg__(self):
        return _binary(operator.sub, Val(np.zeros((), self.dtype)), self)

    def __pow__(self, n):
        r = Val(np.ones(self.shape, self.dtype))
        for _ in range(n):
            r = _binary(operator.mul, r, self)
        return r

    def __invert__(self):
        return Val(~self.a)


def _meet(x, y):
    if not isinstance(y, Val):
        y = Val(
            np.array(y).astype(x.dtype if x.dtype != np.bool_ or isinstance(y, bool) else np.int64)
        )
    if not isinstance(x, Val):
        x = Val(
            np.array(x).astype(y.dtype if y.dtype != np.bool_ or isinstance(x, bool) else np.int64)
        )
    if (x.a.ndim == 0) == (y.a.ndim == 0):
        dtype = np.promote_types(x.dtype, y.dtype)
    else:
        dtype = x.dtype if x.a.ndim else y.dtype
    return x.a.astype(dtype), y.a.astype(dtype)


def _binary(op, x, y):
    with np.errstate(all="ignore"):
        a, b = _meet(x, y)
        return Val(op(a, b))


COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
for name in (
    *("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"),
    *COMPARISONS,
):
    op = getattr(operator, name)
    plain = name.rstrip("_")
    setattr(Val, f"__{plain}__", lambda x, y, op=op: _binary(op, x, y))
    if plain not in COMPARISONS:
        setattr(Val, f"__r{plain}__", lambda x, y, op=op: _binary(op, y, x))


class Array:
    """An argument, or a part of one."""

    def __init__(self, a):
        self.a = a

    @property
    def shape(self):
        return tuple(Val(np.int64(n)) for n in self.a.shape)

    @property
    def dtype(self):
        return self.a.dtype

    ndim = property(lambda self: self.a.ndim)

    def _at(self, at):
        at = tuple(map(int, at)) if isinstance(at, tuple) else (int(at),)
        return at, all(0 <= i < n for i, n in zip(at, self.a.shape, strict=True))

    def __getitem__(self, at):
        at, inside = self._at(at)
        return Val(self.a[at] if inside else self.a.dtype.type(0))

    def __setitem__(self, at, x):
        at, inside = self._at(at)
        if inside:
            self.a[at] = (
                x.a.astype(self.dtype) if isinstance(x, Val) else np.array(x).astype(self.dtype)
            )


class Tile:
    def __init__(self, array, at, shape):
        self.array, self.at, self.shape = array, tuple(map(int, at)), tuple(shape)

    def places(self):
        *lead, r, c = self.at if len(self.at) > 1 else (0, *self.at)
        a = self.array.a
        plane = a[None] if a.ndim == 1 else a
        for i in lead:
            if not 0 <= i < plane.shape[0]:
                return None, None, None
            plane = plane[i]
        rows, columns = np.meshgrid(
            np.arange(r, r + self.shape[0]), np.arange(c, c + self.shape[1]), indexing="ij"
        )
        inside = (rows >= 0) & (rows < plane.shape[0]) & (columns >= 0) & (columns < plane.shape[1])
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

    def __init__(self, ids, grid):
        self.ids, self.grid = ids, grid
        for name, t in NAMES.items():
            setattr(self, name, np.dtype(t))

    index = np.dtype(np.int64)

    def program_id(self, axis):
        return Val(np.int64(self.ids[axis]))

    def num_programs(self, axis):
        return Val(np.int64(self.grid[axis]))

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
        return Array(base.a[tuple(parts)])

    def load_tile(self, t, mask=None, padding=0):
        out = np.full(t.shape, padding).astype(t.array.dtype)
        plane, at, inside = t.places()
        if plane is not None:
            out[inside] = plane[at]
        if mask is not None:
            out = np.where(mask.a, out, np.array(padding).astype(out.dtype))
        return Val(out)

    def store_tile(self, x, t, mask=None):
        plane, at, inside = t.places()
        if plane is None:
            return
        a = x.a if isinstance(x, Val) else np.array(x)
        a = np.broadcast_to(a.astype(t.array.dtype), t.shape)
        m = np.broadcast_to(True if mask is None else mask.a, t.shape)[inside]
        plane[tuple(i[m] for i in at)] = a[inside][m]

    def load_gather(self, t, mask=None, padding=0):
        flat, at = t.array.a.reshape(-1), t.at.a
        m = np.broadcast_to(True if mask is None else mask.a, at.shape)
        assert ((at[m] >= 0) & (at[m] < flat.size)).all()
        out = np.full(at.shape, padding).astype(flat.dtype)
        out[m] = flat[at[m]]
        return Val(out)

    def store_scatter(self, x, t, mask=None):
        at = t.at.a
        m = np.broadcast_to(True if mask is None else mask.a, at.shape)
        flat = t.array.a.reshape(-1)
        a = np.broadcast_to(
            (x.a if isinstance(x, Val) else np.array(x)).astype(flat.dtype), at.shape
        )
        flat[at[m]] = a[m]

    def atomic_rmw(self, kind, x, t, mask=None):
        at = t.at.a
        m = np.broadcast_to(True if mask is None else mask.a, at.shape)
        flat = t.array.a.reshape(-1)
        a = np.broadcast_to(
            (x.a if isinstance(x, Val) else np.array(x)).astype(flat.dtype), at.shape
        )
        with np.errstate(all="ignore"):
            {
                "add": np.add,
                "max": np.maximum,
                "min": np.minimum,
                "xor": np.bitwise_xor,
                "or": np.bitwise_or,
                "and": np.bitwise_and,
            }[kind].at(flat, at[m], a[m])

    def zeros(self, shape, dtype):
        return Val(np.zeros(shape, dtype))

    def full(self, shape, x, dtype):
        return Val(np.full(shape, (x.a if isinstance(x, Val) else np.array(x)).astype(dtype)))

    def arange(self, start, stop=None, *, axis=1, shape=None):
        line = np.arange(start) if stop is None else np.arange(start, stop)
        line = line.astype(np.int64).reshape((1, -1) if axis == 1 else (-1, 1))
        return Val(line if shape is None else np.broadcast_to(line, shape))

    def where(self, c, a, b):
        x, y = _meet(a, b)
        return Val(np.where(c.a, x, y))

    def maximum(self, a, b):
        return _binary(np.maximum, a, b)

    def minimum(self, a, b):
        return _binary(np.minimum, a, b)

    def abs(self, x):
        return abs(x)

    def transpose(self, x):
        return Val(x.a.T)

    def broadcast(self, x, axis, size):
        return Val(np.repeat(x.a, size, axis))

    def interleave(self, a, b):
        return Val(np.stack([a.a, b.a], -1).reshape(a.shape[0], -1))

    def deinterleave(self, x):
        return Val(x.a[:, ::2]), Val(x.a[:, 1::2])

    def _reduce(self, f, x, axis):
        axes = (0, 1) if axis is None else axis
        with np.errstate(all="ignore"):
            return Val(
                f(
                    x.a,
                    axis=axes,
                    keepdims=True,
                    **({"dtype": x.dtype} if f in (np.add.reduce, np.multiply.reduce) else {}),
                )
            )

    def sum(self, x, axis=None):
        return self._reduce(np.add.reduce, x, axis)

    def prod(self, x, axis=None):
        return self._reduce(np.multiply.reduce, x, axis)

    def max(self, x, axis=None):
        return self._reduce(np.maximum.reduce, x, axis)

    def min(self, x, axis=None):
        return self._reduce(np.minimum.reduce, x, axis)

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
        r = a.a.astype(np.int32) @ b.a.astype(np.int32)
        return Val(r if c is None else r + c.a)
