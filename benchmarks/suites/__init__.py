"""The suites of ``tilewright bench``: each yields the cases that it measures.

A suite is a function from :class:`Settings` to cases. It draws random data, checks once that the
contenders agree, and hands out the cases; :mod:`tilewright.tools.measure` times them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

from tilewright.tools.measure import MeasuredRow


@dataclass(frozen=True)
class Settings:
    """What the command line asks of a suite; a suite ignores what does not concern it."""

    sizes: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    target: str = "cpu"
    against: str = "torch"
    rounds: int = 15
    count: int = 30
    seed: int = 0
    """Of the shapes that are drawn (`cpu-shapes`, `cpu-planner`), so many."""
    tuning: float = 0.0
    """Seconds of a search in `cpu-planner`."""
    clock: Callable[[], float] = time.perf_counter
    """Of the suites of costs (`ops`, `lowering`, `workgroups`); seconds."""


Suite: TypeAlias = Callable[[Settings], Iterator[MeasuredRow]]

SUITES: dict[str, tuple[str, str]] = {
    "gemm": ("benchmarks.suites.compute", "C = A B from thirty lines, square, GFLOP/s"),
    "attention": ("benchmarks.suites.compute", "ops.attention, 16 heads, GFLOP/s"),
    "softmax": ("benchmarks.suites.rows", "ops.softmax on square f32, GB/s beside a copy"),
    "rms_norm": ("benchmarks.suites.rows", "ops.rms_norm on square f32, GB/s beside a copy"),
    "layer_norm": ("benchmarks.suites.rows", "ops.layer_norm, GB/s beside a copy"),
    "cpu-gemm": ("benchmarks.suites.cpu", "square products by type, beside oneDNN and MKL"),
    "cpu-ragged": ("benchmarks.suites.cpu", "ragged, skinny and transposed products"),
    "cpu-shapes": ("benchmarks.suites.cpu", "products as language models have them, drawn"),
    "cpu-planner": ("benchmarks.suites.planner", "chosen tiles beside the best of twenty, drawn"),
    "cpu-fused": ("benchmarks.suites.cpu", "gelu(x w + b) beside torch.compile"),
    "cpu-two-products": ("benchmarks.suites.cpu", "gelu(x w) v beside torch.compile"),
    "cpu-attention": ("benchmarks.suites.compute", "ops.attention, every length, d 64 and 128"),
    "cpu-rows": ("benchmarks.suites.cpu", "rows in f32, bf16 and f16 beside a copy, GB/s"),
    "launch": ("benchmarks.suites.overhead", "a ready kernel on one workgroup, us"),
    "pool": ("benchmarks.suites.overhead", "empty tasks on the pool, us"),
    "compile": ("benchmarks.suites.overhead", "cold, from disk, import; fresh processes, ms"),
    "gpu-gemm": ("benchmarks.suites.gpu", "products beside cuBLAS, TFLOP/s"),
    "gpu-ragged": ("benchmarks.suites.gpu", "ragged and skinny products, TFLOP/s"),
    "gpu-epilogues": ("benchmarks.suites.gpu", "fused products beside torch.compile"),
    "gpu-attention": ("benchmarks.suites.gpu", "ops.attention beside cuDNN, TFLOP/s"),
    "gpu-back-to-back": ("benchmarks.suites.gpu", "(A B) C beside two cuBLAS calls"),
    "gpu-passes": ("benchmarks.suites.gpu_passes", "what each pass is worth, TFLOP/s"),
    "gpu-launch": ("benchmarks.suites.gpu", "host time of a launch, us"),
    "gpu-compile": ("benchmarks.suites.overhead", "a GEMM, cold and from disk, ms"),
    "ops": ("benchmarks.suites.linear", "compile time against the number of ops, ms"),
    "lowering": ("benchmarks.suites.lowering", "passes to lanes against the pieces, ms"),
    "workgroups": ("benchmarks.suites.linear", "run time against workgroups, us each"),
}
"""Every suite: the module that has a function of its name, and what it measures."""


def suite(name: str) -> Suite:
    """The suite called ``name``."""
    return getattr(import_module(SUITES[name][0]), name.replace("-", "_"))
