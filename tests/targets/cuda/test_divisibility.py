"""What follows from what divides an index: the copy engine takes lines from multiples of 16 bytes on."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.cuda.test_asynchronous import check_passes, text_of


@tw.kernel
def shifted(
    A, B, C, AT: tw.constexpr, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64
):
    """C[:, AT:] = A B[:, AT:], from column AT on."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN + AT
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("at, engine", [(0, True), (8, True), (3, False), (4, False)])
def test_lines_that_begin_between_16_bytes_are_not_for_the_copy_engine(
    at: int, engine: bool
) -> None:
    """On an H200 a box at such a place is an illegal instruction."""
    m, n, k = 72, 136, 128

    def fresh():
        r = fresh_rng()
        a, b = (r.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
        c = np.zeros((m, n), np.float16)
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        wanted[:, :at] = 0
        return [a, b, c], c, wanted

    text = text_of(shifted, tuple(fresh()[0]), AT=at)
    _, (lowered, _, remarks) = check_passes(
        text, (2, 3), fresh, after=("multi-buffering", "warp-specialization")
    )
    maps = {s.argument for s in lowered.slots if type(s).__name__ == "TensorMapOf"}
    assert maps & {1, 2} == ({1, 2} if engine else set())
    assert engine or any("multiple of 16 bytes" in r for r in remarks), remarks
