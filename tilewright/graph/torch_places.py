"""Ops of torch by places: what is put in order, what goes where numbers tell, what lies between elements.

None waits for another: an element finds out who goes before it, or who comes to it, by a look at all that might.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isclose, prod
from typing import Any, Final

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph import arrange, composed
from tilewright.graph import functions as f
from tilewright.graph import torch_layers as layers
from tilewright.graph.affine import affine
from tilewright.graph.operations import computing
from tilewright.graph.scan import scan
from tilewright.graph.traced import Traced, elementwise, reduced, where

MOST_RANKED = 8192
"""Elements along a dimension that are put in order."""

MOST_NAMED = 32
"""Indices each of which is compared with each place; more of them each go to theirs."""

FEW = 4
"""Of this many times as many elements the largest are found one by one."""

# In order -------------------------------------------------------------------------------------------------------------


def _and(one: Any, two: Any) -> Traced:
    return elementwise("bitwise_and", one, two)


def largest(
    x: Traced, count: int, dim: int = -1, largest: bool = True, *_: Any
) -> tuple[Traced, Traced]:
    """The `count` largest along a dimension in order, and where they are: an element's rank is how many go before it.

    Of equal ones that goes before which comes first. NaN is larger than any number.
    """
    rows = arrange.moveaxis(x, dim, -1)
    size = rows.extents[-1].number
    if size is not None and 0 < count * FEW <= size and x.recorder.scan is None:
        return tuple(arrange.moveaxis(y, 0, dim) for y in _one_by_one(rows, count, largest))  # pyright: ignore
    if size is None or size > MOST_RANKED:
        raise CompileError(
            f"the {count} largest of {rows.extents[-1]}, each of which is compared with each",
            rule=f"{MOST_RANKED} elements at most",
        )
    one, two = rows[..., :, None], rows[..., None, :]
    ahead = elementwise("gt" if largest else "lt", two, one)
    equal, at = elementwise("eq", two, one), composed.counted(rows, [size], 0)
    if x.dtype.is_float:
        more, less = (two, one) if largest else (one, two)
        ahead = elementwise("bitwise_or", ahead, _and(more != more, less == less))
        equal = elementwise("bitwise_or", equal, _and(one != one, two != two))
    equal = _and(equal, at[None, :] < at[:, None])
    rank = elementwise("bitwise_or", ahead, equal).sum(-1)
    chosen = rank[..., None, :] == composed.counted(rows, [count], 0)[:, None]
    values = reduced("add", where(chosen, two, 0), -1).astype(x.dtype)
    places = where(chosen, at, 0).sum(-1)
    return arrange.moveaxis(values, -1, dim), arrange.moveaxis(places, -1, dim)


def _one_by_one(x: Traced, count: int, largest: bool) -> tuple[Traced, Traced]:
    """The `count` largest of each row, one after the other along a new first dimension: each is the first of those that
    go behind the one before. NaN goes before infinity, as if it stood before all of its row."""
    behind, kind = ("lt", "max") if largest else ("gt", "min")
    size, at = x.extents[-1].number or 0, composed.counted(x, x.extents[-1:], 0).astype(dtypes.i32)
    keys = x.astype(dtypes.f32) if x.dtype.is_float and x.dtype.itemsize < 4 else x
    if x.dtype.is_float:
        least, most = (-inf, inf) if largest else (inf, -inf)
    else:
        info = np.iinfo(x.dtype.numpy)
        least, most = (int(info.min), int(info.max))[:: 1 if largest else -1]
    at = arrange.broadcast_to(at, x.extents)
    if x.dtype.is_float:
        no_number = keys != keys
        keys = where(no_number, inf, keys)
        at = where(no_number, at - size if largest else at + size, at)
    first = arrange.full_like(keys, most, keys.extents[:-1], keys.dtype)
    start = arrange.full_like(at, -size - 1, at.extents[:-1], dtypes.i32)

    def step(state: Any, _: Any) -> Any:
        top, place = (y[..., None] for y in state)
        later = elementwise(
            "bitwise_or", elementwise(behind, keys, top), _and(keys == top, at > place)
        )
        best = reduced(kind, where(later, keys, least), -1)
        found = _and(later, keys == best[..., None])
        state = best, where(found, at, 2 * size).min(-1)
        return state, state

    best, place = scan(step, (first, start), composed.counted(x, [count], 0))[1]
    if x.dtype.is_float:
        outside = place < 0 if largest else place >= size
        best = where(outside, float("nan"), best)
        place = where(outside, place + size if largest else place - size, place)
    return best.astype(x.dtype), place.astype(dtypes.i64)


def _sorted(x: Traced, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Traced, Traced]:
    return largest(x, x.shape[dim], dim, descending)


def _smallest(x: Traced, rank: int, dim: int = -1, keep: bool = False) -> tuple[Traced, ...]:
    """The element of a rank along a dimension, from 1 on, and where it is."""
    at = (*[slice(None)] * (dim % x.ndim), slice(rank - 1, rank) if keep else rank - 1)
    return tuple(y[at] for y in largest(x, rank, dim, False))


def _median(x: Traced, dim: int | None = None, keep: bool = False) -> Any:
    """The lower one of two in the midst, and where it is; NaN where there is any."""
    if dim is None:
        return _median(x.reshape(-1), 0)[0]
    value, at = _smallest(x, (x.shape[dim] + 1) // 2, dim, keep)
    if not x.dtype.is_float:
        return value, at
    most, first = _extreme("max")(x, dim, keep)
    return where(most != most, most, value), where(most != most, first, at)


def _extreme(kind: str) -> Callable[..., Any]:
    """The largest of all elements, of two arrays, or along a dimension with where it is first."""
    place: Any = np.argmax if kind == "max" else np.argmin

    def apply(x: Traced, dim: Any = None, keep: bool = False) -> Any:
        if isinstance(dim, Traced):
            return elementwise(kind, x, dim)
        value = x.max(dim, keep) if kind == "max" else x.min(dim, keep)
        return value if dim is None else (value, place(x, dim, keepdims=keep))

    return apply


# Where numbers tell ---------------------------------------------------------------------------------------------------


def _last(like: Traced, size: Any, ids: Traced) -> Traced:
    """For each of so many places the last of the indices [..., n] that names it; -1 where none does."""
    extents = [e.number for e in (*ids.extents, affine(size))]
    if None not in extents and (extents[-2] or 0) > MOST_NAMED and like.recorder.scan is None:
        *shape, _, places = (e or 0 for e in extents)
        place: Any = ids.astype(dtypes.i64)
        for d, step in enumerate(
            np.cumprod([places, *shape[:0:-1]])[::-1].tolist() if shape else []
        ):
            place = place + composed.counted(like, ids.extents, d) * step
        each = composed.counted(like, ids.extents, ids.ndim - 1).astype(dtypes.i32) + 1
        found = f.scattered(prod(shape) * places, place.reshape(-1), each.reshape(-1), "max")
        return found.reshape([*shape, places]).astype(dtypes.i64) - 1
    at = composed.counted(like, [ids.extents[-1]], 0)
    named = ids[..., None, :] == composed.counted(like, [size], 0)[:, None]
    return where(named, at, -1).max(-1)


def index_add(x: Traced, dim: int, ids: Traced, y: Traced, *, alpha: Any = 1) -> Traced:
    """`y` added to what the indices name along a dimension."""
    moved = arrange.moveaxis(y, dim, 0)
    return x + arrange.moveaxis(f.scatter_add(x.shape[dim], ids, moved), 0, dim) * alpha


def _index_copy(x: Traced, dim: int, ids: Traced, y: Traced) -> Traced:
    dim %= x.ndim
    last = _last(x, x.extents[dim], ids)
    found = (last >= 0).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    return where(found, f.take(y, elementwise("max", last, 0), dim), x)


def _index_put(x: Traced, keys: Sequence[Any], y: Traced, accumulate: bool = False) -> Traced:
    named = [i for i, k in enumerate(keys) if k is not None]
    each = [keys[i] for i in named]
    ids = each[0]
    if ids.dtype.is_bool and y.ndim == 0 and len(keys) == 1 and not accumulate:
        return where(ids.reshape([*ids.extents, *[1] * (x.ndim - ids.ndim)]), y, x)
    if not all(k.dtype.is_integer for k in each):
        raise CompileError("elements by a mask are written", hint="torch.where(mask, new, old)")
    first = named[0] if named[-1] - named[0] < len(named) else 0
    rest = [d for d in range(x.ndim) if d not in named]
    order = [*rest[:first], *named, *rest[first:]]
    moved = x.transpose(order)
    before, after = moved.extents[:first], moved.extents[first + len(named) :]
    place = f.flat_place(each, moved.extents[first : first + len(named)])
    y = arrange.broadcast_to(y, [*before, *place.extents, *after]).reshape([*before, -1, *after])
    write = index_add if accumulate else _index_copy
    made = write(moved.reshape([*before, -1, *after]), first, place.reshape(-1), y)
    return made.reshape(moved.extents).transpose([order.index(d) for d in range(x.ndim)])


def _rows(x: Traced, dim: int, ids: Traced, y: Any) -> tuple[Any, ...]:
    """With the dimension last, and as much of `y` as there are indices."""
    if any(
        a != b
        for d, (a, b) in enumerate(zip(x.extents, ids.extents, strict=True))
        if d != dim % x.ndim
    ):
        raise CompileError("a scatter to some of the rows", rule="indices for all other dimensions")
    if isinstance(y, Traced) and y.ndim:
        y = y[tuple(slice(0, e) for e in ids.extents)]
        y = arrange.moveaxis(y, dim, -1)
    return arrange.moveaxis(x, dim, -1), arrange.moveaxis(ids, dim, -1), y


def _scatter(x: Traced, dim: int, ids: Traced, y: Any, **more: Any) -> Traced:
    if more:
        raise CompileError("a scatter with reduce", hint="scatter_reduce")
    x, ids, y = _rows(x, dim, ids, y)
    last = _last(x, x.extents[-1], ids)
    if isinstance(y, Traced) and y.ndim:
        y = composed.along(y.copied(), elementwise("max", last, 0), -1)
    return arrange.moveaxis(where(last >= 0, y, x), -1, dim)


def _scatter_add(x: Traced, dim: int, ids: Traced, y: Traced) -> Traced:
    y = y[tuple(slice(0, e) for e in ids.extents)]
    place, size = None, 1
    for d, extent in enumerate(x.shape):
        at = ids if d == dim % x.ndim else f.indices(ids, d).astype(dtypes.i64)
        place, size = at if place is None else place * extent + at, size * extent
    if place is None:
        raise CompileError("a scatter to an array without dimensions")
    return x + f.scatter_add(size, place.reshape(-1), y.reshape(-1)).reshape(x.extents)


_NEUTRAL: Final = {"sum": 0, "mean": 0, "prod": 1, "amax": -inf, "amin": inf}


def _scatter_reduce(
    x: Traced, dim: int, ids: Traced, y: Traced, reduce: str, *, include_self: bool = True
) -> Traced:
    if not x.dtype.is_float:
        raise CompileError(f"a scatter of {x.dtype} with reduce {reduce!r}")
    x, ids, y = _rows(x, dim, ids, y)
    named = ids[..., None, :] == composed.counted(x, [x.extents[-1]], 0)[:, None]
    each = where(named, y[..., None, :], float(_NEUTRAL[reduce]))
    count = where(named, 1.0, 0.0).astype(x.dtype).sum(-1)
    kind = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    made = reduced(kind, each, -1)  # pyright: ignore[reportArgumentType]
    if include_self:
        made, count = elementwise(kind, made, x), count + (reduce == "mean")
    made = made / elementwise("max", count, 1.0) if reduce == "mean" else made
    return arrange.moveaxis(made if include_self else where(count > 0.0, made, x), -1, dim)


def _masked_scatter(x: Traced, mask: Traced, y: Traced) -> Traced:
    """The elements of `y` one after the other where the mask holds."""
    mask = arrange.broadcast_to(mask, x.extents).copied()
    at = composed.cumulated(mask.astype(dtypes.i64)) - 1
    at = elementwise("max", at, 0).reshape(x.extents)
    return where(mask, f.take(y.reshape(-1), at), x)


def _put_slice(
    x: Traced, y: Traced, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Traced:
    if step != 1:
        raise CompileError("a slice with a step is written")
    before, extent = (slice(None),) * (dim % x.ndim), x.shape[dim]
    start, end = start or 0, extent if end is None else min(end, extent)
    start, end = (e + extent if e < 0 else e for e in (start, end))
    parts = [x[(*before, slice(0, start))], y, x[(*before, slice(end, extent))]]
    return arrange.concatenate([p for p in parts if p.extents[dim].number != 0], dim)


def _bags(
    table: Traced, ids: Traced, offsets: Traced, _: Any = False, mode: int = 0, __: Any = False,
    weights: Any = None, last: bool = False, padding: int = -1,
) -> tuple[Any, ...]:  # fmt: skip
    """Sums or means of rows of a table, one for each run of indices that begins at an offset."""
    if mode > 1 or padding not in (-1, None):
        raise CompileError("bags of an embedding with mode 'max' or with an index of padding")
    starts = offsets[: offsets.extents[0] - 1] if last else offsets
    at = composed.counted(table, ids.extents, 0)
    bag = (at[:, None] >= starts[None]).sum(-1) - 1
    rows = f.take(table, ids).astype(computing(table.dtype))
    rows = rows if weights is None else rows * weights[:, None]
    total = f.scatter_add(starts.extents[0], bag, rows)
    if mode == 1:
        size = (bag[None] == composed.counted(table, starts.extents, 0)[:, None]).sum(-1)
        total = total / elementwise("max", size, 1)[:, None]
    return total.astype(table.dtype), None, None, None


# Between elements -----------------------------------------------------------------------------------------------------


def _multiplied(x: Traced, weights: Callable[..., Traced], *each: Sequence[Any]) -> Traced:
    """Products along the last dimensions with a matrix for each, which ``weights(to, own, old, new, ...)`` makes of the
    numbers of its rows (new elements) and columns (old ones), as floats of 32 bits at least."""
    exact = x.dtype if x.dtype.itemsize > 4 else dtypes.f32
    for axis, (old, new, *more) in enumerate(zip(*each, strict=True), x.ndim - len(each[0])):
        to, own = (composed.counted(x, [new, old], n).astype(exact) for n in (0, 1))
        weight = weights(to, own, old, new, *more).astype(x.dtype)
        x = arrange.moveaxis(f.matmul(arrange.moveaxis(x, axis, -1), weight.T), -1, axis)
    return x


def _sizes(x: Traced, size: Any, given: Sequence[Any]) -> tuple[Any, Any, list[float]]:
    """Old and new extents of the dimensions after the second, and from one new element to the next. `given`: by how
    much each grows, in one list or none, where that, and not `size`, tells where elements lie."""
    extents = x.shape[2:]
    listed = (each if isinstance(each, (list, tuple)) else [each] for each in given)
    factors = [s for each in listed for s in each if s is not None]
    wanted = size or [int(e * s) for e, s in zip(extents, factors, strict=True)]
    apart = [1 / s for s in factors] or [e / n for e, n in zip(extents, wanted, strict=True)]
    return extents, wanted, apart


def _place(to: Traced, old: int, new: int, step: float, corners: bool) -> Traced:
    return to * ((old - 1) / max(1, new - 1)) if corners else (to + 0.5) * step - 0.5


def _linear(x: Traced, size: Any, corners: bool, *given: Any) -> Traced:
    """Between the two elements that are nearest, along each of the last dimensions."""

    def weights(to: Traced, own: Traced, old: int, new: int, step: float) -> Traced:
        place = _place(to, old, new, step, corners).clip(0.0, float(old - 1))
        return elementwise("max", 1.0 - np.absolute(place - own), 0.0)

    return _multiplied(x, weights, *_sizes(x, size, given))


def _cubic(x: Traced, size: Any, corners: bool, *given: Any) -> Traced:
    """Between four elements; those beyond the ends are the last ones (Keys' kernel with a = -3/4)."""

    def weights(to: Traced, own: Traced, old: int, new: int, step: float) -> Traced:
        place, total = _place(to, old, new, step, corners), None
        first = np.floor(place) - 1.0
        for tap in range(4):
            at = first + float(tap)
            d = np.absolute(place - at)
            near = (1.25 * d - 2.25) * d * d + 1.0
            far = ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0
            each = where(at.clip(0.0, float(old - 1)) == own, where(d <= 1.0, near, far), 0.0)
            total = each if total is None else total + each
        assert total is not None
        return total

    return _multiplied(x, weights, *_sizes(x, size, given))


def nearest(x: Traced, size: Any, *given: Any, exact: bool = False) -> Traced:
    """The nearest element, or the one before (not `exact`); as often as it stands there, where that is whole."""
    for axis, (old, new, step) in enumerate(zip(*_sizes(x, size, given), strict=True), 2):
        if not isinstance(old, int) or not isinstance(new, int):
            raise CompileError(f"{new} elements of {old}: the extents are numbers")
        if new % old == 0 and (isclose(step * new, old) or (new <= 2 * old and not exact)):
            x = arrange.repeat(x, new // old, axis)
        else:
            to = composed.counted(x, [new], 0).astype(dtypes.f32)
            place = np.floor((to + 0.5 if exact else to) * step).clip(0.0, old - 1.0)
            x = f.take(x, place.astype(dtypes.i64), axis)
    return x


def adaptive_mean(x: Traced, size: Any) -> Traced:
    """The mean of as many parts of the last dimensions, which may share elements at their ends."""
    extents, wanted, window = layers.parts(x, size)
    if all(n == 1 for n in wanted):
        return x.mean(tuple(range(-len(wanted), 0)), True)
    if not all(isinstance(e, int) for e in extents):
        raise CompileError(f"the mean of {wanted} parts of {extents}: the extents are numbers")
    if window is not None:
        return layers.mean(x, window)

    def weights(to: Traced, own: Traced, old: int, new: int) -> Traced:
        first = np.floor((to * float(old) + 0.5) * (1 / new))
        end = np.ceil(((to + 1.0) * float(old) - 0.5) * (1 / new))
        inside = where(own >= first, where(own < end, 1.0, 0.0), 0.0).astype(own.dtype)
        return inside / inside.sum(-1, True)

    return _multiplied(x, weights, extents, wanted)


def _grid_sample(x: Traced, grid: Traced, mode: int, padding: int, corners: bool) -> Traced:
    """[batch, channels, rows, columns] at places [batch, ..., 2] from -1 to 1, columns first."""
    if x.ndim != 4 or mode > 1 or padding > 1:
        raise CompileError("samples of a volume, bicubic ones, or with padding by reflection")
    b, c, h, w = x.shape
    places: list[Traced] = []
    for i, extent in enumerate((w, h)):
        at = (
            (grid[..., i] + 1.0) * ((extent - 1) / 2)
            if corners
            else ((grid[..., i] + 1.0) * extent - 1.0) * 0.5
        )
        places.append(at.clip(0.0, float(extent - 1)) if padding else at)
    rows, columns = grid.shape[1:3]
    flat = x.reshape(b, c, h * w)
    total: Any = None
    for dy, dx in [(0, 0)] if mode else [(0, 0), (0, 1), (1, 0), (1, 1)]:
        weight: Any = None
        index: Any = None
        for at, d, extent in ((places[1], dy, h), (places[0], dx, w)):
            near = np.rint(at) if mode else np.floor(at) + float(d)
            inside = _and(near >= 0.0, near < float(extent))
            each = (
                where(inside, 1.0, 0.0)
                if mode
                else where(inside, 1.0 - np.absolute(at - near), 0.0)
            )
            weight = each if weight is None else weight * each
            whole = near.clip(0.0, float(extent - 1)).astype(dtypes.i64)
            index = whole if index is None else index * extent + whole
        ids = arrange.broadcast_to(index.reshape(b, 1, rows * columns), (b, c, rows * columns))
        seen = composed.along(flat, ids.copied(), 2).reshape(b, c, rows, columns) * weight[:, None]
        total = seen if total is None else total + seen
    return total


def _buckets(x: Traced, bounds: Traced, right: bool = False) -> Traced:
    """How many of the bounds, in order along the last dimension, are less than each element, or at most (`right`); all
    of them where it is NaN."""
    size = bounds.extents[-1].number
    if size is None or size > MOST_RANKED:
        raise CompileError(
            f"places among {bounds.extents[-1]}, each of which is compared with each",
            rule=f"{MOST_RANKED} bounds at most",
        )
    if bounds.ndim > 1:
        bounds = bounds[..., None, :]
    return size - elementwise("gt" if right else "ge", bounds, x[..., None]).sum(-1)


def _gathered(x: Traced, dim: int, ids: Traced, **_: Any) -> Traced:
    """`ids` may be shorter than x along the other dimensions."""
    kept = (
        e if d == dim % x.ndim else i
        for d, (e, i) in enumerate(zip(x.extents, ids.extents, strict=True))
    )
    return composed.along(x[tuple(slice(0, e) for e in kept)], ids, dim)


OPS: Final[Mapping[str, Callable[..., Any]]] = {
    "topk": largest, "sort": _sorted, "argsort": lambda x, *a, **k: _sorted(x, *a, **k)[1], "kthvalue": _smallest,
    "median": _median, "max": _extreme("max"), "min": _extreme("min"),
    "index_add": index_add, "index_copy": _index_copy, "index_put": _index_put, "scatter": _scatter,
    "scatter_add": _scatter_add, "scatter_reduce": _scatter_reduce,
    "masked_scatter": _masked_scatter, "slice_scatter": _put_slice,
    "select_scatter": lambda x, y, dim, at: _put_slice(
        x, y[(*[slice(None)] * (dim % x.ndim), None)], dim, at % x.shape[dim], at % x.shape[dim] + 1),
    "embedding_bag": _bags, "gather": _gathered,
    "bucketize": lambda x, bounds, *, right=False, **_: _buckets(x, bounds, right),
    "searchsorted": lambda bounds, x, *, right=False, side=None, **_: _buckets(x, bounds, right or side == "right"),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), _linear),
    "upsample_bicubic2d": _cubic, "upsample_nearest1d": nearest, "upsample_nearest2d": nearest,
    "upsample_nearest3d": nearest, "grid_sampler": _grid_sample, "grid_sampler_2d": _grid_sample,
    **dict.fromkeys(("_upsample_nearest_exact1d", "_upsample_nearest_exact2d"),
                    lambda x, size, *given: nearest(x, size, *given, exact=True)),
    "adaptive_avg_pool1d": adaptive_mean, "adaptive_avg_pool2d": adaptive_mean, "adaptive_avg_pool3d": adaptive_mean,
}  # fmt: skip
"""What such an op does, by its name without the overload."""
