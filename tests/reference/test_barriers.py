"""Named barriers: producers and consumers that meet in part, and what a deadlock says."""

from __future__ import annotations

import re
from itertools import count

import numpy as np
import pytest

from tests.reference.kernels import run
from tilewright.diagnostics import CheckError


def named(text: str) -> str:
    """`arrive(%id, %count)` and `wait(..)`, at a named barrier, as ops."""
    numbers = count()

    def ops(found: re.Match[str]) -> str:
        n, (what, *operands) = next(numbers), found.groups()
        lines = [f"%nb{n}_{i} = arith.index_cast {x} : index to i8" for i, x in enumerate(operands)]
        lines.append(f"%nb{n} = xegpu.init_nbarrier %nb{n}_0, %nb{n}_1 : i8, i8 -> !xegpu.nbarrier")
        return "\n".join([*lines, f"xegpu.nbarrier_{what} %nb{n} : !xegpu.nbarrier"])

    return re.sub(r"(arrive|wait)\((%\w+), (%\w+)\)", ops, text)


# A ring of two slots: subgroup 0 fills slot k % 2 and signals full; subgroup 1 drains and signals
# empty. Barriers 0 and 1 are "full" of each slot, 2 and 3 are "empty".
RING = """
  %slm = memref.alloc() : memref<2xf32, 3>
  %s = gpu.subgroup_id
  %producer = arith.cmpi eq, %s, %c0 : index
  scf.if %producer {
    scf.for %k = %c0 to %c6 step %c1 {
      %slot = arith.remui %k, %c2 : index
      %empty = arith.addi %slot, %c2 : index
      %late = arith.cmpi uge, %k, %c2 : index
      scf.if %late {
        wait(%empty, %c1)
      }
      %v = memref.load %in[%k] : memref<6xf32>
      memref.store %v, %slm[%slot] : memref<2xf32, 3>
      arrive(%slot, %c1)
    }
  } else {
    scf.for %k = %c0 to %c6 step %c1 {
      %slot = arith.remui %k, %c2 : index
      %empty = arith.addi %slot, %c2 : index
      wait(%slot, %c1)
      %v = memref.load %slm[%slot] : memref<2xf32, 3>
      memref.store %v, %out[%k] : memref<6xf32>
      RELEASE
    }
  }
"""
ARGUMENTS = "%in: memref<6xf32>, %out: memref<6xf32>"


def test_a_ring_between_two_subgroups_is_right_and_free_of_races():
    source = np.random.default_rng(1).random(6, np.float32)
    out = np.full(6, np.nan, np.float32)
    body = RING.replace("RELEASE", "arrive(%empty, %c1)")
    report = run(ARGUMENTS, named(body), [source, out], subgroups=2, check=True)
    assert report.ok, report
    assert (out == source).all()


def test_a_ring_that_is_never_released_deadlocks_with_the_state_of_every_barrier():
    source, out = np.zeros(6, np.float32), np.zeros(6, np.float32)
    with pytest.raises(CheckError) as caught:
        run(ARGUMENTS, named(RING.replace("RELEASE", "")), [source, out], subgroups=2)
    text = str(caught.value)
    assert "deadlock" in text
    assert "named barrier 2" in text and "waiting: 0" in text and "waiting: 1" in text


def test_participants_must_agree():
    body = """
  %s = gpu.subgroup_id
  %n = arith.addi %s, %c1 : index
  arrive(%c0, %n)
"""
    report = run("", named(body), [], subgroups=2, check=True)
    assert [f.kind for f in report.findings] == ["barrier misuse"]


def test_all_subgroups_meet_twice_at_one_named_barrier():
    body = """
  %slm = memref.alloc() : memref<4xindex, 3>
  %s = gpu.subgroup_id
  memref.store %s, %slm[%s] : memref<4xindex, 3>
  arrive(%c0, %c4)
  wait(%c0, %c4)
  %next = arith.addi %s, %c1 : index
  %n = arith.remui %next, %c4 : index
  %v = memref.load %slm[%n] : memref<4xindex, 3>
  arrive(%c0, %c4)
  wait(%c0, %c4)
  memref.store %v, %slm[%s] : memref<4xindex, 3>
  %w = arith.index_cast %v : index to i64
  memref.store %w, %out[%s] : memref<4xi64>
"""
    out = np.zeros(4, np.int64)
    report = run("%out: memref<4xi64>", named(body), [out], subgroups=4, check=True)
    assert report.ok, report
    assert out.tolist() == [1, 2, 3, 0]
