"""Functions and control flow, executed on x86."""

import ctypes

import numpy as np
import pytest

from tests.codegen.counts import expected, printed
from tests.codegen.harness import Function, module
from tilewright.codegen import emit_module, x86
from tilewright.diagnostics import UnsupportedError

I64 = ctypes.c_int64


@pytest.mark.parametrize(
    "low, high, step", [(0, 10, 1), (0, 10, 3), (5, 5, 1), (7, 2, 1), (-4, 4, 2)]
)
def test_for_with_carried_values(low: int, high: int, step: int) -> None:
    f = Function("""
    func.func @k(%lo : index, %hi : index, %st : index) -> index {
      %a, %b = scf.for %i = %lo to %hi step %st iter_args(%x = %c0, %y = %c1) -> (index, index) {
        %s = arith.addi %x, %i : index
        %z = arith.addi %y, %y : index
        scf.yield %z, %s : index, index
      }
      %r = arith.subi %a, %b : index
      func.return %r : index
    }""")
    x, y = 0, 1
    for i in range(low, high, step):
        x, y = y + y, x + i
    assert f(low, high, step, result=I64) == x - y


def test_for_with_constant_bounds_has_no_test() -> None:
    text = """
    func.func @k(%hi : index) {
      scf.for %i = %c0 to %c4 step %c1 {
        %n = arith.addi %i, %c1 : index
        scf.yield
      }
      scf.for %i = %c0 to %hi step %c1 {
        %n = arith.addi %i, %c1 : index
        scf.yield
      } {mach.nonempty}
      func.return
    }"""
    llvm = emit_module(module(text), x86("avx2"))
    assert llvm.count("icmp") == 2, "one comparison per loop, at its end"
    assert printed(llvm)["back edge"] == expected(module(text), x86("avx2"))["back edge"] == 2


def test_what_runs_once_in_a_launch_is_compiled_fast() -> None:
    f = Function("""
    func.func @k(%x : index) -> index attributes {mach.once} {
      %r = arith.addi %x, %x : index
      func.return %r : index
    }""")
    assert "optnone" in f.llvm
    assert f(21, result=I64) == 42


@pytest.mark.parametrize("n", [0, 1, 6, 27, 97])
def test_while(n: int) -> None:
    f = Function("""
    func.func @k(%n : index) -> index {
      %v, %steps = scf.while (%x = %n, %s = %c0) : (index, index) -> (index, index) {
        %go = arith.cmpi sgt, %x, %c1 : index
        scf.condition(%go) %x, %s : index, index
      } do {
      ^bb0(%x : index, %s : index):
        %bit = arith.andi %x, %c1 : index
        %odd = arith.cmpi eq, %bit, %c1 : index
        %next = scf.if %odd -> (index) {
          %t = arith.muli %x, %c3 : index
          %u = arith.addi %t, %c1 : index
          scf.yield %u : index
        } else {
          %u = arith.divsi %x, %c2 : index
          scf.yield %u : index
        }
        %s1 = arith.addi %s, %c1 : index
        scf.yield %next, %s1 : index, index
      }
      func.return %steps : index
    }""")
    steps, x = 0, n
    while x > 1:
        x, steps = (3 * x + 1 if x % 2 else x // 2), steps + 1
    assert f(n, result=I64) == steps


def test_branches_in_any_order() -> None:
    """A loop written with cf, whose blocks do not stand in the order of control flow."""
    text = """
    func.func @k(%n : index) -> index {
      cf.br ^head(%c0, %c0 : index, index)
    ^exit(%r : index):
      func.return %r : index
    ^body(%bi : index, %bs : index):
      %s = arith.addi %bs, %bi : index
      %i = arith.addi %bi, %c1 : index
      cf.br ^head(%i, %s : index, index)
    ^head(%hi : index, %hs : index):
      %go = arith.cmpi slt, %hi, %n : index
      cf.cond_br %go, ^body(%hi, %hs : index, index), ^exit(%hs : index)
    }"""
    assert Function(text)(10, result=I64) == 45
    m = module(text)
    assert printed(emit_module(m, x86("avx2"))) == expected(m, x86("avx2"))


@pytest.mark.parametrize("n, wanted", [(0, 10), (1, 11), (5, 15), (7, -1)])
def test_switches(n: int, wanted: int) -> None:
    f = Function("""
    func.func @k(%n : index) -> index {
      %m = arith.constant -1 : index
      %w = arith.index_cast %n : index to i32
      cf.switch %w : i32, [default: ^end(%m : index), 0: ^end(%c10 : index), 1: ^more, 5: ^end(%c15 : index)]
    ^more:
      %s = arith.addi %n, %c10 : index
      cf.br ^end(%s : index)
    ^end(%r : index):
      func.return %r : index
    }""")
    assert f(n, result=I64) == wanted


def test_several_results_and_vectors_through_calls(rng: np.random.Generator) -> None:
    f = Function("""
    func.func private @both(%a : vector<2x8xf32>, %i : index) -> (vector<2x8xf32>, index, f32) {
      %b = arith.addf %a, %a : vector<2x8xf32>
      %x = vector.extract %a[1, 7] : f32 from vector<2x8xf32>
      func.return %b, %i, %x : vector<2x8xf32>, index, f32
    }
    func.func @k(%p : !llvm.ptr) {
      %a = mach.load %p : !llvm.ptr -> vector<2x8xf32>
      %b, %i, %x = func.call @both(%a, %c8) : (vector<2x8xf32>, index) -> (vector<2x8xf32>, index, f32)
      %q = mach.ptr_add %p, %i : !llvm.ptr
      mach.store %b, %p : vector<2x8xf32>, !llvm.ptr
      mach.store %x, %q : f32, !llvm.ptr
      func.return
    }""")
    x = rng.normal(size=16).astype(np.float32)
    wanted = 2 * x
    wanted[2] = x[15]
    f(x)
    np.testing.assert_array_equal(x, wanted)


def test_unknown_op_names_the_op_and_the_place() -> None:
    text = """func.func @k(%m : memref<4xf32>) {
      "memref.dma_wait"(%m) : (memref<4xf32>) -> ()
      func.return
    }"""
    broken = module(
        text.replace('"memref.dma_wait"(%m) : (memref<4xf32>) -> ()', "%0 = gpu.lane_id")
    )
    with pytest.raises(UnsupportedError) as caught:
        emit_module(broken, x86("avx2"))
    assert "gpu.lane_id: has no emission for x86/avx2" in str(caught.value)
    assert "test.mlir:2:" in str(caught.value)


def test_time_is_linear_in_the_ops() -> None:
    """Text grows by the same amount for every op: nothing is looked at twice."""

    def size(n: int) -> int:
        lines = "\n".join(f"%v{i + 1} = arith.addf %v{i}, %v{i} : vector<16xf32>" for i in range(n))
        head = "func.func @k(%v0 : vector<16xf32>) -> vector<16xf32>"
        text = f"{head} {{\n{lines}\nfunc.return %v{n} : vector<16xf32>\n}}"
        return emit_module(module(text), x86("avx512")).count("\n")

    assert size(200) - size(100) == 100
