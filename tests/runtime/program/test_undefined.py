"""What is undefined in host code ends the program with a diagnostic at its place: compiled and in the reference."""

from __future__ import annotations

import pytest

from tilewright import reference
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module
from tilewright.reference.mlir_runner import Runner
from tilewright.runtime.program import Limits, in_worker, run_program

LIMITS = Limits(memory=2 << 30, seconds=60)
HEAD = """\
func.func private @printMemrefF32(memref<*xf64>)
func.func private @fillResource1DF32(memref<*xi8>, f32)
func.func private @printMaxErrorF16(memref<*xf16>, memref<*xf32>)
func.func private @rtclock() -> f32
func.func @main() {
  %zero = arith.constant 0 : index
  %c1 = arith.constant 1 : index
"""
VALUES = """\
  %none = arith.constant 0 : i32
  %least = arith.constant -2147483648 : i32
  %back = arith.constant -1 : i32
  %minus = arith.constant -5 : index
  %huge = arith.constant 4611686018427387904 : index
  %nine = arith.constant 9 : index
  %f = arith.constant 1.0 : f32
  %some = arith.constant dense<[[1, 2], [0, 3]]> : vector<2x2xi32>
  %m = memref.alloc() : memref<4x8xf32>
  %d = memref.cast %m : memref<4x8xf32> to memref<?x8xf32>
"""
CASES = {
    "%0 = arith.divsi %least, %none : i32": "division by zero",
    "%0 = arith.divsi %least, %back : i32": "quotient does not fit",
    "%0 = arith.remui %nine, %zero : index": "division by zero",
    "%0 = arith.divsi %some, %some : vector<2x2xi32>": "division by zero",
    "%0 = index.floordivs %nine, %zero": "division by zero",
    "%0 = arith.cmpi slt, %nine, %zero : index\n  cf.assert %0, \"{nine} is less\"": "failed.*{nine} is less",
    "scf.for %i = %zero to %nine step %zero {\n  }": "needs a step above zero",
    "scf.for %i = %zero to %nine step %minus {\n  }": "needs a step above zero",
    "scf.parallel (%i) = (%zero) to (%nine) step (%minus) {\n  scf.reduce\n  }": "a step above zero",
    "%0 = memref.alloc(%minus) : memref<?xf32>": "-5",
    "%0 = memref.alloc(%huge) : memref<?xf32>": "memref.alloc",
    "%0 = memref.alloc() : memref<4294967296x4294967296x4xf32>": "memref.alloc",
    "%0 = memref.subview %m[%c1, 0] [4, 8] [1, 1] : memref<4x8xf32> to "
    "memref<4x8xf32, strided<[8, 1], offset: ?>>": "dimension 0 runs out-of-bounds: up to 4",
    "%0 = memref.alloc(%nine) : memref<?x8xf32>\n  memref.copy %0, %d : memref<?x8xf32> to memref<?x8xf32>":
        "shapes that differ",
    "%0 = memref.cast %d : memref<?x8xf32> to memref<9x8xf32>": "4 long, not 9",
    "%0 = memref.alloc() : memref<4xf64>\n  %1 = memref.cast %0 : memref<4xf64> to memref<*xf64>\n"
    "  func.call @printMemrefF32(%1) : (memref<*xf64>) -> ()": r"is \(memref<\*xf32>\) -> \(\), but",
    "%0 = memref.alloc() : memref<400000xi8>\n  %1 = memref.cast %0 : memref<400000xi8> to memref<*xi8>\n"
    "  func.call @fillResource1DF32(%1, %f) : (memref<*xi8>, f32) -> ()": "reads memory by the element type",
    "%0 = func.call @rtclock() : () -> f32": r"@rtclock .* is \(\) -> \(f64\)",
}  # fmt: skip


def program(line: str) -> str:
    return f"{HEAD}{VALUES}  {line}\n  return\n}}\n"


@pytest.mark.parametrize("line, words", CASES.items(), ids=range(len(CASES)))
def test_what_is_undefined_is_told(line: str, words: str) -> None:
    module = parse_module(program(line), "undefined.mlir")
    with pytest.raises(TilewrightError, match=words) as error:
        in_worker(lambda fail: run_program(module, fail=fail), LIMITS)
    assert "undefined.mlir:" in str(error.value)


@pytest.mark.parametrize(
    "line", [line for line in CASES if "subview" not in line and "cast %d" not in line]
)
def test_the_reference_tells_it_too(line: str) -> None:
    with pytest.raises(TilewrightError) as error:
        reference.run(parse_module(program(line), "undefined.mlir"), kernel="main")
    assert error.value.location is not None and error.value.location.file == "undefined.mlir"


def test_what_is_defined_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = program("""%q = arith.divsi %least, %least : i32
  vector.print %q : i32
  %seven = arith.constant dense<7> : vector<2x2xi32>
  %p = arith.addi %some, %seven : vector<2x2xi32>
  %v = arith.divui %seven, %p : vector<2x2xi32>
  vector.print %v : vector<2x2xi32>
  %s = memref.subview %m[%c1, 0] [3, 8] [1, 1] : memref<4x8xf32> to memref<3x8xf32, strided<[8, 1], offset: ?>>
  %e = memref.alloc(%zero) : memref<?xf32>
  %t = memref.subview %e[%zero] [%zero] [1] : memref<?xf32> to memref<?xf32, strided<[1], offset: ?>>
  scf.for %i = %zero to %nine step %nine {
    vector.print %i : index
  }""")
    run_program(parse_module(text, "defined.mlir"))
    assert capsys.readouterr().out == "1\n( ( 0, 0 ), ( 1, 0 ) )\n0\n"


def test_the_reference_lets_the_library_reach_allocated_memory_alone() -> None:
    text = """func.func private @printMemrefF32(memref<*xf32>)
func.func @main() {
  %m = memref.alloc() : memref<4xf32>
  %w = memref.reinterpret_cast %m to offset: [0], sizes: [400000], strides: [1] : memref<4xf32> to memref<400000xf32>
  %u = memref.cast %w : memref<400000xf32> to memref<*xf32>
  func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
"""
    with pytest.raises(TilewrightError, match="reaches outside"):
        reference.run(parse_module(text, "outside.mlir"))


def test_functions_of_the_library_have_the_types_of_the_public_one() -> None:
    table = Runner().functions()
    assert table["printMaxErrorF16"].arguments == ("F16", "F16")
    assert table["printMaxErrorBF16"].arguments == ("BF16", "BF16")
    assert table["printAllcloseF16"].arguments == ("F16", "F32")
    assert (table["allcloseBF16"].arguments, table["allcloseBF16"].result) == (
        ("BF16", "F32"),
        "i1",
    )
