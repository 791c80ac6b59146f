"""Masks on loads and stores of tiles, in the code of threads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.parts import DTYPES, check_masked, expect_lower, lower_product, product_of
from tests.targets.cuda.test_hopper import execute, lowered
from tests.targets.cuda.threads import ThreadsTarget
from tilewright.dialects.text import print_module


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_masks(dtype: type, threads: ThreadsTarget, rng: np.random.Generator) -> None:
    check_masked("cuda", rng, dtype)


def test_a_product_stored_under_a_mask_on_hopper(rng: np.random.Generator) -> None:
    """The copy engine has no masks: threads store."""
    args = product_of(rng, 128, 72, 64)
    code = lowered(lower_product, args)
    assert "wgmma" in print_module(code.module)
    found = execute(code, args, (2, 2, 1), "random", int(rng.integers(1 << 30)))
    expect_lower(args, found[2])
