"""What the passes for sm_90a make of kernels with two products in a loop, beyond ops.attention: masks, caps, biases."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.test_asynchronous import check_passes, rng, text_of

bf16 = ml_dtypes.bfloat16
Array = Any


@tw.kernel
def variant(
    Q, K, V, O, scale, KIND: tw.constexpr, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 64,
):  # fmt: skip
    """Softmax of scores that are capped, windowed or biased; the sum begins at one (a sink of weight one)."""
    m, h = tw.program_id(0) * BM, tw.program_id(1)
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
    top = tw.full((BM, 1), 0.0, tw.f32)
    total = tw.full((BM, 1), 1.0, tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    keys = min(m + BM, K.shape[1]) if KIND == "window" else K.shape[1]
    for n in range(0, keys, BN):
        k = tw.load_tile(tw.init_tile(K, [h, n, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k)) * scale
        row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
        key = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        if KIND == "cap":
            s = tw.tanh(s * 0.5) * 2.0
        if KIND == "window":
            s = tw.where((key <= row) & (key + 40 > row), s, -1.0e30)
        if KIND == "bias":
            s = s + (key - row).to(tw.f32) * 0.01
        s = tw.where(key < K.shape[1], s, -1.0e30)
        new = tw.maximum(top, tw.max(s, 1))
        p = tw.exp(s - new)
        keep = tw.exp(top - new)
        total = total * keep + tw.sum(p, 1)
        v = tw.load_tile(tw.init_tile(V, [h, n, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out * keep)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


def scores(kind: str, q: Array, k: Array) -> Array:
    s = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / 8
    row, key = np.indices(s.shape[1:])
    if kind == "cap":
        s = np.tanh(s * 0.5) * 2
    if kind == "window":
        s = np.where((key <= row) & (key + 40 > row), s, -np.inf)
    if kind == "bias":
        s = s + (key - row) * 0.01
    return s


@pytest.mark.parametrize("kind", ["cap", "window", "bias"])
def test_sums_are_kept_per_lane(kind: str) -> None:
    """Masks, caps and biases change nothing: the sum leaves the loop as four columns, its first value among them."""
    heads, length, depth = 1, 200, 64

    def fresh() -> tuple[list[Any], Array, Array]:
        r = rng()
        q, k, v = (r.standard_normal((heads, length, depth)).astype(bf16) for _ in range(3))
        o = np.full_like(q, np.nan)
        s = scores(kind, q, k)
        top = np.maximum(s.max(-1, keepdims=True), 0)
        p = np.exp(s - top)
        wanted = p / (p.sum(-1, keepdims=True) + np.exp(-top)) @ v.astype(np.float64)
        return [q, k, v, o, np.float32(0.125)], o, wanted

    text = text_of(variant, tuple(fresh()[0]), KIND=kind)
    names, (_, ir, _) = check_passes(text, (4, heads, 1), fresh, after=("masks", "partial", "roles"))
    assert "partial" in names
    assert "vector<64x4xf32> -> vector<64x1xf32>" in ir["stage"]
    # A loop without masks, and one or two with them; the last product of each iteration runs beside the next.
    assert ir["stage"].count("{pending = 1 : i64}") == {"cap": 2, "window": 6, "bias": 2}[kind]
