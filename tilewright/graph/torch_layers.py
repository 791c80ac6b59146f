"""Layers of torch over windows of [batch, channels, spatial...]: convolutions and pools, and norms by channels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph import arrange, composed
from tilewright.graph import functions as f
from tilewright.graph.scan import scan
from tilewright.graph.traced import Combine, Traced, elementwise, reduced, where

FEW_ROWS = 16
"""Fewer elements of a batch than this leave most rows of a product's tile empty."""


def _each(value: Any, count: int) -> list[int]:
    """A number for each of so many dimensions."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return [int(v) for v in (values * count if len(values) == 1 else values)]


def windows(x: Traced, size: Any, stride: Any, dilation: Any = 1) -> Traced:
    """Windows along the last dimensions, as new ones after them."""
    count = len(size)
    axes = range(x.ndim - count, x.ndim)
    return f.windows_apart(
        x, zip(axes, size, _each(stride, count), _each(dilation, count), strict=True)
    )


def padded(x: Traced, count: int, padding: Any, fill: float = 0.0) -> Traced:
    widths = [(0, 0)] * (x.ndim - count) + [(p, p) for p in _each(padding, count)]
    return arrange.pad(x, widths, constant_values=fill) if any(a for a, _ in widths) else x


def convolution(
    x: Traced, weight: Traced, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Traced:  # fmt: skip
    """[batch, channels, ...], or without a batch, by [filters, channels of a group, ...]."""
    if x.ndim < weight.ndim:
        return convolution(x[None], weight, bias, stride, padding, dilation, groups)[0]
    count = x.ndim - 2
    size = [int(e) for e in weight.shape[2:]]
    if padding == "same":
        wide = [d * (e - 1) for d, e in zip(_each(dilation, count), size, strict=True)]
        x = arrange.pad(x, [(0, 0), (0, 0), *((w // 2, w - w // 2) for w in wide)])
    elif padding != "valid":
        x = padded(x, count, padding)
    spatial, inside = "hwd"[:count], "rst"[:count]
    filters = weight.extents[0]
    if groups > 1:
        x = x.reshape(x.extents[0], groups, -1, *x.extents[2:])
        weight = weight.reshape(groups, -1, *weight.extents[1:])
    group = "g" if groups > 1 else ""
    seen = windows(x, size, stride, dilation)
    few = (x.extents[0].number or FEW_ROWS) < FEW_ROWS
    if few and max(_each(stride, count)) > 1 and prod(size) > 1 and weight.shape[-count - 2] != 1:
        # Elements that are apart are no rows of a tile, and of a small batch few are: columns are brought together.
        lead = seen.ndim - 2 * count
        order = [*range(lead), *range(lead + count, seen.ndim), *range(lead, lead + count)]
        columns = seen.transpose(order).copied()
        columns = columns.reshape(
            [*seen.extents[: lead - 1], -1, *seen.extents[lead : lead + count]]
        )
        rows = weight.reshape([*weight.extents[: weight.ndim - count - 1], -1])
        y = f.einsum_of_two(f"b{group}c{spatial},{group}fc->b{group}f{spatial}", columns, rows)
    else:
        y = f.einsum_of_two(
            f"b{group}c{spatial}{inside},{group}fc{inside}->b{group}f{spatial}", seen, weight
        )
    if groups > 1:
        y = y.reshape(y.extents[0], filters, *y.extents[3:])
    return y if bias is None else y + channels(y, bias)


def transposed_convolution(
    x: Traced, weight: Traced, bias: Any = None, stride: Any = 1, padding: Any = 0, more: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Traced:  # fmt: skip
    """What a convolution of [filters, channels of a group, ...] gives back: zeros between elements, and all around."""
    if x.ndim < weight.ndim:
        return transposed_convolution(
            x[None], weight, bias, stride, padding, more, groups, dilation
        )[0]
    count = x.ndim - 2
    each = (_each(v, count) for v in (stride, padding, more, dilation))
    for axis, (step, cut, longer, apart) in enumerate(zip(*each, strict=True), 2):
        wide = apart * (int(weight.shape[axis]) - 1) - cut
        if wide < 0 or wide + longer < 0:
            raise CompileError("a transposed convolution that is cut within its windows")
        extent = x.extents[axis]
        if step > 1:
            y = x.reshape([*x.extents[: axis + 1], 1, *x.extents[axis + 1 :]])
            y = arrange.pad(y, [(0, (step - 1) * (i == axis + 1)) for i in range(y.ndim)])
            x = y.reshape([*x.extents[:axis], extent * step, *x.extents[axis + 1 :]])
            x = x[(*[slice(None)] * axis, slice(0, extent * step - (step - 1)))]
        x = arrange.pad(x, [(wide, wide + longer) if i == axis else (0, 0) for i in range(x.ndim)])
    parts = weight.reshape([groups, -1, *weight.extents[1:]]).swapaxes(1, 2)
    turned = arrange.flip(
        parts.reshape([-1, *parts.extents[2:]]) if groups > 1 else parts[0],
        tuple(range(2, x.ndim)),
    )
    return convolution(x, turned, bias, 1, 0, dilation, groups)


def largest(
    x: Traced,
    size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Traced:
    """The largest element of each window."""
    least = float("-inf")
    return _pooled(x, size, stride, padding, dilation, ceil, "max", least, least)


def mean(
    x: Traced, size: Any, stride: Any = None, padding: Any = 0, ceil: bool = False, padded: bool = True,
    divisor: Any = None,
) -> Traced:  # fmt: skip
    """The mean of each window; what is `padded` counts, but not what lies beyond that (`ceil`)."""
    total = _pooled(x, size, stride, padding, 1, ceil, "add", 0.0, 0.0)
    if divisor or ((padded or not any(_each(padding, 1))) and not ceil):
        return total / (divisor or prod(_each(size, len(size))))
    ones = arrange.full_like(x, 1)
    return total / _pooled(ones, size, stride, padding, 1, ceil, "add", float(padded), 0.0)


def largest_and_places(
    x: Traced, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> tuple[Traced, Traced]:  # fmt: skip
    """The largest element of each window, and where it is first (or the first NaN), as if its dimensions were one."""
    count, least = len(size), float("-inf")
    place: Any = None
    for axis, extent in enumerate(extents := x.extents[x.ndim - count :]):
        at = composed.counted(x, extents, axis)
        place = at if place is None else place * extent + at
    args = size, stride, padding, dilation, ceil
    seen = _windows(x, *args, least, least)
    most = 2**31 - 1
    at = _windows(place.astype(dtypes.i32), *args, most, most)
    axes = tuple(range(-count, 0))
    top = seen.max(axes, True)
    found = elementwise("bitwise_or", seen == top, seen != seen)
    first = where(found, at, most).min(axes)
    return seen.max(axes), first.astype(dtypes.i64)


def _pooled(
    x: Traced, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, kind: Combine, fill: float,
    beyond: float,
) -> Traced:  # fmt: skip
    """Windows of what is padded with `fill`, and over the end of that (`ceil`) with `beyond`, each combined."""
    seen = _windows(x, size, stride, padding, dilation, ceil, fill, beyond)
    return reduced(kind, seen, tuple(range(-len(size), 0)))


def _windows(
    x: Traced, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, fill: float, beyond: float
) -> Traced:  # fmt: skip
    count = len(size)
    sizes = _each(size, count)
    wide, steps, apart = _each(padding, count), _each(stride or size, count), _each(dilation, count)
    widths, over_end = ([(0, 0)] * (x.ndim - count) for _ in range(2))
    for extent, n, p, step, d in zip(x.shape[-count:], sizes, wide, steps, apart, strict=True):
        more = 0
        if ceil:
            if not isinstance(extent, int):
                raise CompileError(f"windows that reach over the end of {extent} (ceil_mode)")
            over = -(extent + 2 * p - d * (n - 1) - 1) % step
            last = (
                extent + 2 * p + over - d * (n - 1) - 1
            )  # begins in the array, or what is padded before it
            more = over if last < extent + p else 0
        widths.append((p, p))
        over_end.append((0, more))
    for each, value in ((widths, fill), (over_end, beyond)):
        if any(map(any, each)):
            x = arrange.pad(x, each, constant_values=value)
    return windows(x, sizes, steps, apart)


def parts(x: Traced, size: Any) -> tuple[list[Any], list[Any], list[Any] | None]:
    """The last extents, into how many parts each is divided (None: as many as elements), and how long parts are; None
    where they are not equal."""
    extents = list(x.shape[-len(size) :])
    wanted = [old if new is None else new for new, old in zip(size, extents, strict=True)]
    pairs = list(zip(extents, wanted, strict=True))
    equal = all(n == 1 or (isinstance(e, int) and e % n == 0) for e, n in pairs)
    return extents, wanted, [e // n for e, n in pairs] if equal else None


def adaptive_largest(x: Traced, size: Any) -> tuple[Traced, None]:
    """The largest element of as many equal parts of the last dimensions; not where it is."""
    extents, wanted, window = parts(x, size)
    if window is None:
        if not all(isinstance(e, int) for e in extents):
            raise CompileError(
                f"the largest of {wanted} parts of {extents}: the extents are numbers"
            )
        for axis, (old, new) in enumerate(zip(extents, wanted, strict=True), x.ndim - len(wanted)):
            most = max(-(-(i + 1) * old // new) - i * old // new for i in range(new))
            to, own = (composed.counted(x, [new, most], n) for n in (0, 1))
            end = (elementwise("floor_divide", (to + 1) * old + new - 1, new)) - 1
            at = elementwise("min", elementwise("floor_divide", to * old, new) + own, end)
            x = f.take(x, at, axis).max(axis + 1)
        return x, None
    if all(n == 1 for n in wanted):
        return x.max(tuple(range(-len(wanted), 0)), True), None
    return largest(x, window), None


def shuffled(x: Traced, factor: int) -> Traced:
    """Groups of channels as blocks of elements (pixel_shuffle)."""
    *lead, _, h, w = x.extents
    n = len(lead)
    y = x.reshape(*lead, -1, factor, factor, h, w)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return y.transpose(order).reshape(*lead, -1, h * factor, w * factor)


def channels(x: Traced, value: Any) -> Any:
    """A vector with an element for each channel, as it broadcasts to [batch, channels, ...]."""
    return None if value is None else value.reshape([-1, *[1] * (x.ndim - 2)])


def group_norm(
    x: Traced, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Traced:
    """Normalised over the channels of each group and all that is after them."""
    y = x.reshape(x.extents[0], groups, -1, *x.extents[2:])
    y = f.layer_norm(y, eps=eps, axes=tuple(range(2, y.ndim))).reshape(x.extents)
    return f.scaled(y, channels(x, weight), channels(x, bias))


def batch_norm(
    x: Traced, weight: Any, bias: Any, mean: Any, variance: Any, training: bool = False, _: float = 0.1,
    eps: float = 1e-5, *__: Any,
) -> Traced:  # fmt: skip
    """Normalised by what was kept for each channel."""
    if training:
        raise CompileError("a norm over the batch in training", hint="module.eval()")
    y = (x - channels(x, mean)) * f.rsqrt(channels(x, variance) + eps)
    return f.scaled(y, channels(x, weight), channels(x, bias))


def instance_norm(
    x: Traced, weight: Any, bias: Any, mean: Any, variance: Any, own: bool, _: float = 0.1, eps: float = 1e-5,
    *__: Any,
) -> Traced:  # fmt: skip
    """Each channel of each batch normalised by itself, or (not `own`) by what was kept."""
    if not own:
        return batch_norm(x, weight, bias, mean, variance, False, eps=eps)
    y = f.layer_norm(x, eps=eps, axes=tuple(range(2, x.ndim)))
    return f.scaled(y, channels(x, weight), channels(x, bias))


def attention(
    q: Traced, k: Traced, v: Traced, mask: Any = None, dropout: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Weighted means of the rows of v: [batch, heads, rows, width]."""
    if dropout:
        raise CompileError("attention with dropout")
    if enable_gqa and q.extents[1] != k.extents[1]:
        # Heads of queries come in groups, one for each head of keys.
        heads, rows, width = k.extents[1], q.extents[2], v.extents[3]
        q = q.reshape(q.extents[0], heads, -1, rows, q.extents[3])
        k, v = k[:, :, None], v[:, :, None]
        mask = mask if mask is None or mask.ndim < 3 else mask[:, :, None]
        grouped = attention(q, k, v, mask, 0.0, is_causal, scale=scale)
        return grouped.reshape(grouped.extents[0], -1, rows, width)
    if scale is None and not isinstance(q.shape[-1], int):
        raise CompileError("attention over heads of an extent that is no number")
    scores = f.matmul(q, k.swapaxes(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        seen = f.indices(scores, -2) >= f.indices(scores, -1)
        scores = where(seen, scores, float("-inf"))
    if mask is not None and mask.dtype.is_bool:
        scores = where(mask, scores, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    return f.matmul(f.softmax(scores), v)


# Recurrent cells, each a scan over time.


def recurrent(cell: Any, gates: int, states: int) -> Any:
    """The op of torch for layers of a cell: `cell(x, h, ...)` of what the input and the state make by their weights."""

    def run(
        x: Traced, first: Any, weights: Any, biased: bool, layers: int, dropout: float = 0.0, train: bool = False,
        both: bool = False, batch_first: bool = False,
    ) -> tuple[Traced, ...]:  # fmt: skip
        if dropout and train:
            raise CompileError("dropout in training", hint="module.eval()")
        initial = list(first) if states > 1 else [first]
        x = x.swapaxes(0, 1) if batch_first else x
        each, last = (4 if biased else 2), list[list[Traced]]()
        for layer in range(layers):
            made: list[Traced] = []
            for back in range(1 + both):
                number = layer * (1 + both) + back
                own = weights[number * each : (number + 1) * each]
                begin = tuple(h[number] for h in initial)
                seen = x[::-1] if back else x
                ends, ys = _layer(cell, gates, seen, begin, own)
                made.append(ys[::-1] if back else ys)
                last.append(list(ends))
            x = arrange.concatenate(made, 2)
        ends = tuple(arrange.stack([each[i] for each in last]) for i in range(states))
        return (x.swapaxes(0, 1) if batch_first else x, *ends)

    return run


def _layer(
    cell: Any, gates: int, xs: Traced, begin: tuple[Traced, ...], weights: Any
) -> tuple[tuple[Traced, ...], Traced]:
    w, u, *biases = weights
    made = f.scaled(f.matmul(xs, w.T), None, biases[0] if biases else None)

    def step(state: tuple[Traced, ...], x: Traced) -> tuple[tuple[Traced, ...], Traced]:
        state = _stepped(cell, gates, x, state, u, biases[1] if biases else None)
        return state, state[0]

    return scan(step, begin, made)


def _stepped(
    cell: Any, gates: int, x: Traced, state: tuple[Traced, ...], u: Traced, bias: Any
) -> tuple[Traced, ...]:
    z = f.scaled(f.matmul(state[0], u.T), None, bias)
    return cell(*(arrange.split(y, gates, 1) for y in (x, z)), *state)


def single(cell: Any, gates: int) -> Any:
    """The op of torch for one step of a cell."""

    def run(x: Traced, states: Any, w: Traced, u: Traced, b: Any = None, c: Any = None) -> Any:
        state = (states,) if isinstance(states, Traced) else tuple(states)
        made = _stepped(cell, gates, f.scaled(f.matmul(x, w.T), None, b), state, u, c)
        return made[0] if len(made) == 1 else made

    return run


def _lstm(x: Any, z: Any, h: Traced, c: Traced) -> tuple[Traced, Traced]:
    i, forget, g, o = (a + b for a, b in zip(x, z, strict=True))
    c = f.sigmoid(forget) * c + f.sigmoid(i) * np.tanh(g)
    return f.sigmoid(o) * np.tanh(c), c


def _gru(x: Any, z: Any, h: Traced) -> tuple[Traced]:
    reset, keep = f.sigmoid(x[0] + z[0]), f.sigmoid(x[1] + z[1])
    return ((1.0 - keep) * np.tanh(x[2] + reset * z[2]) + keep * h,)


def _rnn(x: Any, z: Any, h: Traced) -> tuple[Traced]:
    return (np.tanh(x[0] + z[0]),)


lstm = recurrent(_lstm, 4, 2)
gru = recurrent(_gru, 3, 1)
rnn = recurrent(_rnn, 1, 1)
lstm_cell, gru_cell, rnn_cell = single(_lstm, 4), single(_gru, 3), single(_rnn, 1)


# Losses.


def loss(value: Traced, reduction: int = 1) -> Traced:
    """The mean (1) or the sum (2) of a loss, or all of it (0)."""
    return value if reduction == 0 else value.sum() if reduction == 2 else value.mean()


def picked_loss(
    logs: Traced,
    target: Traced,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
    smoothing: float = 0.0,
) -> Traced:
    """Less the logarithm of the probability of each target, a class or probabilities of all: [batch, classes, ...]."""
    if logs.ndim == 1:  # of one row
        logs, target = logs[None], target[None]
        made = picked_loss(logs, target, weight, reduction, ignored, smoothing)
        return made if made.ndim == 0 else made[0]
    own = None if weight is None else channels(logs, weight)
    if smoothing and target.dtype.is_float:
        target = target * (1.0 - smoothing) + smoothing / logs.shape[1]
    if target.dtype.is_float:
        value = -(f.scaled(logs, own, None) * target).sum(1)
        return loss(value, reduction)
    seen = f.indices(logs, 1) == target[:, None]
    logs = f.scaled(logs, own, None)
    value = -where(seen, logs, 0.0).sum(1)
    if smoothing:
        value = value * (1.0 - smoothing) - logs.sum(1) / logs.extents[1] * smoothing
    value = where(target == ignored, 0.0, value)
    if reduction == 0:
        return value
    each = 1.0 if own is None else where(seen, own, 0.0).sum(1)
    count = where(target == ignored, 0.0, each).sum()
    return value.sum() if reduction == 2 else value.sum() / count
