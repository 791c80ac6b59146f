"""Bounds of indices: what arithmetic, loops and extents say, and None where nothing does."""

from __future__ import annotations

from tilewright.dialects.text import parse_module
from tilewright.passes.spans import EXTENT, span

TEXT = """
gpu.module @m { gpu.func @k(%a: memref<?x64xf32>, %n: index, %w: i32) kernel {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c32 = arith.constant 32 : index
  %rows = memref.dim %a, %c0 : memref<?x64xf32>
  %id = gpu.block_id x
  %start = arith.muli %id, %c32 : index
  %word = arith.index_cast %w : i32 to index
  %rest = arith.remui %start, %c3 : index
  %low = arith.minsi %word, %c3 : index
  %back = arith.subi %c3, %start : index
  %sum = arith.addi %n, %c3 : index
  scf.for %k = %c3 to %rows step %c32 {
    %next = arith.addi %k, %c32 : index
  }
  scf.for %j = %c0 to %n step %c32 {
    %other = arith.addi %j, %c32 : index
  }
  %at, %on = scf.for %i = %c3 to %rows step %c32 iter_args(%before = %c0, %sum_of = %c0) -> (index, index) {
    %again = arith.addi %before, %c0 : index
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
    "next": (35, EXTENT + 31),
    "other": None,
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
