"""The maximum of a tile times a constant: bit for bit the constant times the maximum."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.scaled_maxima import scale_maxima
from tilewright.reference import run

TEXT = """
gpu.module @m {{
  gpu.func @k(%X: memref<32x64xf32>, %Y: memref<32x1xf32>) kernel attributes {{tilewright.level = "workgroup"}} {{
    %c0 = arith.constant 0 : index
    %c = arith.constant dense<{factor}> : vector<32x64xf32>
    %t = xetile.init_tile %X[0, 0] : memref<32x64xf32> -> !xetile.tile<32x64xf32>
    %x = xetile.load_tile %t : !xetile.tile<32x64xf32> -> vector<32x64xf32>
    %s = arith.mulf %c, %x : vector<32x64xf32>
    %m = xetile.reduction <{kind}>, %s [1] : vector<32x64xf32> -> vector<32x1xf32>
    %u = xetile.init_tile %Y[0, 0] : memref<32x1xf32> -> !xetile.tile<32x1xf32>
    xetile.store_tile %m, %u : vector<32x1xf32>, !xetile.tile<32x1xf32>
    gpu.return
  }}
}}
"""


@pytest.mark.parametrize("kind", ["maximumf", "minimumf"])
@pytest.mark.parametrize("factor", ["3.000000e-01", "-1.700000e+00"])
def test_same_bits(kind: str, factor: str) -> None:
    rng = fresh_rng()
    x = (rng.standard_normal((32, 64)) * 10.0 ** rng.integers(-30, 30, (32, 64))).astype("f4")
    x[3, 5], x[4, 6], x[5, 7] = np.inf, -np.inf, np.nan
    module = parse_module(TEXT.format(factor=factor, kind=kind))
    before, after = np.zeros((32, 1), "f4"), np.zeros((32, 1), "f4")
    run(module, (1, 1, 1), [x, before])
    assert scale_maxima(kernel_of(module)) == 1
    module.verify()
    assert ("minimumf" in print_module(module)) == ((kind == "minimumf") == (factor[0] != "-"))
    run(module, (1, 1, 1), [x, after])
    np.testing.assert_array_equal(before.view("i4"), after.view("i4"))


@pytest.mark.parametrize("factor", ["0.000000e+00", "0x7F800000"])
def test_factors_that_keep_no_order_stay(factor: str) -> None:
    module = parse_module(TEXT.format(factor=factor, kind="maximumf"))
    assert scale_maxima(kernel_of(module)) == 0
