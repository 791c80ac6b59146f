"""Products that become the same loops share a function: the same bits from a part of the code."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error
from tests.targets.cpu.test_thin import RUNNABLE

TYPES = {"f32": np.float32, "bf16": tw.bf16.numpy}


@tw.kernel
def convolution(X, W, Y, C: tw.constexpr, BX: tw.constexpr, BY: tw.constexpr, SIZE: tw.constexpr):
    """SIZE x SIZE products of shifted rows, each written out."""
    n, h, w = tw.program_id(0), tw.program_id(1), tw.program_id(2) * BX
    acc = tw.zeros((BX, BY), tw.f32)
    for i in tw.static_range(SIZE):
        for j in tw.static_range(SIZE):
            x = tw.load_tile(tw.init_tile(X, [n, h + i, w + j, 0], (BX, C)))
            acc = tw.tile_mma(x, tw.load_tile(tw.init_tile(W, [i, j, 0, 0], (C, BY))), acc)
    tw.store_tile(acc.to(Y.dtype), tw.init_tile(Y, [n, h, w, 0], (BX, BY)))


@tw.kernel
def two_products(X, G, U, Y, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    g = tw.zeros((BM, BN), tw.f32)
    u = tw.zeros((BM, BN), tw.f32)
    for k in range(0, X.shape[1], BK):
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK)))
        g = tw.tile_mma(x, tw.load_tile(tw.init_tile(G, [k, n], (BK, BN))), g)
        u = tw.tile_mma(x, tw.load_tile(tw.init_tile(U, [k, n], (BK, BN))), u)
    tw.store_tile((g * u).to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


def draw(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(TYPES[kind])


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("kind", TYPES)
def test_nine_products_are_few_functions(rng, level, kind):
    size, n, h, w, c, out = 3, 2, int(rng.integers(3, 7)), int(rng.integers(17, 70)), 48, 40
    x = draw(rng, kind, n, h + size - 1, w + size - 1, c)
    weight = draw(rng, kind, size, size, c, out)
    wide = [a.astype(np.float64) for a in (x, weight)]
    expected = sum(
        wide[0][:, i : i + h, j : j + w] @ wide[1][i, j] for i in range(size) for j in range(size)
    )
    found: list[np.ndarray] = []
    lines: list[int] = []
    for off in (("alike-loops",), ()):
        run = convolution.options(target="cpu", machine=level, disable=off)
        y = np.full((n, h, w, out), np.nan, TYPES[kind])
        sizes = {"C": 64, "BX": 32, "BY": 64, "SIZE": size}
        run[n, h, tw.cdiv(w, 32)](x, weight, y, **sizes)
        found.append(y)
        lines.append(run.compile(x, weight, y, **sizes).asm["llvm"].count("\n"))
    assert found[0].tobytes() == found[1].tobytes()
    assert error(found[0], expected) < (1e-2 if kind == "bf16" else 1e-5)
    if level != "amx":  # whose loops have tiles, which stay where they are
        assert lines[1] < 0.7 * lines[0], lines


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("kind", TYPES)
def test_two_products_of_one_operand(rng, level, kind):
    m, n, k = (int(x) for x in rng.integers(33, 150, 3))
    x, g, u = (draw(rng, kind, *s) for s in ((m, k), (k, n), (k, n)))
    wide = [a.astype(np.float64) for a in (x, g, u)]
    expected = (wide[0] @ wide[1]) * (wide[0] @ wide[2])
    found: list[np.ndarray] = []
    for off in (("alike-loops",), ()):
        run = two_products.options(target="cpu", machine=level, disable=off)
        y = np.full((m, n), np.nan, np.float32)
        run[tw.cdiv(m, 64), tw.cdiv(n, 64)](x, g, u, y, BM=64, BN=64, BK=32)
        found.append(y)
    assert found[0].tobytes() == found[1].tobytes()
    assert error(found[0], expected) < 1e-5
