"""Softmax over rows: reductions, broadcasting, and what lies outside of the matrix.

    python examples/03_softmax.py [--size 1000]

A tile may be larger than the matrix. What is outside reads as the padding (here -inf, which no
maximum and no sum sees), and a store outside is dropped: one kernel is right for every shape.
"""

import argparse

import numpy as np

import tilewright as tw


@tw.kernel
def softmax(X, Y, BN: tw.constexpr, BM: tw.constexpr = 4):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)), padding=float("-inf"))
    e = tw.exp(x - tw.max(x, axis=1))  # max keeps its dimension: [BM, BN] - [BM, 1]
    tw.store_tile(e / tw.sum(e, axis=1), tw.init_tile(Y, [m, 0], (BM, BN)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1000)
    size = parser.parse_args().size
    x = np.random.default_rng().standard_normal((size + 1, size), np.float32) * 5
    y = np.full_like(x, np.nan)

    columns = tw.cdiv(size, 64) * 64
    softmax[tw.cdiv(len(x), 4)](x, y, BN=columns)

    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    error = np.linalg.norm(y - e / e.sum(1, keepdims=True)) / np.linalg.norm(y)
    print(f"softmax of {len(x)} x {size} with tiles of 4 x {columns}: error {error:.1e}")
    assert error < 1e-5


if __name__ == "__main__":
    main()
