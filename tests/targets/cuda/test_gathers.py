"""Lines of operands that are found by number: threads of the copying role bring them, beside the products."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.kernels import gemm
from tests.targets.cuda.test_hopper import check, lowered, poison, values
from tilewright.dialects.text import print_module

bf16 = ml_dtypes.bfloat16


@tw.kernel
def gathered_rows(X, W, IDS, EXPERT, Y, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """Rows of X by number, none where it is negative, times the matrix of the block's expert."""
    i, n = tw.program_id(0), tw.program_id(1) * BN
    e = tw.load_tile(tw.init_tile(EXPERT, [i], (1, 1))).item()
    ids = tw.load_tile(tw.init_tile(IDS, [i * BM, 0], (BM, 1)))
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, X.shape[1], 64):
        column = k + tw.arange(0, 64, axis=1, shape=(1, 64))
        a = tw.load_gather(
            tw.init_tile(X, ids * X.shape[1] + column), (ids >= 0) & (column < X.shape[1])
        )
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(W, [e, k, n], (64, BN))), acc)
    tw.store_tile(acc.to(Y.dtype), tw.init_tile(Y, [i * BM, n], (BM, BN)))


@pytest.mark.parametrize("rows, k", [(64, 160), (128, 208)], ids=["one warpgroup", "two"])
def test_gathered_rows_of_the_left_operand(rows, k, rng):
    x, w = values(rng, 100, k), values(rng, 3, k, 72)
    ids = rng.integers(-1, 100, (2 * rows, 1)).astype(np.int32)
    expert = rng.integers(0, 3, 2).astype(np.int32)
    args = [x, w, ids, expert, poison(2 * rows, 72)]
    code = check(gathered_rows, args, (2, 2, 1), 1e-2, BM=rows)
    text = print_module(code.module)
    assert "nvptx.cp.async.mbarrier.arrive" in text and "nvptx.tma.load" in text
    assert set(code.registers) <= {"copy", "compute"}


@tw.kernel
def gathered_keys(Q, K, IDS, O, BM: tw.constexpr = 64, BN: tw.constexpr = 64, D: tw.constexpr = 64):
    """q k^T k of keys by number: both operands of products, one of them transposed."""
    m = tw.program_id(0) * BM
    q = tw.load_tile(tw.init_tile(Q, [m, 0], (BM, D)))
    column = tw.arange(0, D, axis=1, shape=(1, D))
    acc = tw.zeros((BM, D), tw.f32)
    for n in range(0, IDS.shape[0], BN):
        ids = tw.load_tile(tw.init_tile(IDS, [n, 0], (BN, 1)), padding=-1)
        keys = tw.load_gather(tw.init_tile(K, ids * D + column), tw.broadcast(ids, 1, D) >= 0)
        acc = tw.tile_mma(tw.tile_mma(q, tw.transpose(keys)).to(K.dtype), keys, acc)
    tw.store_tile(acc.to(O.dtype), tw.init_tile(O, [m, 0], (BM, D)))


def test_gathered_rows_of_the_right_operand(rng):
    ids = rng.integers(0, 50, (150, 1)).astype(np.int32)
    args = [values(rng, 100, 64), values(rng, 50, 64), ids, poison(100, 64)]
    code = check(gathered_keys, args, (2, 1, 1), 2e-2)
    assert "nvptx.cp.async.mbarrier.arrive" in print_module(code.module)


@tw.kernel
def written_rows(X, W, IDS, Y):
    """Rows of what the program writes."""
    ids = tw.load_tile(tw.init_tile(IDS, [0, 0], (64, 1)))
    column = tw.arange(0, 64, axis=1, shape=(1, 64))
    w = tw.load_tile(tw.init_tile(W, [0, 0], (64, 64)))
    tw.store_tile(w, tw.init_tile(X, [0, 0], (64, 64)))
    a = tw.load_gather(tw.init_tile(X, ids * 64 + column))
    tw.store_tile(tw.tile_mma(a, w), tw.init_tile(Y, [0, 0], (64, 64)))


def test_rows_of_what_the_kernel_writes_are_loaded_where_they_are_used(rng):
    ids = rng.integers(0, 64, (64, 1)).astype(np.int32)
    args = [values(rng, 64, 64), values(rng, 64, 64), ids, poison(64, 64, dtype=np.float32)]
    code = lowered(written_rows, args)
    assert "nvptx.cp.async" not in print_module(code.module)


@tw.kernel
def gathered_bytes(X, W, IDS, Y):
    ids = tw.load_tile(tw.init_tile(IDS, [0, 0], (64, 1)))
    acc = tw.zeros((64, 64), tw.i32)
    for k in range(0, X.shape[1], 64):
        column = k + tw.arange(0, 64, axis=1, shape=(1, 64))
        a = tw.load_gather(tw.init_tile(X, ids * X.shape[1] + column), column < X.shape[1])
        b = tw.transpose(tw.load_tile(tw.init_tile(W, [0, k], (64, 64))))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (64, 64)))


def test_gathered_rows_of_bytes(rng):
    x, w = (rng.integers(-128, 128, (n, 160)).astype(np.int8) for n in (30, 64))
    ids = rng.integers(0, 30, (64, 1)).astype(np.int32)
    code = check(gathered_bytes, [x, w, ids, np.zeros((64, 64), np.int32)], (1, 1, 1), 0)
    assert "nvptx.cp.async.mbarrier.arrive" in print_module(code.module)


@pytest.mark.parametrize("layout, m, k, n, bytes_", [
    ("NN", 136, 164, 200, {8}),  # A
    ("NT", 136, 164, 200, {8}),  # both
    ("TN", 140, 160, 196, {8}),  # both
    ("NN", 136, 160, 198, {4}),  # B
    ("NN", 136, 162, 196, {4, 8}),
    ("NN", 136, 163, 200, set()),
])  # fmt: skip
def test_lines_that_the_copy_engine_does_not_reach(layout, m, k, n, bytes_, rng):
    """Pitches of 8 or 4 bytes: threads bring them, as many at a time."""
    a, b = values(rng, m, k), values(rng, k, n)
    a = np.asfortranarray(a) if layout[0] == "T" else a
    b = np.asfortranarray(b) if layout[1] == "T" else b
    sizes = {"BM": 64, "BN": 128, "BK": 64}
    code = check(gemm, [a, b, poison(m, n)], (3, 2, 1), 1e-2, facts="sm_90a", **sizes)
    text = print_module(code.module)
    assert {n for n in (4, 8, 16) if f"nvptx.cp.async.{n}" in text} == bytes_
