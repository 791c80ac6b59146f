"""Programs that touch part of a tile or of an array, as lanes on an OpenCL device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.parts import (
    DTYPES,
    check_masked,
    check_shared_windows,
    check_windows,
    expect_groups,
    grouped,
    groups_of,
)

pytestmark = pytest.mark.usefixtures("device")


def test_masks(rng: np.random.Generator) -> None:
    for dtype in rng.choice(len(DTYPES), 2, replace=False):
        check_masked("xe-pvc", rng, DTYPES[dtype], transposed=False)


@pytest.mark.parametrize("back", [0, -2], ids=["inside", "before"])
def test_views(back: int, rng: np.random.Generator) -> None:
    check_windows("xe-pvc", rng, np.float32, back)


def test_a_product_per_group_of_rows(rng: np.random.Generator) -> None:
    args = groups_of(rng, 90, 64, 64)
    y = args[3].copy()
    grouped.options(target="xe-pvc")[5, 2](*args[:3], y)
    expect_groups(args, y)


def test_shared_memory_has_bounds(rng: np.random.Generator) -> None:
    check_shared_windows("xe-pvc", rng)
