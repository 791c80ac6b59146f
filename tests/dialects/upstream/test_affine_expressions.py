"""Products with symbols and divisions by them: their text, their value on the host, what is not affine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arrays import error
from tests.passes.linalg.programs import drawn, opt, program, run_on
from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt
from tilewright import reference
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module

MAPS = {
    "(d0)[s0] -> (-(d0 * (s0 ceildiv 3)) + s0)": lambda d, s: s + d * (-s // 3),
    "(d0)[s0] -> (s0 * d0 + d0 mod s0)": lambda d, s: s * d + d % s,
    "(d0)[s0] -> (d0 floordiv s0 + (d0 + 7) ceildiv (s0 * 2))": lambda d, s: d // s - (-(d + 7) // (s * 2)),
    "(d0)[s0] -> (100 floordiv s0 - 3 * (d0 - s0) * s0)": lambda d, s: 100 // s - 3 * (d - s) * s,
}  # fmt: skip


@pytest.mark.parametrize("map_", MAPS)
def test_meaning(map_: str):
    text = f"""
func.func @main(%m: memref<?x?xindex>, %rows: index, %columns: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %d = %c0 to %rows step %c1 {{
    scf.for %s = %c1 to %columns step %c1 {{
      %v = affine.apply affine_map<{map_}>(%d)[%s]
      memref.store %v, %m[%d, %s] : memref<?x?xindex>
    }}
  }}
  return
}}"""
    module = parse_module(print_module(parse_module(text)))
    m = np.zeros((9, 6), np.int64)
    reference.run(module, args=[m, 9, 6])
    d, s = np.indices((9, 6))[:, :, 1:]
    np.testing.assert_array_equal(m[:, 1:], MAPS[map_](d, s))


@needs_mlir_opt
@pytest.mark.parametrize("map_", MAPS)
def test_mlir_opt_reads_what_is_printed(map_: str):
    text = f"func.func @f() attributes {{m = affine_map<{map_}>}} {{ return }}"
    mlir_opt(print_module(parse_module(text)))


@pytest.mark.parametrize("expression, words", [
    ("d0 * d1", "at least one of the multiply operands"),
    ("d0 * (d1 + s0)", "at least one of the multiply operands"),
    ("d0 floordiv d1", "right operand of floordiv"),
    ("s0 mod (d1 * 2)", "right operand of mod"),
    ("s0 ceildiv d0", "right operand of ceildiv"),
])  # fmt: skip
def test_what_is_not_affine_is_refused(expression: str, words: str):
    with pytest.raises(TilewrightError, match=f"non-affine expression: {words}") as refusal:
        parse_module(
            f"#m = affine_map<(d0, d1)[s0] -> ({expression})>\nfunc.func @f() {{ return }}"
        )
    assert refusal.value.location is not None and refusal.value.location.line == 1


@needs_mlir_opt
def test_parts_for_threads_of_open_extents(capfd: pytest.CaptureFixture[str]):
    """A product of unknown extents that mlir-opt cuts for 3 x 2 threads: each part is a share of an extent."""
    a, b = drawn("float32", 19, 26), drawn("float32", 26, 21)
    kind = "memref<?x?xf32>"
    body = f"""%o = memref.alloc() : memref<19x21xf32>
  %p = memref.cast %a : memref<19x26xf32> to {kind}
  %q = memref.cast %b : memref<26x21xf32> to {kind}
  %r = memref.cast %o : memref<19x21xf32> to {kind}
  call @f(%p, %q, %r) : ({kind}, {kind}, {kind}) -> ()"""
    text = program(body, {"a": a, "b": b}, {"o": "memref<19x21xf32>"})
    text = f"""module attributes {{transform.with_named_sequence}} {{
transform.named_sequence @__transform_main(%all: !transform.any_op {{transform.readonly}}) {{
  %m = transform.structured.match ops{{["linalg.matmul"]}} in %all : (!transform.any_op) -> !transform.any_op
  %t, %l = transform.structured.tile_using_forall %m num_threads [3, 2]
    : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
  transform.yield
}}
{text}
func.func @f(%p: {kind}, %q: {kind}, %r: {kind}) {{
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%r : {kind})
  linalg.matmul ins(%p, %q : {kind}, {kind}) outs(%r : {kind})
  return
}}
}}"""
    tiled = opt(
        text, "--transform-interpreter", "--test-transform-dialect-erase-schedule", "--canonicalize"
    )
    assert "scf.forall" in tiled and "ceildiv 3)" in tiled
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    for target in (None, "reference", "cpu"):
        (found,), _ = run_on(tiled, target, capfd)
        assert error(found, wanted) < 2e-5
