"""Traced expressions, scheduled and compiled, against numpy: with room for whole rows, and with so little that every
axis is a loop; ragged extents; several dtypes. The function that is traced is its own oracle.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import DLPackOnly
from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright import knobs, uarch
from tilewright.diagnostics import CompileError
from tilewright.graph.compiled import CompiledGraph
from tilewright.graph.fuse import schedule
from tilewright.graph.parts import in_parts
from tilewright.targets.base import rates_of

BF16 = np.dtype(ml_dtypes.bfloat16)
LIMIT = {np.dtype("f4"): 2e-6, BF16: 2e-2}


def back_to_back(a, b, c):
    return (a @ b) @ c


def attention(q, k, v):
    return G.softmax((q @ k.swapaxes(-1, -2)) * 0.125) @ v


def causal(q, k, v):
    s = (q @ k.swapaxes(-1, -2)) * 0.125
    return G.softmax(np.where(G.indices(s, 1) <= G.indices(s, 0), s, -1e30)) @ v


def gated(x, wg, wu, wd):
    return (G.silu(x @ wg) * (x @ wu)) @ wd


def norm_linear(x, w, b, weights):
    return G.layer_norm(x, w, b) @ weights


def embedding(ids, table, w):
    return G.relu(table[ids] @ w)


def experts(x, ids, w):
    return G.scatter_add(x.shape[0], ids, x[ids] @ w)


def convolution(x, w, b):
    y = np.einsum("bhwcrs,rscf->bhwf", G.windows(x, (3, 3), (1, 2)), w)
    return np.maximum(y + b, 0.0)


def residual(x, g, w1, w2):
    """The columns of x are summed over for the inner product, and kept for the sum at the end."""
    return x + G.relu(G.rms_norm(x, g) @ w1) @ w2


def centred(x):
    """A sum of sums: columns are kept by the one, and summed over by what it needs."""
    return (x.T @ (x - x.mean(1)[:, None])).sum(0)


def several(x, w):
    y = np.exp(x) * w
    return y, y.sum(0), x.max(1)


def softmax(x):
    return G.softmax(x)


def distances(x, y):
    return (x * x).sum(1)[:, None] - 2.0 * (x @ y.T) + (y * y).sum(1)


def gram(x):
    return np.tanh(x) @ np.tanh(x).T


def reshaped(x, w):
    return ((x @ w).reshape(-1, 4, 16).transpose(1, 0, 2) * 2.0).sum(2)


def halves(x, w):
    """A gated layer with one weight: what is read in parts is made in parts."""
    z = x @ w
    return G.silu(z[:, :48]) * z[:, 48:]


def thirds(x, w, b):
    """Through a sum and a product to the array; two of the parts are one column."""
    z = np.tanh(x @ w + b)
    return z[:, 0] * z[:, 1:34].sum(-1) + z[:, 40]


CASES = {
    "gemm": (lambda a, b: a @ b, [(70, 50), (50, 90)]),
    "back_to_back": (back_to_back, [(100, 64), (64, 130), (130, 48)]),
    "attention": (attention, [(2, 40, 32), (2, 75, 32), (2, 75, 32)]),
    "causal": (causal, [(40, 32), (40, 32), (40, 32)]),
    "gated": (gated, [(50, 40), (40, 100), (40, 100), (100, 40)]),
    "norm_linear": (norm_linear, [(30, 100), (100,), (100,), (100, 40)]),
    "embedding": (embedding, [(50, 33), (50, 64), (64, 40)]),
    "experts": (experts, [(50, 32), (50, 4, 20), (4, 32, 24)]),
    "convolution": (convolution, [(2, 9, 11, 8), (3, 3, 8, 16), (16,)]),
    "residual": (residual, [(40, 150), (150,), (150, 100), (100, 150)]),
    "centred": (centred, [(5, 70)]),
    "several": (several, [(1100, 20), (20,)]),
    "softmax": (softmax, [(21, 1500)]),
    "distances": (distances, [(40, 24), (30, 24)]),
    "gram": (gram, [(40, 24)]),
    "halves": (halves, [(33, 40), (40, 96)]),
    "thirds": (thirds, [(33, 40), (40, 50), (50,)]),
    "reshaped": (reshaped, [(20, 24), (24, 64)]),
}
INDEXED = {"embedding": 0, "experts": 1}
"""The argument that holds indices: its first extent is how many there are to choose from."""


def inputs(name, dtype):
    rng = fresh_rng()
    arrays = []
    for number, shape in enumerate(CASES[name][1]):
        if INDEXED.get(name) == number:
            arrays.append(rng.integers(0, shape[0], shape[1:]).astype(np.int32))
        else:
            arrays.append((rng.standard_normal(shape) * 0.5).astype(dtype))
    return arrays


def expected(function, arrays):
    wide = [a if a.dtype == np.int32 else a.astype(np.float64) for a in arrays]
    result = function(*wide)
    return result if isinstance(result, tuple) else (result,)


def check(compiled, arrays, wanted, limit):
    got = compiled(*arrays)
    for x, y in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
        assert x.shape == y.shape
        assert np.linalg.norm(x.astype(np.float64) - y) <= limit * np.linalg.norm(y)


class Tight(CompiledGraph):
    """With a machine that has room for hardly anything, and is slow to launch: every long axis becomes a loop."""

    values = 16 * 64 * 4

    def _scheduled(self, sizes):
        tiny = replace(
            rates_of("cpu"),
            accumulator_bytes=4 * self.values,
            value_bytes=self.values,
            launch_seconds=1.0,
        )
        made = schedule(self.graph.bound(sizes), "cpu", self._fuse, tiny)
        loops = {
            a.name for t in made.graph.tasks for n in t.nodes if hasattr(n, "axes") for a in n.axes
        }
        self.loops = loops
        return made


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name):
    arrays = inputs(name, np.float32)
    function = CASES[name][0]
    graph = G.trace(function, *arrays, name=name)
    compiled = graph.compile()
    check(compiled, arrays, expected(function, arrays), 2e-6)
    made = compiled.plan().schedule.graph
    assert G.parse_graph(str(made)) == made


@pytest.mark.parametrize(
    "name",
    ["back_to_back", "attention", "norm_linear", "residual", "centred", "softmax", "several"],
)
def test_in_loops(name):
    arrays = inputs(name, np.float32)
    function = CASES[name][0]
    compiled = Tight(G.trace(function, *arrays, name=name), {})
    check(compiled, arrays, expected(function, arrays), 2e-6)
    assert compiled.loops
    made = compiled.plan().schedule.graph
    assert G.parse_graph(str(made)) == made


@pytest.mark.parametrize("name", ["attention", "gated"])
def test_narrow_floats(name):
    arrays = inputs(name, BF16)
    function = CASES[name][0]
    check(G.trace(function, *arrays).compile(), arrays, expected(function, arrays), LIMIT[BF16])


def test_unfused_graphs_give_the_same():
    arrays = inputs("attention", np.float32)
    compiled = G.trace(attention, *arrays).compile(fuse=False)
    check(compiled, arrays, expected(attention, arrays), 2e-6)
    assert len(compiled.plan().kernels) > 4


def test_attention_is_one_pass_over_the_keys():
    """On a GPU: one kernel, one loop, the scores nowhere in memory; derived, as nothing here knows attention."""
    heads, length, d = 8, 2048, 128
    graph = G.trace(attention, *[G.array([heads, length, d], tw.bf16)] * 3)
    made = schedule(graph, "sm_90a")
    (task,) = made.graph.tasks
    loops = [n for n in task.nodes if isinstance(n, G.Task)]
    assert len(loops) == 1 and [a.mapping for a in loops[0].axes] == ["sequential"]
    ops = [o.op for o in loops[0].operations()]
    assert ops.count("mma") == 2 and ops.count("exp2") == 2, "one exp of scores, one that rescales"
    assert ops.count("mul") == 3, "scores by the scale and log2 e at once; sum and output rescaled"
    assert {b.name for b in made.graph.buffers.values() if b.level == "global"} == {
        "q",
        "k",
        "v",
        "out",
    }


def masked(lowest):
    """Softmax of scaled scores with a mask, some rows of which have nothing that is seen."""

    def function(x, seen):
        return G.softmax(np.where(seen > 0, x * 2.0, lowest)) + 0.0 * x

    return function


@pytest.mark.parametrize("lowest", [-1e30, float(np.finfo(np.float32).min)])
def test_powers_of_two_keep_what_is_not_seen_finite(lowest):
    rng = fresh_rng()
    x, seen = rng.standard_normal((20, 40), np.float32), (rng.random((20, 40)) < 0.5).astype("f4")
    seen[3] = 0
    run = G.trace(masked(lowest), x, seen).compile()
    check(run, [x, seen], expected(masked(lowest), [x, seen]), 2e-6)


@pytest.mark.parametrize("scale", [0.25, None])
def test_exp_becomes_exp2_where_a_constant_takes_the_factor(scale):
    """Without one it would be a product more; where the maximum is wanted as well, a maximum more."""
    graph = G.trace(lambda x: G.softmax(x if scale is None else x * scale), G.array([30, 40]))
    assert ("exp2" in [o.op for o in schedule(graph).graph.operations()]) == (scale is not None)

    def both(x):
        y = x * 0.25
        return np.exp(y - y.max(1)[:, None]), y.max(1)

    graph = G.trace(both, G.array([30, 40]))
    assert "exp2" not in [o.op for o in schedule(graph).graph.operations()]


def test_a_chain_of_products_keeps_the_intermediate_in_registers():
    specs = [G.array(s, tw.bf16) for s in ((16384, 64), (64, 4096), (4096, 64))]
    made = schedule(G.trace(back_to_back, *specs), "sm_90a")
    (task,) = made.graph.tasks
    assert made.graph.buffers["product"].level == "register"
    assert [a.step for a in task.axes if a.mapping == "block"] == [128]


def test_products_of_one_operand_share_its_tiles():
    """Two products of x: their sums fit side by side, and x is loaded once for both."""
    x, w = G.array((4096, 4096), tw.bf16), G.array((4096, 11008), tw.bf16)
    made = schedule(G.trace(lambda x, g, u: G.silu(x @ g) * (x @ u), x, w, w), "sm_90a").graph
    (task,) = made.tasks
    (loop,) = [n for n in task.nodes if isinstance(n, G.Task)]
    loaded = [o.loads[0].access.buffer for o in loop.operations() if o.op == "copy"]
    assert sorted(loaded) == ["g", "u", "x"]


def test_what_products_make_is_put_together_at_their_end():
    """A gated MLP: the gate belongs to the kernel of the first two products, so that the third reads one array."""
    x, w, down = (G.array(s, tw.bf16) for s in ((4096, 4096), (4096, 11008), (11008, 4096)))
    made = schedule(G.trace(gated, x, w, w, down), "sm_90a")
    kernels = [[o.op for o in task.operations()] for task in made.graph.tasks]
    assert [ops.count("mma") for ops in kernels] == [2, 1]
    assert "sigmoid" in kernels[0] and "sigmoid" not in kernels[1]


def test_each_sum_keeps_its_factors_or_lets_them_go():
    """In one graph: the softmax of attention leaves the sum that it is in, the factor of a norm before it does not."""

    def block(x, g, w, q, k, v):
        return G.softmax((q @ k.T) * 0.1) @ v, G.rms_norm(x, g) @ w

    long, wide = G.array((4096, 128), tw.bf16), G.array((4096, 4096), tw.bf16)
    gain = G.array((4096,), tw.bf16)
    made = schedule(G.trace(block, wide, gain, wide, long, long, long), "sm_90a")
    kept = {n for k in made.kernels for n in k.tasks}
    (attention,) = (k for k in made.kernels if len(k.tiling.cores) == 2)
    assert any("part" in n for n in attention.tasks)
    assert not any("part" in n for n in kept - set(attention.tasks))


def test_few_programs_keep_tiles_that_cores_can_share():
    """64 programs of 128 rows leave half of the cores idle: the target shares one among two, and tiles stay large."""
    specs = [G.array(s, tw.bf16) for s in ((8192, 128), (128, 8192), (8192, 128))]
    made = schedule(G.trace(back_to_back, *specs), "sm_90a").graph
    (task,) = made.tasks
    (loop,) = [n for n in task.nodes if isinstance(n, G.Task)]
    assert [a.step for a in task.axes if a.mapping == "block"] == [128]
    assert [a.step for a in loop.axes] == [128]


def test_what_is_too_large_for_one_kernel_is_cut_and_told():
    specs = [
        G.array(s, tw.bf16) for s in ((4096, 4096), (4096, 11008), (4096, 11008), (11008, 4096))
    ]
    made = schedule(G.trace(gated, *specs), "sm_90a")
    assert len(made.graph.tasks) > 1 and made.cuts
    assert all("stays in memory: " in cut for cut in made.cuts)


@pytest.mark.parametrize(("rows", "kernels"), [(8192, 2), (64, 1)])
def test_rows_are_gathered_before_a_product_where_that_is_cheaper(rows, kernels):
    """A product that gathers waits for every tile; one more launch is worth it where there are many."""
    table, w = G.array((32000, 1024), tw.bf16), G.array((1024, rows), tw.bf16)
    graph = G.trace(lambda ids, t, w: t[ids] @ w, G.array((rows,), tw.i32), table, w)
    made = schedule(graph, "sm_90a").graph
    assert len(made.tasks) == kernels
    assert ("t_rows" in made.buffers and made.buffers["t_rows"].level == "global") == (kernels == 2)
    assert any(o.op == "copy" for o in made.tasks[0].operations())


def test_factors_leave_a_sum_only_where_that_pays():
    """The statistics of long rows are one array of their own too much: rows are normalised before their product."""
    graph = G.trace(
        lambda x, g, w: G.rms_norm(x, g) @ w,
        *(G.array(s, tw.bf16) for s in ((4096, 4096), (4096,), (4096, 4096))),
    )
    made = schedule(graph, "sm_90a")
    assert [k.nest.outputs for k in made.kernels] == [("mul_2",), ("out",)]


@pytest.mark.parametrize(
    ("target", "rows", "kernels"),
    [("sm_90a", 16, 2), ("sm_90a", 2048, 2), ("cpu", 16, 1)],
)
def test_rows_are_normalised_in_a_kernel_of_their_own_where_that_pays(target, rows, kernels):
    """On an H200 two kernels take 7.3 us for 16 rows, and 13.1 for 2048; one takes 9.2 at best, and 15.0. On few
    cores of a CPU two are not so much faster, if at all."""
    shapes = (rows, 1024), (1024,), (1024, 1024)
    graph = G.trace(lambda x, g, w: G.rms_norm(x, g) @ w, *(G.array(s, tw.bf16) for s in shapes))
    with knobs.override(num_threads=2):
        assert len(schedule(graph, target).kernels) == kernels


def test_symbols_are_bound_at_launch_and_texts_are_shared():
    graph = G.trace(embedding, G.array(["T"], tw.i32), G.array(["V", 64]), G.array([64, 40]))
    compiled = graph.compile()
    rng = fresh_rng()
    table, w = (rng.standard_normal(s, np.float32) for s in ((90, 64), (64, 40)))
    for length in (300, 290):
        ids = rng.integers(0, 90, length).astype(np.int32)
        check(compiled, [ids, table, w], expected(embedding, [ids, table, w]), 2e-6)
    assert compiled.source(T=300, V=90) == compiled.source(T=290, V=90)


def test_gathers_may_be_turned():
    """A gather is first or second in memory, and rows or columns of what reads it, whichever way the tiles lie."""
    rng = fresh_rng()
    ids, pairs = (rng.integers(0, 50, s).astype(np.int32) for s in ((30,), (5, 6)))
    arrays = [ids, pairs, *(rng.standard_normal(s, np.float32) for s in ((50, 64), (64, 50)))]
    functions = [
        lambda i, p, t, s: t[i].T @ t[i] + 0.0,
        lambda i, p, t, s: s.T[i] @ s,
        lambda i, p, t, s: G.softmax(t[i].T),
        lambda i, p, t, s: t[p].swapaxes(0, 1) * 2.0,
        lambda i, p, t, s: np.einsum("abk,abf->kf", t[p], t[p]),
        lambda i, p, t, s: t[i + 1 - 1].T * 2.0,
        lambda i, p, t, s: G.scatter_add(50, i, s.T[i]),
    ]
    for function in functions:
        check(G.trace(function, *arrays).compile(), arrays, expected(function, arrays), 2e-6)


def test_plans_are_bounded(monkeypatch):
    monkeypatch.setattr("tilewright.graph.compiled.PLANS", 2)
    run = G.trace(softmax, G.array(["M", 20])).compile()
    first = run.plan(M=1)
    assert run.plan(M=1) is first
    assert run.plan(M=2) is not run.plan(M=3)
    assert run.plan(M=1) is not first, "the oldest has gone"


def test_empty_arrays_give_empty_results():
    run = G.trace(embedding, G.array(["T"], tw.i32), G.array([9, 64]), G.array([64, 40])).compile()
    got = run(np.zeros(0, np.int32), np.ones((9, 64), np.float32), np.ones((64, 40), np.float32))
    assert got.shape == (0, 40)


def test_dlpack_objects_and_views_are_taken():
    rng = fresh_rng()
    a, b = rng.standard_normal((40, 70), np.float32), rng.standard_normal((90, 40), np.float32)
    run = G.trace(lambda x, y: x @ y, G.array(["M", "K"]), G.array(["K", "N"])).compile()
    got = run(a.T, DLPackOnly(b.T))
    assert np.linalg.norm(got - a.T @ b.T) <= 1e-6 * np.linalg.norm(got)


@pytest.mark.parametrize(
    ("target", "table"),
    [("sm_80", "sm_80"), ("cuda-sm_90a", "sm_90a"), ("xe-pvc", "xe-pvc"), ("xe-bmg", "xe-bmg"), ("cuda", None),
     ("cpu", None), ("reference", "x86-64"), (None, None)],
)  # fmt: skip
def test_every_target_is_scheduled_for_by_its_table(target, table):
    assert table is None or rates_of(target) == uarch.machine(table).rates
    graph = G.trace(back_to_back, *map(G.array, ((64, 32), (32, 64), (64, 32))))
    assert schedule(graph, target).graph.tasks


def test_a_part_of_a_value_is_read_from_memory():
    """A reduction over all of it and a reader of some of it have no loop in common."""

    def part(x):
        y = x / x.sum(1, keepdims=True)
        return y[:, :16] * y.max(1, keepdims=True)

    x = fresh_rng().random((20, 32), np.float32) + 1
    run = G.trace(part, x).compile()
    assert np.allclose(run(x), part(x), rtol=1e-5)
    assert "16 of its 32 j" in str(G.trace(part, x).explain())


def test_what_is_read_in_parts_is_made_in_parts():
    rows = {"M": 300}
    graph = G.trace(halves, G.array(["M", 40]), G.array([40, 96]))
    made = graph.explain(**rows)
    assert len(made.kernels) == 1 and "stays in memory" not in str(made)

    def overlapping(x, w):
        z = x @ w
        return z[:, :49] * z[:, 47:]

    def printed(x, w):
        z = x @ w
        return z, G.silu(z[:, :48]) * z[:, 48:]

    for whole in (overlapping, printed):  # nothing is computed twice
        graph = G.trace(whole, G.array(["M", 40]), G.array([40, 96])).bound(rows)
        assert in_parts(graph) is graph
    text = str(in_parts(G.trace(thirds, *map(G.array, ([33, 40], [40, 50], [50])))))
    assert [f"product_{n}" in text for n in (0, 1, 34, 40)] == [True, True, False, True]


def test_terms_that_do_not_move_along_a_reduced_axis_count_each_time():
    def repeated(x):
        spread = x[:, None, :] + np.zeros_like(x, shape=(1, 3, 1))
        return spread.sum((0, 1)), spread.max(1)

    x = fresh_rng().random((6, 20), np.float32)
    for got, want in zip(G.trace(repeated, x).compile()(x), repeated(x), strict=True):
        assert np.allclose(got, want, rtol=1e-5)


def test_what_lies_past_a_part_of_an_array_is_not_zero():
    """Tiles reach over the end of the part into the rest of the array, which is masked where it is summed."""
    x = fresh_rng().random((33, 40), np.float32)
    for part in (lambda x: x[3:7].sum(0), lambda x: x[:, 5:9] @ x[5:9], lambda x: x[:7, :9].max(1)):
        assert np.allclose(G.trace(part, x, name="part").compile()(x), part(x), rtol=1e-5)


PARTS = """\
def parts():
    x = input(f32[4, 16])
    y = input(f32[12, 16])
    out = output(f32[16, 16])
    for i, j in space("low", each(4), each(16)):
        out[i, j] = neg(x[i, j])
    for i, j in space("high", each(12), each(16)):
        out[i + 4, j] = neg(y[i, j])
    return out
"""


def test_parts_of_a_buffer_are_made_apart_and_written_once():
    x, y = np.ones((4, 16), np.float32), np.full((12, 16), 2, np.float32)
    np.testing.assert_array_equal(G.parse_graph(PARTS).compile()(x, y), -np.vstack([x, y]))
    text = PARTS.replace("f32[4, 16]", "f32[16, 16]").replace("each(4)", "each(16)")
    with pytest.raises(
        CompileError, match=r"Task high: .* \[4, 0\] of out, which Task low: .* writes as well"
    ):
        G.parse_graph(text)
