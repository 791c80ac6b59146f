"""More whole programs, on every target that runs here, against float64."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error, poison

from . import kernels_more as kernels
from .kernels import gemm_init_in_loop
from .test_programs import BF16, F16, F32, TOLERANCE, Array, matrix


def wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.float64) for a in arrays]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


TILES = [(48, 80, 24), (192, 160, 32), (144, 112, 80), (64, 24, 16), (16, 256, 64)]


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_odd_tiles(tile, target, rng):
    bm, bn, bk = tile
    a, b, c = matrix(rng, (56, 40), BF16), matrix(rng, (40, 88), BF16), poison(56, 88, dtype=F32)
    grid = tw.cdiv(56, bm), tw.cdiv(88, bn)
    gemm_init_in_loop.options(target=target)[grid](a, b, c, BM=bm, BN=bn, BK=bk)
    x, y = wide(a, b)
    assert error(c, x @ y) < 1e-5


@pytest.mark.parametrize("columns", [264, 261])
def test_stores_in_a_loop(columns, target, rng):
    a, b = matrix(rng, (100, 136), BF16), matrix(rng, (136, columns), BF16)
    c = poison(100, columns, dtype=BF16)
    kernels.row_blocks.options(target=target)[2](a, b, c)
    x, y = wide(a, b)
    assert error(c, x @ y) < TOLERANCE[BF16]


def test_four_bit_weights(target, rng):
    a, q = matrix(rng, (70, 192), F16), rng.integers(0, 256, (96, 80), np.uint8)
    s, c = matrix(rng, (3, 80), F16), poison(70, 80, dtype=F16)
    kernels.four_bit_weights.options(target=target)[2, 2](a, q, s, c)
    parts = q.reshape(3, 32, 80)
    weights = np.concatenate([parts & 15, parts >> 4], 1).astype(float) - 8
    weights = (weights * wide(s)[0][:, None]).reshape(192, 80)
    assert error(c, wide(a)[0] @ weights) < 2e-3


def test_gathered_experts(target, rng):
    a, w = matrix(rng, (100, 72), BF16), matrix(rng, (4, 72, 70), BF16)
    e, order = np.array([2, 0], np.int32), rng.permutation(100).astype(np.int32)
    i = np.full((128, 1), -1, np.int32)
    i[:40, 0], i[64:124, 0] = order[:40], order[40:]
    c = poison(100, 70, dtype=BF16)
    kernels.gathered_experts.options(target=target)[2, 2](a, i, e, w, c)
    x, y = wide(a, w)
    wanted = np.zeros((100, 70))
    wanted[order[:40]], wanted[order[40:]] = x[order[:40]] @ y[2], x[order[40:]] @ y[0]
    assert error(c, wanted) < TOLERANCE[BF16]


def test_paged_attention(target, rng):
    q, k, v = (matrix(rng, s, BF16) for s in ((3, 16, 64), (9, 32, 64), (9, 32, 64)))
    table = rng.permutation(9).reshape(3, 3).astype(np.int32)
    lengths, o = np.array([70, 32, 95], np.int32), poison(3, 16, 64, dtype=F32)
    kernels.paged_attention.options(target=target)[3](q, k, v, table, o, lengths, 0.125)
    for b, length in enumerate(lengths):
        keys, values = (x[table[b]].reshape(-1, 64)[:length] for x in wide(k, v))
        assert error(o[b], softmax(wide(q)[0][b] @ keys.T / 8) @ values) < 1e-2


def test_convolution(target, rng):
    x, w, y = (
        matrix(rng, (3, 50, 40), F16),
        matrix(rng, (9, 40, 36), F16),
        poison(3, 50, 36, dtype=F16),
    )
    kernels.convolution.options(target=target)[2, 2, 3](x, w, y)
    padded = np.pad(wide(x)[0], ((1, 1), (1, 1), (0, 0)))
    taps = (padded[t // 3 : t // 3 + 3, t % 3 : t % 3 + 50] @ wide(w)[0][t] for t in range(9))
    assert error(y, np.asarray(sum(taps))) < TOLERANCE[F16]


@pytest.mark.parametrize("columns", [136, 130])
def test_running_sums(columns, target, rng):
    x, y = matrix(rng, (40, columns), BF16), poison(40, columns, dtype=F32)
    kernels.running_sums.options(target=target)[2](x, y)
    assert error(y, np.cumsum(wide(x)[0], 1)) < 1e-5


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_cross_entropy(dtype, target, rng):
    x, t = matrix(rng, (5, 333), dtype), rng.integers(0, 333, (5, 1))
    loss, g = poison(5, 1, dtype=F32), poison(5, 333, dtype=F32)
    kernels.cross_entropy.options(target=target)[3](x, t, loss, g)
    p, row = softmax(wide(x)[0]), np.arange(5)
    assert error(loss[:, 0], -np.log(p[row, t[:, 0]])) < 1e-5
    p[row, t[:, 0]] -= 1
    assert error(g, p) < 1e-5


def test_scatter_add(target, rng):
    g, i = matrix(rng, (21, 70), BF16), rng.integers(0, 5, (21, 1)).astype(np.int32)
    w, wanted = np.zeros((5, 70), F32), np.zeros((5, 70))
    kernels.scatter_add.options(target=target)[3, 2](g, i, w)
    np.add.at(wanted, i[:, 0], wide(g)[0])
    assert error(w, wanted) < 1e-5


def test_largest_four(target, rng):
    x, v, i = matrix(rng, (6, 201), F32), poison(6, 4, dtype=F32), np.zeros((6, 4), np.int32)
    kernels.largest_four.options(target=target)[2](x, v, i)
    order = np.argsort(-x, 1)[:, :4]
    np.testing.assert_array_equal(i, order)
    np.testing.assert_array_equal(v, np.take_along_axis(x, order, 1))


def test_square_roots(target, rng):
    x = (rng.random((11, 50)) * 9 + 0.5).astype(F32)
    y = poison(11, 50, dtype=F32)
    kernels.square_roots.options(target=target)[2](x, y)
    assert error(y, np.sqrt(wide(x)[0])) < 1e-6
