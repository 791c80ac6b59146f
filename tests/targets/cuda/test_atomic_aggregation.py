"""Sums by atomics to small arrays, put together in shared memory for all programs of a workgroup."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false
from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.fake_driver import Driver, host_launches
from tests.targets.cuda.threads import ThreadsTarget

__all__ = ["host_launches"]


@tw.kernel
def counted(X, H, M, B: tw.constexpr = 64):
    """How often each number occurs, where M is not zero; numbers outside of H are dropped."""
    at = [0, tw.program_id(0) * B]
    value = tw.load_tile(tw.init_tile(X, at, (1, B)), padding=-1)
    wanted = tw.load_tile(tw.init_tile(M, at, (1, B))) != 0
    tw.atomic_rmw("addi", tw.full((1, B), 1, tw.i32), tw.init_tile(H, value), wanted)


@pytest.mark.parametrize("bins", [50, 1500, 9000], ids=["few", "two steps", "too many to share"])
def test_a_histogram(bins: int, threads: ThreadsTarget, rng: np.random.Generator) -> None:
    x = rng.integers(-5, bins + 10, (1, 1000)).astype(np.int32)
    m = rng.integers(0, 3, (1, 1000)).astype(np.int32)
    h = rng.integers(-9, 9, bins).astype(np.int32)
    want = h.copy()
    np.add.at(want, x[(m != 0) & (x >= 0) & (x < bins)], 1)
    counted.options(target="cuda")[tw.cdiv(1000, 64)](x, h, m)
    np.testing.assert_array_equal(h, want)
    assert "atom.shared" in counted.compile(x, h, m, target="sm_90a").asm["ptx"]


@tw.kernel
def column_sums(X, S, T, BM: tw.constexpr = 4, BN: tw.constexpr = 64):
    """Sums of columns, and of their squares."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.atomic_rmw("addf", tw.sum(x, 0), tw.init_tile(S, [n], (1, BN)))
    tw.atomic_rmw("addf", tw.sum(x * x, 0), tw.init_tile(T, [n], (1, BN)))


@pytest.mark.parametrize("rows", [4, 64], ids=["put together", "each by a warp of its own"])
def test_sums_of_columns(rows: int, threads: ThreadsTarget, rng: np.random.Generator) -> None:
    x = rng.integers(-4, 5, (70, 200)).astype(np.float32)
    s, t = (rng.integers(-4, 5, 200).astype(np.float32) for _ in "st")
    want = s + x.sum(0), t + (x * x).sum(0)
    column_sums.options(target="cuda")[tw.cdiv(70, rows), tw.cdiv(200, 64)](x, s, t, BM=rows)
    np.testing.assert_array_equal(s, want[0])
    np.testing.assert_array_equal(t, want[1])


@pytest.mark.parametrize("rows, shared", [(4, True), (64, False)], ids=["few", "many"])
def test_programs_of_many_rows_add_to_the_array(rows: int, shared: bool) -> None:
    x, s = np.zeros((256, 64), np.float32), np.zeros(64, np.float32)
    code = column_sums.compile(x, s, s.copy(), BM=rows, target="sm_90a")
    assert ("stage.worker" in code.ir.get("stage", "")) == shared


def test_as_many_workgroups_as_run_at_a_time(
    host_launches: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More would add up less each, and hand on as much."""

    def occupancy(count: object, *_: object) -> int:
        count._obj.value = 3  # pyright: ignore
        return 0

    monkeypatch.setattr(
        host_launches, "cuOccupancyMaxActiveBlocksPerMultiprocessor", occupancy, raising=False
    )
    x, h, m = (
        np.zeros((1, 64 * 5000), np.int32),
        np.zeros(50, np.int32),
        np.ones((1, 64 * 5000), np.int32),
    )
    tw.kernel(counted.function).options(target="sm_90a")[5000](x, h, m)
    assert [each.grid for each in host_launches.launches] == [(3 * 132, 1, 1)]


@tw.kernel
def read_beside(X, H, Y, B: tw.constexpr = 64):
    """Adds to an array that it reads too."""
    at = tw.program_id(0) * B
    value = tw.load_tile(tw.init_tile(X, [0, at], (1, B)), padding=-1)
    tw.atomic_rmw("addi", tw.full((1, B), 1, tw.i32), tw.init_tile(H, value))
    tw.store_tile(tw.load_gather(tw.init_tile(H, value)), tw.init_tile(Y, [0, at], (1, B)))


def test_what_is_read_beside_is_not_put_together(
    threads: ThreadsTarget, rng: np.random.Generator
) -> None:
    x = rng.permutation(64).astype(np.int32)[None]
    h, y = np.arange(64, dtype=np.int32), np.zeros((1, 64), np.int32)
    read_beside.options(target="cuda")[1](x, h, y)
    np.testing.assert_array_equal(h, np.arange(64) + 1)
    np.testing.assert_array_equal(y, x + 1)
    assert "atom.shared" not in read_beside.compile(x, h, y, target="sm_90a").asm["ptx"]
