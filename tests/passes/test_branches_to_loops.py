"""Branches become loops and ifs, and mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import gpu

from tests.runtime.program.fragments import launch
from tests.texts import parse_module
from tilewright.passes.branches_to_loops import branches_to_loops

KERNEL = """
gpu.module @k {
  gpu.func @f(%a: memref<64xi32>, %n: index) kernel attributes {tilewright.level = "workgroup"} {
    %c7 = arith.constant 7 : i32
    %z = arith.constant 0 : i32
    BODY
  }
}
"""
COUNT = """
    cf.br ^head(%c0, %z : index, i32)
  ^head(%i: index, %s: i32):
    %c = arith.cmpi slt, %i, %n : index
    cf.cond_br %c, ^body, ^end
  ^body:
    memref.store %s, %a[%i] : memref<64xi32>
    %s1 = arith.addi %s, %c7 : i32
    %i1 = arith.addi %i, %c2 : index
    cf.br ^head(%i1, %s1 : index, i32)
  ^end:
    memref.store %s, %a[%c1] : memref<64xi32>
    gpu.return"""
REVERSED = COUNT.replace("slt", "sge").replace("%c, ^body, ^end", "%c, ^end, ^body")
AT_THE_END = """
    cf.br ^body(%c0 : index)
  ^body(%i: index):
    memref.store %c7, %a[%i] : memref<64xi32>
    %i1 = arith.addi %i, %c3 : index
    %c = arith.cmpi slt, %i1, %n : index
    cf.cond_br %c, ^body(%i1 : index), ^end(%i1 : index)
  ^end(%last: index):
    %l = arith.index_cast %last : index to i32
    memref.store %l, %a[%c1] : memref<64xi32>
    gpu.return"""
CHOICE = """
    cf.br ^head(%c0 : index)
  ^head(%i: index):
    %c = arith.cmpi slt, %i, %n : index
    cf.cond_br %c, ^body, ^end
  ^body:
    %r = arith.remui %i, %c3 : index
    %odd = arith.cmpi eq, %r, %c0 : index
    cf.cond_br %odd, ^three, ^join(%z : i32)
  ^three:
    %v = arith.index_cast %i : index to i32
    cf.br ^join(%v : i32)
  ^join(%x: i32):
    memref.store %x, %a[%i] : memref<64xi32>
    %i1 = arith.addi %i, %c1 : index
    cf.br ^head(%i1 : index)
  ^end:
    gpu.return"""
NESTED = """
    cf.br ^head(%c0 : index)
  ^head(%i: index):
    %c = arith.cmpi slt, %i, %n : index
    cf.cond_br %c, ^inner(%c0, %z : index, i32), ^end
  ^inner(%j: index, %s: i32):
    %d = arith.cmpi sle, %j, %i : index
    cf.cond_br %d, ^add, ^store
  ^add:
    %s1 = arith.addi %s, %c7 : i32
    %j1 = arith.addi %j, %c1 : index
    cf.br ^inner(%j1, %s1 : index, i32)
  ^store:
    memref.store %s, %a[%i] : memref<64xi32>
    %i1 = arith.addi %i, %c1 : index
    cf.br ^head(%i1 : index)
  ^end:
    gpu.return"""


@pytest.mark.parametrize("body", [COUNT, REVERSED, AT_THE_END, CHOICE, NESTED])
@pytest.mark.parametrize("n", [1, 9])
def test_the_same_results(body, n):
    text = KERNEL.replace("BODY", body)
    module = parse_module(text, "branches.mlir")
    (kernel,) = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    assert branches_to_loops(kernel)
    module.verify()
    got: list[np.ndarray] = []
    for program in (text, str(module)):
        a = np.full(64, -1, np.int32)
        launch(program, (1, 1, 1), (1, 1, 1), [a, n], "reference")
        got.append(a)
    assert (got[0] != -1).any()
    np.testing.assert_array_equal(*got)


def test_two_exits_stay():
    body = """
    cf.br ^head(%c0 : index)
  ^head(%i: index):
    %c = arith.cmpi slt, %i, %n : index
    cf.cond_br %c, ^body, ^end
  ^body:
    %i1 = arith.addi %i, %c1 : index
    %e = arith.cmpi eq, %i1, %c3 : index
    cf.cond_br %e, ^other, ^head(%i1 : index)
  ^other:
    gpu.return
  ^end:
    gpu.return"""
    module = parse_module(KERNEL.replace("BODY", body), "branches.mlir")
    (kernel,) = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    assert not branches_to_loops(kernel)
    module.verify()
