"""The builder, macro kernels and explanations: what is recorded, what is refused, what is counted."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright.diagnostics import CompileError, LaunchError
from tilewright.graph.operations import OPERATIONS


def product(tm=32, tn=32, tk=16, dtype=tw.f32):
    g = G.Builder("product", "M", "N", "K")
    a = g.input("A", dtype, ["M", "K"]).tiles(tm, tk)
    b = g.input("B", dtype, ["K", "N"]).tiles(tk, tn, order=(1, 0))
    c = g.output("C", dtype, ["M", "N"]).tiles(tm, tn)
    for a_row, c_row in g.block(a, c):
        for b_column, c_tile in g.block(b, c_row):
            acc = g.zeros(tm, tn)
            for a_tile, b_tile in g.sequential(a_row, b_column):
                g.mma(g.load_s2r(g.load_g2s(a_tile)), g.load_s2r(g.load_g2s(b_tile)), into=acc)
            g.store_s2g(g.store_r2s(acc, dtype), c_tile)
    return g


def test_the_graph_is_the_loop_nest_as_written():
    graph = product().graph()
    (kernel,) = graph.tasks
    assert [(a.name, a.mapping, a.step) for a in kernel.axes] == [
        ("i", "block", 32),
        ("j", "block", 32),
    ]
    (loop,) = [n for n in kernel.nodes if isinstance(n, G.Task)]
    assert [o.op for o in loop.operations()] == ["copy"] * 4 + ["mma"]
    assert G.parse_graph(str(graph)) == graph
    assert {b.level for b in graph.buffers.values()} == {"global", "shared", "register"}


@pytest.mark.parametrize("dtype", [tw.f32, tw.f16], ids=str)
def test_it_multiplies_with_ragged_edges(dtype):
    rng = fresh_rng()
    a, b = (rng.standard_normal(s).astype(dtype.numpy) for s in ((70, 40), (40, 50)))
    run = product(dtype=dtype).graph().compile()
    want = a.astype(np.float64) @ b.astype(np.float64)
    limit = 1e-6 if dtype is tw.f32 else 2e-3
    out = np.full((70, 50), np.nan, dtype.numpy)
    assert run(a, b, out=out) is out
    assert np.linalg.norm(out - want) <= limit * np.linalg.norm(want)


def test_counts_of_a_written_graph_are_those_of_its_loops():
    told = product().graph().explain(M=64, N=96, K=48)
    (kernel,) = told.kernels
    programs, steps, tile = 2 * 3, 3, 4 * 32 * 16
    assert kernel.programs == programs
    assert kernel.bytes["global"] == programs * (steps * 2 * tile + 4 * 32 * 32)
    assert kernel.least == 4 * (64 * 48 + 48 * 96 + 64 * 96)
    # An mma, and what touches no data: copies.
    assert kernel.flops == 2 * 64 * 96 * 48
    assert "1 kernel, as written" in str(told)


def test_what_the_builder_refuses():
    g = G.Builder("g", "M")
    x = g.input("x", tw.f32, ["M", 64])
    with pytest.raises(CompileError, match="2 dimensions, 1 tile sizes"):
        x.tiles(16)
    with pytest.raises(CompileError, match="the name x is given twice"):
        g.input("x", tw.f32, [3])
    with pytest.raises(CompileError, match="the outermost iteration is over blocks"):
        next(g.sequential(x.tiles(16, 64)))
    y = g.output("y", tw.f32, ["M", 64]).tiles(32, 64)
    with pytest.raises(CompileError, match="M in steps of 16, and M in steps of 32"):
        next(g.block(x.tiles(16, 64), y))
    for rows in g.block(x.tiles(16, 64)):
        with pytest.raises(CompileError, match="dimension 1 is not iterated over"):
            rows.tile()
        for tile in g.sequential(rows):
            with pytest.raises(CompileError, match="x stands at level global, not at shared"):
                g.load_s2r(tile)
            with pytest.raises(CompileError, match="there is no operation frobnicate"):
                g.apply("frobnicate", g.load_g2r(tile))


def test_macro_kernels_compose_and_are_called_by_name():
    @G.macro_kernel(meaning=lambda x: x * 3)
    def test_thrice(x):
        return x + x + x

    @G.macro_kernel(meaning=lambda x, y: x * 3 + y)
    def test_thrice_and(x, y):
        return test_thrice(x) + y

    g = G.Builder("macros")
    x = g.input("x", tw.f32, [40, 64]).tiles(16, 64)
    y = g.output("y", tw.f32, [40, 64]).tiles(16, 64)
    for x_row, y_row in g.block(x, y):
        for x_tile, y_tile in g.sequential(x_row, y_row):
            r = g.load_g2r(x_tile)
            g.store_r2g(g.apply("test_thrice_and", r, r), y_tile)
    run = g.graph().compile()
    x = fresh_rng().standard_normal((40, 64), np.float32)
    np.testing.assert_allclose(run(x), 4 * x, rtol=1e-6)
    assert "test_thrice_and(" in run.source()
    with pytest.raises(CompileError, match="mma is a primitive operation"):
        G.macro_kernel(meaning=np.matmul)(type(product)(product.__code__, {}, "mma"))


def test_arguments_that_do_not_fit_are_told():
    run = product().graph().compile()
    a, b = np.ones((8, 4), np.float32), np.ones((5, 8), np.float32)
    with pytest.raises(LaunchError, match="dimension 0 of B is 5, and K is 4"):
        run(a, b)
    with pytest.raises(LaunchError, match=r"takes 2 arrays \(A, B\), not 1"):
        run(a)
    with pytest.raises(LaunchError, match="A is f64"):
        run(a.astype(np.float64), b)
    with pytest.raises(LaunchError, match=r"out has shape \(3, 3\)"):
        run(a, b[:4], out=np.zeros((3, 3), np.float32))


def test_a_macro_kernel_keeps_its_name():
    @G.macro_kernel(meaning=lambda x: x + 1)
    def test_next(x):
        return x + 1.0

    text = """
