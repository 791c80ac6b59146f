"""The worked examples: one kernel each, against numpy on the CPU, compiled for an NVIDIA and an Intel GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import reference
from tilewright.arguments import numpy_view
from tilewright.targets.reference import ReferenceExecutable

FOLDER = Path(__file__).parents[2] / "examples" / "graph"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "run")


def example(name):
    sys.path.insert(0, str(FOLDER))
    try:
        found = sys.modules.get(f"graph_example_{name}")
        if found is None:
            spec = importlib.util.spec_from_file_location(
                f"graph_example_{name}", FOLDER / f"{name}.py"
            )
            assert spec is not None and spec.loader is not None
            found = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)
            sys.modules[f"graph_example_{name}"] = found
        return found
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
def test_example(name):
    each = example(name)
    arrays = each.arrays(fresh_rng())
    graph = each.graph()
    run = graph.compile()
    got = run(*arrays)
    want = each.expected(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays))
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)
    sizes = run.sizes(*arrays)
    assert len(run.plan(**sizes).kernels) == 1
    for target in ("sm_90a", "xe-pvc"):
        # In a type that their matrix units have: f32 is long work for a compiler.
        compiled = each.graph(dtype=tw.bf16).compile(target=target).ahead(target, **sizes)
        assert all("llvm" in kernel.asm for kernel in compiled)


GATHERED = {"embedding": (0, 1), "experts": (1, 0)}
"""The arguments that hold indices, and of which they choose the rows."""


def least_bytes(name, arrays, result):
    """What any program has to move: every input once, of a table what is chosen, every result once."""
    sizes = [a.nbytes for a in arrays]
    if name not in GATHERED:
        return sum(sizes) + result.nbytes
    ids, table = GATHERED[name]
    chosen = np.unique(arrays[ids]).size
    sizes[table] = chosen * arrays[table][0].nbytes
    # The experts add to the rows that they come from: those are loaded as well, and no others.
    return sum(sizes) + (2 * chosen * result[0].nbytes if name == "experts" else result.nbytes)


@pytest.mark.parametrize("name", NAMES)
def test_no_element_is_raced_for_or_moved_in_vain(name, monkeypatch):
    """The reference executor runs the kernel in its checking mode: races, reads of what was never written, bytes."""
    launches = []

    def launch(self, grid, args):
        values = [numpy_view(a) for a in args]
        report = reference.run(self.module, grid, values, check=True)
        launches.append(report)
        assert not report.errors, str(report.errors[0])

    monkeypatch.setattr(ReferenceExecutable, "launch", launch)
    each = example(name)
    arrays = each.arrays(fresh_rng())
    graph = each.graph()
    run = graph.compile(target="reference")
    got = run(*arrays)
    want = each.expected(*arrays)
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
    (report,) = launches
    assert report.touched_bytes <= 1.05 * least_bytes(name, arrays, got)
    (told,) = graph.explain("reference", **run.sizes(*arrays)).kernels
    assert report.moved_bytes <= told.bytes["global"]


def test_programs_are_short():
    """The bar of the project: two chained products in 25 lines."""
    text = (FOLDER / "back_to_back.py").read_text()
    body = text[text.index("def graph") : text.index("def arrays")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 25
