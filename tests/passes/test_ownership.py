"""The planner of ownership: classes, what follows from what, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import test
from xdsl.dialects.builtin import VectorType, f32
from xdsl.ir import Operation, SSAValue

from tests.movement import kernel
from tilewright.layout import LayoutError
from tilewright.passes.ownership import Planner, Relation, rearranged, values_of


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
