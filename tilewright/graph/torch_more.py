"""Ops of torch that are made of others: elements, statistics, losses, windows, and cells of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, prod
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph import arrange, composed
from tilewright.graph import functions as f
from tilewright.graph import torch_layers as layers
from tilewright.graph import torch_linalg as linalg
from tilewright.graph import torch_places as places
from tilewright.graph.traced import Traced, elementwise, normal_axes, reduced, where

# Elements -------------------------------------------------------------------------------------------------------------


def alike(*operands: Any) -> list[Any]:
    """Whole numbers and masks beside floats as torch takes them: in the type of the arrays, f32 beside a number."""
    kinds = [o.dtype for o in operands if isinstance(o, Traced) and o.dtype.is_float]
    if not kinds and any(isinstance(o, float) for o in operands):
        kinds = [dtypes.f32]
    return [
        o.astype(kinds[0]) if kinds and isinstance(o, Traced) and not o.dtype.is_float else o
        for o in operands
    ]


def floating(x: Traced) -> Traced:
    """Whole numbers and masks as f32."""
    return x if x.dtype.is_float else x.astype(dtypes.f32)


def divided(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """a / b, as it is or rounded down ("floor") or to zero ("trunc")."""
    a, b = alike(a, b)
    if rounding_mode is None:
        a, b = (floating(x) if isinstance(x, Traced) else x for x in (a, b))
        return elementwise("div", a, b)
    whole = elementwise("floor_divide", a, b)
    if rounding_mode == "floor":
        return whole
    exact = elementwise("eq", whole * b, a)
    return whole + where(elementwise("lt", whole, 0), where(exact, 0, 1), 0).astype(whole.dtype)


def _asinh(x: Traced) -> Traced:
    size = np.absolute(x)
    turn = 1.0 / size  # of the inverse: squares of large numbers have no room
    grown = composed.log1p(size + size / (np.sqrt(turn * turn + 1.0) + turn))
    return where(x < 0.0, -grown, grown)


def _finite(
    x: Traced, nan: float | None = None, high: float | None = None, low: float | None = None
) -> Traced:
    if not x.dtype.is_float:
        return x
    most = float(ml_dtypes.finfo(x.dtype.numpy).max)
    x = where(elementwise("ne", x, x), nan or 0.0, x)
    x = where(elementwise("eq", x, float("inf")), most if high is None else high, x)
    return where(elementwise("eq", x, float("-inf")), -most if low is None else low, x)


def _erfinv(x: Traced) -> Traced:
    """By three of Halley's steps, in 64 bits: near 1 nothing else tells one number from the next."""
    y = x.astype(dtypes.f64)
    logs = np.log((1.0 - y) * (1.0 + y))
    middle = 4.33 + logs * 0.5  # Winitzki's approximation, a = 0.147
    size = np.sqrt(np.sqrt(middle * middle - logs * 6.8) - middle)
    z = where(y < 0.0, -size, size)
    for _ in range(3):
        step = (f.erf(z) - y) * np.exp(z * z) * (0.5 * pi**0.5)
        z = z - step / (1.0 + z * step)
    end = elementwise("eq", np.absolute(y), 1.0)
    return where(end, y * float("inf"), where(elementwise("eq", y, 0.0), y, z)).astype(x.dtype)


def _remaining(x: Traced, y: Any) -> Traced:
    """What is left of a division that rounds to zero: it has the sign of x."""
    left = elementwise("mod", np.absolute(x), np.absolute(y) if isinstance(y, Traced) else abs(y))
    return where(x < 0, -left, left)


def _logit(x: Traced, eps: float | None = None) -> Traced:
    x = x if eps is None else x.clip(eps, 1.0 - eps)
    return np.log(x) - composed.log1p(-x)


def _times_log(x: Any, y: Any, log: Callable[[Any], Any] = np.log, one: float = 1.0) -> Traced:
    """x log(y), and 0 where x is, if y is a number; `one`: where `log` is 0."""
    x = x if isinstance(x, Traced) else arrange.full_like(y, float(x))
    y = y if isinstance(y, Traced) else arrange.full_like(x, float(y))
    nothing = elementwise("bitwise_and", x == 0.0, y == y)
    return x * log(where(nothing, one, y))


def _sinc(x: Traced) -> Traced:
    y = x * pi
    nothing = elementwise("eq", x, 0.0)
    return where(nothing, 1.0, np.sin(y) / where(nothing, 1.0, y))


# Arrays ---------------------------------------------------------------------------------------------------------------


def _diagonal(x: Traced, offset: int = 0, first: int = 0, second: int = 1) -> Traced:
    y = arrange.moveaxis(x, (first, second), (-2, -1))
    y = y[..., max(0, -offset) :, max(0, offset) :]
    rows, columns = y.extents[-2:]
    if rows.number is None or columns.number is None:
        raise CompileError(f"a diagonal of [{rows}, {columns}], which are no numbers")
    size = min(rows.number, columns.number)
    y = y[..., :size, :size]
    apart = elementwise("eq", f.indices(y, -2), f.indices(y, -1))
    return reduced("add", where(apart, y, False if x.dtype.is_bool else 0), -1).astype(x.dtype)


