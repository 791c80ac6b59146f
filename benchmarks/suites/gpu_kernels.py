"""The tile programs of the GPU suites, as a user writes them."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false

from __future__ import annotations

import tilewright as tw


@tw.kernel
def product(A, B, C, ACC: tw.constexpr = tw.f32, BM: tw.constexpr = 128, BN: tw.constexpr = 256,
            BK: tw.constexpr = 64):  # fmt: skip
    """C = A B; transposed operands come as views."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def product_tf32(A, B, C, BM: tw.constexpr = 128, BN: tw.constexpr = 256, BK: tw.constexpr = 32):
    """C = A B of f32 arrays, multiplied as tf32."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))).to(tw.tf32)
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))).to(tw.tf32)
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


def gelu(x):
    """The tanh form, as torch's approximate="tanh"."""
    return x * tw.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@tw.kernel
def product_bias_gelu(A, B, bias, C, BM: tw.constexpr = 128, BN: tw.constexpr = 256,
                      BK: tw.constexpr = 64):  # fmt: skip
    """C = gelu(A B + bias)."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    acc = acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN))).to(tw.f32)
    tw.store_tile(gelu(acc).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def product_bias_row_sum(A, B, bias, C, sums, BM: tw.constexpr = 128, BN: tw.constexpr = 256,
                         BK: tw.constexpr = 64):  # fmt: skip
    """C = A B + bias, and each row's sum over all columns added to `sums` [M, 1] (zero before)."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    acc = acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN))).to(tw.f32)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))
    tw.atomic_rmw("addf", tw.sum(acc, 1), tw.init_tile(sums, [m, 0], (BM, 1)))


@tw.kernel
def product_dequantised(A, scale, B, C, BM: tw.constexpr = 128, BN: tw.constexpr = 256,
                        BK: tw.constexpr = 64):  # fmt: skip
    """C = (A scale) B in f16: A is i8, scale [M, 1] is applied in the kernel."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    s = tw.load_tile(tw.init_tile(scale, [m, 0], (BM, 1)))
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))).to(tw.f16) * s
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def two_products(A, B, C, D, BM: tw.constexpr = 128, BN: tw.constexpr = 128, K: tw.constexpr = 64,
                 P: tw.constexpr = 64):  # fmt: skip
    """D = (A B) C with the intermediate in registers; A: [M, K], B: [K, N], C: [N, P]."""
    m = tw.program_id(0) * BM
    a = tw.load_tile(tw.init_tile(A, [m, 0], (BM, K)))
    out = tw.zeros((BM, P), tw.f32)
    for n in range(0, B.shape[1], BN):
        t = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [0, n], (K, BN))))
        c = tw.load_tile(tw.init_tile(C, [n, 0], (BN, P)))
        out = tw.tile_mma(t.to(C.dtype), c, out)
    tw.store_tile(out.to(D.dtype), tw.init_tile(D, [m, 0], (BM, P)))


@tw.kernel
def add_one_tile(X, Y, Z, B: tw.constexpr = 16):
    """The smallest kernel with three arrays."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (B, B)))
    y = tw.load_tile(tw.init_tile(Y, [0, 0], (B, B)))
    tw.store_tile(x + y, tw.init_tile(Z, [0, 0], (B, B)))
