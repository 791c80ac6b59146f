"""Running combinations, first places and parts of values, beside numpy, on every target."""

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng

DTYPES = ("f4", "f2", "i4", "i2")


@tw.kernel
def running(X, S, P, BM: tw.constexpr, BN: tw.constexpr, AXIS: tw.constexpr, BACK: tw.constexpr):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)))
    tw.store_tile(tw.cumsum(x, AXIS, reverse=BACK), tw.init_tile(S, [m, 0], (BM, BN)))
    tw.store_tile(tw.cumprod(x, AXIS, reverse=BACK), tw.init_tile(P, [m, 0], (BM, BN)))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((8, 64), 1), ((4, 100), 1), ((32, 16), 0), ((1, 256), 1), ((5, 7), 0)],
    ids=str,
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_products_of_what_comes_before(target, shape, axis, dtype, back):
    bm, bn = shape
    x = fresh_rng().integers(-1, 2, (2 * bm, bn)).astype(dtype)
    s, p = poison(*x.shape, dtype=dtype), poison(*x.shape, dtype=dtype)
    running.options(target=target)[2](x, s, p, BM=bm, BN=bn, AXIS=axis, BACK=back)
    blocks = x.reshape(2, bm, bn)
    turned = np.flip(blocks, axis + 1) if back else blocks
    for made, ufunc in ((s, np.add), (p, np.multiply)):
        wanted = ufunc.accumulate(turned, axis + 1, dtype)
        wanted = np.flip(wanted, axis + 1) if back else wanted
        np.testing.assert_array_equal(made, wanted.reshape(x.shape))


def then(a0, b0, a1, b1):
    """Affine maps of integers, one after the other: they do not commute."""
    return a0 * a1, b0 * a1 + b1


@tw.kernel
def composed(
    A, B, Y, Z, BM: tw.constexpr, BN: tw.constexpr, AXIS: tw.constexpr, BACK: tw.constexpr
):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (BM, BN)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (BM, BN)))
    y, z = tw.associative_scan((a, b), AXIS, then, reverse=BACK)
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (BM, BN)))
    tw.store_tile(z, tw.init_tile(Z, [0, 0], (BM, BN)))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((4, 32), 1), ((3, 13), 1), ((16, 8), 0)], ids=str)
def test_any_associative_function_is_scanned_in_order(target, shape, axis, back):
    a, b = fresh_rng().integers(-3, 4, (2, *shape)).astype(np.int32)
    y, z = poison(2, *shape, dtype=np.int32)
    composed.options(target=target)[1](a, b, y, z, BM=shape[0], BN=shape[1], AXIS=axis, BACK=back)
    turned = [np.moveaxis(v, axis, 0)[:: -1 if back else 1] for v in (a, b)]
    made = [(turned[0][0], turned[1][0])]
    for following in zip(*(v[1:] for v in turned), strict=True):
        made.append(then(*made[-1], *following))
    for result, wanted in zip((y, z), zip(*made, strict=True), strict=True):
        wanted = np.moveaxis(np.stack(wanted[:: -1 if back else 1]), 0, axis)
        np.testing.assert_array_equal(result, wanted)


@tw.kernel
def places(X, HIGH, LOW, BM: tw.constexpr, BN: tw.constexpr, AXIS: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    high, low = tw.argmax(x, AXIS), tw.argmin(x, AXIS)
    tw.store_tile(high, tw.init_tile(HIGH, [0, 0], high.shape))
    tw.store_tile(low, tw.init_tile(LOW, [0, 0], low.shape))


@pytest.mark.parametrize("dtype", ("f4", "i4", "u1"))
@pytest.mark.parametrize("axis", [0, 1])
def test_first_places(target, axis, dtype):
    rng = fresh_rng()
    x = rng.integers(0, 5, (16, 32)).astype(dtype)  # many are alike
    if dtype == "f4":
        x[rng.integers(0, 16, 3), rng.integers(0, 32, 3)] = np.nan
    high, low = poison(2, *((1, 32) if axis == 0 else (16, 1)), dtype=np.int32)
    places.options(target=target)[1](x, high, low, BM=16, BN=32, AXIS=axis)
    np.testing.assert_array_equal(high, x.argmax(axis, keepdims=True))
    np.testing.assert_array_equal(low, x.argmin(axis, keepdims=True))


@tw.kernel
def moved(X, Y, Z, R: tw.constexpr, C: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (8, 64)))
    tw.store_tile(tw.roll(tw.roll(x, R, 0), C, 1), tw.init_tile(Y, [0, 0], (8, 64)))
    first, last = x[:, :32], x[:, 32:]
    rotated = tw.concat((-last, first), 1)
    tw.store_tile(tw.concat([rotated[4:], rotated[:-4]], 0), tw.init_tile(Z, [0, 0], (8, 64)))


@pytest.mark.parametrize("shifts", [(1, -5), (0, 16), (-3, 63), (8, 1)], ids=str)
@pytest.mark.parametrize("dtype", ("f4", "i2"))
def test_parts_change_places(target, shifts, dtype):
    x = fresh_rng().integers(-99, 99, (8, 64)).astype(dtype)
    y, z = poison(2, 8, 64, dtype=dtype)
    moved.options(target=target)[1](x, y, z, R=shifts[0], C=shifts[1])
    np.testing.assert_array_equal(y, np.roll(x, shifts, (0, 1)))
    turned = np.concatenate([-x[:, 32:], x[:, :32]], 1)
    np.testing.assert_array_equal(z, np.roll(turned, 4, 0))


@tw.kernel
def read_as(X, Y, N: tw.constexpr, T: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, N)))
    tw.store_tile(x.to(T, bitcast=True), tw.init_tile(Y, [0, 0], (4, N)))


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        ("f4", tw.i32),
        ("u4", tw.f32),
        ("f2", tw.u16),
        ("i2", tw.bf16),
        ("f8", tw.i64),
        ("i4", tw.u32),
    ],
    ids=str,
)
def test_the_same_bits_are_read_as_another_dtype(target, source, dtype):
    x = fresh_rng().integers(0, 256, (4, 32 * np.dtype(source).itemsize)).astype(np.uint8)
    x = x.view(source)
    y = poison(4, 32, dtype=dtype.numpy)
    read_as.options(target=target)[1](x, y, N=32, T=dtype)
    np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))
