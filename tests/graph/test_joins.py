"""What is put together from parts: joined, stacked, padded, rolled; in memory, or spread to its readers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright.diagnostics import CompileError, UnsupportedError
from tilewright.graph.compiled import CompiledGraph
from tilewright.graph.joins import in_views, spread, wholes


def rotary(x, cos, sin):
    """Halves of the last dimension as the two coordinates of what is turned."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def appended(q, keys, values, key, value):
    """Attention over a cache and what is appended to it, which is returned as well."""
    keys, values = np.concatenate([keys, key], 1), np.concatenate([values, value], 1)
    return G.softmax(q @ keys.swapaxes(-1, -2) * 0.125) @ values, keys, values


def heads(x, w, out):
    parts = [G.softmax((x @ w[i]) @ (x @ w[i]).T) @ x for i in range(2)]
    return np.concatenate(parts, -1) @ out


def lstm(xs, h, c, w):
    def cell(state, x):
        h, c = state
        i, f, g, o = np.split(np.concatenate([x, h], 1) @ w, 4, 1)
        c = G.sigmoid(f) * c + G.sigmoid(i) * np.tanh(g)
        h = G.sigmoid(o) * np.tanh(c)
        return (h, c), h

    return G.scan(cell, (h, c), xs)[1]


def skip(x, w, v):
    """A convolution, half the size, and both together into another one."""

    def convolved(x, w):
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return np.einsum("bhwcrs,rscf->bhwf", G.windows(x, (3, 3), (1, 2)), w)

    a = np.maximum(convolved(x, w), 0)
    b = np.repeat(np.repeat(a[:, ::2, ::2], 2, 1), 2, 2)
    return convolved(np.concatenate([a, b], -1), v)


