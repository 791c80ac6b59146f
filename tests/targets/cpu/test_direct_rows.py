"""Rows that few panels of the other side need are multiplied where they lie: of A all but the last of them and the end
of k, which are copied, of B all."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error
from tests.fences import fenced
from tests.targets.cpu.test_thin import LIMITS, RUNNABLE, random, thin_product
from tilewright.targets.cpu.machine import SHARED_BYTES


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_edge(rng, level, dtype):
    """Whole panels and parts, k that ends in a group, in the array (what follows is NaN) or with it, strided rows."""
    acc = tw.f64 if dtype == np.float64 else tw.f32
    run = thin_product.options(machine=level, target="cpu", num_threads=1)
    for bk in (16, 32):
        for _ in range(6):
            m, n, k = (int(rng.integers(low, high)) for low, high in ((9, 80), (33, 65), (40, 600)))
            n = n // 16 * 16 if rng.random() < 0.5 else n
            used = int(rng.integers(1, k + 1))
            end = min(-(-used // bk) * bk, k)
            wide, long = random(rng, (m, k + 7), dtype), random(rng, (k, n + 5), dtype)
            wide[:, end:], long[end:], long[:, n:] = np.nan, np.nan, np.nan
            a, b = wide[:, :k], long[:, :n]
            c = random(rng, (m, n), acc.numpy)
            want = c + a[:, :end].astype(np.float64) @ b[:end].astype(np.float64)
            run[tw.cdiv(m, 32), 1](a, b, c, used, ACC=acc, BM=32, BN=64, BK=bk)
            assert error(c, want) < LIMITS[np.dtype(dtype).name], (m, n, k, used, bk)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_part_of_a_panel_of_b(rng, level, dtype):
    """Behind groups of panels of any number, in one tile of columns or the last of two; what follows each row is NaN,
    or the next row, and behind the last one no memory."""
    run = thin_product.options(machine=level, target="cpu", num_threads=1)
    acc = tw.f64 if dtype == np.float64 else tw.f32
    for n in (1, 15, 23, 33, 50, 65, 103, 127, 150, *(int(x) for x in rng.integers(160, 385, 6))):
        m, k = (int(x) for x in rng.integers((9, 130), (65, 300)))
        a, b, c = (random(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        wide = np.pad(b, ((0, 0), (0, int(rng.integers(1, 40)))), constant_values=np.nan)
        want = c + a.astype(np.float64) @ b.astype(np.float64)
        for given in (wide[:, :n], fenced(b)):
            got = c.copy()
            run[1, tw.cdiv(n, 192)](a, given, got, k, ACC=acc, BM=64, BN=192, BK=32)
            assert error(got, want) < LIMITS[np.dtype(dtype).name], (m, n, k)


@tw.kernel
def least_of_rows(A, B, C, BM: tw.constexpr = 32, BN: tw.constexpr = 64):
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [tw.program_id(0) * BM, k], (BM, 32)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, 0], (32, BN))), acc)
    least = tw.min(acc, axis=1)
    tw.store_tile(least, tw.init_tile(C, [tw.program_id(0) * BM, 0], (BM, 1)))


@pytest.mark.parametrize("level", RUNNABLE)
def test_columns_of_a_tile_that_b_does_not_have_are_zero(rng, level):
    """Behind each row of B the next one follows, whose products are as large."""
    for n in (5, 18, 41, 63):
        a, b = -rng.random((60, 333), np.float32), 1 + rng.random((333, n), np.float32)
        c = np.full((60, 1), np.nan, np.float32)
        least_of_rows.options(machine=level, target="cpu", num_threads=1)[2](a, -b, c)
        assert not c.any(), n
        least_of_rows.options(machine=level, target="cpu", num_threads=1)[2](a, b, c)
        want = (a.astype(np.float64) @ b).min(axis=1, keepdims=True)
        assert error(c, want) < LIMITS["float32"], n


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pitch", [1024, 1027, 1057])
def test_rows_of_a_that_lie_along_columns(rng, level, dtype, pitch):
    """Elements one by one where a line of them serves two panels; rows that share sets of a cache are copied. The last
    panel is, too, and what lies around A is NaN."""
    run = thin_product.options(machine=level, target="cpu", num_threads=1)
    acc = tw.f64 if dtype == np.float64 else tw.f32
    for _ in range(3):
        m, n, k = (int(x) for x in rng.integers((9, 25, 10), (140, 193, 600)))
        long = np.full((k, pitch), np.nan, dtype)
        long[:, :m] = random(rng, (k, m), dtype)
        a, b, c = long[:, :m].T, random(rng, (k, n), dtype), random(rng, (m, n), dtype)
        want = c + a.astype(np.float64) @ b.astype(np.float64)
        run[tw.cdiv(m, 96), 1](a, b, c, k, ACC=acc, BM=96, BN=192, BK=32)
        assert error(c, want) < LIMITS[np.dtype(dtype).name], (m, n, k)


@tw.kernel
def least_of_columns(A, B, C, BM: tw.constexpr = 32, BN: tw.constexpr = 48):
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        b = tw.load_tile(tw.init_tile(B, [k, tw.program_id(0) * BN], (32, BN)))
        acc = tw.tile_mma(tw.load_tile(tw.init_tile(A, [0, k], (BM, 32))), b, acc)
    least = tw.min(acc, axis=0)
    tw.store_tile(least, tw.init_tile(C, [0, tw.program_id(0) * BN], (1, BN)))


@pytest.mark.parametrize("level", RUNNABLE)
def test_rows_of_a_tile_that_a_does_not_have_are_zero(rng, level):
    """Also those of the last panel's half that no micro-kernel computes."""
    for m in (17, 20, 23, 27, 29):
        a, b = 1 + rng.random((m, 300), np.float32), rng.random((300, 90), np.float32)
        c = np.full((1, 90), np.nan, np.float32)
        run = least_of_columns.options(machine=level, target="cpu", num_threads=1)
        run[2](a, b, c)
        assert not c.any(), m
        run[2](a, -b, c)
        want = -(a.astype(np.float64) @ b).max(axis=0, keepdims=True)
        assert error(c, want) < LIMITS["float32"], m


