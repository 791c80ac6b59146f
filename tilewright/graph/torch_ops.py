"""What an op of torch does to traced arrays, by its name: arithmetic, products, views. `torch_more.py` has more."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError, LaunchError
from tilewright.dtypes import DType
from tilewright.graph import arrange, composed
from tilewright.graph import functions as f
from tilewright.graph import torch_layers as layers
from tilewright.graph import torch_more as more
from tilewright.graph.affine import affine
from tilewright.graph.powers import power
from tilewright.graph.torch_more import alike, axes_of, floating
from tilewright.graph.traced import Traced, broadcast, elementwise, reduced, where
from tilewright.runtime.arrays import describe


def dtype_of(kind: Any) -> DType:
    """The type of elements that is a ``torch.dtype``; CompileError where graphs have none such."""
    import torch  # pyright: ignore[reportMissingImports]

    example = torch.empty(1, dtype=kind)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return describe(example, "x").dtype
    except LaunchError as error:
        raise CompileError(
            f"no graph has elements of {kind}",
            rule="real floats, integers and masks",
            hint="torch.view_as_real of complex numbers",
        ) from error


def _binary(op: str) -> Callable[..., Any]:
    def apply(a: Any, b: Any, *, alpha: Any = 1) -> Any:
        if not isinstance(a, Traced) and not isinstance(b, Traced):
            return _EXTENTS[op](a, b)
        a, b = alike(a, b if alpha == 1 else b * alpha)
        return elementwise(op, a, b)

    return apply


_EXTENTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
}  # fmt: skip


def _unary(op: str) -> Callable[..., Any]:
    kept = op in ("neg", "abs", "invert")
    return lambda x: elementwise(op, x if kept else floating(x))


def _rounded(op: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x: op(x) if x.dtype.is_float else x


def _reduction(kind: Any) -> Callable[..., Any]:
    def apply(x: Traced, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Traced:
        if dtype is None and kind in ("add", "mul") and not x.dtype.is_float:
            x = x.astype(dtypes.i64)
        x = x if dtype is None else x.astype(dtype_of(dtype))
        return reduced(kind, x, axes_of(dim), keepdim)

    return apply


def _cumulated(kind: str) -> Callable[..., Traced]:
    def apply(x: Traced, dim: int, *, dtype: Any = None) -> Traced:
        if dtype is None:
            return composed.cumulated(x, dim, kind)
        return composed.cumulated(x.astype(dtype_of(dtype)), dim, kind).astype(dtype_of(dtype))

    return apply


def _mean(x: Traced, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Traced:
    return (x if dtype is None else x.astype(dtype_of(dtype))).mean(axes_of(dim), keepdim)


def _linear(x: Any, weight: Traced, bias: Any = None) -> Any:
    y = f.matmul(x, weight.T)
    return y if bias is None else y + bias


def _addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = f.matmul(a, b)
    return c * beta + product * alpha if (beta, alpha) != (1, 1) else product + c


def _layer_norm(
    x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    return f.layer_norm(x, weight, bias, eps, tuple(range(-len(shape), 0)))


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    axes = tuple(range(-len(shape), 0))
    return f.rms_norm(x, weight, 1.1920929e-07 if eps is None else eps, axes)


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    if approximate == "none":
        return f.gelu(x)
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    return f.softmax(x if dtype in (None, False) else x.astype(dtype_of(dtype)), dim)


def _log_softmax(x: Any, dim: int, *_: Any) -> Any:
    y = x - x.max(dim, True)
    return y - np.log(np.exp(y).sum(dim, True))


def _clamped(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _softplus(x: Traced, beta: float = 1, threshold: float = 20) -> Traced:
    y = x * float(beta)
    soft = composed.logaddexp(y, 0.0) / float(beta)
    return where(y > float(threshold), x, soft)


def _elu(x: Traced, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Traced:
    return where(x > 0.0, x, composed.expm1(x * float(inner)) * float(alpha)) * float(scale)


def _glu(x: Traced, dim: int = -1) -> Traced:
    a, b = _chunks(x, 2, dim)
    return a * f.sigmoid(b)


def _arange(like: Traced, *args: Any, dtype: DType) -> Traced:
    low, high, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if step == 1 and not isinstance(low, float) and not isinstance(high, float):
        extent = affine(high) - low
    else:
        extent = affine(len(np.arange(low, high, step)))
    counted = composed.counted(like, [extent], 0)
    counted = counted if dtype.is_integer else counted.astype(dtype)
    return counted if (low, step) == (0, 1) else counted * step + low


def _full(like: Traced, shape: Any, value: Any = 0, *, dtype: DType) -> Traced:
    return arrange.full_like(like, value, shape, dtype)


def _filled(x: Traced, value: Any = 0, *, dtype: DType) -> Traced:
    if isinstance(value, Traced):
        return _expanded(value, x.extents)
    return _full(x, x.extents, value, dtype=dtype)


def _vector_norm(
    x: Traced, order: Any = 2, dim: Any = None, keep: bool = False, **_: Any
) -> Traced:
    if dim is None and not keep:
        x = x.reshape(-1)
    return composed.norm(x, order, axes_of(dim), keep)


def _smooth_loss(x: Traced, y: Traced, way: int = 1, beta: float = 1.0) -> Traced:
    d = np.absolute(x - y)
    return layers.loss(where(d < float(beta), d * d * (0.5 / beta), d - 0.5 * beta), way)


def _logistic_loss(
    x: Traced, y: Traced, weight: Any = None, positive: Any = None, way: int = 1
) -> Traced:
    y = alike(y, x)[0]
    each = _softplus(x) - x * y
    if positive is not None:
        each = (1.0 - y) * x + ((positive - 1.0) * y + 1.0) * _softplus(-x)
    return layers.loss(f.scaled(each, weight, None), way)


def _indexed(x: Traced, keys: Any) -> Traced:
    return x[tuple(slice(None) if k is None else k for k in keys)]


def _expanded(x: Traced, shape: Any, **_: Any) -> Traced:
    new = len(shape) - x.ndim
    extents = [
        x.extents[i - new] if isinstance(e, int) and e == -1 else e for i, e in enumerate(shape)
    ]
    return arrange.broadcast_to(x, extents)


def _padded(x: Traced, widths: Any, mode: str = "constant", value: Any = None) -> Traced:
    """Pairs of widths from the last dimension on; a negative one cuts."""
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2)
    pairs += list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    if mode == "circular":
        mode = "wrap"
    elif mode == "replicate":
        mode = "edge"
    for axis, (before, after) in enumerate(pairs):
        x = _sliced(x, axis, max(0, -before), x.extents[axis] + min(0, after))
    more = {"constant_values": value or 0} if mode == "constant" else {}
    return arrange.pad(x, [(max(0, a), max(0, b)) for a, b in pairs], mode, **more)


def _rolled(x: Traced, shifts: Any, dims: Any = None) -> Traced:
    return arrange.roll(x, shifts if isinstance(shifts, list) else [shifts], dims or None)


def _sliced(x: Traced, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Traced:
    limit = None if isinstance(end, int) and end >= 2**62 else end
    extent = x.shape[dim]
    if isinstance(limit, int) and isinstance(extent, int):
        limit = min(limit, extent)
    return x[(*[slice(None)] * (dim % x.ndim), slice(start, limit, step))]


def _parts(x: Traced, sizes: Any, dim: int = 0) -> list[Traced]:
    """Slices of so many elements each, one after the other; of one number, so many in each and the rest."""
    if not isinstance(sizes, list):
        extent = x.shape[dim]
        if not isinstance(extent, int):
            raise CompileError(f"parts of a dimension of {extent}, which is no number")
        sizes = [min(sizes, extent - at) for at in range(0, extent, sizes)]
    starts = [sum(sizes[:i], 0) for i in range(len(sizes))]
    return [_sliced(x, dim, at, at + size) for at, size in zip(starts, sizes, strict=True)]


def _chunks(x: Traced, count: int, dim: int = 0) -> list[Traced]:
    extent = x.shape[dim]
    return _parts(x, -(-extent // count) if isinstance(extent, int) else extent, dim)


def _selected(x: Traced, dim: int, at: Any) -> Traced:
    return x[(*[slice(None)] * (dim % x.ndim), at)]


def _unsqueezed(x: Traced, dim: int) -> Traced:
    return x[(*[slice(None)] * (dim % (x.ndim + 1)), None)]


def _squeezed(x: Traced, dim: Any) -> Traced:
    axes = [d % x.ndim for d in (dim if isinstance(dim, list) else [dim])]
    kept = [e for i, e in enumerate(x.extents) if i not in axes or e.number != 1]
    return x.reshape(kept)


def _flattened(x: Traced, start: int = 0, end: int = -1) -> Traced:
    start, end = start % x.ndim, end % x.ndim
    return x.reshape([*x.extents[:start], -1, *x.extents[end + 1 :]])


def _embedding(table: Traced, ids: Traced, padding: int = -1, *_: Any) -> Any:
    return f.take(table, ids)


def _masked(x: Traced, mask: Traced, value: Any) -> Any:
    return where(mask, bool(value) if x.dtype.is_bool else value, x)


MADE: Final[Mapping[str, Callable[..., Any]]] = {
    "arange": _arange, **dict.fromkeys(("full", "zeros", "empty", "new_full", "new_zeros", "new_empty"), _full),
    **dict.fromkeys(("ones", "new_ones"), lambda like, shape, *, dtype: _full(like, shape, 1, dtype=dtype)),
    **dict.fromkeys(("full_like", "zeros_like", "empty_like", "fill", "zero"), _filled),
    "ones_like": lambda x, *, dtype: _filled(x, 1, dtype=dtype),
    "scalar_tensor": lambda like, value, *, dtype: _full(like, [], value, dtype=dtype),
}  # fmt: skip
"""Ops that make arrays of numbers: of an array (any, for those of torch that take none) and the type of the result."""

OPS: Final[Mapping[str, Callable[..., Any]]] = {
    **more.OPS, **MADE,
    **{op: _binary(op) for op in ("add", "sub", "mul", "floor_divide", "lt", "le", "gt", "ge", "eq", "ne")},
    **{name: _binary(op) for name, op in {
        "maximum": "max", "minimum": "min", "truediv": "div", "bitwise_and": "bitwise_and",
        "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    }.items()},
    **{op: _unary(op) for op in (
        "neg", "abs", "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "tanh", "erf", "sigmoid",
    )},
    **{name: _rounded(op) for name, op in {"floor": np.floor, "ceil": np.ceil, "round": np.rint}.items()},
    "div": more.divided,
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
    "bitwise_not": _unary("invert"), "pow": lambda x, y: power(*alike(x, y)),
    "where": lambda seen, x, y: where(seen, *alike(x, y)),
    "square": lambda x: x * x, "reciprocal": lambda x: elementwise("div", 1.0, x),
    "relu": f.relu, "silu": f.silu, "gelu": _gelu, "softmax": _softmax, "_softmax": _softmax,
    "sum": _reduction("add"), "amax": _reduction("max"), "amin": _reduction("min"), "prod": _reduction("mul"),
    "mean": _mean, "layer_norm": _layer_norm, "rms_norm": _rms_norm,
    "matmul": f.matmul, "mm": f.matmul, "bmm": f.matmul, "linear": _linear, "addmm": _addmm,
    "scaled_dot_product_attention": layers.attention,
    "view": lambda x, shape: x.reshape(shape), "reshape": lambda x, shape: x.reshape(shape),
    "_unsafe_view": lambda x, shape: x.reshape(shape), "flatten": _flattened, "squeeze": _squeezed,
    "permute": lambda x, order: x.transpose(order),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), lambda x, a, b: x.swapaxes(a, b)),
    "t": lambda x: x.T, "mT": lambda x: x.swapaxes(-1, -2), "numpy_T": lambda x: x.T, "expand": _expanded,
    "slice": _sliced, "select": _selected, "split": _parts, "split_with_sizes": _parts, "chunk": _chunks,
    "getitem": operator.getitem, "unsqueeze": _unsqueezed,
    **dict.fromkeys(("cat", "concat", "concatenate"), arrange.concatenate), "stack": arrange.stack, "roll": _rolled,
    "flip": arrange.flip, "pad": _padded, "movedim": arrange.moveaxis, "repeat": arrange.tile,
    "constant_pad_nd": lambda x, widths, value=0: _padded(x, widths, "constant", value),
    "unbind": lambda x, dim=0: [_selected(x, dim, i) for i in range(x.shape[dim])],
    "repeat_interleave": arrange.repeat, "narrow": lambda x, dim, at, n: _sliced(x, dim, at, at + n),
    "embedding": _embedding, "index_select": lambda x, dim, ids: f.take(x, ids, dim),
    **dict.fromkeys(("to", "_to_copy", "type_as", "contiguous", "clone", "alias", "detach", "real", "conj",
                     "conj_physical"), lambda x, *_, **__: x),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
                    lambda x, p, train: x if not train else _refuse("dropout in training", "module.eval()")),
    "sym_size": lambda x, dim: x.extents[dim], "copy": lambda x, y, *_: _expanded(y, x.extents),
    "log1p": composed.log1p, "expm1": composed.expm1, "softplus": _softplus, "elu": _elu, "glu": _glu,
    "logsumexp": lambda x, dim, keep=False: x.max(axes_of(dim), keep) + np.log(
        np.exp(x - x.max(axes_of(dim), True)).sum(axes_of(dim), keep)),
    "log_softmax": _log_softmax, "_log_softmax": _log_softmax, "clamp": _clamped, "clamp_min": _clamped,
    "clamp_max": lambda x, high: np.minimum(x, high), "relu6": lambda x: _clamped(x, 0.0, 6.0),
    "hardtanh": lambda x, low=-1.0, high=1.0: _clamped(x, low, high),
    "hardsigmoid": lambda x: _clamped(x + 3.0, 0.0, 6.0) / 6.0,
    "hardswish": lambda x: x * (_clamped(x + 3.0, 0.0, 6.0) / 6.0), "mish": lambda x: x * np.tanh(_softplus(x)),
    "leaky_relu": lambda x, slope=0.01: where(x > 0.0, x, x * float(slope)), "sign": lambda x: np.sign(x),
    "masked_fill": _masked, "tril": lambda x, k=0: np.tril(x, k),
    "triu": lambda x, k=0: np.triu(x, k),
    "argmax": lambda x, dim=None, keep=False: np.argmax(x, dim, keepdims=keep),
    "cumsum": _cumulated("add"), "cumprod": _cumulated("mul"),
    "einsum": lambda subscripts, operands, **_: composed.einsum(subscripts, *operands),
    "any": lambda x, dim=None, keep=False: np.any(x, dim, keepdims=keep),
    "all": lambda x, dim=None, keep=False: np.all(x, dim, keepdims=keep),
    "linalg_vector_norm": _vector_norm, "norm": _vector_norm,
    "baddbmm": _addmm, "addmv": _addmm, "mv": f.matmul, "dot": f.matmul, "outer": lambda a, b: a[:, None] * b[None],
    "rsub": lambda x, y: elementwise("sub", y, x), "remainder": _binary("mod"), "trunc": lambda x: np.trunc(x),
    "expand_as": lambda x, like: _expanded(x, like.extents), "view_as": lambda x, like: x.reshape(like.extents),
    "unflatten": lambda x, dim, sizes: x.reshape([*x.extents[: dim % x.ndim], *sizes, *x.extents[dim % x.ndim + 1 :]]),
    "conv1d": layers.convolution, "conv2d": layers.convolution, "conv3d": layers.convolution,
    "max_pool1d": layers.largest, "max_pool2d": layers.largest, "avg_pool2d": layers.mean,
    "avg_pool1d": layers.mean, "pixel_shuffle": layers.shuffled,
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), layers.adaptive_largest),
    "group_norm": layers.group_norm, "batch_norm": layers.batch_norm, "lstm": layers.lstm,
    "gru": layers.gru, "rnn_tanh": layers.rnn,
    "mse_loss": lambda x, y, way=1: layers.loss((x - y) ** 2, way),
    "l1_loss": lambda x, y, way=1: layers.loss(np.absolute(x - y), way), "smooth_l1_loss": _smooth_loss,
    "huber_loss": lambda x, y, way=1, delta=1.0: _smooth_loss(x, y, way, delta) * float(delta),
    "cross_entropy_loss": lambda x, y, *args: layers.picked_loss(_log_softmax(x, min(1, x.ndim - 1)), y, *args),
    "nll_loss": layers.picked_loss, "nll_loss_nd": layers.picked_loss,
    "binary_cross_entropy_with_logits": _logistic_loss,
    "selu": lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805),
    "celu": lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1 / alpha), "log_sigmoid": lambda x: -_softplus(-x),
    "prelu": lambda x, w: where(x > 0.0, x, x * (layers.channels(x, w) if x.ndim > 1 else w)),
    "threshold": lambda x, low, value: where(x > float(low), x, float(value)),
    "broadcast_tensors": lambda xs: [_expanded(x, broadcast("broadcast", [y.extents for y in xs])) for x in xs],
    "index": _indexed, "one_hot": lambda x, n: (x[..., None] == composed.counted(x, [n], 0)).astype(dtypes.i64),
    "cosine_similarity": lambda x, y, dim=1, eps=1e-8: (x * y).sum(dim) / np.maximum(
        _vector_norm(x, 2, dim) * _vector_norm(y, 2, dim), eps),
    "_assert_tensor_metadata": lambda *_, **__: None, "_assert_scalar": lambda *_: None,
}  # fmt: skip
"""What an op of torch does, by its name without the overload."""


def _refuse(what: str, hint: str | None = None) -> Any:
    raise CompileError(what, hint=hint)
