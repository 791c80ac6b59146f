"""Elementwise chains, broadcasts and conversions on the cpu: every dtype, shapes that do not divide."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.targets.cpu.test_structure import levels_here

SHAPES = [(1, 1), (1, 65), (37, 1), (16, 64), (33, 130)]
FLOATS = ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@tw.kernel
def scale_shift(X, Y, a, BM: tw.constexpr = 16, BN: tw.constexpr = 64):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile((x.to(tw.f32) * a + 1.0).to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


@tw.kernel
def integer_mix(X, Y, Z, BM: tw.constexpr = 8, BN: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    y = tw.load_tile(tw.init_tile(Y, [m, n], (BM, BN)), padding=1)
    z = (x + y) * x - (x & y) + tw.maximum(x, y) // y + x % y
    tw.store_tile(z, tw.init_tile(Z, [m, n], (BM, BN)))


@tw.kernel
def functions(X, Y, BM: tw.constexpr = 4, BN: tw.constexpr = 48):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    y = tw.exp(x) + tw.tanh(x) * tw.sigmoid(x) - tw.erf(x) + tw.sqrt(abs(x)) + tw.log(abs(x) + 1.0)
    y = y + tw.sin(x) * tw.cos(x) + tw.exp2(x) + tw.rsqrt(abs(x) + 1.0) + tw.floor(x) - tw.ceil(x)
    tw.store_tile(y, tw.init_tile(Y, [m, n], (BM, BN)))


@tw.kernel
def bias_rows_columns(X, R, C, Y, BM: tw.constexpr = 8, BN: tw.constexpr = 40):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    r = tw.load_tile(tw.init_tile(R, [m, 0], (BM, 1)))
    c = tw.load_tile(tw.init_tile(C, [n], (1, BN)))
    y = tw.where(x > c, x * r, c - r)
    tw.store_tile(y, tw.init_tile(Y, [m, n], (BM, BN)))


def numpy_type(name: str) -> np.dtype:
    return getattr(tw, name).numpy


def grid(shape: tuple[int, int], bm: int, bn: int) -> tuple[int, int]:
    return tw.cdiv(shape[0], bm), tw.cdiv(shape[1], bn)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FLOATS)
def test_float_types(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> None:
    dtype = numpy_type(name)
    x = rng.standard_normal(shape).astype(dtype)
    y = np.full(shape, np.nan).astype(dtype)
    scale_shift[grid(shape, 16, 64)](x, y, 1.5)
    v = x.astype(np.float64)
    # Against the size of the terms: their sum may cancel, and the product may or may not be rounded before it.
    error = np.linalg.norm(y.astype(np.float64) - (v * 1.5 + 1)) / np.linalg.norm(abs(v) * 1.5 + 1)
    bound = {"f64": 2e-7, "f32": 2e-7, "f16": 1e-3, "bf16": 8e-3}.get(name, 0.2)
    assert error <= bound


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_types_are_exact(
    rng: np.random.Generator, name: str, shape: tuple[int, int]
) -> None:
    dtype = numpy_type(name)
    info = np.iinfo(dtype)
    x = rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype)
    y = rng.integers(1, 9, shape).astype(dtype)
    got = np.full(shape, 77, dtype)
    want = np.full(shape, 77, dtype)
    integer_mix[grid(shape, 8, 32)](x, y, got)
    integer_mix.options(target="reference")[grid(shape, 8, 32)](x, y, want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", SHAPES)
def test_functions(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    y = np.full(shape, np.nan, np.float32)
    functions[grid(shape, 4, 48)](x, y)
    v = x.astype(np.float64)
    erf = np.vectorize(math.erf)
    want = np.exp(v) + np.tanh(v) / (1 + np.exp(-v)) - erf(v) + np.sqrt(abs(v)) + np.log(abs(v) + 1)
    want += np.sin(v) * np.cos(v) + np.exp2(v) + 1 / np.sqrt(abs(v) + 1) + np.floor(v) - np.ceil(v)
    assert np.linalg.norm(y - want) <= 2e-6 * max(np.linalg.norm(want), 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_broadcasts(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    x, r, c = (rng.standard_normal(s).astype(np.float32) for s in (shape, (shape[0], 1), shape[1]))
    y = np.full(shape, np.nan, np.float32)
    bias_rows_columns[grid(shape, 8, 40)](x, r, c, y)
    np.testing.assert_array_equal(y, np.where(x > c, x * r, c - r))


@pytest.mark.parametrize("view", ["transposed", "strided", "negative", "broadcast"])
def test_views(rng: np.random.Generator, view: str) -> None:
    base = rng.standard_normal((70, 90)).astype(np.float32)
    x = {
        "transposed": base.T,
        "strided": base[::2, ::3],
        "negative": base[::-1, ::-1],
        "broadcast": np.broadcast_to(base[:1], (70, 90)),
    }[view]
    y = np.full(x.shape, np.nan, np.float32)
    scale_shift[grid(x.shape, 16, 64)](x, y, 2.0)
    np.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6)
    z = np.full(x.shape[::-1], np.nan, np.float32).T
    scale_shift[grid(x.shape, 16, 64)](x, z, 2.0)
    np.testing.assert_allclose(z, x * 2 + 1, rtol=1e-6)


def test_tiles_outside_in_every_direction(rng: np.random.Generator) -> None:
    @tw.kernel
    def window(X, Y, dm, dn):
        x = tw.load_tile(tw.init_tile(X, [dm, dn], (8, 40)), padding=7.0)
        tw.store_tile(x, tw.init_tile(Y, [0, 0], (8, 40)))

    @tw.kernel
    def put(X, Y, dm, dn):
        x = tw.load_tile(tw.init_tile(X, [0, 0], (8, 40)))
        tw.store_tile(x, tw.init_tile(Y, [dm, dn], (8, 40)))

    x = rng.standard_normal((10, 50)).astype(np.float32)
    padded = np.full((110, 150), 7, np.float32)
    padded[50:60, 50:100] = x
    for dm, dn in [(-3, -5), (5, 30), (-40, 0), (0, -45), (20, 60), (9, 49)]:
        y = np.full((8, 40), np.nan, np.float32)
        window[1](x, y, dm, dn)
        np.testing.assert_array_equal(y, padded[50 + dm : 58 + dm, 50 + dn : 90 + dn])
        z = np.zeros((110, 150), np.float32)
        w = np.zeros((10, 50), np.float32)
        put[1](x[:8, :40].copy(), w, dm, dn)
        z[50 + dm : 58 + dm, 50 + dn : 90 + dn] = x[:8, :40]
        np.testing.assert_array_equal(w, z[50:60, 50:100])


def test_bf16_rounds_to_nearest_even(rng: np.random.Generator) -> None:
    @tw.kernel
    def narrow(X, Y):
        i = tw.program_id(0) * 64
        x = tw.load_tile(tw.init_tile(X, [i], (1, 64)))
        tw.store_tile(x.to(Y.dtype), tw.init_tile(Y, [i], (1, 64)))

    bits = rng.integers(0, 2**32, 5000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    for dtype in (ml_dtypes.bfloat16, np.float16):
        y = np.zeros(x.shape, dtype)
        with np.errstate(over="ignore"):
            want = x.astype(dtype)
        narrow[tw.cdiv(len(x), 64)](x, y)
        np.testing.assert_array_equal(y.view(np.uint16), want.view(np.uint16))


@tw.kernel
def wide_rows(X, Y, LEVELS: tw.constexpr, BN: tw.constexpr, BM: tw.constexpr = 8):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    y = x * 2.0
    if LEVELS > 1:
        y = x - tw.max(x, 1)
    if LEVELS > 2:
        y = y * 2.0 - tw.min(y, 1)
    tw.store_tile(y, tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize("levels, width", [(1, 2304), (1, 272), (1, 208), (2, 2304), (3, 2304)])
@pytest.mark.parametrize("start", [0, 1, 7, 16])
def test_results_that_stream_past_the_cache(
    rng: np.random.Generator, start: int, levels: int, width: int
) -> None:
    """Large enough for streaming stores; rows that start and end at every phase of a cache line (short ones, also of
    a wide tile at the edge, stream where they start with one), blocks of rows and columns that are cut off, levels of
    successive rows that overlap."""
    rows, cols, pitch = 1301, 3635, 3700
    x = rng.standard_normal((rows, pitch)).astype(np.float32)[:, :cols]
    memory = np.full((rows + 1) * pitch, np.nan, np.float32)
    y = memory[start : start + rows * pitch].reshape(rows, pitch)[:, :cols]
    assert rows * pitch * 4 >= 16 << 20
    wide_rows[tw.cdiv(rows, 8), tw.cdiv(cols, width)](x, y, levels, width)
    want = np.empty_like(x)
    for n in range(0, cols, width):
        part = np.zeros((rows, width), np.float32)
        part[:, : min(width, cols - n)] = x[:, n : n + width]
        result = 2 * part
        if levels > 1:
            result = part - part.max(1, keepdims=True)
        if levels > 2:
            result = result * 2 - result.min(1, keepdims=True)
        want[:, n : n + width] = result[:, : cols - n]
    np.testing.assert_array_equal(y, want)
    outside = np.ones(memory.shape, bool)
    outside[start : start + rows * pitch].reshape(rows, pitch)[:, :cols] = False
    assert np.isnan(memory[outside]).all()


@tw.kernel
def neighbours(X, Y, M, LEFT: tw.constexpr = 1, BM: tw.constexpr = 4, BN: tw.constexpr = 128):
    """What stands `LEFT` columns before and one behind, added; and its maxima by rows of tiles."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    before = tw.load_tile(tw.init_tile(X, [m, n - LEFT], (BM, BN))).to(tw.f32)
    after = tw.load_tile(tw.init_tile(X, [m, n + 1], (BM, BN))).to(tw.f32)
    sums = before + after
    tw.store_tile(sums.to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))
    tw.store_tile(tw.max(sums, 1), tw.init_tile(M, [m, tw.program_id(1)], (BM, 1)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("left", [1, 37, 200])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_begin_outside_of_their_array(
    rng: np.random.Generator, dtype: str, left: int, level: str
) -> None:
    """Vectors that are inside need no masks, though the first ones are not."""
    kind = numpy_type(dtype)
    for cols in (1, 100, 128, 300):
        x = rng.standard_normal((6, cols)).astype(kind)
        y = np.full(x.shape, np.nan).astype(kind)
        tiles = tw.cdiv(cols, 128)
        top = np.full((6, tiles), np.nan, np.float32)
        k = neighbours.options(target="cpu", machine=level)
        k[2, tiles](x, y, top, LEFT=left)
        wide = np.zeros((6, tiles * 128 + left + 1), np.float32)
        wide[:, left : left + cols] = x
        want = wide[:, : tiles * 128].copy()
        want[:, : cols - 1] += x[:, 1:]
        np.testing.assert_array_equal(y.astype(np.float32), want[:, :cols].astype(kind))
        np.testing.assert_array_equal(top, want.reshape(6, tiles, 128).max(2))


def test_rows_end_with_their_array(rng: np.random.Generator) -> None:
    """Tiles wider than what is stored take no turns for the rest; rows of two vectors have masks at their ends only."""

    @tw.kernel
    def doubled(X, Y, BN: tw.constexpr):
        m = tw.program_id(0) * 4
        tw.store_tile(
            tw.load_tile(tw.init_tile(X, [m, 0], (4, BN))) * 2, tw.init_tile(Y, [m, 0], (4, BN))
        )

    x = rng.standard_normal((9, 70)).astype(np.float32)
    for columns in (70, 65, 3):
        y = poison(9, columns)
        doubled.options(target="cpu")[3](x, y, BN=1024)
        assert np.array_equal(y, x[:, :columns] * 2)
    body = doubled.compile(x, x.copy(), BN=1024, target="cpu").ir["mach"]
    assert not re.search(r"scf.for %\w+ = %\w+ to %c1024", body)
    level = levels_here()[-1]
    lanes = 8 if level == "avx2" else 16
    short = (
        doubled.options(machine=level).compile(x, x.copy(), BN=2 * lanes, target="cpu").ir["mach"]
    )
    assert re.search(r"mach.store %\w+, %\w+ : vector", short)


def test_only_vectors_at_the_edges_of_rows_have_masks() -> None:
    """The loop over four vectors at once, which are inside, begins with the first that is."""
    x, top = np.zeros((4, 128), np.float32), np.zeros((4, 1), np.float32)
    k = neighbours.options(target="cpu", machine="avx512")
    text = k.compile(x, np.zeros_like(x), top).ir["mach"]
    assert re.search(r"scf\.for %\w+ = %\d+ to %\d+ step %c64 ", text)


@tw.kernel
def around(X, Y, D: tw.constexpr = 1, BM: tw.constexpr = 4, BN: tw.constexpr = 64):
    """Sums of the 27 elements about each, `D` apart."""
    z, m, n = tw.program_id(2), tw.program_id(1) * BM, tw.program_id(0) * BN
    sums = tw.zeros((BM, BN), tw.f32)
    for k in tw.static_range(-1, 2):
        for i in tw.static_range(-1, 2):
            for j in tw.static_range(-1, 2):
                x = tw.init_tile(X, [z + k, m + i * D, n + j * D], (BM, BN))
                sums += tw.load_tile(x).to(tw.f32)
    tw.store_tile(sums.to(Y.dtype), tw.init_tile(Y, [z, m, n], (BM, BN)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("distance", [1, 33])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i8"])
def test_elements_about_each(
    rng: np.random.Generator, dtype: str, distance: int, level: str
) -> None:
    """Many rows and planes of one array at once, at edges and inside, under masks that they share; bf16 in pairs."""
    kind = numpy_type(dtype)
    for shape, width in (((3, 6, 150), 64), ((2, 5, 64), 64), ((1, 9, 300), 128), ((3, 4, 7), 16)):
        x = rng.integers(-4, 5, shape).astype(kind)
        y = np.full(shape, 99).astype(kind)
        grid = tw.cdiv(shape[2], width), tw.cdiv(shape[1], 4), shape[0]
        around.options(target="cpu", machine=level)[grid](x, y, D=distance, BN=width)
        wide = np.pad(x.astype(np.int64), ((1, 1), (distance,) * 2, (distance,) * 2))
        want = np.zeros(shape, np.int64)
        for k, i, j in np.ndindex(3, 3, 3):
            rows, columns = (
                slice(a * distance, a * distance + n) for a, n in ((i, shape[1]), (j, shape[2]))
            )
            want += wide[k : k + shape[0], rows, columns]
        np.testing.assert_array_equal(y.astype(np.int64), want)


def test_masks_at_the_edges_of_rows_share_their_places() -> None:
    """A loop over columns compares and clamps nothing, but for what the tile itself cuts; what stands beside another
    is told from its address."""
    x = np.zeros((4, 32, 256), np.float32)
    text = around.options(target="cpu", machine="avx512").compile(x, x.copy()).ir["mach"]
    loops = re.findall(r"scf\.for [^{]* step %c16 \{(?:(?!scf\.for).)*?\n +\}", text, re.DOTALL)
    masked = [each for each in loops if each.count("mach.masked_load") == 27]
    assert masked
    for each in masked:
        counts = {op: each.count(op) for op in ("mask_first", "minsi", "maxsi", "xori", "ptr_add")}
        assert counts == {"mask_first": 1, "minsi": 0, "maxsi": 0, "xori": 1, "ptr_add": 9 * 3 + 1}
