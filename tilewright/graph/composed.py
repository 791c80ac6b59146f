"""Functions of numpy on traced arrays that are made of others: sums of products by letters, first places, masks, norms.

What looks at small differences (`log1p`, `expm1`) is as exact as its parts: for x near 0 the error of `1 + x` is
divided out again (Kahan).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log, pi
from string import ascii_letters
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph.affine import affine
from tilewright.graph.arrange import moveaxis
from tilewright.graph.functions import einsum_of_two, from_end, indices, matmul
from tilewright.graph.nodes import Access, Gather, Index
from tilewright.graph.operations import computing
from tilewright.graph.powers import power
from tilewright.graph.scan import scan
from tilewright.graph.traced import Traced, elementwise, reduced, where, widened

# Elements ---------------------------------------------------------------------------------------------------------


def log1p(x: Traced) -> Traced:
    """log(1 + x), also where x is small."""
    u = x + 1.0
    near = where(u == 1.0, x, np.log(u) * (x / (u - 1.0)))
    return where(np.absolute(x) < 1.0, near, np.log(u))


def expm1(x: Traced) -> Traced:
    """exp(x) - 1, also where x is small."""
    u = np.exp(x)
    near = where(u == 1.0, x, (u - 1.0) * (x / np.log(u)))
    return where(np.absolute(x) < 1.0, near, u - 1.0)


def sinh(x: Traced) -> Traced:
    """(exp(x) - exp(-x)) / 2."""
    e = expm1(np.absolute(x))
    y = (e + e / (e + 1.0)) * 0.5
    return where(x < 0.0, -y, y)


def logaddexp(x: Any, y: Any) -> Traced:
    """log(exp(x) + exp(y)), without exceeding the range on the way; infinities have no difference."""
    apart = where(x == y, 0.0, x - y)
    return np.maximum(x, y) + log1p(np.exp(-np.absolute(apart)))


def hypot(x: Any, y: Any) -> Traced:
    """sqrt(x*x + y*y), without exceeding the range on the way; zeros and infinities have no ratio.

    With an infinity it is infinite, even beside NaN.
    """
    x, y = np.absolute(x), np.absolute(y)
    larger, smaller = np.maximum(x, y), np.minimum(x, y)
    ratio = where(larger == smaller, 1.0, smaller / larger)
    length = larger * np.sqrt(ratio * ratio + 1.0)
    for side in (x, y):
        if isinstance(side, Traced):
            length = where(side == inf, inf, length)
    return length


def arctan2(y: Any, x: Any) -> Traced:
    """The angle of (x, y), of the sign of y: that of zeros counts, and infinities are as far as each other."""
    wide, high = np.absolute(x), np.absolute(y)
    larger, smaller = np.maximum(wide, high), np.minimum(wide, high)
    ratio = where(larger == smaller, where(larger == 0.0, 0.0, 1.0), smaller / larger)
    angle = np.arctan(where(larger != larger, larger, ratio))
    angle = where(high > wide, pi / 2 - angle, angle)
    angle = where(_is_negative(x), pi - angle, angle)
    return where(_is_negative(y), -angle, angle)


def _is_negative(x: Any) -> Any:
    return elementwise("bitwise_or", x < 0.0, 1.0 / x < 0.0)


def gammaln(x: Traced) -> Traced:
    """log |gamma(x)| by Stirling's series of x + 8, for x below 1/2 by that of 1 - x."""
    below = x < 0.5
    y = where(below, 1.0 - x, x)
    far, passed = y + 8.0, y
    for n in range(1, 8):
        passed = passed * (y + float(n))
    turn = 1.0 / (far * far)
    series = (1 / 12 - turn * (1 / 360 - turn * (1 / 1260 - turn * (1 / 1680)))) / far
    # Of large y the product has no room: it is a millionth of a part of the rest there.
    grown = where(y > 1e4, (y - 0.5) * np.log(y) - y + 1.0 / (12.0 * y), 0.0)
    found = (far - 0.5) * np.log(far) - far + series - np.log(where(y > 1e4, 1.0, passed))
    found = where(y > 1e4, grown, found) + log(2 * pi) / 2
    whole = x - np.floor(x)
    turned = log(pi) - np.log(np.absolute(np.sin(whole * pi))) - found
    found = where(below, where(whole == 0.0, inf, turned), found)
    return where(np.absolute(x) == inf, inf, found)


def _log(x: Traced, base: float) -> Traced:
    return np.log2(x) * float(1 / np.log2(base))


