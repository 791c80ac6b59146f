"""Products of small tiles of batches: both operands are read where they lie, where the tiles lie in their arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.targets.cpu.test_structure import levels_here
from tilewright.codegen.native import host_architecture


@tw.kernel
def batch(A: Any, B: Any, C: Any, M: tw.constexpr, N: tw.constexpr, K: tw.constexpr):
    i = tw.program_id(0)
    a = tw.load_tile(tw.init_tile(A, [i, 0, 0], (M, K)))
    b = tw.load_tile(tw.init_tile(B, [i, 0, 0], (K, N)))
    tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [i, 0, 0], (M, N)))


@tw.kernel
def chained(A: Any, B: Any, C: Any, S: tw.constexpr):
    """Sums of products that are added to what is there."""
    i = tw.program_id(0)
    acc = tw.load_tile(tw.init_tile(C, [i, 0, 0], (S, S)))
    for j in range(3):
        a = tw.load_tile(tw.init_tile(A, [3 * i + j, 0, 0], (S, S)))
        b = tw.load_tile(tw.init_tile(B, [3 * i + j, 0, 0], (S, S)))
        acc = tw.tile_mma(a, b, acc) * 0.5
    tw.store_tile(acc, tw.init_tile(C, [i, 0, 0], (S, S)))


TYPES = [np.dtype(t) for t in (np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]


def random(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    return (rng.standard_normal(shape) * (20 if dtype == np.int8 else 1)).astype(dtype)


def inside(array: Any) -> Any:
    """The same elements, with NaN or -1 around each matrix."""
    count, rows, cols = array.shape
    wide = np.full(
        (count, rows + 2, cols + 3), -1 if array.dtype == np.int8 else np.nan, array.dtype
    )
    wide[:, 1:-1, 2:-1] = array
    return wide[:, 1:-1, 2:-1]


def sums_of(dtype: Any) -> Any:
    return np.int32 if dtype == np.int8 else np.float64 if dtype == np.float64 else np.float32


def close(got: Any, want: Any) -> None:
    got = got.astype(np.float64)
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "tile",
    [(16, 16, 16), (32, 32, 32), (64, 64, 64), (9, 16, 5), (40, 48, 33), (12, 8, 64), (20, 20, 20),
     (10, 10, 10), (7, 37, 15), (16, 16, 300), (20, 24, 513)],
)  # fmt: skip
def test_batches(rng: np.random.Generator, tile: Any, dtype: Any, level: str) -> None:
    m, n, k = tile
    kernel, sums = batch.options(target="cpu", machine=level), sums_of(dtype)
    for less in (0, 1):  # of the arrays than of the tile
        a = inside(random(rng, 5, m - less, k, dtype=dtype))
        b, c = random(rng, 5, k, n - less, dtype=dtype), poison(5, m - less, n - less, dtype=sums)
        kernel[5](a, b, c, M=m, N=n, K=k)
        close(c, a.astype(np.float64) @ b.astype(np.float64))
        a, b, c = a[:, :, : k - 1], inside(b[:, : k - 1]), poison(*c.shape, dtype=sums)
        kernel[5](a, b, c, M=m, N=n, K=k)
        close(c, a.astype(np.float64) @ b.astype(np.float64))


@tw.kernel
def looped(A: Any, B: Any, C: Any, M: tw.constexpr, N: tw.constexpr, BK: tw.constexpr):
    """How many k there are, the arrays say."""
    i = tw.program_id(0)
    acc = tw.zeros((M, N), C.dtype)
    for k in range(0, A.shape[2], BK):
        a = tw.load_tile(tw.init_tile(A, [i, 0, k], (M, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [i, k, 0], (BK, N))), acc)
    tw.store_tile(acc, tw.init_tile(C, [i, 0, 0], (M, N)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("tile", [(16, 16), (20, 40), (8, 48), (3, 24)])
def test_a_length_of_run_time(rng: np.random.Generator, tile: Any, dtype: Any, level: str) -> None:
    m, n = tile
    kernel, sums = looped.options(target="cpu", machine=level), sums_of(dtype)
    for k in (16, 31, 65, 0, 301):
        for less in (0, 3):
            a = inside(random(rng, 3, m - less, k, dtype=dtype))
            b = inside(random(rng, 3, k, n - less, dtype=dtype))
            c = poison(3, m - less, n - less, dtype=sums)
            kernel[3](a, b, c, M=m, N=n, BK=32)
            close(c, a.astype(np.float64) @ b.astype(np.float64))


@tw.kernel
def tall(A: Any, B: Any, C: Any, BM: tw.constexpr, K: tw.constexpr):
    m = tw.program_id(0) * BM
    a, b = (
        tw.load_tile(tw.init_tile(A, [m, 0], (BM, K))),
        tw.load_tile(tw.init_tile(B, [0, 0], (K, 16))),
    )
    tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [m, 0], (BM, 16)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES[2:4], ids=str)
def test_few_columns_have_one_order_on_any_number_of_threads(
    rng: np.random.Generator, dtype: Any, level: str
) -> None:
    """B is packed ahead where few threads read it; beside so few columns A would be added up along k otherwise."""
    a, b = random(rng, 96, 64, dtype=dtype), random(rng, 64, 16, dtype=dtype)
    found: set[bytes] = set()
    for threads in (1, 3, 16):
        c = poison(96, 16, dtype=sums_of(dtype))
        tall.options(target="cpu", machine=level, num_threads=threads)[6](a, b, c, BM=16, K=64)
        found.add(c.tobytes())
        close(c, a.astype(np.float64) @ b.astype(np.float64))
    assert len(found) == 1


def test_strides(rng: np.random.Generator) -> None:
    """A along its columns, B's rows far apart and close to one another, parts of arrays, more programs than batches."""
    kernel = batch.options(target="cpu")
    wide = random(rng, 4, 32, 5000)
    for b in (wide[:, :, 1000:1032], random(rng, 4, 40, 70)[:, 3:35, 5:37]):
        a, c = random(rng, 4, 32, 32).transpose(0, 2, 1), poison(4, 32, 32)
        kernel[6](a, b, c, M=32, N=32, K=32)
        close(c, a.astype(np.float64) @ b)


