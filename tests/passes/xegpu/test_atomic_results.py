"""atomic-results: all subgroups have what an atomic on a number found, and each stage behind it agrees."""

from __future__ import annotations

import pytest

from tests.draws import fresh_seed
from tests.texts import parse_module
from tilewright.dialects.text import verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.level import range_of
from tilewright.passes.xegpu.atomic_results import atomic_results
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import check_stages, stages_of_target
from tilewright.tools.check_inputs import Inputs, make_args, specs_of

TEXT = """gpu.module @m { gpu.func @k(%a: memref<8xf32>, %e: memref<4xi8>, %o: memref<32x32xf32>) kernel
  attributes {tilewright.level = "workgroup", tilewright.subgroups = 4 : i64} {
  %by = arith.constant 2 : i8
  %x = arith.constant 0.5 : f32
  %none = arith.constant dense<0.0> : vector<32x32xf32>
  %sum = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %none) -> (vector<32x32xf32>) {
    %f = memref.atomic_rmw addf %x, %a[%c3] : (f32, memref<8xf32>) -> f32
    %b = memref.generic_atomic_rmw %e[%i] : memref<4xi8> {
      ^bb0(%now: i8):
        %y = arith.shli %now, %by : i8
        %z = arith.xori %y, %by : i8
        memref.atomic_yield %z : i8
    }
    %unused = memref.generic_atomic_rmw %e[%c3] : memref<4xi8> {
      ^bb0(%now: i8):
        %y = arith.shli %now, %by : i8
        %z = arith.addi %y, %by : i8
        memref.atomic_yield %z : i8
    }
    %g = arith.sitofp %b : i8 to f32
    %h = arith.addf %f, %g : f32
    %v = vector.broadcast %h : f32 to vector<32x32xf32>
    %t = arith.addf %s, %v : vector<32x32xf32>
    scf.yield %t : vector<32x32xf32>
  }
  %to = xetile.init_tile %o[0, 0] : memref<32x32xf32> -> !xetile.tile<32x32xf32>
  xetile.store_tile %sum, %to : vector<32x32xf32>, !xetile.tile<32x32xf32>
  gpu.return } }"""


def test_one_subgroup_does_it() -> None:
    module = parse_module(TEXT)
    kernel = kernel_of(module)
    atomic_results(kernel)
    verify_module(module)
    runs = [run.bounds for op in kernel.walk() if (run := range_of(op)) is not None]
    assert runs == [(0, 1), (0, 1)]  # the third has no result that anybody uses


@pytest.mark.parametrize("target", ["xe-pvc", "xe-dg2"])
def test_every_stage_agrees(target: str) -> None:
    module = parse_module(TEXT)
    inputs = Inputs((1, 1, 1), make_args(specs_of(kernel_of(module)), fresh_seed()))
    stages = stages_of_target(module, CompileOptions(target=target))
    assert "pass atomic-results" in [stage.name for stage in stages]
    found = check_stages(stages[:-1], inputs)
    assert found is None, str(found)
