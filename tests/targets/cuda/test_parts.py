"""Masks on loads and stores of tiles, in the code of threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilewright as tw
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
from tests.arrays import poison
from tests.targets.cuda.test_hopper import SCHEDULES, execute, lowered, values
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
    """Lines of a tensor map end where a copy says: a group's rows are read and written through one."""
    args = groups_of(rng, 150, 64, 64)
    code = lowered(grouped, args, BM=64, BN=64, BK=64)
    text = print_module(code.module)
    assert "nvptx.tma.load.4d" in text and "nvptx.tma.store.4d" in text
    assert code.shares == 8  # workgroups take the iterations of a program
    for schedule in SCHEDULES:
        found = execute(code, args, (5, 1, 1), schedule, int(rng.integers(1 << 30)))
        expect_groups(args, found[3])


@tw.kernel
def by_rows(A, B, C, STEP: tw.constexpr, BM: tw.constexpr = 64):
    """C = A B by blocks of rows, one program for all of them."""
    for m in range(0, A.shape[0], STEP):
        acc = tw.zeros((BM, 64), tw.f32)
        for k in range(0, A.shape[1], 64):
            a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 64)))
            acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, 0], (64, 64))), acc)
        tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, 0], (BM, 64)))


@pytest.mark.parametrize("step, shares", [(64, 8), (128, 8), (32, 1)])
def test_iterations_that_have_nothing_to_do_with_one_another_are_shared(step, shares, rng) -> None:
    """Those that write over what the one before wrote are not."""
    a, b = (values(rng, *shape) for shape in ((1200, 128), (128, 64)))
    args = [a, b, poison(1200, 64)]
    code = lowered(by_rows, args, STEP=step)
    assert code.shares == shares
    found = execute(code, args, (1, 1, 1), "random", int(rng.integers(1 << 30)))[2]
    for m in range(0, 1200, step):
        rows = slice(m, min(m + 64, 1200))
        want = a[rows].astype(float) @ b.astype(float)
        if step >= 64 or m + step >= 1200:
            assert np.linalg.norm(found[rows].astype(float) - want) < 1e-2 * np.linalg.norm(want)


@tw.kernel
def over_parts(Q, K, ENDS, O, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """q k^T k of the rows of each sequence and head, none of those behind its end."""
    h, s = tw.program_id(0), tw.program_id(1)
    first = tw.load_tile(tw.init_tile(ENDS, [s], (1, 1))).item()
    count = tw.load_tile(tw.init_tile(ENDS, [s + 1], (1, 1))).item() - first
    at, shape = [h, first, 0], [1, count, None]
    q, k, o = tw.view(Q, at, shape), tw.view(K, at, shape), tw.view(O, at, shape)
    acc = tw.zeros((BM, 64), tw.f32)
    rows = tw.load_tile(tw.init_tile(q, [0, 0, 0], (BM, 64)))
    for n in range(0, k.shape[1], BN):
        keys = tw.load_tile(tw.init_tile(k, [0, n, 0], (BN, 64)))
        acc = tw.tile_mma(tw.tile_mma(rows, tw.transpose(keys)).to(K.dtype), keys, acc)
    tw.store_tile(acc.to(O.dtype), tw.init_tile(o, [0, 0, 0], (BM, 64)))


def test_parts_of_heads_on_hopper(rng: np.random.Generator) -> None:
    """Keys behind the end of a part, which are multiplied, are zeros and not those of the next."""
    ends = np.array([0, 0, 5, 69, 140], np.int32)
    q, k = (rng.integers(-1, 2, (140, 2, 64)).astype(np.float16).transpose(1, 0, 2) for _ in "qk")
    o = poison(140, 2, 64).transpose(1, 0, 2)
    code = lowered(over_parts, [q, k, ends, o])
    assert "nvptx.tma.load.5d" in print_module(code.module)
    found = execute(code, [q, k, ends, o], (2, 4, 1), "random", int(rng.integers(1 << 30)))[3]
    want = o.copy()
    for first, end in pairwise(ends.tolist()):
        part = k[:, first:end].astype(np.float32)
        rows = q[:, first : min(end, first + 64)].astype(np.float32)
        want[:, first : min(end, first + 64)] = rows @ part.transpose(0, 2, 1) @ part
    np.testing.assert_array_equal(found, want)


@tw.kernel
def of_columns(A, B, ENDS, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """A times columns of B and rows of k from and to run-time places, where B lies column by column."""
    m, s = tw.program_id(0) * BM, tw.program_id(1)
    first = tw.load_tile(tw.init_tile(ENDS, [s], (1, 1))).item()
    count = tw.load_tile(tw.init_tile(ENDS, [s + 1], (1, 1))).item() - first
    b, c = tw.view(B, [0, first], [None, count]), tw.view(C, [0, first], [None, count])
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(b, [k, 0], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(c, [m, 0], (BM, BN)))


def test_a_part_of_lines_that_are_columns_on_hopper(rng: np.random.Generator) -> None:
    a = rng.integers(-3, 4, (72, 64)).astype(np.float16)
    b = np.asfortranarray(rng.integers(-3, 4, (64, 100)).astype(np.float16))
    ends, c = np.array([0, 3, 60, 60, 100], np.int32), poison(72, 100)
    code = lowered(of_columns, [a, b, ends, c])
    assert "nvptx.tma.load.4d" in print_module(code.module)
    found = execute(code, [a, b, ends, c], (2, 4, 1), "random", int(rng.integers(1 << 30)))[3]
    np.testing.assert_array_equal(found, a.astype(np.float32) @ b.astype(np.float32))


def test_shared_memory_has_bounds(threads: ThreadsTarget, rng: np.random.Generator) -> None:
    check_shared_windows("cuda", rng)
