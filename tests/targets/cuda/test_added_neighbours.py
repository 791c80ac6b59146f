"""Atomic sums of elements that lie side by side: one instruction adds several."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import run_threads
from tilewright import uarch
from tilewright.dialects.text import parse_module
from tilewright.observer import ignore
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.pipeline import run_pipeline

bf16 = ml_dtypes.bfloat16


def run(kernel: Any, args: list[Any], grid: tuple[int, int, int], machine: str = "sm_90a") -> str:
    """In place, thread by thread; the last stage."""
    text = kernel.compile(*args, target="reference").ir["xetile"]
    options = CompileOptions("cuda", machine)
    code = run_pipeline(parse_module(text), uarch.machine(machine), options, [], ignore, ignore)
    run_threads(code, [describe(a) for a in args], grid)
    return str(code.module)


@tw.kernel
def scattered_rows(X, IDS, Y, BM: tw.constexpr = 16, D: tw.constexpr = 64):
    """Adds each row of X to the row of Y that IDS says, none where that is negative."""
    m = tw.program_id(0) * BM
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1)), padding=-1)
    column = tw.arange(0, D, axis=1, shape=(1, D))
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, D)))
    tw.atomic_rmw("addf", x, tw.init_tile(Y, ids * D + column), tw.broadcast(ids, 1, D) >= 0)


@pytest.mark.parametrize(
    "dtype, machine, name",
    [
        *((np.float32, "sm_90a", "v4.f32"), (np.float16, "sm_90a", "v2.f16x2")),
        *((bf16, "sm_90a", "v2.bf16x2"), (np.float16, "sm_80", "f16x2")),
    ],
    ids=lambda each: each if isinstance(each, str) else np.dtype(each).name,
)
def test_rows_are_scattered(dtype, machine, name, rng):
    x = rng.integers(-2, 3, (50, 64)).astype(dtype)
    ids = rng.integers(-1, 20, (50, 1)).astype(np.int32)
    y = rng.integers(-2, 3, (20, 64)).astype(dtype)
    want = y.astype(np.float32)
    np.add.at(want, ids[ids >= 0], x[ids[:, 0] >= 0].astype(np.float32))
    assert f'"nvptx.red.add.{name}"' in run(scattered_rows, [x, ids, y], (4, 1, 1), machine)
    np.testing.assert_array_equal(y.astype(np.float32), want)


@tw.kernel
def added_tiles(X, Y, BM: tw.constexpr = 16, BN: tw.constexpr = 64):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.atomic_rmw("addf", x, tw.init_tile(Y, [m % 32, n], (BM, BN)))


@pytest.mark.parametrize("columns, together", [(80, True), (75, False)], ids=["whole", "odd"])
def test_tiles_are_added(columns, together, rng):
    """Elements one by one where vectors may lie across the end of a row."""
    x, y = (rng.integers(-2, 3, (n, columns)).astype(np.float32) for n in (64, 32))
    want = y + x[:32] + x[32:]
    assert ("nvptx.red.add" in run(added_tiles, [x, y], (4, 2, 1))) == together
    np.testing.assert_array_equal(y, want)
