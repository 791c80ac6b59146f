"""What the entry of a program is called with by `tilewright run`, and what is told of what it returns and writes."""

from __future__ import annotations

import re

import pytest

from tests.draws import fresh_seed

STRIDED = "memref<3x4xf32, strided<[8, 1], offset: 2>>"
FREE = "memref<?x?xf16, strided<[?, ?], offset: ?>, 1>"
EVERYTHING = f"""
func.func @helper(%x: f32) -> f32 {{ return %x : f32 }}
func.func @everything(%a: {STRIDED}, %b: memref<3xi32>, %c: memref<2x2xf8E4M3FN>, %d: memref<4xi1>, %n: index,
    %x: bf16, %e: {FREE}, %t: tensor<2x3xi16>)
    -> ({STRIDED}, memref<2x2xf8E4M3FN>, memref<4xi1>, index, bf16, {FREE}, tensor<2x3xi16>, vector<3x2xf32>,
        i1, f32) {{
  %c2 = arith.constant 2 : index
  %many = arith.constant 77 : i32
  memref.store %many, %b[%c2] : memref<3xi32>
  %sum = linalg.add ins(%t, %t : tensor<2x3xi16>, tensor<2x3xi16>) outs(%t : tensor<2x3xi16>) -> tensor<2x3xi16>
  %v = arith.constant dense<[[1., 2.], [3., 4.], [5., 6.]]> : vector<3x2xf32>
  %yes = arith.constant true
  %half = arith.constant 0.5 : f32
  %r = func.call @helper(%half) : (f32) -> f32
  return %a, %c, %d, %n, %x, %e, %sum, %v, %yes, %r : {STRIDED}, memref<2x2xf8E4M3FN>, memref<4xi1>, index, bf16,
    {FREE}, tensor<2x3xi16>, vector<3x2xf32>, i1, f32
}}"""
GIVEN = ["f32[3,4]", "i32[3]", "f8e4m3[2,2]", "i1[4]", "3", "-2.5", "f16[2,5]", "i16[2,3]"]


def test_what_an_entry_takes_and_returns(tilewright, tmp_path):
    """Of every type, by whoever runs it, from the same random numbers."""
    path = tmp_path / "program.mlir"
    path.write_text(EVERYTHING)
    seed = fresh_seed() % 2**31
    ran = [
        tilewright("run", path, "--target", target, "--seed", seed, "--args", *GIVEN)
        for target in ("cpu", "reference")
    ]
    assert [done.code for done in ran] == [0, 0], ran
    out = ran[0].out
    assert out == ran[1].out
    heads = re.findall(r"^(argument \d|result \d): (\w+)(?:\[([\dx]+)\])?", out, re.MULTILINE)
    assert heads == [
        ("argument 1", "int32", "3"),
        ("result 0", "float32", "3x4"),
        ("result 1", "float8_e4m3fn", "2x2"),
        ("result 2", "bool", "4"),
        ("result 3", "int64", ""),
        ("result 4", "bfloat16", ""),
        ("result 5", "float16", "2x5"),
        ("result 6", "int16", "2x3"),
        ("result 7", "float32", "3x2"),
        ("result 8", "bool", ""),
        ("result 9", "float32", ""),
    ]
    assert re.search(r"argument 1: .*\n\[ *-?\d, +-?\d, +77\]\n", out)
    assert "result 3: int64 3\nresult 4: bfloat16 -2.5\n" in out
    assert "[[1,   2], \n [3,   4], \n [5,   6]]\nresult 8: bool 1\nresult 9: float32 0.5\n" in out


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(
    "takes, given, words",
    [
        ("%x: index", [], "its argument 0 is index\n"),
        ("%x: memref<?xf32>, %y: i32", [], "hint: say what it is called with, for example --args 'f32[8]' 1"),
        ("%x: memref<4xf32>", ["f32[5]"], "argument 0 of the entry @f is memref<4xf32>, not f32[5]"),
        ("%x: memref<4xf32>", ["f16[4]"], "is memref<4xf32>, not f16[4]"),
        ("%x: i8", ["1000"], "is i8, not 1000"),
        ("%x: index", ["1.5"], "is index, not 1.5"),
        ("%x: index", ["1", "2"], "takes 1 arguments, 2 given"),
        ("", ["1"], "hint: leave out --args"),
        ("%x: complex<f32>", ["1"], "hint: call it from a function without arguments"),
    ],
)  # fmt: skip
def test_what_an_entry_cannot_be_called_with(takes, given, words, target, tilewright, tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(f"func.func @f({takes}) {{ return }}")
    done = tilewright("run", path, "--target", target, *(["--args", *given] if given else []))
    assert done.code == 1
    assert (
        f"{path}:1:1: error: the entry @f" in done.err or f"{path}:1:1: error: argument" in done.err
    )
    assert words in done.err and "hint: " in done.err


def test_large_results_are_summed_up(tilewright, tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(
        "func.func @f(%x: memref<40x40xf32>) -> memref<40x40xf32> { return %x : memref<40x40xf32> }"
    )
    done = tilewright("run", path)
    assert done.code == 0
    assert re.fullmatch(r"result 0: float32\[40x40\], mean [^\n]*\n", done.out)
    path.write_text("func.func @f(%x: complex<f32>) -> complex<f32> { return %x : complex<f32> }")
    assert "hint" in tilewright("run", path).err
