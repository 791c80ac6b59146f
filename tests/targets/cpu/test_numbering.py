"""Launches along one axis of the grid by rows of tiles or groups of them: the same bits, merged as those of a grid."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_merging import merged
from tilewright import knobs
from tilewright.targets.cpu.merging import ALONE, Merging
from tilewright.targets.cpu.numbering import Numbering

OFF = ("merge-programs",)


@tw.kernel
def product(A, B, C, M, N, GROUP: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr):
    """C = A B, by tiles of GROUP rows of tiles at a time; row by row without."""
    i, rows, columns = tw.program_id(0), tw.cdiv(M, BM), tw.cdiv(N, BN)
    if GROUP == 0:
        m, n = i // columns * BM, i % columns * BN
    else:
        first = i // (GROUP * columns) * GROUP
        size = tw.minimum(rows - first, GROUP)
        m = (first + i % (GROUP * columns) % size) * BM
        n = i % (GROUP * columns) // size * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (32, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gate(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    i, columns = tw.program_id(0), tw.cdiv(X.shape[1], BN)
    m, n = i // columns * BM, i % columns * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(x * tw.exp(-x), tw.init_tile(Y, [m, n], (BM, BN)))


def drawn(rng, kind, m, n, k):
    return [(0.2 * rng.standard_normal(shape)).astype(kind) for shape in ((m, k), (k, n))]


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("group", [0, 3])
def test_programs_along_one_axis_are_merged_as_those_of_a_grid(rng, kind, group):
    m, n, k = (int(x) for x in rng.integers((500, 400, 30), (560, 440, 90)))
    tiles = {"GROUP": group, "BM": 32, "BN": 32}
    a, b = drawn(rng, kind, m, n, k)
    grid = (-(-m // 32) * -(-n // 32),)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    for threads in (1, 2):
        own = {"target": "cpu", "num_threads": threads}
        found: list[np.ndarray] = []
        for disable in ((), OFF):
            c = np.full((m, n), np.nan, np.float32)
            product.options(**own, disable=disable)[grid](a, b, c, m, n, **tiles)
            found.append(c)
        assert found[0].tobytes() == found[1].tobytes()
        assert np.linalg.norm(found[0] - wanted) <= 1e-5 * np.linalg.norm(wanted)
        assert np.prod(merged(product.options(**own), grid, (a, b, c, m, n), **tiles)) > 1


def test_numbers_among_the_arguments_decide_which_numbers_these_are(rng):
    """Parts of the same arrays, launched by one kernel in turn."""
    a, b = drawn(rng, np.float32, 512, 512, 40)
    own = product.options(target="cpu", num_threads=2)
    for m, n in ((512, 512), (480, 256), (512, 512), (37, 500), (256, 480)):
        c = np.full((512, 512), np.nan, np.float32)
        rows, columns = -(-m // 32), -(-n // 32)
        for _ in range(2):  # the first launch of these, and one that is prepared
            own[rows * columns](a, b, c, m, n, GROUP=2, BM=32, BN=32)
        np.testing.assert_allclose(c[:m, :n], (a @ b)[:m, :n], atol=1e-5)
        c[: rows * 32, : columns * 32] = np.nan
        assert np.isnan(c).all()


def test_a_grid_that_leaves_a_row_unfinished_stays_as_it_is(rng):
    a, b = drawn(rng, np.float32, 512, 512, 40)
    c = np.full((512, 512), np.nan, np.float32)
    own, tiles = product.options(target="cpu"), {"GROUP": 0, "BM": 32, "BN": 32}
    args = a, b, c, 512, 512
    own[250](*args, **tiles)
    assert merged(own, (250,), args, **tiles) == ALONE
    whole = a @ b
    whole[-32:, 10 * 32 :] = np.nan
    np.testing.assert_allclose(c, whole, atol=1e-5)


def test_programs_without_products_are_numbered_too(rng):
    x = rng.standard_normal((1030, 1100)).astype(np.float32)
    y, tiles = np.full_like(x, np.nan), {"BM": 16, "BN": 16}
    own, grid = gate.options(target="cpu", num_threads=2), (-(-1030 // 16) * -(-1100 // 16),)
    own[grid](x, y, **tiles)
    np.testing.assert_allclose(y, x * np.exp(-x), rtol=1e-5)
    factors = merged(own, grid, (x, y), **tiles)
    assert np.prod(factors) > 1
    assert " x ".join(map(str, factors)) + " are merged into one" in own.explain(x, y, **tiles)


def test_numbers_and_their_code_are_found_on_disk(rng, tmp_path, monkeypatch):
    a, b = drawn(rng, np.float32, 512, 512, 40)
    args = a, b, np.empty((512, 512), np.float32), 512, 512
    tiles = {"GROUP": 2, "BM": 32, "BN": 32}
    with knobs.override(cache_dir=tmp_path):
        first = merged(product.options(target="cpu"), (256,), args, **tiles)
        assert first != ALONE
        monkeypatch.setattr(Numbering, "_numbers", None)
        monkeypatch.setattr(Merging, "_module", None)
        assert merged(product.options(target="cpu"), (256,), args, **tiles) == first
