"""Rows cut in parts whose elements meet: each thread has alike of each part, so that nothing is exchanged."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.targets.cuda.test_pad_tiles import run
from tilewright.dialects.text import print_module


@tw.kernel
def rotated(X, COS, SIN, Y, D: tw.constexpr, BM: tw.constexpr = 8):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, D))).to(tw.f32)
    x = x * tw.rsqrt(tw.sum(x * x, 1) + 1.0)
    a, b = x[:, : D // 2], x[:, D // 2 :]
    c = tw.load_tile(tw.init_tile(COS, [m, 0], (BM, D // 2)))
    s = tw.load_tile(tw.init_tile(SIN, [m, 0], (BM, D // 2)))
    y = tw.concat((a * c - b * s, a * s + b * c), 1)
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, D)))


@tw.kernel
def quarters(X, Y, BM: tw.constexpr, D: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, D)))
    E = D // 4
    y = (x[:, :E] - x[:, E : 2 * E]) * x[:, 2 * E : 3 * E] + x[:, 3 * E :]
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (BM, E)))


@pytest.mark.parametrize(("rows", "d", "alone"), [(16, 128, True), (13, 64, True), (5, 8, False)])
def test_halves_of_rows(rows: int, d: int, alone: bool, rng: np.random.Generator) -> None:
    x, angle = rng.standard_normal((rows, d)), rng.uniform(0, 6, (rows, d // 2))
    args = [x.astype(np.float32), *(f(angle).astype(np.float32) for f in (np.cos, np.sin))]
    y = poison(rows, d)
    code = run(rotated, [*args, y], -(-rows // 8), D=d)
    n = x / np.sqrt((x * x).sum(1, keepdims=True) + 1)
    a, b = n[:, : d // 2], n[:, d // 2 :]
    want = np.hstack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)])
    assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)
    if alone:
        assert "nvptx.bar" not in print_module(code.module)


@pytest.mark.parametrize(("rows", "d"), [(32, 128), (3, 64), (64, 16), (8, 2048)])
def test_quarters_of_rows(rows: int, d: int, rng: np.random.Generator) -> None:
    x = rng.integers(-50, 50, (rows - 1, d)).astype(np.int32)
    y = poison(rows - 1, d // 4, dtype=np.int32)
    run(quarters, [x, y], 1, BM=rows, D=d)
    a, b, c, e = (x[:, i * d // 4 : (i + 1) * d // 4] for i in range(4))
    np.testing.assert_array_equal(y, (a - b) * c + e)
