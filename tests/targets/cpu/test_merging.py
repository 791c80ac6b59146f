"""Launches whose programs are merged: the same bits, no element beyond the grid, and code that is found again."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import knobs
from tilewright.dialects import text
from tilewright.ops.softmax import softmax_rows
from tilewright.runtime.arrays import describe
from tilewright.targets.cpu import merging
from tilewright.targets.cpu.machine import THIN_COLUMNS
from tilewright.targets.cpu.product_cost import PanelCosts


@tw.kernel
def gated(A, B, G, bias, C, BM: tw.constexpr, BN: tw.constexpr):
    """Two products of one A, with bias, of which one gates the other; below the diagonal C is added."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.zeros((BM, BN), tw.i32 if A.dtype == tw.i8 else tw.f32)
    y = x
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32)))
        x = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (32, BN))), x)
        y = tw.tile_mma(a, tw.load_tile(tw.init_tile(G, [k, n], (32, BN))), y)
    b = tw.broadcast(tw.load_tile(tw.init_tile(bias, [0, n], (1, BN))), 0, BM)
    z, c = (x.to(tw.f32) + b) * tw.tanh(y.to(tw.f32)), tw.init_tile(C, [m, n], (BM, BN))
    row, column = tw.arange(0, BM, axis=0, shape=(BM, BN)), tw.arange(0, BN, shape=(BM, BN))
    tw.store_tile(tw.where(m + row > n + column, z + tw.load_tile(c), z), c)


KINDS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8}


def arrays(rng, name, m, n, k):
    kind = KINDS[name]

    def draw(*shape):
        small = 0.2 * rng.standard_normal(shape)
        return (rng.integers(-9, 9, shape) if name == "i8" else small).astype(kind)

    bias = rng.standard_normal((1, n)).astype(np.float32)
    return [draw(m, k), draw(k, n), draw(k, n), bias]


def merged(kernel, grid, args, **tiles):
    """How many programs along each axis of the grid one of the code for a launch stands for."""
    executable = kernel.compile(*args, **tiles).executable
    described = [a if isinstance(a, int) else describe(a, "") for a in args]
    return executable.merged((*grid, 1, 1)[:3], described)[0]._merged


def test_what_was_just_compiled_is_not_parsed_to_choose(rng, tmp_path, monkeypatch):
    """The choice takes the module that the build began with; only code for another grid begins with its text."""
    parsed: list[str] = []
    monkeypatch.setattr(
        text, "parse_module", lambda t, parse=text.parse_module: parsed.append(t) or parse(t)
    )
    args, tiles = arrays(rng, "f32", 560, 400, 64), {"BM": 32, "BN": 32}
    c = np.zeros((560, 400), np.float32)
    with knobs.override(cache_dir=tmp_path):
        kernel = gated.options(target="cpu", num_threads=1)
        kernel[18, 13](*args, c, **tiles)
        assert max(merged(kernel, (18, 13), [*args, c], **tiles)) > 1
    assert len(parsed) == 1


