"""Products with a thin side: what they give at every edge, and that nothing is copied where the other side lies."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error
from tilewright import ops
from tilewright.targets.cpu.machine import THIN_AHEAD, THIN_RUN, THIN_VECTORS, host_level

LEVELS = ["x86-64", "avx2", "avx512", "vnni", "amx"]
RUNNABLE = LEVELS[: LEVELS.index(host_level()) + 1]
LIMITS = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2}


@tw.kernel
def thin_product(
    A, B, C, K, FLIP: tw.constexpr = False, ACC: tw.constexpr = tw.f32, BM: tw.constexpr = 4,
    BN: tw.constexpr = 64, BK: tw.constexpr = 32,
):  # fmt: skip
    """C += A B over K k, which may be less or more than the arrays have; B is stored as [n, k] where FLIP."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    c = tw.init_tile(C, [m, n], (BM, BN))
    acc = tw.load_tile(c).to(ACC)
    for k in range(0, K, BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        if FLIP:
            b = tw.transpose(tw.load_tile(tw.init_tile(B, [n, k], (BN, BK))))
        else:
            b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), c)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt", "flip"])
def test_few_rows_and_few_columns_at_every_edge(rng, level, dtype, form):
    """Extents are drawn: whole blocks, parts of vectors, less than one; C holds something before."""
    for rows, cols in (
        (1, 256),
        (3, 70),
        (8, 64),
        (4, 33),
        (13, 100),
        (90, 3),
        (64, 24),
        (33, 9),
        (64, 1),
        (64, 2),
    ):
        m, n, k = (int(rng.integers(1, most + 1)) for most in (2 * rows, 2 * cols, 700))
        tiles = {
            "BM": rows,
            "BN": -(-cols // 8) * 8 if cols > 2 else cols,
            "BK": int(rng.choice([16, 32, 64])),
        }
        acc = tw.f64 if dtype == np.float64 else tw.f32
        a, b = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
        given = [
            np.asfortranarray(x) if t == "t" else x for x, t in zip((a, b), form, strict=False)
        ]
        if form == "flip":
            given[1] = np.ascontiguousarray(b.T)
        c = random(rng, (m, n), acc.numpy)
        want = c + a.astype(np.float64) @ b.astype(np.float64)
        grid = tw.cdiv(m, tiles["BM"]), tw.cdiv(n, tiles["BN"])
        run = thin_product.options(machine=level, target="cpu")[grid]
        run(*given, c, k, FLIP=form == "flip", ACC=acc, **tiles)
        assert error(c, want) < LIMITS[np.dtype(dtype).name], (m, n, k, tiles)


@pytest.mark.parametrize("form", ["nn", "nt"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [2, 40])
def test_what_lies_beyond_the_range_is_not_touched(rng, dtype, form, rows):
    """k ends where the array goes on with infinity and NaN, in the middle of a vector and of a block."""
    m, n, k, used = rows, 45 if rows == 2 else 5, 200, 77
    tiles = {"BM": rows, "BN": 64 if rows == 2 else 8, "BK": 16}
    a, b = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
    end = -(-used // tiles["BK"]) * tiles["BK"]
    a[:, end:], b[end:] = np.inf, np.nan
    c = random(rng, (m, n), np.float32)
    want = c + a[:, :end].astype(np.float64) @ b[:end].astype(np.float64)
    given = (a, np.asfortranarray(b) if form == "nt" else b)
    thin_product.options(target="cpu")[1, 1](*given, c, used, **tiles)
    assert error(c, want) < LIMITS[np.dtype(dtype).name]


@tw.kernel
def moved(A, B, C, M: tw.constexpr = 2, N: tw.constexpr = 64, K: tw.constexpr = 64):
    """The tile of B starts before the array does, and ends behind it; sums of whole rows see zeros there."""
    a = tw.load_tile(tw.init_tile(A, [0, 0], (M, K)))
    b = tw.load_tile(tw.init_tile(B, [-5, -7], (K, N)))
    acc = tw.tile_mma(a, b)
    tw.store_tile(tw.sum(tw.exp(acc * 0.1), 1), tw.init_tile(C, [0, 0], (M, 1)))


@pytest.mark.parametrize("order", ["C", "F"])
def test_tiles_that_start_before_the_array(rng, order):
    a, b = random(rng, (2, 64), np.float32), random(rng, (51, 40), np.float32)
    whole = np.zeros((64, 64))
    whole[5:56, 7:47] = b
    want = np.exp((a @ whole) * 0.1).sum(1, keepdims=True)
    c = np.full((2, 1), np.nan, np.float32)
    moved.options(target="cpu")[1](a, np.asarray(b, order=order), c)
    assert error(c, want) < 1e-5


def test_products_through_ops(rng):
    """Batches, strided views and fused epilogues; the results do not depend on the number of threads."""
    a, b = random(rng, (3, 2, 100), np.float32), random(rng, (3, 100, 700), np.float32)
    bias = random(rng, (700,), np.float32)
    found = [
        ops.matmul(a, b, bias=bias, activation="relu", target="cpu", num_threads=n)
        for n in (1, 2, 16)
    ]
    want = np.maximum(a.astype(np.float64) @ b + bias, 0)
    assert error(found[0], want) < 1e-5
    assert all(np.array_equal(found[0], other) for other in found[1:])
    part = random(rng, (5, 90), np.float32)[:, 10:70]
    wide = random(rng, (60, 300), np.float32)[:, 1:258]
    assert error(ops.matmul(part, wide, target="cpu"), part.astype(np.float64) @ wide) < 1e-5


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("form", ["nn", "tn"])
def test_one_and_two_columns_through_ops(rng, n, form):
    """A column has tiles of one column, and so have its bias, what is computed of it, and what is added to it."""
    a, b = random(rng, (70, 100), np.float32), random(rng, (100, n), np.float32)
    bias, residual = random(rng, (n,), np.float32), random(rng, (70, n), np.float32)
    given = np.asfortranarray(a) if form == "tn" else a
    found = ops.matmul(given, b, bias=bias, activation="relu", residual=residual, target="cpu")
    want = np.maximum(a.astype(np.float64) @ b + bias, 0) + residual
    assert error(found, want) < 1e-5


def text(form: str, m: int, n: int) -> str:
    a = np.zeros((m, 4096), np.float32)
    b = np.zeros((4096, n) if form == "nn" else (n, 4096), np.float32)
    c = np.zeros((m, n), np.float32)
    tiles = {"BM": m, "BN": n, "FLIP": form == "flip"}
    made = thin_product.compile(
        a, b.T if form == "nt" else b, c, 4096, **tiles, target="cpu", machine="avx512"
    )
    return made.ir["mach"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("form", ["nn", "nt"])
def test_every_level_has_code_for_few_rows(level, dtype, form):
    """Those too that this machine does not run."""
    for m in (1, 4, 8):
        b = np.zeros((512, 256) if form == "nn" else (256, 512), dtype)
        given = (
            np.zeros((m, 512), dtype),
            b if form == "nn" else b.T,
            np.zeros((m, 256), np.float32),
        )
        made = thin_product.compile(*given, 512, BM=m, target="cpu", machine=level)
        assert "func" in made.ir["mach"]


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_few_rows_are_the_only_copy(form):
    """Nothing is packed ahead, and rows of B are read side by side, a few vectors of each at a time, by instructions of
    their own where eight are left; then row by row."""
    found = text(form, 1, 4096)
    assert "tw_pack0" not in found
    lines = found.split("\n")
    assert len(re.findall("math.fma", found)) == (
        (THIN_RUN + 1) * THIN_VECTORS // 2 + 2 if form == "nn" else 8 + 8
    )
    assert any(f"{THIN_RUN}" in line for line in lines)


def test_runs_fetch_the_next_run_where_their_rows_end():
    """A line of each row of a run, so far ahead in it, or where it ends at the start of the run below."""
    found, step = text("nn", 1, 4096), THIN_AHEAD // THIN_RUN
    assert re.search(rf"arith.select %\w+, %c{step}, %\w+ : index", found)
    assert found.count("mach.prefetch") >= THIN_RUN * THIN_VECTORS // 2


def test_more_rows_than_a_panel_has_are_multiplied_in_shares():
    """Of 12 rows six at a time, beside four vectors of a row of B, which is fetched once."""
    found = [text("nn", m, 4096) for m in (6, 12)]
    assert "tw_pack1" not in found[1]
    products, fetched = (
        [len(re.findall(each, x)) for x in found] for each in ("math.fma", "mach.prefetch")
    )
    assert products[1] == 2 * products[0] and fetched[1] == fetched[0] > 0


def test_a_transpose_needs_no_more_masks():
    """Whole blocks of an operand are read as wholly inside its array, whichever way the product sees it."""
    masked = [text(form, 1, 4096).count("mach.masked_load") for form in ("flip", "nt")]
    assert masked[0] == masked[1]


def test_few_columns_leave_a_where_it_is():
    found = text("nn", 256, 16)
    assert found.count("@tw_pack0_panels") and "@tw_pack1" not in found


@pytest.mark.parametrize(
    ("form", "m", "n", "thin"),
    [("nt", 8, 256, True), ("nt", 16, 256, False), ("nn", 256, 8, True), ("nn", 256, 16, False)],
)
def test_f16_in_halves_leaves_few_rows_and_columns_to_vectors(form, m, n, thin):
    """Tiles of bf16 multiply f16 in three products: vectors that convert it where it lies take more rows than beside
    tiles of f16, and some columns."""
    a, b = np.zeros((m, 512), np.float16), np.zeros((512, n), np.float16)
    given = (a, np.asfortranarray(b) if form == "nt" else b, np.zeros((m, n), np.float32), 512)
    made = thin_product.compile(*given, BM=m, BN=n, BK=32, target="cpu", machine="amx")
    assert ("tdpbf16ps" in made.ir["mach"]) == (not thin)


@tw.kernel
def overwritten(A, B, C):
    """B is loaded, its array changed, and then multiplied: as it was when it was loaded."""
    a = tw.load_tile(tw.init_tile(A, [0, 0], (2, 32)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (32, 64)))
    tw.store_tile(b * 0.0, tw.init_tile(B, [0, 0], (32, 64)))
    tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [0, 0], (2, 64)))


def test_an_array_that_changes_before_the_product(rng):
    a, b = random(rng, (2, 32), np.float32), random(rng, (32, 64), np.float32)
    c, want = np.full((2, 64), np.nan, np.float32), a.astype(np.float64) @ b
    overwritten.options(target="cpu")[1](a, b, c)
    assert error(c, want) < 1e-5 and not b.any()