def compiled(m: int, n: int):
    a, b, c = (np.zeros(shape, np.float32) for shape in ((m, 512), (512, n), (m, n)))
    return thin_product.compile(a, b, c, 512, BM=m, BN=n, BK=32, target="cpu", machine="avx512")


def test_whole_panels_are_not_copied():
    """There is a loop over rows where they are, and one over panels: twice as many products as from panels alone."""
    found = [compiled(*tile).ir["mach"].count("math.fma") for tile in ((64, 96), (64, 256))]
    assert found == [288, 144]


def test_many_rows_are_multiplied_where_they_lie_beside_any_columns():
    """Each panel of them by all columns before the next, so no launch packs them ahead, however often it reads them.
    Panels of B lie block by block, as those that other tiles read."""
    for n in (64, 512):
        made = compiled(128, n)
        assert made.ir["mach"].count("math.fma") == 288
        (a,) = re.findall(r'"stage.pack"\(%A, %\w+, (%\w+)\)', made.ir["stage"])
        assert f"{a} = arith.constant 0 : index" in made.ir["stage"]
    found = [re.findall(r"depth = (\d+)", compiled(m, 64).ir["stage"]) for m in (128, 64)]
    assert found == [["256", "256"], ["128", "256"]]


def test_a_panel_of_b_that_many_rows_use_is_copied():
    """Rows of B share sets of the first cache, where a copy is read as often as there are panels of A; beside 256 rows
    the copy takes longer than that."""
    few, many = (compiled(m, 64).ir["mach"].count("arith.select") for m in (256, 512))
    assert many < few


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows(rng, level, dtype):
    """Rows and columns of whole and part panels, blocks of k of any depth, rows of B near one another or far apart,
    panels of A that are kept, sums that there are before; what lies behind the arrays is NaN."""
    run = thin_product.options(machine=level, target="cpu", num_threads=1)
    acc = tw.f64 if dtype == np.float64 else tw.f32
    for m, n, k, pitch in (
        (200, 100, 530, 0),
        (256, 96, 512, 32),
        (131, 77, 40, 5),
        (96, 200, 300, 2000),
    ):
        a, b = random(rng, (m, k + 3), dtype), random(rng, (k, n + pitch), dtype)
        a[:, k:], b[:, n:] = np.nan, np.nan
        a, b = a[:, :k], b[:, :n]
        for kept in (False, True):
            c = random(rng, (m, n), acc.numpy)
            want = c + a.astype(np.float64) @ b.astype(np.float64)
            panels = tw.prepack(a) if kept else None
            run[tw.cdiv(m, 128), tw.cdiv(n, 96)](a, b, c, k, ACC=acc, BM=128, BN=96, BK=32)
            del panels
            assert error(c, want) < LIMITS[np.dtype(dtype).name], (m, n, k, kept)


