"""A product that is stored as it is is written where it is stored, if the tile lies in the array, and k is one block or
the array is small."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error
from tests.targets.cpu.test_thin import RUNNABLE
from tilewright.targets.cpu.machine import STREAM_BYTES
from tilewright.targets.cpu.product_cost import BLOCK_BYTES


@tw.kernel
def product(A, B, C, BM: tw.constexpr, BN: tw.constexpr, ACC: tw.constexpr, SCALE: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], 32):
        a, b = tw.init_tile(A, [m, k], (BM, 32)), tw.init_tile(B, [k, n], (32, BN))
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
    tw.store_tile(acc * SCALE if SCALE != 1 else acc, tw.init_tile(C, [m, n], (BM, BN)))


def draw(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_inside_and_beyond(rng, level, dtype):
    """Tiles that lie in the array and tiles that do not, of rows in a longer array, k of none, one and several blocks;
    an A or B that ends before C does leaves zeros. Sums of several blocks are in small arrays and beside large ones."""
    acc = {"float32": tw.f32, "float64": tw.f64, "int8": tw.i32}[dtype]
    run = product.options(machine=level, target="cpu", num_threads=1)
    for _ in range(3):
        m, n = int(rng.integers(30, 140)), int(rng.integers(60, 220))
        k = int(rng.choice([0, rng.integers(1, 200), rng.integers(257, 1500)]))
        less_m, less_n = (int(x) for x in rng.integers(0, 40, 2))
        a, b = draw(rng, (m - min(less_m, m // 2), k), dtype), draw(rng, (k, n - less_n), dtype)
        wide = np.full((m, n + int(rng.choice([5, 8000]))), 77, acc.numpy)
        run[tw.cdiv(m, 32), tw.cdiv(n, 96)](a, b, wide[:, :n], BM=32, BN=96, ACC=acc, SCALE=1)
        want = np.zeros((m, n))
        want[: len(a), : n - less_n] = a.astype(np.float64) @ b.astype(np.float64)
        wrong, limit = np.linalg.norm(wide[:, :n] - want), 1e-6 if acc.is_float else 0
        assert wrong <= limit * np.linalg.norm(want), (m, n, k)
        assert (wide[:, n:] == 77).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tile", [(66, 100), (72, 90)])
def test_parts_of_k_are_added_beside_nothing(rng, tile, dtype):
    """By whole vectors, of which the last one of a row is none of the tile's (they went behind the array)."""
    (m, n), acc = tile, {"float32": tw.f32, "float64": tw.f64}[dtype]
    a, b = draw(rng, (m, 8000), dtype), draw(rng, (8000, n), dtype)
    wide = np.full((m, n + 20), 77, dtype)
    run = product.options(target="cpu", num_threads=8)
    run[1, 1](a, b, wide[:, :n], BM=m, BN=n, ACC=acc, SCALE=1)
    assert error(wide[:, :n], a.astype(np.float64) @ b) < 2e-6
    assert (wide[:, n:] == 77).all()


def test_an_operand_may_be_the_result(rng):
    """Nothing is summed where it is read."""
    a, b = draw(rng, (64, 96), "float32"), draw(rng, (96, 96), "float32")
    want = a.astype(np.float64) @ b
    product.options(target="cpu")[1, 1](a, b, a, BM=64, BN=96, ACC=tw.f32, SCALE=1)
    assert error(a, want) < 1e-6


def test_what_is_stored_as_it_is_has_one_address():
    """Chosen before the products, and a copy that is left out; with another op in between there is no choice."""

    def made(scale: int, off: Sequence[str] | str = ()) -> str:
        a, b, c = (np.zeros(s, np.float32) for s in ((256, 512), (512, 384), (256, 384)))
        options = {"machine": "avx512", "target": "cpu", "disable": off}
        args = {"BM": 64, "BN": 96, "ACC": tw.f32, "SCALE": scale}
        return product.options(**options).compile(a, b, c, **args).ir["mach"]

    direct, scaled, apart = made(1), made(2), made(1, "buffer-reuse")
    pointers = [text.count("arith.select") for text in (direct, scaled, apart)]
    assert pointers[0] > max(pointers[1:])
    assert direct.count("math.fma") == scaled.count("math.fma") == apart.count("math.fma")


@pytest.mark.parametrize("columns, again", [(32, False), (64, True)])
def test_sums_of_several_blocks_are_read_again_in_an_array_along_rows_of_four_lines(columns, again):
    """Beside narrower tiles other cores write the same lines."""
    a, b, c = (np.zeros(s, np.float32) for s in ((24, 512), (512, 256), (24, 256)))
    run = product.options(machine="avx512", target="cpu")
    text = run.compile(a, b, c, BM=24, BN=columns, ACC=tw.f32, SCALE=1).ir["mach"]
    assert (f"constant {BLOCK_BYTES} : index" in text) == again


def test_tiles_are_stored_in_an_array_whose_rows_begin_where_lines_do():
    """Elsewhere each of 16 rows is two lines: int8 3321 x 830 x 48 by 96 x 320 took 295 us on 16 threads, by tiles of
    1024 columns, which a buffer holds, 144. Vectors go along their rows."""

    def lines(level: str, dtype: str, scale: int) -> int:
        a, b = np.zeros((256, 512), dtype), np.zeros((512, 384), dtype)
        c = np.zeros((256, 384), np.float32 if dtype == "float32" else np.int32)
        acc = tw.f32 if dtype == "float32" else tw.i32
        run = product.options(machine=level, target="cpu")
        text = run.compile(a, b, c, BM=64, BN=96, ACC=acc, SCALE=scale).ir["mach"]
        return len(re.findall(r"andi .*%c63", text))

    assert lines("amx", "int8", 1) == lines("amx", "int8", 2) + 1
    assert lines("avx512", "float32", 1) == lines("avx512", "float32", 2)


@pytest.mark.parametrize("start", [0, 1, 16])
def test_results_that_are_large_together_with_operands(rng, start):
    """Half of what streams past the caches, and operands of as much again: tiles inside and at the edges, rows that
    start with a line and that do not, nothing outside."""
    m, n, k, pitch = 1100, 1000, 2100, 1024
    a, b = draw(rng, (m, k), "float32"), draw(rng, (k, n), "float32")
    memory = np.full((m + 1) * pitch, np.nan, np.float32)
    c = memory[start : start + m * pitch].reshape(m, pitch)[:, :n]
    assert c.nbytes < STREAM_BYTES / 2 < STREAM_BYTES < a.nbytes + b.nbytes + c.nbytes
    product.options(target="cpu")[tw.cdiv(m, 256), tw.cdiv(n, 256)](
        a, b, c, BM=256, BN=256, ACC=tw.f32, SCALE=0.5
    )
    assert error(c, (a.astype(np.float64) @ b.astype(np.float64)) / 2) < 1e-6
    inside = np.zeros(memory.shape, bool)
    inside[start : start + m * pitch].reshape(m, pitch)[:, :n] = True
    assert np.isnan(memory[~inside]).all()
