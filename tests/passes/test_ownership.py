"""The planner of ownership: classes, what follows from what, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import test
from xdsl.dialects.builtin import VectorType, f32
from xdsl.ir import Operation, SSAValue

from tests.movement import kernel
from tilewright.dialects.text import parse_module
from tilewright.layout import LayoutError
from tilewright.passes.ownership import Planner, Relation, alike, rearranged, reduced, values_of


def chain(count: int) -> tuple[test.TestOp, Sequence[SSAValue]]:
    op = test.TestOp(result_types=[VectorType(f32, [4])] * count)
    return op, op.results


def related(op: Operation, a: SSAValue, b: SSAValue) -> Relation[int]:
    return Relation(op, a, b, lambda n: n + 1, lambda n: n - 1)


def test_layouts_follow_both_ways_and_through_classes():
    op, (a, b, c, d) = chain(4)
    plan = Planner[int](op.results)
    plan.tie((b, c))
    plan.relate(related(op, a, b), related(op, c, d))
    assert plan.assign(c, 5) and not plan.assign(b, 7)
    plan.follow()
    assert [plan.layouts[plan.find(v)] for v in (a, b, c, d)] == [4, 5, 5, 6]


def test_a_layout_that_does_not_fit_or_cannot_be_derived_is_none():
    def refused(_: int) -> int:
        raise LayoutError("no such layout")

    op, (a, b, c) = chain(3)
    plan = Planner[int](op.results, fits=lambda value, n: value is not b or n < 3)
    plan.relate(related(op, a, b), Relation(op, a, c, refused))
    plan.assign(a, 2)
    plan.follow()
    assert list(plan.layouts) == [a]


def test_values_without_layouts_are_left_out():
    op, (a, b, c) = chain(3)
    plan = Planner[int](op.results, owned=lambda value: value is not b)
    plan.tie((a, b, c))
    plan.relate(related(op, a, b))
    plan.assign(a, 1)
    plan.follow()
    assert plan.layouts == {a: 1} and plan.find(c) is a and plan.find(b) is b


def test_guesses_come_after_all_that_follows_and_urgent_ops_first():
    ops = [test.TestOp(), test.TestOp(), test.TestOp()]
    op, (a, b, c) = chain(3)
    plan = Planner[int](op.results, urgency=ops.index)
    plan.relate(Relation(ops[2], a, c, None, guess_forth=lambda n: 100))
    plan.relate(Relation(ops[0], a, b, lambda n: 7), Relation(ops[1], a, b, lambda n: 8))
    plan.assign(a, 1)
    plan.follow()
    assert plan.layouts == {a: 1, b: 8}
    assert plan.guess() and not plan.guess()
    assert plan.layouts[c] == 100


def test_the_source_of_a_broadcast_does_not_say_who_repeats_it():
    for name, forth in (("vector.broadcast", False), ("vector.transpose", True)):
        (op,) = (op for op in kernel(name).walk() if op.name == name)
        (found,) = rearranged(op)
        assert (found.forth is not None, found.back is not None) == (forth, True)


def test_the_values_of_a_kernel_are_results_and_arguments():
    module = kernel("vector.transpose")
    found = list(values_of(module))
    assert len(found) == len({*found})
    assert {v for op in module.walk() for v in op.operands} <= {*found}


CARRIED = """
func.func @f(%a: vector<4x8xf32>, %s: vector<4xf32>, %c: i1, %n: index) -> vector<4x8xf32> {
  %one = arith.constant 1 : index
  %sum, %row = scf.for %i = %one to %n step %one iter_args(%x = %a, %y = %s)
      -> (vector<4x8xf32>, vector<4xf32>) {
    %more = arith.addf %x, %a : vector<4x8xf32>
    %total = vector.multi_reduction <add>, %more, %y [1] : vector<4x8xf32> to vector<4xf32>
    scf.yield %more, %total : vector<4x8xf32>, vector<4xf32>
  }
  %either = scf.if %c -> (vector<4x8xf32>) {
    scf.yield %sum : vector<4x8xf32>
  } else {
    %with = vector.insert_strided_slice %row, %a {offsets = [0, 0], strides = [1]} : vector<4xf32> into vector<4x8xf32>
    scf.yield %with : vector<4x8xf32>
  }
  func.return %either : vector<4x8xf32>
}
"""


def test_values_that_ops_relate_element_by_element_are_of_one_class():
    module = parse_module(CARRIED, "carried.mlir")
    plan = Planner[int](values_of(module))
    ops = {op.name: op for op in module.walk()}
    for op in module.walk():
        plan.tie_alike(op)
    whole, row = ops["func.func"].regions[0].block.args[:2]
    loop, more, total = (ops[n] for n in ("scf.for", "arith.addf", "vector.multi_reduction"))
    _, x, y = loop.regions[0].block.args
    same = [
        x,
        loop.results[0],
        more.results[0],
        ops["scf.if"].results[0],
        *ops["vector.insert_strided_slice"].results,
    ]
    assert {plan.find(v) for v in same} == {plan.find(whole)}
    assert {plan.find(v) for v in (y, loop.results[1], total.results[0])} == {plan.find(row)}
    assert plan.find(row) is not plan.find(whole)
    (relation,) = reduced(total)
    assert (relation.a, relation.b) == (more.results[0], total.results[0])
    end = loop.regions[0].block.last_op
    assert [(given, list(names)) for given, names in alike(loop)] == [
        ([(loop, 3), (end, 0)], [loop.results[0], x]),
        ([(loop, 4), (end, 1)], [loop.results[1], y]),
    ]
    assert not list(alike(ops["func.return"])) and not list(reduced(more))
