"""Rows of A that few panels of B need are multiplied where they lie, the last of them and the end of k in copies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_thin import LIMITS, RUNNABLE, error, random, thin_product


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_edge(rng, level, dtype):
    """Whole panels and parts, k that ends in a group, in the array (what follows is NaN) or with it, strided rows."""
    acc = tw.f64 if dtype == np.float64 else tw.f32
    run = thin_product.options(machine=level, target="cpu", num_threads=1)
    for bk in (16, 32):
        for _ in range(6):
            m, n, k = (int(rng.integers(low, high)) for low, high in ((9, 80), (33, 65), (40, 600)))
            used = int(rng.integers(1, k + 1))
            end = min(-(-used // bk) * bk, k)
            wide, b = random(rng, (m, k + 7), dtype), random(rng, (k, n), dtype)
            wide[:, end:], b[end:] = np.nan, np.nan
            a = wide[:, :k]
            c = random(rng, (m, n), acc.numpy)
            want = c + a[:, :end].astype(np.float64) @ b[:end].astype(np.float64)
            run[tw.cdiv(m, 32), 1](a, b, c, used, ACC=acc, BM=32, BN=64, BK=bk)
            assert error(c, want) < LIMITS[np.dtype(dtype).name], (m, n, k, used, bk)


def test_whole_panels_are_not_copied():
    """There is a loop over rows where they are, and one over panels: twice as many products as with more columns, and
    as many fetches of what comes next."""

    def count(what: str, n: int) -> int:
        a, b, c = (np.zeros(shape, np.float32) for shape in ((128, 512), (512, n), (128, n)))
        made = thin_product.compile(
            a, b, c, 512, BM=128, BN=n, BK=32, target="cpu", machine="avx512"
        )
        lines = [line for line in made.ir["mach"].splitlines() if what in line]
        return sum("write" not in line for line in lines)  # C's rows are fetched to be written

    for what in ("math.fma", "mach.prefetch"):
        assert count(what, 64) == 2 * count(what, 256)
