"""Layers, losses and gradients as users write them in numpy, each traced, scheduled and run against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import graph as G

BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass
class Model:
    """A function, its arrays' shapes (a dtype after a shape, or how to draw integers below a number)."""

    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    limit: float = 5e-6
    kernels: int | None = None


MODELS: dict[str, Model] = {}


def model(*arrays: Any, limit: float = 5e-6, kernels: int | None = None) -> Any:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        MODELS[function.__name__] = Model(function, arrays, limit, kernels)
        return function

    return add


def drawn(what: Any, rng: np.random.Generator) -> Any:
    shape, *kind = what if isinstance(what[0], tuple) else (what,)
    if kind and isinstance(kind[0], int):
        return rng.integers(0, kind[0], shape)
    if kind and np.dtype(kind[0]).kind == "i":
        return rng.integers(-9, 9, shape).astype(kind[0])
    scale = 1 if len(shape) < 2 else min(1.0, 2 / shape[-2] ** 0.5)
    return (rng.standard_normal(shape) * scale).astype(kind[0] if kind else np.float32)


# Layers ---------------------------------------------------------------------------------------------------------------


@model((37, 24), (24, 4), (4, 24, 40), (4, 40, 24))
def experts(x, gate, up, down):
    s = G.softmax(x @ gate)
    chosen = np.where(s >= s.max(-1, keepdims=True), s, 0.0)
    y = np.einsum("etf,efd->etd", G.silu(np.einsum("td,edf->etf", x, up)), down)
    return (y * chosen.T[:, :, None]).sum(0)


@model((30, 24), (24, 8))
def two_best(x, w):
    s = x @ w
    first = s.max(-1, keepdims=True)
    second = np.where(s >= first, -1e30, s).max(-1, keepdims=True)
    g = np.where(s >= second, np.exp(s - first), 0.0)
    return g / g.sum(-1, keepdims=True)


@model((2, 7, 9, 20), (3, 3, 20))
def depthwise(x, w):
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.einsum("bhwcrs,rsc->bhwc", G.windows(x, (3, 3), (1, 2)), w)


@model((2, 33, 20), (4, 20))
def causal_convolution(x, w):
    windows = G.windows(np.pad(x, ((0, 0), (3, 0), (0, 0))), (4,), (1,))
    return G.silu(np.einsum("btck,kc->btc", windows, w))


@model((2, 11, 13, 8), (3, 3, 8, 16))
def strided_convolution(x, w):
    return np.einsum("bhwcrs,rscf->bhwf", G.windows(x, (3, 3), (1, 2))[:, ::2, ::2], w)


@model((2, 11, 13, 8))
def largest_of_windows(x):
    return G.windows(x, (3, 3), (1, 2))[:, ::2, ::2].max((-1, -2))


@model((2, 7, 9, 4), (3, 3, 4, 8), (3, 3, 8, 8))
def two_convolutions(x, *weights):
    for w in weights:
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x = np.maximum(np.einsum("bhwcrs,rscf->bhwf", G.windows(x, (3, 3), (1, 2)), w), 0)
    return x.mean((1, 2))


