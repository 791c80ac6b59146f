"""Host programs on the reference executor call the runner's library."""

from __future__ import annotations

import pytest

from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module

PROGRAM = """
func.func private @fillResource1DF32(memref<*xf32>, f32)
func.func private @printMemrefF32(memref<*xf32>)
func.func private @rtclock() -> f64
func.func private @nothing(f32)
func.func @main() {{
  %a = memref.alloc() : memref<2x3xf32>
  %u = memref.cast %a : memref<2x3xf32> to memref<*xf32>
  %x = arith.constant 2.5 : f32
  func.call @fillResource1DF32(%u, %x) : (memref<*xf32>, f32) -> ()
  func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  %t = func.call @rtclock() : () -> f64
  {more}
  return
}}
"""


def test_library_functions_work_on_host_memory(capsys):
    reference.run(parse_module(PROGRAM.format(more=""), "p.mlir"), kernel="main")
    printed = capsys.readouterr().out
    assert "sizes = [2, 3] strides = [3, 1]" in printed
    assert "[[2.5,   2.5,   2.5], \n [2.5,   2.5,   2.5]]" in printed


def test_an_unknown_function_is_refused_with_its_name():
    module = parse_module(PROGRAM.format(more="func.call @nothing(%x) : (f32) -> ()"), "p.mlir")
    with pytest.raises(UnsupportedError, match="@nothing is declared, not defined"):
        reference.run(module, kernel="main")
