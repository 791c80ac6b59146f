"""while-to-for: counted whiles become fors and mean the same; other whiles stay."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects.text import verify_module
from tilewright.passes.while_to_for import while_to_for

PROGRAM = """
gpu.module @m {{
  gpu.func @f(%y: memref<4xi64>, %lo: index, %hi: index) kernel {{
    %c3 = arith.constant {step} : index
    %zero = arith.constant 0 : i64
    %r:3 = scf.while (%s = %zero, %n = %lo, %k = %c0) : (i64, index, index) -> (i64, index, index) {{
      %c = arith.cmpi {predicate}, %n, %hi : index
      scf.condition(%c) {passed} : i64, index, index
    }} do {{
    ^bb0(%s: i64, %n: index, %k: index):
      %v = arith.index_cast %n : index to i64
      %t = arith.addi %s, %v : i64
      %m = arith.addi {following} : index
      %j = arith.addi %k, %c1 : index
      scf.yield %t, %m, %j : i64, index, index
    }}
    %at = arith.index_cast %r#1 : index to i64
    %trips = arith.index_cast %r#2 : index to i64
    memref.store %r#0, %y[%c0] : memref<4xi64>
    memref.store %at, %y[%c1] : memref<4xi64>
    memref.store %trips, %y[%c2] : memref<4xi64>
    gpu.return
  }}
}}
"""
USUAL = {"step": 3, "predicate": "slt", "passed": "%s, %n, %k", "following": "%n, %c3"}


def module_of(**changes):
    return parse_module(PROGRAM.format(**{**USUAL, **changes}))


def run(module, low, high):
    y = np.zeros(4, np.int64)
    reference.run(module, 1, [y, low, high])
    return y.tolist()


def count(module, kind):
    return sum(isinstance(op, kind) for op in module.walk())


@pytest.mark.parametrize("low, high", [(0, 0), (0, 10), (0, 9), (5, 4), (-7, 8), (9, -9), (2, 3)])
@pytest.mark.parametrize("following", ["%n, %c3", "%c3, %n"])
def test_counted_loops(low, high, following):
    before, after = (module_of(following=following) for _ in range(2))
    while_to_for(after)
    verify_module(after)
    assert (count(after, scf.WhileOp), count(after, scf.ForOp)) == (0, 1)
    numbers = list(range(low, high, 3))
    end = low + 3 * len(numbers)
    assert run(before, low, high) == run(after, low, high) == [sum(numbers), end, len(numbers), 0]


@pytest.mark.parametrize("changes", [
    {"predicate": "ult"}, {"predicate": "ne"},
    {"step": -3}, {"step": 0},
    {"passed": "%s, %k, %n"},
    {"following": "%k, %c3"},
    {"following": "%n, %k"},
    {"following": "%n, %n"},
], ids=str)  # fmt: skip
def test_other_loops_stay(changes):
    module = module_of(**changes)
    while_to_for(module)
    assert (count(module, scf.WhileOp), count(module, scf.ForOp)) == (1, 0)


NARROW = """
gpu.module @m {{
  gpu.func @f(%y: memref<4xi64>, %low: index, %high: index) kernel {{
    %lo = arith.index_cast %low : index to i8
    %hi = arith.index_cast %high : index to i8
    %one = arith.constant {step} : i8
    %zero = arith.constant 0 : i64
    %r:2 = scf.while (%n = %lo, %s = %zero) : (i8, i64) -> (i8, i64) {{
      %c = arith.cmpi {predicate} : i8
      scf.condition(%c) %n, %s : i8, i64
    }} do {{
    ^bb0(%n: i8, %s: i64):
      %v = arith.extsi %n : i8 to i64
      %ten = arith.constant 10 : i64
      %u = arith.muli %s, %ten : i64
      %t = arith.addi %u, %v : i64
      %m = arith.addi %n, %one : i8
      scf.yield %m, %t : i8, i64
    }}
    %at = arith.extsi %r#0 : i8 to i64
    memref.store %r#1, %y[%c0] : memref<4xi64>
    memref.store %at, %y[%c1] : memref<4xi64>
    gpu.return
  }}
}}
"""


@pytest.mark.parametrize("low, high", [(0, 0), (0, 9), (5, 4), (-7, 8), (120, 127), (250, 254)])
@pytest.mark.parametrize(
    "predicate", ["slt, %n, %hi", "sgt, %hi, %n", "ult, %n, %hi", "ugt, %hi, %n", "sle, %n, %hi"]
)
def test_counters_of_few_bits(low: int, high: int, predicate: str) -> None:
    """Up to the greatest number that they hold, which they leave no loop to reach."""
    high -= predicate[2] == "e"
    before, after = (parse_module(NARROW.format(step=1, predicate=predicate)) for _ in range(2))
    while_to_for(after)
    verify_module(after)
    assert (count(after, scf.WhileOp), count(after, scf.ForOp)) == (0, 1)
    assert run(before, low, high) == run(after, low, high)


@pytest.mark.parametrize("low, high", [(0, 0), (0, 9), (5, 4), (-7, 8), (9, -9)])
def test_bounds_that_are_reached(low: int, high: int) -> None:
    before, after = (module_of(predicate="sle") for _ in range(2))
    while_to_for(after)
    assert (count(after, scf.WhileOp), count(after, scf.ForOp)) == (0, 1)
    assert run(before, low, high) == run(after, low, high)


def test_a_counter_of_few_bits_that_may_pass_its_bound_by_wrapping_stays() -> None:
    module = parse_module(NARROW.format(step=3, predicate="slt, %n, %hi"))
    while_to_for(module)
    assert count(module, scf.WhileOp) == 1
