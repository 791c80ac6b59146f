"""Structured ops that are no function of tiles run element by element, with the results that mlir-runner has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.arrays import error
from tests.passes.linalg.programs import Array, drawn, peer, program, run_on
from tests.peer.mlir_opt import needs_mlir_runner
from tilewright.dialects.text import parse_module
from tilewright.passes.linalg.to_xetile import linalg_to_xetile

IJ = "affine_map<(i, j) -> (i, j)>"


def generic(maps: str, kinds: str, outs: str, body: str, ins: str = "%x : memref<5x7xf32>") -> str:
    return f"""linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins({ins}) outs({outs}) {{
  {body}
  }}"""


ROWS = '"parallel", "reduction"'
BOTH = '"parallel", "parallel"'
O = "%o = memref.alloc() : memref<5x7xf32>\n  "
CASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "sums so far": (
        O
        + "%s = memref.alloc() : memref<5xf32>\n  %z = arith.constant 1.0 : f32\n"
        + "  linalg.fill ins(%z : f32) outs(%s : memref<5xf32>)\n  "
        + generic(
            f"{IJ}, {IJ}, affine_map<(i, j) -> (i)>",
            ROWS,
            "%o, %s : memref<5x7xf32>, memref<5xf32>",
            "^bb0(%a: f32, %b: f32, %c: f32):\n  %d = arith.addf %a, %c : f32\n  linalg.yield %d, %d : f32, f32",
        ),
        {"o": "memref<5x7xf32>", "s": "memref<5xf32>"},
    ),
    "the last round": (
        "%s = memref.alloc() : memref<5xf32>\n  "
        + generic(
            f"{IJ}, affine_map<(i, j) -> (i)>",
            ROWS,
            "%s : memref<5xf32>",
            "^bb0(%a: f32, %b: f32):\n  linalg.yield %a : f32",
        ),
        {"s": "memref<5xf32>"},
    ),
    "a branch, and what reads its result": (
        O
        + generic(
            f"{IJ}, {IJ}",
            BOTH,
            "%o : memref<5x7xf32>",
            """^bb0(%a: f32, %b: f32):
    %z = arith.constant 0.0 : f32
    %j = linalg.index 1 : index
    %c = arith.cmpf ogt, %a, %z : f32
    %v = scf.if %c -> f32 {
      %s = math.sqrt %a : f32
      scf.yield %s : f32
    } else {
      %k = arith.index_cast %j : index to i32
      %f = arith.sitofp %k : i32 to f32
      scf.yield %f : f32
    }
    linalg.yield %v : f32""",
        )
        + "\n  linalg.add ins(%o, %x : memref<5x7xf32>, memref<5x7xf32>) outs(%o : memref<5x7xf32>)",
        {"o": "memref<5x7xf32>"},
    ),
    "a loop": (
        O
        + generic(
            f"{IJ}, {IJ}",
            BOTH,
            "%o : memref<5x7xf32>",
            """^bb0(%a: f32, %b: f32):
    %i = linalg.index 0 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %v = scf.for %t = %c0 to %i step %c1 iter_args(%p = %a) -> f32 {
      %q = arith.mulf %p, %a : f32
      scf.yield %q : f32
    }
    linalg.yield %v : f32""",
        ),
        {"o": "memref<5x7xf32>"},
    ),
    "div and mod": (
        "%o = memref.alloc() : memref<7x5xf32>\n  "
        "%y = memref.collapse_shape %x [[0, 1]] : memref<5x7xf32> into memref<35xf32>\n  "
        + generic(
            "affine_map<(i) -> (i)>, affine_map<(i) -> (i mod 7, i floordiv 7)>",
            '"parallel"',
            "%o : memref<7x5xf32>",
            "^bb0(%a: f32, %b: f32):\n  linalg.yield %a : f32",
            "%y : memref<35xf32>",
        ),
        {"o": "memref<7x5xf32>"},
    ),
}


def drawn_program(name: str) -> str:
    body, results = CASES[name]
    return program(body, {"x": drawn("float32", 5, 7)}, results)


def same(found: list[Array], wanted: list[Array]) -> bool:
    return all(error(a, b) < 1e-5 for a, b in zip(found, wanted, strict=True))


@needs_mlir_runner
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, capfd: pytest.CaptureFixture[str]):
    text = drawn_program(name)
    assert same(run_on(text, "cpu", capfd)[0], peer(text))


def test_a_sum_so_far_of_numpy(capfd: pytest.CaptureFixture[str]):
    x = drawn("float32", 5, 7)
    body, results = CASES["sums so far"]
    text = program(body, {"x": x}, results)
    for target in ("cpu", None):
        sums, last = run_on(text, target, capfd)[0]
        np.testing.assert_array_equal(sums[:, -1], last)
        assert error(sums, 1 + np.cumsum(x.astype(np.float64), axis=1)) < 1e-5


@pytest.mark.parametrize("lines", [
    "%k = affine.apply affine_map<(d) -> (d * 2 + 1)>(%i)\n  %n = arith.index_cast %k : index to i32",
    "%k = affine.min affine_map<(d) -> (d, 3)>(%i)\n  %n = arith.index_cast %k : index to i32",
    "%n = scf.execute_region -> i32 {\n  %k = arith.index_cast %i : index to i32\n  scf.yield %k : i32\n  }",
])  # fmt: skip
def test_what_plain_bodies_can_say_stays_of_tiles(lines: str):
    body = f"""^bb0(%a: f32, %b: f32):
  %i = linalg.index 0 : index
  {lines}
  %f = arith.sitofp %n : i32 to f32
  %v = arith.addf %a, %f : f32
  linalg.yield %v : f32"""
    text = generic(f"{IJ}, {IJ}", BOTH, "%o : memref<5x7xf32>", body)
    module = parse_module(
        f"func.func @main(%x: memref<5x7xf32>, %o: memref<5x7xf32>) {{\n  {text}\n  return\n}}"
    )
    linalg_to_xetile(module)
    names = {op.name for op in module.walk()}
    assert "xetile.store_tile" in names and "memref.store" not in names


@pytest.mark.parametrize("of", ["element", "index", "place"])
def test_what_is_asserted_of_elements_stays(of: str):
    """Of tiles it would be dropped, as what is asserted of the places of loads is."""
    body = f"""^bb0(%a: f32, %n: i32, %b: f32):
  %i = arith.index_cast %n : i32 to index
  %j = linalg.index 1 : index
  %zero = arith.constant 0 : index
  %least = arith.constant 0.0 : f32
  %element = arith.cmpf oge, %a, %least : f32
  %place = arith.cmpi sge, %i, %zero : index
  %row = linalg.index 0 : index
  %index = arith.cmpi sge, %row, %zero : index
  cf.assert %{of}, "below"
  %v = memref.load %t[%i, %j] : memref<9x7xf32>
  linalg.yield %v : f32"""
    types = "memref<5x7xf32>, %k: memref<5x7xi32>, %t: memref<9x7xf32>, %o: memref<5x7xf32>"
    ins = "%x, %k : memref<5x7xf32>, memref<5x7xi32>"
    text = generic(f"{IJ}, {IJ}, {IJ}", BOTH, "%o : memref<5x7xf32>", body, ins)
    module = parse_module(f"func.func @main(%x: {types}) {{\n  {text}\n  return\n}}")
    linalg_to_xetile(module)
    names = {op.name for op in module.walk()}
    assert ("cf.assert" in names) == (of != "place")
    assert ("xetile.store_tile" in names) == (of == "place")


def test_what_is_used_twice_is_looked_at_once():
    """Whether what becomes an integer may be infinite beyond the edges: 64 squares, and 2^64 ways through them."""
    squares = "\n".join(f"  %v{i + 1} = arith.mulf %v{i}, %v{i} : f32" for i in range(64))
    body = f"""^bb0(%v0: f32, %b: i32):
{squares}
  %n = arith.fptosi %v64 : f32 to i32
  linalg.yield %n : i32"""
    text = generic(f"{IJ}, {IJ}", BOTH, "%o : memref<5x7xi32>", body)
    module = parse_module(
        f"func.func @main(%x: memref<5x7xf32>, %o: memref<5x7xi32>) {{\n  {text}\n  return\n}}"
    )
    linalg_to_xetile(module)
    assert any(op.name == "xetile.store_tile" for op in module.walk())
