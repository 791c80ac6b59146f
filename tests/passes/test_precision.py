"""Bits that matter of approximate exponentials: read off what becomes of them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.cpu.test_structure import levels_here
from tilewright import ops

BF16, F16, F32 = tw.bf16.numpy, np.dtype(np.float16), np.dtype(np.float32)


@tw.kernel
def rows(X, Y, S, WITH_SUMS: tw.constexpr, SIGNED: tw.constexpr = False):  # pyright: ignore
    """Sums of exponentials that a loop carries, rescaled; their quotient; the sums themselves, if asked for."""
    m = tw.program_id(0) * 4
    total, top = tw.zeros((4, 1), tw.f32), tw.full((4, 1), -1e30, tw.f32)
    for n in range(0, X.shape[1], 64):
        x = tw.load_tile(tw.init_tile(X, [m, n], (4, 64))).to(tw.f32)
        new = tw.maximum(top, tw.max(x, 1))
        each = tw.exp(x - new)
        total = total * tw.exp(top - new) + tw.sum(each * x if SIGNED else each, 1)
        top = new
    for n in range(0, X.shape[1], 64):
        x = tw.load_tile(tw.init_tile(X, [m, n], (4, 64))).to(tw.f32)
        tw.store_tile((tw.exp(x - top) / total).to(Y.dtype), tw.init_tile(Y, [m, n], (4, 64)))
    if WITH_SUMS:
        tw.store_tile(total, tw.init_tile(S, [m, 0], (4, 1)))


def bits(dtype: Any, *flags: bool) -> list[int]:
    """Of the exponentials of `rows`, in order; 24 where nothing is said."""
    x, s = np.zeros((8, 256), dtype), np.zeros((8, 1), np.float32)
    text = rows.compile(x, x.copy(), s, *flags, target="cpu").ir["stage"]
    found = [line for line in text.splitlines() if "math.exp" in line]
    marks = [re.search(r"mach\.bits = (\d+)", line) for line in found]
    return [24 if m is None else int(m[1]) for m in marks]


def test_bits_follow_the_uses_through_loops() -> None:
    assert bits(BF16, False) == [8, 8, 8]
    assert bits(F16, False) == [11, 11, 11]
    assert bits(F32, False) == [24, 24, 24]


def test_what_is_kept_as_f32_or_may_cancel_is_computed_so() -> None:
    first, second, last = bits(BF16, True)
    assert (first, second) == (24, 24) and last == 8
    assert bits(BF16, False, True)[:2] == [24, 24]


@tw.kernel
def capped(X, Y, S, KEPT: tw.constexpr, CAP: tw.constexpr = 1.0):  # pyright: ignore
    """Shares by exponentials of capped numbers; S is the capped ones or their maxima, if asked for."""
    s = tw.tanh(tw.load_tile(tw.init_tile(X, [0, 0], (4, 64)))) * CAP
    top = tw.max(s, 1)
    each = tw.exp(tw.where(s > -1, s, -1e30) - top) if KEPT == "asked" else tw.exp(s - top)
    tw.store_tile((each / tw.sum(each, 1)).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 64)))
    if KEPT == "number":
        tw.store_tile(s, tw.init_tile(S, [0, 0], (4, 64)))
    if KEPT == "maximum":
        tw.store_tile(top, tw.init_tile(S, [0, 0], (4, 1)))


@pytest.mark.parametrize(
    "dtype, kept, may",
    [(BF16, "", True), (F16, "", True), (F32, "", False)]
    + [(BF16, kept, False) for kept in ("number", "maximum", "asked")],
)
def test_tangents_may_be_less_exact_in_exponents_alone(dtype: Any, kept: str, may: bool) -> None:
    x = np.zeros((4, 64), np.float32)
    text = capped.compile(x, x.astype(dtype), x, kept, target="sm_90a").ir["mach"]
    assert ("mach.absolute" in text) == may


@pytest.mark.parametrize("cap, may", [(50.0, True), (-1e6, False), (1e6, False)])
def test_tangents_times_large_constants_keep_a_relative_error(cap: float, may: bool) -> None:
    """Their arguments are small: an absolute error times 10^6 would be a hundredth of each share."""

    @tw.kernel
    def fixed(X, Y, CAP: tw.constexpr):  # pyright: ignore
        s = tw.tanh(tw.load_tile(tw.init_tile(X, [0, 0], (4, 64))) / CAP) * CAP
        each = tw.exp(s - tw.max(s, 1))
        tw.store_tile((each / tw.sum(each, 1)).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 64)))

    x = np.zeros((4, 64), np.float32)
    text = fixed.compile(x, x.astype(BF16), cap, target="sm_90a").ir["mach"]
    assert ("mach.absolute" in text) == may

    @tw.kernel
    def given(X, Y, cap):  # pyright: ignore
        s = tw.tanh(tw.load_tile(tw.init_tile(X, [0, 0], (4, 64))) / cap) * cap
        each = tw.exp(s - tw.max(s, 1))
        tw.store_tile((each / tw.sum(each, 1)).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 64)))

    text = given.compile(x, x.astype(BF16), cap, target="sm_90a").ir["mach"]
    assert "mach.absolute" not in text  # whatever a launch gives


@pytest.mark.parametrize("times, may", [(1, True), (8, True), (20, False), (None, False)])
def test_tangents_added_again_and_again_keep_a_relative_error(times: Any, may: bool) -> None:
    """2^20 small ones: an absolute error of each would be 4e-2 of a share."""

    @tw.kernel
    def summed(X, Y, TIMES: tw.constexpr):  # pyright: ignore
        s = tw.tanh(tw.load_tile(tw.init_tile(X, [0, 0], (4, 64))))
        if TIMES is None:
            total = tw.zeros((4, 64), tw.f32)
            for m in range(0, X.shape[0], 4):
                total = total + tw.tanh(tw.load_tile(tw.init_tile(X, [m, 0], (4, 64))))
            s = total
        else:
            for _ in tw.static_range(TIMES):
                s = s + s
        each = tw.exp(s - tw.max(s, 1))
        tw.store_tile((each / tw.sum(each, 1)).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 64)))

    x, y = np.zeros((400, 64), np.float32), np.zeros((4, 64), BF16)
    text = summed.compile(x, y, times, target="sm_90a").ir["mach"]
    assert ("mach.absolute" in text) == may


def test_conversions_of_what_was_not_approximate_stay_exact() -> None:
    @tw.kernel
    def convert(X, Y, EXP: tw.constexpr):  # pyright: ignore
        x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 64)))
        tw.store_tile((tw.exp(x) if EXP else x).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 64)))

    x, y = np.zeros((4, 64), np.float32), np.zeros((4, 64), BF16)
    for with_exp in (False, True):
        text = convert.compile(x, y, with_exp, target="cpu").ir["stage"]
        (line,) = (line for line in text.splitlines() if "arith.truncf" in line)
        assert ("afn" in line) == with_exp
    x[:] = np.linspace(1e-40, 1e-38, 64, dtype=np.float32)
    convert[1](x, y, False)
    assert np.array_equal(y, x.astype(BF16))


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_rows_are_as_good_as_with_every_bit(dtype: Any) -> None:
    x = (3 * fresh_rng().standard_normal((16, 500))).astype(dtype)
    wide = x.astype(np.float64)
    expected = np.exp(wide - wide.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    rounded = expected.astype(dtype).astype(np.float64) - expected
    found = ops.softmax(x, target="cpu").astype(np.float64) - expected
    assert np.linalg.norm(found) <= 1.1 * np.linalg.norm(rounded)


@tw.kernel
def complements(X, Y, OTHER: tw.constexpr = False, OF: tw.constexpr = tw.erf):  # pyright: ignore
    """x times 1 + erf x and 1 - erf 2x (or tanh), or what only looks like it."""
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 4, 0], (4, 64))).to(tw.f32)
    y = x * (2.0 + OF(x)) if OTHER else x * (1.0 + OF(x)) * (1.0 - OF(2.0 * x))
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [tw.program_id(0) * 4, 0], (4, 64)))


@pytest.mark.parametrize("dtype, said", [(BF16, 8), (F16, 11), (F32, None)])
def test_one_and_an_error_function_have_the_bits_of_what_they_become(dtype: Any, said: int) -> None:
    x = np.zeros((4, 64), dtype)
    text = complements.compile(x, x.copy(), target="cpu").ir["stage"]
    assert text.count("math.erfc") == (2 if said else 0)
    assert text.count("math.erf ") == (0 if said else 2)
    assert text.count(f"mach.bits = {said} ") == (2 if said else 0)
    assert "erfc" not in complements.compile(x, x.copy(), True, target="cpu").ir["stage"]
    text = complements.compile(x, x.copy(), False, tw.tanh, target="cpu").ir["stage"]
    assert text.count("math.exp ") == (2 if said else 0) and text.count("mach.bits") == (
        4 if said else 0
    )
    assert text.count("math.tanh") == (0 if said else 2)


@pytest.mark.parametrize("name", ["erf", "tanh"])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_small_sums_with_functions_are_as_good_as_rounded_ones(dtype: Any, name: str) -> None:
    """Relative to each result, far out where 1 + f(x) cancels, too: three quarters of a unit in the last place."""
    x = fresh_rng().uniform(-2.6, 2.2, (64, 64)).astype(dtype)
    y = np.full_like(x, np.nan)
    complements.options(target="cpu")[16](x, y, False, getattr(tw, name))
    wide = x.astype(np.float64)
    f = np.vectorize(getattr(math, name))
    expected = wide * (1 + f(wide)) * (1 - f(2 * wide))
    normal = np.abs(expected) > 2.0**-13
    error = np.abs(y.astype(np.float64) - expected)[normal] / np.abs(expected[normal])
    half = 2.0**-8 if dtype == BF16 else 2.0**-11
    assert normal.sum() > 1000 and error.max() <= 1.52 * half


@tw.kernel
def one_complement(X, Y):  # pyright: ignore
    at = [tw.program_id(0) * 4, 0]
    x = tw.load_tile(tw.init_tile(X, at, (4, 64))).to(tw.f32)
    y = 0.5 * x * (1.0 + tw.erf(x * 0.7071067811865476))
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, at, (4, 64)))


@pytest.mark.parametrize("scale", [0.1, 1, 8])
@pytest.mark.parametrize("machine", levels_here())
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_a_gelu_of_few_bits_is_as_good_as_a_rounded_one(
    dtype: Any, machine: str, scale: float
) -> None:
    """In its sum of squares, of small arguments and of those where 1 + erf is 2."""
    x = (scale * fresh_rng().standard_normal((256, 64))).astype(dtype)
    y = np.full_like(x, np.nan)
    one_complement.options(target="cpu", machine=machine)[64](x, y)
    wide = x.astype(np.float64)
    expected = 0.5 * wide * np.vectorize(math.erfc)(-wide / math.sqrt(2))
    rounded = expected.astype(dtype).astype(np.float64) - expected
    error = y.astype(np.float64) - expected
    assert np.linalg.norm(error) <= 1.05 * np.linalg.norm(rounded)


@tw.kernel
def quotients(X, Z, Y, BY: tw.constexpr = None):  # pyright: ignore
    """x / z, or x / BY."""
    at = [tw.program_id(0) * 4, 0]
    x = tw.load_tile(tw.init_tile(X, at, (4, 64))).to(tw.f32)
    z = tw.load_tile(tw.init_tile(Z, at, (4, 64))).to(tw.f32) if BY is None else BY
    tw.store_tile((x / z).to(Y.dtype), tw.init_tile(Y, at, (4, 64)))


@pytest.mark.parametrize("dtype, said", [(BF16, 8), (F16, 11), (F32, None)])
def test_quotients_have_the_bits_of_what_they_become(dtype: Any, said: int) -> None:
    rng = fresh_rng()
    x, z = (rng.normal(size=(64, 64)).astype(dtype) for _ in range(2))
    z[np.abs(z) < 0.01] = 1
    z[0, :4], x[0, :4] = (0, np.inf, 0, 3), (1, 2, 0, 0)
    y = np.full_like(x, np.nan)
    text = quotients.compile(x, z, y, target="cpu").ir["stage"]
    assert text.count(f"mach.bits = {said} ") == (1 if said else 0)
    assert "mach.bits" not in quotients.compile(x, z, y, 3.0, target="cpu").ir["stage"]
    quotients.options(target="cpu")[16](x, z, y)
    assert y[0, 0] == np.inf and y[0, 1] == 0 and np.isnan(y[0, 2]) and y[0, 3] == 0
    expected = x[1:].astype(np.float64) / z[1:].astype(np.float64)
    error = np.abs(y[1:].astype(np.float64) / expected - 1)[np.abs(expected) > 2.0**-13].max()
    assert error <= 1.26 * 2.0 ** -{8: 8, 11: 11}.get(said, 23)
