"""Reshapes as addresses: places in digits, copies that are read where they come from, dimensions that are cut."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright.graph.affine import Affine, affine
from tilewright.graph.digits import addressed, cut, digits


def test_digits_are_the_place():
    rng = fresh_rng()
    seen = 0
    for _ in range(900):
        shape = [int(n) for n in rng.choice([1, 2, 3, 4, 6], 3)]
        extents = {"i": int(rng.integers(1, 5)), "j": int(rng.integers(1, 7))}
        flat = Affine((), int(rng.integers(0, 12)))
        for name in extents:
            flat = flat + affine(name) * int(rng.choice([-2, -1, 1, 2, 3, 4, 6, 12, 24]))
        values = [
            {"i": i, "j": j} for i in range(extents["i"]) for j in range(extents["j"])
        ]  # fmt: skip
        places = [flat.value(v) for v in values]
        if min(places) < 0 or max(places) >= prod(shape):
            continue
        found = digits(flat, shape, extents)
        if not isinstance(found, list):
            continue
        seen += 1
        for v, place in zip(values, places, strict=True):
            assert [d.value(v) for d in found] == [int(i) for i in np.unravel_index(place, shape)]
    assert seen > 20


def test_an_axis_that_straddles_is_split():
    assert digits(affine("i"), (4, 8), {"i": 32}) == ("i", 8)
    assert digits(affine("i") * 2, (4, 8), {"i": 16}) == ("i", 4)
    assert digits(affine("i") + 3, (4, 8), {"i": 12}) is None
    assert digits(affine("i"), (4, 8), {"i": 12}) is None
    assert digits(affine("i") * 8, (4, 8), {"i": 6}) is None  # no split keeps it within the whole
    assert digits(affine("i") * 4 - affine("j"), (4,), {"i": 2, "j": 2}) is None


# Whole graphs ---------------------------------------------------------------------------------------------------------


def heads(x: Any, n: int) -> Any:
    b, t, c = x.shape
    return x.reshape(b, t, n, c // n).transpose(0, 2, 1, 3)


def merged(x: Any) -> Any:
    b, h, t, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, t, h * d)


def attention(q: Any, k: Any, v: Any) -> Any:
    return G.softmax(q @ k.swapaxes(-1, -2) * 0.25) @ v


def separate(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    return merged(attention(*(heads(x @ w, 2) for w in (wq, wk, wv)))) @ wo


def beside(x: Any, w: Any, wo: Any) -> Any:
    return merged(attention(*(heads(y, 2) for y in np.split(x @ w, 3, -1)))) @ wo


def together(x: Any, w: Any, wo: Any) -> Any:
    b, t, _ = x.shape
    y = (x @ w).reshape(b, t, 3, 2, -1).transpose(2, 0, 3, 1, 4)
    return merged(attention(y[0], y[1], y[2])) @ wo


def turned(x: Any, c: Any, s: Any) -> Any:
    x = heads(x, 2)
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def shifted(x: Any, w: Any) -> Any:
    b, h, k, c = x.shape
    y = x.reshape(b, h // 4, 4, k // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, c) @ w
    y = y.reshape(b, h // 4, k // 4, 4, 4, c).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(x.shape) + x


def normed(x: Any, w: Any) -> Any:
    y = (x @ w).reshape(3, 20, 4, 6)
    return G.rms_norm(y).reshape(3, 20, 24)


def butterflies(x: Any) -> Any:
    for h in (1, 2, 4):
        x = x.reshape(6, -1, 2, h)
        x = np.stack([x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]], 2)
    return x.reshape(6, 8)


def transposed_twice(x: Any, w: Any) -> Any:
    y = np.maximum(x, 0).transpose(2, 0, 1).reshape(-1, 6)
    return (y @ w).reshape(4, 2, 5).transpose(1, 2, 0).reshape(5, 8)


def counted(x: Any) -> Any:
    y = np.where(G.indices(x, 1) < 5, x, 0.0).reshape(6, 2, 4)
    return y * (G.indices(y, 2) + 1.0)


CASES: dict[Callable[..., Any], tuple[tuple[int, ...], ...]] = {
    separate: ((2, 20, 32), (32, 32), (32, 32), (32, 32), (32, 32)),
    beside: ((2, 20, 32), (32, 96), (32, 32)),
    together: ((2, 20, 32), (32, 96), (32, 32)),
    turned: ((2, 20, 32), (20, 8), (20, 8)),
    shifted: ((2, 8, 12, 16), (16, 16)),
    normed: ((3, 20, 24), (24, 24)),
    butterflies: ((6, 8),),
    transposed_twice: ((6, 2, 4), (6, 5)),
    counted: ((6, 8),),
}


def drawn(shapes: Any) -> list[Any]:
    rng = fresh_rng()
    return [(rng.standard_normal(s) / s[0] ** 0.5).astype(np.float32) for s in shapes]


def near(found: Any, wanted: Any) -> bool:
    return float(np.linalg.norm(found - wanted)) <= 2e-6 * float(np.linalg.norm(wanted)) + 1e-30


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_every_form_means_the_same(function: Any):
    arrays = drawn(CASES[function])
    wanted = function(*(a.astype(np.float64) for a in arrays))
    graph = G.trace(function, *(G.array(a.shape) for a in arrays))
    forms = [addressed(graph)]
    forms.append(cut(forms[0]))
    for form in forms:
        for fuse in (False, True):
            assert near(form.compile(fuse=fuse)(*arrays), wanted), str(form)


@pytest.mark.parametrize("function", [separate, beside, together, normed, shifted])
def test_no_reshape_is_left(function: Any):
    graph = G.trace(function, *(G.array(s) for s in CASES[function]))
    form = cut(addressed(graph))
    reads = {a.buffer for o in form.operations() for a in o.reads}
    reshaped = {n for n in reads if form.buffers[n].alias_of and not form.buffers[n].start}
    assert all(form.buffers[form.memory(n)].role == "input" for n in reshaped), str(form)


@pytest.mark.parametrize("function", [separate, beside, together, normed])
def test_heads_are_addresses(function: Any):
    graph = G.trace(function, *(G.array(s) for s in CASES[function]))
    assert len(graph.compile().plan().kernels) == 1


def test_random_views():
    rng = fresh_rng()
    for _ in range(12):
        steps: list[Callable[[Any], Any]] = []
        x = like = (rng.standard_normal((4, 6, 8))).astype(np.float32)
        for _ in range(6):
            kind = rng.choice(["reshape", "transpose", "half", "odd", "relu", "norm"])
            at = int(rng.integers(0, x.ndim))
            if kind == "reshape":
                shape, rest = [], x.size
                for _ in range(int(rng.integers(1, 4))):
                    n = int(rng.choice([n for n in range(1, 9) if rest % n == 0]))
                    shape.append(n)
                    rest //= n
                step = lambda y, s=(*shape, rest): y.reshape(s)  # noqa: E731
            elif kind == "transpose":
                order = [int(d) for d in rng.permutation(x.ndim)]
                step = lambda y, o=order: y.transpose(o)  # noqa: E731
            elif kind in ("half", "odd") and x.shape[at] % 2 == 0:
                part = slice(x.shape[at] // 2, None) if kind == "half" else slice(1, None, 2)
                step = lambda y, k=(*[slice(None)] * at, part): y[k]  # noqa: E731
            elif kind == "relu":
                step = lambda y: np.maximum(y, 0.1) + y  # noqa: E731
            else:
                step = lambda y: y / (1 + np.abs(y).sum(-1, keepdims=True))  # noqa: E731
            x = step(x)
            steps.append(step)

        def run(y: Any, steps: Any = steps) -> Any:
            for step in steps:
                y = step(y)
            return y * 2

        wanted = run(like.astype(np.float64))
        graph = G.trace(run, G.array(like.shape))
        for form in (addressed(graph), cut(addressed(graph))):
            assert near(form.compile()(like), wanted), str(graph)


def test_an_input_that_is_cut_back_into_its_own_shape_is_read_in_it():
    """The reshape of a merges what the reshape of the sum cuts: a was made another shape of itself."""

    def f(a, b, w):
        left = a.reshape(20, 8) @ w.transpose(1, 0, 2).reshape(8, 18)
        return (left.reshape(20, 3, 6) * b.reshape(20, 1, 6)).sum(-1).reshape(4, 5, 3)

    rng = fresh_rng()
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((4, 5, 8), (4, 5, 6), (3, 8, 6))]
    got = G.trace(f, *arrays).compile()(*arrays)
    want = f(*[a.astype(np.float64) for a in arrays])
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)