@pytest.mark.parametrize("size", [16, 32, 48])
@pytest.mark.parametrize("dtype", TYPES[1:4], ids=str)
def test_sums_that_go_on(rng: np.random.Generator, dtype: Any, size: int) -> None:
    a, b = (random(rng, 6, size, size, dtype=dtype) for _ in range(2))
    c = random(rng, 2, size, size)
    want = c.astype(np.float64)
    for j in range(3):
        want = (want + a[j::3].astype(np.float64) @ b[j::3].astype(np.float64)) * 0.5
    chained.options(target="cpu")[2](a, b, c, S=size)
    close(c, want)


@tw.kernel
def rotated(XR: Any, XI: Any, FR: Any, FI: Any, Y: Any, M: tw.constexpr, N: tw.constexpr):
    """A sum of two products; the launch reads the factors so often that it packs them, or reads them where they lie."""
    m = tw.program_id(0) * M
    fr, fi = (tw.load_tile(tw.init_tile(f, [0, 0], (N, N))) for f in (FR, FI))
    xr, xi = (tw.load_tile(tw.init_tile(x, [m, 0], (M, N))) for x in (XR, XI))
    tw.store_tile(tw.tile_mma(xr, fi, tw.tile_mma(xi, fr)), tw.init_tile(Y, [m, 0], (M, N)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES[1:], ids=str)
def test_sums_that_go_on_have_one_order_on_any_number_of_threads(
    rng: np.random.Generator, dtype: Any, level: str
) -> None:
    xr, xi, fr, fi = (random(rng, *s, dtype=dtype) for s in [(45, 48)] * 2 + [(48, 48)] * 2)
    found: set[bytes] = set()
    for threads in (1, 2, 3, 7):
        y = poison(45, 48, dtype=sums_of(dtype))
        kernel = rotated.options(target="cpu", machine=level, num_threads=threads)
        kernel[3](xr, xi, fr, fi, y, M=16, N=48)
        found.add(y.tobytes())
        close(y, sum(x.astype(np.float64) @ f.astype(np.float64) for x, f in ((xr, fi), (xi, fr))))
    assert len(found) == 1


@pytest.mark.parametrize("dtype", TYPES[:4], ids=str)
def test_no_panel_is_packed(rng: np.random.Generator, dtype: Any) -> None:
    """Products that lie in their arrays are chosen at run time."""
    level = [*host_architecture().levels][-1]
    a, b = (random(rng, 3, 16, 16, dtype=dtype) for _ in range(2))
    c = poison(3, 16, 16, dtype=sums_of(dtype))
    kernel = batch.options(target="cpu", machine=level)
    text = kernel.compile(a, b, c, M=16, N=16, K=16).ir["mach"]
    if dtype == np.float32:
        assert "math.fma" in text and "func.call @tw_pack" not in text
    elif "amx" in text:
        body = text[text.index("func.func @tw_workgroup(") :]
        assert "x86.amx.tdp" in body.split("func.call @tw_pack")[0]


@tw.kernel
def batch_sums(A: Any, B: Any, C: Any, S: Any, M: tw.constexpr, N: tw.constexpr, K: tw.constexpr):
    """Also what all rows of the tile sum up to, those outside of the arrays too."""
    i = tw.program_id(0)
    a = tw.load_tile(tw.init_tile(A, [i, 0, 0], (M, K)))
    b = tw.load_tile(tw.init_tile(B, [i, 0, 0], (K, N)))
    c = tw.tile_mma(a, b)
    tw.store_tile(c, tw.init_tile(C, [i, 0, 0], (M, N)))
    tw.store_tile(tw.sum(c, 0), tw.init_tile(S, [i, 0], (1, N)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES[1:4], ids=str)
@pytest.mark.parametrize(
    "less", [(4, 4, 4), (1, 0, 3), (15, 15, 15), (0, 7, 0), (13, 0, 0)], ids=str
)
def test_tiles_beyond_their_arrays(
    rng: np.random.Generator, less: Any, dtype: Any, level: str
) -> None:
    """What lies around the parts of arrays is no number, and rows that are not there are zero."""
    m, n, k = (16 - by for by in less)
    around = np.full((2, 6, 20, 20), np.nan, dtype)
    a, b = around[0, :, 2 : 2 + m, 3 : 3 + k], around[1, :, 1 : 1 + k, 2 : 2 + n]
    a[:], b[:] = random(rng, 6, m, k, dtype=dtype), random(rng, 6, k, n, dtype=dtype)
    c, s = poison(6, m, n), poison(6, 16)
    kernel = batch_sums.options(target="cpu", machine=level)
    kernel[7](a, b, c, s, M=16, N=16, K=16)  # more programs than batches
    want = a.astype(np.float64) @ b.astype(np.float64)
    close(c, want)
    close(s[:, :n], want.sum(1))
    assert (s[:, n:] == 0).all()


@tw.kernel
def padded(A: Any, B: Any, C: Any, K: tw.constexpr, PAD: tw.constexpr):
    i = tw.program_id(0)
    a = tw.load_tile(tw.init_tile(A, [i, 0, 0], (16, K)), padding=PAD)
    b = tw.load_tile(tw.init_tile(B, [i, 0, 0], (K, 16)))
    tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [i, 0, 0], (16, 16)))


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", TYPES[1:4], ids=str)
def test_what_lies_behind_an_array_multiplies_too(
    rng: np.random.Generator, dtype: Any, level: str
) -> None:
    """Padding that is not zero has a product with the other operand's elements."""
    a, b = (random(rng, 4, 16, n, dtype=dtype) for n in (12, 16))
    c = poison(4, 16, 16)
    kernel = padded.options(target="cpu", machine=level)
    kernel[4](a, b, c, K=16, PAD=1)
    a, b = a.astype(np.float64), b.astype(np.float64)
    close(c, a @ b[:, :12] + b[:, 12:].sum(1, keepdims=True))


def test_the_code_of_a_product_does_not_grow_with_its_k():
    def products(k: int) -> int:
        arrays = (np.zeros((3, *shape), np.float32) for shape in ((16, k), (k, 16), (16, 16)))
        made = batch.compile(*arrays, M=16, N=16, K=k, target="cpu", machine="avx512")
        return made.ir["mach"].count("math.fma")

    assert products(16) == products(48) > 0


def test_what_is_left_of_k_behind_whole_tiles_is_a_turn_of_their_loop():
    """Four products of tiles for rows of A where they lie, four for panels of them, whatever k the arrays have:
    more than lies beside small tiles."""
    arrays = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((3, 64, 282), (3, 282, 64)))
    made = batch.compile(
        *arrays, np.zeros((3, 64, 64), np.float32), M=64, N=64, K=288, target="cpu", machine="amx"
    )
    assert made.ir["mach"].count("tdpbf16ps") == 8
