"""Functions of numpy that put elements of traced arrays elsewhere: joined, stacked, split, padded, rolled, reversed.

What they take apart are views. What they put together is a Buffer that several Tasks write, each a part (`joins.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import Access, Index, Operation, TiledEdge
from tilewright.graph.traced import Traced, normal_axes
from tilewright.lang.promote import promote


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Traced:
    """Arrays one after the other along `axis`; None: all their elements in one dimension."""
    parts = _traced("concatenate", arrays)
    if axis is None:
        parts, axis = [x.reshape(-1) for x in parts], 0
    first = parts[0]
    if first.ndim == 0:
        raise CompileError("concatenate of arrays without dimensions", hint="np.stack")
    (axis,) = normal_axes(axis, first.ndim)
    for x in parts:
        same = [d for d in range(first.ndim) if d != axis]
        if x.ndim != first.ndim or any(x.extents[d] != first.extents[d] for d in same):
            shapes = " and ".join(f"[{', '.join(map(str, p.extents))}]" for p in (first, x))
            raise CompileError(
                f"concatenate of {shapes} along dimension {axis}",
                rule="the other dimensions are the same",
            )
    dtype: DType = first.dtype
    for x in parts[1:]:
        dtype = promote(dtype, x.dtype)
    left = [x.astype(dtype) for x in parts if x.extents[axis].number != 0] or [first]
    return left[0] if len(left) == 1 else first.recorder.join(left, axis)


def stack(arrays: Sequence[Any], axis: int = 0) -> Traced:
    """Arrays of one shape along a new dimension `axis`."""
    parts = _traced("stack", arrays)
    (axis,) = normal_axes(axis, parts[0].ndim + 1)
    return concatenate([x[(*[slice(None)] * axis, None)] for x in parts], axis)


def _traced(what: str, arrays: Sequence[Any]) -> list[Traced]:
    parts = list(arrays)
    for x in parts:
        if not isinstance(x, Traced):
            raise CompileError(
                f"{what} of a traced array and {type(x).__name__} {np.shape(x)}",
                hint="pass the array as an argument of the function, or make it with np.full_like(x, 0, shape=...)",
            )
    return parts


def split(x: Traced, parts: Any, axis: int = 0, *, even: bool = True) -> list[Traced]:
    """Parts along `axis`: so many, or cut before the positions of a sequence."""
    (axis,) = normal_axes(axis, x.ndim)
    extent = x.extents[axis]
    if isinstance(parts, (int, np.integer)):
        if extent.number is None or (even and extent.number % parts):
            raise CompileError(f"{parts} equal parts of a dimension of {extent}")
        short, longer = divmod(extent.number, int(parts))
        sizes = [short + 1] * longer + [short] * (int(parts) - longer)
        cuts: list[Any] = [sum(sizes[:i]) for i in range(1, len(sizes))]
    else:
        cuts = [affine(p) for p in parts]
        if extent.number is not None:  # beyond the end there is nothing
            cuts = [c if c.number is None else min(c.number, extent.number) for c in cuts]
    ends = [None, *cuts, None]
    before = (slice(None),) * axis
    return [x[(*before, slice(a, b))] for a, b in pairwise(ends)]


def roll(x: Traced, shift: Any, axis: Any = None) -> Traced:
    """With elements moved `shift` further along `axis`, those at the end to the begin; None: as one dimension."""
    if axis is None:
        return roll(x.reshape(-1), shift, 0).reshape(x.extents)
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    shifts = np.broadcast_to(shift, len(axes)).tolist()
    for each, by in zip(axes, shifts, strict=True):
        extent = x.shape[each]
        by = by % extent if isinstance(extent, int) and extent else by
        if by:
            before = (slice(None),) * (each % x.ndim)
            tail, head = x[(*before, slice(-by, None))], x[(*before, slice(None, -by))]
            x = concatenate([tail, head], each)
    return x


def flip(x: Traced, axis: Any = None) -> Traced:
    """With the elements along `axis` in reverse."""
    axes = normal_axes(axis, x.ndim)
    return x[tuple(slice(None, None, -1 if d in axes else None) for d in range(x.ndim))]


_PADDED: dict[str, Callable[[Traced, int, int], tuple[Any, Any]]] = {
    "edge": lambda x, a, b: (_broadcast(x[:1], a), _broadcast(x[x.extents[0] - 1 :], b)),
    "wrap": lambda x, a, b: (x[x.extents[0] - a :], x[:b]),
    "reflect": lambda x, a, b: (x[1 : a + 1][::-1], x[x.extents[0] - b - 1 : x.extents[0] - 1][::-1]),
    "symmetric": lambda x, a, b: (x[:a][::-1], x[x.extents[0] - b :][::-1]),
}  # fmt: skip
"""What stands before and after the first dimension of an array, by the mode of np.pad."""


def pad(x: Traced, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Traced:
    """With `pad_width` elements more before and after: a number for all dimensions, or pairs."""
    if mode not in ("constant", *_PADDED):
        raise CompileError(f"np.pad with mode {mode!r}", hint=f"constant, {', '.join(_PADDED)}")
    widths: list[tuple[int, int]] = np.broadcast_to(pad_width, (x.ndim, 2)).tolist()
    zero = mode == "constant" and not np.any(constant_values)
    if zero and x.recorder.scan is None:
        return _zeros_around(x, widths)
    fills = np.broadcast_to(constant_values, (x.ndim, 2)).tolist()
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        order = [axis, *(d for d in range(x.ndim) if d != axis)]
        y = x.transpose(order)
        if mode == "constant":
            ends = [
                full_like(y, fill, (n, *y.extents[1:]))
                for n, fill in zip((before, after), fills[axis], strict=True)
            ]
        else:
            ends = list(_PADDED[mode](y, before, after))
        kept = [e for e, n in zip((ends[0], y, ends[1]), (before, 1, after), strict=True) if n]
        x = concatenate(kept, 0).transpose([order.index(d) for d in range(x.ndim)])
    return x


def _zeros_around(x: Traced, widths: Sequence[tuple[int, int]]) -> Traced:
    """A Buffer that holds 0 when the graph starts, with ``x`` in its midst."""
    recorder = x.recorder
    names = recorder.axes(x.ndim)
    made = recorder.add("copy", [x.at(names)], x.extents, range(x.ndim), x.dtype, name="padded")
    task = recorder.graph.tasks[-1]
    (operation,) = task.operations()
    entries = [
        Index(e.at + before) if isinstance(e, Index) else e
        for e, (before, _) in zip(operation.store.access.entries, widths, strict=True)
    ]
    edge = TiledEdge("store", Access(made.buffer, tuple(entries)))
    task.nodes[0] = Operation("copy", operation.operands, edge)
    shape = tuple(e + a + b for e, (a, b) in zip(x.extents, widths, strict=True))
    return recorder.reshaped(made.buffer, shape, zeroed=True)


def full_like(x: Traced, value: Any, shape: Any = None, dtype: Any = None) -> Traced:
    """An array of one value, with the shape and dtype of ``x`` where no other is given."""
    wanted = dtype if isinstance(dtype, DType) else dtypes.from_numpy(dtype) if dtype else x.dtype
    sizes = x.extents if shape is None else shape if isinstance(shape, (tuple, list)) else [shape]
    extents = [affine(e) for e in sizes]
    if isinstance(value, Affine) or not wanted.is_float:
        number = value if isinstance(value, Affine) else affine(int(value))
    else:
        number = float(value)
    return x.recorder.add("copy", [number], extents, range(len(extents)), wanted, name="full")


def _broadcast(x: Traced, size: int) -> Traced:
    return broadcast_to(x, (size, *x.extents[1:]))


def broadcast_to(x: Traced, shape: Any) -> Traced:
    """Repeated along new first dimensions, and along those of extent 1: a view."""
    wanted = [affine(e) for e in (shape if isinstance(shape, (tuple, list)) else [shape])]
    new = len(wanted) - x.ndim
    values: dict[str, Affine] = {}
    for i, extent in enumerate(x.extents):
        if new < 0 or (extent != wanted[i + new] and extent.number != 1):
            texts = [", ".join(map(str, e)) for e in (x.extents, wanted)]
            raise CompileError(f"broadcast of [{texts[0]}] to [{texts[1]}]")
        values[f"#{i}"] = Affine() if extent.number == 1 else affine(f"#{i + new}")
    return x.viewed(tuple(wanted), values)


def squeeze(x: Traced, axis: Any = None) -> Traced:
    """Without the dimensions of extent 1 that `axis` names, or all such."""
    axes = normal_axes(axis, x.ndim)
    if axis is not None and any(x.extents[a].number != 1 for a in axes):
        raise CompileError(f"squeeze of dimension {axes} of [{', '.join(map(str, x.extents))}]")
    return x.reshape([e for i, e in enumerate(x.extents) if i not in axes or e.number != 1])


def moveaxis(x: Traced, source: Any, destination: Any) -> Traced:
    """With dimensions at other places, the rest in order."""
    pairs = [s if isinstance(s, (tuple, list)) else [s] for s in (source, destination)]
    moved, to = ([int(a) % x.ndim for a in axes] for axes in pairs)
    order = [d for d in range(x.ndim) if d not in moved]
    for place, dimension in sorted(zip(to, moved, strict=True)):
        order.insert(place, dimension)
    return x.transpose(order)


def repeat(x: Traced, repeats: int, axis: int | None = None) -> Traced:
    """With each element `repeats` times, one after the other."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    (axis,) = normal_axes(axis, x.ndim)
    shape = (*x.extents[: axis + 1], affine(repeats), *x.extents[axis + 1 :])
    spread = broadcast_to(x[(*[slice(None)] * (axis + 1), None)], shape)
    return spread.reshape([e * (repeats if d == axis else 1) for d, e in enumerate(x.extents)])


