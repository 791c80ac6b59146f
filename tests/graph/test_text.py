"""The text form: what is printed is read back equal; what is no graph is refused at its place."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright.diagnostics import CompileError


def attention(q, k, v):
    return G.softmax((q @ k.swapaxes(-1, -2)) * 0.125) @ v


def embedding(ids, table, w):
    return G.relu(table[ids] @ w)


def experts(x, ids, w):
    return G.scatter_add(x.shape[0], ids, x[ids] @ w)


TRACED = {
    "attention": (attention, [(["H", "M", 64], tw.f16)] + 2 * [(["H", "N", 64], tw.f16)]),
    "embedding": (embedding, [(["M"], tw.i32), ([100, "K"], tw.f32), (["K", 32], tw.f32)]),
    "experts": (experts, [(["T", 16], tw.f32), ([4, "C"], tw.i64), ([4, 16, 8], tw.f32)]),
}

SCHEDULED = """\
def two_products(M, N):
    A = input(f16[M, 64])
    B = input(f16[64, N])
    C = input(f16[N, 32])
    D = output(f16[M, 32])
    a = buffer("register", f16[128, 64])
    t = buffer("register", f32[128, 128])
    out = buffer("register", f32[128, 32])
    for m in space("kernel", block(M, 128)):
        a = copy(A[m:m + 128, 0:64])
        out = copy(0.0)
        for n in space("over_n", sequential(N, 128)):
            t = mma(a, B[0:64, n:n + 128])
            out += mma(t, C[n:n + 128, 0:32])
        D[m:m + 128, 0:32] = cast(out, dtype='f16')
    return D
"""


@pytest.mark.parametrize("name", TRACED)
def test_traced_graphs_round_trip(name, tmp_path):
    function, specs = TRACED[name]
    graph = G.trace(function, *(G.array(s, d) for s, d in specs))
    again = G.parse_graph(str(graph))
    assert again == graph and str(again) == str(graph)
    graph.save(tmp_path / "g.py")
    assert G.load(tmp_path / "g.py") == graph


def test_a_scheduled_graph_is_its_own_text():
    assert str(G.parse_graph(SCHEDULED)) == SCHEDULED


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("block(M, 128)", "block(Q, 128)", 9, "Q is no symbol"),
        ("block(M, 128)", "grid(M, 128)", 9, "an axis is one of each, block"),
        ("block(M, 128)", "block(M, 0)", 9, "a step is a positive number"),
        ("for n in", "for m in", 12, "the name m is taken"),
        ("out += mma", "out -= mma", 14, "accumulates by"),
        ("mma(a, B", "mma(a, E", 13, "no Buffer is called E"),
        ("A[m:m + 128", "A[m * m:m + 128", 10, "sum of names times numbers"),
        ("f16[M, 64]", "f15[M, 64]", 2, "no dtype is called"),
        ("    return D", "    return", 0, ""),
        ("def two_products(M", "def two_products((M", 1, "does not parse"),
        ("def two", "class two", 1, "a graph is one def"),
        ("    return D", "    return D\nx = 1", 17, "a graph is one def"),
        ("t = mma(", "t = (", 13, "a call is expected"),
    ],
)
def test_what_is_no_graph_is_refused_at_its_place(old, new, line, what):
    text = SCHEDULED.replace(old, new, 1)
    assert text != SCHEDULED
    if not line:
        assert G.parse_graph(text).results == ()
        return
    with pytest.raises(CompileError) as error:
        G.parse_graph(text, "g.py")
    assert what in str(error.value)
    assert error.value.location is not None and error.value.location.line == line


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("t = mma(a, B", "t = matmul(a, B", "there is no operation matmul"),
        ("t = mma(a, B", "t = ad(a, B", "did you mean add"),
        ("t = mma(a, B", "t = einsum(a, B", "there are add, sub, mul"),
        ("t = mma(a, B", "t = exp(a, B", "takes 1 operands, not 2"),
        ("B[0:64, n", "B[0:32, n", "no operands of a product"),
        ("B[0:64, n", "B[8:72, n", "reaches element 71 of dimension 0 of B, which has 64"),
        ("C[n:n + 128, 0:32]", "C[n:n + 128]", "has 1 entries, and C 2 dimensions"),
        ("C[n:n + 128, 0:32]", "C[n:n + 128, 0:16]", "the result has shape [128, 16], the store"),
        ("D[m:m + 128, 0:32]", "A[m:m + 128, 0:32]", "the store goes to input A"),
        ("a = copy(A", "a = copy(D", "comes before anything is stored"),
        ("D[m:m + 128, 0:32]", "D[0:128, 0:32]", "writes the same elements of D"),
        ("f16[M, 32]", "f16[M, 48]", "element 32 of dimension 1 is never written"),
        ('"register", f16', '"cupboard", f16', "stands at level 'cupboard'"),
        ("t = mma(a, B", "p = mma(a, B", "no Buffer is called p"),
        ('"register", f32[128, 32]', '"register", i32[128, 32]', "0.5 is no number of i32"),
    ],
)
def test_each_rule_names_node_edge_and_element(old, new, what):
    """And the line: that of the changed text, or of the Buffer that is not written."""
    start = SCHEDULED.replace("copy(0.0)", "copy(0.5)") if "0.5" in what else SCHEDULED
    text = start.replace(old, new, 1)
    assert text != start
    with pytest.raises(CompileError) as error:
        G.parse_graph(text)
    assert what in str(error.value)
    lines, changed = text.splitlines(), new.split("(")[0] if "(" in new else new
    place = error.value.location
    assert place is not None
    at = "copy(0.5)" if "0.5" in what else changed
    assert at in lines[place.line - 1]


MIXED = """\
def pick(M, K):
    ids = input(i32[M])
    x = input(f32[K, 37])
    w = input(f64[37])
    t = buffer("global", f32[M, 37])
    n = buffer("global", f32[M])
    y = output(f16[M, 37])
    for i, j in space("t", each(M), each(37)):
        t[i, j] = mul(x[ids[i], j], w[j])
    for i, j in space("n", each(M), each(37)):
        n[i] += mul(t[i, j], w[j])
    for i, j in space("y", each(M), each(37)):
        y[i, j] = div(t[i, j], n[i])
    return y
