"""Exponentials of what is below a row's number, of bf16 and f16: scaled before the difference is taken."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import ops
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.scaled_differences import scale_differences
from tilewright.reference import run

TEXT = """
gpu.module @m {{
  gpu.func @k(%X: memref<8x{n}x{type}>, %Y: memref<8x{n}xf32>) kernel attributes {{tilewright.level = "workgroup"}} {{
    %t = xetile.init_tile %X[0, 0] : memref<8x{n}x{type}> -> !xetile.tile<8x{n}x{type}>
    %n = xetile.load_tile %t : !xetile.tile<8x{n}x{type}> -> vector<8x{n}x{type}>
    %x = arith.extf %n : vector<8x{n}x{type}> to vector<8x{n}xf32>
    %m = xetile.reduction <{kind}>, %x [1] : vector<8x{n}xf32> -> vector<8x1xf32>
    %b = xetile.broadcast %m [1] : vector<8x1xf32> -> vector<8x{n}xf32>
    %d = arith.subf %x, %b : vector<8x{n}xf32>
    %e = math.exp %d {{fastmath = #arith.fastmath<afn>, mach.bits = {bits} : i64}} : vector<8x{n}xf32>
    %u = xetile.init_tile %Y[0, 0] : memref<8x{n}xf32> -> !xetile.tile<8x{n}xf32>
    xetile.store_tile %e, %u : vector<8x{n}xf32>, !xetile.tile<8x{n}xf32>
    gpu.return
  }}
}}
"""
BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("type", "bits", "size"),
    [
        *(("bf16", 8, size) for size in (1.0, 40.0, 1e5, 1e38, 3e38)),
        *(("f16", 11, size) for size in (1.0, 40.0, 2040.0, 2056.0, 65504.0)),
    ],
)
def test_as_precise_as_asked_for_however_large_the_numbers_are(
    type: str, bits: int, size: float
) -> None:
    rng = fresh_rng()
    narrow = BF16 if type == "bf16" else np.float16
    x = (rng.uniform(-1, 1, (8, 4096)) * size).astype(narrow)
    x[:3] = rng.choice([-size, size], (3, 4096)).astype(narrow)
    x[3] = (size - rng.uniform(0, 12, 4096)).astype(narrow)
    x[4, 5], x[5, 6], x[6], x[7, 1:] = np.inf, np.nan, -np.inf, -np.inf
    module = parse_module(TEXT.format(type=type, kind="maximumf", bits=bits, n=4096))
    assert scale_differences(kernel_of(module)) == 1
    module.verify()
    assert "math.exp2" in print_module(module) and "math.exp " not in print_module(module)
    y = np.full((8, 4096), 7, np.float32)
    run(module, (1, 1, 1), [x, y])
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        want = np.exp(wide - wide.max(1, keepdims=True))
    least = 2.0**-126 if type == "bf16" else 2.0**-14
    y[y < least], want[want < least] = 0, 0
    np.testing.assert_allclose(y, want, rtol=2.0**-11, atol=1.1 * least)


@pytest.mark.parametrize(
    ("type", "kind", "bits", "columns"),
    [
        ("f16", "maximumf", 24, 4096), ("bf16", "add", 8, 4096), ("bf16", "maximumf", 11, 4096),
        ("bf16", "maximumf", 8, 1024),
    ],
)  # fmt: skip
def test_others_stay(type: str, kind: str, bits: int, columns: int) -> None:
    """Numbers of more bits, or that are asked for with more, are not multiplied exactly; few pay for nothing."""
    module = parse_module(TEXT.format(type=type, kind=kind, bits=bits, n=columns))
    assert scale_differences(kernel_of(module)) == 0


@pytest.mark.parametrize(
    ("narrow", "most", "limit"), [(BF16, 3e38, 2.5e-3), (np.float16, 6.5e4, 4e-4)]
)
def test_rows_of_large_numbers_on_cpus(narrow: type, most: float, limit: float) -> None:
    rng = fresh_rng()
    for size in (1.0, 30.0, 3000.0, most):
        x = (rng.uniform(-1, 1, (16, 4096)) * size).astype(narrow)
        x[0, ::2], x[0, 1::2] = size, -size
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
        got = ops.softmax(x, target="cpu").astype(np.float64)
        assert np.linalg.norm(got - want) < limit * np.linalg.norm(want)
