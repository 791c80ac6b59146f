"""softmax, rms_norm, layer_norm: rows of every length, in every float type, against float64."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error, poison
from tilewright import ops

from .conftest import normal

BF16 = np.dtype(ml_dtypes.bfloat16)
LIMIT = {np.dtype("f4"): 2e-6, np.dtype("f2"): 1e-3, BF16: 8e-3}
SHAPES = [(5, 64), (1, 1), (7, 100), (2, 3, 65), (9, 1000), (129, 3)]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(shape, dtype, target, rng):
    x, y = normal(rng, shape, dtype) * dtype.type(3), poison(*shape, dtype=dtype)
    assert ops.softmax(x, out=y, target=target) is y
    assert error(y, softmax(x.astype(np.float64))) < LIMIT[dtype]


@pytest.mark.parametrize("limit", [1 << 15, 64], ids=["rows", "blocks"])
@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=str)
def test_softmax_of_bytes(target, rng, dtype, limit, monkeypatch):
    """With infinities and without: what lies right of a row is none of it."""
    monkeypatch.setattr(sys.modules["tilewright.ops.softmax"], "ROW_LIMIT", limit)
    x = normal(rng, (5, 100), dtype)
    assert error(ops.softmax(x, target=target), softmax(x.astype(np.float64))) < 0.1


def test_softmax_of_large_values(target, rng):
    x = normal(rng, (6, 90), "f4") + np.float32(3e4)
    x[2] = -3e38
    assert error(ops.softmax(x, target=target), softmax(x.astype(np.float64))) < 2e-6


def test_softmax_block_by_block(target, rng, monkeypatch):
    """Rows longer than a tile are read twice, with a running maximum."""
    monkeypatch.setattr(sys.modules["tilewright.ops.softmax"], "ROW_LIMIT", 512)
    x = normal(rng, (3, 9000), "f4") * np.float32(4)
    x[0, 4096:] += 30
    assert error(ops.softmax(x, target=target), softmax(x.astype(np.float64))) < 2e-6


def test_softmax_rows_sum_to_one(target, rng):
    y = ops.softmax(normal(rng, (17, 333), "f4"), target=target)
    np.testing.assert_allclose(y.astype(np.float64).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_rms_norm(shape, dtype, weighted, target, rng):
    x, y = normal(rng, shape, dtype), poison(*shape, dtype=dtype)
    w = normal(rng, shape[-1:], dtype) if weighted else None
    ops.rms_norm(x, w, eps=1e-3, out=y, target=target)
    wide = x.astype(np.float64)
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3)
    assert error(y, want * (1 if w is None else w.astype(np.float64))) < LIMIT[dtype]


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted, biased", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_layer_norm(shape, dtype, weighted, biased, target, rng):
    x, y = normal(rng, shape, dtype) + dtype.type(5), poison(*shape, dtype=dtype)
    w = normal(rng, shape[-1:], dtype) if weighted else None
    b = normal(rng, shape[-1:], dtype) if biased else None
    ops.layer_norm(x, w, b, eps=1e-3, out=y, target=target)
    wide = x.astype(np.float64)
    wide = wide - wide.mean(-1, keepdims=True)
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3)
    want = want * (1 if w is None else w.astype(np.float64))
    want = want + (0 if b is None else b.astype(np.float64))
    if np.linalg.norm(want) == 0:
        np.testing.assert_allclose(y.astype(np.float64), 0, atol=1e-3)
    else:
        assert error(y, want) < 4 * LIMIT[dtype]


def test_strided_rows(target, rng):
    x = normal(rng, (40, 30), "f4")[::2, ::-1].T
    assert error(ops.softmax(x, target=target), softmax(x.astype(np.float64))) < 2e-6


def test_no_rows(target):
    assert ops.softmax(np.zeros((0, 5), np.float32), target=target).shape == (0, 5)


@pytest.mark.parametrize("call", [
    lambda x: ops.rms_norm(x, np.ones(3, np.float32)),
    lambda x: ops.layer_norm(x, None, np.ones((1, 4), np.float32)),
    lambda x: ops.softmax(x, out=np.ones((4, 5), np.float32)),
])  # fmt: skip
def test_refusals(call):
    with pytest.raises(tw.LaunchError, match="shape"):
        call(np.ones((4, 4), np.float32))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: ops.softmax([1.0, 2.0]), "softmax: x is a list, which is no array"),
        (lambda: ops.softmax(np.ones((2, 3), np.int32)), "elements of i32, and it takes floats"),
        (lambda: ops.rms_norm(np.float32(3.0)), "1 dimensions or more"),
        (
            lambda: ops.matmul(np.ones((2, 3), np.float32), np.ones((3, 2), np.float16)),
            "a has elements of f32, b of f16",
        ),
        (
            lambda: ops.attention(*(np.ones((4, 16), t) for t in ("f2", "f2", "f4"))),
            "q has elements of f16, v of f32",
        ),
    ],
)
def test_operands_that_are_none(call, words):
    with pytest.raises(tw.LaunchError, match=words):
        call()