"""
TILES = """\
def scaled(M):
    x = input(f16[M, 32])
    w = input(f64[1, 32])
    y = output(f16[M, 32])
    z = output(f32[M, 1])
    a = buffer("register", f16[16, 32])
    b = buffer("register", f64[1, 32])
    u = buffer("register", f32[16, 32])
    s = buffer("register", f32[16, 1])
    for m in space("kernel", block(M, 16)):
        a = copy(x[m:m + 16, 0:32])
        b = copy(w[0:1, 0:32])
        y[m:m + 16, 0:32] = mul(a, a)
        u = mul(a, b)
        s = reduce_add(u, axis=1)
        z[m:m + 16, 0:1] = add(s, 1.0)
    return y, z
"""


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_results_have_the_type_of_their_buffer(target):
    """A product of f32 and f64 in a Buffer of f32, of f16 and f16 in one of f16: what is wider is rounded."""
    rng = fresh_rng()
    ids = rng.integers(0, 19, 23).astype(np.int32)
    x, w = rng.standard_normal((19, 37), np.float32), 1 + rng.random(37)
    t = x[ids] * w
    wanted = t / np.sum(t * w, axis=1, keepdims=True)
    found = G.parse_graph(MIXED).compile(target=target)(ids, x, w)
    assert found.dtype == np.float16
    assert np.linalg.norm(found - wanted) < 1e-3 * np.linalg.norm(wanted)

    a, b = rng.standard_normal((21, 32)).astype(np.float16), rng.standard_normal((1, 32))
    y, z = G.parse_graph(TILES).compile(target=target)(a, b)
    wide = a.astype(np.float64)
    np.testing.assert_allclose(y, wide * wide, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(z, (wide * b).sum(1, keepdims=True) + 1, rtol=1e-4, atol=1e-4)


def test_integers_are_filled_with_whole_numbers():
    """The builder's zeros, and 3.0 in a text, of a Buffer of i32."""
    g = G.Builder("product", "M", "N", "K")
    ass = g.input("A", tw.i8, ["M", "K"]).tiles(16, 32)
    bss = g.input("B", tw.i8, ["K", "N"]).tiles(32, 48, order=(1, 0))
    css = g.output("C", tw.i32, ["M", "N"]).tiles(16, 48)
    for as_, cs in g.block(ass, css):
        for bs, c in g.block(bss, cs):
            acc = g.zeros(16, 48, dtype=tw.i32)
            for a, b in g.sequential(as_, bs):
                g.mma(g.load_s2r(g.load_g2s(a)), g.load_s2r(g.load_g2s(b)), into=acc)
            g.store_s2g(g.store_r2s(acc), c)
    rng = fresh_rng()
    a, b = (rng.integers(-99, 99, shape).astype(np.int8) for shape in ((37, 75), (75, 50)))
    graph = g.graph()
    wanted = a.astype(np.int32) @ b.astype(np.int32)
    whole = G.parse_graph(str(graph).replace("copy(0)", "copy(3.0)"))
    for target in ("reference", "cpu"):
        np.testing.assert_array_equal(graph.compile(target=target)(a, b), wanted)
        np.testing.assert_array_equal(whole.compile(target=target)(a, b), wanted + 3)


