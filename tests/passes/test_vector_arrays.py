"""vector-arrays: what mlir-opt's convert-vector-to-scf writes through arrays of vectors has the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.linalg.programs import drawn, opt, program, run_on
from tests.peer.mlir_opt import needs_mlir_opt
from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.vector_arrays import vector_arrays

A = "memref<5x3x11xf32>"
TARGETS = (None, "reference", "cpu")

THROUGH_MEMORY = f"""%c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %z = arith.constant 2.0 : f32
  %rows = memref.alloca() : memref<2xvector<4x8xf32>>
  %whole = vector.type_cast %rows : memref<2xvector<4x8xf32>> to memref<vector<2x4x8xf32>>
  scf.for %i = %c0 to %c4 step %c1 {{
    %r = vector.type_cast %rows : memref<2xvector<4x8xf32>> to memref<2x4xvector<8xf32>>
    %v = vector.transfer_read %a[%i, %c1, %c0], %z {{in_bounds = [true]}} : {A}, vector<8xf32>
    memref.store %v, %r[%c1, %i] : memref<2x4xvector<8xf32>>
    %w = arith.negf %v : vector<8xf32>
    memref.store %w, %r[%c0, %i] : memref<2x4xvector<8xf32>>
  }}
  %all = memref.load %whole[] : memref<vector<2x4x8xf32>>
  %copy = memref.alloc() : memref<2xvector<4x8xf32>>
  memref.copy %rows, %copy : memref<2xvector<4x8xf32>> to memref<2xvector<4x8xf32>>
  %first = func.call @first(%copy) : (memref<2xvector<4x8xf32>>) -> vector<4x8xf32>
  memref.dealloc %copy : memref<2xvector<4x8xf32>>
  %o = memref.alloc() : memref<3x4x8xf32>
  vector.transfer_write %all, %o[%c0, %c0, %c0] {{in_bounds = [true, true, true]}}
    : vector<2x4x8xf32>, memref<3x4x8xf32>
  %two = arith.constant 2 : index
  vector.transfer_write %first, %o[%two, %c0, %c0] {{in_bounds = [true, true]}} : vector<4x8xf32>, memref<3x4x8xf32>"""

FIRST = """
func.func @first(%m: memref<2xvector<4x8xf32>>) -> vector<4x8xf32> {
  %c0 = arith.constant 0 : index
  %v = memref.load %m[%c0] : memref<2xvector<4x8xf32>>
  return %v : vector<4x8xf32>
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_vectors(target: str | None, capfd: pytest.CaptureFixture[str]):
    a = drawn("float32", 5, 3, 11)
    text = program(THROUGH_MEMORY, {"a": a}, {"o": "memref<3x4x8xf32>"}) + FIRST
    module = parse_module(print_module(parse_module(text)))
    vector_arrays(module)
    assert "vector<4x8xf32>>" not in print_module(module)
    module.verify()
    (found,), _ = run_on(module if target is None else text, target, capfd)
    rows = a[:4, 1, :8]
    np.testing.assert_allclose(found, np.stack([-rows, rows, -rows]), rtol=1e-5)


VECTORS = f"""%c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c7 = arith.constant 7 : index
  %z = arith.constant 0.5 : f32
  %mask = vector.create_mask %c3, %c7 : vector<4x8xi1>
  %v = vector.transfer_read %a[%c3, %c0, %c1], %z : {A}, vector<4x4x8xf32>
  %t = vector.transfer_read %a[%c0, %c1, %c0], %z
    {{permutation_map = affine_map<(i, j, k) -> (k, i)>}} : {A}, vector<8x4xf32>
  %u = vector.transfer_read %a[%c1, %c0, %c0], %z, %mask : {A}, vector<4x8xf32>
  %q = memref.alloc() : memref<4x8xf32>
  vector.transfer_write %u, %q[%c0, %c0] {{in_bounds = [true, true]}} : vector<4x8xf32>, memref<4x8xf32>
  %x = arith.mulf %v, %v : vector<4x4x8xf32>
  %o = memref.alloc() : memref<4x3x6xf32>
  %p = memref.alloc() : memref<9x4xf32>
  linalg.fill ins(%z : f32) outs(%o : memref<4x3x6xf32>)
  linalg.fill ins(%z : f32) outs(%p : memref<9x4xf32>)
  vector.transfer_write %x, %o[%c0, %c0, %c0] : vector<4x4x8xf32>, memref<4x3x6xf32>
  vector.transfer_write %t, %p[%c1, %c0] {{in_bounds = [true, true]}} : vector<8x4xf32>, memref<9x4xf32>"""


@needs_mlir_opt
@pytest.mark.parametrize("full", [False, True])
def test_what_mlir_opt_writes(full: bool, capfd: pytest.CaptureFixture[str]):
    """As loops over rows and unrolled, against the ops' own meaning.

    No mask of a transposed read: MLIR's loops take its rows for columns.
    """
    a = drawn("float32", 5, 3, 11)
    text = program(
        VECTORS,
        {"a": a},
        {"o": "memref<4x3x6xf32>", "p": "memref<9x4xf32>", "q": "memref<4x8xf32>"},
    )
    lowered = opt(text, f"--convert-vector-to-scf=full-unroll={str(full).lower()}")
    assert full or "vector.type_cast" in lowered
    wanted, _ = run_on(text, None, capfd)
    for target in ("reference", "cpu"):
        found, _ = run_on(lowered, target, capfd)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("text, words", [
    ("%m = memref.alloc() : memref<2xvector<4xf32>>\n"
     "%r = vector.type_cast %m : memref<2xvector<4xf32>> to memref<2xvector<5xf32>>", "the same elements"),
    ("%m = memref.alloc() : memref<2xvector<4xf32>>\n"
     "%r = vector.type_cast %m : memref<2xvector<4xf32>> to memref<2x4xi32>", "the same element type"),
    ("%m = memref.alloc() : memref<2xvector<4xf32>>\n"
     "%r = vector.type_cast %m : memref<2xvector<4xf32>> to memref<2x4xf32, 3>", "same memory space"),
    ("%m = memref.alloc() : memref<2xvector<4xf32>, strided<[1], offset: 2>>\n"
     "%r = vector.type_cast %m : memref<2xvector<4xf32>, strided<[1], offset: 2>> to memref<2x4xf32>",
     "identity layout"),
])  # fmt: skip
def test_casts_that_do_not_fit(text: str, words: str):
    with pytest.raises(TilewrightError, match=words):
        parse_module(text)


def test_what_has_no_such_form_is_refused():
    module = parse_module(
        """func.func @f(%m: memref<8xvector<4xf32>>) {
  %s = memref.subview %m[2] [4] [1] : memref<8xvector<4xf32>> to memref<4xvector<4xf32>, strided<[1], offset: 2>>
  return
}"""
    )
    with pytest.raises(UnsupportedError, match="subview of an array of vectors") as refusal:
        vector_arrays(module)
    assert refusal.value.location is not None and refusal.value.location.line == 2
