"""Integers: what divides them and bounds them, as arithmetic, loops and extents say, and nothing where nothing does."""

from __future__ import annotations

from xdsl.dialects import func

from tests.codegen.harness import module
from tests.texts import parse_module
from tilewright.passes.integers import EXTENT, bounds, divisor, span

TEXT = """
gpu.module @m { gpu.func @k(%a: memref<?x64xf32>, %n: index, %w: i32) kernel {
  %rows = memref.dim %a, %c0 : memref<?x64xf32>
  %id = gpu.block_id x
  %start = arith.muli %id, %c32 : index
  %word = arith.index_cast %w : i32 to index
  %rest = arith.remui %start, %c3 : index
  %low = arith.minsi %word, %c3 : index
  %back = arith.subi %c3, %start : index
  %sum = arith.addi %n, %c3 : index
  %down = arith.floordivsi %back, %c32 : index
  %up = arith.ceildivsi %back, %c32 : index
  %third = arith.ceildivsi %c32, %c3 : index
  scf.for %k = %c3 to %rows step %c32 {
    %next = arith.addi %k, %c32 : index
  }
  scf.for %j = %c0 to %n step %c32 {
    %other = arith.addi %j, %c32 : index
  }
  %at, %on = scf.for %i = %c3 to %rows step %c32 iter_args(%before = %c0, %sum_of = %c0) -> (index, index) {
    %again = arith.addi %before, %c0 : index
    %whole = arith.floordivsi %sum_of, %c3 : index
    %part = arith.muli %whole, %c3 : index
    %slot = arith.subi %sum_of, %part : index
    %twice = arith.muli %whole, %c32 : index
    %far = arith.subi %sum_of, %twice : index
    %more = arith.addi %sum_of, %c32 : index
    scf.yield %i, %more : index, index
  }
  %yes = arith.cmpi eq, %n, %c0 : index
  %one = scf.if %yes -> (index) {
    scf.yield %c32 : index
  } else {
    scf.yield %c3 : index
  }
  gpu.return } }
"""
WANT = {
    "rows": (0, EXTENT),
    "start": (0, 32 * (2**31 - 1)),
    "word": (-(2**31), 2**31 - 1),
    "rest": (0, 2),
    "low": (-(2**31), 3),
    "back": (3 - 32 * (2**31 - 1), 3),
    "sum": None,
    "down": (1 - 2**31, 0),
    "up": (2 - 2**31, 1),
    "third": (11, 11),
    "next": (35, EXTENT + 31),
    "other": None,
    "slot": (0, 2),
    "far": None,
    "again": (0, EXTENT - 1),
    "at": (0, EXTENT - 1),
    "more": None,
    "on": None,
    "one": (3, 32),
}


def test_spans() -> None:
    found = {
        result.name_hint: span(result)
        for op in parse_module(TEXT, "spans.mlir").walk()
        for result in op.results
        if result.name_hint in WANT
    }
    assert found == WANT


def test_a_target_says_how_long_arrays_are() -> None:
    module = parse_module(TEXT, "spans.mlir")
    rows = next(op for op in module.walk() if op.name == "memref.dim").results[0]
    assert span(rows, lambda _: 7) == (0, 7)
    assert span(rows, lambda _: None) is None


INDICES = """
func.func @k(%x : index, %c : i1) -> (index, index, index, index, index, index, index, index) {
  %a = arith.muli %x, %c24 : index
  %quotient = arith.divsi %a, %c8 : index
  %rest = arith.remsi %a, %c8 : index
  %shifted = arith.shli %x, %c3 : index
  %some = scf.if %c -> (index) {
    scf.yield %a : index
  } else {
    scf.yield %c0 : index
  }
  %sum = scf.for %i = %c0 to %x step %c24 iter_args(%s = %a) -> (index) {
    %t = arith.addi %s, %i : index
    scf.yield %t : index
  }
  %third = arith.divsi %a, %c3 : index
  %halved = scf.for %i = %c0 to %x step %c24 iter_args(%s = %c24) -> (index) {
    %t = arith.divsi %s, %c2 : index
    scf.yield %t : index
  }
  %word = arith.index_cast %a : index to i32
  %back = arith.index_cast %word : i32 to index
  func.return %quotient, %rest, %shifted, %some, %sum, %third, %halved, %back
    : index, index, index, index, index, index, index, index
}"""


def test_divisors_of_indices() -> None:
    (end,) = [op for op in module(INDICES).walk() if isinstance(op, func.ReturnOp)]
    # A loop that halves 24 gives 3 and then 1; of a number of 32 bits, which may wrap, only powers of two are known.
    assert [divisor(v) for v in end.operands] == [3, 8, 8, 24, 24, 8, 1, 8]


def test_nothing_is_too_deep() -> None:
    """A chain of sums longer than Python's stack is deep."""
    steps = "\n".join(f"  %v{i + 1} = arith.addi %v{i}, %c8 : index" for i in range(3000))
    text = f"""func.func @k(%c : i1) -> index {{
  %v0 = arith.constant 16 : index
{steps}
  func.return %v3000 : index }}"""
    (end,) = [op for op in module(text).walk() if isinstance(op, func.ReturnOp)]
    assert divisor(end.operands[0]) == 8 and bounds(end.operands[0]) == (24016, 24016)
