"""What is asked of xDSL in a shorter way has xDSL's answers."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    TensorType,
    VectorType,
    f32,
    i1,
    i32,
)
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


def test_extents_of_vectors_are_what_is_given():
    fixed, scalable = VectorType(f32, [4, 8]), VectorType(f32, [4], ArrayAttr([BoolAttr(True, i1)]))
    assert fixed.get_shape() == (4, 8) and VectorType(f32, (IntAttr(4), 8)) == fixed
    assert str(fixed) == "vector<4x8xf32>" and str(scalable) == "vector<[4]xf32>"
    assert VectorType(f32, iter([4])) != scalable and VectorType(f32, []).get_shape() == ()


def test_a_block_takes_no_op_that_has_a_place_or_holds_the_block():
    module = parse_module(TEXT)
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    with pytest.raises(ValueError, match="already attached"):
        Block().add_op(loop)
    loop.detach()
    with pytest.raises(ValueError, match="contained in the operation"):
        loop.body.block.add_op(loop)


def test_values_are_got_as_they_are():
    module = parse_module(TEXT)
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    assert SSAValue.get(loop) is SSAValue.get(loop.results[0]) is loop.results[-1]
    assert SSAValue.get(loop, type=IntegerType).type == i32
    with pytest.raises(ValueError, match="Expected"):
        SSAValue.get(loop, type=VectorType)
    assert loop.results[:].types == (i32,) and not loop.results[1:].types


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


def test_equal_types_have_one_hash_which_is_made_once():
    for make in (lambda: VectorType(f32, [4, 8]), lambda: IntegerAttr(3, i32)):
        a, b = make(), make()
        assert a is not b and a == b and hash(a) == hash(b) == hash(a)
        assert {a: 1}[b] == 1
    assert hash(VectorType(f32, [4])) != hash(VectorType(f32, [8]))