def tile(x: Traced, reps: Any) -> Traced:
    """The array `reps` times along each dimension."""
    counts = list(reps) if isinstance(reps, (tuple, list)) else [reps]
    counts = [1] * (x.ndim - len(counts)) + counts
    x = x[(None,) * (len(counts) - x.ndim)] if len(counts) > x.ndim else x
    for axis, count in enumerate(counts):
        x = concatenate([x] * count, axis)
    return x


ARRANGED: dict[Any, Callable[..., Any]] = {
    np.concatenate: concatenate,
    np.stack: stack,
    np.hstack: lambda arrays: concatenate(arrays, min(arrays[0].ndim - 1, 1)),
    np.vstack: lambda arrays: concatenate(
        [x[None] if isinstance(x, Traced) and x.ndim == 1 else x for x in arrays]
    ),
    np.append: lambda x, values, axis=None: concatenate([x, values], axis),
    np.split: split,
    np.array_split: lambda x, parts, axis=0: split(x, parts, axis, even=False),
    np.roll: roll,
    np.flip: flip,
    np.pad: pad,
    np.broadcast_to: broadcast_to,
    np.squeeze: squeeze,
    np.moveaxis: moveaxis,
    np.repeat: repeat,
    np.tile: tile,
    np.ravel: lambda x: x.reshape(-1),
    np.zeros_like: lambda x, dtype=None, shape=None: full_like(x, 0, shape, dtype),
    np.ones_like: lambda x, dtype=None, shape=None: full_like(x, 1, shape, dtype),
    np.full_like: lambda x, value, dtype=None, shape=None: full_like(x, value, shape, dtype),
}
"""What a function of numpy does."""