def test_skipped_levels_are_reported():
    shared = SCHEDULED.replace('"register", f16[128, 64]', '"shared", f16[128, 64]')
    graph = G.parse_graph(shared)
    assert any("skips shared" in line for line in G.skipped_levels(graph))
    assert not G.skipped_levels(G.parse_graph(SCHEDULED))


def test_a_double_write_and_a_missing_one_are_found():
    text = """\
def g():
    x = input(f32[8, 4])
    y = output(f32[8])
    for i, j in space("y", each(8), each(4)):
        y[i] = copy(x[i, j])
    return y
"""
    with pytest.raises(CompileError, match=r"every iteration of j writes the same .*\[0\]"):
        G.parse_graph(text)
    short = text.replace("f32[8])", "f32[9])").replace("y[i] =", "y[i] +=")
    with pytest.raises(CompileError, match="element 8 of dimension 0 is never written"):
        G.parse_graph(short)


def test_a_buffer_of_one_element_is_read_back():
    graph = G.trace(lambda x: x.max() * x, G.array([4, 8]))
    assert "f32[()]" in str(graph) and G.parse_graph(str(graph)) == graph


CONSTANTS = {
    "a tile": ("y[i:i + 4, j:j + 3] = copy(2.5)", 2.5),
    "a row": ("y[i, j:j + 3] = copy(2.5)", 2.5),
    "arithmetic": ("y[i:i + 4, j:j + 3] = add(1.0, 2.0)", 3.0),
    "accumulated": ("y[i:i + 4, j:j + 3] += copy(1.0)", 1.0),
    "scattered": ("y[x[i:i + 4], j:j + 3] = copy(1.5)", 1.5),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_constants_are_stored_to_global_memory(case):
    store, value = CONSTANTS[case]
    rows = "block(8)" if case == "a row" else "block(8, 4)"
    text = f"""def g():
    x = input(i32[8])
    y = output(f32[8, 8], zeroed=True)
    for i, j in space("t", {rows}, block(8, 3)):
        {store}
    return y
"""
    order = fresh_rng().permutation(8).astype(np.int32)
    got = G.parse_graph(text).compile()(order)
    np.testing.assert_array_equal(got, np.full((8, 8), value, np.float32))


@pytest.mark.parametrize("shape", [(17, 12), (12, 300), (5, 33, 20)])
def test_counts_along_any_dimension(shape):
    """Counted elements are rows, columns or neither of a tile, by themselves and in what is computed with them."""
    names = "ijk"[: len(shape)]
    extents = ", ".join(map(str, shape))
    axes = ", ".join(f"each({e})" for e in shape)
    for dimension, name in enumerate(names):
        at = ", ".join(names)
        graph = G.parse_graph(f"""\
def counts():
    x = input(f32[{extents}])
    n = output(i64[{extents}])
    y = output(f32[{extents}])
    for {at} in space("n", {axes}):
        n[{at}] = iota({name})
    for {at} in space("y", {axes}):
        y[{at}] = mul(x[{at}], n[{at}])
    return n, y
""")
        x = fresh_rng().standard_normal(shape, np.float32)
        want = np.indices(shape)[dimension]
        for fuse in (True, False):
            counted, product = graph.compile(fuse=fuse)(x)
            assert np.array_equal(counted, want)
            assert np.linalg.norm(product - x * want) <= 1e-6 * np.linalg.norm(x * want)


WAVE = """
def wave():
    s = input(f32[5, 6, 16])
    h = buffer("global", f32[6, 7, 16])
    y = output(f32[5, 6, 16])
    a = buffer("register", f32[16])
    b = buffer("register", f32[16])
    for i in space("left", block(6)):
        h[i, 0, 0:16] = copy(0.0)
    for j in space("top", block(6)):
        h[0, j + 1, 0:16] = copy(0.0)
    for k in space("wave", block(16, 16)):
        for i in space("rows", sequential(5)):
            for j in space("columns", sequential(6)):
                a = add(h[i, j, k:k + 16], s[i, j, k:k + 16])
                b = max(h[i, j + 1, k:k + 16], h[i + 1, j, k:k + 16])
                a = max(a, b)
                h[i + 1, j + 1, k:k + 16] = copy(a)
                y[i, j, k:k + 16] = copy(a)
    return y
"""


def test_elements_are_stored_before_they_are_read_along_the_outermost_axis_that_tells():
    s = fresh_rng().standard_normal((5, 6, 16), np.float32)
    h = np.zeros((6, 7, 16), np.float32)
    for i, j in np.ndindex(5, 6):
        h[i + 1, j + 1] = np.maximum(h[i, j] + s[i, j], np.maximum(h[i, j + 1], h[i + 1, j]))
    np.testing.assert_array_equal(G.parse_graph(WAVE).compile()(s), h[1:, 1:])
    with pytest.raises(CompileError, match="not written yet"):
        G.parse_graph(WAVE.replace("h[i + 1, j, k", "h[i + 1, j + 1, k"))
    with pytest.raises(CompileError, match="j is mapped to each"):
        G.parse_graph(WAVE.replace("sequential(6)", "each(6)"))
    wider = WAVE.replace("f32[6, 7, 16]", "f32[6, 8, 16]").replace(
        "block(6):\n        h[0", "block(7):\n        h[0"
    )
    with pytest.raises(CompileError, match="element 7 of dimension 1 in the last iteration"):
        G.parse_graph(wider.replace("max(h[i, j + 1", "max(h[i, j + 2"))


def test_a_mask_ends_where_it_says():
    text = """
def g():
    x = input(f32[20, 40])
    y = output(f32[20, 40])
    t = buffer("register", f32[16, 16])
    for i, j in space("g", block(20, 16), block(40, 16)):
        t = copy(x[i:i + 16, j:j + 16])
        t = mask(t, start=j, extent=19, axis=1, fill=2.0)
        y[i:i + 16, j:j + 16] = copy(t)
    return y
"""
    x = fresh_rng().standard_normal((20, 40), np.float32)
    want = np.where(np.arange(40) < 19, x, np.float32(2))
    np.testing.assert_array_equal(G.parse_graph(text).compile()(x), want)


def test_a_loop_that_gets_another_name_takes_none_that_one_inside_it_has():
    text = """
def g():
    x = input(f32[16, 16])
    y = output(f32[2, 16])
    z = output(f32[2, 16, 16, 16])
    a = buffer("register", f32[16])
    for m in space("g", block(2)):
        for k in space("one", sequential(16, 16)):
            a = copy(x[0, k:k + 16])
            y[m, k:k + 16] = copy(a)
        for k in space("two", sequential(16)):
            for k_1 in space("three", sequential(16)):
                a = add(x[k, 0:16], x[k_1, 0:16])
                z[m, k, k_1, 0:16] = copy(a)
    return y, z
"""
    x = fresh_rng().standard_normal((16, 16), np.float32)
    y, z = G.parse_graph(text).compile()(x)
    np.testing.assert_array_equal(y[1], x[0])
    np.testing.assert_array_equal(z[1], x[:, None] + x[None])


def test_arrays_of_any_number_are_traced():
    graph = G.trace(lambda x, *more: x + more[0] * more[1], *[G.array([8, 16])] * 3)
    assert [b.name for b in graph.inputs] == ["x", "more0", "more1"]
