"""Programs that touch part of a tile or of an array, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.parts import (
    DTYPES,
    check_masked,
    check_shared_windows,
    check_windows,
    expect_groups,
    expect_lower,
    grouped,
    groups_of,
    lower_product,
    product_of,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_masks(dtype: type, target: str, rng: np.random.Generator) -> None:
    check_masked(target, rng, dtype)


def test_a_product_stored_under_a_mask(target: str, rng: np.random.Generator) -> None:
    args = product_of(rng, 100, 90, 40)
    a, b, c = args
    c = c.copy()
    lower_product.options(target=target)[2, 2](a, b, c)
    expect_lower(args, c)


@pytest.mark.parametrize("back", [0, -2], ids=["inside", "before"])
def test_views(back: int, target: str, rng: np.random.Generator) -> None:
    for dtype in rng.choice(len(DTYPES) - 1, 2, replace=False):
        check_windows(target, rng, DTYPES[dtype], back)


def test_a_product_per_group_of_rows(target: str, rng: np.random.Generator) -> None:
    args = groups_of(rng, 90, 40, 50)
    y = args[3].copy()
    grouped.options(target=target)[5, 2](*args[:3], y)
    expect_groups(args, y)


def test_shared_memory_has_bounds(target: str, rng: np.random.Generator) -> None:
    check_shared_windows(target, rng)
