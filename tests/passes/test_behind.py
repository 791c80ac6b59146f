"""Where ops stand that follow what makes a value."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block
from xdsl.rewriter import Rewriter

from tilewright.passes.carried import behind


def constant(number):
    return arith.ConstantOp.from_int_and_width(number, IndexType())


def test_ops_stand_behind_an_op_or_where_the_block_of_an_argument_begins():
    one, two = constant(1), constant(2)
    block = Block([one, two], arg_types=[IndexType()])
    total = arith.AddiOp(one.result, two.result)
    more = arith.AddiOp(block.args[0], two.result)
    Rewriter.insert_op(total, behind(block.args[0], constants=True))
    assert list(block.ops) == [one, two, total]
    Rewriter.insert_op(more, behind(block.args[0], constants=True))
    assert list(block.ops) == [one, two, more, total]
    first, then, last = constant(3), constant(4), constant(5)
    Rewriter.insert_op(first, behind(block.args[0]))
    Rewriter.insert_op(then, behind(one.result))
    Rewriter.insert_op(last, behind(total.result))
    assert list(block.ops) == [first, one, then, two, more, total, last]


def test_a_block_without_ops_begins_at_its_end():
    block, only = Block(arg_types=[IndexType()]), constant(1)
    Rewriter.insert_op(only, behind(block.args[0], constants=True))
    assert list(block.ops) == [only]
