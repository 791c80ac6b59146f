"""Graphs about one feature each: on the reference executor and the CPU what numpy says, compiled for all machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import graph as G

X, W = [["M", 24]], [["M", 24], [24, 16]]


def _attention(q: Any, k: Any, v: Any) -> Any:
    return G.softmax((q @ k.swapaxes(-1, -2)) * 0.25) @ v


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[list[Any]]]] = {
    "elements": (lambda x: np.exp(x) * 0.5 + x, X),
    "a choice": (lambda x: np.where(x > 0, x, 0.1 * x), X),
    "sums of rows": (lambda x: x.sum(1), X),
    "the greatest of columns": (lambda x: x.max(0), [[20, 24]]),
    "a row of each": (lambda x, y: x + y, [["M", 24], [24]]),
    "softmax": (lambda x: G.softmax(x), X),
    "layer norm": (lambda x, w, b: G.layer_norm(x, w, b), [["M", 24], [24], [24]]),
    "a product": (lambda x, y: x @ y, W),
    "a product and its epilogue": (lambda x, y: np.maximum(x @ y, 0), W),
    "a norm into a product": (lambda x, y: G.softmax(x) @ y, W),
    "a product after another": (lambda x, y, z: (x @ y) @ z, [*W, [16, 24]]),
    "attention": (_attention, [["M", 16], ["N", 16], ["N", 16]]),
    "a transpose": (lambda x: x.swapaxes(0, 1) * 2.0, X),
    "a slice": (lambda x: x[:, 3:9] - 1.0, X),
    "another shape": (lambda x: x.reshape(-1, 8) + 1.0, [[6, 24]]),
    "batches": (lambda x, y: x @ y, [[3, "M", 16], [3, 16, 24]]),
}
SIZES = {"M": 13, "N": 19}


def _traced(name: str, dtype: Any = tw.f32) -> Any:
    function, shapes = FUNCTIONS[name]
    return G.trace(function, *(G.array(s, dtype) for s in shapes))


def _agrees(name: str, target: str) -> None:
    function, shapes = FUNCTIONS[name]
    rng = fresh_rng()
    arrays = [
        rng.standard_normal([SIZES.get(n, n) for n in shape]).astype(np.float32) for shape in shapes
    ]
    found = _traced(name).compile(target=target)(*arrays)
    wanted = function(*(a.astype(np.float64) for a in arrays))
    assert found.shape == wanted.shape
    assert np.linalg.norm(found - wanted) <= 2e-6 * np.linalg.norm(wanted)


def _compiles(name: str, target: str) -> None:
    used = {n: SIZES[n] for shape in FUNCTIONS[name][1] for n in shape if n in SIZES}
    graph = _traced(name, tw.bf16).compile(target=target)
    kernels = graph.ahead(target, **used)
    assert kernels and all("llvm" in kernel.asm for kernel in kernels)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_reference_does_what_numpy_says(name: str) -> None:
    _agrees(name, "reference")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_cpu_does_what_numpy_says(name: str) -> None:
    _agrees(name, "cpu")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_cuda_compiles_it(name: str) -> None:
    _compiles(name, "sm_90a")


@pytest.mark.parametrize("target", ["xe-pvc", "xe-bmg", "xe-dg2"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_xe_compiles_it(name: str, target: str) -> None:
    _compiles(name, target)
