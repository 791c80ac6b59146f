"""What branches, yields and launches hand over fits what receives it, or is refused where it is handed over."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module

HEAD = """\
func.func @main(%c: index, %i: i32, %t: i1, %f: f32) {
"""
TAIL = """
  return
}
"""
KERNELS = """\
module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @k(%a: memref<4xi32>) kernel { gpu.return }
    gpu.func @r(%a: i32) { gpu.return %a : i32 }
  }
  memref.global @g : memref<4xi32>
"""
WHILE = "  %z = scf.while (%a = %i) : (i32) -> (i32) {\n"
BODY = "  } do {\n  ^bb0(%b: i32):\n"


def message(text: str) -> str | None:
    try:
        parse_module(text, "flow.mlir")
    except TilewrightError as error:
        return str(error)
    return None


@pytest.mark.parametrize("body, words", [
    ("cf.br ^a\n^a(%x: i32):", "'cf.br' op hands () to successor #0, whose arguments are (i32)"),
    ("cf.br ^a(%f : f32)\n^a(%x: i32):", "hands (f32) to successor #0"),
    ("cf.cond_br %t, ^a, ^b\n^a:\nreturn\n^b(%x: i32):", "hands () to successor #1"),
    ("cf.switch %i : i32, [default: ^a, 1: ^b(%f : f32)]\n^a:\nreturn\n^b(%x: i32):", "successor #1"),
    ("cf.switch %i : i32, [default: ^a, 1: ^a, 1: ^a]\n^a:", "duplicate case value"),
    ("cf.br ^e\n^e:\ncf.br ^e\n^f:", None),
    ("%z = scf.if %t -> (f32) {\nscf.yield %f : f32\n}", "must have an else block"),
    ("%z = scf.if %t -> (f32) {\nscf.yield %i : i32\n} else {\nscf.yield %f : f32\n}",
     "'scf.yield' op hands (i32) to 'scf.if', whose results are (f32)"),
    ("scf.if %t {\nscf.yield %f : f32\n}", "hands (f32) to 'scf.if', whose results are ()"),
    ("%z = scf.execute_region -> i32 {\ncf.br ^a\n^a:\nscf.yield\n}", "hands () to 'scf.execute_region'"),
    (WHILE + "scf.condition(%t) %f : f32\n" + BODY + "scf.yield %b : i32 }",
     "'scf.condition' op hands (f32) to 'scf.while', whose results are (i32)"),
    (WHILE + "scf.condition(%t) %a : i32\n" + BODY + "scf.yield %f : f32 }",
     "hands (f32) to 'scf.while', which starts with (i32)"),
    (WHILE + "scf.yield %a : i32\n" + BODY + "scf.yield %b : i32 }", "region to end with 'scf.condition'"),
    ("%z = affine.for %k = 0 to 4 iter_args(%a = %i) -> (i32) {\naffine.yield %f : f32 }",
     "'affine.yield' op hands (f32) to 'affine.for', whose results are (i32)"),
    ('"scf.for"(%c, %c, %c, %f) ({^bb0(%k: index, %a: f32):\n "scf.yield"(%a) : (f32) -> () })'
     " : (index, index, index, f32) -> ()", "'scf.for' op hands (f32) to results of type ()"),
    ("%m = memref.alloc() : memref<4x4xf32>\n%two = arith.constant 2 : index\n"
     "%d = memref.dim %m, %two : memref<4x4xf32>", "index 2 is out of range: the memref has 2 dimensions"),
    ("%g = memref.get_global @none : memref<4xi32>", "'none' does not reference a valid global memref"),
])  # fmt: skip
def test_what_is_handed_over(body: str, words: str | None) -> None:
    told = message(HEAD + body + TAIL)
    assert told is None if words is None else words in (told or "")


def test_nothing_leads_to_the_entry_of_a_region() -> None:
    told = message("func.func @main() {\n^e:\n  cf.br ^e\n}")
    assert "entry block of its region" in (told or "")


def test_names_of_other_types() -> None:
    assert "gpu.return' op hands (i32) to a function" in (message(KERNELS + "}") or "")
    whole = KERNELS.replace("(%a: i32) {", "(%a: i32) -> i32 {") + HEAD
    assert message(whole + TAIL + "}") is None
    wrong = "%g = memref.get_global @g : memref<4xf32>"
    assert "does not match type memref<4xi32> of" in (message(whole + wrong + TAIL + "}") or "")
    launch = "gpu.launch_func @m::@k blocks in (%c, %c, %c) threads in (%c, %c, %c) args(%i : i32)"
    told = message(whole + launch + TAIL + "}")
    assert "hands (i32) to kernel @k, whose arguments are (memref<4xi32>)" in (told or "")
