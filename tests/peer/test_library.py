"""What the runner's library and vector.print write is what mlir-runner writes, character for character."""

from __future__ import annotations

import re

import pytest

from tests.peer.mlir_opt import TO_LLVM, mlir_opt, mlir_runner, needs_mlir_runner
from tilewright import reference
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import run_program

NUMBERS = """
func.func private @printI64(i64)
func.func private @printU64(i64)
func.func private @printF32(f32)
func.func private @printF64(f64)
func.func private @printNewline()
func.func private @printComma()
func.func private @printOpen()
func.func private @printClose()
func.func private @nanoTime() -> i64 attributes {llvm.emit_c_interface}
func.func @main() {
  %c = arith.constant -42 : i64
  %f = arith.constant 2.5 : f32
  %d = arith.constant -1.25e10 : f64
  call @printOpen() : () -> ()
  call @printI64(%c) : (i64) -> ()
  call @printComma() : () -> ()
  call @printU64(%c) : (i64) -> ()
  call @printClose() : () -> ()
  call @printNewline() : () -> ()
  call @printF32(%f) : (f32) -> ()
  call @printComma() : () -> ()
  call @printF64(%d) : (f64) -> ()
  call @printNewline() : () -> ()
  %t = call @nanoTime() : () -> i64
  %u = call @nanoTime() : () -> i64
  %later = arith.cmpi sge, %u, %t : i64
  %w = arith.extui %later : i1 to i64
  call @printI64(%w) : (i64) -> ()
  call @printNewline() : () -> ()
  return
}"""
ARRAYS = """
func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefShapeF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemref1dF32(memref<4xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefInd(memref<*xindex>) attributes {llvm.emit_c_interface}
memref.global "private" @a : memref<f32> = dense<-3.25>
memref.global "private" @b : memref<4xf32> = dense<[1.0, 2.5, -0.0, 1.0e20]>
memref.global "private" @i : memref<2x2xindex> = dense<[[1, 2], [3, 40]]>
func.func @main() {
  %a = memref.get_global @a : memref<f32>
  %au = memref.cast %a : memref<f32> to memref<*xf32>
  call @printMemrefF32(%au) : (memref<*xf32>) -> ()
  %b = memref.get_global @b : memref<4xf32>
  %bu = memref.cast %b : memref<4xf32> to memref<*xf32>
  call @printMemrefShapeF32(%bu) : (memref<*xf32>) -> ()
  call @printMemref1dF32(%b) : (memref<4xf32>) -> ()
  %i = memref.get_global @i : memref<2x2xindex>
  %iu = memref.cast %i : memref<2x2xindex> to memref<*xindex>
  call @printMemrefInd(%iu) : (memref<*xindex>) -> ()
  return
}"""
VECTORS = """
func.func @main() {
  %i = arith.constant -5 : index
  vector.print %i : index
  %v = arith.constant dense<[5, -7]> : vector<2xindex>
  vector.print %v : vector<2xindex>
  %n = arith.constant -5 : i64
  vector.print %n : i64
  %o = arith.constant dense<3.5> : vector<f32>
  vector.print %o : vector<f32>
  %m = arith.constant dense<[[true, false]]> : vector<1x2xi1>
  vector.print %m : vector<1x2xi1>
  return
}"""


@needs_mlir_runner
@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("text", [NUMBERS, ARRAYS, VECTORS], ids=["numbers", "arrays", "vectors"])
def test_output(text: str, target: str, capfd: pytest.CaptureFixture[str]):
    wanted = mlir_runner(mlir_opt(text, pipeline=TO_LLVM))
    capfd.readouterr()
    if target == "cpu":
        assert run_program(parse_module(text), target="cpu", say=lambda _: None) is not None
    else:
        reference.run(parse_module(text), kernel="main")
    found = capfd.readouterr().out
    assert re.sub("0x[0-9a-f]+", "", found) == re.sub("0x[0-9a-f]+", "", wanted)


def test_an_array_without_elements(capfd: pytest.CaptureFixture[str]):
    text = """func.func @main() {
  %o = arith.constant dense<[]> : tensor<0xf32>
  %c0 = arith.constant 0 : index
  %d = tensor.dim %o, %c0 : tensor<0xf32>
  vector.print %d : index
  return
}"""
    assert run_program(parse_module(text), target="reference", say=lambda _: None) is not None
    assert capfd.readouterr().out == "0\n"
