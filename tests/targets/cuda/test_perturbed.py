"""One product written in many ways: each becomes asynchronous, keeps its products, and computes the same."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.kernels import (
    GEMM_REWRITES,
    gemm_peeled,
    gemm_swapped_grid,
    gemm_two_loops,
)
from tests.draws import fresh_rng
from tests.targets.cuda.test_asynchronous import check_passes, text_of

bf16 = ml_dtypes.bfloat16
M, N, K = 72, 64, 320


@tw.kernel
def added_after(A, B, C):
    """The sum is added up outside of the product."""
    m, n = tw.program_id(0) * 64, tw.program_id(1) * 64
    acc = tw.zeros((64, 64), tw.f32)
    for k in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [m, k], (64, 64)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (64, 64)))
        acc = acc + tw.tile_mma(a, b)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (64, 64)))


@tw.kernel
def conditional(A, B, C):
    """Blocks of A beyond a limit are skipped."""
    m, n = tw.program_id(0) * 64, tw.program_id(1) * 64
    acc = tw.zeros((64, 64), tw.f32)
    for k in range(0, A.shape[1] + 128, 64):
        if k < A.shape[1]:
            a = tw.load_tile(tw.init_tile(A, [m, k], (64, 64)))
            b = tw.load_tile(tw.init_tile(B, [k, n], (64, 64)))
            acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (64, 64)))


def fresh() -> tuple[list[Any], Any, Any]:
    r = fresh_rng()
    a, b = r.standard_normal((M, K)).astype(bf16), r.standard_normal((K, N)).astype(bf16)
    c = np.full((M, N), np.nan, bf16)
    return [a, b, c], c, a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize(
    "kernel", [*GEMM_REWRITES, added_after, conditional], ids=lambda k: k.__name__
)
def test_perturbed(kernel: Any) -> None:
    tile = {} if kernel in (added_after, conditional) else {"BM": 64, "BN": 64, "BK": 64}
    names, (lowered, ir, remarks) = check_passes(
        text_of(kernel, tuple(fresh()[0]), **tile),
        (1, 2, 1) if kernel is gemm_swapped_grid else (2, 1, 1),
        fresh,
        after=("async-mma", "warp-specialization"),
    )
    assert "warp-specialization" in names, remarks
    products = 2 if kernel in (gemm_peeled, gemm_two_loops) else 1
    assert ir["stage"].count("stage.mma.issue") == products
    assert "xetile.tile_mma" not in ir["stage"] and "xetile.load_tile" not in ir["stage"]
    assert lowered.persistent == 1
