"""Hand-scheduled kernels of the project, loaded from a folder of generators, as peers.

The folder's `hopper_gemm.py` and `hopper_attention.py` print PTX of kernels `gemm(tmA, tmB, tmD, M,
N, K)` and `fa(tmQ, tmK, tmV, tmO, L, scale)`; launch geometry is that of its `run_on_gpu.py`.
"""

from __future__ import annotations

import ctypes as C
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.targets.cuda import driver

THREADS = 384


@cache
def _function(
    folder: Path, generator: str, options: tuple[str, ...], name: str, shared: int
) -> Any:
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "k"
        subprocess.run(
            [sys.executable, str(folder / generator), "-o", str(out), *options],
            check=True,
            capture_output=True,
        )
        image = out.with_suffix(".ptx").read_bytes()
    driver.device(0).make_current()
    return driver.load_function(image, name, shared)


def _map(tensor: Any, box: tuple[int, ...]) -> driver.TensorMap:
    size = tensor.element_size()
    extents = tuple(reversed(tensor.shape))
    strides = tuple(s * size for s in reversed(tensor.stride()[:-1]))
    kind = {"torch.bfloat16": "bf16", "torch.float16": "f16"}[str(tensor.dtype)]
    return driver.TensorMap(tensor.data_ptr(), kind, extents, strides, box)


def _launch(function: Any, grid: tuple[int, int, int], shared: int, arguments: list[Any]) -> Any:
    torch: Any = importlib.import_module("torch")

    def run() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        driver.launch(function, grid, (THREADS, 1, 1), shared, stream, arguments)

    return run


def gemm_proof(folder: Path, a: Any, b: Any, d: Any) -> Callable[[], None]:
    """D = A B^T; a: [M, K], b: [N, K], multiples of 256, 256 and 64."""
    shared = 230464
    function = _function(folder, "hopper_gemm.py", ("--feat", "+ptx80"), "gemm", shared)
    count = driver.device(0).multiprocessors // 2 * 2
    sizes = [C.c_int(n) for n in (a.shape[0], b.shape[0], a.shape[1])]
    maps = [_map(a, (64, 128)), _map(b, (64, 128)), _map(d, (64, 64))]
    return _launch(function, (count, 1, 1), shared, [*maps, *sizes])


def attention_proof(folder: Path, q: Any, k: Any, v: Any, o: Any) -> Callable[[], None]:
    """Attention of [heads, L, 128], not causal, L a multiple of 128."""
    block = 128
    shared = 2 * 128 * 128 + 2 * (2 * block * 128) * 2 + 8 * 9 + 1024 + 64
    function = _function(folder, "hopper_attention.py", ("--bn", str(block)), "fa", shared)
    heads, length, d = q.shape
    maps = [
        _map(q, (64, 128, 1)),
        _map(k, (64, block, 1)),
        _map(v, (64, block, 1)),
        _map(o, (64, 64, 1)),
    ]
    scale = C.c_float(1.4426950408889634 / d**0.5)
    return _launch(function, (length // 128, heads, 1), shared, [*maps, C.c_int(length), scale])
