"""Fresh random inputs, poisoned outputs, and the targets that run here."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.devices import parametrize


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: object) -> NDArray[np.generic]:
    return rng.standard_normal(shape).astype(np.dtype(dtype))  # pyright: ignore[reportArgumentType]
