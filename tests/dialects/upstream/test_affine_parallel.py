"""affine.parallel and symbols in subscripts: their text, their rules, and what they do on the host."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt
from tilewright import reference
from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.affine_to_scf import affine_to_scf

TEXT = """
func.func @main(%a: memref<?x?xf32>, %o: memref<?x?xf32>, %n: index, %sums: memref<3xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = memref.dim %a, %c0 : memref<?x?xf32>
  %columns = memref.dim %a, %c1 : memref<?x?xf32>
  affine.parallel (%i) = (max(1, %n - 3)) to (symbol(%rows)) {
    affine.parallel (%j, %k) = (0, %i) to (min(symbol(%columns), %i * 2 + 1), %i + 1) step (2, 3) {
      %x = affine.load %a[%i - 1, symbol(%columns) - %j - 1] : memref<?x?xf32>
      affine.store %x, %o[%k + symbol(%n), %j] : memref<?x?xf32>
    }
  }
  %s:3 = affine.parallel (%i, %j) = (0, 1) to (%rows, %columns) reduce ("addf", "maximumf", "addi") -> (f32, f32, i32) {
    %x = affine.load %a[%i, %j] : memref<?x?xf32>
    %one = arith.constant 1 : i32
    affine.yield %x, %x, %one : f32, f32, i32
  }
  %count = arith.sitofp %s#2 : i32 to f32
  affine.store %s#0, %sums[0] : memref<3xf32>
  affine.store %s#1, %sums[1] : memref<3xf32>
  affine.store %count, %sums[symbol(%n)] : memref<3xf32>
  return
}
"""


@pytest.mark.parametrize("generic", [False, True])
def test_meaning(generic: bool):
    a = fresh_rng().standard_normal((6, 9)).astype(np.float32)
    o, sums = np.zeros((8, 9), np.float32), np.full(3, np.nan, np.float32)
    module = parse_module(print_module(parse_module(TEXT), generic=generic))
    affine_to_scf(module)
    module.verify()
    assert not any(op.name == "affine.parallel" for op in module.walk())
    reference.run(module, args=[a, o, 2, sums])
    wanted = np.zeros_like(o)
    for i in range(1, 6):
        for j in range(0, min(9, 2 * i + 1), 2):
            wanted[i + 2, j] = a[i - 1, 8 - j]
    np.testing.assert_array_equal(o, wanted)
    part = a[:, 1:].astype(np.float64)
    np.testing.assert_allclose(sums, [part.sum(), part.max(), part.size], rtol=1e-4, atol=1e-5)


@needs_mlir_opt
def test_mlir_opt_reads_what_is_printed():
    mlir_opt(print_module(parse_module(TEXT)))


@needs_mlir_opt
def test_what_affine_parallelize_writes():
    """Loops that MLIR found to be parallel, symbols and all, mean what they meant before."""
    loops = """
func.func @main(%a: memref<?x?xf32>, %o: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %rows = memref.dim %a, %c0 : memref<?x?xf32>
  affine.for %i = 0 to %rows {
    affine.for %j = 0 to min affine_map<(d0)[s0] -> (d0 + 2, s0, 7)>(%i)[%rows] step 2 {
      %x = affine.load %a[%i, %j] : memref<?x?xf32>
      affine.store %x, %o[%i + symbol(%n), %j] : memref<?x?xf32>
    }
  }
  return
}"""
    after = mlir_opt(loops, pipeline="func.func(affine-parallelize)")
    assert "affine.parallel" in after and "symbol(" in after
    a, found = fresh_rng().standard_normal((6, 9)).astype(np.float32), list[np.ndarray]()
    for text in (loops, after):
        module, o = parse_module(text), np.zeros((8, 9), np.float32)
        affine_to_scf(module)
        reference.run(module, args=[a, o, 2])
        found.append(o)
    assert np.any(found[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('"maximumf", "addi"', '"maximumf"', "a reduction of each result"),
        ('"maximumf"', '"largest"', "'largest' combines nothing; there are addf"),
        ("step (2, 3)", "step (2, 0)", "a step above zero"),
        ("step (2, 3)", "step (2)", "need a bound and a step each"),
        ("affine.yield %x, %x, %one : f32, f32, i32", "affine.yield", "ends with an affine.yield"),
        ("symbol(%n)]", "symbol(3)]", "a value is expected here"),
    ],
)
def test_refused(old: str, new: str, words: str):
    with pytest.raises(TilewrightError, match=words):
        parse_module(TEXT.replace(old, new))


def test_a_reduction_without_a_neutral_element_is_refused():
    module = parse_module(TEXT.replace('"maximumf"', '"assign"'))
    with pytest.raises(UnsupportedError, match="reduces by 'assign'"):
        affine_to_scf(module)


def test_vectors():
    text = """
func.func @main(%a: memref<5x12xf32>, %o: memref<5x12xf32>) {
  affine.parallel (%i) = (0) to (4) {
    affine.for %j = 0 to 8 step 4 {
      %v = affine.vector_load %a[%i, %j] : memref<5x12xf32>, vector<4xf32>
      affine.vector_store %v, %o[%i + 1, %j + 3] : memref<5x12xf32>, vector<4xf32>
    }
  }
  return
}"""
    a, o = fresh_rng().standard_normal((5, 12)).astype(np.float32), np.zeros((5, 12), np.float32)
    module = parse_module(text)
    affine_to_scf(module)
    reference.run(module, args=[a, o])
    wanted = np.zeros_like(o)
    wanted[1:, 3:11] = a[:4, :8]
    np.testing.assert_array_equal(o, wanted)
