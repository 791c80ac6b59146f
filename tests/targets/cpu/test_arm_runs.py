"""Programs compiled for Arm, run in an emulator on the thread pool, against numpy and the reference executor."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.targets.cpu.qemu import launches_in_qemu as launches_in_qemu
from tests.targets.cpu.qemu import needs_qemu

pytestmark = [needs_qemu, pytest.mark.optional, pytest.mark.usefixtures("launches_in_qemu")]

BF16 = np.dtype(ml_dtypes.bfloat16)
LEVELS = ["armv8", "neon", "sve2"]


def near(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


def drawn(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


PRODUCTS = [(t, t) for t in (np.float32, np.float64, np.float16, BF16, np.int8, np.uint8)]
PRODUCTS += [(np.uint8, np.int8), (np.int8, np.uint8), (np.int16, np.int16)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("left", "right"), PRODUCTS, ids=str)
def test_products(rng: np.random.Generator, left: Any, right: Any, level: str) -> None:
    """On sizes that no block divides; operands in rows and in columns."""
    a, b = drawn(rng, left, (70, 101)), drawn(rng, right, (101, 37))
    whole = np.dtype(left).kind in "iu"
    acc = tw.i32 if whole else tw.f64 if left == np.float64 else tw.f32
    kernel = product.options(machine=level)
    wide = np.int64 if whole else np.float64
    want = a.astype(wide) @ b.astype(wide)
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        c = drawn(rng, acc.numpy, (70, 37))
        kernel[2, 1](x, y, c, BM=64, BN=64, BK=32, ACC=acc)
        if whole:
            np.testing.assert_array_equal(c, want.astype(np.int32))
        else:
            near(c, want, 1e-12 if left == np.float64 else 1e-5)