@model((2, 8, 12, 3), (48, 20))
def patches(x, w):
    b, h, k, c = x.shape
    x = x.reshape(b, h // 4, 4, k // 4, 4, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, -1, 16 * c) @ w


@model((2, 8, 12, 6), (24, 12))
def merged_patches(x, w):
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return G.layer_norm(np.concatenate(parts, -1)) @ w


@model((2, 8, 12, 6), (6, 6))
def shifted_windows(x, w):
    b, h, k, c = x.shape
    x = np.roll(x, (-2, -2), (1, 2)).reshape(b, h // 4, 4, k // 4, 4, c)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    return G.softmax(x @ w @ x.swapaxes(-1, -2)) @ x


@model((2, 5, 6, 16), (16,), (16,))
def group_norm(x, g, b):
    y = x.reshape(x.shape[0], -1, 4, 4)
    m = y.mean((1, 3), keepdims=True)
    v = ((y - m) ** 2).mean((1, 3), keepdims=True)
    return ((y - m) / np.sqrt(v + 1e-5)).reshape(x.shape) * g + b


@model((2, 5, 6, 16), (16,), (16,))
def batch_norm(x, g, b):
    y = (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5)
    return np.maximum(y * g + b, 0)


@model((30, 40), (30,))
def spectral_norm(w, v):
    for _ in range(3):
        u = w.T @ v
        u = u / np.sqrt((u * u).sum())
        v = w @ u
        v = v / np.sqrt((v * v).sum())
    return w / (v * (w @ u)).sum()


@model((2, 20, 16), (20, 30), (30, 20), (16, 40), (40, 16))
def mixer(x, w1, w2, v1, v2):
    x = x + (G.gelu(x.swapaxes(1, 2) @ w1) @ w2).swapaxes(1, 2)
    return x + G.gelu(x @ v1) @ v2


@model((30, 20), (3, 20, 20))
def crossed(x, ws):
    y = x
    for i in range(3):
        y = x * (y @ ws[i]) + y
    return y


@model((30, 20), (20, 8), kernels=1)
def pairs_of_factors(x, v):
    return 0.5 * ((x @ v) ** 2 - (x * x) @ (v * v)).sum(-1)


@model((20, 24), (24, 30), (3, 24, 4), (3, 4, 30), ((20,), 3))
def adapters(x, w, a, b, ids):
    return x @ w + np.einsum("tr,trd->td", np.einsum("td,tdr->tr", x, a[ids]), b[ids])


@model((20, 12), (12, 48), (12, 8))
def made_weights(x, a, b):
    return np.einsum("bi,bio->bo", x @ b, (x @ a).reshape(-1, 8, 6))


@model((30, 3), (3, 20), kernels=1)
def fourier(x, w):
    p = x @ w
    return np.concatenate([np.sin(p), np.cos(p), x], -1)


# Attention ------------------------------------------------------------------------------------------------------------


@model((4, 33, 16), (4, 33, 16), (4, 33, 16), (4,), kernels=1)
def slopes(q, k, v, slope):
    s = q @ k.swapaxes(-1, -2) * 0.25
    i, j = G.indices(s, -2), G.indices(s, -1)
    return G.softmax(np.where(j <= i, s + slope[:, None, None] * (j - i), -np.inf)) @ v


@model((4, 33, 16), (4, 33, 16), (4, 33, 16), kernels=1)
def near(q, k, v):
    s = q @ k.swapaxes(-1, -2) * 0.25
    i, j = G.indices(s, -2), G.indices(s, -1)
    return G.softmax(np.where((j <= i) & (j > i - 8), s, -1e30)) @ v


@model((4, 20, 16), (33, 16), (33, 16), kernels=1)
def one_head_of_keys(q, k, v):
    return G.softmax(np.einsum("hqd,kd->hqk", q, k) * 0.25) @ v


@model((21, 24), (24,), (24, 96), (21, 16), (21, 16))
def turned(x, g, w, cos, sin):
    q, k, v = (np.moveaxis((G.rms_norm(x, g) @ w).reshape(-1, 3, 2, 16), 0, 2)[i] for i in range(3))
    q, k = (a * cos + np.concatenate([-a[..., 8:], a[..., :8]], -1) * sin for a in (q, k))
    return G.softmax(q @ k.swapaxes(-1, -2) * 0.25) @ v


@model((21, 32), (21, 16), (21, 16))
def turned_in_pairs(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


@model((2, 40, 16), (2, 40, 16), (2, 40, 20))
def linear(q, k, v):
    q, k = np.maximum(q, 0) + 0.1, np.maximum(k, 0) + 0.1
    state = np.einsum("hnd,hne->hde", k, v)
    return np.einsum("hnd,hde->hne", q, state) / np.einsum("hnd,hd->hn", q, k.sum(1))[:, :, None]


@model((30, 12), (12, 16), (16,), (16,), ((30, 30), 2))
def graph_attention(h, w, a, b, adjacent):
    z = h @ w
    e = (z @ a)[:, None] + (z @ b)[None, :]
    return G.softmax(np.where(adjacent > 0, np.where(e > 0, e, 0.2 * e), -1e30)) @ z


# Recurrences ----------------------------------------------------------------------------------------------------------


@model((4, 9, 20), (9, 16), (20, 48), (16, 48), kernels=1)
def gru(xs, h, w, u):
    def cell(h, x):
        (a, b, c), (d, e, f) = np.split(x @ w, 3, 1), np.split(h @ u, 3, 1)
        r, z = G.sigmoid(a + d), G.sigmoid(b + e)
        h = (1 - z) * np.tanh(c + r * f) + z * h
        return h, h

    return G.scan(cell, h, xs)[1]


@model((6, 3, 16), (6, 3, 16), (6, 3, 20), (3, 16, 20), kernels=1)
def retention(q, k, v, state):
    def step(s, x):
        q, k, v = x
        s = 0.9 * s + k[:, :, None] * v[:, None, :]
        return s, (s * q[:, :, None]).sum(1)

    return G.scan(step, state, (q, k, v))[1]


@model((5, 3, 16), (5, 3, 16), (5, 3, 12), (3, 16, 12), kernels=1)
def delta_rule(q, k, v, state):
    def step(s, x):
        q, k, v = x
        s = s + k[:, :, None] * (v - (s * k[:, :, None]).sum(1))[:, None, :]
        return s, (s * q[:, :, None]).sum(1)

    return G.scan(step, state, (q, k, v))[1]


@model((7, 2, 24), (24, 8), (7, 2, 8), (7, 2, 8), (24,), (2, 24, 8))
def state_space(x, a, b, c, d, h):
    decay = np.exp(-np.exp(a))

    def step(h, now):
        x, b, c = now
        h = h * decay + x[:, :, None] * b[:, None, :]
        return h, (h * c[:, None, :]).sum(-1)

    return G.scan(step, h, (x, b, c))[1] + x * d


# Losses and gradients -------------------------------------------------------------------------------------------------


@model((30, 24), (24, 50), ((30,), 50))
def cross_entropy(x, w, y):
    z = x @ w
    p = G.softmax(z)
    hot = np.where(G.indices(z, 1) == y[:, None], 1.0, 0.0)
    d = (p - hot) / 30
    return -np.log((p * hot).sum(1)).mean(), x.T @ d, d @ w.T


@model((30, 50), (50,), (30, 50))
def norm_gradients(x, g, dy):
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
    h, d = c * r, dy * g
    dx = r * (d - d.mean(-1, keepdims=True) - h * (d * h).mean(-1, keepdims=True))
    return dx, (dy * h).sum(0), dy.sum(0)


@model((33, 16), (45, 16), (45, 16), (33, 16))
def attention_gradients(q, k, v, do):
    p = G.softmax(q @ k.T * 0.25)
    dp = do @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    return p @ v, ds @ k * 0.25, ds.T @ q * 0.25, p.T @ do


@model((30, 16), (30, 16))
def contrastive(a, b):
    a, b = (x / np.sqrt((x * x).sum(-1, keepdims=True)) for x in (a, b))
    s = a @ b.T * 10
    eye = np.where(G.indices(s, 0) == G.indices(s, 1), 1.0, 0.0)
    return -((np.log(G.softmax(s, 1)) + np.log(G.softmax(s, 0))) * eye).sum() / 60


@model((30, 16), (30, 16), (30, 16))
def variational(mean, log, noise):
    loss = -0.5 * (1 + log - mean * mean - np.exp(log)).sum(-1).mean()
    return mean + np.exp(0.5 * log) * noise, loss


@model((33, 17), (33, 17), (33, 17), (33, 17))
def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v * v + 0.01 * g * g
    return p - 1e-3 * (m / 0.1) / (np.sqrt(v / 0.01) + 1e-8), m, v


@model((30, 77))
def log_sums(x):
    m = x.max(-1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(-1, keepdims=True))).sum(0)


@model((3, 4), (3, 4, 50))
def beams(scores, logits):
    p = logits - logits.max(-1, keepdims=True)
    total = scores[:, :, None] + p - np.log(np.exp(p).sum(-1, keepdims=True))
    return total.reshape(total.shape[0], -1).max(-1), total


@model((50, 7), (5, 7))
def nearest_means(x, c):
    d = ((x[:, None, :] - c[None, :, :]) ** 2).sum(-1)
    a = np.where(d <= d.min(1, keepdims=True), 1.0, 0.0)
    return (a.T @ x) / np.maximum(a.sum(0)[:, None], 1.0)


@model((40, 12), ((40,), 6))
def means_of_segments(x, ids):
    return G.scatter_add(6, ids, x) / np.maximum(G.scatter_add(6, ids, np.ones_like(x)), 1.0)


# Types ----------------------------------------------------------------------------------------------------------------


@model((30, 64), ((64, 40), np.int8), (40,), limit=3e-2)
def quantised(x, w, scale):
    step = np.abs(x).max(-1, keepdims=True) / 127.0
    q = np.clip(np.rint(x / step), -127, 127).astype(np.int8)
    return (q.astype(np.int32) @ w.astype(np.int32)).astype(np.float32) * step * scale


@model((30, 64), ((64, 40), np.int8), (40,), kernels=1)
def small_weights(x, w, scale):
    return x @ (w.astype(np.float32) * scale)


@model(((20, 33), np.int8), ((17, 33), np.int8), limit=0)
def whole_numbers(x, y):
    return (x.astype(np.int32) @ y.T.astype(np.int32) + 3).sum(1)


@model(((30, 32), BF16), ((32, 64), BF16), ((64, 32), BF16), limit=2e-2, kernels=1)
def of_bf16(x, w, v):
    return G.gelu(x @ w) @ v


@model(((30, 32), np.float16), ((32, 70), np.float16), limit=5e-3, kernels=1)
def of_f16(x, w):
    return G.softmax(x @ w)


@model(((30, 32), np.float64), ((32, 20), np.float64), limit=1e-13)
def of_f64(x, w):
    y = np.tanh(x @ w)
    return y.sum(0), G.softmax(x) * np.exp(x) / np.sqrt(1 + x * x)


def difference(name: str, rng: np.random.Generator) -> tuple[float, int]:
    """How far the results of a model are from float64, relative; and how many kernels it is."""
    each = MODELS[name]
    arrays = [drawn(a, rng) for a in each.arrays]
    function = each.function
    if function.__code__.co_flags & 4:  # *weights
        function = lambda x, y, z: each.function(x, y, z)  # noqa: E731
    graph = G.trace(function, *arrays)
    assert G.parse_graph(str(graph)) == graph == G.parse_mlir(graph.mlir())
    run = graph.compile()
    got = run(*arrays)
    is_float = [a.dtype.kind == "f" or a.dtype == BF16 for a in arrays]
    wide = [a.astype(np.float64) if f else a for a, f in zip(arrays, is_float, strict=True)]
    want = function(*wide)
    worst = 0.0
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True):
        assert one.shape == np.shape(other)
        size = np.linalg.norm(np.asarray(other, np.float64))
        worst = max(worst, float(np.linalg.norm(one.astype(np.float64) - other) / size))
    return worst, len(run.plan(**run.sizes(*arrays)).kernels)


@pytest.mark.parametrize("name", MODELS)
def test_gives_what_numpy_gives(name: str) -> None:
    worst, kernels = difference(name, fresh_rng())
    assert worst <= MODELS[name].limit
    assert MODELS[name].kernels in (None, kernels)
