"""Rows of two-byte floats: whole registers, conversions of every value, stores past the cache, masks by position."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_structure import levels_here
from tilewright.targets.cpu.machine import chosen

BF16 = np.dtype(ml_dtypes.bfloat16)
NARROW = pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float16)], ids=["bf16", "f16"])


@tw.kernel
def convert(
    X: Any, Y: Any, ROOT: tw.constexpr = False, BM: tw.constexpr = 2, BN: tw.constexpr = 1024
):
    """The root may be approximate, and so may its conversion."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
    y = tw.rsqrt(x) if ROOT else x
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


@tw.kernel
def extremes(X: Any, MOST: Any, LEAST: Any, BM: tw.constexpr = 4, BN: tw.constexpr = 256):
    m = tw.program_id(0) * BM
    tile = tw.init_tile(X, [m, 0], (BM, BN))
    x = tw.load_tile(tile, padding=float("-inf")).to(tw.f32)
    tw.store_tile(tw.max(x, 1), tw.init_tile(MOST, [m, 0], (BM, 1)))
    x = tw.load_tile(tile, padding=float("inf")).to(tw.f32)
    tw.store_tile(tw.min(x, 1), tw.init_tile(LEAST, [m, 0], (BM, 1)))


def same(a: Any, b: Any) -> None:
    """The same bits, but for those of NaN."""
    bits = np.uint16
    nan = np.isnan(a.astype(np.float32))
    np.testing.assert_array_equal(nan, np.isnan(b.astype(np.float32)))
    np.testing.assert_array_equal(a.view(bits)[~nan], b.view(bits)[~nan])


@pytest.mark.parametrize("level", levels_here())
@NARROW
def test_every_value_goes_to_f32_and_back(dtype: Any, level: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(16, -1)
    y = np.zeros_like(x)
    convert.options(target="cpu", machine=level)[8, 4](x, y)
    same(y, x)


@pytest.mark.parametrize("level", levels_here())
@NARROW
def test_f32_is_rounded_to_nearest_even(rng: np.random.Generator, dtype: Any, level: str) -> None:
    """Ties, what is next to them, denormals, overflow and NaN among random bits."""
    bits = rng.integers(0, 1 << 32, (64, 1000), np.uint32, endpoint=False)
    bits[:8] = (bits[:8] & 0xFFFF0000) | rng.choice([0x7FFF, 0x8000, 0x8001], bits[:8].shape)
    bits[8:16] = (bits[8:16] & 0xFFFFE000) | rng.choice([0xFFF, 0x1000, 0x1001], bits[8:16].shape)
    bits[16:20] &= 0x807FFFFF
    bits[20:24] |= 0x7F800000
    x = bits.view(np.float32)
    y = np.zeros(x.shape, dtype)
    convert.options(target="cpu", machine=level)[32, 1](x, y)
    with np.errstate(over="ignore", invalid="ignore"):
        same(y, x.astype(dtype))


@NARROW
def test_large_results_pass_the_cache_and_are_right_up_to_their_edges(
    rng: np.random.Generator, dtype: Any
) -> None:
    whole = np.zeros((1030, 8300), dtype)
    y = whole[1:-1, 3:-2]
    x = rng.standard_normal(y.shape, np.float32)
    k = convert.options(target="cpu")
    k[tw.cdiv(y.shape[0], 2), tw.cdiv(y.shape[1], 1024)](x, y)
    same(y, x.astype(dtype))
    whole[1:-1, 3:-2] = 0
    assert not whole.view(np.uint16).any(), "stores beyond the array"
    for kind in ({"ROOT": False}, {"ROOT": True}, {"BN": 512}):
        code = k.compile(x, y, **kind).asm["asm"]
        assert "vmovnt" in code or not chosen(None).has("avx512f")


@pytest.mark.parametrize("level", levels_here())
@NARROW
def test_extremes_of_rows_keep_nan_wherever_it_stands(
    rng: np.random.Generator, dtype: Any, level: str
) -> None:
    """Any bits, rows without NaN, of one sign, of one number, and of both zeros."""
    x = rng.integers(0, 1 << 16, (200, 250), np.uint16, endpoint=False).view(dtype)
    x[40:][np.isnan(x[40:].astype(np.float32))] = -1
    x[np.arange(40, 60), rng.integers(0, 250, 20)] = np.nan
    x[np.arange(60, 80), rng.integers(0, 250, 20)] = -np.array(np.nan, dtype)
    x[80:110], x[110:140] = -np.abs(x[80:110]), np.abs(x[110:140])
    x[140:150], x[150:160], x[160], x[161] = -np.inf, np.inf, -0.0, 0.0
    x[160, 7], x[161, 9] = 0.0, -0.0
    most, least = (np.full((200, 1), 7, np.float32) for _ in range(2))
    extremes.options(target="cpu", machine=level)[50](x, most, least)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(most[:, 0], np.max(wide, 1))
    np.testing.assert_array_equal(least[:, 0], np.min(wide, 1))
    assert not np.signbit(most[160, 0]) and np.signbit(least[161, 0])


@tw.kernel
def weighted(X: Any, W: Any, Y: Any, BM: tw.constexpr = 4, BN: tw.constexpr = 1024):
    """Sums in which elements of odd and even number count differently."""
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN))).to(tw.f32)
    w = tw.load_tile(tw.init_tile(W, [0], (1, BN))).to(tw.f32)
    j = tw.arange(0, BN, axis=1, shape=(1, BN))
    y = tw.where(j % 3 == 0, x * w, x * x) * j.to(tw.f32)
    tw.store_tile(tw.sum(y, 1), tw.init_tile(Y, [m, 0], (BM, 1)))


