"""attention: lengths, heads, masks and scales, against float64."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error, poison
from tilewright import ops
from tilewright.ops.tiles import attention_tile

from .conftest import normal

BF16 = np.dtype(ml_dtypes.bfloat16)
LIMIT = {np.dtype("f4"): 4e-6, np.dtype("f2"): 2e-3, BF16: 1e-2}


def attention(q, k, v, causal, scale=None):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        row, col = np.indices(s.shape[-2:])
        s = np.where(col <= row, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_attention(d, causal, dtype, target, rng):
    q, k, v = (normal(rng, (2, 300, d), dtype) for _ in range(3))
    o = poison(*q.shape, dtype=dtype)
    assert ops.attention(q, k, v, causal=causal, out=o, target=target) is o
    assert error(o, attention(q, k, v, causal)) < LIMIT[dtype]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length, keys", [(1, 1), (65, 257), (300, 31), (256, 512)])
def test_lengths(length, keys, causal, target, rng):
    q = normal(rng, (3, length, 64), "f4")
    k, v = (normal(rng, (3, keys, 64), "f4") for _ in range(2))
    got = ops.attention(q, k, v, causal=causal, target=target)
    assert error(got, attention(q, k, v, causal)) < 4e-6


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length, rows", [(1, 1), (3, 4), (20, 32), (50, 64), (70, 64)])
def test_few_rows_take_a_tile_of_few(length, rows, causal, dtype, target, rng):
    q = normal(rng, (2, length, 64), dtype)
    k, v = (normal(rng, (2, 300, 64), dtype) for _ in range(2))
    o = poison(*q.shape, dtype=dtype)
    ops.attention(q, k, v, causal=causal, out=o, target=target)
    assert error(o, attention(q, k, v, causal)) < LIMIT[dtype]
    assert attention_tile(q, 64) == {"BM": rows}


def test_a_call_seen_before_is_not_looked_at_again(rng, monkeypatch):
    """But it computes what its operands hold now; another scale, mask, view or place is looked at."""
    q, k, v = (normal(rng, (2, 3, 5, 32), "f4") for _ in range(3))
    o = poison(*q.shape)
    for _ in range(3):
        ops.attention(q, k, v, out=o)
    module = sys.modules["tilewright.ops.attention"]
    monkeypatch.setattr(module, "check_operands", lambda *_, **__: pytest.fail("looked at"))
    for x in (q, k, v):
        x[...] = normal(rng, x.shape, "f4")
    o[...] = np.nan
    assert ops.attention(q, k, v, out=o) is o
    assert error(o, attention(q, k, v, False)) < 4e-6
    for operands, others in (
        ((q, k, v), {"causal": True}), ((q, k, v), {"scale": 0.5}), ((q, k.copy(), v), {}),
        ((q, k[:, :, :4], v[:, :, :4]), {}), ((q, v, k), {}), ((q, k, v), {"num_threads": 1}),
    ):  # fmt: skip
        with pytest.raises(pytest.fail.Exception, match="looked at"):
            ops.attention(*operands, out=o, **others)


def test_a_call_over_again_copies_again_what_is_no_view(rng):
    q, k, v = (normal(rng, (2, 3, 5, 32), "f4").swapaxes(0, 1) for _ in range(3))
    plain, view = poison(*q.shape), poison(2, 3, 5, 32).swapaxes(0, 1)
    for o in (plain, view, plain, view, plain, view):
        for x in (q, k, v):
            x[...] = normal(rng, x.shape, "f4")
        ops.attention(q, k, v, out=o)
        assert error(o, attention(q, k, v, False)) < 4e-6


def test_no_rows_at_all(target, rng):
    k = normal(rng, (2, 9, 32), "f4")
    o = np.empty((2, 0, 32), np.float32)
    assert ops.attention(o, k, k, out=o, target=target) is o
    assert ops.attention(k[:0], k[:0], k[:0], target=target).shape == (0, 9, 32)


def test_batch_and_heads_in_any_layout(target, rng):
    """[batch, length, heads, d] in memory, viewed as [batch, heads, length, d]."""
    q, k, v = (normal(rng, (2, 70, 3, 64), "f4").swapaxes(1, 2) for _ in range(3))
    o = poison(2, 70, 3, 64).swapaxes(1, 2)
    ops.attention(q, k, v, out=o, target=target)
    assert error(o, attention(q, k, v, causal=False)) < 4e-6


def test_scale_and_large_scores(target, rng):
    q, k, v = (normal(rng, (1, 100, 64), "f4") * np.float32(8) for _ in range(3))
    got = ops.attention(q, k, v, scale=2.0, target=target)
    assert error(got, attention(q, k, v, False, 2.0)) < 1e-4


def test_small_heads(target, rng):
    q, k, v = (normal(rng, (2, 40, 16), "f4") for _ in range(3))
    assert error(ops.attention(q, k, v, target=target), attention(q, k, v, False)) < 4e-6


@pytest.mark.parametrize("shapes", [
    ((2, 8, 60), (2, 8, 60), (2, 8, 60)),
    ((2, 8, 64), (3, 8, 64), (3, 8, 64)),
    ((2, 8, 64), (2, 8, 64), (2, 9, 64)),
])  # fmt: skip
def test_refusals(shapes):
    q, k, v = (np.zeros(s, np.float32) for s in shapes)
    with pytest.raises(tw.LaunchError, match="attention"):
        ops.attention(q, k, v)
