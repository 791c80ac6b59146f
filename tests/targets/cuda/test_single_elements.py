"""single-elements: vectors that are loaded to be taken apart are loaded element by element, the others as they are."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget
from tilewright import reference
from tilewright.dialects import xetile
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.passes.single_elements import single_elements


@tw.kernel
def pages(Q, K, T, O, N: tw.constexpr = 4, P: tw.constexpr = 32):
    """O = sum of Q K[T[0, t]] over all t, several numbers of pages at a time; beyond the table they are 0."""
    q = tw.load_tile(tw.init_tile(Q, [0, 0], (64, P)))
    acc = tw.zeros((64, 64), tw.f32)
    for t in range(0, T.shape[1], N):
        numbers = tw.load_tile(tw.init_tile(T, [0, t], (1, N)))
        for u in tw.static_range(N):
            page = tw.load_tile(tw.init_tile(K, [numbers[0, u], 0, 0], (P, 64)))
            acc = tw.tile_mma(q, page, acc)
    tw.store_tile(acc, tw.init_tile(O, [0, 0], (64, 64)))


@tw.kernel
def as_a_whole(T, O, N: tw.constexpr = 4):
    v = tw.load_tile(tw.init_tile(T, [0, 1], (1, N)))
    tw.store_tile(v + v[0, 2], tw.init_tile(O, [0, 0], (1, N)))


@tw.kernel
def many(T, O, N: tw.constexpr = 16):
    v = tw.load_tile(tw.init_tile(T, [0, 1], (1, N)))
    total = v[0, 0]
    for u in tw.static_range(1, N):
        total = total + v[0, u]
    O[0, 0] = total


@tw.kernel
def corners(T, O):
    v = tw.load_tile(tw.init_tile(T, [1, 1], (4, 4)), padding=3)
    O[0, 0] = v[0, 3] * 10 + v[3, 1]


def loads(module: Any) -> list[tuple[int, ...]]:
    """Shapes of what is loaded."""
    ops = (op for op in module.walk() if isinstance(op, xetile.LoadTileOp))
    return [op.tile.type.get_shape() for op in ops]


def changed(kernel: Any, *args: Any) -> tuple[Any, Any]:
    text = kernel.compile(*args, target="reference").ir["xetile"]
    before, after = parse_module(text), parse_module(text)
    single_elements(kernel_of(after))
    verify_module(after)
    return before, after


@pytest.mark.parametrize("kernel", [as_a_whole, many], ids=lambda k: k.function.__name__)
def test_other_vectors_stay(kernel: Any) -> None:
    before, after = changed(kernel, np.zeros((1, 20), np.int32), np.zeros((1, 16), np.int32))
    assert loads(before) == loads(after)


def test_elements_of_a_tile_that_leaves_its_array(rng: np.random.Generator) -> None:
    t = rng.integers(0, 99, (4, 5)).astype(np.int32)
    before, after = changed(corners, t, np.zeros((1, 1), np.int32))
    assert (4, 4) in loads(before) and set(loads(after)) == {(1, 1)}
    found = [np.zeros((1, 1), np.int32) for _ in range(2)]
    for module, out in zip((before, after), found, strict=True):
        reference.run(module, 1, [t, out])
    assert found[0] == found[1] == t[1, 4] * 10 + 3


def test_the_copying_role_loads_the_numbers_of_pages(rng: np.random.Generator) -> None:
    q, k = (rng.standard_normal(s).astype(np.float16) for s in ((64, 32), (9, 32, 64)))
    table = rng.permutation(9)[:7].astype(np.int32)[None]
    out = np.full((64, 64), np.nan, np.float32)
    code = pages.compile(q, k, table, out, target="reference").ir["xetile"]
    options = CompileOptions(target="cuda", machine="sm_90a")
    built = ThreadsTarget("sm_90a").build(parse_module(code), options)
    assert "stage.roles" in built.ir["stage"]
    built.launch((1, 1, 1), [describe(x) for x in (q, k, table, out)])
    wanted = q.astype(float) @ k[[*table[0], 0]].astype(float).sum(0)
    np.testing.assert_allclose(out, wanted, atol=2e-2)
