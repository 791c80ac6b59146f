"""Short rows of results: masks that all rows share, no loop along a row."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison


@tw.kernel
def product(A: Any, B: Any, C: Any, M: tw.constexpr, N: tw.constexpr):
    m, n = tw.program_id(0) * M, tw.program_id(1) * N
    a = tw.load_tile(tw.init_tile(A, [m, 0], (M, 16)))
    b = tw.load_tile(tw.init_tile(B, [0, n], (16, N)))
    tw.store_tile((tw.tile_mma(a, b) * 2.0).to(C.dtype), tw.init_tile(C, [m, n], (M, N)))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16], ids=str)
@pytest.mark.parametrize("tile", [(8, 64), (24, 24), (16, 16), (5, 10), (32, 33)])
def test_nothing_is_stored_beside_the_array(
    rng: np.random.Generator, tile: tuple[int, int], dtype: Any
) -> None:
    for less in (0, 1, tile[1] - 1):
        rows, cols = 3 * tile[0] - min(less, 3), 2 * tile[1] - less
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, 16), (16, cols)))
        around = poison(rows + 2, cols + 5, dtype=dtype)
        before = around.tobytes()
        c = around[1:-1, 2:-3]
        product.options(target="cpu")[3, 2](a, b, c, M=tile[0], N=tile[1])
        want = 2 * a.astype(np.float64) @ b
        limit = 1e-6 if dtype == np.float32 else 6e-3
        assert np.linalg.norm(c.astype(np.float64) - want) <= limit * np.linalg.norm(want)
        around[1:-1, 2:-3] = poison(rows + 2, cols + 5, dtype=dtype)[1:-1, 2:-3]
        assert around.tobytes() == before


@pytest.mark.parametrize("cols", [64, 60])
def test_large_results_go_past_the_caches(rng: np.random.Generator, cols: int) -> None:
    rows = (16 << 20) // (4 * cols) + 7
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((rows, 16), (16, cols)))
    c = poison(rows, cols)
    product.options(target="cpu")[-(-rows // 32), 1](a, b, c, M=32, N=64)
    want = 2 * a.astype(np.float64) @ b
    assert np.linalg.norm(c - want) <= 1e-6 * np.linalg.norm(want)