ELEMENTS: dict[Any, Callable[..., Any]] = {
    np.square: lambda x: x * x,
    np.power: power,
    np.positive: lambda x: x,
    np.isnan: lambda x: x != x,
    np.reciprocal: lambda x: 1.0 / x,
    np.sign: lambda x: where(x > 0, 1, where(x < 0, -1, x * 0)),
    np.log1p: log1p,
    np.expm1: expm1,
    np.sinh: sinh,
    np.cosh: lambda x: (np.exp(x) + np.exp(-x)) * 0.5,
    np.tan: lambda x: np.sin(x) / np.cos(x),
    np.arcsin: lambda x: np.arctan(x / np.sqrt((1.0 - x) * (1.0 + x))),
    np.arccos: lambda x: 2.0 * np.arctan(np.sqrt((1.0 - x) / (1.0 + x))),
    np.arctan2: arctan2,
    np.log10: lambda x: _log(x, 10.0),
    np.logaddexp: logaddexp,
    np.hypot: hypot,
    np.trunc: lambda x: where(x < 0.0, np.ceil(x), np.floor(x)),
    np.fabs: np.absolute,
    np.isfinite: lambda x: np.absolute(x) < inf,
    np.isinf: lambda x: np.absolute(x) == inf,
    np.heaviside: lambda x, y: where(x == 0.0, y, where(x < 0.0, 0.0, 1.0)),
    np.deg2rad: lambda x: x * (pi / 180),
    np.rad2deg: lambda x: x * (180 / pi),
    np.logical_and: lambda x, y: elementwise("bitwise_and", truth(x), truth(y)),
    np.logical_or: lambda x, y: elementwise("bitwise_or", truth(x), truth(y)),
    np.logical_xor: lambda x, y: elementwise("bitwise_xor", truth(x), truth(y)),
    np.logical_not: lambda x: elementwise("invert", truth(x)),
}
"""What a ufunc does."""


def truth(x: Any) -> Any:
    """Which elements are not zero: a mask."""
    return x.astype(dtypes.i1) if isinstance(x, Traced) else bool(x)


# Along an axis ----------------------------------------------------------------------------------------------------


def _place(x: Traced, axis: Any, keepdims: bool, best: str) -> Traced:
    """The first place along `axis` at which the largest (or smallest) element is, or the first NaN."""
    if axis is None:
        shape = [1] * x.ndim
        found = _place(x.reshape(-1), 0, False, best)
        return found.reshape(shape) if keepdims else found
    axis %= x.ndim
    top = x.max(axis, True) if best == "max" else x.min(axis, True)
    found = x == top
    found = elementwise("bitwise_or", found, x != x) if x.dtype.is_float else found
    return where(found, indices(x, axis), x.extents[axis]).min(axis, keepdims)