@pytest.mark.parametrize("level", levels_here())
@NARROW
def test_sums_in_whatever_order_count_each_element_as_itself(
    rng: np.random.Generator, dtype: Any, level: str
) -> None:
    for columns in (1024, 1000, 67):
        x, w = (rng.integers(-9, 9, s).astype(dtype) for s in ((50, columns), columns))
        y = np.full((50, 1), np.nan, np.float32)
        weighted.options(target="cpu", machine=level)[13](x, w, y)
        wide, j = x.astype(np.float64), np.arange(columns)
        want = np.where(j % 3 == 0, wide * w.astype(np.float64), wide * wide) * j
        np.testing.assert_allclose(y[:, 0], want.sum(1), rtol=1e-5, atol=1)


def test_nothing_is_widened_for_extremes_nor_rounded_in_sums_of_products() -> None:
    x, y = np.zeros((4, 256), BF16), np.zeros((4, 1), np.float32)
    code = extremes.options(target="cpu").compile(x, y, y.copy()).ir["mach"]
    assert not re.search(r"extf .*vector<\d", code)
    norm = import_module("tilewright.ops.norm").norm_rows
    for fast, products in ((True, 0), (False, 1)):
        k = norm.options(target="cpu", machine="avx512", fastmath=fast)
        text = k.compile(x, None, None, x.copy(), 1e-6, False, 4, 4096).asm["asm"]
        loops = re.findall(r"^(\.LBB\w+):\n((?:\t.*\n)*?\tj\w+\t\1\n)", text, re.M)
        sums = [
            body for _, body in loops if re.search(r"vf?m?add\d*ps", body) and "vmovnt" not in body
        ]
        assert sums and all(("vmulps" in body) == products for body in sums)
        main = [body for body in sums if "%k" not in body and "vpslld" in body]
        assert main and not any("vpmovzxwd" in body for body in main)


@tw.kernel
def masked(
    X: Any, Y: Any, N: Any, M: Any, HOW: tw.constexpr, BM: tw.constexpr = 8, BN: tw.constexpr = 96
):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    row = tw.arange(0, BM, axis=0, shape=(BM, 1)) + m
    column = tw.arange(0, BN, axis=1, shape=(1, BN)) + n
    if HOW == 0:
        keep = (column < N) & (column >= M)
    elif HOW == 1:
        keep = row >= column - M
    elif HOW == 2:
        keep = row + N > column
    else:
        below, above = M, N
        keep = (above <= column) | (below > column)
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(tw.where(keep, x, 0.0), tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("how", range(4))
def test_masks_by_position(rng: np.random.Generator, dtype: Any, how: int) -> None:
    x = rng.standard_normal((50, 300)).astype(dtype)
    y = np.full_like(x, np.nan)
    n, m = (int(v) for v in rng.integers(-20, 320, 2))
    masked.options(target="cpu")[7, 4](x, y, n, m, HOW=how)
    row, column = np.arange(50)[:, None], np.arange(300)[None]
    keep = [
        (column < n) & (column >= m), row >= column - m, row + n > column, (n <= column) | (m > column),
    ][how]  # fmt: skip
    np.testing.assert_array_equal(y.astype(np.float32), np.where(keep, x, 0).astype(np.float32))


def test_a_row_is_one_pass_with_what_it_is_scaled_by() -> None:
    """Weights that are widened and masks of columns are made where they are used: no pass of their own."""
    norm = import_module("tilewright.ops.norm").norm_rows
    x, w = np.zeros((64, 1000), BF16), np.zeros(1000, BF16)
    compiled = norm.options(target="cpu").compile(
        x, w, w, x.copy(), 1e-5, CENTER=True, BM=4, BN=1024
    )
    assert compiled.ir["stage"].count("stage.fused") == 1
    blocks = re.split(r"^\w+:$", compiled.asm["llvm"], flags=re.M)
    main = [block for block in blocks if re.search(r"= load <\d+ x i16>", block)]
    assert main and not any("icmp slt <" in block for block in main), "what is inside has no mask"


@tw.kernel
def kept(X: Any, Y: Any, BM: tw.constexpr = 32, BN: tw.constexpr = 4096):
    """Values of rows and of single elements that wait for later levels."""
    m = tw.program_id(0) * BM
    x = tw.exp(tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN))).to(tw.f32))
    d = x - tw.sum(x, 1) / BN
    y = x * 0.0 + tw.max(d * d, 1) + tw.min(x, 1) + d
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))


@pytest.mark.parametrize("columns", [4096, 1024, 512])
def test_rows_that_overlap_keep_what_waits_where_lines_begin_inside_rows(
    rng: np.random.Generator, columns: int
) -> None:
    rows = (1 << 22) // columns + 1
    x = rng.standard_normal((rows, columns), np.float32)
    y = np.full((rows, columns + 4), 7, np.float32)[:, 3:-1]
    kept.options(target="cpu")[tw.cdiv(rows, 32)](x, y, BN=columns)
    e = np.exp(x.astype(np.float64))
    d = e - e.mean(1, keepdims=True)
    wanted = (d * d).max(1, keepdims=True) + e.min(1, keepdims=True) + d
    assert np.linalg.norm(y - wanted) < 1e-5 * np.linalg.norm(wanted)
