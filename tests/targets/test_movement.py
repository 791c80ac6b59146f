"""Every op that rearranges, on every target, against the reference executor.

On the cpu as machine code, on cuda thread by thread in numpy (which finds races and reads of nothing), on Xe as lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tests.lowering.programs import lowered
from tests.movement import CASES, GRID, arguments, kernel
from tests.targets.cuda.threads import ThreadsTarget
from tilewright import reference
from tilewright.dialects.text import parse_module
from tilewright.passes.expand_ops import expand_ops
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target


def expanded(name: str) -> ModuleOp:
    """A kernel as `enter` gives it to a target."""
    module = kernel(name)
    expand_ops(module)
    return module


def described(args: list[Any]) -> list[Any]:
    return [describe(a) if isinstance(a, np.ndarray) else a for a in args]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, rng: np.random.Generator) -> tuple[str, list[Any], Any]:
    """A kernel's name, its arguments, and the result that is right."""
    args = arguments(request.param, rng)
    right = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    reference.run(kernel(request.param), GRID, right)
    assert np.isfinite(right[-1].astype(np.float64)).any()
    return request.param, args, right[-1]


def test_cpu(case: tuple[str, list[Any], Any]):
    name, args, right = case
    code = get_target("cpu").build(expanded(name), CompileOptions(target="cpu"))
    code.launch(GRID, described(args))
    np.testing.assert_array_equal(args[-1], right)


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
def test_cuda(case: tuple[str, list[Any], Any], machine: str):
    name, args, right = case
    code = ThreadsTarget(machine).build(
        expanded(name), CompileOptions(target="cuda", machine=machine)
    )
    code.launch(GRID, described(args))
    np.testing.assert_array_equal(args[-1], right)


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
def test_xe(case: tuple[str, list[Any], Any], chip: str):
    name, args, right = case
    lowered(expanded(name), GRID, args, (*WORKGROUP, *SUBGROUP), chip, expected=[*args[:-1], right])


EDGE = """
gpu.module @m {
  gpu.func @k(%A: memref<12x20xf32>, %C: memref<1x1xf32>) kernel attributes {"tilewright.level" = "workgroup"} {
    %t = xetile.init_tile %A[0, 0] : memref<12x20xf32> -> !xetile.tile<16x32xf32>
    %x = xetile.load_tile %t : !xetile.tile<16x32xf32> -> vector<16x32xf32>
    %r = vector.shape_cast %x : vector<16x32xf32> to vector<4x8x16xf32>
    %s = vector.shape_cast %r : vector<4x8x16xf32> to vector<1x512xf32>
    %q = xetile.reduction <add>, %s [1] : vector<1x512xf32> -> vector<1x1xf32>
    %u = xetile.init_tile %C[0, 0] : memref<1x1xf32> -> !xetile.tile<1x1xf32>
    xetile.store_tile %q, %u : vector<1x1xf32>, !xetile.tile<1x1xf32>
    gpu.return
  }
}
"""


def test_a_tile_over_the_edge_is_padded_before_it_is_reshaped():
    a, c = np.ones((12, 20), np.float32), np.full((1, 1), np.nan, np.float32)
    code = get_target("cpu").build(parse_module(EDGE, "k.mlir"), CompileOptions(target="cpu"))
    code.launch((1, 1, 1), described([a, c]))
    assert c[0, 0] == a.size
