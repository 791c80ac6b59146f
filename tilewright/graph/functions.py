"""Functions of arrays: for traced arrays and for numpy alike, so that an expression is its own oracle.

`softmax`, `layer_norm` and their like are written in terms of the primitives; nothing downstream knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph.affine import Affine, affine
from tilewright.graph.arrange import ARRANGED
from tilewright.graph.nodes import Access, Gather, Index, Operation, TiledEdge
from tilewright.graph.traced import (
    Combine,
    Traced,
    broadcast,
    elementwise,
    normal_axes,
    reduced,
    where,
    widened,
)
from tilewright.lang.promote import promote

# Products ---------------------------------------------------------------------------------------------------------


def matmul(a: Any, b: Any) -> Any:
    """The matrix product, as ``a @ b`` in numpy: vectors and leading batch dimensions included."""
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return np.matmul(a, b)
    if not isinstance(a, Traced) or not isinstance(b, Traced):
        raise CompileError(
            "a product of a traced array and one that is not",
            hint="pass the array as an argument of the function",
        )
    if a.ndim == 0 or b.ndim == 0:
        raise CompileError("a matrix product takes arrays, not scalars")
    if a.ndim == 1 or b.ndim == 1:  # no matrices: products of elements and a sum
        right = b if b.ndim == 1 else b.swapaxes(-1, -2)
        return reduced("add", a * right, -1)
    if a.extents[-1] != b.extents[-2]:
        raise CompileError(
            f"matmul of {_shape(a)} and {_shape(b)}: {a.extents[-1]} is not {b.extents[-2]}"
        )
    batch = broadcast("matmul", [a.extents[:-2], b.extents[:-2]]) if a.ndim + b.ndim > 4 else ()
    extents = (*batch, a.extents[-2], b.extents[-1], a.extents[-1])
    names = a.recorder.axes(len(extents))
    i, j, k = names[-3:]

    def lead(x: Traced) -> list[Any]:
        own = names[len(batch) - (x.ndim - 2) : len(batch)]
        return [Affine() if e.number == 1 else n for n, e in zip(own, x.extents, strict=False)]

    dtype = promote(a.dtype, b.dtype)
    left, right = a.astype(dtype), b.astype(dtype)
    result = dtype if dtype.is_float else dtypes.i32
    return a.recorder.add(
        "mma", [left.at([*lead(a), i, k]), right.at([*lead(b), k, j])], extents,
        range(len(extents) - 1), result, combine="add", name="product",
    )  # fmt: skip


def einsum_of_two(subscripts: str, a: Any, b: Any) -> Any:
    """``np.einsum`` of two arrays: a product of elements summed over the letters that the result lacks."""
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return np.einsum(subscripts, a, b)
    if not isinstance(a, Traced) or not isinstance(b, Traced):
        raise CompileError("einsum of a traced array and one that is not")
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    first, comma, second = left.partition(",")
    letters = "".join(dict.fromkeys(right + first + second))
    if not (arrow and comma and letters.isalpha()) or any(
        len(set(w)) != len(w) for w in (first, second, right)
    ):
        raise CompileError(f"einsum {subscripts!r}: a graph takes two operands, as 'mk,kn->mn'")
    extents: dict[str, Affine] = {}
    for word, x in ((first, a), (second, b)):
        if len(word) != x.ndim:
            raise CompileError(f"einsum {subscripts!r}: {word} for an array {_shape(x)}")
        for letter, extent in zip(word, x.extents, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise CompileError(
                    f"einsum {subscripts!r}: {letter} is {extents[letter]} and {extent}"
                )
    if not set(right) <= set(extents):
        raise CompileError(f"einsum {subscripts!r}: the result has letters that no operand has")
    names = dict(zip(letters, a.recorder.axes(len(letters)), strict=True))
    dtype = promote(a.dtype, b.dtype)
    loads = [x.astype(dtype).at([names[c] for c in word]) for word, x in ((first, a), (second, b))]
    return a.recorder.add(
        "mma", loads, [extents[c] for c in letters], range(len(right)),
        dtype if dtype.is_float else dtypes.i32, combine="add", name="product",
    )  # fmt: skip


# Indexing ---------------------------------------------------------------------------------------------------------


def index(x: Traced, key: Any, negative: bool = True) -> Traced:
    """``x[key]``: numbers, slices, None, ``...``, and arrays of integers (a gather), some of which may be negative."""
    keys = list(key) if isinstance(key, tuple) else [key]
    place = next((i for i, k in enumerate(keys) if k is Ellipsis), None)
    if place is not None:
        taken = sum(k is not None for k in keys) - 1
        keys[place : place + 1] = [slice(None)] * (x.ndim - taken)
    keys += [slice(None)] * (x.ndim - sum(k is not None for k in keys))
    extents: list[Affine] = []
    values: dict[str, Affine] = {}
    gathers: dict[int, Traced] = {}
    old = 0
    for k in keys:
        if k is None:
            extents.append(Affine((), 1))
            continue
        if old >= x.ndim:
            raise CompileError(f"{len(keys)} indices for {_shape(x)}")
        extent, name = x.extents[old], f"#{old}"
        if isinstance(k, Traced):
            if not k.dtype.is_integer:
                raise CompileError(f"indices of {k.dtype}: a gather takes integers")
            if gathers:
                return _index_many(x, keys)
            gathers[old] = k = from_end(k, extent) if negative else k
            values[name] = affine(f"@{len(extents)}")
            extents += k.extents
        elif isinstance(k, slice):
            first, step, size = _run(k, extent)
            values[name] = affine(f"#{len(extents)}") * step + first
            extents.append(size)
        elif isinstance(k, (int, np.integer)):
            values[name] = _position(int(k), extent, Affine())
        else:
            raise CompileError(
                f"a traced array cannot be indexed by {k!r}",
                hint="pass an array of integers to the graph, beside the others"
                if isinstance(k, (list, np.ndarray))
                else None,
            )
        old += 1
    if not gathers:
        return x.viewed(tuple(extents), values)
    ((dimension, ids),) = gathers.items()
    first = int(values[f"#{dimension}"].names[0][1:])
    taken_at = Access(ids.buffer, ids.view).substitute(
        {f"#{i}": affine(f"#{first + i}") for i in range(ids.ndim)}
    )
    mark = f"#{dimension}"
    entries = list(x.view)
    marked = [i for i, e in enumerate(entries) if isinstance(e, Index) and e.at == affine(mark)]
    if not marked:  # the dimension is a window or the like: it needs a Buffer of its own
        return index(x.copied(), key, negative)
    entries = list(Access(x.buffer, x.view).substitute(values).entries)
    entries[marked[0]] = Gather(taken_at)
    return Traced(x.recorder, x.buffer, tuple(extents), tuple(entries), x.dtype)


def _index_many(x: Traced, keys: Sequence[Any]) -> Traced:
    """Several arrays of integers, which broadcast: places in the dimensions that they name, as one."""
    at: list[int] = []
    ids: list[Traced] = []
    before = 0
    for k in keys:
        if isinstance(k, Traced):
            at.append(before)
            ids.append(k)
        before += not isinstance(k, (int, np.integer))
    x = index(x, tuple(slice(None) if isinstance(k, Traced) else k for k in keys))
    together = all(b == a + 1 for a, b in pairwise(at))
    first = at[0] if together else 0
    rest = [d for d in range(x.ndim) if d not in at]
    x = x.transpose([*rest[:first], *at, *rest[first:]])
    sizes = x.extents[first : first + len(at)]
    place = flat_place(ids, sizes)
    x = x.reshape([*x.extents[:first], -1, *x.extents[first + len(at) :]])
    return index(x, (*[slice(None)] * first, place), negative=False)


def flat_place(ids: Sequence[Traced], sizes: Sequence[Any]) -> Traced:
    """Indices in dimensions of these sizes as those in one; they broadcast, and negative ones count from the end."""
    place, *rest = (from_end(k, extent) for k, extent in zip(ids, sizes, strict=True))
    for k, extent in zip(rest, sizes[1:], strict=True):
        place = place * extent + k
    return place


def from_end(ids: Traced, extent: Any) -> Traced:
    """Indices, the negative ones of which count from the end."""
    if ids.dtype.is_unsigned:
        return ids
    ids = ids.astype(dtypes.i64)
    return where(ids < 0, ids + extent, ids)


def _position(value: Any, extent: Affine, default: Affine) -> Affine:
    if value is None:
        return default
    at = affine(value)
    if at.number is not None and at.number < 0:
        at = extent + at
    rest = (extent - at).number
    if rest is not None and (rest < 0 or (at.number is not None and at.number < 0)):
        raise CompileError(f"position {value} of a dimension of {extent}")
    return at


def _run(key: slice, extent: Affine) -> tuple[Affine, int, Affine]:
    """The first position of a slice, its step, and how many positions it has."""
    step = 1 if key.step is None else key.step
    if not isinstance(step, int) or step == 0:
        raise CompileError(f"a slice with the step {step}")
    if step == 1:
        low, high = _position(key.start, extent, Affine()), _position(key.stop, extent, extent)
        return low, 1, high - low
    if extent.number is None and step == -1 and key.start is key.stop is None:
        return extent - 1, -1, extent
    if extent.number is None:
        raise CompileError(
            f"a slice with the step {step} of a dimension of {extent}, which is no number"
        )
    found = range(extent.number)[key]
    return affine(found.start), step, affine(len(found))


def take(x: Any, ids: Any, axis: int = 0) -> Any:
    """The rows (or whatever stands along ``axis``) of ``x`` that the integers `ids` name."""
    if not isinstance(x, Traced):
        return np.take(x, ids, axis=axis)
    return x[(*[slice(None)] * (axis % x.ndim), ids)]


def scatter_add(size: Any, ids: Any, values: Any) -> Any:
    """An array of `size` rows, zero but for ``values[i]`` added to row ``ids[i]``: ids [...], values [..., E...]."""
    if not isinstance(values, Traced):
        rows = ids.reshape(-1)
        flat = values.reshape(rows.size, *values.shape[ids.ndim :])
        result = np.zeros((size, *flat.shape[1:]), values.dtype)
        np.add.at(result, rows, flat)
        return result
    return scattered(size, ids, values, "add")


def scattered(size: Any, ids: Any, values: Traced, combine: Combine) -> Traced:
    """The same by another combination of what is there, 0 at first, and the values."""
    recorder = values.recorder
    if recorder.scan is not None:
        raise CompileError("scatter_add in the body of a scan: iterations would add to one array")
    if isinstance(size, (Traced, np.ndarray)):
        raise CompileError(f"scatter_add to {size!r}: the first argument is the number of rows")
    if not isinstance(ids, Traced) or ids.extents != values.extents[: ids.ndim]:
        raise CompileError("scatter_add: the indices have the leading dimensions of the values")
    names = recorder.axes(values.ndim)
    result = recorder.add(
        "copy", [values.at(names)], values.extents, range(values.ndim), values.dtype,
        combine=combine, name="scattered",
    )  # fmt: skip
    task = recorder.graph.tasks[-1]
    operation = task.nodes[0]
    assert isinstance(operation, Operation)
    rows = Gather(ids.at(names[: ids.ndim]).access)
    at = Access(result.buffer, (rows, *(Index(affine(n)) for n in names[ids.ndim :])))
    ones = set(names) - {axis.name for axis in task.axes}  # extents of 1 are no axes
    at = at.substitute({n: Affine() for n in ones})
    task.nodes[0] = replace(operation, store=TiledEdge("store", at, combine))
    shape = (affine(size), *values.extents[ids.ndim :])
    return recorder.reshaped(result.buffer, shape, zeroed=True)


def windows(x: Any, size: Sequence[int], axes: Sequence[int]) -> Any:
    """Windows of `size` along `axes` of ``x``, as new last dimensions: numpy's sliding_window_view."""
    if not isinstance(x, Traced):
        return np.lib.stride_tricks.sliding_window_view(x, tuple(size), tuple(axes))
    return windows_apart(x, [(axis, n, 1, 1) for n, axis in zip(size, axes, strict=True)])


