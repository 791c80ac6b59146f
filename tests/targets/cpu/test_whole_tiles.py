"""Thin products of small tiles inside their arrays, in loops: what they give, and what is done once."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.targets.cpu.machine import host_level

LEVELS = ["x86-64", "avx2", "avx512", "vnni", "amx"]
RUNNABLE = LEVELS[: LEVELS.index(host_level()) + 1]
LIMITS = {"float32": 1e-5, "float64": 1e-13, "float16": 3e-3, "bfloat16": 2e-2}


@tw.kernel
def pages(
    Q, K, V, T, O, COUNT, ACC: tw.constexpr = tw.f32, G: tw.constexpr = 1, P: tw.constexpr = 16,
    D: tw.constexpr = 64, TWICE: tw.constexpr = False,
):  # fmt: skip
    """O[b, h] = the sum over pages T[b, ..] of (q K^T) V; K and V: [pages, P, heads, D]; TWICE: of two heads, each
    in a loop of its own."""
    b = tw.program_id(0)
    for h in range(2 if TWICE else 1):
        q = tw.load_tile(tw.init_tile(Q, [b, h, 0, 0], (G, D)))
        out = tw.zeros((G, D), ACC)
        for i in range(COUNT):
            page = tw.load_tile(tw.init_tile(T, [b, i], (1, 1))).item()
            k = tw.load_tile(tw.init_tile(K, [page, 0, h * D], (P, D)))
            s = tw.tile_mma(q, tw.transpose(k), tw.zeros((G, P), ACC)) * 0.125
            v = tw.load_tile(tw.init_tile(V, [page, 0, h * D], (P, D)))
            out = tw.tile_mma(s.to(V.dtype), v, out * 0.5)
        tw.store_tile(out.to(O.dtype), tw.init_tile(O, [b, h, 0, 0], (G, D)))


def inputs(rng: np.random.Generator, dtype: Any, g: int, p: int, d: int, count: int) -> list[Any]:
    """Two entries of two heads; some pages are none, the first of entry 0 among them."""
    q, k, v = (
        rng.standard_normal(s).astype(dtype) for s in ((2, 2, g, d), (5, p, 2 * d), (5, p, 2 * d))
    )
    table = rng.integers(-1, 7, (2, count)).astype(np.int32)
    table[0, 0], table[:, -1] = 5, rng.integers(0, 5, 2)
    return [q, k, v, table, np.full((2, 2, g, d), np.nan, dtype)]


def expected(q: Any, k: Any, v: Any, table: Any, heads: int) -> Any:
    found = np.zeros(q.shape)
    d = q.shape[-1]
    for b, h in np.ndindex(2, heads):
        for page in table[b]:
            found[b, h] *= 0.5
            if 0 <= page < 5:
                kk, vv = (x[page, :, h * d : (h + 1) * d].astype(np.float64) for x in (k, v))
                s = (q[b, h].astype(np.float64) @ kk.T * 0.125).astype(v.dtype)
                found[b, h] += s.astype(np.float64) @ vv
    return found[:, :heads]


def check(found: Any, want: Any, dtype: Any) -> None:
    error = np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want)
    assert error < LIMITS[np.dtype(dtype).name]


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("g", [1, 2, 3, 4, 7, 8, 11, 16, 17])
def test_pages(rng, level, dtype, g):
    """Pages of several sizes; an extent of 48 or 40 is no power of two, or ends within a vector."""
    acc = tw.f64 if dtype == np.float64 else tw.f32
    for p, d in ((16, 64), (int(rng.choice([8, 32, 128])), 128), (48, int(rng.choice([16, 40])))):
        given = inputs(rng, dtype, g, p, d, 4)
        sizes = {"ACC": acc, "G": g, "P": p, "D": d, "TWICE": True}
        pages.options(machine=level, target="cpu")[2](*given, 4, **sizes)
        check(given[4], expected(*given[:4], 2), dtype)


@tw.kernel
def rewritten(Q, K, O, D: tw.constexpr = 64):
    """Each turn multiplies by what the one before has left in Q."""
    for i in range(3):
        q = tw.load_tile(tw.init_tile(Q, [0, 0], (2, D)))
        k = tw.load_tile(tw.init_tile(K, [i * 16, 0], (16, D)))
        tw.store_tile(tw.tile_mma(q, tw.transpose(k)), tw.init_tile(O, [0, i * 16], (2, 16)))
        tw.store_tile(q * 2.0, tw.init_tile(Q, [0, 0], (2, D)))


def test_operands_that_the_loop_changes_are_packed_again(rng):
    q, k = (rng.standard_normal(s).astype(np.float32) for s in ((2, 64), (48, 64)))
    out = np.full((2, 48), np.nan, np.float32)
    want = (q.astype(np.float64) @ k.T) * np.repeat([1.0, 2.0, 4.0], 16)
    rewritten.options(target="cpu")[1](q.copy(), k, out)
    check(out, want, np.float32)


def text(d: int, g: int = 1) -> str:
    given = inputs(np.random.default_rng(0), np.float32, g, 16, d, 4)
    return pages.compile(*given, 4, G=g, D=d, target="cpu", machine="avx512").ir["mach"]


def test_tiles_of_whole_vectors_have_code_without_loops_along_k():
    """All products of q by a page, and of some of its rows by s, beside the general form. q of 17 vectors is too long
    for the former."""
    short, long = (text(d).count("math.fma") for d in (64, 272))
    assert long - short == (4 * 8 + 16 * 1) - (8 * 4 + 16 * 3)


@pytest.mark.parametrize(
    "d, g, there", [(64, 1, True), (272, 1, True), (64, 16, True), (64, 17, False)]
)
def test_rows_that_stay_are_packed_in_the_first_turn(d, g, there):
    """In a branch on the loop's counter. Beside more than two panels of rows it is the pages that are copied."""
    found = text(d, g)
    counters = re.findall(r"scf.for (%\w+) = ", found)
    assert any(f"arith.cmpi eq, {counter}, %c0" in found for counter in counters) == there


def test_operands_that_a_loop_changes_have_no_such_branch():
    given = [np.zeros(s, np.float32) for s in ((2, 64), (48, 64), (2, 48))]
    found = rewritten.compile(*given, target="cpu", machine="avx512").ir["mach"]
    counters = re.findall(r"scf.for (%\w+) = ", found)
    assert counters and not any(f"cmpi eq, {counter}," in found for counter in counters)