def _kron(a: Traced, b: Traced) -> Traced:
    rank = max(a.ndim, b.ndim)
    a, b = (x.reshape([*[1] * (rank - x.ndim), *x.extents]) for x in (a, b))
    each = a.reshape([e for s in a.extents for e in (s, 1)])
    each = each * b.reshape([e for s in b.extents for e in (1, s)])
    pairs = zip(a.shape, b.shape, strict=True)
    return each.reshape([m * n for m, n in pairs])


def _unfolded(x: Traced, dim: int, size: int, step: int) -> Traced:
    at = dim % x.ndim
    return f.windows(x, (size,), (at,))[(*[slice(None)] * at, slice(None, None, step))]


def _columns(x: Traced, size: Any, dilation: Any, padding: Any, stride: Any) -> Traced:
    if x.ndim == 3:
        return _columns(x[None], size, dilation, padding, stride)[0]
    seen = layers.windows(layers.padded(x, 2, padding), size, stride, dilation)
    b, c, h, w, r, s = seen.shape
    return seen.transpose(0, 1, 4, 5, 2, 3).reshape(b, c * r * s, h * w)


def _unshuffled(x: Traced, factor: int) -> Traced:
    *lead, c, h, w = x.shape
    n = len(lead)
    y = x.reshape(*lead, c, h // factor, factor, w // factor, factor)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return y.transpose(order).reshape(*lead, c * factor * factor, h // factor, w // factor)


def _shuffled_channels(x: Traced, groups: int) -> Traced:
    y = x.reshape(x.extents[0], groups, -1, *x.extents[2:])
    return y.swapaxes(1, 2).reshape(x.extents)


def _bilinear(a: Traced, b: Traced, weight: Traced, bias: Traced | None = None) -> Traced:
    left = f.matmul(a.reshape(-1, a.shape[-1]), weight.transpose(1, 0, 2).reshape(a.shape[-1], -1))
    pairs = left.reshape(-1, weight.shape[0], weight.shape[2]) * b.reshape(-1, 1, b.shape[-1])
    made = pairs.sum(-1).reshape(*a.shape[:-1], weight.shape[0])
    return made if bias is None else made + bias


# Statistics and losses ------------------------------------------------------------------------------------------------


def axes_of(dim: Any) -> Any:
    """The dimensions that an op of torch goes along, as numpy takes them: an empty list is all."""
    return (tuple(dim) or None) if isinstance(dim, list) else dim


def _variance(
    x: Traced,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Traced:
    if isinstance(dim, bool):  # without a dimension `unbiased` is the first
        dim, unbiased = None, dim
    axes = normal_axes(axes_of(dim), x.ndim)
    less = int(unbiased) if correction is None else int(correction)
    centred = x - x.mean(axes, True)
    total = (centred * centred).sum(axes, keepdim)
    if less and len(axes) > 1:
        if any(x.extents[a].number is None for a in axes):
            raise CompileError(
                "a variance with a correction over several dimensions that are no numbers"
            )
        return total / (prod(x.shape[a] for a in axes) - less)
    for a in axes:
        total = total / (x.extents[a] - less)
    return total


def _variance_and_mean(x: Traced, *args: Any, **keys: Any) -> tuple[Traced, Traced]:
    dim = args[0] if args and not isinstance(args[0], bool) else keys.get("dim")
    keepdim = args[2] if len(args) > 2 else keys.get("keepdim", False)
    return _variance(x, *args, **keys), x.mean(axes_of(dim), keepdim)


def _distances(x: Traced, y: Traced, p: float = 2.0, *_: Any) -> Traced:
    return composed.norm(x[..., :, None, :] - y[..., None, :, :], p, -1)


def _divergence(x: Traced, y: Traced, way: int = 1, *, log_target: bool = False) -> Traced:
    each = np.exp(y) * (y - x) if log_target else _times_log(y, y) - y * x
    return layers.loss(each, way)


def _poisson(
    x: Traced, y: Traced, logs: bool = True, full: bool = False, eps: float = 1e-8, way: int = 1
) -> Traced:
    if full:
        raise CompileError("a Poisson loss with Stirling's term")
    return layers.loss(np.exp(x) - y * x if logs else x - y * np.log(x + eps), way)


def _ranking(a: Traced, b: Traced, y: Traced, margin: float = 0.0, way: int = 1) -> Traced:
    return layers.loss(np.maximum(-y * (a - b) + margin, 0.0), way)


def _hinge(x: Traced, y: Traced, margin: float = 1.0, way: int = 1) -> Traced:
    apart = where(elementwise("eq", y, -1.0), np.maximum(margin - x, 0.0), 0.0)
    return layers.loss(where(elementwise("eq", y, 1.0), x, apart), way)


OPS: Final[Mapping[str, Callable[..., Any]]] = {
    **places.OPS, **linalg.OPS,
    **{name: getattr(np, name) for name in ("tan", "sinh", "cosh", "hypot", "isfinite", "heaviside")},
    **{f"a{name[3:]}": lambda *xs, name=name: getattr(np, name)(*map(floating, xs))
       for name in ("arctan", "arcsin", "arccos", "arctan2")},
    "lgamma": lambda x: composed.gammaln(floating(x)), "_int_mm": f.matmul,
    "logcumsumexp": composed.cumulated_logs, "cummax": lambda x, dim: composed.extremes(x, dim % x.ndim, "max"),
    "cummin": lambda x, dim: composed.extremes(x, dim % x.ndim, "min"),
    **{f"max_pool{n}d_with_indices": layers.largest_and_places for n in (2, 3)},
    **dict.fromkeys(("detach_", "lift_fresh_copy"), lambda x: x),
    "__and__": lambda x, y: elementwise("bitwise_and", x, y),
    "__or__": lambda x, y: elementwise("bitwise_or", x, y),
    "__xor__": lambda x, y: elementwise("bitwise_xor", x, y),
    "asinh": _asinh, "atanh": lambda x: 0.5 * (composed.log1p(x) - composed.log1p(-x)),
    "acosh": lambda x: np.log(x + np.sqrt(x - 1.0) * np.sqrt(x + 1.0)), "nan_to_num": _finite, "fmod": _remaining,
    "erfinv": lambda x: _erfinv(floating(x)),
    "frac": lambda x: x - np.trunc(x), "sgn": np.sign, "sinc": _sinc, "logit": _logit, "xlogy": _times_log,
    "special_xlog1py": lambda x, y: _times_log(x, y, composed.log1p, 0.0), "deg2rad": lambda x: x * (pi / 180),
    "rad2deg": lambda x: x * (180 / pi), "isnan": lambda x: elementwise("ne", x, x),
    "isinf": lambda x: elementwise("eq", np.absolute(x), float("inf")),
    "addcmul": lambda x, a, b, *, value=1: x + a * b * value,
    "addcdiv": lambda x, a, b, *, value=1: x + a / b * value, "lerp": lambda x, y, w: x + (y - x) * w,
    "bilinear": _bilinear, "logaddexp": composed.logaddexp, "channel_shuffle": _shuffled_channels,
    "linalg_vecdot": lambda x, y, *, dim=-1: (x * y).sum(dim),
    "tensordot": lambda a, b, m, n: composed.tensordot(a, b, (m, n)),
    "diagonal": _diagonal, "trace": lambda x: _diagonal(x).sum(), "kron": _kron, "tile": arrange.tile,
    "take_along_dim": lambda x, ids, dim: composed.along(x, ids, dim), "unfold": _unfolded, "im2col": _columns,
    "pixel_unshuffle": _unshuffled,
    **dict.fromkeys([f"conv_transpose{n}d" for n in (1, 2, 3)], layers.transposed_convolution),
    "convolution": lambda x, w, bias, stride, padding, dilation, turned, more, groups: (
        layers.transposed_convolution(x, w, bias, stride, padding, more, groups, dilation) if turned
        else layers.convolution(x, w, bias, stride, padding, dilation, groups)),
    **dict.fromkeys(("__lshift__", "bitwise_left_shift"), lambda x, n: elementwise("left_shift", x, n)),
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), lambda x, n: elementwise("right_shift", x, n)),
    "tensor_split": lambda x, parts, dim=0: arrange.split(x, parts, dim, even=False), "log10": lambda x: np.log10(x),
    **{name: (lambda x, parts, dim=dim: arrange.split(x, parts, min(dim, x.ndim - 1)))
       for dim, name in enumerate(("vsplit", "hsplit", "dsplit"))},
    "avg_pool3d": layers.mean, "max_pool3d": layers.largest, "instance_norm": layers.instance_norm,
    "lstm_cell": layers.lstm_cell, "gru_cell": layers.gru_cell, "rnn_tanh_cell": layers.rnn_cell,
    "argmin": lambda x, dim=None, keep=False: np.argmin(x, dim, keepdims=keep),
    "count_nonzero": lambda x, dim=None: np.count_nonzero(x, axes_of(dim)), "var": _variance,
    "std": lambda x, *args, **keys: np.sqrt(_variance(x, *args, **keys)), "var_mean": _variance_and_mean,
    "aminmax": lambda x, dim=None, keepdim=False: (x.min(dim, keepdim), x.max(dim, keepdim)),
    "cdist": _distances, "_cdist_forward": _distances,
    "pairwise_distance": lambda x, y, p=2.0, eps=1e-6, keep=False: composed.norm(x - y + eps, p, -1, keep),
    "kl_div": _divergence, "poisson_nll_loss": _poisson, "margin_ranking_loss": _ranking,
    "hinge_embedding_loss": _hinge,
    "soft_margin_loss": lambda x, y, way=1: layers.loss(composed.logaddexp(-y * x, 0.0), way),
}  # fmt: skip
"""What such an op does, by its name without the overload."""
