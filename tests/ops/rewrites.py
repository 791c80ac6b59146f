"""The kernels of ops/, rewritten without changing what they mean, as another author would write them."""

from __future__ import annotations

import tilewright as tw
from tilewright.ops.attention import attend


@tw.kernel
def attention_swapped(
    Q, K, V, O, scale,
    CAUSAL: tw.constexpr = False, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 256,
):  # fmt: skip
    """Heads along axis 0 of the grid, rows along axis 1; while for range."""
    m, h = tw.program_id(1) * BM, tw.program_id(0)
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
    top = tw.full((BM, 1), -1.0e30, tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    keys = min(m + BM, K.shape[1]) if CAUSAL else K.shape[1]
    free = (min(m + 1, K.shape[1]) if CAUSAL else K.shape[1]) // BN * BN
    n = 0
    while n < free:
        top, total, out = attend(
            q, K, V, h, m, n, scale, top, total, out, False, CAUSAL, False, BM, BN, D
        )  # fmt: skip
        n += BN
    n = free
    while n < keys:
        top, total, out = attend(
            q, K, V, h, m, n, scale, top, total, out, True, CAUSAL, False, BM, BN, D
        )  # fmt: skip
        n += BN
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


@tw.kernel
def attention_neutral(
    Q, K, V, O, scale,
    CAUSAL: tw.constexpr = False, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 256,
):  # fmt: skip
    """A neutral op on the queries, and the state initialised in another order."""
    m, h = tw.program_id(0) * BM, tw.program_id(1)
    out = tw.zeros((BM, D), tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    top = tw.full((BM, 1), -1.0e30, tw.f32)
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D))) * 1.0
    free = (min(m + 1, K.shape[1]) if CAUSAL else K.shape[1]) // BN * BN
    keys = min(m + BM, K.shape[1]) if CAUSAL else K.shape[1]
    for n in range(0, free, BN):
        top, total, out = attend(
            q, K, V, h, m, n, scale, top, total, out, False, CAUSAL, False, BM, BN, D
        )  # fmt: skip
    for n in range(free, keys, BN):
        top, total, out = attend(
            q, K, V, h, m, n, scale, top, total, out, True, CAUSAL, False, BM, BN, D
        )  # fmt: skip
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


@tw.kernel
def softmax_neutral(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)), padding=float("-inf")).to(tw.f32) * 1.0
    top = tw.max(x, 1)
    shifted = x - top
    e = tw.exp(shifted)
    tw.store_tile((e / tw.sum(e, 1)).to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))


@tw.kernel
def softmax_swapped(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    """Rows along axis 1 of the grid, and the result's tile made before the work."""
    m = tw.program_id(1) * BM
    y = tw.init_tile(Y, [m, 0], (BM, BN))
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)), padding=float("-inf")).to(tw.f32)
    e = tw.exp(x - tw.max(x, 1))
    tw.store_tile((e / tw.sum(e, 1)).to(Y.dtype), y)


@tw.kernel
def norm_neutral(X, W, bias, Y, eps, CENTER: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr):
    m = tw.program_id(0) * BM
    n = X.shape[1]
    x = 1.0 * tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN))).to(tw.f32)
    if CENTER:
        inside = tw.arange(0, BN, axis=1, shape=(1, BN)) < n
        x = tw.where(inside, x - tw.sum(x, 1) / n, 0.0)
    squares = x * x
    y = x * tw.rsqrt(tw.sum(squares, 1) / n + eps)
    if W is not None:
        y = y * tw.load_tile(tw.init_tile(W, [0], (1, BN))).to(tw.f32)
    if bias is not None:
        y = y + tw.load_tile(tw.init_tile(bias, [0], (1, BN))).to(tw.f32)
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))
