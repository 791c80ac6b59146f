"""Rearranging ops on a CPU: registers are shuffled where elements lie side by side."""

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.cpu.test_structure import levels_here
from tilewright.targets.cpu.machine import chosen


@tw.kernel
def zipped(A, B, C, D, BM: tw.constexpr, BN: tw.constexpr):
    at = [tw.program_id(0) * BM, tw.program_id(1) * BN]
    a = tw.load_tile(tw.init_tile(A, at, (BM, BN)))
    b = tw.load_tile(tw.init_tile(B, at, (BM, BN)))
    c = tw.interleave(a, b)
    tw.store_tile(c + c, tw.init_tile(C, [at[0], 2 * at[1]], (BM, 2 * BN)))
    even, odd = tw.deinterleave(a)
    tw.store_tile(even - odd, tw.init_tile(D, [at[0], at[1] // 2], (BM, BN // 2)))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32])
@pytest.mark.parametrize(("rows", "columns"), [(4, 64), (3, 16), (8, 24), (2, 2)])
def test_columns_in_turn(dtype, rows, columns):
    rng = fresh_rng()
    m, n = 2 * rows + 1, 3 * columns - columns // 2
    a, b = (rng.integers(-9, 9, (m, n)).astype(dtype) for _ in range(2))
    c, d = np.full((m, 2 * n), 77, dtype), np.full((m, n // 2), 77, dtype)
    zipped.options(target="cpu")[3, 3](a, b, c, d, BM=rows, BN=columns)
    np.testing.assert_array_equal(c[:, 0::2], a + a)
    np.testing.assert_array_equal(c[:, 1::2], b + b)
    pairs = a[:, : n // 2 * 2]
    np.testing.assert_array_equal(d, pairs[:, 0::2] - pairs[:, 1::2])


def test_no_element_is_moved_alone():
    arrays = [np.zeros((8, n), np.int8) for n in (64, 64, 128, 32)]
    text = zipped.compile(*arrays, target="cpu", BM=8, BN=64).ir["mach"]
    assert "vector.shuffle" in text and "vector.insert " not in text


@tw.kernel
def complex_product(A: Any, B: Any, C: Any, BM: tw.constexpr = 4, BN: tw.constexpr = 256):
    """Of pairs (re, im): rows of a kilobyte and more, which go past the caches where there are many."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    ar, ai = tw.deinterleave(tw.load_tile(tw.init_tile(A, [m, n], (BM, BN))))
    br, bi = tw.deinterleave(tw.load_tile(tw.init_tile(B, [m, n], (BM, BN))))
    product = tw.interleave(ar * br - ai * bi, ar * bi + ai * br)
    tw.store_tile(product, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_blocks_of_elements_that_go_past_the_caches(rng: np.random.Generator, dtype: Any) -> None:
    """Rows begin anywhere in a line; registers are shuffled, not put together from elements."""
    rows, columns = 70, (16 << 20) // 64 // np.dtype(dtype).itemsize + 6
    a, b, c = (rng.standard_normal(rows * columns + 1).astype(dtype) for _ in range(3))
    for start in (0, 1):
        x, y, z = (v[start : start + rows * columns].reshape(rows, columns) for v in (a, b, c))
        z[:] = np.nan
        kernel = complex_product.options(target="cpu")
        kernel[tw.cdiv(rows, 4), tw.cdiv(columns, 256)](x, y, z)
        p, q = (v[:, ::2] + 1j * v[:, 1::2] for v in (x, y))
        got, want = z[:, ::2] + 1j * z[:, 1::2], p * q
        assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)
        text = kernel.compile(x, y, z).ir["mach"]
        assert "vector.insert" not in text
        assert "nontemporal" in text or not chosen(None).has("avx512f")


@tw.kernel
def scaled(Q: Any, S: Any, Y: Any, G: tw.constexpr, BM: tw.constexpr = 4, BN: tw.constexpr = 256):
    """Numbers with a scale for each `G` of a row."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    s = tw.load_tile(tw.init_tile(S, [m, n // G], (BM, BN // G)))
    q = tw.load_tile(tw.init_tile(Q, [m, n], (BM, BN))).to(tw.f32)
    y = q * tw.broadcast(s, 1, BN, broadcast_size=G)
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize("run", [2, 8, 32, 128])
@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=str)
def test_runs_of_one_element_are_splats_or_shuffles(dtype: Any, run: int) -> None:
    rng = fresh_rng()
    q = rng.integers(-9, 9, (7, 900)).astype(np.int8)
    s = rng.integers(1, 9, (7, -(-900 // run))).astype(np.float32)
    y = np.full((7, 900), np.nan, dtype)
    kernel = scaled.options(target="cpu")
    kernel[2, 4](q, s, y, G=run)
    np.testing.assert_array_equal(y, q * np.repeat(s, run, 1)[:, :900])
    assert "vector.insert" not in kernel.compile(q, s, y, G=run).ir["mach"]


@tw.kernel
def doubled(X, Y, BM: tw.constexpr = 4, BN: tw.constexpr = 32):
    """Twice as many columns, of neighbours' means, some of them left of and above the array."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    here = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
    left = tw.load_tile(tw.init_tile(X, [m, n - 1], (BM, BN))).to(tw.f32)
    above = tw.load_tile(tw.init_tile(X, [m - 1, n], (BM, BN))).to(tw.f32)
    both = tw.interleave(here * 0.5 + left * 0.5, here * 0.5 + above * 0.5)
    tw.store_tile(both.to(Y.dtype), tw.init_tile(Y, [m, 2 * n], (BM, 2 * BN)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", [tw.f32, tw.bf16, tw.f16], ids=str)
@pytest.mark.parametrize("tile", [(4, 32), (2, 16), (8, 128)], ids=str)
def test_what_is_interleaved_is_inside_or_masked(rng, dtype, tile, level):
    for shape in ((1, 1), (7, 33), (16, 256), (9, 300)):
        x = rng.standard_normal(shape).astype(dtype.numpy)
        y = np.full((shape[0], 2 * shape[1]), np.nan).astype(dtype.numpy)
        grid = tw.cdiv(shape[0], tile[0]), tw.cdiv(shape[1], tile[1])
        doubled.options(target="cpu", machine=level)[grid](x, y, BM=tile[0], BN=tile[1])
        near = np.pad(x.astype(np.float32), ((1, 0), (1, 0)))
        here, left, above = near[1:, 1:], near[1:, :-1], near[:-1, 1:]
        want = np.stack([here * 0.5 + left * 0.5, here * 0.5 + above * 0.5], -1).reshape(y.shape)
        np.testing.assert_allclose(y.astype(np.float32), want, 1e-2, 1e-6)


def test_loads_below_an_interleave_are_read_without_masks():
    x = np.zeros((16, 256), np.float32)
    k = doubled.options(target="cpu", machine="avx512")
    text = k.compile(x, np.zeros((16, 512), np.float32)).ir["mach"]
    loops = [part.split("}")[0] for part in text.split("scf.for")]
    assert any(
        "interleave" in x or "shuffle" in x
        for x in loops
        if "mach.load" in x and "masked_load" not in x
    )


@tw.kernel
def in_one_row(X: Any, Y: Any, M: tw.constexpr = 8, N: tw.constexpr = 256):
    """Of a tile's rows behind one another; large results go past the caches."""
    i = tw.program_id(0)
    x = tw.load_tile(tw.init_tile(X, [i * M, 0], (M, N)))
    tw.store_tile(tw.reshape(x + x, -1), tw.init_tile(Y, [i, 0], (1, M * N)))


@pytest.mark.parametrize("dtype", [np.int8, np.float32], ids=str)
def test_rows_behind_one_another_are_read_by_registers(rng: np.random.Generator, dtype: Any):
    rows = (16 << 20) // 256 // np.dtype(dtype).itemsize
    x = rng.integers(-60, 60, (rows, 256)).astype(dtype)
    padded = np.full((rows // 8, 2048 + 3), 77, dtype)
    for y in (padded[:, 3:], np.full((rows // 8, 2048), 77, dtype)):
        kernel = in_one_row.options(target="cpu")
        kernel[rows // 8](x, y)
        np.testing.assert_array_equal(y, (x + x).reshape(y.shape))
        assert "vector.insert" not in kernel.compile(x, y).ir["mach"]
