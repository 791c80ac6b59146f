"""Loops that look up where their tiles are fetch those of the next iteration, and compute what they did."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw


@tw.kernel
def looked_up(
    X, W, T, Y, COUNT, STEP, D: tw.constexpr = 40, PRODUCT: tw.constexpr = True, OWN: tw.constexpr = False
):  # fmt: skip
    """Y = the sum over i, in steps of STEP, of X by the transpose of page T[i] of W, or of that page alone."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (2, D)))
    acc = tw.zeros((2, 16), tw.f32)
    for i in range(0, COUNT, STEP):
        page = tw.load_tile(tw.init_tile(T, [i], (1, 1))).item()
        if OWN:
            tw.prefetch_tile(tw.init_tile(W, [page + 1, 0, 0], (16, D)))
        w = tw.load_tile(tw.init_tile(W, [page, 0, 0], (16, D)))
        if PRODUCT:
            acc = tw.tile_mma(x, tw.transpose(w), acc)
        else:
            acc = acc + tw.transpose(tw.sum(w.to(tw.f32), 1))
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (2, 16)))


@tw.kernel
def counted(X, W, T, Y, COUNT, STEP, D: tw.constexpr = 40):
    """The same with page i itself: caches foresee that."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (2, D)))
    acc = tw.zeros((2, 16), tw.f32)
    for i in range(0, COUNT, STEP):
        w = tw.load_tile(tw.init_tile(W, [i, 0, 0], (16, D)))
        acc = acc * 0.5 + tw.tile_mma(x, tw.transpose(w))
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (2, 16)))


def arguments(rng: np.random.Generator, dtype: Any = np.float32) -> list[Any]:
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((2, 40), (7, 16, 40)))
    table = rng.integers(-2, 9, 11).astype(np.int32)  # some are no pages
    table[0] = rng.integers(0, 7)
    return [x, w, table, np.full((2, 16), np.nan, np.float32)]


@pytest.mark.parametrize("product", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("step", [1, 3])
def test_results_stay(rng, product, dtype, step):
    x, w, table, y = arguments(rng, dtype)
    padded = np.concatenate([w, np.zeros((4, 16, 40))]).astype(
        np.float64
    )  # -2, -1, 7 and 8 are zeros
    pages = padded[table[:10:step]].sum(0)
    want = x.astype(np.float64) @ pages.T if product else np.tile(pages.sum(1), (2, 1))
    found: list[Any] = []
    for passes in ((), ("fetch-ahead",)):
        y[:] = np.nan
        kernel = looked_up.options(target="cpu", disable=passes)
        kernel[1](x, w, table, y, 10, step, PRODUCT=product)
        assert np.linalg.norm(y - want) < 2e-3 * np.linalg.norm(want)
        found.append(y.copy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("product", [True, False])
def test_reads_fetch_the_next_tile(rng, product):
    """The next place comes from the table as this one does, and each vector that is read fetches one."""
    made = looked_up.compile(
        *arguments(rng), 10, 1, PRODUCT=product, target="cpu", machine="avx512"
    )
    stage, mach = made.ir["stage"], made.ir["mach"]
    (tile,) = re.findall(r"xetile.prefetch_tile (%\w+)", stage)
    (page,) = re.findall(rf"{tile} = xetile.init_tile %W\[(%\w+),", stage)
    assert stage.count("init_tile %T[") == 2 and f"init_tile %W[{page}" in stage
    off = looked_up.options(disable=("fetch-ahead", "prefetch"))
    without = off.compile(*arguments(rng), 10, 1, PRODUCT=product, target="cpu", machine="avx512")
    assert "prefetch_tile" not in without.ir["stage"] and "mach.prefetch" not in without.ir["mach"]
    assert mach.count("mach.prefetch") > 0


def test_what_caches_or_the_kernel_foresee_is_left_alone(rng):
    given = [*arguments(rng), 10, 1]
    assert "prefetch_tile" not in counted.compile(*given, target="cpu").ir["stage"]
    own = looked_up.compile(*given, OWN=True, target="cpu").ir["stage"]
    assert own.count("prefetch_tile") == 1 and own.count("init_tile %T[") == 1


@tw.kernel
def two_loops(X, T, Y, COUNT):
    """A tile that both loops load, since they write what it may lie on; the first one looks up another beside it."""
    tile = tw.init_tile(X, [0, 0], (4, 16))
    for i in range(COUNT):
        both = tw.load_tile(tile) + tw.load_tile(tw.init_tile(X, [T[i], 0], (4, 16)))
        tw.store_tile(both, tw.init_tile(Y, [4 * i, 0], (4, 16)))
    for i in range(COUNT):
        tw.store_tile(tw.load_tile(tile) * 2, tw.init_tile(Y, [4 * (COUNT + i), 0], (4, 16)))


def test_a_tile_of_two_loops_is_followed_by_none_of_one(rng):
    x = rng.standard_normal((12, 16)).astype(np.float32)
    table = rng.integers(0, 8, 5).astype(np.int32)
    memory = np.full((60, 16), np.nan, np.float32)
    memory[:12] = x
    two_loops.options(target="cpu")[1](memory[:12], table, memory[12:], 5)
    once = [x[:4] + x[t : t + 4] for t in table]
    np.testing.assert_array_equal(memory[12:52], np.concatenate([*once, *[x[:4] * 2] * 5]))
