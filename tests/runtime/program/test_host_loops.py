"""Host loops side by side and shared by threads give what they give one round after another."""

from __future__ import annotations

import re

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp

from tests.texts import parse_module
from tilewright.passes.host.memory import HostMemory
from tilewright.passes.host.parallel import share_loops
from tilewright.passes.host.unroll_and_jam import ROWS, WIDTH, unroll_and_jam
from tilewright.runtime.program import run_program

PROGRAM = """
func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func @fill(%m: memref<?x?xf16>, %rows: index, %columns: index, %a: index) {
  scf.for %i = %c0 to %rows step %c1 {
    scf.for %j = %c0 to %columns step %c1 {
      %x = arith.muli %i, %a : index
      %y = arith.addi %x, %j : index
      %z = arith.remui %y, %c11 : index
      %n = arith.index_cast %z : index to i32
      %f = arith.sitofp %n : i32 to f16
      memref.store %f, %m[%i, %j] : memref<?x?xf16>
    }
  }
  return
}
func.func @product(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>,
                   %m: index, %n: index, %k: index, %from: index) {
  scf.for %i = %c0 to %m step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %ci = arith.addi %i, %from : index
      %c_old = memref.load %c[%ci, %j] : memref<?x?xf32>
      %s = scf.for %l = %c0 to %k step %c1 iter_args(%sum = %c_old) -> (f32) {
        %x = memref.load %a[%i, %l] : memref<?x?xf16>
        %y = memref.load %b[INDEX] : memref<?x?xf16>
        %xf = arith.extf %x : f16 to f32
        %yf = arith.extf %y : f16 to f32
        %p = arith.mulf %xf, %yf : f32
        %q = arith.addf %sum, %p : f32
        scf.yield %q : f32
      }
      memref.store %s, %c[%ci, %j] : memref<?x?xf32>
    }
  }
  return
}
func.func @main() {
  %m = arith.constant MM : index
  %n = arith.constant NN : index
  %k = arith.constant KK : index
  %br = arith.constant ROWS : index
  %bc = arith.constant COLUMNS : index
  %zero = arith.constant 0.5 : f32
  %a = memref.alloc(%m, %k) : memref<?x?xf16>
  %b = memref.alloc(%br, %bc) : memref<?x?xf16>
  %mm = arith.addi %m, %c3 : index
  %c = memref.alloc(%mm, %n) : memref<?x?xf32>
  call @fill(%a, %m, %k, %c7) : (memref<?x?xf16>, index, index, index) -> ()
  call @fill(%b, %br, %bc, %c3) : (memref<?x?xf16>, index, index, index) -> ()
  scf.for %i = %c0 to %mm step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      memref.store %zero, %c[%i, %j] : memref<?x?xf32>
    }
  }
  call @product(%a, %b, %c, %m, %n, %k, %c3)
    : (memref<?x?xf16>, memref<?x?xf16>, memref<?x?xf32>, index, index, index, index) -> ()
  %u = memref.cast %c : memref<?x?xf32> to memref<*xf32>
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
"""


def numbers(text: str) -> np.ndarray:
    """What a printMemref printed."""
    data = text.split("data =", 1)[1]
    return np.array([float(x) for x in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?|nan", data)])


def pattern(rows: int, columns: int, a: int) -> np.ndarray:
    i, j = np.indices((rows, columns))
    return ((i * a + j) % 11).astype(np.float32)


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (37, 19, 5), (70, 33, 9), (64, 16, 0)])
@pytest.mark.parametrize("transposed", [True, False])
def test_sums_side_by_side_and_shared(m, n, k, transposed, capsys):
    shape = (n, k) if transposed else (k, n)
    text = PROGRAM.replace("INDEX", "%j, %l" if transposed else "%l, %j")
    for name, value in {
        "MM": m, "NN": n, "KK": k, "ROWS": shape[0], "COLUMNS": shape[1],
    }.items():  # fmt: skip
        text = text.replace(name, str(value))
    run_program(parse_module(text, "loops.mlir"))
    got = numbers(capsys.readouterr().out).reshape(m + 3, n)
    b = pattern(*shape, 3)
    want = np.full((m + 3, n), 0.5)
    want[3:] += pattern(m, k, 7) @ (b.T if transposed else b)
    np.testing.assert_array_equal(got, want)


LOOP = """
func.func @f(%m: memref<64x64xf32>, %o: memref<64x64xf32>) {
  %z = arith.constant 0.0 : f32
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c64 step %c1 {
      BODY
    }
  }
  return
}
func.func @main() {
  %a = memref.alloc() : memref<64x64xf32>
  %b = memref.alloc() : memref<64x64xf32>
  call @f(%a, SECOND) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  return
}
"""
COPY = """%x = memref.load %o[%j, %i] : memref<64x64xf32>
      memref.store %x, %m[%i, %j] : memref<64x64xf32>"""


