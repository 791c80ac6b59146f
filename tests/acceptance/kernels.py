"""Kernels as a user would write them: one source each, and rewrites that do not change the meaning."""

from __future__ import annotations

import math

import tilewright as tw


@tw.kernel
def gemm(A, B, C, BM: tw.constexpr = 256, BN: tw.constexpr = 256, BK: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for _ in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def scores(Q, K, S, BM: tw.constexpr, BN: tw.constexpr, D: tw.constexpr):
    """Q times the transpose of K, all of the depth at once."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    q = tw.load_tile(tw.init_tile(Q, [m, 0], (BM, D)))
    k = tw.load_tile(tw.init_tile(K, [n, 0], (BN, D)))
    tw.store_tile(tw.tile_mma(q, tw.transpose(k)), tw.init_tile(S, [m, n], (BM, BN)))


@tw.kernel
def gemm_init_in_loop(
    A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr, ACC: tw.constexpr = tw.f32
):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gemm_peeled(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.load_tile(tw.init_tile(A, [m, 0], (BM, BK)))
    b = tw.load_tile(tw.init_tile(B, [0, n], (BK, BN)))
    acc = tw.tile_mma(a, b)
    for k in range(BK, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gemm_two_loops(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    half = A.shape[1] // (2 * BK) * BK
    for k in range(0, half, BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    for k in range(half, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gemm_swapped_grid(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(1) * BM, tw.program_id(0) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gemm_while(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    k = 0
    while k < A.shape[1]:
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
        k += BK
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gemm_neutral(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))) * 1.0
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


GEMM_REWRITES = [
    gemm,
    gemm_init_in_loop,
    gemm_peeled,
    gemm_two_loops,
    gemm_swapped_grid,
    gemm_while,
    gemm_neutral,
]


@tw.kernel
def gate_up(X, W, V, Y, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 32):
    """Two accumulators over one A: silu(X W) * (X V)."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    g = tw.zeros((BM, BN), tw.f32)
    u = tw.zeros((BM, BN), tw.f32)
    for k in range(0, X.shape[1], BK):
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK)))
        g = tw.tile_mma(x, tw.load_tile(tw.init_tile(W, [k, n], (BK, BN))), g)
        u = tw.tile_mma(x, tw.load_tile(tw.init_tile(V, [k, n], (BK, BN))), u)
    tw.store_tile((g * tw.sigmoid(g) * u).to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


@tw.kernel
def split_k(A, B, C, S: tw.constexpr, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """Each program of axis 2 adds its part of K into C with atomics."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    part = tw.cdiv(tw.cdiv(A.shape[1], S), 16) * 16
    begin = tw.program_id(2) * part
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(begin, min(begin + part, A.shape[1]), 16):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 16)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (16, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.atomic_rmw("addf", acc, tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def window_attention(
    Q, K, V, O, scale, W: tw.constexpr, CAP: tw.constexpr, BM: tw.constexpr = 32,
    BN: tw.constexpr = 64, D: tw.constexpr = 64,
):  # fmt: skip
    """Sliding window of W keys to the left, logits soft-capped at CAP; one head per program of axis 1."""
    m, h = tw.program_id(0) * BM, tw.program_id(1)
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
    row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
    top = tw.full((BM, 1), float("-inf"), tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    for n in range(0, K.shape[1], BN):
        k = tw.load_tile(tw.init_tile(K, [h, n, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k)) * scale
        s = CAP * tw.tanh(s / CAP)
        col = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        seen = (col <= row) & (col > row - W) & (col < K.shape[1])
        s = tw.where(seen, s, -1.0e30)
        new = tw.maximum(top, tw.max(s, 1))
        p = tw.where(seen, tw.exp(s - new), 0.0)
        keep = tw.exp(top - new)
        total = total * keep + tw.sum(p, 1)
        out = out * keep
        v = tw.load_tile(tw.init_tile(V, [h, n, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


@tw.kernel
def dequant_gemm(A, S, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 32):
    """A is int8 with one scale per row: a prologue on the operand inside the loop."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    s = tw.load_tile(tw.init_tile(S, [m, 0], (BM, 1)))
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))).to(tw.f32) * s
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a.to(B.dtype), b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def bias_gelu_rowsum(A, B, bias, C, R, BM: tw.constexpr = 64, BN: tw.constexpr = 128):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (32, BN)))
        acc = tw.tile_mma(a, b, acc)
    x = acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN)))
    y = 0.5 * x * (1.0 + tw.erf(x * (1.0 / math.sqrt(2.0))))
    inside = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n < C.shape[1]
    tw.store_tile(y.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))
    tw.atomic_rmw("addf", tw.sum(tw.where(inside, y, 0.0), 1), tw.init_tile(R, [m, 0], (BM, 1)))


@tw.kernel
def column_stats(X, MEAN, VAR, BM: tw.constexpr = 32, BN: tw.constexpr = 64):
    """Reductions along rows of the matrix, carried through a loop: per-column mean and variance."""
    n = tw.program_id(0) * BN
    s = tw.zeros((1, BN), tw.f32)
    q = tw.zeros((1, BN), tw.f32)
    for m in range(0, X.shape[0], BM):
        x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
        s += tw.sum(x, 0)
        q += tw.sum(x * x, 0)
    mean = s / X.shape[0]
    tw.store_tile(mean, tw.init_tile(MEAN, [n], (1, BN)))
    tw.store_tile(q / X.shape[0] - mean * mean, tw.init_tile(VAR, [n], (1, BN)))


@tw.kernel
def gather_rows(X, I, Y, BN: tw.constexpr = 64):
    """Y[i, :] = X[I[i], :]: a load whose address depends on a loaded value."""
    i, n = tw.program_id(0), tw.program_id(1) * BN
    row = tw.load_tile(tw.init_tile(I, [i], (1, 1)))
    col = tw.arange(0, BN, axis=1, shape=(1, BN)) + n
    offsets = row * X.shape[1] + col
    v = tw.load_gather(tw.init_tile(X, offsets), col < X.shape[1])
    tw.store_tile(v, tw.init_tile(Y, [i, n], (1, BN)))


@tw.kernel
def transpose_through_slm(X, Y, B: tw.constexpr = 32):
    m, n = tw.program_id(0) * B, tw.program_id(1) * B
    slm = tw.alloc_slm((B, B), X.dtype)
    tw.store_tile(tw.load_tile(tw.init_tile(X, [m, n], (B, B))), tw.init_tile(slm, [0, 0], (B, B)))
    tw.barrier()
    v = tw.transpose(tw.load_tile(tw.init_tile(slm, [0, 0], (B, B))))
    tw.store_tile(v, tw.init_tile(Y, [n, m], (B, B)))
