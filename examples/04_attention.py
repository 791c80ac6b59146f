"""Attention in one pass over the keys: values that a loop carries, two products, a mask.

    python examples/04_attention.py [--size 1024]

The running maximum and sum let every block of keys be used as soon as its scores are known. Tiles
are values: `out = tw.tile_mma(p, v, out * keep)` names a new one.
"""

import argparse
import math

import numpy as np

import tilewright as tw


@tw.kernel
def attention(
    Q, K, V, O, scale, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 128
):
    m, head = tw.program_id(0) * BM, tw.program_id(1)
    q = tw.load_tile(tw.init_tile(Q, [head, m, 0], (BM, D)))
    top = tw.full((BM, 1), -1.0e30, tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
    for n in range(0, min(m + BM, K.shape[1]), BN):
        k = tw.load_tile(tw.init_tile(K, [head, n, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k)) * scale
        key = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        s = tw.where((key <= row) & (key < K.shape[1]), s, -1.0e30)
        new = tw.maximum(top, tw.max(s, axis=1))
        p, keep = tw.exp(s - new), tw.exp(top - new)
        total = total * keep + tw.sum(p, axis=1)
        v = tw.load_tile(tw.init_tile(V, [head, n, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out * keep)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [head, m, 0], (BM, D)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="keys and queries")
    size = parser.parse_args().size
    heads, d = 4, 64
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal((heads, size, d), np.float32) for _ in range(3))
    o = np.full_like(q, np.nan)

    attention[tw.cdiv(size, 64), heads](q, k, v, o, 1 / math.sqrt(d))

    s = q.astype(np.float64) @ k.swapaxes(1, 2) / math.sqrt(d)
    s[:, ~np.tri(size, dtype=bool)] = -np.inf
    p = np.exp(s - s.max(2, keepdims=True))
    want = p / p.sum(2, keepdims=True) @ v
    error = np.linalg.norm(o - want) / np.linalg.norm(want)
    print(f"causal attention, {heads} heads x {size} x {d}: error {error:.1e} against float64")
    assert error < 1e-5


if __name__ == "__main__":
    main()
