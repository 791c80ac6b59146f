"""arith and math against exact arithmetic: rounding, NaN, wrap-around, conversions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.reference.meanings.evaluate import evaluate, type_name
from tilewright import dtypes
from tilewright.diagnostics import CheckError

FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
SMALL = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
INTEGERS = [np.int64, np.int32, np.int16, np.int8]


def numbers(dtype: Any, count: int = 64, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, count, dtype, endpoint=True)
    return rng.standard_normal(count).astype(dtype)


def binary(op: str, a: Any, b: Any, result: str | None = None) -> np.ndarray[Any, Any]:
    element = type_name(dtypes.from_numpy(a.dtype))
    text = f"%r = {op} %0, %1 : vector<{a.size}x{element}>"
    return evaluate(text, [a, b], result or element, a.shape)


@pytest.mark.parametrize("dtype", [*FLOATS, *SMALL])
@pytest.mark.parametrize("op", ["addf", "subf", "mulf", "divf"])
def test_float_ops_round_the_exact_result_once(op: str, dtype: Any):
    a, b = numbers(dtype, 200, 1), numbers(dtype, 200, 2)
    b[b.astype(float) == 0] = 1
    given = binary(f"arith.{op}", a, b)
    exact = {
        "addf": Fraction.__add__,
        "subf": Fraction.__sub__,
        "mulf": Fraction.__mul__,
        "divf": Fraction.__truediv__,
    }[op]
    for x, y, r in zip(a.astype(float), b.astype(float), given.astype(float), strict=True):
        right = exact(Fraction(float(x)), Fraction(float(y)))
        step = _ulp(r, dtype)
        assert abs(Fraction(float(r)) - right) <= Fraction(step) / 2, (x, y, r)


def _ulp(value: float, dtype: Any) -> float:
    info = ml_dtypes.finfo(dtype)
    smallest = float(info.smallest_subnormal)
    if value == 0:
        return smallest
    return max(2.0 ** (math.frexp(value)[1] - 1) * float(info.eps), smallest)


@pytest.mark.parametrize("dtype", FLOATS)
def test_maximum_and_maxnum_differ_on_nan(dtype: Any):
    a = np.array([1, np.nan, -0.0, 0.0, np.nan, -3], dtype)
    b = np.array([np.nan, 2, 0.0, -0.0, np.nan, -5], dtype)
    largest = binary("arith.maximumf", a, b).astype(float)
    assert np.isnan(largest[[0, 1, 4]]).all() and largest[5] == -3
    assert not np.signbit(largest[[2, 3]]).any()
    smallest = binary("arith.minimumf", a, b).astype(float)
    assert np.isnan(smallest[[0, 1, 4]]).all() and np.signbit(smallest[[2, 3]]).all()
    assert binary("arith.maxnumf", a, b).astype(float)[[0, 1, 5]].tolist() == [1, 2, -3]
    assert binary("arith.minnumf", a, b).astype(float)[[0, 1, 5]].tolist() == [1, 2, -5]
    assert np.isnan(binary("arith.maxnumf", a, b).astype(float)[4])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype: Any):
    a, b = numbers(dtype, 50, 3), numbers(dtype, 50, 4)
    bits = 8 * a.itemsize
    for op, exact in (("addi", int.__add__), ("subi", int.__sub__), ("muli", int.__mul__)):
        given = binary(f"arith.{op}", a, b)
        for x, y, r in zip(a.tolist(), b.tolist(), given.tolist(), strict=True):
            wrapped = (exact(x, y) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
            assert r == wrapped


@pytest.mark.parametrize("dtype", INTEGERS)
def test_divisions(dtype: Any):
    a, b = numbers(dtype, 200, 5), numbers(dtype, 200, 6)
    b[np.isin(b, [0, -1])] = 3
    bits = 8 * a.itemsize
    mask = (1 << bits) - 1
    cases = {
        "divsi": lambda x, y: int(Fraction(x, y)),
        "remsi": lambda x, y: x - y * int(Fraction(x, y)),
        "floordivsi": lambda x, y: x // y,
        "ceildivsi": lambda x, y: -(-x // y),
        "divui": lambda x, y: (x & mask) // (y & mask),
        "remui": lambda x, y: (x & mask) % (y & mask),
        "ceildivui": lambda x, y: -(-(x & mask) // (y & mask)),
    }
    for op, exact in cases.items():
        given = binary(f"arith.{op}", a, b)
        for x, y, r in zip(a.tolist(), b.tolist(), given.tolist(), strict=True):
            assert (r - exact(x, y)) & mask == 0, (op, x, y, r)


def test_division_by_zero_is_refused():
    with pytest.raises(CheckError, match="division by zero"):
        binary("arith.divsi", np.array([1], np.int32), np.array([0], np.int32))
    with pytest.raises(CheckError, match="does not fit"):
        binary("arith.divsi", np.array([-128], np.int8), np.array([-1], np.int8))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: Any):
    a = numbers(dtype, 60, 7)
    bits = 8 * a.itemsize
    count = (np.arange(60) % bits).astype(dtype)
    mask = (1 << bits) - 1
    for op, exact in (
        ("shli", lambda x, n: x << n),
        ("shrsi", lambda x, n: x >> n),
        ("shrui", lambda x, n: (x & mask) >> n),
    ):
        given = binary(f"arith.{op}", a, count)
        for x, n, r in zip(a.tolist(), count.tolist(), given.tolist(), strict=True):
            assert (r - exact(x, n)) & mask == 0, (op, x, n)


@pytest.mark.parametrize(
    ("predicate", "test"),
    [
        ("slt", lambda x, y: x < y),
        ("ult", lambda x, y: x % 256 < y % 256),
        ("sge", lambda x, y: x >= y),
        ("ugt", lambda x, y: x % 256 > y % 256),
        ("ne", lambda x, y: x != y),
    ],
)
def test_integer_comparisons(predicate: str, test: Any):
    a, b = numbers(np.int8, 100, 8), numbers(np.int8, 100, 9)
    given = binary(f"arith.cmpi {predicate},", a, b, "i1")
    assert given.tolist() == [int(test(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_float_comparisons_and_nan():
    a = np.array([1, 2, 2, np.nan, 1], np.float32)
    b = np.array([2, 1, 2, 1, np.nan], np.float32)
    expected = {
        "olt": [1, 0, 0, 0, 0],
        "ole": [1, 0, 1, 0, 0],
        "oeq": [0, 0, 1, 0, 0],
        "one": [1, 1, 0, 0, 0],
        "ord": [1, 1, 1, 0, 0],
        "uno": [0, 0, 0, 1, 1],
        "ult": [1, 0, 0, 1, 1],
        "uge": [0, 1, 1, 1, 1],
        "ueq": [0, 0, 1, 1, 1],
        "une": [1, 1, 0, 1, 1],
        "ogt": [0, 1, 0, 0, 0],
        "ugt": [0, 1, 0, 1, 1],
    }
    for predicate, right in expected.items():
        assert binary(f"arith.cmpf {predicate},", a, b, "i1").tolist() == right, predicate


def convert(op: str, a: Any, result: str) -> np.ndarray[Any, Any]:
    element = type_name(dtypes.from_numpy(a.dtype))
    n = a.size
    text = f"%r = {op} %0 : vector<{n}x{element}> to vector<{n}x{result}>"
    return evaluate(text, [a], result, a.shape)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, *SMALL])
def test_truncation_of_doubles_rounds_once(dtype: Any):
    """Numbers that lie so close to a tie that rounding through float32 would go wrong."""
    info = ml_dtypes.finfo(dtype)
    eps = float(info.eps)
    tie = 1 + 1.5 * eps
    a = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40], np.float64)
    given = convert("arith.truncf", a, type_name(dtypes.from_numpy(dtype))).astype(float)
    assert given.tolist() == [1 + 2 * eps, 1 + 2 * eps, 1 + eps, -1 - 2 * eps]


def test_tf32_keeps_ten_bits_and_rounds_to_even():
    eps = 2.0**-10
    a = np.array(
        [1 + eps / 2, 1 + 1.5 * eps, 1 + eps / 2 + 2.0**-23, np.inf, np.nan, 3e38], np.float32
    )
    text = """
  %t = arith.truncf %0 : vector<6xf32> to vector<6xtf32>
  %r = arith.extf %t : vector<6xtf32> to vector<6xf32>
