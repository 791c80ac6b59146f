"""What planning takes: groups of Tasks are told apart by structure, and found without walks through the whole graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import dtypes
from tilewright import graph as G
from tilewright.graph import fuse, sections
from tilewright.graph.algebra import base_two
from tilewright.graph.costs import passes
from tilewright.graph.partition import Group, Partition
from tilewright.graph.repeats import folded
from tilewright.graph.sections import schedule
from tilewright.graph.structure import unnamed
from tilewright.targets.base import rates_of
from tilewright.uarch.base import GENERIC


def drawn(rng: np.random.Generator, size: int) -> dict[str, set[str]]:
    """What each of so many Tasks reads of those before it."""
    names = [f"t{i}" for i in range(size)]
    return {
        name: {"input", *rng.choice(names[:i], min(i, int(rng.integers(0, 3))), replace=False)}
        for i, name in enumerate(names)
    }


def waits_for_itself(sources: dict[str, set[str]], groups: list[Group]) -> bool:
    """By a walk from each group along what it reads."""
    of = {n: g for g in groups for n in g}
    for group in groups:
        seen, work = set[Group](), [group]
        while work:
            at = work.pop()
            for other in {of[s] for n in at for s in sources[n] if s in of} - {at}:
                if other == group:
                    return True
                if other not in seen:
                    seen.add(other)
                    work.append(other)
    return False


def test_groups_join_where_none_waits_for_itself():
    rng = fresh_rng()
    for _ in range(20):
        sources = drawn(rng, 9)
        partition = Partition(sources)
        while len(partition.groups) > 2:
            pairs = list(combinations(partition.groups, 2))
            rng.shuffle(pairs)
            for pair in pairs:
                rest = [g for g in partition.groups if g not in pair]
                joined = [*rest, Group().union(*pair)]
                cyclic = waits_for_itself(sources, joined)
                assert partition.may_join(pair) is not cyclic
                assert Partition(sources, joined).is_cyclic is cyclic
            fitting = [p for p in pairs if partition.may_join(p)]
            if not fitting:
                break
            partition.join(fitting[0])
            again = Partition(sources, partition.groups)
            assert (again.before, again.after) == (partition.before, partition.after)
            done: set[str] = set()
            for group in partition.sorted():
                assert {s for n in group for s in sources[n]} - group - {"input"} <= done
                done |= group
            assert done == set(sources)


def block(x, up, down):
    return x + np.maximum(G.rms_norm(x) @ up, 0) @ down


def blocks(count: int) -> G.TiledGraph:
    """So many blocks side by side."""
    names = [f"{n}{i}" for i in range(count) for n in ("x", "up", "down")]
    each = (f"block(x{i}, up{i}, down{i})" for i in range(count))
    scope = {"block": block}
    exec(f"def side_by_side({', '.join(names)}): return {', '.join(each)},", scope)
    shapes = [(48, 64), (64, 96), (96, 64)] * count
    return G.trace(scope["side_by_side"], *map(G.array, shapes))


def test_what_has_one_structure_is_planned_once(monkeypatch: pytest.MonkeyPatch):
    tiled: list[int] = []
    tile = fuse.tile
    monkeypatch.setattr(fuse, "tile", lambda *a: tiled.append(1) or tile(*a))
    found: dict[int, int] = {}
    for count in (1, 4):
        tiled.clear()
        made = schedule(blocks(count), "cpu")
        assert len(made.kernels) % count == 0
        found[count] = len(tiled)
    assert found[4] == found[1] > 0


def test_a_graph_is_cleared_once_for_all_its_exponentials(monkeypatch: pytest.MonkeyPatch):
    def made(count: int) -> tuple[int, int]:
        scope = {"G": G}
        names = [f"x{i}" for i in range(count)]
        exec(
            f"def f({', '.join(names)}): return tuple(G.softmax(x * 0.5) for x in ({', '.join(names)},))",
            scope,
        )
        graph = G.trace(scope["f"], *[G.array((9, 8))] * count)
        calls: list[int] = []
        needed = G.TiledGraph.needed
        monkeypatch.setattr(G.TiledGraph, "needed", lambda g: calls.append(1) or needed(g))
        found = base_two(graph)
        monkeypatch.undo()
        assert len(found.tasks) == len(graph.tasks)
        return len(calls), sum(o.op == "exp2" for o in found.operations())

    assert made(1) == (1, 1) and made(4) == (1, 4)


def test_kernels_that_differ_in_names_are_compiled_once():
    one, three = (blocks(n).compile().plan().kernels for n in (1, 3))
    assert len(three) == 3 * len(one)
    assert len({id(text.kernel()) for text in three}) == len(one)
    text = "def f(a, axis): b = tw.sum(a, axis=0) + {1}; return b"
    same = unnamed("def g(x, axis): y = tw.sum(x, axis=0) + 1; return y")
    assert unnamed(text.format("", 1)) == same != unnamed(text.format("", 2))
    assert same != unnamed("def g(x, axes): y = tw.sum(x, axes=0) + 1; return y")
    assert same != unnamed("def g(x, axis): y = tw.max(x, axis=0) + 1; return y")
    assert same != unnamed("def g(axis, x): y = tw.sum(x, axis=0) + 1; return y")


def test_kernels_of_one_structure_have_the_names_of_their_own():
    graph = blocks(3)
    rng = fresh_rng()
    shapes = [[e.number or 0 for e in b.shape] for b in graph.inputs]
    arrays = [(rng.standard_normal(shape) / 8).astype(np.float32) for shape in shapes]
    wide = [a.astype(np.float64) for a in arrays]
    for i, got in enumerate(graph.compile()(*arrays)):
        x, up, down = wide[3 * i : 3 * i + 3]
        want = x + np.maximum(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) @ up, 0) @ down
        assert np.linalg.norm(got - want) <= 5e-6 * np.linalg.norm(want)
    for kernel in schedule(graph, "cpu").kernels:
        assert set(kernel.tiling.mapping) == set(kernel.nest.axes)
        assert set(kernel.tiling.cores) <= set(kernel.nest.statements) == set(kernel.tasks)


def test_rows_and_columns_of_gathered_tiles_are_those_of_the_indices():
    """Which way a tile of indices lies does not depend on what its axes are called."""
    rng = fresh_rng()
    for _ in range(8):
        i, j = (f"{rng.choice(list('abcdefgh'))}{rng.integers(1000)}_{n}" for n in range(2))
        graph = G.parse_graph(f"""\
