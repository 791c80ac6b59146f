"""What is stored along the other dimension than it was loaded: blocks of lines, transposed in registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_structure import levels_here
from tilewright.targets.cpu.machine import STREAM_BYTES

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(t) for t in (np.int8, np.float16, BF16, np.int32, np.float32, np.float64)]

TILES = [(32, 32), (16, 128), (128, 16), (8, 8), (64, 4)]


@tw.kernel
def turned(X: Any, Y: Any, BM: tw.constexpr, BN: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(tw.transpose(x), tw.init_tile(Y, [n, m], (BN, BM)))


@tw.kernel
def copied(X: Any, Y: Any, BM: tw.constexpr, BN: tw.constexpr):
    """The lines of one of the arrays run the other way."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(x, tw.init_tile(Y, [m, n], (BM, BN)))


@tw.kernel
def mixed(X: Any, V: Any, B: Any, W: Any, C: Any, Y: Any, BM: tw.constexpr, BN: tw.constexpr):
    """Beside operands that lie as the result does, rows and columns that are repeated, and conversions."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.transpose(tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32))
    v = tw.load_tile(tw.init_tile(V, [n, m], (BN, BM))).to(tw.f32)
    b = tw.load_tile(tw.init_tile(B, [n, m], (BN, BM))).to(tw.f32)
    w = tw.load_tile(tw.init_tile(W, [0, m], (1, BM)))
    c = tw.load_tile(tw.init_tile(C, [n, 0], (BN, 1)))
    tw.store_tile((x * w + b - v * c).to(Y.dtype), tw.init_tile(Y, [n, m], (BN, BM)))


def surrounded(shape: tuple[int, int], dtype: Any, flip: bool = False) -> tuple[Any, Any]:
    """An array in the midst of another, whose bytes are all 0x55; columns side by side where `flip`."""
    rows, columns = shape[::-1] if flip else shape
    whole = np.full((rows + 2, (columns + 9) * np.dtype(dtype).itemsize), 0x55, np.uint8)
    part = whole.view(dtype)[1:-1, 3:-6]
    return whole, part.T if flip else part


def check(whole: Any, part: Any, expected: Any) -> None:
    """Every bit of the part, and nothing beside it."""
    size = part.dtype.itemsize
    bits = np.dtype(f"u{size}")
    np.testing.assert_array_equal(part.view(bits), np.asarray(expected).view(bits))
    part.view(bits)[:] = int.from_bytes(size * b"\x55", "little")
    assert (whole == 0x55).all(), "stores beyond the array"


def random(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Any:
    return (rng.standard_normal(shape) * 50).astype(dtype)


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_transposes(rng: np.random.Generator, dtype: Any, level: str) -> None:
    tile = TILES[rng.integers(len(TILES))]
    m, n = (int(rng.integers(1, 4)) * each - int(rng.integers(0, each)) for each in tile)
    x = random(rng, (m, n), dtype)
    whole, y = surrounded((n, m), dtype)
    k = turned.options(target="cpu", machine=level)
    k[tw.cdiv(m, tile[0]), tw.cdiv(n, tile[1])](x, y, BM=tile[0], BN=tile[1])
    check(whole, y, np.ascontiguousarray(x.T))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("which", ["load", "store"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_views_whose_columns_are_lines(
    rng: np.random.Generator, dtype: Any, which: str, level: str
) -> None:
    m, n = (int(v) for v in rng.integers(30, 150, 2))
    x = random(rng, (n, m), dtype).T if which == "load" else random(rng, (m, n), dtype)
    whole, y = surrounded((m, n), dtype, flip=which == "store")
    copied.options(target="cpu", machine=level)[tw.cdiv(m, 32), tw.cdiv(n, 64)](x, y, BM=32, BN=64)
    check(whole, y, x)


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", [TYPES[0], TYPES[1], TYPES[4]], ids=str)
def test_with_ops_between(rng: np.random.Generator, dtype: Any, level: str) -> None:
    tile, to = TILES[rng.integers(2)], (BF16, np.dtype(np.float32))[rng.integers(2)]
    m, n = (int(v) for v in rng.integers(20, 140, 2))
    x, b = random(rng, (m, n), dtype), random(rng, (n, m), dtype)
    v = random(rng, (m, n), dtype).T
    w, c = random(rng, (1, m), np.float32), random(rng, (n, 1), np.float32)
    whole, y = surrounded((n, m), to)
    k = mixed.options(target="cpu", machine=level)
    k[tw.cdiv(m, tile[0]), tw.cdiv(n, tile[1])](x, v, b, w, c, y, BM=tile[0], BN=tile[1])
    x, v, b, w, c = (each.astype(np.float64) for each in (x, v, b, w, c))
    exact = x.T * w + b - v * c
    scale = np.abs(x.T * w) + np.abs(b) + np.abs(v * c)
    error = np.abs(y.astype(np.float64) - exact) / np.maximum(scale, 1e-30)
    assert error.max() < (2.0**-8 if to == BF16 else 2.0**-22)
    check(whole, y, y.copy())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.dtype(np.int8), BF16, np.dtype(np.float32)], ids=str)
def test_large_results_pass_the_caches(rng: np.random.Generator, dtype: Any, threads: int) -> None:
    """Lines that begin anywhere, all alike or not, and matrices that end within a block."""
    m = int(rng.choice([4096, 4096 - 64, 4090])) // dtype.itemsize
    n = STREAM_BYTES // m // dtype.itemsize + int(rng.integers(70, 200))
    x = rng.integers(-100, 100, (m, n)).astype(dtype)
    space = np.zeros(n * m + 128, dtype)
    start = int(rng.integers(1, 65))
    y = space[start : start + n * m].reshape(n, m)
    k = turned.options(target="cpu", num_threads=threads)
    k[tw.cdiv(m, 64), tw.cdiv(n, 128)](x, y, BM=64, BN=128)
    bits = np.dtype(f"u{dtype.itemsize}")
    np.testing.assert_array_equal(y.view(bits), x.T.view(bits))
    assert not space[:start].any() and not space[start + n * m :].any(), "stores beyond the array"


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_nothing_is_gathered(dtype: Any) -> None:
    x, y = (np.zeros((256, 256), dtype) for _ in range(2))
    for kernel, a, b in ((turned, x, y), (copied, x.T, y), (copied, x, y.T)):
        text = kernel.compile(a, b, BM=64, BN=64, target="cpu").ir["mach"]
        assert "vector.shuffle" in text
        assert not any(word in text for word in ("gather", "scatter", "vector.insert "))


def test_strip_by_strip() -> None:
    """Blocks follow one another along the lines that are written, a strip of these at a time."""
    x = np.zeros((300, 500), np.float32)
    kernel = turned.options(target="cpu", machine="avx512")
    depth, found = 0, list[int]()
    for line in kernel.compile(x, x.T.copy(), BM=64, BN=64).ir["mach"].splitlines():
        depth += ("scf.for" in line) - (line.strip() == "}" and depth > 0)
        if "mach.store" in line and "vector<16xf32>" in line:
            found.append(depth)
    assert max(found) >= 3


def test_no_block_lies_behind_the_arrays() -> None:
    """Loops over what is left at the edges end with the result, not with the tile."""
    x, y = np.zeros((30, 50), np.int8), np.zeros((50, 30), np.int8).T
    kernel = copied.options(target="cpu", machine="avx512")
    text = kernel.compile(x, y, BM=2048, BN=1024).ir["mach"]
    loops = [line for line in text.splitlines() if "scf.for" in line]
    assert loops and not any(f"to %c{n} step" in line for line in loops for n in (1024, 2048))