def windows_apart(x: Traced, along: Iterable[tuple[int, int, int, int]]) -> Traced:
    """Windows along axes, as new last dimensions.

    Of each: the axis, its elements, how far it is from one window to the next and from one element to the next.
    """
    extents, values, size = list(x.extents), dict[str, Affine](), list[Affine]()
    for axis, count, step, apart in along:
        extent = x.extents[axis]
        if extent.number is None and step > 1:
            raise CompileError(
                f"windows {step} apart of a dimension of {extent}, which is no number"
            )
        room = extent - apart * (count - 1)
        extents[axis] = room if step == 1 else affine(-(-(room.number or 0) // step))
        values[f"#{axis}"] = affine(f"#{axis}") * step + affine(f"#{x.ndim + len(size)}") * apart
        size.append(affine(count))
    return x.viewed((*extents, *size), values)


def indices(like: Any, axis: int) -> Any:
    """0, 1, 2, ... along `axis` of an array ``like`` this one, with extent 1 elsewhere: for masks."""
    if not isinstance(like, Traced):
        shape = [1] * like.ndim
        shape[axis] = like.shape[axis]
        return np.arange(like.shape[axis]).reshape(shape)
    axis %= like.ndim
    extents = [e if i == axis else affine(1) for i, e in enumerate(like.extents)]
    names = like.recorder.axes(like.ndim)
    return like.recorder.add(
        "iota", [affine(names[axis])], extents, range(like.ndim), dtypes.i64
    )  # fmt: skip


# What is made of the primitives -----------------------------------------------------------------------------------


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x - max) / sum along ``axis``."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def scaled(y: Any, weight: Any, bias: Any) -> Any:
    """Times weights and plus biases, where there are any."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, axes: Any = -1
) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, or others."""
    return rms_norm(x - x.mean(axis=axes, keepdims=True), weight, eps, axes, bias)


def rms_norm(
    x: Any, weight: Any = None, eps: float = 1e-6, axes: Any = -1, bias: Any = None
) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight + bias over the last dimension, or others."""
    y = x * rsqrt((x * x).mean(axis=axes, keepdims=True) + eps)
    return scaled(y, weight, bias)


def _own(name: str, x: Any) -> Any:
    from tilewright.graph.operations import OPERATIONS

    return elementwise(name, x) if isinstance(x, Traced) else OPERATIONS[name].meaning(x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _own("rsqrt", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _own("sigmoid", x)


def erf(x: Any) -> Any:
    """The error function."""
    return _own("erf", x)


def relu(x: Any) -> Any:
    """The larger of x and 0."""
    return np.maximum(x, 0.0)


def silu(x: Any) -> Any:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Any) -> Any:
    """x Phi(x), in its exact form."""
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


# numpy's protocols ------------------------------------------------------------------------------------------------

_UFUNCS: dict[Any, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div",
    np.negative: "neg", np.exp: "exp", np.exp2: "exp2", np.log: "log", np.log2: "log2",
    np.sqrt: "sqrt", np.tanh: "tanh", np.sin: "sin", np.cos: "cos", np.absolute: "abs", np.arctan: "atan",
    np.floor: "floor", np.ceil: "ceil", np.rint: "rint", np.maximum: "max", np.minimum: "min", np.less: "lt",
    np.less_equal: "le", np.greater: "gt", np.greater_equal: "ge", np.equal: "eq",
    np.not_equal: "ne", np.remainder: "mod",
    **{getattr(np, name): name for name in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift", "floor_divide",
    )},
}  # fmt: skip
_REDUCE: dict[Any, Any] = {
    np.add: "add", np.multiply: "mul", np.maximum: "max", np.minimum: "min",
}  # fmt: skip


def call_ufunc(ufunc: Any, method: str, inputs: Any, options: Any) -> Any:
    """A ufunc of numpy on traced arrays; CompileError for those that a graph lacks."""
    if ufunc is np.matmul and method == "__call__":
        return matmul(*inputs)
    from tilewright.graph.composed import ELEMENTS

    if ufunc in ELEMENTS and method == "__call__" and not options:
        return ELEMENTS[ufunc](*inputs)
    if method == "reduce" and ufunc in _REDUCE:
        kind = _REDUCE[ufunc]
        x = widened(inputs[0]) if kind in ("add", "mul") else inputs[0]
        return reduced(kind, x, options.get("axis", 0), options.get("keepdims", False))
    if method != "__call__" or ufunc not in _UFUNCS or options:
        raise CompileError(
            f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method} is not traced",
            hint=f"there are {', '.join(sorted(u.__name__ for u in {*_UFUNCS, *ELEMENTS}))}",
        )
    return elementwise(_UFUNCS[ufunc], *inputs)


def call_function(function: Any, args: Any, kwargs: Any) -> Any:
    """A function of numpy on traced arrays; CompileError for those that a graph lacks."""
    from tilewright.graph.composed import FUNCTIONS, truth

    table: dict[Any, Callable[..., Any]] = {
        np.where: lambda c, a, b: where(truth(c), a, b),
        np.sum: lambda x, axis=None, keepdims=False: x.sum(axis, keepdims),
        np.prod: lambda x, axis=None, keepdims=False: x.prod(axis, keepdims),
        np.max: lambda x, axis=None, keepdims=False: x.max(axis, keepdims),
        np.min: lambda x, axis=None, keepdims=False: x.min(axis, keepdims),
        np.mean: lambda x, axis=None, keepdims=False: x.mean(axis, keepdims),
        np.var: _variance,
        np.std: lambda x, axis=None, keepdims=False: np.sqrt(_variance(x, axis, keepdims)),
        np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
        np.transpose: lambda x, axes=(): x.transpose(axes),
        np.swapaxes: lambda x, a, b: x.swapaxes(a, b),
        np.reshape: lambda x, shape: x.reshape(shape),
        np.expand_dims: lambda x, axis: _expanded(x, axis),
        np.take: lambda x, ids, axis=0: take(x, ids, axis),
        np.copy: lambda x: x.copied(),
        **ARRANGED,
        **FUNCTIONS,
        np.lib.stride_tricks.sliding_window_view: windows,
    }
    if function not in table:
        raise CompileError(
            f"np.{function.__name__} is not traced",
            hint=f"there are {', '.join(sorted(f.__name__ for f in table))}, and tw.graph's functions",
        )
    try:
        signature(table[function]).bind(*args, **kwargs)
    except TypeError as error:
        raise CompileError(
            f"np.{function.__name__} of a traced array: {error}",
            hint=f"it is traced as {function.__name__}{signature(table[function])}",
        ) from None
    return table[function](*args, **kwargs)


def _variance(x: Traced, axis: Any = None, keepdims: bool = False) -> Traced:
    return ((x - x.mean(axis, True)) ** 2).mean(axis, keepdims)


def _expanded(x: Traced, axis: int) -> Traced:
    (place,) = normal_axes(axis, x.ndim + 1)
    return x[(*[slice(None)] * place, None)]


def _shape(x: Traced) -> str:
    return f"[{', '.join(map(str, x.extents))}]"
