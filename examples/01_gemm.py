"""GEMM: thirty lines of Python at the speed of the machine.

    python examples/01_gemm.py [--size 2048]

The kernel says what one workgroup computes: a 256 x 256 tile of C.  It runs here on the CPU for bf16 and f32, is
checked against float64, and its speed stands beside numpy's (which has no bf16 product of its own: it is timed on
the same values widened to f32). Both are timed in turn, each when the other's threads are at rest: see
tilewright/tools/measure.py. The first compilation of a process also imports the compiler.
"""

import argparse
import os
import time

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.tools.info import processor, target_state
from tilewright.tools.measure import Case, Contender, measure


@tw.kernel
def gemm(A, B, C, BM: tw.constexpr = 256, BN: tw.constexpr = 256, BK: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for _k in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def compare(dtype, size, limit):
    """Run, check and time one element type."""
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((size, size)).astype(dtype) for _ in range(2))
    c = np.full((size, size), np.nan, dtype)
    grid = (tw.cdiv(size, 256), tw.cdiv(size, 256))

    start = time.perf_counter()
    gemm[grid](a, b, c)
    first = time.perf_counter() - start

    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(c.astype(np.float64) - exact) / np.linalg.norm(exact)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    contenders = [
        Contender("Tilewright", lambda: gemm[grid](a, b, c)),
        Contender("numpy", lambda: wide_a @ wide_b),
    ]
    row = measure(Case("gemm", contenders, 2 * size**3 / 1e9, "GFLOP/s"), rounds=7)
    ours, theirs = row.results
    print(
        f"  {np.dtype(dtype).name:8}  error {error:.1e} (limit {limit:.0e})   "
        f"Tilewright {ours.rate:5.0f} GFLOP/s   numpy in float32 {theirs.rate:5.0f}   "
        f"ratio {theirs.ratio:.2f}   compile + first run {first:.2f} s",
        flush=True,
    )
    assert error < limit, "the result is wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048, help="rows, columns and depth")
    size = parser.parse_args().size
    cores = len(os.sched_getaffinity(0))
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    peer = f"numpy {np.__version__} with {blas.get('name')} {blas.get('version', '')}"
    print(f"C = A B, {size} x {size}, random, on {cores} cores of: {processor()}")
    print(f"Tilewright: {target_state('cpu')['state']}")
    print(f"beside it: {peer}; medians of 7 rounds")
    compare(ml_dtypes.bfloat16, size, 4e-3)
    compare(np.float32, size, 1e-6)


if __name__ == "__main__":
    main()
