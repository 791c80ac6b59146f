"""A GEMM that does more: bias, GELU and a residual, without writing the product to memory first.

    python examples/02_fused_epilogue.py [--size 1024]

Everything between the loop and the store works on the tile while it is in registers and cache. A
helper is a plain function: a call inlines it.
"""

import argparse

import numpy as np

import tilewright as tw


def gelu(x):
    return 0.5 * x * (1.0 + tw.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


@tw.kernel
def gemm_bias_gelu(A, B, bias, R, C, BM: tw.constexpr = 256, BN: tw.constexpr = 256):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (32, BN)))
        acc = tw.tile_mma(a, b, acc)
    acc = gelu(acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN))))
    acc = acc + tw.load_tile(tw.init_tile(R, [m, n], (BM, BN)))
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024)
    size = parser.parse_args().size
    rng = np.random.default_rng()
    a, b, r = (rng.standard_normal((size, size), np.float32) for _ in range(3))
    bias, c = rng.standard_normal(size, np.float32), np.full((size, size), np.nan, np.float32)

    gemm_bias_gelu[lambda k: (tw.cdiv(size, k.BM), tw.cdiv(size, k.BN))](a, b, bias, r, c)

    x = a.astype(np.float64) @ b + bias
    x = 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))) + r
    error = np.linalg.norm(c - x) / np.linalg.norm(x)
    print(f"C = gelu(A B + bias) + R, {size} x {size}: error {error:.1e} against float64")
    assert error < 1e-5


if __name__ == "__main__":
    main()
