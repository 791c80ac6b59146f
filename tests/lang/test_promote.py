"""The dtype in which two operands meet."""

import itertools

import numpy as np
import pytest

from tilewright import dtypes
from tilewright.lang.promote import division, exact_in, promote

PAIRS = list(itertools.product(dtypes.ALL, repeat=2))


def test_promotion_is_symmetric_and_contains_both():
    for a, b in PAIRS:
        met = promote(a, b)
        assert met is promote(b, a)
        if a.is_float or b.is_float:
            assert met.is_float
        widest = max(x.exponent_bits for x in (a, b))
        assert met.exponent_bits >= widest or not met.is_float


def test_promotion_is_numpys_where_numpy_has_one():
    ours = {dtypes.tf32, dtypes.index, dtypes.bf16, dtypes.f8e4m3, dtypes.f8e5m2}
    for a, b in PAIRS:
        if a not in ours and b not in ours:
            assert promote(a, b).numpy == np.promote_types(a.numpy, b.numpy), (a, b)


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [
        ("bf16", "f16", "f32"),
        ("tf32", "tf32", "f32"),
        ("tf32", "f16", "f32"),
        ("index", "index", "index"),
        ("index", "i8", "i64"),
        ("bf16", "i32", "f32"),
        ("f8e5m2", "i8", "f8e5m2"),
    ],
)
def test_where_numpy_has_none(a, b, met):
    assert promote(dtypes.from_name(a), dtypes.from_name(b)) is dtypes.from_name(met)


def test_division():
    assert division(dtypes.f16) is dtypes.f16
    assert division(dtypes.i8) is division(dtypes.u64) is dtypes.f64


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.is_integer], ids=str)
def test_exact_in(dtype):
    info = np.iinfo(dtype.numpy)
    assert exact_in(int(info.min), dtype) and exact_in(int(info.max), dtype)
    assert not exact_in(int(info.min) - 1, dtype) and not exact_in(int(info.max) + 1, dtype)
