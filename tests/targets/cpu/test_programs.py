"""Programs of every kind on the cpu against the reference executor: reductions, products, control flow, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.arrays import poison

Array = np.ndarray[Any, np.dtype[Any]]


def both(
    kernel: Any, grid: Any, arrays: list[Array], outputs: list[int], **constexprs: Any
) -> list[tuple[Array, Array]]:
    """(cpu, reference) of every output; outputs are poisoned unless the kernel updates them in place."""
    results: list[list[Array]] = []
    for target in ("cpu", "reference"):
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
        kernel.options(target=target)[grid](*mine, **constexprs)
        results.append([mine[i] for i in outputs])
    return list(zip(*results, strict=True))


def close(pairs: list[tuple[Array, Array]], bound: float) -> None:
    for got, want in pairs:
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
            continue
        g, w = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
        g, w = np.nan_to_num(g), np.nan_to_num(w)
        assert np.linalg.norm(g - w) <= bound * max(np.linalg.norm(w), 1e-30)


# Reductions ---------------------------------------------------------------------------------------------------


@tw.kernel
def reduce_rows(X, Y, KIND: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)))
    tw.store_tile(tw.reduction(KIND, x, 1), tw.init_tile(Y, [m, 0], (BM, 1)))


@tw.kernel
def reduce_columns(X, Y, KIND: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr):
    n = tw.program_id(0) * BN
    x = tw.load_tile(tw.init_tile(X, [0, n], (BM, BN)))
    tw.store_tile(tw.reduction(KIND, x, 0), tw.init_tile(Y, [0, n], (1, BN)))


@tw.kernel
def reduce_runs(X, Y, Z, S: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    tw.store_tile(
        tw.reduction("add", x, 0, reduction_size=S), tw.init_tile(Y, [0, 0], (BM // S, BN))
    )
    tw.store_tile(
        tw.reduction("add", x, 1, reduction_size=S), tw.init_tile(Z, [0, 0], (BM, BN // S))
    )


FLOAT_KINDS = ["add", "mul", "minimumf", "maximumf", "minnumf", "maxnumf"]
INTEGER_KINDS = ["add", "mul", "minsi", "maxsi", "and", "or", "xor"]


@pytest.mark.parametrize("size", [(1, 1), (3, 17), (8, 64), (20, 100)])
@pytest.mark.parametrize("kind", FLOAT_KINDS)
def test_float_reductions(rng: np.random.Generator, kind: str, size: tuple[int, int]) -> None:
    m, n = size
    for dtype in (np.float32, np.float64):
        x = rng.uniform(0.5, 1.5, (m + 2, n)).astype(dtype)
        if kind not in ("add", "mul") and m > 3:
            x[1, n // 2] = np.nan
        y = poison(m + 2, 1, dtype=dtype)
        close(both(reduce_rows, tw.cdiv(m + 2, m), [x, y], [1], KIND=kind, BM=m, BN=n), 1e-6)
        x = x[:m]
        close(
            both(
                reduce_columns,
                2,
                [x, poison(1, n, dtype=dtype)],
                [1],
                KIND=kind,
                BM=m,
                BN=max(1, n // 2),
            ),
            1e-6,
        )


@pytest.mark.parametrize("size", [(1, 1), (3, 17), (8, 64)])
@pytest.mark.parametrize("kind", INTEGER_KINDS)
def test_integer_reductions(rng: np.random.Generator, kind: str, size: tuple[int, int]) -> None:
    m, n = size
    for dtype in (np.int8, np.int32, np.int64):
        x = rng.integers(-5, 6, (m, n)).astype(dtype)
        close(both(reduce_rows, 1, [x, poison(m, 1, dtype=dtype)], [1], KIND=kind, BM=m, BN=n), 0)
        close(
            both(reduce_columns, 1, [x, poison(1, n, dtype=dtype)], [1], KIND=kind, BM=m, BN=n), 0
        )


def test_partial_reductions(rng: np.random.Generator) -> None:
    x = rng.standard_normal((24, 36)).astype(np.float32)
    arrays = [x, poison(4, 36), poison(24, 6)]
    close(both(reduce_runs, 1, arrays, [1, 2], S=6, BM=24, BN=36), 1e-6)


@tw.kernel
def normalise(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)))
    mean = tw.sum(x, 1) / BN
    d = x - mean
    y = d * tw.rsqrt(tw.sum(d * d, 1) / BN + 1e-5)
    total = tw.sum(tw.sum(y * y, 1), 0)
    tw.store_tile(y / total, tw.init_tile(Y, [m, 0], (BM, BN)))


@pytest.mark.parametrize("size", [(1, 7), (5, 33), (16, 128), (6, 300)])
def test_levels_of_reductions(rng: np.random.Generator, size: tuple[int, int]) -> None:
    m, n = size
    x = rng.standard_normal((2 * m, n)).astype(np.float32)
    close(both(normalise, 2, [x, poison(2 * m, n)], [1], BM=m, BN=n), 1e-5)


@tw.kernel
def in_place(X, BM: tw.constexpr, BN: tw.constexpr):
    m = tw.program_id(0) * BM
    t = tw.init_tile(X, [m, 0], (BM, BN))
    x = tw.load_tile(t)
    tw.store_tile(tw.exp(x - tw.max(x, 1)) + x, t)
    y = tw.load_tile(t)
    tw.store_tile(y * 2.0 - x, t)


@tw.kernel
def doubled_twice(X, Y, BN: tw.constexpr):
    m = tw.program_id(0) * 8
    a = tw.load_tile(tw.init_tile(X, [m, 0], (8, BN)))
    b = a * 0.5
    for _ in tw.static_range(40):
        a, b = a * 0.5 + b, b * 0.25 + a * 0.125
    tw.store_tile(a - tw.max(a, axis=1), tw.init_tile(Y, [m, 0], (8, BN)))


def test_values_that_share_all_that_they_are_computed_from(rng: np.random.Generator) -> None:
    """Of which a row waits for its maximum: 2^40 paths lead to what is loaded."""
    x, y = rng.standard_normal((16, 256)).astype(np.float32), poison(16, 256)
    doubled_twice.options(target="cpu")[2](x, y, BN=256)
    a = x.astype(np.float64)
    b = a * 0.5
    for _ in range(40):
        a, b = a * 0.5 + b, b * 0.25 + a * 0.125
    want = a - a.max(axis=1, keepdims=True)
    assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)


def test_in_place_updates_keep_program_order(rng: np.random.Generator) -> None:
    x = rng.standard_normal((10, 90)).astype(np.float32)
    close(both(in_place, 3, [x], [0], BM=4, BN=90), 1e-6)


# Products -----------------------------------------------------------------------------------------------------


TYPES = [
    *(("f64", "f64"), ("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f8e4m3", "f32")),
    *(("f8e5m2", "f32"), ("i8", "i32"), ("u8", "i32")),
]


@pytest.mark.parametrize("tile", [(64, 64, 32), (24, 40, 16), (1, 8, 8), (8, 1, 4), (256, 32, 64)])
@pytest.mark.parametrize("types", TYPES, ids=lambda t: t[0])
def test_products(
    rng: np.random.Generator, types: tuple[str, str], tile: tuple[int, int, int]
) -> None:
    dtype, acc = getattr(tw, types[0]), getattr(tw, types[1])
    bm, bn, bk = tile
    for m, n, k in [(bm, bn, bk), (bm + 3, 2 * bn + 1, 3 * bk + 5), (1, 1, 1)]:
        if types[0] in ("i8", "u8"):
            info = np.iinfo(dtype.numpy)
            a, b = (
                rng.integers(info.min, info.max + 1, s).astype(dtype.numpy)
                for s in ((m, k), (k, n))
            )
        else:
            a, b = (rng.standard_normal(s).astype(dtype.numpy) for s in ((m, k), (k, n)))
        c = poison(m, n, dtype=acc.numpy)
        product[tw.cdiv(m, bm), tw.cdiv(n, bn)](a, b, c, BM=bm, BN=bn, BK=bk, ACC=acc)
        if types[0] in ("i8", "u8"):
            np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
        else:
            want = a.astype(np.float64) @ b.astype(np.float64)
            assert np.linalg.norm(c - want) <= (
                1e-12 if types[0] == "f64" else 1e-5
            ) * np.linalg.norm(want)


@pytest.mark.parametrize("views", ["TN", "NT", "TT", "strided"])
def test_products_of_views(rng: np.random.Generator, views: str) -> None:
    m, n, k = 70, 90, 50
    if views == "strided":
        a, b = (
            rng.standard_normal((2 * m, 3 * k))[::2, ::3],
            rng.standard_normal((k, 2 * n))[:, ::2],
        )
    else:
        a = rng.standard_normal((k, m)).T if views[0] == "T" else rng.standard_normal((m, k))
        b = rng.standard_normal((n, k)).T if views[1] == "T" else rng.standard_normal((k, n))
    c = poison(m, n, dtype=np.float64)
    product[2, 2](a, b, c, BM=64, BN=64, BK=32, ACC=tw.f64)
    np.testing.assert_allclose(c, a @ b, rtol=1e-9, atol=1e-9)


@tw.kernel
def overlapping(A, B, C):
    """Writes into the array that it reads: nothing may be packed ahead."""
    a = tw.load_tile(tw.init_tile(A, [0, 0], (16, 16)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (16, 16)))
    x = tw.tile_mma(a, b)
    tw.store_tile(x, tw.init_tile(C, [0, 0], (16, 16)))
    c = tw.load_tile(tw.init_tile(A, [0, 0], (16, 16)))
    tw.store_tile(tw.tile_mma(c, b, x), tw.init_tile(C, [16, 0], (16, 16)))


def test_products_of_what_was_just_written(rng: np.random.Generator) -> None:
    x = rng.standard_normal((32, 16)).astype(np.float32)
    b = rng.standard_normal((16, 16)).astype(np.float32)
    x1, x2 = x.copy(), x.copy()
    overlapping[1](x1, b, x1)
    first = x2[:16] @ b
    np.testing.assert_allclose(x1[:16], first, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(x1[16:], first @ b + first, rtol=2e-4, atol=1e-3)


@tw.kernel
def chained(A, B, D, C, BM: tw.constexpr = 24, BN: tw.constexpr = 40, BK: tw.constexpr = 16):
    m = tw.program_id(0) * BM
    a = tw.load_tile(tw.init_tile(A, [m, 0], (BM, BK)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (BK, BN)))
    d = tw.load_tile(tw.init_tile(D, [0, 0], (BM, BN)))
    h = tw.maximum(tw.tile_mma(a, b), 0.0)
    g = tw.tile_mma(tw.transpose(h), d)
    tw.store_tile(tw.transpose(g), tw.init_tile(C, [m * 2, 0], (BN, BN)))


def test_computed_and_transposed_operands(rng: np.random.Generator) -> None:
    a, b, d = (rng.standard_normal(s).astype(np.float32) for s in ((24, 16), (16, 40), (24, 40)))
    c = poison(40, 40)
    chained[1](a, b, d, c)
    h = np.maximum(a.astype(np.float64) @ b, 0)
    np.testing.assert_allclose(c, (h.T @ d).T, rtol=1e-4, atol=1e-3)


# Control flow -------------------------------------------------------------------------------------------------


@tw.kernel
def carried(X, Y, n, BM: tw.constexpr = 12, BN: tw.constexpr = 40):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    a, b = x, x * 0.5
    top = tw.full((BM, 1), -100.0, tw.f32)
    for i in range(n):
        a, b = b + 1.0, a - b
        top = tw.maximum(top, tw.max(a, 1))
        if i % 2 == 1:
            b = b * 0.5 - top
        else:
            a = a + tw.transpose(tw.transpose(b))
    tw.store_tile(a + b * top, tw.init_tile(Y, [0, 0], (BM, BN)))


def test_loops_that_swap_tiles_and_branch(rng: np.random.Generator) -> None:
    x = rng.standard_normal((12, 40)).astype(np.float32)
    for n in (0, 1, 2, 5):
        close(both(carried, 1, [x, poison(12, 40), n], [1]), 1e-5)


@tw.kernel
def newton(X, Y, limit, BN: tw.constexpr = 48):
    i = tw.program_id(0) * BN
    x = tw.load_tile(tw.init_tile(X, [i], (1, BN)), padding=1.0)
    y = x
    rounds = 0
    while rounds < limit:
        y = 0.5 * (y + x / y)
        rounds += 1
    tw.store_tile(y, tw.init_tile(Y, [i], (1, BN)))


def test_while_with_tiles(rng: np.random.Generator) -> None:
    x = rng.uniform(1, 4, 100).astype(np.float32)
    for limit in (0, 6):
        close(both(newton, 3, [x, poison(100), limit], [1]), 1e-6)


@tw.kernel
def walking(X, Y, BM: tw.constexpr = 8, BN: tw.constexpr = 32):
    t = tw.init_tile(X, [0, 0], (BM, BN))
    u = tw.init_tile(Y, [0, 0], (BM, BN))
    s = tw.zeros((BM, BN), tw.f32)
    for i in range(5):
        s = s * 0.5 + tw.load_tile(t)
        tw.store_tile(s, u)
        if i % 2 == 0:
            t = tw.update_tile_offset(t, [BM, 3])
        else:
            t = tw.update_tile_offset(t, [-2, BN])
        u = tw.update_tile_offset(u, [BM - 1, 0])


def test_tiles_that_walk_through_branches(rng: np.random.Generator) -> None:
    x = rng.standard_normal((40, 110)).astype(np.float32)
    close(both(walking, 1, [x, np.zeros((50, 32), np.float32)], [1]), 1e-6)


# Memory -------------------------------------------------------------------------------------------------------


@tw.kernel
def histogram(X, H, N: tw.constexpr = 64):
    i = tw.program_id(0) * N
    x = tw.load_tile(tw.init_tile(X, [i], (1, N)), padding=-1)
    old = tw.atomic_rmw("addi", tw.full((1, N), 1, tw.i32), tw.init_tile(H, x))
    tw.static_assert(old.shape == (1, N))


def test_scattered_atomics(rng: np.random.Generator) -> None:
    x = rng.integers(0, 10, 1000).astype(np.int64)
    h = np.zeros(10, np.int32)
    histogram[tw.cdiv(1000, 64)](x, h)
    np.testing.assert_array_equal(h, np.bincount(x, minlength=10))


@tw.kernel
def atomic(X, Y, O, KIND: tw.constexpr, BM: tw.constexpr = 4, BN: tw.constexpr = 20):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    old = tw.atomic_rmw(KIND, x, tw.init_tile(Y, [1, 2], (BM, BN)))
    tw.store_tile(old, tw.init_tile(O, [0, 0], (BM, BN)))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i8", "i32", "i64"])
def test_every_kind_of_atomic(rng: np.random.Generator, dtype: str) -> None:
    kinds = ["addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "assign"]
    if dtype.startswith("i"):
        kinds = ["addi", "muli", "maxs", "mins", "maxu", "minu", "ori", "andi", "xori", "assign"]
    element = getattr(tw, dtype).numpy
    for kind in kinds:
        x, y = (rng.integers(-4, 5, s).astype(element) for s in ((4, 20), (5, 25)))
        close(both(atomic, 1, [x, y, np.zeros((4, 20), element)], [1, 2], KIND=kind), 1e-6)


@tw.kernel
def shuffle_through_slm(X, Y, B: tw.constexpr = 24):
    m, n = tw.program_id(0) * B, tw.program_id(1) * B
    slm = tw.alloc_slm((2 * B, B), X.dtype)
    x = tw.load_tile(tw.init_tile(X, [m, n], (B, B)))
    tw.store_tile(x, tw.init_tile(slm, [0, 0], (B, B)))
    tw.store_tile(x + x, tw.init_tile(slm, [B, 0], (B, B)))
    tw.barrier()
    y = tw.load_tile(tw.init_tile(slm, [B // 2, 0], (B, B)))
    tw.barrier()
    tw.store_tile(y, tw.init_tile(slm, [0, 0], (B, B)))
    z = tw.transpose(tw.load_tile(tw.init_tile(slm, [0, 0], (B, B))))
    tw.store_tile(z, tw.init_tile(Y, [n, m], (B, B)))


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i8"])
def test_shared_memory(rng: np.random.Generator, dtype: str) -> None:
    element = getattr(tw, dtype).numpy
    x = rng.integers(-9, 9, (50, 70)).astype(element)
    close(both(shuffle_through_slm, (3, 3), [x, np.zeros((70, 50), element)], [1]), 0)


@tw.kernel
def gather_scatter(X, I, Y, N: tw.constexpr = 40):
    p = tw.program_id(0) * N
    i = tw.load_tile(tw.init_tile(I, [p], (1, N)), padding=-1)
    v = tw.load_gather(tw.init_tile(X, i), i % 3 != 0, padding=-5.0)
    tw.store_scatter(v * 2.0, tw.init_tile(Y, i + 1), i % 2 == 0)


def test_gather_and_scatter(rng: np.random.Generator) -> None:
    x = rng.standard_normal(300).astype(np.float32)
    i = rng.permutation(320)[:150].astype(np.int64)
    close(both(gather_scatter, 4, [x, i, np.zeros(310, np.float32)], [2]), 1e-6)


@tw.kernel
def batched(A, B, C, BM: tw.constexpr = 16, BN: tw.constexpr = 32):
    m, h = tw.program_id(0) * BM, tw.program_id(1)
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[3], 8):
        a = tw.load_tile(tw.init_tile(A, [h // 3, h % 3, m, k], (BM, 8)))
        b = tw.load_tile(tw.init_tile(B, [h % 3, k, 0], (8, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [h // 3, h % 3, m, 0], (BM, BN)))


def test_leading_dimensions(rng: np.random.Generator) -> None:
    a, b = (
        rng.standard_normal((2, 3, 20, 21)).astype(np.float32),
        rng.standard_normal((3, 21, 32)).astype(np.float32),
    )
    c = poison(2, 3, 20, 32)
    batched[2, 6](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
