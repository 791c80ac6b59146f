"""Programs that touch part of a tile or of an array, as lanes on an OpenCL device."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.parts import (
    DTYPES,
    check_masked,
    check_shared_windows,
    check_windows,
    expect_groups,
    grouped,
    groups_of,
)
from tests.targets.xe import kernels
from tests.targets.xe.conftest import agree

pytestmark = pytest.mark.usefixtures("device")


def test_masks(rng: np.random.Generator) -> None:
    for dtype in rng.choice(len(DTYPES), 2, replace=False):
        check_masked("xe-pvc", rng, DTYPES[dtype], transposed=False)


@pytest.mark.parametrize("back", [0, -2], ids=["inside", "before"])
def test_views(back: int, rng: np.random.Generator) -> None:
    check_windows("xe-pvc", rng, np.float32, back)


def test_a_product_per_group_of_rows(rng: np.random.Generator) -> None:
    args = groups_of(rng, 90, 64, 64)
    y = args[3].copy()
    grouped.options(target="xe-pvc")[5, 2](*args[:3], y)
    expect_groups(args, y)


def test_shared_memory_has_bounds(rng: np.random.Generator) -> None:
    check_shared_windows("xe-pvc", rng)


@tw.kernel
def odd(A, B, Y, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    """Rows of a product as shares of their maximum, transposed."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    e = tw.exp(acc - tw.max(acc, 1))
    tw.store_tile(tw.transpose(e / tw.sum(e, 1)), tw.init_tile(Y, [n, m], (BN, BM)))


@pytest.mark.parametrize("target", ["xe-pvc", "xe-dg2"])
def test_tiles_that_nothing_divides(target: str, rng: np.random.Generator) -> None:
    bm, bn, bk = (int(rng.choice(sizes)) for sizes in ((9, 13), (17, 21), (5, 11)))
    a = (rng.standard_normal((bm + 3, bk + 2)) * 2).astype(np.float16)
    b = (rng.standard_normal((bk + 2, 2 * bn)) * 2).astype(np.float16)
    y = np.full((2 * bn, bm + 3), 7, np.float32)
    odd.options(target=target)[2, 2](a, b, y, BM=bm, BN=bn, BK=bk)
    wide = (a.astype(float) @ b.astype(float)).reshape(bm + 3, 2, bn)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    right = (e / e.sum(-1, keepdims=True)).reshape(bm + 3, -1).T
    assert np.linalg.norm(y - right) < 1e-5 * np.linalg.norm(right)


@pytest.mark.parametrize("stride", ["[16, 1]", "[1, 16]"])
def test_parts_of_a_matrix_with_rows(stride: str, rng: np.random.Generator) -> None:
    """A lane's part of a matrix is a box, whatever its rank."""
    matrix = f"!xegpu.mem_desc<16x16xf32, #xegpu.mem_layout<stride = {stride}>>"
    text = (
        kernels.head("%x: memref<16x16xf32>, %y: memref<16x16xf32>")
        + f"""
    %tx = xegpu.create_nd_tdesc %x : memref<16x16xf32> -> !xegpu.tensor_desc<16x16xf32>
    %ty = xegpu.create_nd_tdesc %y : memref<16x16xf32> -> !xegpu.tensor_desc<16x16xf32>
    %slm = memref.alloca() : memref<1024xi8, 3>
    %m = xegpu.create_mem_desc %slm : memref<1024xi8, 3> -> {matrix}
    %v = xegpu.load_nd %tx[0, 0] : !xegpu.tensor_desc<16x16xf32> -> vector<16xf32>
    %c = vector.shape_cast %v : vector<16xf32> to vector<16x1xf32>
    xegpu.store_matrix %c, %m[0, %lane] : vector<16x1xf32>, {matrix}, index
    gpu.barrier
    %r = xegpu.load_matrix %m[%lane, 0] : {matrix}, index -> vector<1x16xf32>
    %w = vector.shape_cast %r : vector<1x16xf32> to vector<16xf32>
    xegpu.store_nd %w, %ty[0, 0] : vector<16xf32>, !xegpu.tensor_desc<16x16xf32>"""
        + kernels.FOOT
    )
    x = rng.standard_normal((16, 16), dtype=np.float32)
    (y,) = agree(text, [x, np.full_like(x, np.nan)], [1])
    np.testing.assert_array_equal(y, x.T)


def test_the_last_bits_of_numbers(rng: np.random.Generator) -> None:
    """LLVM's SPIR-V backend fails at a select of truncated vectors of i1."""
    text = (
        kernels.head("%x: memref<16x16xi32>, %y: memref<16x16xi32>")
        + """
    %tx = xegpu.create_nd_tdesc %x : memref<16x16xi32> -> !xegpu.tensor_desc<8x16xi32>
    %ty = xegpu.create_nd_tdesc %y : memref<16x16xi32> -> !xegpu.tensor_desc<8x16xi32>
    %v = xegpu.load_nd %tx[0, 0] : !xegpu.tensor_desc<8x16xi32> -> vector<8xi32>
    %zero = arith.constant dense<0> : vector<8xi32>
    %none = arith.constant dense<false> : vector<8xi1>
    %up = arith.cmpi sgt, %v, %zero : vector<8xi32>
    %odd = arith.trunci %v : vector<8xi32> to vector<8xi1>
    %both = arith.select %up, %odd, %none : vector<8xi1>, vector<8xi1>
    %w = arith.extui %both : vector<8xi1> to vector<8xi32>
    xegpu.store_nd %w, %ty[0, 0] : vector<8xi32>, !xegpu.tensor_desc<8x16xi32>"""
        + kernels.FOOT
    )
    x = rng.integers(-9, 9, (16, 16), dtype=np.int32)
    (y,) = agree(text, [x, np.full_like(x, -1)], [1])
    np.testing.assert_array_equal(y[:8], (x[:8] > 0) & (x[:8] % 2 == 1))
