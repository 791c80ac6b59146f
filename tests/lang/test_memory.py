"""Loads, stores, gathers, scatters, atomics."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lang.reference import ir, refused, run
from tilewright import dtypes
from tilewright.dialects.text import parse_module

HELD = [d for d in dtypes.ALL if d not in (tw.tf32, tw.index)]


@tw.kernel
def through(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (4, 8)))


@pytest.mark.parametrize("dtype", HELD, ids=str)
def test_every_dtype_moves_unchanged(dtype):
    bits = fresh_rng().integers(0, 2 if dtype is tw.i1 else 256, (4, 8 * dtype.itemsize))
    x = bits.astype(np.uint8).view(dtype.numpy)
    y = poison(4, 8, dtype=dtype.numpy)
    run(through, 1, x, y)
    np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))


@tw.kernel
def padded(X, Y, PAD: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)), padding=PAD)
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (2, 4)))


@pytest.mark.parametrize(
    ("dtype", "pad"),
    [
        (np.float32, float("-inf")),
        (np.float32, float("nan")),
        (ml_dtypes.bfloat16, 1.5),
        (np.int8, -128),
        (np.uint8, 255),
        (np.bool_, True),
        (np.float64, 0.1),
    ],
)
def test_padding(dtype, pad):
    y = poison(2, 4, dtype=dtype)
    run(padded, 1, np.zeros((1, 3), dtype), y, PAD=pad)
    expected = np.full((2, 4), pad).astype(dtype)
    expected[:1, :3] = 0
    np.testing.assert_array_equal(y, expected)


@tw.kernel
def stores(Y, n, s):
    tw.store_tile(2.5, tw.init_tile(Y, [0, 0], (1, 4)))
    tw.store_tile(n, tw.init_tile(Y, [1, 0], (1, 4)))
    tw.store_tile(s * 2, tw.init_tile(Y, [2, 0], (1, 4)))
    tw.store_tile(tw.arange(0, 4).to(Y.dtype), tw.init_tile(Y, [3, 0], (2, 4)))


def test_stored_numbers_scalars_and_rows():
    y = poison(5, 4, dtype=np.float16)
    run(stores, 1, y, 7, 0.5)
    assert y[:3, 3].tolist() == [2.5, 7, 1]
    np.testing.assert_array_equal(y[3:], [[0, 1, 2, 3]] * 2)


@tw.kernel
def gathers(X, Y, n):
    at = tw.arange(0, 8, axis=1, shape=(2, 8)) + 100 * tw.arange(0, 2, axis=0, shape=(2, 8))
    keep = at < n
    x = tw.load_gather(tw.init_tile(X, at), keep, padding=-1)
    tw.store_scatter(x * 2, tw.init_tile(Y, at), keep & (x > 2))


def test_masks_of_gather_and_scatter():
    x = np.arange(108, dtype=np.int32)
    y = np.full(108, -5, np.int32)
    run(gathers, 1, x, y, 104)
    expected = np.full(108, -5)
    expected[3:8] = x[3:8] * 2
    expected[100:104] = x[100:104] * 2
    np.testing.assert_array_equal(y, expected)


@tw.kernel
def atomics(X, Y, OLD, KIND: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    old = tw.atomic_rmw(KIND, x, tw.init_tile(Y, [0, 0], (2, 4)))
    tw.store_tile(old, tw.init_tile(OLD, [0, 0], (2, 4)))


FUNCTIONS = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "maxu": np.maximum,
    "ori": np.bitwise_or,
    "and": np.bitwise_and,
    "assign": lambda y, x: x,
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(k, t) for k in ("add", "mul", "max", "min", "assign") for t in ("f4", "i4", "u4", "i8")]
    + [("ori", "i4"), ("and", "u4"), ("maxu", "u4")],
)
def test_atomics(kind, dtype):
    rng = fresh_rng()
    x, y = (rng.integers(1, 100, (2, 4)).astype(dtype) for _ in range(2))
    before, old = y.copy(), poison(2, 4, dtype=dtype)
    run(atomics, 1, x, y, old, KIND=kind)
    np.testing.assert_array_equal(y, FUNCTIONS[kind](before, x))
    np.testing.assert_array_equal(old, before)


@tw.kernel
def histogram(X, H):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 8], (1, 8)), padding=-1)
    tw.atomic_rmw("add", 1, tw.init_tile(H, x), x >= 0)


def test_atomics_on_scattered_tiles():
    x = fresh_rng().integers(0, 5, 37).astype(np.int32)
    h = np.zeros(5, np.int32)
    run(histogram, 5, x, h)
    np.testing.assert_array_equal(h, np.bincount(x, minlength=5))


@tw.kernel
def hinted(X):
    t = tw.init_tile(X, [0, 0], (4, 8))
    tw.prefetch_tile(t, locality=1)
    tw.prefetch_tile(t, l1_hint="uncached", l2_hint="cached")
    x = tw.load_tile(t, l1_hint="streaming", l3_hint="cached")
    tw.store_tile(x, t, l1_hint="write_back")


def test_hints_stand_in_the_ir():
    text = ir(hinted, np.zeros((4, 8), np.float32))
    assert "locality" in text and "#xetile.cache_hint<streaming>" in text
    assert "l1_hint = #xetile.cache_hint<write_back>" in text


# --- Errors ------------------------------------------------------------------------------------


def test_a_fraction_is_not_stored_to_integers():
    text, under = refused(fraction, np.zeros((8, 8), np.int32))
    assert "0.5 cannot be combined with i32" in text and under == "0.5"


@tw.kernel
def fraction(X):
    tw.store_tile(0.5, tw.init_tile(X, [0, 0], (1, 1)))


@tw.kernel
def far(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 4)), padding=-1e30)
    tw.store_tile(tw.where(x > 1, x, 1e30), tw.init_tile(Y, [0, 0], (1, 4)))


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_numbers_beyond_a_type_are_infinite(dtype: type, target: str) -> None:
    """As in numpy and LLVM: 65519 is the last f16, 65520 is not."""
    x, y = np.array([[2, 0]], dtype), np.zeros((1, 4), dtype)
    far.options(target=target)[1](x, y)
    beyond = dtype(np.inf) if dtype is np.float16 else dtype(1e30)
    assert y.tolist() == [[2, beyond, beyond, beyond]]
    text = "builtin.module {\n  %0 = arith.constant 65520.0 : f16\n  %1 = arith.constant 65519.0 : f16\n}"
    printed = str(parse_module(text))
    assert "0x7c00" in printed and "6.550400e+04" in printed