"""
    given = evaluate(text, [a], "f32", a.shape)
    assert given[:3].tolist() == [1, 1 + 2 * eps, 1 + eps]
    assert np.isinf(given[3]) and np.isnan(given[4]) and np.isfinite(given[5])


def test_conversions_between_integers_and_floats():
    a = np.array([-128, -1, 0, 127], np.int8)
    assert convert("arith.sitofp", a, "f32").tolist() == [-128, -1, 0, 127]
    assert convert("arith.uitofp", a, "f32").tolist() == [128, 255, 0, 127]
    assert convert("arith.extsi", a, "i32").tolist() == [-128, -1, 0, 127]
    assert convert("arith.extui", a, "i32").tolist() == [128, 255, 0, 127]
    f = np.array([-1.9, 1.9, 100.5, -0.5], np.float32)
    assert convert("arith.fptosi", f, "i8").tolist() == [-1, 1, 100, 0]
    assert convert("arith.trunci", np.array([300, -300], np.int32), "i8").tolist() == [44, -44]
    big = np.array([(1 << 24) + 1, (1 << 53) + 1, (1 << 62) + 1], np.int64)
    assert convert("arith.sitofp", big, "f32").tolist() == [float(np.float32(x)) for x in big]
    # Next to the middle of two bf16, which float64 rounds them to.
    ties = np.array([(257 << 53) - 1, (257 << 53) + 1, -(257 << 53) - 1], np.int64)
    assert convert("arith.sitofp", ties, "bf16").tolist() == [
        2.0**61,
        129 * 2.0**54,
        -129 * 2.0**54,
    ]


def test_fma_rounds_once():
    a = np.array([1 + 2.0**-23, 1 + 2.0**-12], np.float32)
    b = np.array([1 - 2.0**-23, 1 + 2.0**-12], np.float32)
    c = np.array([-1, 2.0**-60], np.float32)
    text = "%r = math.fma %0, %1, %2 : vector<2xf32>"
    given = evaluate(text, [a, b, c], "f32", (2,))
    assert given[0] == -(2.0**-46)
    # 1 + 2^-11 + 2^-24 is a tie, and the addend decides it.
    assert given[1] == 1 + 2.0**-11 + 2.0**-23


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp", math.exp),
        ("exp2", lambda x: 2.0**x),
        ("tanh", math.tanh),
        ("sin", math.sin),
        ("erf", math.erf),
        ("sqrt", math.sqrt),
        ("rsqrt", lambda x: 1 / math.sqrt(x)),
        ("log", math.log),
        ("log2", math.log2),
        ("cos", math.cos),
        ("expm1", math.expm1),
    ],
)
def test_elementary_functions_are_the_nearest_number(name: str, function: Any, dtype: Any):
    a = np.abs(numbers(dtype, 100, 10)) + np.array(0.01, dtype)
    element = type_name(dtypes.from_numpy(np.dtype(dtype)))
    given = evaluate(f"%r = math.{name} %0 : vector<100x{element}>", [a], element, a.shape)
    right = np.array([function(float(x)) for x in a])
    nearest = right.astype(np.float32).astype(dtype)
    assert (
        np.abs(given.astype(float) - right)
        <= np.abs(nearest.astype(float) - right) * (1 + 1e-6) + 1e-300
    ).all()


def test_bit_counts_and_powers():
    a = np.array([0, 1, -1, 6, -128], np.int8)
    one = "vector<5xi8>"
    counts = {"ctpop": [0, 1, 8, 2, 1], "ctlz": [8, 7, 0, 5, 0], "cttz": [8, 0, 0, 1, 7]}
    for name, right in counts.items():
        assert evaluate(f"%r = math.{name} %0 : {one}", [a], "i8", (5,)).tolist() == right
    base, power = np.array([2, -3, 7, 0], np.int32), np.array([10, 3, 0, 5], np.int32)
    given = evaluate("%r = math.ipowi %0, %1 : vector<4xi32>", [base, power], "i32", (4,))
    assert given.tolist() == [1024, -27, 1, 0]


def test_select_and_bitcast():
    a, b = numbers(np.float32, 8, 11), numbers(np.float32, 8, 12)
    text = """
  %less = arith.cmpf olt, %0, %1 : vector<8xf32>
  %r = arith.select %less, %0, %1 : vector<8xi1>, vector<8xf32>
"""
    assert (evaluate(text, [a, b], "f32", (8,)) == np.minimum(a, b)).all()
    bits = evaluate("%r = arith.bitcast %0 : vector<8xf32> to vector<8xi32>", [a], "i32", (8,))
    assert (bits == a.view(np.int32)).all()
