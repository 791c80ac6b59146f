"""Run in a fresh process by the compile suite: prints how long import and compile took, as JSON."""

import importlib
import json
import sys
import time
from itertools import pairwise

import ml_dtypes  # noqa: F401  (numpy's bf16, which is not ours to import)
import numpy as np

start = time.perf_counter()
import tilewright as tw  # noqa: E402

imported = time.perf_counter()

from tilewright.targets.base import get_target  # noqa: E402


@tw.kernel
def gemm(A, B, C, BM: tw.constexpr = 256, BN: tw.constexpr = 256, BK: tw.constexpr = 32):  # pyright: ignore
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for _ in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def main() -> None:
    # Modules that the first kernel of a process imports: reported apart from compiling.
    times = [time.perf_counter()]
    for module in ("tilewright.lang.build", "tilewright.runtime.launch"):
        importlib.import_module(module)
    get_target(sys.argv[1])
    times.append(time.perf_counter())
    # From the call to its return: front end, passes, code, loading it, and one workgroup's work.
    kernel = gemm.options(target=sys.argv[1])
    array = np.ones((256, 256), tw.bf16.numpy)
    for bk in (32, 32, 64):
        kernel[1](array, array, np.zeros_like(array), BK=bk)
        times.append(time.perf_counter())
    libraries, compiled, again, another = (b - a for a, b in pairwise(times))
    found = {
        "import": imported - start,
        "libraries": libraries,
        "compile": compiled,
        "again": again,
        "another": another,
    }
    print(json.dumps(found))


main()
