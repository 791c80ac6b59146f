"""Tiles and shared memory that no workgroup can have are refused with the number and the limit."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.diagnostics import LaunchError, UnsupportedError
from tilewright.targets.cpu import workspace


@tw.kernel
def through(X, Y, N: tw.constexpr):
    """One tile, and shared memory that is only named."""
    shared = tw.init_tile(tw.alloc_slm((N, N), tw.f32), [0, 0], (8, 8))
    tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], (8, 8))), shared)
    tw.store_tile(tw.load_tile(shared), tw.init_tile(Y, [0, 0], (8, 8)))


@tw.kernel
def twice(X, Y, N: tw.constexpr):
    for _ in tw.static_range(2):
        shared = tw.init_tile(tw.alloc_slm((N, N), tw.f32), [0, 0], (8, 8))
        tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], (8, 8))), shared)
        tw.store_tile(tw.load_tile(shared), tw.init_tile(Y, [0, 0], (8, 8)))


@tw.kernel
def double(X, Y, N: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (N, N)))
    tw.store_tile(x + x, tw.init_tile(Y, [0, 0], (N, N)))


ARRAY = tw.spec((32, 32), tw.f32)


def refused(kernel: tw.Kernel, n: int) -> str:
    with pytest.raises(UnsupportedError) as caught:
        kernel.compile(ARRAY, ARRAY, N=n, target="cpu")
    assert caught.value.location is not None
    return str(caught.value)


def test_shared_memory_beyond_the_limit() -> None:
    text = refused(through, 1 << 16)
    assert "17179869184 bytes" in text and "at most 1073741824 bytes" in text


def test_shared_memory_beyond_the_limit_in_all() -> None:
    through.compile(ARRAY, ARRAY, N=12000, target="cpu")
    assert "at most 1073741824 bytes" in refused(twice, 12000)


@pytest.mark.parametrize("n", [1 << 16, 1 << 18])
def test_tiles_beyond_the_limit(n: int) -> None:
    text = refused(double, n)
    assert f"a tile of {n} x {n}" in text and f"{n * n} elements" in text
    assert "at most 268435456 elements" in text and "more workgroups" in text


def test_a_launch_without_memory() -> None:
    size = 1 << 62  # more than a process can address, whatever the system promises
    with pytest.raises(LaunchError, match=str(size)):
        workspace.acquire(size)