def test_addresses_of_rows_stay_in_registers():
    """Of eight rows where they lie, beside three panels of B, which are most of them."""
    loops = re.split(r"\n(?=\.L\w+:)", compiled(128, 48).asm["asm"])
    found = [each for each in loops if each.count("vfmadd") == 48]
    assert found and not any("%rsp" in each for each in found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_second_column_of_b(rng, dtype):
    """Whole panels, but their elements do not stand side by side: they are copied."""
    a, b = random(rng, (40, 200), dtype), random(rng, (200, 128), dtype)[:, ::2]
    c = random(rng, (40, 64), dtype)
    want = c + a.astype(np.float64) @ b.astype(np.float64)
    acc = tw.f64 if dtype == np.float64 else tw.f32
    run = thin_product.options(target="cpu", num_threads=1)
    run[2, 1](a, b, c, 200, ACC=acc, BM=32, BN=64, BK=32)
    assert error(c, want) < LIMITS[np.dtype(dtype).name]


def test_rows_of_b_are_fetched_from_where_they_are():
    """Those of the columns that come next, for groups of three, two and one panels: each line by one of the
    micro-kernels that use them, with both steps of a loop and that of what is left of it; few rows have micro-kernels
    of two heights."""

    def fetches(m: int, locality: int = 2) -> int:
        a, b, c = (np.zeros(shape, np.float32) for shape in ((m, 512), (512, 512), (m, 512)))
        made = thin_product.compile(
            a, b, c, 512, BM=m, BN=512, BK=32, target="cpu", machine="avx512"
        )
        return made.ir["mach"].count(f"locality = {locality}")

    assert [fetches(m) for m in (24, 64)] == [2 * 3 * 3, 3 * 3]
    assert fetches(16) == 0 < fetches(16, 3)  # no farther ahead than the first cache holds
    assert fetches(72) > 3 * 3  # of panels, in front of each micro-kernel


def test_rows_that_are_copied_next_are_fetched():
    """Beside narrow tiles, of which the second cache holds two blocks of k: for groups of three, two and one panels
    they are chosen, and their pitch, instead of the columns that come next, by micro-kernels of both heights. They are
    no more fetches."""

    def chosen(columns: int) -> tuple[int, int]:
        a, b, c = (np.zeros(shape, np.float32) for shape in ((24, 512), (512, 4096), (24, 4096)))
        made = thin_product.compile(
            a, b, c, 512, BM=24, BN=columns, BK=32, target="cpu", machine="avx512"
        )
        text = made.ir["mach"]
        return text.count("arith.select"), text.count("locality = 2")

    (narrow, fetches), (wide, same) = chosen(512), chosen(1024)
    assert (narrow - wide, fetches) == (2 * 3 * 2, same)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_b_in_a_large_array_are_copied(rng, dtype):
    """To the same bits; what is not used of the array is NaN."""
    rows = SHARED_BYTES // (64 * np.dtype(dtype).itemsize) + 1
    a, large = random(rng, (24, 300), dtype), np.full((rows, 64), np.nan, dtype)
    large[:300] = random(rng, (300, 64), dtype)
    wide = np.full((24, rows), np.nan, dtype)
    wide[:, :300] = a
    acc = tw.f64 if dtype == np.float64 else tw.f32
    run = thin_product.options(target="cpu", num_threads=1, machine=RUNNABLE[-1])
    copied, lying = (np.zeros((24, 64), dtype) for _ in range(2))
    run[1, 1](wide, large, copied, 300, ACC=acc, BM=32, BN=64, BK=30)
    run[1, 1](a, large[:300].copy(), lying, 300, ACC=acc, BM=32, BN=64, BK=30)
    assert np.array_equal(copied, lying)
    assert error(lying, a.astype(np.float64) @ large[:300]) < LIMITS[np.dtype(dtype).name]
    made = run.compile(a, large, lying, 300, ACC=acc, BM=32, BN=64, BK=30)
    assert f"{SHARED_BYTES}" in made.ir["mach"]


@tw.kernel
def shifted_product(
    A, B, C, a0, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr, LO: tw.constexpr
):  # fmt: skip
    """C = A[:, a0 + LO...] B[LO...]: ranges of k start elsewhere in A than in B."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(LO, B.shape[0], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k + a0], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("start", [0, 37, 256])
@pytest.mark.parametrize("kept", ["", "a", "b", "ab"])
def test_ranges_of_k_that_start_within_a_block(rng, level, start, kept):
    run = shifted_product.options(machine=level, target="cpu", num_threads=1)
    for lo in (0, 64, 272):
        m, n, k = 515, 130, 700
        a, b = random(rng, (m, k + start), np.float32), random(rng, (k, n), np.float32)
        c = np.full((m, n), np.nan, np.float32)
        panels = [tw.prepack(x) for name, x in (("a", a), ("b", b)) if name in kept]
        want = a[:, start + lo :].astype(np.float64) @ b[lo:].astype(np.float64)
        run[tw.cdiv(m, 128), tw.cdiv(n, 96)](a, b, c, start, BM=128, BN=96, BK=16, LO=lo)
        assert error(c, want) < LIMITS["float32"], (start, lo)
        del panels


@tw.kernel
def repeated_product(A, B, C, T: tw.constexpr, BM: tw.constexpr = 128, BN: tw.constexpr = 64):
    """C = max over t < T of A B[t]."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    most = tw.zeros((BM, BN), tw.f32)
    for t in range(T):
        acc = tw.zeros((BM, BN), tw.f32)
        for k in range(0, A.shape[1], 32):
            a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32)))
            b = tw.load_tile(tw.init_tile(B, [t * A.shape[1] + k, n], (32, BN)))
            acc = tw.tile_mma(a, b, acc)
        most = tw.maximum(most, acc)
    tw.store_tile(most, tw.init_tile(C, [m, n], (BM, BN)))


def test_many_rows_that_a_loop_reads_again_come_from_panels(rng):
    """Each turn would read them a row apart; the model is asked the same."""
    a, b = random(rng, (256, 96), np.float32), random(rng, (3 * 96, 130), np.float32)
    c = np.full((256, 130), np.nan, np.float32)
    run = repeated_product.options(target="cpu", num_threads=1)
    run[2, 3](a, b, c, T=3)
    parts = [a.astype(np.float64) @ b[96 * t :][:96] for t in range(3)]
    assert error(c, np.maximum(0, np.maximum.reduce(parts))) < LIMITS["float32"]
    made = run.options(machine="avx512").compile(a, b, c, T=3).ir["stage"]
    (reads,) = re.findall(r'"stage.pack"\(%A, %\w+, (%\w+)\)', made)
    assert f"{reads} = arith.constant 0 : index" not in made
    assert made.count("depth = 128") == 1
