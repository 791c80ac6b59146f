"""Calls of a graph over again: their launches are prepared once, and results are those of the arrays given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.draws import fresh_rng, fresh_seed
from tilewright import dtypes, knobs
from tilewright import graph as G
from tilewright.runtime.launch import Launcher


def between(x, y):
    """Two kernels with memory between them, a part of an input, and a reshaped result."""
    z = x @ y
    return (x @ y @ y.T).reshape(-1), z.T @ z, x[1:] + 1.0


def _graph():
    return G.trace(between, G.array(["M", 24]), G.array([24, 8]))


def _check(run, x, y):
    for got, want in zip(run(x, y), between(x.astype(float), y.astype(float)), strict=True):
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


def _arrays(rows, rng):
    return rng.standard_normal((rows, 24), np.float32), rng.standard_normal((24, 8), np.float32)


def test_other_arrays_of_the_same_looks_launch_nothing_anew(monkeypatch):
    rng, run = fresh_rng(), _graph().compile()
    arrays = _arrays(16, rng)
    _check(run, *arrays)
    monkeypatch.setattr(Launcher, "launch", None)
    for _ in range(4):
        _check(run, *arrays)
        for a in arrays:
            a[...] = rng.standard_normal(a.shape)


def test_what_looks_otherwise_is_launched_anew():
    rng, run = fresh_rng(), _graph().compile()
    for rows in (16, 9, 16, 40, 16, 9):
        x, y = _arrays(rows, rng)
        _check(run, x, y)
        wide = np.zeros((2 * rows, 48), np.float32)
        wide[::2, ::2] = x
        _check(run, wide[::2, ::2], y)
        apart = np.zeros(y.size + 1, np.float32)[1:].reshape(y.shape)
        apart[...] = y
        _check(run, x, apart)
        with knobs.override(num_threads=1):
            _check(run, x, y)


def test_results_are_not_those_of_the_call_before():
    rng, run = fresh_rng(), _graph().compile()
    arrays = _arrays(16, rng)
    results = [run(*arrays) for _ in range(4)]
    kept = [[y.copy() for y in ys] for ys in results]
    run(*_arrays(16, rng))
    for ys, copies in zip(results, kept, strict=True):
        assert all(np.array_equal(y, copy) for y, copy in zip(ys, copies, strict=True))
    every = [y for ys in results for y in ys]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(every) for b in every[:i])


def test_calls_from_several_threads_have_memory_of_their_own():
    rng, run = fresh_rng(), _graph().compile()
    calls = [_arrays(16, rng) for _ in range(64)]
    run(*calls[0])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda pair: _check(run, *pair), calls))


def test_sums_by_number_start_at_zero_in_every_call():
    rng = fresh_rng()
    ids, x = rng.integers(0, 5, 30), rng.standard_normal((30, 6), np.float32)

    def counted(ids, x):
        y = G.scatter_add(5, ids, x)
        return y @ y.T

    run = G.trace(counted, G.array([30], dtypes.i64), G.array([30, 6])).compile()
    want = counted(ids, x.astype(float))
    for _ in range(3):
        assert np.linalg.norm(run(ids, x) - want) <= 1e-5 * np.linalg.norm(want)


def test_tensors_are_told_by_one_look():
    torch = pytest.importorskip("torch")
    torch.manual_seed(fresh_seed())
    run = _graph().compile()
    for rows in (16, 9, 16):
        for _ in range(3):
            x, y = torch.randn(rows, 24), torch.randn(24, 8)
            for given in ((x, y), (torch.randn(24, rows).T.copy_(x), y)):
                for got, want in zip(run(*given), between(x.double(), y.double()), strict=True):
                    assert float((got - want).norm()) <= 1e-5 * float(want.norm())
