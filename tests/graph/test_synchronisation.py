"""Synchronisation is the compiler's, and no more than is needed: without any one barrier there is a race.

The code of every worked example for an NVIDIA GPU runs in the reference executor's checking mode, thread by thread: as
it is, and with each barrier taken out in turn. For an Intel GPU the program of its subgroups runs there, where a
barrier orders the workgroup's memory, as MLIR says, and a fence adds nothing to it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.cuda.conftest import threads
from tests.targets.cuda.threads import ThreadsExecutable, ThreadsTarget, run_threads
from tilewright import reference
from tilewright.arguments import numpy_view
from tilewright.diagnostics import CheckError
from tilewright.dialects.text import parse_module
from tilewright.graph.compiled import _viewed

from .test_examples import NAMES, example

__all__ = ["threads"]


def barriers(module):
    return [op for op in module.walk() if op.name == "gpu.barrier"]


@pytest.mark.parametrize("name", NAMES)
def test_every_barrier_is_needed(name, threads: ThreadsTarget, monkeypatch):
    launches = []

    def launch(self, grid, args):
        launches.append((self.lowered, args, grid, [numpy_view(a).copy() for a in args]))
        run_threads(self.lowered, args, grid)

    monkeypatch.setattr(ThreadsExecutable, "launch", launch)
    each = example(name)
    graph = each.graph(dtype=tw.bf16)
    drawn = each.arrays(fresh_rng())
    arrays = [a.astype(b.dtype.numpy) for a, b in zip(drawn, graph.inputs, strict=True)]
    got = graph.compile(target="cuda")(*arrays).astype(np.float64)
    want = each.expected(*(a.astype(np.float64) if a.dtype.kind not in "iu" else a for a in arrays))
    assert np.linalg.norm(got - want) <= 2e-2 * np.linalg.norm(want)
    ((lowered, args, grid, before),) = launches
    count = len(barriers(lowered.module))
    assert count, "threads share tiles"
    for number in range(count):
        module = lowered.module.clone()
        left_out = barriers(module)[number]
        left_out.detach()
        left_out.erase()
        for array, start in zip(args, before, strict=True):
            numpy_view(array)[...] = start
        with pytest.raises(CheckError, match="race"):
            run_threads(replace(lowered, module=module), args, grid)


def test_every_barrier_between_subgroups_is_needed():
    each = example("linear_attention")
    run = each.graph().compile(target="xe-pvc")
    arrays = each.arrays(fresh_rng())
    sizes = run.sizes(*arrays)
    plan = run.plan(**sizes)
    (text,), (kernel,) = plan.kernels, run.ahead("xe-pvc", **sizes)
    buffers = plan.schedule.graph.buffers
    memory = {b.name: a for b, a in zip(plan.schedule.graph.inputs, arrays, strict=True)}
    for view in text.views.values():
        made = buffers[view.buffer]
        shape = [e.number for e in made.shape]
        memory.setdefault(made.name, np.zeros(shape, made.dtype.numpy))
    module = parse_module(kernel.ir["xegpu-sg"])

    def races(left_out=None):
        changed = module.clone()
        if left_out is not None:
            barriers(changed)[left_out].detach()
        views = [_viewed(memory[v.buffer].copy(), v) for v in text.views.values()]
        report = reference.run(changed, (*text.grid, 1, 1)[:3], views, check=True)
        return [str(finding) for finding in report.errors]

    assert races() == []
    count = len(barriers(module))
    assert count, "subgroups share tiles"
    for number in range(count):
        assert "race: " in races(number)[0], number