@pytest.mark.parametrize("name", ["f32", "bf16", "i8"])
def test_merged_programs_store_the_same_bits_and_nothing_beyond_their_grid(rng, name):
    m, n, k = (int(x) for x in rng.integers((500, 400, 30), (560, 440, 90)))
    bm, bn = (int(x) for x in rng.choice([32, 64], 2))
    args, tiles = arrays(rng, name, m, n, k), {"BM": bm, "BN": bn}
    before = rng.standard_normal((m, n)).astype(np.float32)
    gx, gy = -(-m // bm), -(-n // bn)
    grids = [(gx, gy), (gx - 1, gy)]  # all of C, and what leaves some of it
    for threads in (1, 2):
        own = {"target": "cpu", "num_threads": threads}
        for grid in grids:
            found: list[np.ndarray] = []
            for disable in ((), ("merge-programs",)):
                c = before.copy()
                gated.options(**own, disable=disable)[grid](*args, c, **tiles)
                found.append(c)
            assert found[0].tobytes() == found[1].tobytes()
            end = grid[0] * bm
            assert (found[0][end:] == before[end:]).all()
        factors = [merged(gated.options(**own), grid, [*args, c], **tiles) for grid in grids]
        assert max(factors[0]) > 1
        assert (gx - 1) % factors[1][0] == 0
    a, b, g, bias = (x.astype(np.float64) for x in args)
    wanted = ((a @ b + bias) * np.tanh(a @ g) + np.tril(before, -1))[:end]
    assert np.linalg.norm(found[0][:end] - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_what_was_chosen_and_its_code_are_found_on_disk(rng, tmp_path, monkeypatch):
    args = [*arrays(rng, "f32", 512, 512, 64), np.empty((512, 512), np.float32)]
    with knobs.override(cache_dir=tmp_path):
        first = merged(gated.options(target="cpu"), (16, 16), args, BM=32, BN=32)
        assert first != merging.ALONE
        said = " x ".join(map(str, first)) + " are merged into one"
        assert said in gated.options(target="cpu").explain(*args, BM=32, BN=32)
        monkeypatch.setattr(merging.Merging, "_choice", None)
        monkeypatch.setattr(merging.Merging, "_module", None)
        assert merged(gated.options(target="cpu"), (16, 16), args, BM=32, BN=32) == first


def test_products_whose_sums_would_be_added_up_in_another_order_stay(rng):
    """Columns that are few enough for A to be multiplied where it lies."""
    args = [*arrays(rng, "f32", 512, 512, 64), np.empty((512, 512), np.float32)]
    own = gated.options(target="cpu", num_threads=1)
    assert 8 * merged(own, (16, 64), args, BM=32, BN=8)[1] <= THIN_COLUMNS
    assert 32 * merged(own, (16, 16), args, BM=32, BN=32)[1] > THIN_COLUMNS


@tw.kernel
def gate(X, G, Y, BM: tw.constexpr, BN: tw.constexpr):
    """silu(x g) of what lies below the diagonal, onto Y."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
    g = tw.load_tile(tw.init_tile(G, [n], (1, BN))).to(tw.f32)
    row, column = tw.arange(0, BM, axis=0, shape=(BM, BN)), tw.arange(0, BN, shape=(BM, BN))
    z = tw.where(m + row > n + column, x * g / (1 + tw.exp(-x * g)), 0.0)
    t = tw.init_tile(Y, [m, n], (BM, BN))
    tw.store_tile(tw.load_tile(t) + z.to(Y.dtype), t)


@tw.kernel
def decayed(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    """A running sum of slices, kept as a whole from one to the next."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    sums = tw.zeros((BM, BN), tw.f32)
    for k in range(X.shape[0]):
        sums = sums * 0.5 + tw.load_tile(tw.init_tile(X, [k, m, n], (BM, BN)))
    tw.store_tile(sums, tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_programs_without_products_are_merged_along_rows_and_columns(rng, name):
    m, n = (int(x) for x in rng.integers((800, 1400), (860, 1500)))
    bm, bn = (int(x) for x in rng.choice([8, 16, 32], 2))
    x, g, y = (rng.standard_normal(shape).astype(KINDS[name]) for shape in ((m, n), n, (m, n)))
    own, tiles = {"target": "cpu", "num_threads": 2}, {"BM": bm, "BN": bn}
    gx, gy = -(-m // bm), -(-n // bn)
    for grid in ((gx, gy), (gx, gy - 1)):  # all of Y, and what leaves some of it
        found: list[np.ndarray] = []
        for disable in ((), ("merge-programs",)):
            out = y.copy()
            gate.options(**own, disable=disable)[grid](x, g, out, **tiles)
            found.append(out)
        assert found[0].tobytes() == found[1].tobytes()
        end = grid[1] * bn
        assert (found[0][:, end:] == y[:, end:]).all()
        factors = merged(gate.options(**own), grid, (x, g, y), **tiles)
        assert factors[1] > 1 if grid == (gx, gy) else grid[1] % factors[1] == 0
    said = " x ".join(map(str, merged(gate.options(**own), (gx, gy), (x, g, y), **tiles)))
    assert said in gate.options(**own).explain(x, g, y, **tiles)
    z = np.tril(x.astype(np.float64) * g.astype(np.float64), -1)[:, :end]
    wanted = y[:, :end].astype(np.float64) + z / (1 + np.exp(-z))
    assert np.linalg.norm(found[0][:, :end] - wanted) <= 8e-3 * np.linalg.norm(wanted)


def test_few_whole_rows_of_a_program_become_many(rng):
    x = rng.standard_normal((515, 2056)).astype(np.float32)
    y, own = np.full_like(x, np.nan), softmax_rows.options(target="cpu", num_threads=2)
    assert merged(own, (258,), (x, y), BM=2, BN=2112)[0] > 1
    own[258](x, y, BM=2, BN=2112)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    wanted = e / e.sum(1, keepdims=True)
    assert np.linalg.norm(y - wanted) <= 1e-6 * np.linalg.norm(wanted)


@tw.kernel
def weighted(X, W, Y, BN: tw.constexpr):
    """Programs of one row each, as other languages have them."""
    m, n = tw.program_id(0), X.shape[1]
    x = tw.load_tile(tw.init_tile(X, [m, 0], (1, BN))).to(tw.f32)
    inside = tw.arange(0, BN, axis=1, shape=(1, BN)) < n
    x = tw.where(inside, x - tw.sum(x, 1) / n, 0.0)
    y = x * tw.rsqrt(tw.sum(x * x, 1) / n + 1e-5)
    y = y * tw.load_tile(tw.init_tile(W, [0], (1, BN))).to(tw.f32)
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, 0], (1, BN)))


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_programs_of_one_row_become_one_of_many(rng, name):
    m, n = (int(x) for x in rng.integers((700, 1000), (800, 2000)))
    x, w = (rng.standard_normal(shape).astype(KINDS[name]) for shape in ((m, n), n))
    y = np.zeros_like(x)
    own, tiles = weighted.options(target="cpu", num_threads=2), {"BN": 2048}
    factors = merged(own, (m,), (x, w, y), **tiles)
    assert factors[0] > 1
    own[m](x, w, y, **tiles)
    d = x.astype(np.float64) - x.astype(np.float64).mean(1, keepdims=True)
    wanted = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * w.astype(np.float64)
    assert np.linalg.norm(y - wanted) <= (1e-6 if name == "f32" else 3e-3) * np.linalg.norm(wanted)
    some = m - m % factors[0] - 1  # a grid that leaves some rows
    y[:] = 7
    own[some](x, w, y, **tiles)
    assert (y[some:] == 7).all() and (y[:some] != 7).any(1).all()


@tw.kernel
def last_row(X, Y, BN: tw.constexpr):
    """All programs store their row to one place, each in its turn."""
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0), 0], (1, BN)))
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (1, BN)))


