"""Subgroup- and lane-level programs of small products: compiled, with the executor's results."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, UnitAttr

from tests.runtime.program.fragments import gemm, launch, operands
from tests.texts import parse_module
from tilewright.passes.eliminate_barriers import eliminate_barriers
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile

GRID, BLOCK = (2, 2, 1), (64, 1, 1)
SIZES = (64, 128, 96)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("lane", [False, True])
def test_products_in_pieces(lane, barrier, start, rng):
    m, n, k = SIZES
    a, b = operands(rng, m, n, k)
    c = (
        rng.integers(-9, 9, (m, n)).astype(np.float32)
        if start
        else np.full((m, n), np.nan, np.float32)
    )
    wanted = a.astype(np.float64) @ b.astype(np.float64) + (c if start else 0)
    text = gemm(m, n, k, lane=lane, barrier=barrier, start=start)
    said = launch(text, GRID, BLOCK, [a, b, c], "cpu")
    assert said == [f"@f: {'lane' if lane else 'subgroup'} level, compiled for cpu"]
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("lane", [False, True])
def test_the_executor_agrees(lane, rng):
    m, n, k = SIZES
    a, b = operands(rng, m, n, k)
    results = []
    for target in ("cpu", "reference"):
        c = np.full((m, n), np.nan, np.float32)
        launch(gemm(m, n, k, lane=lane), GRID, BLOCK, [a, b, c], target)
        results.append(c)
    np.testing.assert_array_equal(*results)


def test_sizes_that_pieces_do_not_divide(rng):
    """What is outside of the arrays reads as zero and is not written, in no piece."""
    m, n, k = 59, 117, 90
    a, b = operands(rng, m, n, k)
    c = np.full((m, n), np.nan, np.float32)
    said = launch(gemm(m, n, k, lane=False), GRID, BLOCK, [a, b, c], "cpu")
    assert "compiled" in said[0]
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


def test_a_piece_of_another_place(rng):
    """The grid of products has a hole, and results follow the program."""
    m, n, k = SIZES
    a, b = operands(rng, m, n, k)
    text = gemm(m, n, k, lane=False).replace(
        "%d11 = xegpu.dpas %a10, %b01,", "%d11 = xegpu.dpas %a00, %b01,"
    )
    results = []
    for target in ("cpu", "reference"):
        c = np.full((m, n), np.nan, np.float32)
        launch(text, GRID, BLOCK, [a, b, c], target)
        results.append(c)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("apart", [True, False])
def test_barriers_stay_where_arrays_may_be_one(apart):
    """Barriers order stores against loads: they go only if what is stored cannot be what is loaded."""
    module = parse_module(gemm(64, 64, 64, lane=False, barrier=True), "pieces.mlir")
    kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    kernel.attributes["tilewright.args"] = ArrayAttr(
        [DictionaryAttr({"noalias": UnitAttr()} if apart else {})] * 3
    )
    xegpu_to_xetile(module)
    assert eliminate_barriers(kernel) is apart
    left = [op for op in kernel.walk() if isinstance(op, gpu.BarrierOp)]
    assert bool(left) is not apart


DIVERGES = """
gpu.module @k {
  gpu.func @f(%c: memref<64xf32>) kernel {
    %t = gpu.thread_id x
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    %odd = arith.cmpi ult, %t, %c7 : index
    scf.if %odd { memref.store %one, %c[%t] : memref<64xf32> }
    else { memref.store %two, %c[%t] : memref<64xf32> }
    gpu.return
  }
}
"""


def test_lanes_that_part_are_emulated(rng):
    for target in ("cpu", "emu", "reference"):
        c = np.full(64, np.nan, np.float32)
        said = launch(DIVERGES, (1, 1, 1), (64, 1, 1), [c], target)
        if target != "reference":
            assert said == [f"@f: lane level, compiled for {target}"]
        np.testing.assert_array_equal(c, np.where(np.arange(64) < 7, 1, 2))


TRANSPOSED = """
gpu.module @k {
  gpu.func @f(%a: memref<32x16xf32>, %c: memref<8x16xf32>) kernel {
    %scale = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : vector<8xf32>
    %ta = xegpu.create_nd_tdesc %a : memref<32x16xf32> -> !xegpu.tensor_desc<16x8xf32>
    %tc = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %v = xegpu.load_nd %ta[%c16, %c0] {transpose = array<i64: 1, 0>}
      : !xegpu.tensor_desc<16x8xf32> -> vector<8xf32>
    %w = arith.mulf %v, %scale : vector<8xf32>
    xegpu.store_nd %w, %tc[%c0, %c0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
    gpu.return
  }
}
"""


def test_fragments_of_transposed_loads(rng):
    a = rng.standard_normal((32, 16)).astype(np.float32)
    results = []
    for target in ("cpu", "reference"):
        c = np.full((8, 16), np.nan, np.float32)
        said = launch(TRANSPOSED, (1, 1, 1), (16, 1, 1), [a, c], target)
        assert said == (["@f: lane level, compiled for cpu"] if target == "cpu" else [])
        results.append(c)
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(c, a[16:, :8].T * np.arange(1, 9, dtype=np.float32)[:, None])
