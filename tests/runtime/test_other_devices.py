"""Arrays of the host and targets with memory of their own: compiled for freely, launched where that can be."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.targets.cuda import driver


@tw.kernel
def doubled(X, Y):
    tile = (16, 32)
    tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], tile)) * 2, tw.init_tile(Y, [0, 0], tile))


def test_compiling_needs_types_only():
    spec = tw.spec((64, 64), tw.f32)
    # One element further: where the arrays lie on the host must not matter.
    x, y = (np.ones(64 * 64 + 1, np.float32)[1:].reshape(64, 64) for _ in range(2))
    ours = doubled.compile(x, y, target="sm_90a")
    assert ours.signature == doubled.compile(spec, spec, target="sm_90a").signature
    assert ".target sm_90a" in ours.asm["ptx"]
    assert repr(ours) == "<compiled kernel doubled(f32[?, ?], f32[?, ?]) for sm_90a>"


def test_a_launch_out_of_reach_says_what_is_missing(monkeypatch):
    x = np.ones((64, 64), np.float32)
    monkeypatch.setattr(driver, "missing", lambda: "there is no NVIDIA driver here")
    with pytest.raises(tw.UnsupportedError) as caught:
        doubled.options(target="cuda")[1](x, x.copy())
    assert "target 'cuda' cannot run here: there is no NVIDIA driver here" in str(caught.value)
    monkeypatch.setattr(driver, "missing", lambda: None)
    with pytest.raises(tw.UnsupportedError) as caught:
        doubled.options(target="cuda")[1](x, x.copy())
    assert "cannot reach arrays on cpu" in str(caught.value)
    assert "x.to('cuda')" in str(caught.value)


@tw.kernel
def scattered(X, O):
    i = tw.arange(0, 16)
    tw.store_scatter(tw.load_gather(tw.init_tile(X, i)), tw.init_tile(O, i))


def test_the_hint_for_a_strided_array_loses_no_result():
    flat, strided = np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((4, 4), np.float32).T
    with pytest.raises(tw.LaunchError, match="indexes O as one flat") as caught:
        scattered.options(target="reference")[1](flat, strided)
    assert "allocate O contiguous: numpy.empty" in str(caught.value)
    assert "ascontiguousarray" not in str(caught.value)
    with pytest.raises(tw.LaunchError, match="indexes X as one flat") as caught:
        scattered.options(target="reference")[1](flat.T, flat.copy())
    assert "pass numpy.ascontiguousarray(X)" in str(caught.value)
