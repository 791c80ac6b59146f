"""Elementwise functions compute what numpy computes."""

import math

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lang.reference import ir, run

SHAPE = (4, 8)
UNARY = {
    tw.exp: np.exp,
    tw.exp2: np.exp2,
    tw.log: np.log,
    tw.log2: np.log2,
    tw.sqrt: np.sqrt,
    tw.rsqrt: lambda x: 1 / np.sqrt(x),
    tw.tanh: np.tanh,
    tw.erf: np.vectorize(math.erf),
    tw.sigmoid: lambda x: 1 / (1 + np.exp(-x)),
    tw.sin: np.sin,
    tw.cos: np.cos,
    tw.abs: np.abs,
    tw.floor: np.floor,
    tw.ceil: np.ceil,
    tw.round: np.rint,
    tw.trunc: np.trunc,
    tw.sinh: np.sinh,
    tw.cosh: np.cosh,
    tw.log10: np.log10,
}
NEAR_ZERO = {
    tw.expm1: np.expm1,
    tw.log1p: np.log1p,
    tw.tan: np.tan,
    tw.asin: np.arcsin,
    tw.acos: np.arccos,
}


@tw.kernel
def unary(X, Y, F: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    y = F(x)
    tw.static_assert(y.dtype == X.dtype)
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (4, 8)))


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [tw.f32, tw.f64, tw.f16, tw.bf16], ids=str)
def test_unary(function, dtype):
    x = fresh_rng().uniform(0.1, 4, SHAPE).astype(dtype.numpy)
    y = poison(*SHAPE, dtype=dtype.numpy)
    run(unary, 1, x, y, F=function)
    expected = UNARY[function](x.astype(np.float64))
    tolerance = max(4 * 2.0**-dtype.mantissa_bits, 1e-12)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("function", NEAR_ZERO, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_functions_have_their_digits_near_zero(target, function, dtype):
    rng = fresh_rng()
    x = (rng.uniform(-0.9, 0.9, SHAPE) * 10.0 ** rng.integers(-6, 1, SHAPE)).astype(dtype)
    y = poison(*SHAPE, dtype=dtype)
    unary.options(target=target)[1](x, y, F=function)
    exact = NEAR_ZERO[function](x.astype(np.float64))
    np.testing.assert_allclose(y, exact, rtol=2e-6 if dtype == "f4" else 1e-14)
    for gpu in ("sm_90a", "xe-pvc"):
        unary.options(target=gpu).compile(x, y, F=function)


@tw.kernel
def binary(X, Y, Z, n, CASE: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    y = tw.load_tile(tw.init_tile(Y, [0, 0], (1, 8)))
    if CASE == "maximum":
        z = tw.maximum(x, y)
    elif CASE == "minimum":
        z = tw.minimum(y, x)
    elif CASE == "clamp":
        z = tw.minimum(tw.maximum(x, n), 3)
    elif CASE == "where":
        z = tw.where(x > y, x, y * 2)
    elif CASE == "where row":
        z = tw.where(y > 0, x, 0)
    elif CASE == "where scalar":
        z = tw.where(n > 0, x, y)
    elif CASE == "fma":
        z = tw.fma(x, y, n)
    tw.store_tile(z, tw.init_tile(Z, [0, 0], (4, 8)))


NUMPY = {
    "maximum": lambda x, y, n: np.maximum(x, y),
    "minimum": lambda x, y, n: np.minimum(x, y),
    "clamp": lambda x, y, n: np.clip(x, n, 3),
    "where": lambda x, y, n: np.where(x > y, x, y * 2),
    "where row": lambda x, y, n: np.where(y > 0, x, 0),
    "where scalar": lambda x, y, n: x if n > 0 else np.broadcast_to(y, x.shape),
    "fma": lambda x, y, n: x * y + n,
}


@pytest.mark.parametrize("case", NUMPY)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u2"])
@pytest.mark.parametrize("n", [1, 0])
def test_binary(case, dtype, n):
    if case == "fma" and dtype[0] != "f":
        pytest.skip("fma is for floats")
    rng = fresh_rng()
    x, y = (rng.integers(0, 9, s).astype(dtype) for s in (SHAPE, (1, 8)))
    z = poison(*SHAPE, dtype=dtype)
    run(binary, 1, x, y, z, n, CASE=case)
    np.testing.assert_array_equal(z, NUMPY[case](x, y, n).astype(dtype))


def test_nan_wins():
    x = np.array([[np.nan, 1, -np.inf, 0] * 2] * 4, np.float32)
    y = np.array([[0, np.nan, 2, -0.0] * 2], np.float32)
    z = poison(*SHAPE)
    run(binary, 1, x, y, z, 0, CASE="maximum")
    np.testing.assert_array_equal(z, np.maximum(x, y))


@tw.kernel
def conversions(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    y = x.to(Y.dtype)
    tw.static_assert(y.dtype == Y.dtype)
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (4, 8)))


FLOATS = [tw.f64, tw.f32, tw.f16, tw.bf16, tw.f8e4m3, tw.f8e5m2]
WHOLE = [tw.i64, tw.i32, tw.i16, tw.i8, tw.u64, tw.u32, tw.u16, tw.u8, tw.i1]


@pytest.mark.parametrize("source", FLOATS + WHOLE, ids=str)
@pytest.mark.parametrize("target", FLOATS + WHOLE, ids=str)
def test_every_conversion(source, target):
    rng = fresh_rng()
    low = (
        0
        if (target.is_unsigned or source.is_unsigned) and (source.is_float or target.is_float)
        else -6
    )
    x = rng.integers(low, 7, SHAPE).astype(source.numpy)
    if source.is_float and target.is_float:
        x = rng.standard_normal(SHAPE).astype(source.numpy)
    y = poison(*SHAPE, dtype=target.numpy)
    run(conversions, 1, x, y)
    expected = x.astype(target.numpy)
    if not source.is_float and target.bits <= 16 and target.is_float:
        expected = x.astype(np.float32).astype(target.numpy)
    np.testing.assert_array_equal(y.view(np.uint8), expected.view(np.uint8))


@tw.kernel
def index_conversions(Y):
    i = tw.arange(0, 4, shape=(4, 4)) * 100
    tw.static_assert(i.dtype == tw.index)
    tw.store_tile(i.to(tw.i8), tw.init_tile(Y, [0, 0], (4, 4)))
    wide = i + tw.zeros((4, 4), tw.i32)
    tw.static_assert(wide.dtype == tw.i64)
    tw.static_assert((i + tw.zeros((4, 4), tw.f32)).dtype == tw.f64)


def test_index_is_i64_in_company():
    y = poison(4, 4, dtype=np.int8)
    run(index_conversions, 1, y)
    assert y[0].tolist() == [0, 100, -56, 44]


@tw.kernel
def strict(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    tw.store_tile(tw.exp(x) * 2 + 1, tw.init_tile(Y, [0, 0], (4, 8)))


def test_fast_arithmetic_can_be_switched_off():
    x = np.ones(SHAPE, np.float32)
    assert "fastmath<" in ir(strict, x, x)
    assert "fastmath<" not in ir(strict.options(fastmath=False), x, x)


@tw.kernel
def folds(Y, N: tw.constexpr):
    tw.store_tile(tw.exp2(N) + tw.maximum(N, 2) + tw.sqrt(4.0), tw.init_tile(Y, [0, 0], (1, 1)))
    tw.store_tile(tw.where(N > 2, 1.0, 2.0), tw.init_tile(Y, [0, 1], (1, 1)))


def test_numbers_fold():
    y = poison(1, 2)
    run(folds, 1, y, N=3)
    assert y.tolist() == [[13, 1]]
    assert "math." not in ir(folds, y, N=3)
