"""Masks on loads and stores of tiles, in the code of threads."""

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


@pytest.mark.parametrize("back", [0, -2], ids=["inside", "before"])
def test_views(back: int, threads: ThreadsTarget, rng: np.random.Generator) -> None:
    for dtype in rng.choice(len(DTYPES) - 1, 2, replace=False):
        check_windows("cuda", rng, DTYPES[dtype], back)


def test_a_product_per_group_of_rows(threads: ThreadsTarget, rng: np.random.Generator) -> None:
    """Rows of a part are as aligned as those of its array: copies go in vectors of 16 bytes."""
    args = groups_of(rng, 90, 64, 64)
    y = args[3].copy()
    grouped.options(target="cuda")[5, 2](*args[:3], y)
    expect_groups(args, y)
    assert threads.last is not None and "nvptx.cp.async.16" in threads.last.ir["mach"]


def test_a_product_per_group_of_rows_on_hopper(rng: np.random.Generator) -> None:
    """A tensor map has the bounds of a whole array: parts of it are not read or written through one."""
    args = groups_of(rng, 150, 64, 64)
    code = lowered(grouped, args, BM=64, BN=64, BK=64)
    found = execute(code, args, (5, 1, 1), "random", int(rng.integers(1 << 30)))
    expect_groups(args, found[3])


def test_shared_memory_has_bounds(threads: ThreadsTarget, rng: np.random.Generator) -> None:
    check_shared_windows("cuda", rng)