@tw.kernel
def sums_of_rows(X, Y, BN: tw.constexpr):
    m, total = tw.program_id(0), tw.zeros((1, BN), tw.f32)
    for n in range(0, X.shape[1], BN):
        total = total + tw.load_tile(tw.init_tile(X, [m, n], (1, BN)))
    tw.store_tile(total, tw.init_tile(Y, [m, 0], (1, BN)))


def test_rows_that_meet_or_are_carried_stay_those_of_their_programs(rng):
    x, y = rng.standard_normal((1024, 2048)).astype(np.float32), np.zeros((1024, 512), np.float32)
    own = {"target": "cpu", "num_threads": 1}
    assert merged(last_row.options(**own), (1024,), (x, y[:1]), BN=2048) == merging.ALONE
    assert merged(sums_of_rows.options(**own), (1024,), (x, y), BN=512) == merging.ALONE
    sums_of_rows.options(**own)[1024](x, y, BN=512)
    wanted = x.astype(np.float64).reshape(1024, 4, 512).sum(1)
    assert np.linalg.norm(y - wanted) <= 1e-6 * np.linalg.norm(wanted)


def test_tiles_that_wait_in_memory_stay_in_the_first_cache(rng):
    """However many programs would be merged for their rows."""
    x, y = np.zeros((3, 2048, 1024), np.float32), np.zeros((2048, 1024), np.float32)
    own = decayed.options(target="cpu", num_threads=1)
    assert merged(own, (64, 16), (x, y), BM=32, BN=64) == merging.ALONE
    assert "merged" not in own.explain(x, y, BM=32, BN=64)


def test_few_programs_and_large_tiles_are_no_reason_to_compile_again():
    assert merging.may_pay(64 * 64, (8, 8, 1), 2)
    assert not merging.may_pay(64 * 64, (2, 2, 1), 2)
    assert not merging.may_pay(64 * 64, (64, 1, 1), 64)
    assert not merging.may_pay(256 * 512, (64, 64, 1), 2)
    assert not merging.may_pay(0, (64, 64, 1), 2)
    assert merging.may_pay(64 * 64, (16, 16, 1), 2, rows=True)
    assert not merging.may_pay(64 * 64, (8, 16, 1), 2, rows=True)
    assert not merging.may_pay(64 * 64, (16, 16, 1), 65, rows=True)
    assert not merging.may_pay(256 * 128, (16, 16, 1), 2, rows=True)


def test_a_side_that_one_program_covers_is_not_made_longer(rng, monkeypatch):
    """Whatever longer tiles are said to cost."""
    monkeypatch.setattr(merging, "GAIN", -1.0)
    asked = []
    causes = PanelCosts.causes
    monkeypatch.setattr(
        PanelCosts, "causes", lambda self, p, n: asked.append(p[0]) or causes(self, p, n)
    )
    a, b, g, bias = arrays(rng, "f32", 2048, 17, 64)
    tiles = {"BM": 32, "BN": 32, "target": "cpu", "num_threads": 2}
    c = np.zeros((2048, 17), np.float32)
    merged(gated, (64, 1), (a, b, g, bias, c), **tiles)
    assert {p.b.tile for p in asked} == {32} and len({p.a.tile for p in asked}) > 1
