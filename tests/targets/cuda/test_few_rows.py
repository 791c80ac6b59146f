"""Products of few rows on sm_90a (`passes/swap_operands.py`), and results whose rows are no whole lines."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels as k
from tests.targets.cuda.test_hopper import SCHEDULES, check, execute, poison, values
from tilewright import uarch
from tilewright.dialects.text import parse_module
from tilewright.ops.matmul import gelu_tanh
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.work_split import WorkSplit


@tw.kernel
def joined(A, B, bias, residual, C, total, COND, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):  # fmt: skip
    """Sums that go through a loop, a branch and an epilogue; a row and a tile come in, a tile and a column go out."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.full((BM, BN), 0.5, tw.f32)
    for i in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, i], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [i, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    if COND > 0:
        acc = acc * 2.0
    else:
        acc = acc - 1.0
    acc = gelu_tanh(acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN))).to(tw.f32))
    acc = acc + tw.load_tile(tw.init_tile(residual, [m, n], (BM, BN))).to(tw.f32)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))
    tw.store_tile(tw.sum(acc, 1), tw.init_tile(total, [m, tw.program_id(1)], (BM, 1)))


@pytest.mark.parametrize("rows, columns", [(8, 128), (16, 64), (48, 256), (24, 128), (176, 64)])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_few_rows_are_columns_of_the_transposed_product(rows, columns, layout, rng):
    """They leave through panels whose lines are the product's columns, and may end anywhere."""
    a, b = values(rng, 40, 136), values(rng, 136, 200)
    a = np.asfortranarray(a) if layout[0] == "T" else a
    b = np.asfortranarray(b) if layout[1] == "T" else b
    grid = (-(-40 // rows), -(-200 // columns), 1)
    code = check(k.gemm, [a, b, poison(40, 200)], grid, 1e-2, BM=rows, BN=columns, BK=64)
    text = str(code.module)
    assert "wgmma" in text and "tma.store" in text and re.search(r"stmatrix\.x\d\.trans", text)


@tw.kernel
def rounded(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    """C = A B of f32 arrays, multiplied as tf32."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for i in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, i], (BM, BK))).to(tw.tf32)
        b = tw.load_tile(tw.init_tile(B, [i, n], (BK, BN))).to(tw.tf32)
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("rows, columns", [(128, 128), (64, 64), (40, 128), (176, 64)])
def test_operands_that_are_read_only_transposed(rows, columns, rng):
    """Lines of a left operand run along k, of a right one along n, in a type that is not 16 bits wide."""
    a, b = values(rng, 200, 136, dtype="f4"), values(rng, 136, 200, dtype="f4")
    grid = (-(-200 // rows), -(-200 // columns), 1)
    code = check(
        rounded, [a, b, poison(200, 200, dtype="f4")], grid, 1e-2, BM=rows, BN=columns, BK=32
    )
    text = str(code.module)
    assert f"m64n{rows}k8" in text and "tma.store" in text


@pytest.mark.parametrize("condition", [0, 1])
def test_what_meets_the_sums_is_transposed_with_them(condition, rng):
    a, b = values(rng, 20, 128), values(rng, 128, 200)
    args = [a, b, values(rng, 200), values(rng, 20, 200), poison(20, 200),
            poison(20, 4, dtype=np.float32), condition]  # fmt: skip
    code = check(joined, args, (2, 4, 1), 1e-2, BM=16, BN=64, BK=64)
    assert "wgmma" in str(code.module)


@pytest.mark.parametrize("columns", [16, 32, 96, 160])
@pytest.mark.parametrize("dtype", [values(np.random.default_rng(0), 1).dtype, np.float32])
def test_the_copy_engine_stores_rows_of_any_whole_swizzle(columns, dtype, rng):
    a, b = values(rng, 100, 128), values(rng, 128, 3 * columns + 8)
    args = [a, b, poison(100, 3 * columns + 8, dtype=dtype)]
    code = check(k.gemm, args, (1, 4, 1), 1e-2, BM=128, BN=columns, BK=64)
    assert "tma.store" in str(code.module)


@pytest.mark.parametrize("tile", [(128, 160), (192, 96)])
def test_a_cluster_adds_up_tiles_of_any_width(tile, rng):
    a, b = values(rng, tile[0], 512), values(rng, 512, 320)
    grid = (1, -(-320 // tile[1]), 1)
    split = WorkSplit(1, 2, 1)
    check(
        k.gemm, [a, b, poison(tile[0], 320)], grid, 1e-2, BM=tile[0], BN=tile[1], BK=64, split=split
    )


def test_one_slot_is_enough(rng):
    """A product is then waited for before the next one's operands are."""
    a, b = values(rng, 128, 256), values(rng, 256, 128)
    text = k.gemm.compile(a, b, poison(128, 128), target="reference", BM=128, BN=128, BK=64).ir["xetile"]  # fmt: skip
    options = CompileOptions("cuda", "sm_90a", num_stages=1)
    code = run_pipeline(parse_module(text), uarch.machine("sm_90a"), options, [])
    for schedule in SCHEDULES:
        got = execute(code, [a, b, poison(128, 128)], (1, 1, 1), schedule)[2].astype(float)
        wanted = a.astype(float) @ b.astype(float)
        assert np.linalg.norm(got - wanted) <= 1e-2 * np.linalg.norm(wanted)


def test_a_cluster_reads_right_operands_of_several_panels(rng):
    """Lines of B run along n, beyond one swizzle: its descriptors tell the step between panels."""
    a, b = values(rng, 64, 256), values(rng, 256, 128)
    split = WorkSplit(1, 2, 1)
    check(k.gemm, [a, b, poison(64, 128)], (1, 1, 1), 1e-2, BM=64, BN=128, BK=64, split=split)
