"""Synchronisation is the compiler's, and no more than is needed: without any one barrier there is a race.

The code of every worked example for an NVIDIA GPU runs in numpy, thread by thread (`tests/targets/cuda/threads.py`):
as it is, and with each barrier taken out in turn.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.cuda.conftest import threads
from tests.targets.cuda.threads import ThreadsExecutable, ThreadsTarget, run_threads
from tests.targets.cuda.threads_memory import Race
from tilewright.runtime.arrays import numpy_view

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
        with pytest.raises(Race, match="in the same interval"):
            run_threads(replace(lowered, module=module), args, grid)
