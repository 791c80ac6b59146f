"""What stands around an op, and what it takes of that."""

from __future__ import annotations

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import ModuleOp

from tilewright.dialects.nesting import enclosing, ops_around, used_from_above, values_made
from tilewright.dialects.text import parse_module

TEXT = """
func.func @f(%a: index, %end: index, %flag: i1) {
  %0 = arith.constant 0 : index
  scf.for %i = %0 to %end step %a {
    scf.if %flag {
      %b = arith.addi %i, %a : index
      %c = arith.addi %b, %end : index
    }
  }
  return
}"""


def test_values_and_ops_around():
    module = parse_module(TEXT)
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    first, last = [op for op in module.walk() if isinstance(op, arith.AddiOp)]
    function = enclosing(first, func.FuncOp)
    assert function is not None
    branch = first.parent_op()
    assert [*ops_around(first)] == [branch, loop, function, module]
    assert enclosing(last, scf.ForOp, func.FuncOp) is loop and enclosing(loop, scf.IfOp) is None
    assert enclosing(module, ModuleOp) is None
    a, end, flag = function.body.block.args
    assert used_from_above(loop) == [loop.lb, end, a, flag]
    assert used_from_above(loop.body) == [flag, a, end]
    assert used_from_above(first) == [loop.body.block.args[0], a]
    assert values_made(loop) == [*loop.body.block.args] and values_made(first) == [first.result]