SHAPES: dict[str, Any] = {
    "rotary": (rotary, (30, 64), (30, 32), (30, 32)),
    "appended": (appended, (2, 1, 64), (2, 70, 64), (2, 70, 64), (2, 3, 64), (2, 3, 64)),
    "heads": (heads, (20, 16), (2, 16, 24), (32, 10)),
    "lstm": (lstm, (3, 9, 12), (9, 16), (9, 16), (28, 64)),
    "skip": (skip, (1, 6, 4, 3), (3, 3, 3, 8), (3, 3, 16, 4)),
    "both ways": (lambda a, b: np.concatenate([a.T, b], 1) @ np.concatenate([a, b.T]), (30, 20), (20, 18)),
    "with itself": (lambda a, b: (lambda z: z @ z.T)(np.concatenate([a, b], 1)), (30, 20), (30, 12)),
    "rows with itself": (lambda a, b: (lambda z: z @ z.T)(np.concatenate([a, b])), (30, 20), (7, 20)),
    "blocks": (lambda a, b: np.hstack([np.vstack([a, b]), np.vstack([b, a])]).max(0), (30, 20), (7, 20)),
    "whole and part": (lambda a, b: (lambda z: (z.sum(1), z[:, :30] * 2, z[:, 20:40]))(np.append(a, b, 1)),
                       (20, 30), (20, 18)),
    "norm": (lambda a, b: G.layer_norm(np.concatenate([a, b, a], 1)), (30, 64), (30, 7)),
    "single": (lambda a, b: np.concatenate([a, b, a.sum(1, keepdims=True)], 1) * 2.0, (30, 5), (30, 1)),
    "all": (lambda a, b: np.concatenate([a, b], None) + 1.0, (3, 5), (4,)),
    "stacked": (lambda a, b: np.stack([a, b * 2]).transpose(1, 0, 2).reshape(9, 40), (9, 20), (9, 20)),
    "in turn": (lambda a, b: np.stack([a, np.tanh(b)], -1).reshape(9, 40), (9, 20), (9, 20)),
    "stacked sums": (lambda a, b: np.stack([a.sum(), b.max(), a.mean()]), (9, 20), (9, 20)),
    "stacked in a scan": (lambda a, b: G.scan(lambda s, x: (s + x, np.stack([s, x]).max(0)), b, a)[1], (6, 20), (20,)),
    "padded": (lambda a, b: np.pad(a * b, ((1, 2), (3, 0))), (9, 20), (9, 20)),
    "padded, read": (lambda a, b: np.pad(a, 1).sum(1) + b, (9, 20), (11,)),
    "padded by ones": (lambda a, b: np.pad(a + b, 2, constant_values=1.0), (9, 20), (9, 20)),
    "edges": (lambda a, b: np.pad(a, ((1, 2), (0, 3)), mode="edge") * 2, (9, 20), (9, 20)),
    "reflections": (lambda a, b: np.pad(a, ((1, 0), (0, 3)), mode="reflect"), (9, 20), (9, 20)),
    "rolled": (lambda a, b: np.roll(a, 3, 1) + np.roll(b, (1, -2), (0, 1)) + np.roll(a, 5), (9, 20), (9, 20)),
    "reversed": (lambda a, b: np.flip(a, 0) + b[:, ::-1] + np.flip(a), (9, 20), (9, 20)),
    "steps": (lambda a, b: (a[::2, 1::3], b[7::-2], (a @ b.T)[::4]), (9, 20), (9, 20)),
    "split": (lambda a, b: tuple(np.split(a, 4, 1)) + tuple(np.array_split(b, 3)), (9, 20), (10, 20)),
    "split at": (lambda a, b: tuple(np.split(a, [3, 9], 1)), (9, 20), (10, 20)),
    "tiled": (lambda a, b: np.tile(a, (2, 3)) + np.broadcast_to(b, (18, 15)), (9, 5), (1, 15)),
    "moved": (lambda a, b: np.moveaxis(a, 0, -1) * np.squeeze(b, 1), (3, 5, 4), (5, 1, 4, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_gives_what_numpy_gives(name: str, rng: np.random.Generator) -> None:
    function, *shapes = SHAPES[name]
    arrays = [rng.standard_normal(s, np.float32) / 2 for s in shapes]
    graph = G.trace(function, *arrays)
    assert G.parse_graph(str(graph)) == graph == G.parse_mlir(graph.mlir())
    got, want = graph.compile()(*arrays), function(*[a.astype(np.float64) for a in arrays])
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True):
        assert one.shape == other.shape
        assert np.linalg.norm(one - other) <= 2e-6 * np.linalg.norm(other)


@pytest.mark.parametrize("name", ["rotary", "appended", "heads", "lstm", "norm"])
def test_is_one_kernel(name: str) -> None:
    function, *shapes = SHAPES[name]
    graph = G.trace(function, *map(G.array, shapes))
    scheduled = graph.compile().plan().schedule.graph
    assert len(scheduled.tasks) == 1
    assert G.parse_graph(str(scheduled)) == scheduled == G.parse_mlir(scheduled.mlir())
    assert scheduled._repr_svg_().count("alias_of") == 0


@pytest.mark.parametrize("target", ["sm_90a", "xe-pvc"])
def test_compiles_for(target: str) -> None:
    for name in ("rotary", "appended"):
        function, *shapes = SHAPES[name]
        made = G.trace(function, *map(G.array, shapes)).compile(target=target).ahead(target)
        assert all(kernel.asm for kernel in made)


def test_dtypes_are_promoted_and_kept() -> None:
    rng = fresh_rng()
    x = rng.standard_normal((9, 20), np.float32).astype(np.float16)
    y = rng.integers(-3, 9, (9, 7)).astype(np.int8)
    run = G.trace(lambda a, b: (np.concatenate([a, a], 1), np.concatenate([b > 0, b < 3], 1), np.concatenate([b, b])),
                  x, y).compile()  # fmt: skip
    halves, masks, bytes_ = run(x, y)
    np.testing.assert_array_equal(halves, np.concatenate([x, x], 1))
    np.testing.assert_array_equal(masks, np.concatenate([y > 0, y < 3], 1))
    np.testing.assert_array_equal(bytes_, np.concatenate([y, y]))
    assert (halves.dtype, bytes_.dtype) == (x.dtype, y.dtype)


def test_symbols_in_extents() -> None:
    """The cache has N keys, M are appended: the result N + M; nothing is compiled for one number of them."""
    graph = G.trace(
        appended, G.array([2, 1, 64]), *[G.array([2, "N", 64])] * 2, *[G.array([2, "M", 64])] * 2
    )
    run, rng = graph.compile(), fresh_rng()
    for n, m in ((5, 1), (70, 3)):
        arrays = [rng.standard_normal((2, e, 64), np.float32) for e in (1, n, n, m, m)]
        got, want = run(*arrays), appended(*[a.astype(np.float64) for a in arrays])
        for one, other in zip(got, want, strict=True):
            assert np.linalg.norm(one - other) <= 2e-6 * np.linalg.norm(other)


def test_in_memory_and_spread_agree() -> None:
    """Both ways to read a whole, whatever is estimated to be faster; a part is never memory that another kernel has."""
    rng = fresh_rng()

    def function(a, b, w):
        z = np.concatenate([a, np.tanh(b)], 1)
        return G.softmax(z) @ w + z.max(1, keepdims=True)

    a, b, w = (rng.standard_normal(s, np.float32) for s in ((40, 30), (40, 9), (39, 20)))
    views = in_views(G.trace(function, a, b, w))
    assert wholes(views) == ["joined"]
    apart = spread(views, wholes(views))
    assert wholes(apart) == [] and "joined" not in apart.buffers
    want = function(*(x.astype(np.float64) for x in (a, b, w)))
    for graph, fuse in ((views, True), (views, False), (apart, True), (apart, False)):
        got = CompiledGraph(graph.validate(), {}, fuse)(a, b, w)
        assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)


def test_a_part_in_the_text_form() -> None:
    text = """
def g():
    x = input(f32[8, 4])
    y = output(f32[8, 6])
    left = buffer("global", f32[8, 4], alias_of=y[0:8, 0:4])
    right = buffer("global", f32[8, 2], alias_of=y[0:8, 4:6])
    for i, j in space("left", each(8), each(4)):
        left[i, j] = copy(x[i, j])
    for i, j in space("right", each(8), each(2)):
        right[i, j] = add(x[i, j], 1.0)
    return y
"""
    graph = G.parse_graph(text)
    assert G.parse_graph(str(graph)) == graph == G.parse_mlir(graph.mlir())
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(graph.compile()(x), np.hstack([x, x[:, :2] + 1]))
    for old, new, told in (
        ("y[0:8, 4:6]", "y[0:8, 5:7]", "elements 5 to 7 of dimension 1 of y, which has 6"),
        ("y[0:8, 4:6]", "y[0:8, 3:6]", "a run of each of its dimensions: \\[8, 2\\] here"),
        ("y[0:8, 4:6]", "y[0:8]", "a run of each"),
        ("y[0:8, 4:6]", "y[2, 4:6]", "a run of each"),
        ("alias_of=y[0:8, 4:6]", "alias_of=right[0:8, 0:2]", "no Buffer is called right"),
    ):
        with pytest.raises(CompileError, match=told):
            G.parse_graph(text.replace(old, new))


def test_elements_of_a_whole_are_written_once_and_all() -> None:
    text = """
def g():
    x = input(f32[8, 4])
    y = output(f32[8, 8])
    for i, j in space("y", each(8), each(4)):
        y[i, j] = copy(x[i, j])
    for i, j in space("y", each(8), each(4)):
        y[i, j + 4] = copy(x[i, j])
    return y
"""
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(G.parse_graph(text).compile()(x), np.hstack([x, x]))
    with pytest.raises(CompileError, match="writes as well"):
        G.parse_graph(text.replace("j + 4]", "j + 3]"))
    with pytest.raises(CompileError, match="is never written"):
        G.parse_graph(text.replace("f32[8, 8]", "f32[8, 9]"))
    inner = text.replace("output(f32[8, 8])", 'buffer("global", f32[8, 9])').replace(
        "return y",
        "z = output(f32[8, 9])\n"
        '    for i, j in space("z", each(8), each(9)):\n'
        "        z[i, j] = neg(y[i, j])\n"
        "    return z",
    )
    with pytest.raises(UnsupportedError, match="in parts that are not all of it"):
        G.parse_graph(inner).compile().plan()


REFUSED: dict[str, tuple[Any, str]] = {
    "shapes": (lambda x: np.concatenate([x, x[1:]], 1), r"concatenate of \[8, 6\] and \[7, 6\] along dimension 1"),
    "arrays": (lambda x: np.concatenate([x, np.zeros((2, 6))]), r"a traced array and ndarray \(2, 6\)"),
    "uneven": (lambda x: np.split(x, 3), "3 equal parts of a dimension of 8"),
    "mode": (lambda x: np.pad(x, 1, mode="median"), "np.pad with mode 'median'"),
    "axis": (lambda x: np.stack([x, x], 3), "axis 3 of an array with 3 dimensions"),
    "step": (lambda x: x[::0], "a slice with the step 0"),
    "symbols": (lambda x: x[::2], "dimension of M, which is no number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    function, told = REFUSED[name]
    with pytest.raises(CompileError, match=told):
        G.trace(function, G.array(["M" if name == "symbols" else 8, 6], tw.f32))


def test_a_state_that_is_put_together_is_refused() -> None:
    """A state is in registers, which have no parts."""
    graph = G.trace(
        lambda xs, s: G.scan(lambda s, x: (np.concatenate([s[1:], x]), s), s, xs)[1],
        G.array([6, 1]), G.array([4]),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedError, match="next_state reads joined, of which joined_0 is a part"
    ):
        graph.compile().plan()


def test_what_is_compiled_ahead_is_planned_for_its_target():
    """Tiles of k that a CPU multiplies in one step leave no room in a GPU's shared memory."""
    arrays = G.array([512, 512], tw.bf16), G.array([512, 1024], tw.bf16)
    graph = G.trace(lambda x, w: x @ w, *arrays)
    (ahead,) = graph.compile().ahead("sm_90a")
    (planned,) = graph.compile(target="sm_90a").ahead("sm_90a")
    assert ahead.asm["ptx"] == planned.asm["ptx"]
