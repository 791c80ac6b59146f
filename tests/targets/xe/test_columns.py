"""Columns of narrow elements: column-major arrays, and blocks that begin where no word does."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.usefixtures("device")


@tw.kernel
def numbers(X, Y, c, BM: tw.constexpr = 16, BN: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m + c, n], (BM, BN)))
    tw.store_tile(x.to(tw.f32), tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize(
    ("dtype", "rows", "first", "target"),
    [
        ("bool", 37, 0, "xe-pvc"),
        ("bool", 37, 0, "xe-dg2"),
        ("bool", 64, 0, "xe-pvc"),
        ("float16", 64, 0, "xe-pvc"),
        ("float16", 64, 5, "xe-pvc"),
    ],
    ids=str,
)
def test_column_major(
    dtype: str, rows: int, first: int, target: str, rng: np.random.Generator
) -> None:
    """37 bytes are no pitch of a block message; row 5 is where no pair of a column begins."""
    x = np.asfortranarray(rng.integers(0, 2, (rows, 32)).astype(dtype))
    y = np.full((rows, 32), np.nan, np.float32)
    found = numbers.compile(x, y, first, target=target)
    numbers.options(target=target)[-(-rows // 16), 1](x, y, first)
    np.testing.assert_array_equal(y[: rows - first], x[first:].astype(np.float32))
    assert (y[rows - first :] == 0).all()
    if target == "xe-pvc":
        blocks = "load2d" in found.executable.asm["llvm"]
        assert blocks == (rows == 64), found.remarks
