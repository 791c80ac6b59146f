"""Graphs as MLIR: what is printed is read back equal, other tools accept it, and what is no graph is refused there."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import tilewright as tw
from tilewright import graph as G
from tilewright.diagnostics import TilewrightError
from tilewright.graph.nodes import TiledGraph

from .test_scan import TEXT
from .test_text import SCHEDULED, TRACED


def scheduled() -> TiledGraph:
    """Tiles, masks with -inf, loops, and numbers that are not short."""
    specs = [["H", "M", 64], ["H", "N", 64], ["H", "N", 64]]
    graph = G.trace(TRACED["attention"][0], *(G.array(s, tw.bf16) for s in specs))
    return graph.compile(target="sm_90a").plan(H=2, M=100, N=300).schedule.graph


def numbers(x):
    return G.gelu(x.reshape(-1, 8)) * 0.1 + 1e-300 + x[:, 2:4].sum(1).reshape(-1, 1) * float("inf")


GRAPHS = {
    **{n: lambda f=f, s=s: G.trace(f, *(G.array(*a) for a in s)) for n, (f, s) in TRACED.items()},
    "by hand": lambda: G.parse_graph(SCHEDULED),
    "scan": lambda: G.parse_graph(TEXT),
    "scheduled": scheduled,
    "numbers": lambda: G.trace(numbers, G.array([5, 8])),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_printed_is_read_back(name):
    graph = GRAPHS[name]()
    text = graph.mlir()
    assert G.parse_mlir(text) == graph
    assert G.parse_mlir(text).mlir() == text
    assert G.parse_mlir(graph.mlir(generic=True)) == graph


def test_other_tools_read_the_generic_form(tmp_path):
    tool = shutil.which("mlir-opt-22") or shutil.which("mlir-opt")
    if tool is None:
        pytest.skip("there is no mlir-opt")
    for number, graph in enumerate(make() for make in GRAPHS.values()):
        path = tmp_path / f"{number}.mlir"
        path.write_text(graph.mlir(generic=True))
        command = [tool, "--allow-unregistered-dialect", "--mlir-print-op-generic", str(path)]
        made = subprocess.run(command, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        assert G.parse_mlir(made.stdout) == graph


TOTAL = G.trace(lambda x: x.sum(1), G.array(["M", 8]), name="total").mlir()

REFUSED = [
    ('"each", "each"]', '"each", "often"]', "'often' is no mapping of an axis"),
    ("steps [1, 1]", "steps [1]", "2 axes have as many mappings and steps"),
    ("steps [1, 1]", "steps [1, 0]", "a step is a positive number"),
    ('["i", "j"]', '["i", "i"]', "the name i is taken"),
    ('["i", "j"]', '["i"]', "an index for each of its 1 axes"),
    ('["index", "index"]', '["index", "part"]', "'part' is no kind of an entry"),
    ('["index", "index"]', '["index"]', "1 entries for a Buffer of 2 dimensions"),
    ('["index", "index"]', '["index", "gather"]', "1 gathers have 0 tensors"),
    ('combine "add"', 'combine "sub"', "'sub' is no way to accumulate"),
    ('"copy"(', '"nothing"(', "there is no operation nothing"),
    ('"input"', '"inner"', "'inner' is no role"),
    ("(d0) -> (d0, 8)", "(d0) -> (d0, 9)", "does not have the extents M, 9"),
    ("(d0) -> (d0, 8)", "(d0) -> (d0 mod 2, 8)", "is no sum of variables times numbers"),
    ('combine "add" ', "", "every iteration of j writes the same elements of out"),
    ("tgraph.return %out", "tgraph.return %x", "output out|never|x"),
]


@pytest.mark.parametrize(("old", "new", "message"), REFUSED, ids=[r[1] or r[0] for r in REFUSED])
def test_what_is_no_graph_is_refused_at_its_place(old, new, message):
    assert old in TOTAL
    with pytest.raises(TilewrightError, match=message) as info:
        G.parse_mlir(TOTAL.replace(old, new), "total.mlir")
    assert str(info.value).startswith("total.mlir:") and "^" in str(info.value)


def test_a_module_has_one_graph():
    with pytest.raises(TilewrightError, match="0 graphs stand in the module"):
        G.parse_mlir("module {}")
