# ruff: noqa: E501
"""Texts that mlir-opt takes and prints, in forms that few programs have: the results are mlir-runner's, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.linalg.programs import printed, program, run_on
from tests.peer.mlir_opt import TO_LLVM, mlir_opt, mlir_runner, needs_mlir_runner
from tilewright.dialects.text import parse_module, print_module

FORMS = {
    "memory of a scope": """memref.alloca_scope {
    %q = memref.alloca() : memref<8xf32>
    %v = memref.load %x[%c1, %c4] : memref<4x8xf32>
    memref.store %v, %q[%c1] : memref<8xf32>
    %w = memref.load %q[%c1] : memref<8xf32>
    memref.store %w, %o[%c1, %c0] : memref<4x8xf32>
  }
  %s = memref.alloca_scope -> (f32) {
    %v = memref.load %x[%c1, %c1] : memref<4x8xf32>
    memref.alloca_scope.return %v : f32
  }
  memref.store %s, %o[%c0, %c1] : memref<4x8xf32>""",
    "the rank of what has any": """%u = memref.cast %x : memref<4x8xf32> to memref<*xf32>
  %n = memref.rank %u : memref<*xf32>
  %m = arith.index_cast %n : index to i32
  %f = arith.sitofp %m : i32 to f32
  memref.store %f, %o[%c1, %c1] : memref<4x8xf32>""",
    "one result without parentheses": """%s = affine.parallel (%i, %j) = (0, 0) to (4, 8) reduce ("maximumf") -> f32 {
    %v = affine.load %x[%i, %j] : memref<4x8xf32>
    affine.yield %v : f32
  }
  memref.store %s, %o[%c0, %c0] : memref<4x8xf32>""",
    "prefetches by a map, and what a loop is meant for": """affine.for %i = 0 to 4 {
    affine.prefetch %x[%i * 2 + symbol(%c1), 3], read, locality<3>, data : memref<4x8xf32>
    affine.prefetch %o[%i, symbol(%c4)], write, locality<0>, data : memref<4x8xf32>
  }
  scf.forall (%i, %j) in (4, 8) {
    %v = memref.load %x[%i, %j] : memref<4x8xf32>
    %n = arith.negf %v : f32
    memref.store %n, %o[%i, %j] : memref<4x8xf32>
  } {mapping = [#gpu.block<y>, #gpu.thread<linear_dim_0>]}""",
    "more threads than tiles": """scf.forall (%i) in (5) {
    %n = affine.max affine_map<(d0) -> (0, -d0 + 3)>(%i)
    %m = affine.min affine_map<(d0) -> (d0, 2)>(%n)
    %p = affine.apply affine_map<(d0) -> (d0 * 2)>(%i)
    %s = memref.subview %x[0, %p] [4, %m] [1, 1] : memref<4x8xf32> to memref<4x?xf32, strided<[8, 1], offset: ?>>
    %t = memref.subview %o[0, %p] [4, %m] [1, 1] : memref<4x8xf32> to memref<4x?xf32, strided<[8, 1], offset: ?>>
    linalg.negf ins(%s : memref<4x?xf32, strided<[8, 1], offset: ?>>) outs(%t : memref<4x?xf32, strided<[8, 1], offset: ?>>)
  }""",
    "numbers of elements in tiles": """scf.forall (%i) in (2) {
    %p = affine.apply affine_map<(d0) -> (d0 * 4)>(%i)
    %s = memref.subview %x[0, %p] [4, 4] [1, 1] : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1], offset: ?>>
    %t = memref.subview %o[0, %p] [4, 4] [1, 1] : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : memref<4x4xf32, strided<[8, 1], offset: ?>>) outs(%t : memref<4x4xf32, strided<[8, 1], offset: ?>>) {
    ^bb0(%a: f32, %b: f32):
      %j = linalg.index 1 : index
      %q = affine.apply affine_map<(d0)[s0] -> (d0 * 4 + s0)>(%i)[%j]
      %m = affine.min affine_map<(d0) -> (d0 mod 5, 3)>(%q)
      %n = arith.index_cast %m : index to i32
      %f = arith.sitofp %n : i32 to f32
      %y = arith.mulf %a, %f : f32
      linalg.yield %y : f32
    }
  }""",
    "open extents of every loop": """%d = memref.cast %x : memref<4x8xf32> to memref<?x?xf32>
  %e = memref.expand_shape %d [[0, 1], [2, 3]] output_shape [%c1, 4, %c4, 2] : memref<?x?xf32> into memref<?x4x?x2xf32>
  %t = memref.alloc(%c4, %c1) : memref<?x4x2x?xf32>
  linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (d, b, a, c)>, affine_map<(a, b, c, d) -> (a, b, c, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%e : memref<?x4x?x2xf32>) outs(%t : memref<?x4x2x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  }
  scf.for %i = %c0 to %c4 step %c1 {
    %v = memref.load %t[%i, %c1, %c1, %c0] : memref<?x4x2x?xf32>
    memref.store %v, %o[%c0, %i] : memref<4x8xf32>
  }""",
    "rows that grow and shrink": """%a = memref.alloc(%c4) : memref<?xf32>
  scf.for %i = %c0 to %c4 step %c1 {
    %v = memref.load %x[%c1, %i] : memref<4x8xf32>
    memref.store %v, %a[%i] : memref<?xf32>
  }
  %c7 = arith.constant 7 : index
  %b = memref.realloc %a(%c7) : memref<?xf32> to memref<?xf32>
  memref.store %f, %b[%c4] : memref<?xf32>
  %d = memref.realloc %b {alignment = 16 : i64} : memref<?xf32> to memref<5xf32>
  %p, %q = memref.distinct_objects %d, %o : memref<5xf32>, memref<4x8xf32>
  scf.for %i = %c0 to %c4 step %c1 {
    %j = arith.addi %i, %c1 : index
    %v = memref.load %p[%j] : memref<5xf32>
    memref.store %v, %q[%c1, %i] : memref<4x8xf32>
  }""".replace("%c7 =", "%f = arith.constant 2.5 : f32\n  %c7 ="),
    "subscripts of dimensions and symbols": """affine.for %i = 0 to 4 {
    %v = affine.load %x[%i, %i * symbol(%c1) + symbol(%c4)] : memref<4x8xf32>
    affine.store %v, %o[-%i + symbol(%c4) - 1, %i + symbol(%c1)] : memref<4x8xf32>
  }
  %d = affine.delinearize_index %c4 into () : index
  %s = affine.parallel (%i) = (symbol(%c1)) to (min(%d + symbol(%c1), 4)) reduce ("addf") -> (f32) {
    %v = affine.load %x[%i, symbol(%c4) - %i] : memref<4x8xf32>
    affine.yield %v : f32
  }
  memref.store %s, %o[%c0, %c0] : memref<4x8xf32>""",
}


READ_AS_OTHERS = ("alloca_scope", "realloc")


@needs_mlir_runner
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, capfd: pytest.CaptureFixture[str]):
    constants = "".join(f"%c{n} = arith.constant {n} : index\n  " for n in (0, 1, 4))
    array = np.arange(32, dtype=np.float32).reshape(4, 8) - 3
    inputs = {"x": array, "o": np.zeros_like(array)}
    text = program(constants + FORMS[name], inputs, {"o": "memref<4x8xf32>"})
    (wanted,) = printed(mlir_runner(mlir_opt(text, pipeline=TO_LLVM)))
    assert np.any(wanted)
    for target in ("reference", "cpu"):
        for form in (text, mlir_opt(text, generic=True)):
            np.testing.assert_array_equal(run_on(form, target, capfd)[0][0], wanted, target)
    ours = parse_module(text)
    if not any(name in text for name in READ_AS_OTHERS):
        assert mlir_opt(print_module(ours, generic=True)) == mlir_opt(print_module(ours))
