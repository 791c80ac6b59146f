"""Programs that touch part of a tile or of an array, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.parts import DTYPES, check_masked, expect_lower, lower_product, product_of


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_masks(dtype: type, target: str, rng: np.random.Generator) -> None:
    check_masked(target, rng, dtype)


def test_a_product_stored_under_a_mask(target: str, rng: np.random.Generator) -> None:
    args = product_of(rng, 100, 90, 40)
    a, b, c = args
    c = c.copy()
    lower_product.options(target=target)[2, 2](a, b, c)
    expect_lower(args, c)
