"""What is asked of xDSL in a shorter way has xDSL's answers."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, IntegerType, TensorType, VectorType, f32, i1, i32
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue, TypeAttribute
from xdsl.traits import MemoryEffect, NoMemoryEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.text import parse_module
from tilewright.dialects.upstream.shortcuts import _stock_walk  # pyright: ignore[reportPrivateUsage]

TEXT = """
func.func @f(%c: i1, %n: index) -> i32 {
  %a = arith.constant 1 : i32
  %r = scf.for %i = %n to %n step %n iter_args(%s = %a) -> i32 {
    %b = arith.addi %s, %a : i32
    %d = scf.if %c -> i32 { scf.yield %b : i32 } else { scf.yield %a : i32 }
    scf.yield %d : i32
  }
  return %r : i32
}
"""


def test_a_walk_gives_all_ops_in_order_and_may_erase_them():
    module = parse_module(TEXT)
    for ways in ({}, {"reverse": True}, {"region_first": True}):
        assert list(module.walk(**ways)) == list(_stock_walk(module, **ways))
    for op in module.walk():
        if isinstance(op, arith.AddiOp):
            op.results[0].replace_all_uses_with(op.operands[1])
            op.detach()
            op.erase()
    names = [op.name for op in module.walk()]
    assert "arith.addi" not in names and names.count("scf.yield") == 3


def test_a_wrong_attribute_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(VerifyException):
            VectorType(f32, [0])
        with pytest.raises(VerifyException):
            IntegerAttr(300, IntegerType(8))
    assert VectorType(f32, [4]) == VectorType(f32, [4]) != VectorType(i32, [4])


def test_classes_equality_and_traits():
    module = parse_module(TEXT)
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    assert isinstance(loop, Operation) and not isinstance(loop, scf.IfOp)
    assert isinstance(loop.results[0], OpResult) and isinstance(loop.body.block.args[0], SSAValue)
    assert isinstance(i1, TypeAttribute) and not isinstance(i1, VectorType)
    assert isinstance(VectorType(f32, [4]), Attribute) and not isinstance(f32, TensorType)
    assert loop == loop != loop.clone() and Block() != Block()
    assert len({loop, loop.clone(), loop}) == 2
    assert loop.results[0] in {loop.results[0]: 1}
    (effects,) = arith.AddiOp.get_traits_of_type(MemoryEffect)
    assert isinstance(effects, Pure | NoMemoryEffect)