@pytest.mark.parametrize(
    "body, second, shared",
    [
        (COPY, "%b", True),
        (COPY, "%a", False),  # in place: rounds touch what others store
        ("memref.store %z, %m[%j, %c0] : memref<64x64xf32>", "%b", False),
        ("memref.store %z, %m[%i, %c0] : memref<64x64xf32>", "%b", True),
        (
            """%i1 = arith.addi %i, %c1 : index
      %x = memref.load %m[%i1, %j] : memref<64x64xf32>
      memref.store %x, %m[%i, %j] : memref<64x64xf32>""",
            "%b",
            False,
        ),
    ],
)
def test_only_rounds_that_keep_apart_are_shared(body, second, shared):
    module = parse_module(LOOP.replace("BODY", body).replace("SECOND", second), "loops.mlir")
    memory = HostMemory(module)
    found = share_loops(module, memory, lambda types: True)
    assert len(found) == int(shared)
    module.verify()


VIEW = "memref.subview %m[{}, 0] [63, 64] [1, 1] : memref<64x64xf32> to memref<63x64xf32, strided<[64, 1], offset: ?>>"
PART = "memref<63x64xf32, strided<[64, 1], offset: ?>>"


@pytest.mark.parametrize(
    "before, body, shared",
    [
        (
            "%v = arith.select %w, %m, %o : memref<64x64xf32>",
            "memref.store %z, %v[%i, %j] : memref<64x64xf32>",
            True,
        ),
        (  # a round may store where another one does, through the other view
            f"%s = {VIEW.format('%c0')}\n  %t = {VIEW.format('%c1')}",
            f"""%odd = arith.cmpi ugt, %i, %c1 : index
      %v = arith.select %odd, %s, %t : {PART}
      memref.store %z, %v[%i, %j] : {PART}""",
            False,
        ),
    ],
)
def test_memory_that_is_chosen(before, body, shared):
    text = LOOP.replace("BODY", body).replace("SECOND", "%b")
    choice = f"  %w = arith.cmpf oeq, %z, %z : f32\n  {before}\n  scf.for %i"
    module = parse_module(text.replace("  scf.for %i", choice), "loops.mlir")
    assert len(share_loops(module, HostMemory(module), lambda types: True)) == int(shared)
    module.verify()


def jammed(text: str) -> ModuleOp:
    """A product whose rows threads share, after `host-unroll-and-jam`: of the rows' loop and of the columns' one."""
    for name in ("MM", "NN", "KK", "ROWS", "COLUMNS"):
        text = text.replace(name, "40")
    module = parse_module(text, "loops.mlir")
    memory = HostMemory(module)
    share_loops(module, memory, lambda types: True)
    assert any(unroll_and_jam(f, memory) == 2 for f in list(module.body.block.ops)[::-1])
    module.verify()
    return module


def sums(module: ModuleOp) -> int:
    """The most values that one loop carries."""
    return max(len(op.iter_args) for op in module.walk() if isinstance(op, scf.ForOp))


def test_what_is_jammed_verifies():
    assert sums(jammed(PROGRAM.replace("INDEX", "%j, %l"))) == WIDTH * ROWS


ROUNDED = """%part = scf.for %o = %c0 to %k step %c4 iter_args(%old = %c_old) -> (f32) {
        %in = scf.for %u = %c0 to %c3 step %c1 iter_args(%sum = %old) -> (f32) {
          %l = arith.addi %o, %u : index
          %x = memref.load %a[%i, %l] : memref<?x?xf16>
          %y = memref.load %b[%l, %j] : memref<?x?xf16>
          %p = arith.mulf %x, %y : f16
          %w = arith.extf %p : f16 to f32
          %q = arith.addf %w, %sum : f32
          scf.yield %q : f32
        }
        scf.yield %in : f32
      }
      memref.store %part, %c[%ci, %j] : memref<?x?xf32>"""
"""Sums in two loops, of products that are rounded to f16; of every four elements the last is left out."""


def rounded() -> str:
    start, end = (
        PROGRAM.index("%s = scf.for %l"),
        PROGRAM.index("%c[%ci, %j] : memref<?x?xf32>\n    }"),
    )
    text = PROGRAM[:start] + ROUNDED + PROGRAM[end + len("%c[%ci, %j] : memref<?x?xf32>") :]
    text = text.replace(
        "arith.sitofp %n : i32 to f16",
        "arith.sitofp %n : i32 to f32\n"
        "      %third = arith.constant 0.3 : f32\n      %g = arith.mulf %h, %third : f32\n"
        "      %f = arith.truncf %g : f32 to f16",
    ).replace("%f = arith.sitofp", "%h = arith.sitofp")
    return text.replace("%from: index) {\n", "%from: index) {\n  %c4 = arith.constant 4 : index\n")


@pytest.mark.parametrize("m, n, k", [(5, 16, 4), (37, 35, 8)])
def test_products_rounded_to_f16(m, n, k, capsys):
    text = rounded()
    for name, value in {"MM": m, "NN": n, "KK": k, "ROWS": k, "COLUMNS": n}.items():
        text = text.replace(name, str(value))
    run_program(parse_module(text, "loops.mlir"))
    got = numbers(capsys.readouterr().out).reshape(m + 3, n)
    third = np.float32(0.3)
    a, b = ((pattern(*s, x) * third).astype(np.float16) for s, x in (((m, k), 7), ((k, n), 3)))
    want = np.full((m + 3, n), 0.5, np.float32)
    for i in range(k):
        if i % 4 != 3:
            want[3:] += np.multiply.outer(a[:, i], b[i]).astype(np.float32)
    # printMemref prints six digits.
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_loops_in_loops_of_constant_bounds_are_jammed():
    assert sums(jammed(rounded())) == WIDTH * ROWS
