"""affine.if: its text, its rules, and what it does on the host, also in loops of affine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt
from tilewright import reference
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.affine_to_scf import affine_to_scf

TEXT = """
#below = affine_set<(d0, d1)[s0] : (d0 - d1 >= 0, s0 - d0 - 1 >= 0)>
#even = affine_set<(d0) : (d0 mod 2 == 0)>
func.func @main(%a: memref<6x5xf32>, %o: memref<6x5xf32>, %n: index) {
  affine.for %i = 0 to 6 {
    affine.for %j = 0 to 5 {
      %x = affine.load %a[%i, %j] : memref<6x5xf32>
      %y = affine.if #even(%j) -> f32 {
        %z = arith.negf %x : f32
        affine.yield %z : f32
      } else {
        affine.yield %x : f32
      }
      affine.if #below(%i, %j)[%n] {
        affine.store %y, %o[%i, %j] : memref<6x5xf32>
      } else {
        affine.if affine_set<() : (0 == 0)>() {
          affine.store %x, %o[%i, %j] : memref<6x5xf32>
        }
      }
    }
  }
  return
}
"""


def test_meaning():
    a, o = (
        fresh_rng().standard_normal((6, 5)).astype(np.float32),
        np.full((6, 5), np.nan, np.float32),
    )
    module = parse_module(print_module(parse_module(TEXT)))
    affine_to_scf(module)
    assert not any(op.name.startswith("affine.if") for op in module.walk())
    reference.run(module, args=[a, o, 4])
    i, j = np.indices((6, 5))
    wanted = np.where((i >= j) & (i < 4), np.where(j % 2 == 0, -a, a), a)
    np.testing.assert_array_equal(o, wanted)


@needs_mlir_opt
def test_mlir_opt_reads_what_is_printed():
    mlir_opt(print_module(parse_module(TEXT)))


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("#even(%j)", "#even(%j, %i)", "1 dimensions and 0 symbols, for 2 values"),
        ("affine.yield %x : f32", "affine.yield", "ends with an affine.yield"),
        ("#even(%j)", "3(%j)", "an affine set is expected here"),
    ],
)
def test_refused(old: str, new: str, words: str):
    with pytest.raises(TilewrightError, match=words):
        parse_module(TEXT.replace(old, new))
