"""More kernels as users write them: quantised, gathered and paged operands, scans, searches, convolutions."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false
from __future__ import annotations

import tilewright as tw


@tw.kernel
def row_blocks(A, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """One program stores all column blocks of its rows, one after the other."""
    m = tw.program_id(0) * BM
    for n in range(0, B.shape[1], BN):
        acc = tw.zeros((BM, BN), tw.f32)
        for k in range(0, A.shape[1], BK):
            a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
            acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
        tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def four_bit_weights(A, Q, S, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """Q: [K/2, N] u8; of each 64 k the first 32 are low halves, the others high ones; S: a scale per 64 k."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 64):
        q = tw.load_tile(tw.init_tile(Q, [k // 2, n], (32, BN)))
        s = tw.load_tile(tw.init_tile(S, [k // 64, n], (1, BN)))
        low = ((q & 15).to(tw.i8) - 8).to(tw.f16) * s
        high = ((q >> 4).to(tw.i8) - 8).to(tw.f16) * s
        acc = tw.tile_mma(tw.load_tile(tw.init_tile(A, [m, k], (BM, 32))), low, acc)
        acc = tw.tile_mma(tw.load_tile(tw.init_tile(A, [m, k + 32], (BM, 32))), high, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gathered_experts(A, I, E, W, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """Rows I[m] of A times the expert E[block] of their block, back to where they came from; -1: no row."""
    block, n = tw.program_id(0), tw.program_id(1) * BN
    e = tw.load_tile(tw.init_tile(E, [block], (1, 1))).item()
    rows = tw.load_tile(tw.init_tile(I, [block * BM, 0], (BM, 1)), padding=-1).to(tw.i64)
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        col = tw.arange(0, 32, axis=1, shape=(BM, 32)) + k
        at = tw.init_tile(A, rows * A.shape[1] + col)
        a = tw.load_gather(at, (rows >= 0) & (col < A.shape[1]))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(W, [e, k, n], (32, BN))), acc)
    col = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
    at = tw.init_tile(C, rows * C.shape[1] + col)
    tw.store_scatter(acc.to(C.dtype), at, (rows >= 0) & (col < C.shape[1]))


@tw.kernel
def paged_attention(
    Q, K, V, T, O, LENGTHS, scale, D: tw.constexpr = 64, BN: tw.constexpr = 32, G: tw.constexpr = 16
):  # fmt: skip
    """One position of G heads against keys in pages of BN, found in the table T[batch, page]."""
    b = tw.program_id(0)
    length = tw.load_tile(tw.init_tile(LENGTHS, [b], (1, 1))).item()
    q = tw.load_tile(tw.init_tile(Q, [b, 0, 0], (G, D)))
    top = tw.full((G, 1), -1.0e30, tw.f32)
    total = tw.zeros((G, 1), tw.f32)
    out = tw.zeros((G, D), tw.f32)
    for i in range(tw.cdiv(length, BN)):
        page = tw.load_tile(tw.init_tile(T, [b, i], (1, 1))).item()
        k = tw.load_tile(tw.init_tile(K, [page, 0, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k)) * scale
        s = tw.where(tw.arange(0, BN, axis=1, shape=(G, BN)) + i * BN < length, s, -1.0e30)
        new = tw.maximum(top, tw.max(s, 1))
        p, keep = tw.exp(s - new), tw.exp(top - new)
        total = total * keep + tw.sum(p, 1)
        v = tw.load_tile(tw.init_tile(V, [page, 0, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out * keep)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [b, 0, 0], (G, D)))


@tw.kernel
def convolution(X, W, Y, BM: tw.constexpr = 32, BN: tw.constexpr = 32, BK: tw.constexpr = 16):
    """3 x 3 with padding 1; X: [H, width, C], W: [9, C, N]."""
    x, n, h = tw.program_id(0) * BM, tw.program_id(1) * BN, tw.program_id(2)
    acc = tw.zeros((BM, BN), tw.f32)
    for t in range(9):
        row = h + t // 3 - 1
        if (row >= 0) and (row < X.shape[0]):
            for c in range(0, X.shape[2], BK):
                a = tw.load_tile(tw.init_tile(X, [row, x + t % 3 - 1, c], (BM, BK)))
                acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(W, [t, c, n], (BK, BN))), acc)
    tw.store_tile(acc.to(Y.dtype), tw.init_tile(Y, [h, x, n], (BM, BN)))


@tw.kernel
def running_sums(X, Y, BM: tw.constexpr = 32, BN: tw.constexpr = 32):
    """Along rows: in a block by a product with a triangle, from block to block carried."""
    m = tw.program_id(0) * BM
    i, j = tw.arange(0, BN, axis=0, shape=(BN, BN)), tw.arange(0, BN, axis=1, shape=(BN, BN))
    triangle = tw.where(i <= j, 1.0, 0.0).to(X.dtype)
    before = tw.zeros((BM, 1), tw.f32)
    for n in range(0, X.shape[1], BN):
        x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
        tw.store_tile(tw.tile_mma(x, triangle) + before, tw.init_tile(Y, [m, n], (BM, BN)))
        before = before + tw.sum(x.to(tw.f32), 1)


@tw.kernel
def cross_entropy(X, T, L, DX, BM: tw.constexpr = 2, BN: tw.constexpr = 128):
    """Loss and gradient of long rows; the target's logit is gathered."""
    m, n = tw.program_id(0) * BM, X.shape[1]
    top = tw.full((BM, 1), -1.0e30, tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    for j in range(0, n, BN):
        tile = tw.init_tile(X, [m, j], (BM, BN))
        x = tw.load_tile(tile, padding=float("-inf")).to(tw.f32)
        new = tw.maximum(top, tw.max(x, 1))
        total = total * tw.exp(top - new) + tw.sum(tw.exp(x - new), 1)
        top = new
    target = tw.load_tile(tw.init_tile(T, [m, 0], (BM, 1)))
    row = tw.arange(0, BM, axis=0, shape=(BM, 1)) + m
    logit = tw.load_gather(tw.init_tile(X, row * n + target), row < X.shape[0]).to(tw.f32)
    tw.store_tile(top + tw.log(total) - logit, tw.init_tile(L, [m, 0], (BM, 1)))
    for j in range(0, n, BN):
        x = tw.load_tile(tw.init_tile(X, [m, j], (BM, BN))).to(tw.f32)
        hit = tw.arange(0, BN, axis=1, shape=(BM, BN)) + j == target
        g = tw.exp(x - top) / total - tw.where(hit, 1.0, 0.0)
        tw.store_tile(g.to(DX.dtype), tw.init_tile(DX, [m, j], (BM, BN)))


@tw.kernel
def scatter_add(G, I, W, BM: tw.constexpr = 8, BN: tw.constexpr = 64):
    """W[I[m], :] += G[m, :]: the gradient of an embedding."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    rows = tw.load_tile(tw.init_tile(I, [m, 0], (BM, 1)))
    row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
    col = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
    g = tw.load_tile(tw.init_tile(G, [m, n], (BM, BN))).to(W.dtype)
    at = tw.init_tile(W, rows * W.shape[1] + col)
    tw.atomic_rmw("addf", g, at, (col < W.shape[1]) & (row < G.shape[0]))


@tw.kernel
def largest_four(X, V, I, BM: tw.constexpr = 4, BN: tw.constexpr = 256):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)), padding=float("-inf"))
    col = tw.arange(0, BN, axis=1, shape=(BM, BN))
    for i in range(4):
        top = tw.max(x, 1)
        at = tw.min(tw.where(x == top, col, BN), 1)
        tw.store_tile(top, tw.init_tile(V, [m, i], (BM, 1)))
        tw.store_tile(at.to(I.dtype), tw.init_tile(I, [m, i], (BM, 1)))
        x = tw.where(col == at, float("-inf"), x)


@tw.kernel
def square_roots(X, Y, BM: tw.constexpr = 8, BN: tw.constexpr = 64):
    """Newton's steps until all of a tile agree: a while loop on a reduction."""
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)), padding=1)
    y = x
    moved = 1.0
    while moved > 1e-6:
        z = 0.5 * (y + x / y)
        moved = tw.max(tw.max(tw.abs(z - y), 1), 0).item()
        y = z
    tw.store_tile(y, tw.init_tile(Y, [m, 0], (BM, BN)))
