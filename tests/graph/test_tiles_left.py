"""Tiles of products that a graph leaves to a target, which knows them better than its rates say."""

# Functions that are traced are plain Python.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import dtypes
from tilewright import graph as G
from tilewright.diagnostics import UnsupportedError
from tilewright.graph import compiled
from tilewright.targets.base import CompileOptions, get_target

bf16 = ml_dtypes.bfloat16


def product(x, w):
    return x @ w


def siblings(x, a, b):
    return x @ a, (x @ b) * 0.5


def gated(x, a, b):
    return G.silu(x @ a) * (x @ b)


def norm(x, g, w):
    return G.rms_norm(x, g) @ w


def turned(x, w):
    return (x.T @ w).T


def attention(q, k, v):
    return G.softmax((q @ k.swapaxes(-1, -2)) * 0.25) @ v


CASES: dict[str, tuple[Any, list[tuple[int, ...]], set[str]]] = {
    "product": (product, [(150, 600), (600, 170)], {"BI", "BJ", "BK"}),
    "siblings": (siblings, [(150, 600), (600, 170), (600, 170)], {"BI", "BJ", "BK"}),
    "gated": (gated, [(150, 600), (600, 170), (600, 170)], {"BI", "BJ", "BK"}),
    "turned": (turned, [(600, 150), (600, 170)], {"BI", "BJ", "BK"}),
    "norm": (norm, [(150, 600), (600,), (600, 170)], {"BI", "BJ"}),
    "attention": (attention, [(3, 300, 64), (3, 600, 64), (3, 600, 64)], {"BJ", "BL"}),
    "few rows": (product, [(5, 600), (600, 170)], {"BJ", "BK"}),
}
"""Functions, shapes, and the constants that are left."""


def meaning(name: str, x: list[Any]) -> list[Any]:
    x = [a.astype(np.float64) for a in x]
    if name in ("product", "few rows"):
        return [x[0] @ x[1]]
    if name == "siblings":
        return [x[0] @ x[1], x[0] @ x[2] * 0.5]
    if name == "gated":
        y = x[0] @ x[1]
        return [y / (1 + np.exp(-y)) * (x[0] @ x[2])]
    if name == "turned":
        return [(x[0].T @ x[1]).T]
    if name == "norm":
        return [x[0] / np.sqrt((x[0] ** 2).mean(1, keepdims=True) + 1e-6) * x[1] @ x[2]]
    s = x[0] @ x[1].swapaxes(1, 2) * 0.25
    p = np.exp(s - s.max(-1, keepdims=True))
    return [p / p.sum(-1, keepdims=True) @ x[2]]


@pytest.mark.parametrize("size", [16, 48, 112])
@pytest.mark.parametrize("name", CASES)
def test_any_value_is_right(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes, left = CASES[name]
    r = fresh_rng()
    arrays = [
        (r.standard_normal(s) / np.sqrt(s[-2] if len(s) > 1 else 1)).astype(bf16) for s in shapes
    ]
    graph = G.trace(function, *arrays).compile(target="sm_90a")
    (text,) = graph.plan().kernels
    assert set(text.tiled) == left and text.multiplied == {(dtypes.bf16, dtypes.bf16)}
    monkeypatch.setattr(graph, "_options", {"target": "cpu"})
    monkeypatch.setattr(compiled, "auto", size)
    out = graph(*arrays)
    for made, want in zip(
        out if isinstance(out, tuple) else (out,), meaning(name, arrays), strict=True
    ):
        assert np.linalg.norm(made.astype(np.float64) - want) <= 8e-3 * np.linalg.norm(want)


def test_gathered_rows_keep_their_tiles() -> None:
    """Indices past the end of an axis would be of rows."""
    ids, table, w = (
        np.zeros(s, t) for s, t in (((70,), np.int64), ((30, 64), bf16), ((64, 96), bf16))
    )
    graph = G.trace(lambda ids, table, w: table[ids] @ w, ids, table, w).compile(target="sm_90a")
    assert not any(text.tiled for text in graph.plan().kernels)


def test_tiles_stay_where_the_target_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (np.ones(s, bf16) for s in ((70, 600), (600, 90)))
    graph = G.trace(product, x, w).compile(target="sm_90a")
    (text,) = graph.plan().kernels
    assert text.tiled
    monkeypatch.setattr(graph, "_options", {"target": "cpu"})

    def refused(*_: Any, **__: Any) -> Any:
        raise UnsupportedError("nothing is legal")

    monkeypatch.setattr(get_target("cpu"), "choices", refused)
    assert (graph(x, w) == 600).all() and not text.tiled


def test_a_target_says_what_it_knows() -> None:
    def knows(target: str, dtype: dtypes.DType) -> bool:
        return get_target(target).tiles_products(dtype, dtype, CompileOptions(target=target))

    assert knows("sm_90a", dtypes.bf16) and knows("sm_90a", dtypes.i8)
    assert not knows("sm_90a", dtypes.f32) and not knows("sm_80", dtypes.bf16)
    assert not knows("cpu", dtypes.bf16)


def test_what_is_left_is_chosen_ahead() -> None:
    """512 x 1024 by 1024 x 1024 in a tile for each multiprocessor, and not the sixteen that rates give."""
    x, w = np.zeros((512, 1024), bf16), np.zeros((1024, 1024), bf16)
    graph = G.trace(product, x, w).compile(target="sm_90a")
    (made,) = graph.ahead("sm_90a")
    assert "wgmma.mma_async.sync.aligned.m64n64k16" in made.asm["ptx"]


def test_blocks_of_keys_are_long_where_sums_are_rescaled_for_each():
    """256 queries by 64 keys take 84 us on an H200 however many programs share a head; 128 by 128 are rescaled half as
    often."""
    q = np.zeros((32, 2048, 64), bf16)
    (kernel,) = G.trace(attention, q, q, q).compile(target="sm_90a").plan().schedule.kernels
    assert (
        max(n for a, n in kernel.tiling.step.items() if kernel.tiling.mapping[a] == "sequential")
        >= 128
    )