def gathered():
    ids = input(i32[32, 48])
    table = input(f32[50, 4])
    out = output(f32[32, 48])
    for {i}, {j} in space("out", each(32), each(48)):
        out[{i}, {j}] = mul(table[ids[{i}, {j}], 1], 2.0)
    return out
""")
        assert "transpose(" not in str(schedule(graph, "cpu").graph)


def three_products(x, a, b, c):
    return x @ a, x @ b, x @ c


def three_sums(x):
    return x.sum(1), x.max(1), (x * x).sum(1)


def three_sides(x, y):
    return np.exp(x), np.tanh(x) * y, y - x


SIBLINGS = {
    "one width": (three_products, [(37, 70), (70, 50), (70, 50), (70, 50)], 1),
    "two widths": (three_products, [(37, 70), (70, 50), (70, 20), (70, 20)], 1),
    "few columns": (three_products, [(40, 600), (600, 3), (600, 5), (600, 7)], 1),
    "sums": (three_sums, [(70, 200)], 1),
    "elements": (three_sides, [(70, 33), (70, 33)], 1),
    "square": (lambda x: (x.sum(0), x.sum(1)), [(300, 300)], 2),
    "batches": (three_products, [(3, 20, 30), (3, 30, 40), (3, 30, 40), (3, 30, 40)], 1),
    "of what is made": (
        lambda x, a, b: three_products(G.rms_norm(x), a, b, a),
        [(150, 500), (500, 90), (500, 90)],
        None,
    ),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_what_reads_the_same_is_one_kernel(name):
    function, shapes, kernels = SIBLINGS[name]
    rng = fresh_rng()
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    run = G.trace(function, *arrays).compile()
    plan = run.plan()
    assert kernels in (None, len(plan.kernels))
    outs = tuple(np.full_like(g, np.nan) for g in run(*arrays))
    run(*arrays, out=outs)
    for got, want in zip(outs, function(*[a.astype(np.float64) for a in arrays]), strict=True):
        assert np.linalg.norm(got - want) <= 3e-6 * np.linalg.norm(want)


def test_kernels_that_read_the_same_say_why_they_are_apart():
    shapes = [(37, 70), (70, 500), (70, 20), (70, 20)]
    cuts = G.trace(three_products, *map(G.array, shapes)).explain("cpu").cuts
    assert any("read x, apart: fused," in cut for cut in cuts)
    # What waits for another is no sibling of it.
    chained = G.trace(lambda x, a: (x @ a) @ x, G.array([600, 500]), G.array([500, 600]))
    assert not any("apart:" in cut for cut in chained.explain("cpu").cuts)


def layer(x, c, norm, q, k, v, o, up, down):
    """Attention over heads that are turned by `c`, and a wide part."""
    h = G.rms_norm(x, norm)

    def heads(y):
        a, b = (part.reshape(12, 2, 8).transpose(1, 0, 2) for part in (y[:, :16], y[:, 16:]))
        return np.concatenate([a * c, b * c], -1)

    scores = G.softmax(heads(h @ q) @ heads(h @ k).swapaxes(1, 2)) @ heads(h @ v)
    x = x + scores.transpose(1, 0, 2).reshape(12, 32) @ o
    return x + G.gelu(G.rms_norm(x) @ up) @ down


def plain_layer(x, w):
    return x + np.tanh(x @ w)


SHAPES = ((32,), (32, 32), (32, 32), (32, 32), (32, 32), (32, 48), (48, 32))


def many_layers(count: int, last: int = 0, keep: bool = False):
    """A function of x, c and weights: layers, `last` of which are plain ones before the end; and its shapes."""
    plain = [(32, 32)] * last
    names = [f"w{i}" for i in range(7 * count + last)]

    def run(x, c, *ws):
        kept = []
        for i in range(count):
            x = layer(x, c, *ws[7 * i : 7 * i + 7])
            kept.append(x * 2)
        for w in ws[7 * count :]:
            x = plain_layer(x, w)
        return (x, *kept) if keep else x

    scope = {"run": run}
    exec(f"def layers(x, c, {', '.join(names)}): return run(x, c, {', '.join(names)})", scope)
    return scope["layers"], [(12, 32), (8,), *SHAPES * count, *plain]


def kernels_of(made: fuse.Schedule) -> set[tuple[str, ...]]:
    return {tuple(k.tasks) for k in made.kernels}


@pytest.mark.parametrize("kind", [(9, 0), (8, 2), (7, 0, True), (0, 9)])
def test_layers_are_planned_as_all_of_them_would_be(kind, monkeypatch: pytest.MonkeyPatch):
    function, shapes = many_layers(*kind)
    graph = G.trace(function, *map(G.array, shapes))
    sizes: list[int] = []
    run = fuse.Fusion.run
    monkeypatch.setattr(fuse.Fusion, "run", lambda f, *a: sizes.append(len(f.tasks)) or run(f, *a))
    folded = schedule(graph, "cpu")
    assert max(sizes) < 0.8 * len(graph.tasks)
    monkeypatch.setattr(sections, "folded", lambda graph: None)
    whole = schedule(graph, "cpu")
    assert max(sizes) >= len(graph.tasks)
    assert kernels_of(folded) == kernels_of(whole)
    assert folded.seconds == pytest.approx(whole.seconds)
    assert folded.unfused_seconds == pytest.approx(whole.unfused_seconds)
    assert {c.split(":")[0] for c in folded.cuts} == {c.split(":")[0] for c in whole.cuts}


@pytest.mark.parametrize("kind", [(8, 1), (7, 0, True), (0, 12)])
def test_layers_have_weights_of_their_own(kind):
    function, shapes = many_layers(*kind)
    rng = fresh_rng()
    arrays = [(rng.standard_normal(s) / s[0] ** 0.5).astype(np.float32) for s in shapes]
    run = G.trace(function, *arrays).compile()
    got = run(*arrays)
    outs = tuple(np.full_like(g, np.nan) for g in (got if isinstance(got, tuple) else (got,)))
    run(*arrays, out=outs)
    wanted = function(*[a.astype(np.float64) for a in arrays])
    for g, want in zip(outs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert np.linalg.norm(g - want) <= 2e-5 * np.linalg.norm(want)


def test_what_reads_a_layer_that_would_be_left_out_is_planned_with_all():
    def skips(x, *ws):
        seen = []
        for w in ws:
            x = plain_layer(x, w)
            seen.append(x)
        return x + seen[4]

    scope = {"skips": skips}
    names = ", ".join(f"w{i}" for i in range(12))
    exec(f"def f(x, {names}): return skips(x, {names})", scope)
    rng = fresh_rng()
    arrays = [(rng.standard_normal(s) / 6).astype(np.float32) for s in [(20, 32), *[(32, 32)] * 12]]
    graph = G.trace(scope["f"], *arrays)
    assert folded(graph) is None
    want = scope["f"](*[a.astype(np.float64) for a in arrays])
    assert np.linalg.norm(graph.compile()(*arrays) - want) <= 2e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("rows", [9, 100, 300])
def test_tiles_of_products_are_those_of_the_matrix_unit(rows: int):
    """Thin or ragged, one or three of one x: warpgroups multiply 64 rows, and steps fill rows of their panels."""
    shapes = [(rows, 768), *[(768, 192)] * 3]
    graph = G.trace(three_products, *(G.array(s, dtypes.bf16) for s in shapes))
    for kernel in schedule(graph, "sm_90a").kernels:
        for core in kernel.tiling.cores.values():
            assert kernel.tiling.step[core.m] in (64, 128, 192, 256)
            assert kernel.tiling.step[core.k] % 64 == 0
    for made in graph.compile().ahead("sm_90a"):
        assert "wgmma.mma_async" in made.asm["ptx"]


def test_products_side_by_side_each_read_what_they_share():
    """One loop loads it once, but from the near cache it comes to each product."""
    one = replace(GENERIC, cores=1, product_flops=1.28e11)
    shapes = [(333, 384), *[(384, 384)] * 3]
    assert len(schedule(G.trace(three_products, *map(G.array, shapes)), rates=one).kernels) == 3
    few = [(200, 96), *[(96, 96)] * 3]
    assert len(schedule(G.trace(three_products, *map(G.array, few)), rates=one).kernels) == 1


def test_what_no_tile_has_neighbours_of_is_brought_together_first(monkeypatch):
    """The weights of a convolution, where a machine moves whole sectors; the result is the same."""

    def convolution(x, w):
        return G.relu(np.einsum("bchwrs,fcrs->bfhw", G.windows(x, (3, 3), (2, 3)), w))

    shapes = [(2, 64, 18, 18), (32, 64, 3, 3)]
    graph = G.trace(convolution, *(G.array(s) for s in shapes))
    assert len(schedule(graph, "cpu").kernels) == 1
    dear = replace(rates_of("cpu"), access_bytes=64, launch_seconds=0.0)
    made = schedule(graph, rates=dear)
    assert list(made.kernels[0].tasks) == ["w_rows"] and len(made.kernels) == 2
    told = schedule(G.trace(convolution, *(G.array(s, dtypes.bf16) for s in shapes)), "sm_90a")
    assert "w_rows" in told.kernels[0].tasks and len(told.kernels) == 2
    rng = fresh_rng()
    x, w = (rng.standard_normal(s, np.float32) for s in shapes)
    run = graph.compile()
    monkeypatch.setattr(run, "_scheduled", lambda sizes: schedule(graph.bound(sizes), rates=dear))
    want = convolution(x.astype(np.float64), w.astype(np.float64))
    assert np.linalg.norm(run(x, w) - want) <= 2e-6 * np.linalg.norm(want)


def test_a_kernel_is_cut_where_two_are_faster():
    """A norm of what two products make would compute them once for each pass over its rows."""

    def mixed(x, up, down, weight):
        y = x + np.einsum("jl,bld->bjd", down, G.gelu(np.einsum("lk,bkd->bld", up, x)))
        return y, G.rms_norm(y, weight)

    shapes = (64, 192, 512), (256, 192), (192, 256), (512,)
    made = schedule(G.trace(mixed, *(G.array(s, dtypes.bf16) for s in shapes)), "sm_90a")
    for kernel in made.kernels:
        assert set(passes(kernel.nest, kernel.tiling).values()) == {1} or not kernel.tiling.cores
    assert len(made.kernels) > 1 and made.cuts


def test_tiles_lie_along_what_has_neighbours():
    """Rows of a table are gathered whole; a norm of groups has a program for each."""
    ids, table = G.array((8192, 26), dtypes.i64), G.array((26000, 16), dtypes.bf16)
    made = schedule(G.trace(lambda ids, t: t[ids], ids, table), "sm_90a")
    assert made.kernels[-1].tiling.step[made.kernels[-1].nest.axes[-1]] == 16

    def norm(x):
        wide = x.reshape(8, 32, 10, 32, 32)
        return wide - wide.mean((2, 3, 4), keepdims=True)

    made = schedule(G.trace(norm, G.array((8, 320, 32, 32), dtypes.bf16)), "sm_90a")
    assert all(k.cost.programs >= 256 for k in made.kernels if k.nest.outputs[-1] == "out")