def g():
    x = input(f32[16, 16])
    y = output(f32[16, 16])
    test_next = buffer("register", f32[16, 16])
    for i in space("g", block(16, 16)):
        test_next = test_next(x)
        y[i:i + 16, 0:16] = copy(test_next)
    return y
"""
    with pytest.raises(CompileError, match="a Buffer has the name of the macro kernel test_next"):
        G.parse_graph(text)


def test_a_micro_op_is_a_task_and_an_operation():
    @G.macro_kernel(meaning=lambda x: x * 2)
    def test_twice(x):
        return x * 2.0

    @G.micro_op
    def test_micro(m, a, b, p):
        """A Task of a cast, a macro kernel, a product that accumulates, and a reduction."""
        total = m.mma(m.test_twice(m.copy(a)), b, into=p)
        return m.reduce_max(m.sub(total, 0.25), axis=1)

    @G.micro_op
    def test_outer(m, a, b, p):
        return m.neg(m.test_micro(a, b, p))

    names = [step.op for step in test_micro.task.nodes]
    assert names == ["copy", "test_twice", "mma", "sub", "reduce_max"]
    g = G.Builder("micro")
    a, b = (g.input(n, tw.f32, [16, 16]).tiles(16, 16) for n in "AB")
    c = g.output("C", tw.f32, [16, 1]).tiles(16, 1)
    for a_row, b_row, c_row in g.block(a, b, c):
        for a_tile, b_tile in g.sequential(a_row, b_row):
            for c_tile in g.sequential(c_row):
                a_r, b_r = g.load_g2r(a_tile), g.load_g2r(b_tile)
                made = g.apply("test_outer", a_r, b_r, g.zeros(16, 16), shape=(16, 1))
                g.store_r2g(made, c_tile)
    graph = g.graph()
    assert G.parse_graph(str(graph)) == graph
    rng = fresh_rng()
    x, y = (rng.standard_normal((16, 16), np.float32) for _ in range(2))
    want = -((2 * x @ y) - 0.25).max(1, keepdims=True)
    assert np.allclose(graph.compile()(x, y), want, atol=1e-4)
    zero = np.zeros((16, 16), np.float32)
    assert np.allclose(OPERATIONS["test_outer"].meaning(x, y, zero), want, atol=1e-4)
    assert not zero.any(), "operands are not written"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda m, a: m.nothing(a), "no operation nothing on tiles"),
        (lambda m, a: m.mask(a), "no operation mask on tiles"),
        (lambda m, a: m.add(a), "add takes 2 operands, not 1"),
        (lambda m, a: 3, "returns 3"),
    ],
)
def test_what_is_no_micro_op_is_refused(body, message):
    body.__name__ = "test_no_micro_op"
    with pytest.raises(CompileError, match=message):
        G.micro_op(body)


def test_loops_side_by_side_have_steps_of_their_own():
    g = G.Builder("chain", "M", "N", "K")
    xs = g.input("x", tw.f32, ["M", "K"]).tiles(16, 16)
    ws = g.input("w", tw.f32, ["K", "N"]).tiles(16, 32, order=(1, 0))
    vs = g.input("v", tw.f32, ["N", "K"]).tiles(32, 64)
    ys = g.output("y", tw.f32, ["M", "K"]).tiles(16, 64)
    for x_row, y_row in g.block(xs, ys):
        for y in g.sequential(y_row):
            acc = g.zeros(16, 64)
            for w_column, v_row in g.sequential(ws, vs):
                h = g.zeros(16, 32)
                for x, w in g.sequential(x_row, w_column):  # by 16
                    g.mma(g.load_g2r(x), g.load_g2r(w), into=h)
                for v in g.sequential(v_row):  # by 64, at the same depth
                    g.mma(h, g.load_g2r(v), into=acc)
            g.store_r2g(acc, y)
    rng = fresh_rng()
    x, w, v = (rng.standard_normal(s, np.float32) for s in ((40, 50), (50, 70), (70, 50)))
    want = x.astype(np.float64) @ w @ v
    assert np.linalg.norm(g.graph().compile()(x, w, v) - want) <= 1e-6 * np.linalg.norm(want)
