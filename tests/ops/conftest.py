"""Fresh random inputs, poisoned outputs, and the targets that run here."""

from __future__ import annotations

import os
import random
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

SEED = int(os.environ.get("TILEWRIGHT_TEST_SEED", random.SystemRandom().randrange(1 << 31)))


def pytest_report_header() -> str:
    return f"tests/ops: TILEWRIGHT_TEST_SEED={SEED}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A stream of its own for every test; a run is repeated with TILEWRIGHT_TEST_SEED."""
    print(f"TILEWRIGHT_TEST_SEED={SEED}")
    return np.random.default_rng([SEED, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture(params=["reference", "cpu"])
def target(request: pytest.FixtureRequest) -> str:
    return request.param


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: object) -> NDArray[np.generic]:
    return rng.standard_normal(shape).astype(np.dtype(dtype))  # pyright: ignore[reportArgumentType]


def poison(shape: tuple[int, ...], dtype: object) -> NDArray[np.generic]:
    return np.full(shape, np.nan, np.dtype(dtype))  # pyright: ignore[reportArgumentType]


def error(got: NDArray[np.generic], expected: NDArray[np.float64]) -> float:
    """Relative Frobenius norm of the difference."""
    norm = max(float(np.linalg.norm(expected)), 1e-30)
    return float(np.linalg.norm(got.astype(np.float64) - expected)) / norm
