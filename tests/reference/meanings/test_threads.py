"""Threads of a machine: what is exchanged through memory is right behind a barrier, and a race without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.arrays import poison
from tests.reference.threads import kinds, run_threads
from tilewright.diagnostics import CheckError, UnsupportedError

NEIGHBOUR = """
  %x = mach.ptr_add %in, %t4 : !llvm.ptr<1>
  %v = mach.load %x : !llvm.ptr<1> -> f32
  mach.store %v, %mine : f32, !llvm.ptr<3>
  BARRIER
  %one = arith.xori %t, %c1 : index
  %n4 = arith.muli %one, %c4 : index
  %p = mach.ptr_add %s, %n4 : !llvm.ptr<3>
  %w = mach.load %p : !llvm.ptr<3> -> f32
  %y = mach.ptr_add %out, %t4 : !llvm.ptr<1>
  mach.store %w, %y : f32, !llvm.ptr<1>
"""
POINTERS = "%in: !llvm.ptr<1>, %out: !llvm.ptr<1>"
COUNTED = """
  %i64 = arith.constant 64 : i32
  mach.instr "nvptx.bar.sync"(%i1, %i64) : (i32, i32) -> ()
"""


@pytest.mark.parametrize(
    "barrier", ["gpu.barrier", 'mach.instr "nvptx.warp.sync"() : () -> ()', COUNTED]
)
@pytest.mark.parametrize("schedule", ["late", "random"])
def test_what_a_neighbour_wrote_is_there_behind_a_barrier(
    barrier: str, schedule: Any, rng: np.random.Generator
) -> None:
    x, y = rng.random((3, 64), np.float32), poison(3, 64)
    text = NEIGHBOUR.replace("BARRIER", barrier)
    for a, b in zip(x, y, strict=True):
        report = run_threads(POINTERS, text, [a, b], check=True, schedule=schedule, seed=3)
        assert report.ok, str(report)
    np.testing.assert_array_equal(y, x.reshape(3, 32, 2)[:, :, ::-1].reshape(3, 64))


def test_without_it_there_is_a_race(rng: np.random.Generator) -> None:
    x, y = rng.random(64, np.float32), poison(64)
    report = run_threads(POINTERS, NEIGHBOUR.replace("BARRIER", ""), [x, y], check=True)
    assert kinds(report) == ["race"]
    assert "workgroup (0, 0, 0) thread 0 reads element 1 of shared memory" in str(report)
    assert "thread 1 wrote (mach.store" in str(report)


def test_threads_may_store_copies_of_one_value_and_not_different_ones() -> None:
    body = "mach.store VALUE, %out : index, !llvm.ptr<1>"
    y = poison(1, dtype=np.int64)
    for value, found in (("%c4", []), ("%t", ["race"])):
        report = run_threads(POINTERS, body.replace("VALUE", value), [y, y], check=True)
        assert kinds(report) == found
    assert run_threads(POINTERS, body.replace("VALUE", "%c4"), [y, y]).ok and y[0] == 4


def test_a_barrier_that_not_all_reach_is_a_deadlock_with_its_state() -> None:
    body = "scf.if %first { BARRIER }"
    with pytest.raises(CheckError, match=r"gpu\.barrier reached by 1 of 64 threads"):
        run_threads("", body.replace("BARRIER", "gpu.barrier"), [])
    report = run_threads("", body.replace("BARRIER", COUNTED), [], check=True)
    assert kinds(report) == ["deadlock"]
    assert "named barrier 1, generation 0: arrived 0 of 2" in str(report)


def test_uninitialised_misaligned_and_wild_accesses() -> None:
    load = "%v = mach.load %mine : !llvm.ptr<3> -> f32"
    assert kinds(run_threads("", load, [], check=True)) == ["uninitialised"]
    store = "mach.store %i0, %mine {alignment = 16 : i64} : i32, !llvm.ptr<3>"
    assert kinds(run_threads("", store, [], check=True)) == ["misaligned"]
    beyond = "mach.store %i0, %mine : i32, !llvm.ptr<3>"
    assert kinds(run_threads("", beyond, [], shared=128, check=True)) == ["wild access"]


def test_atomics_add_up_and_exchange(rng: np.random.Generator) -> None:
    body = """
      %v = mach.load %mine_in : !llvm.ptr<1> -> f32
      %old = mach.atomic_rmw "addf" %v, %out {ordering = "monotonic"} : f32, !llvm.ptr<1>
      %q = mach.ptr_add %out, %c4 : !llvm.ptr<1>
      %was, %won = mach.cmpxchg %q, %i0, %i1 {ordering = "acq_rel"} : !llvm.ptr<1>, i32
      scf.if %won {
        %p = mach.ptr_add %q, %c4 : !llvm.ptr<1>
        %again = mach.atomic_rmw "addi" %i1, %p {ordering = "monotonic"} : i32, !llvm.ptr<1>
      }
    """
    start = "%mine_in = mach.ptr_add %in, %t4 : !llvm.ptr<1>"
    x, y = rng.random(64, np.float32), np.zeros(3, np.float32)
    assert run_threads(POINTERS, start + body, [x, y], check=True).ok
    assert abs(y[0] - x.sum(dtype=np.float64)) < 1e-4
    assert y[1:].view(np.int32).tolist() == [1, 1]


def test_packed_additions_and_instructions_of_one_thread(rng: np.random.Generator) -> None:
    body = """
      %x = mach.ptr_add %in, %t4 : !llvm.ptr<1>
      %v = mach.load %x : !llvm.ptr<1> -> f32
      %w = mach.instr "nvptx.cvt.rn.f16x2.f32"(%v, %v) : (f32, f32) -> i32
      mach.instr "nvptx.red.add.f16x2"(%out, %w) : (!llvm.ptr<1>, i32) -> ()
    """
    x, y = rng.integers(0, 9, 64).astype(np.float32), np.zeros(2, np.float16)
    assert run_threads(POINTERS, body, [x, y], check=True).ok
    assert y.tolist() == [x.sum()] * 2


def test_a_warp_does_its_instructions_together(rng: np.random.Generator) -> None:
    body = """
      %i = arith.index_cast %t : index to i32
      %sum = mach.instr "nvptx.redux.add"(%i) : (i32) -> i32
      %y = mach.ptr_add %out, %t4 : !llvm.ptr<1>
      mach.store %sum, %y : i32, !llvm.ptr<1>
    """
    y = poison(64, dtype=np.int32)
    run_threads(POINTERS, body, [y, y])
    assert y.tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32
    with pytest.raises(CheckError, match="done by all 32 lanes"):
        run_threads(POINTERS, f"scf.if %first {{ {body} }}", [y, y])


def test_an_instruction_without_a_meaning_is_refused_by_name() -> None:
    body = 'mach.instr "nvptx.mbarrier.inval"(%s) : (!llvm.ptr<3>) -> ()'
    with pytest.raises(
        UnsupportedError, match=r"does not know the instruction nvptx.mbarrier.inval"
    ):
        run_threads("", body, [])
    with pytest.raises(UnsupportedError, match=r"no instruction 'nvptx\.nothing'"):
        run_threads("", 'mach.instr "nvptx.nothing"() : () -> ()', [])
