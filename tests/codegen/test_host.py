"""What only host code of MLIR programs uses: scf.parallel, vector.print, strided copies, assertions."""

import ctypes
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.codegen.counts import expected, printed
from tests.codegen.harness import Function, module
from tilewright.codegen import emit_module, x86

I64 = ctypes.c_int64


@pytest.mark.parametrize("n, m", [(0, 3), (1, 1), (4, 5), (3, 0)])
def test_parallel(n: int, m: int) -> None:
    text = """
    func.func @k(%n : index, %m : index) -> index {
      %s, %x = scf.parallel (%i, %j) = (%c0, %c0) to (%n, %m) step (%c1, %c2) init (%c0, %c0) -> (index, index) {
        %p = arith.muli %i, %j : index
        scf.reduce(%p, %j : index, index) {
        ^bb0(%a : index, %b : index):
          %t = arith.addi %a, %b : index
          scf.reduce.return %t : index
        } {
        ^bb0(%a : index, %b : index):
          %t = arith.maxsi %a, %b : index
          scf.reduce.return %t : index
        }
      }
      %r = arith.subi %s, %x : index
      func.return %r : index
    }"""
    pairs = [(i, j) for i in range(n) for j in range(0, m, 2)]
    wanted = sum(i * j for i, j in pairs) - max((j for _, j in pairs), default=0)
    assert Function(text)(n, m, result=I64) == wanted
    m_ = module(text)
    assert printed(emit_module(m_, x86("avx2"))) == expected(m_, x86("avx2"))


def test_vector_print(capsys: pytest.CaptureFixture[str]) -> None:
    Function("""
    func.func @k() {
      %a = arith.constant dense<[[1.5, 2.0], [-3.25, 1.0e+20]]> : vector<2x2xf32>
      %b = arith.constant dense<[1, -2, 3]> : vector<3xi8>
      %c = arith.constant 42 : index
      %d = arith.constant 0.1 : f64
      %e = arith.constant dense<[true, false]> : vector<2xi1>
      vector.print %a : vector<2x2xf32>
      vector.print %b : vector<3xi8>
      vector.print %c : index
      vector.print %d : f64
      vector.print %e : vector<2xi1>
      vector.print str "done"
      vector.print punctuation <newline>
      func.return
    }""")()
    wanted = "( ( 1.5, 2 ), ( -3.25, 1e+20 ) )\n( 1, -2, 3 )\n42\n0.1\n( 1, 0 )\ndone\n"
    assert capsys.readouterr().out == wanted


def test_print_of_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    Function("""
    func.func @k(%i : index, %x : f32) {
      %v = arith.constant dense<[[1, 2], [3, 4]]> : vector<2x2xi32>
      %h = arith.truncf %x : f32 to bf16
      %t = arith.constant true
      tw.print "{{i}} is {}, x {} or {}, {}" %i, %x, %h, %t : index, f32, bf16, i1
      tw.print "v = {}" %v : vector<2x2xi32>
      tw.breakpoint ["i"] %i : index
      func.return
    }""")(-3, 1.3)
    assert capsys.readouterr().out == "{i} is -3, x 1.3 or 1.29688, True\nv = [[1 2] [3 4]]\n"


def test_strided_copy(rng: np.random.Generator) -> None:
    f = Function("""
    func.func @k(%p : index, %q : index) {
      %a, %b = func.call @pair() : () -> (memref<4x6xf32>, memref<6x4xf32>)
      %x = mach.ptr_from_int %p : index -> !llvm.ptr
      %y = mach.ptr_from_int %q : index -> !llvm.ptr
      %v = mach.load %x : !llvm.ptr -> vector<24xf32>
      %m = vector.shape_cast %v : vector<24xf32> to vector<4x6xf32>
      vector.transfer_write %m, %a[%c0, %c0] {in_bounds = [true, true]} : vector<4x6xf32>, memref<4x6xf32>
      %t = memref.transpose %b (i, j) -> (j, i) : memref<6x4xf32> to memref<4x6xf32, strided<[1, 4]>>
      memref.copy %a, %t : memref<4x6xf32> to memref<4x6xf32, strided<[1, 4]>>
      %z = arith.constant 0.0 : f32
      %r = vector.transfer_read %b[%c0, %c0], %z {in_bounds = [true, true]} : memref<6x4xf32>, vector<6x4xf32>
      mach.store %r, %y : vector<6x4xf32>, !llvm.ptr
      memref.dealloc %a : memref<4x6xf32>
      memref.dealloc %b : memref<6x4xf32>
      func.return
    }
    func.func private @pair() -> (memref<4x6xf32>, memref<6x4xf32>) {
      %a = memref.alloc() : memref<4x6xf32>
      %b = memref.alloc() : memref<6x4xf32>
      func.return %a, %b : memref<4x6xf32>, memref<6x4xf32>
    }""")
    x = rng.normal(size=(4, 6)).astype(np.float32)
    y = np.zeros((6, 4), np.float32)
    f(x, y)
    np.testing.assert_array_equal(y, x.T)


def test_a_failed_assertion_reports_and_ends() -> None:
    program = textwrap.dedent("""
    import sys
    sys.path.insert(0, "tests")
    from codegen.harness import Function
    f = Function('''
    func.func @k(%n : index) {
      %ok = arith.cmpi slt, %n, %c3 : index
      cf.assert %ok, "n is below three"
      func.return
    }''')
    f(2)
    print("first", flush=True)
    f(3)
    print("second", flush=True)
    """)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 134 and ran.stdout == "first\n"
    assert "assertion failed: n is below three" in ran.stderr


def test_print_from_threads_keeps_lines_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """The pool's threads are not Python's; each line comes out in one piece."""
    import threading

    f = Function("""
    func.func @k(%i : index) {
      %n = arith.constant 50 : index
      scf.for %j = %c0 to %n step %c1 {
        tw.print "<{} {}>" %i, %j : index, index
      }
      func.return
    }""")
    threads = [threading.Thread(target=f, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"<{i} {j}>" for i in range(4) for j in range(50))