def cumulated(x: Traced, axis: Any = None, kind: str = "add") -> Traced:
    """Sums (or products) of the elements up to each one: a scan, which holds narrow floats as f32."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    dtype = widened(x).dtype
    rows = moveaxis(x.astype(computing(dtype)), axis, 0)
    first = np.full_like(rows, 0 if kind == "add" else 1, shape=rows.shape[1:])

    def step(total: Traced, row: Traced) -> tuple[Traced, Traced]:
        total = elementwise(kind, total, row)
        return total, total

    return moveaxis(scan(step, first, rows)[1], 0, axis).astype(dtype)


def cumulated_logs(x: Traced, axis: int) -> Traced:
    """Logarithms of the sums of exponentials of the elements up to each one."""
    rows = moveaxis(x.astype(computing(x.dtype)), axis, 0)

    def step(total: Traced, row: Traced) -> tuple[Traced, Traced]:
        total = logaddexp(total, row)
        return total, total

    first = np.full_like(rows, -inf, shape=rows.shape[1:])
    return moveaxis(scan(step, first, rows)[1], 0, axis).astype(x.dtype)


def extremes(x: Traced, axis: int, kind: Any) -> tuple[Traced, Traced]:
    """The largest ("max") or smallest element up to each one, and where it is last; NaN from the last one on."""
    rows = moveaxis(x, axis, 0)
    places = counted(rows, [rows.extents[0]], 0)
    first = (rows[0], np.zeros_like(rows[0], dtype=np.int64))

    def step(state: Any, each: Any) -> Any:
        top, at = state
        row, place = each
        taken = row >= top if kind == "max" else row <= top
        if x.dtype.is_float:
            taken = elementwise("bitwise_or", taken, row != row)
        state = where(taken, row, top), where(taken, place, at)
        return state, state

    tops, at = scan(step, first, (rows, places))[1]
    return moveaxis(tops, 0, axis), moveaxis(at, 0, axis)


def norm(x: Traced, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Traced:
    """The norm of vectors along `axis` of order 2, 1, 0 (how many are not 0), infinity or another number.

    None and None: of all elements.
    """
    if axis is None and x.ndim > 1 and ord not in (None, "fro"):
        raise CompileError(f"the norm of order {ord} of a matrix", hint="axis=-1: of its rows")
    if ord in (None, 2, "fro"):
        return np.sqrt((x * x).sum(axis, keepdims))
    if ord == 0:
        return truth(x).sum(axis, keepdims).astype(x.dtype)
    if ord in (inf, -inf):
        sizes = np.absolute(x)
        return sizes.max(axis, keepdims) if ord > 0 else sizes.min(axis, keepdims)
    return (np.absolute(x) ** ord).sum(axis, keepdims) ** (1 / ord)


def _triangle(x: Traced, k: int, lower: bool) -> Traced:
    if x.ndim < 2:
        raise CompileError(f"a triangle of an array with {x.ndim} dimensions")
    ahead = indices(x, -1) - indices(x, -2)
    return where(ahead <= k if lower else ahead >= k, x, False if x.dtype.is_bool else 0)


def _difference(x: Traced, n: int = 1, axis: int = -1) -> Traced:
    for _ in range(n):
        y = moveaxis(x, axis, 0)
        x = moveaxis(y[1:] - y[: y.extents[0] - 1], 0, axis)
    return x


def _average(x: Traced, axis: Any = None, weights: Any = None) -> Traced:
    return x.mean(axis) if weights is None else (x * weights).sum(axis) / weights.sum(axis)


def along(x: Traced, ids: Traced, axis: int) -> Traced:
    """``np.take_along_axis``: where `ids` has a place along `axis`, the element of ``x`` there."""
    axis %= x.ndim
    sizes = [
        (a, b) for d, (a, b) in enumerate(zip(x.extents, ids.extents, strict=True)) if d != axis
    ]
    if not ids.dtype.is_integer or any(a != b for a, b in sizes):
        raise CompileError(
            f"elements of [{', '.join(map(str, x.extents))}] along dimension {axis} by {ids.dtype}"
            f"[{', '.join(map(str, ids.extents))}]",
            rule="the places are integers, and all other dimensions are the same",
        )
    ids, at = from_end(ids, x.extents[axis]), Index(affine(f"#{axis}"))
    x = x if x.view.count(at) == 1 else x.copied()
    place = Gather(Access(ids.buffer, ids.view))
    view = tuple(place if e == at else e for e in x.view)
    return Traced(x.recorder, x.buffer, ids.extents, view, x.dtype)


# Products ---------------------------------------------------------------------------------------------------------


def einsum(subscripts: str, *operands: Any) -> Any:
    """``np.einsum``: products of elements, summed over the letters that the result lacks; two operands at a time."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    words = left.split(",")
    if "..." in left and len(words) == len(operands):
        words, right = _spelled(words, right if arrow else None, [x.ndim for x in operands])
        left, arrow = ",".join(words), "->"
    if len(words) != len(operands) or not left.replace(",", "").isalpha():
        raise CompileError(
            f"einsum {subscripts!r} of {len(operands)} arrays",
            rule="letters for the dimensions of each array, as 'mk,kn->mn'",
        )
    if not arrow:
        letters = left.replace(",", "")
        right = "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    arrays = list(operands)
    many = {c for w, x in zip(words, arrays, strict=True) if len(w) == x.ndim
            for c, e in zip(w, x.extents, strict=True) if e.number != 1}  # fmt: skip
    for i, word in enumerate(words):
        ones = [c in many and e.number == 1 for c, e in zip(word, arrays[i].extents, strict=False)]
        if any(ones) and len(word) == arrays[i].ndim:
            arrays[i] = arrays[i][tuple(0 if one else slice(None) for one in ones)]
            word = words[i] = "".join(c for c, one in zip(word, ones, strict=True) if not one)
        if len(set(word)) < len(word) == arrays[i].ndim:
            words[i] = "".join(dict.fromkeys(word))
            arrays[i] = _diagonal(arrays[i], word)
    while len(arrays) > 2:
        later = "".join((right, *words[2:]))
        kept = "".join(dict.fromkeys(c for c in words[0] + words[1] if c in later))
        arrays[:2] = [einsum_of_two(f"{words[0]},{words[1]}->{kept}", arrays[0], arrays[1])]
        words[:2] = [kept]
    if len(arrays) == 2:
        return einsum_of_two(f"{words[0]},{words[1]}->{right}", *arrays)
    ((word,), (x,)) = words, arrays
    if len(set(word)) < len(word) or len(word) != x.ndim or not set(right) <= set(word):
        raise CompileError(
            f"einsum {subscripts!r} of an array with {x.ndim} dimensions",
            rule="a letter for each dimension, once",
        )
    axes = tuple(i for i, c in enumerate(word) if c not in right)
    x = reduced("add", x, axes) if axes else x
    rest = [c for c in word if c in right]
    return x.transpose([rest.index(c) for c in right]) if right else x


