"""Matrix products, reductions, transposes, broadcasts."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.lang.reference import run


@tw.kernel
def gemm(
    A,
    B,
    C,
    BM: tw.constexpr = 16,
    BN: tw.constexpr = 24,
    BK: tw.constexpr = 8,
    ACC: tw.constexpr = tw.f32,
):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), ACC)
    for _k in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


MIXED = [
    (np.uint8, np.int8),
    (np.int8, np.uint8),
    (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
]


@pytest.mark.parametrize("left, right", MIXED)
def test_products_of_two_types(rng, left, right):
    """Bytes with and without signs, 8-bit floats of both kinds: run here, compiled for what is not here."""
    sizes = {"BM": 64, "BN": 32, "BK": 64}
    acc = tw.i32 if np.dtype(left).kind in "iu" else tw.f32
    a, b = (
        rng.integers(-128, 256, shape).astype(dtype)
        if acc is tw.i32
        else rng.standard_normal(shape).astype(dtype)
        for shape, dtype in (((70, 128), left), ((128, 48), right))
    )
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for target in ("reference", "cpu"):
        c = poison(70, 48, dtype=acc.numpy)
        gemm.options(target=target)[2, 2](a, b, c, ACC=acc, **sizes)
        if acc is tw.i32:
            np.testing.assert_array_equal(c, exact)
        else:
            assert np.linalg.norm(c - exact) < 1e-5 * np.linalg.norm(exact)
    for target in ("sm_80", "sm_90a", "xe-pvc", "xe-dg2"):
        gemm.options(target=target).compile(a, b, poison(70, 48, dtype=acc.numpy), ACC=acc, **sizes)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "acc", "out", "tolerance"),
    [
        (np.float32, tw.f32, np.float32, 1e-6),
        (np.float64, tw.f64, np.float64, 1e-14),
        (np.float16, tw.f32, np.float16, 1e-3),
        (np.float16, tw.f16, np.float16, 1e-2),
        (ml_dtypes.bfloat16, tw.f32, np.float32, 1e-6),
        (ml_dtypes.float8_e4m3fn, tw.f32, np.float32, 1e-6),
        (ml_dtypes.float8_e5m2, tw.f32, np.float32, 1e-6),
        (np.int8, tw.i32, np.int32, 0),
        (np.uint8, tw.i32, np.int32, 0),
    ],
)
def test_gemm(rng, dtype, acc, out, tolerance, transposed):
    m, n, k = rng.integers(1, 50, 3)
    if np.dtype(dtype).kind in "iu":
        low = np.iinfo(dtype).min
        a, b = (rng.integers(low, low + 255, s).astype(dtype) for s in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
    if transposed:
        b = np.ascontiguousarray(b.T).T
    c = poison(m, n, dtype=out)
    run(gemm, (tw.cdiv(int(m), 16), tw.cdiv(int(n), 24)), a, b, c, ACC=acc)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    if tolerance == 0:
        np.testing.assert_array_equal(c, exact)
    else:
        error = np.linalg.norm(c.astype(np.float64) - exact) / np.linalg.norm(exact)
        assert error < tolerance


@tw.kernel
def tf32_product(A, B, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (8, 8))).to(tw.tf32)
    b = tw.load_tile(tw.init_tile(B, [0, 0], (8, 8))).to(tw.tf32)
    tw.store_tile(tw.tile_mma(a, b) + (a + b - a - b), tw.init_tile(C, [0, 0], (8, 8)))


def test_tf32_is_asked_for_by_type(rng):
    a, b = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    c = poison(8, 8)
    run(tf32_product, 1, a, b, c)

    def rounded(x):
        bits = x.view(np.uint32)
        bits = bits + 0xFFF + ((bits >> 13) & 1)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)

    exact = rounded(a) @ rounded(b)
    assert np.linalg.norm(c - exact) / np.linalg.norm(exact) < 1e-6
    assert np.linalg.norm(c - a @ b) / np.linalg.norm(exact) > 1e-6


@tw.kernel
def reduce(X, Y, KIND: tw.constexpr, AXIS: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    if KIND == "sum":
        y = tw.sum(x, AXIS)
    elif KIND == "prod":
        y = tw.prod(x, AXIS)
    elif KIND == "max":
        y = tw.max(x, AXIS)
    elif KIND == "min":
        y = tw.min(x, AXIS)
    else:
        y = tw.reduction(KIND, x, AXIS)
    shape = (4 if AXIS in (1, -1) else 1, 8 if AXIS == 0 else 1)
    tw.static_assert(y.shape == shape)
    tw.store_tile(y, tw.init_tile(Y, [0, 0], shape))


NUMPY = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("kind", [*NUMPY, "xor", "maxnumf"])
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u1", "i8"])
def test_reductions(rng, dtype, kind, axis):
    if (kind == "xor" and dtype[0] == "f") or (kind == "maxnumf" and dtype[0] != "f"):
        pytest.skip("the kind is not for this dtype")
    x = rng.integers(0 if dtype == "u1" else -3, 4, (4, 8)).astype(dtype)
    functions = NUMPY | {"xor": np.bitwise_xor.reduce, "maxnumf": np.max}
    expected = functions[kind](x, axis=axis, keepdims=True)
    y = poison(*expected.shape, dtype=dtype)
    run(reduce, 1, x, y, KIND=kind, AXIS=axis)
    np.testing.assert_array_equal(y, expected.astype(dtype))


def test_max_and_min_of_nan_and_of_masks(rng):
    x = rng.standard_normal((4, 8)).astype(np.float32)
    x[2, 3] = np.nan
    y = poison(4, 1)
    run(reduce, 1, x, y, KIND="max", AXIS=1)
    np.testing.assert_array_equal(y[:, 0], x.max(1))
    x[1] = np.nan  # nothing but NaN: no number that was not there
    run(reduce, 1, x, y, KIND="maxnumf", AXIS=1)
    np.testing.assert_array_equal(y[:, 0], np.fmax.reduce(x, axis=1))
    mask = x > 0
    any_ = poison(1, 1, dtype=np.bool_)
    run(reduce, 1, mask, any_, KIND="max", AXIS=None)
    assert any_[0, 0] == mask.any()
    run(reduce, 1, mask, any_, KIND="min", AXIS=None)
    assert any_[0, 0] == mask.all()


@tw.kernel
def staged(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    y = tw.reduction("add", x, 1, reduction_size=4)
    y = tw.broadcast(y, 1, 8, broadcast_size=4)
    y = tw.broadcast(tw.sum(y, 0), 0, 4)
    tw.store_tile(tw.transpose(y), tw.init_tile(Y, [0, 0], (8, 4)))


def test_sizes_of_reduction_and_broadcast(rng):
    x = rng.integers(-9, 9, (4, 8)).astype(np.int32)
    y = poison(8, 4, dtype=np.int32)
    run(staged, 1, x, y)
    sums = x.reshape(4, 2, 4).sum(2).repeat(4, axis=1).sum(0, keepdims=True).repeat(4, axis=0)
    np.testing.assert_array_equal(y, sums.T)


@tw.kernel
def four_bits(X, W, S, C, BK: tw.constexpr = 32):
    acc = tw.zeros((16, 32), tw.f32)
    for k in range(0, X.shape[1], BK):
        x = tw.load_tile(tw.init_tile(X, [0, k], (16, BK)))
        w = tw.load_tile(tw.init_tile(W, [k, 0], (BK, 16)))
        w = tw.interleave(w << 4 >> 4, w >> 4).to(tw.f32)
        s = tw.load_tile(tw.init_tile(S, [k // BK, 0], (1, 32)))
        acc = tw.tile_mma(x, (w * s).to(X.dtype), acc)
    even, odd = tw.deinterleave(acc)
    tw.store_tile(even, tw.init_tile(C, [0, 0], (16, 16)))
    tw.store_tile(odd, tw.init_tile(C, [0, 16], (16, 16)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_of_four_bits_are_interleaved_on_the_way_to_a_product(rng, dtype):
    x = rng.standard_normal((16, 96)).astype(dtype)
    w = rng.integers(-8, 8, (96, 32))
    packed = ((w[:, 0::2] & 15) | (w[:, 1::2] << 4)).astype(np.uint8).view(np.int8)
    s = rng.uniform(0.5, 1.5, (3, 32)).astype(np.float32)
    c = poison(16, 32)
    run(four_bits, 1, x, packed, s, c)
    scaled = w.astype(np.float32) * s.repeat(32, 0)  # rounded twice, as the kernel does it
    exact = x.astype(float) @ scaled.astype(dtype).astype(float)
    got = np.stack([c[:, :16], c[:, 16:]], 2).reshape(16, 32)
    assert np.linalg.norm(got - exact) < 1e-6 * np.linalg.norm(exact)


@tw.kernel
def vectors(X, OUTER, ALL, M: tw.constexpr, N: tw.constexpr):
    """As Triton has it: one dimension, and [:, None] and [None, :] that say which."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (M, N)))
    i, j = tw.arange(M)[:, None], tw.arange(N)[None, :]
    row, column = tw.sum(x, 0)[None, :], tw.sum(x, 1)[:, None]
    where = tw.where(i >= j, column[None, :][:, None] - row[:, None][None, :], 0)
    tw.store_tile(where, tw.init_tile(OUTER, [0, 0], (M, N)))
    tw.store_tile(tw.sum(x) + tw.max(x) * tw.min(x) + tw.prod(tw.full((M, N), 1, X.dtype)),
                  tw.init_tile(ALL, [0], (1, 1)))  # fmt: skip


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_vectors_are_rows_or_columns(rng, target, dtype):
    m, n = (int(v) for v in rng.integers(1, 20, 2))
    x = rng.integers(-50, 50, (m, n)).astype(dtype)
    outer, one = poison(m, n, dtype=dtype), poison(1, dtype=dtype)
    vectors.options(target=target)[1](x, outer, one, M=m, N=n)
    np.testing.assert_array_equal(outer, np.tril(x.sum(1, keepdims=True) - x.sum(0)))
    np.testing.assert_array_equal(one, [x.sum() + x.max() * x.min() + 1])
