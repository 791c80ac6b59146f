"""What the docs promise of numbers: the same bits whatever the number of threads; what fastmath leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from benchmarks.suites.layers import product
from tests.acceptance import kernels
from tests.targets.cpu.test_structure import levels_here
from tilewright import ops


@tw.kernel
def normed(X, Y, N: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 4, 0], (4, N)))
    e = tw.exp(x - tw.max(x, axis=1))
    tw.store_tile(e / tw.sum(e, axis=1), tw.init_tile(Y, [tw.program_id(0) * 4, 0], (4, N)))


@pytest.mark.parametrize("disable", [(), ("packing",)])
def test_the_number_of_threads_changes_no_bit(rng, disable):
    a, b = (rng.standard_normal(s, np.float32) for s in ((150, 100), (100, 90)))
    found: list[bytes] = []
    for threads in (1, 2, 3, 1):
        c, y = np.full((150, 90), np.nan, np.float32), np.full_like(a, np.nan)
        own = {"target": "cpu", "num_threads": threads}
        kernels.gemm.options(**own, disable=disable)[3, 2](a, b, c, BM=64, BN=64, BK=32)
        normed.options(**own)[38](a, y, 128)
        found.append(c.tobytes() + y.tobytes())
    assert len(set(found)) == 1 and np.isfinite(np.frombuffer(found[0], np.float32)).all()


@pytest.mark.parametrize("m, k", [(100, 1000), (300, 600), (520, 520)])
def test_the_choice_of_tiles_changes_no_bit(rng, m, k):
    """Blocks of k are as deep for more threads."""
    a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, m)))
    found = [ops.matmul(a, b, target="cpu", num_threads=n).tobytes() for n in (1, 2, 4, 16)]
    assert len(set(found)) == 1


@pytest.mark.parametrize("m, n, k", [(900, 40, 700), (130, 700, 900)])
def test_tiles_left_open_change_no_bit(rng, m, n, k):
    a, b = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
    found = set[bytes]()
    for threads in (1, 2, 16):
        c = np.full((m, n), np.nan, np.float32)
        run = product.options(target="cpu", num_threads=threads)
        run[lambda size: (tw.cdiv(m, size["BM"]), tw.cdiv(n, size["BN"]))](a, b, c)
        found.add(c.tobytes())
    assert len(found) == 1


@tw.kernel
def repeated(
    A, B, C, K, R: tw.index, BM: tw.constexpr = 16, BN: tw.constexpr = 48, BK: tw.constexpr = 64
):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    c = tw.init_tile(C, [m, n], (BM, BN))
    for r in range(R):
        total = tw.zeros((BM, BN), tw.f32)
        for k in range(0, K, BK):
            a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
            b = tw.load_tile(tw.init_tile(B, [k, n + r * C.shape[1]], (BK, BN)))
            total = tw.tile_mma(a, b, total)
        tw.store_tile(tw.load_tile(c) * 0.5 + total, c)


@pytest.mark.skipif("avx512" not in levels_here(), reason="needs AVX-512")
@pytest.mark.parametrize("turns", [1, 2])
def test_products_in_loops_are_added_up_alike_in_merged_programs(rng, turns):
    """Up to 16 rows are multiplied without panels there, elsewhere up to 8."""
    a, b = (rng.standard_normal(s, np.float32) for s in ((256, 512), (512, 1024)))
    run, found = repeated.options(target="cpu", machine="avx512"), set[bytes]()
    for threads in (1, 4, 7, 16):
        c = np.zeros((256, 512), np.float32)
        grid = 256 // 16, tw.cdiv(512, 48)
        run.options(num_threads=threads)[grid](a, b, c, 512, turns)
        found.add(c.tobytes())
    assert len(found) == 1


@tw.kernel
def compensated(X, Y):
    total, lost = tw.zeros((1, 16), tw.f32), tw.zeros((1, 16), tw.f32)
    for i in range(X.shape[0]):
        y = tw.load_tile(tw.init_tile(X, [i, 0], (1, 16))) - lost
        t = total + y
        lost = (t - total) - y
        total = t
    tw.store_tile(total, tw.init_tile(Y, [0, 0], (1, 16)))


@tw.kernel
def special(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 16)))
    tw.store_tile(tw.where(x != x, 1.0, 0.0), tw.init_tile(Y, [0, 0], (1, 16)))
    tw.store_tile(x - x, tw.init_tile(Y, [1, 0], (1, 16)))
    tw.store_tile(1 / (x * 0.0), tw.init_tile(Y, [2, 0], (1, 16)))


@pytest.mark.parametrize("fastmath", [True, False])
def test_fastmath_assumes_nothing_of_special_values_and_reorders_nothing(fastmath):
    x = np.full((3000, 16), 0.1, np.float32)
    x[0] = 1e6
    y = np.zeros((1, 16), np.float32)
    compensated.options(target="cpu", fastmath=fastmath)[1](x, y)
    exact = x.astype(np.float64).sum(0)
    assert abs(y[0] - exact).max() <= np.spacing(np.float32(exact[0]))
    assert abs(np.add.accumulate(x)[-1] - exact).max() > 1  # as it is without
    x = np.resize(np.array([1, np.nan, np.inf, -np.inf, 0.0, -2], np.float32), (1, 16))
    y = np.zeros((3, 16), np.float32)
    special.options(target="cpu", fastmath=fastmath)[1](x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            y, np.concatenate([x != x, x - x, 1 / (x * np.float32(0))]).astype(np.float32)
        )


@tw.kernel
def exponentials(X, Y):
    tw.store_tile(tw.exp(tw.load_tile(tw.init_tile(X, [0], (1, 4)))), tw.init_tile(Y, [0], (1, 4)))


@pytest.mark.parametrize("fastmath", [True, False])
def test_fast_exponentials_flush_denormals(fastmath):
    x, y = np.array([-87, -88, -100, 0], np.float32), np.zeros(4, np.float32)
    exponentials.options(target="cpu", fastmath=fastmath)[1](x, y)
    want = np.exp(x.astype(np.float64)).astype(np.float32)
    if fastmath:
        want[want < np.finfo(np.float32).tiny] = 0
    np.testing.assert_allclose(y, want, rtol=1e-6)