def _spelled(words: list[str], right: str | None, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Words with letters instead of an ellipsis; without a result, its letters and those that come once."""
    free = [c for c in ascii_letters if c not in "".join((*words, right or ""))]
    rest = [rank - len(w) + 3 for w, rank in zip(words, ranks, strict=True) if "..." in w]
    letters = "".join(free[: max(rest)])
    seen = "".join(words).replace(".", "")
    once = "".join(c for c in sorted(set(seen)) if seen.count(c) == 1)
    made = [
        w.replace("...", letters[len(letters) - (rank - len(w) + 3) :])
        for w, rank in zip(words, ranks, strict=True)
    ]
    return made, letters + once if right is None else right.replace("...", letters)


def _diagonal(x: Traced, word: str) -> Traced:
    """Where dimensions of one letter have the same place: a dimension for each letter, as they come."""
    letters = "".join(dict.fromkeys(word))
    sizes = {c: {e for c2, e in zip(word, x.extents, strict=True) if c2 == c} for c in letters}
    if any(len(each) > 1 for each in sizes.values()):
        raise CompileError(f"einsum of {word!r} for {x}", rule="one letter, one extent")
    values = {f"#{i}": affine(f"#{letters.index(c)}") for i, c in enumerate(word)}
    return x.viewed(tuple(next(iter(sizes[c])) for c in letters), values)


def dot(a: Any, b: Any) -> Any:
    """``np.dot``: sums of products over the last dimension of a and the last but one of b."""
    if not isinstance(a, Traced) or not isinstance(b, Traced) or a.ndim * b.ndim == 0:
        return a * b
    return matmul(a, b) if b.ndim <= 2 else tensordot(a, b, (-1, -2))


def tensordot(a: Traced, b: Traced, axes: Any = 2) -> Any:
    """``np.tensordot``: sums of products over pairs of dimensions."""
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    one, two = ([axes[i]] if isinstance(axes[i], int) else list(axes[i]) for i in (0, 1))
    letters = "abcdefghijklmnopqrstuvwxyz"
    first, second = list(letters[: a.ndim]), list(letters[a.ndim : a.ndim + b.ndim])
    for i, j in zip(one, two, strict=True):
        second[j] = first[i]
    kept = [c for c in (*first, *second) if (first + second).count(c) == 1]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b)


def _outer(a: Traced, b: Traced) -> Traced:
    return a.reshape(-1)[:, None] * b.reshape(-1)[None]


def counted(like: Traced, shape: Sequence[Any], axis: int) -> Traced:
    """0, 1, 2, ... along an axis of a shape."""
    extents = [affine(e) for e in shape]
    names = like.recorder.axes(len(extents))
    return like.recorder.add(
        "iota", [affine(names[axis])], extents, range(len(extents)), dtypes.i64
    )


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.argmax: lambda x, axis=None, keepdims=False: _place(x, axis, keepdims, "max"),
    np.argmin: lambda x, axis=None, keepdims=False: _place(x, axis, keepdims, "min"),
    np.any: lambda x, axis=None, keepdims=False: truth(x).max(axis, keepdims),
    np.all: lambda x, axis=None, keepdims=False: truth(x).min(axis, keepdims),
    np.cumsum: cumulated,
    np.cumprod: lambda x, axis=None: cumulated(x, axis, "mul"),
    np.linalg.norm: norm,
    np.take_along_axis: along,
    np.tril: lambda x, k=0: _triangle(x, k, True),
    np.triu: lambda x, k=0: _triangle(x, k, False),
    np.diff: _difference,
    np.ptp: lambda x, axis=None, keepdims=False: x.max(axis, keepdims) - x.min(axis, keepdims),
    np.average: _average,
    np.count_nonzero: lambda x, axis=None, *, keepdims=False: truth(x).sum(axis, keepdims),
    np.einsum: einsum,
    np.dot: dot,
    np.inner: lambda a, b: tensordot(a, b, (-1, -1)),
    np.vdot: lambda a, b: reduced("add", a.reshape(-1) * b.reshape(-1), 0),
    np.outer: _outer,
    np.tensordot: tensordot,
}
"""What a function of numpy does."""
