"""Copies beside threads: where they land, when, and that whoever does not wait for them races with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.arrays import poison
from tests.reference.threads import kinds, run_threads, tensor_map
from tilewright import reference
from tilewright.diagnostics import CheckError
from tilewright.dialects.text import parse_module

SCHEDULES = ("late", "early", "random")
OWN = """
  %t16 = arith.muli %t, %c16 : index
  %x = mach.ptr_add %in, %t16 : !llvm.ptr<1>
  %to = mach.ptr_add %s, %t16 : !llvm.ptr<3>
  %bytes = arith.constant 12 : i32
  mach.instr "nvptx.cp.async.16"(%to, %x, %bytes) : (!llvm.ptr<3>, !llvm.ptr<1>, i32) -> ()
  mach.instr "nvptx.cp.async.commit_group"() : () -> ()
  WAIT
  %v = mach.load %to {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
  %y = mach.ptr_add %out, %t16 : !llvm.ptr<1>
  mach.store %v, %y {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
"""
WAIT = 'mach.instr "nvptx.cp.async.wait_group"() {params = {n = N : i64}} : () -> ()'
POINTERS = "%in: !llvm.ptr<1>, %out: !llvm.ptr<1>"


def aligned(*shape: int) -> Any:
    """An array of f32 at a multiple of 16 bytes."""
    raw = np.zeros(4 * int(np.prod(shape)) + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_threads_own_copies(schedule: Any, rng: np.random.Generator) -> None:
    x, y = aligned(64, 4), aligned(64, 4)
    x[...] = rng.random(x.shape)
    text = OWN.replace("WAIT", WAIT.replace("N", "0"))
    report = run_threads(POINTERS, text, [x, y], check=True, schedule=schedule)
    assert report.ok, str(report)
    np.testing.assert_array_equal(y, x * [1, 1, 1, 0])


@pytest.mark.parametrize("wait", ["", WAIT.replace("N", "1")])
def test_own_copies_that_were_not_waited_for(wait: str) -> None:
    """They race whenever they land; done late, they are not there."""
    for schedule in SCHEDULES:
        y = aligned(64, 4)
        text, args = OWN.replace("WAIT", wait), [aligned(64, 4), y]
        report = run_threads(POINTERS, text, args, check=True, schedule=schedule)
        assert set(kinds(report)) == {"race"} and "a copy of workgroup" in str(report)
        if schedule != "random":
            assert np.isnan(y).all() == (schedule == "late")


BARRIER = """
  scf.if %first {
    mach.instr "nvptx.mbarrier.init"(%bar, %i1) : (!llvm.ptr<3>, i32) -> ()
    VISIBLE
  }
  MET
  scf.if %first {
    mach.instr "nvptx.mbarrier.arrive.expect_tx"(%bar, %size) : (!llvm.ptr<3>, i32) -> ()
    LOAD
  }
  WAIT
"""
BOX = """
  %bar = mach.ptr_add %s, %c0 : !llvm.ptr<3>
  %slot = mach.ptr_add %s, %c1024 : !llvm.ptr<3>
  %row = arith.constant ROW : i32
  %column = arith.constant COLUMN : i32
  %size = arith.constant 1024 : i32
"""
LOAD = """
    mach.instr "nvptx.tma.load.2d"(%slot, %bar, %map, %column, %row)
      : (!llvm.ptr<3>, !llvm.ptr<3>, !llvm.ptr, i32, i32) -> ()
"""
WAITED = 'mach.instr "nvptx.mbarrier.wait.parity"(%bar, %i0) : (!llvm.ptr<3>, i32) -> ()'
STORE = """
  scf.for %n = %t to %c256 step %c64 {
    %n4 = arith.muli %n, %c4 : index
    %p = mach.ptr_add %slot, %n4 : !llvm.ptr<3>
    %v = mach.load %p : !llvm.ptr<3> -> f32
    %y = mach.ptr_add %out, %n4 : !llvm.ptr<1>
    mach.store %v, %y : f32, !llvm.ptr<1>
  }
"""
SIZES = """
"""
MAP = "%map: !llvm.ptr {mach.tensor_map}, %out: !llvm.ptr<1>"


VISIBLE = 'mach.instr "nvptx.fence.mbarrier_init"() : () -> ()'


def box_program(
    row: int, column: int, wait: str = WAITED, met: str = "gpu.barrier", visible: str = VISIBLE
) -> str:
    start = BOX.replace("ROW", str(row)).replace("COLUMN", str(column)) + SIZES
    return (
        start
        + BARRIER.replace("LOAD", LOAD)
        .replace("WAIT", wait)
        .replace("MET", met)
        .replace("VISIBLE", visible)
        + STORE
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("row, column", [(0, 0), (4, 8), (-3, -5), (30, 3)])
@pytest.mark.parametrize("swizzle", [0, 64, 128])
def test_boxes(
    row: int, column: int, swizzle: int, schedule: Any, rng: np.random.Generator
) -> None:
    """Eight rows of 32: outside is zero; chunks of 16 bytes change places by their row's number."""
    x, out = rng.random((16, 40), np.float32), poison(8, 32)
    args = [tensor_map(x, (8, 32), swizzle), out]
    report = run_threads(MAP, box_program(row, column), args, check=True, schedule=schedule)
    assert report.ok, str(report)
    around = np.zeros((64, 96), np.float32)
    around[16:32, 16:56] = x
    wanted = around[16 + row : 24 + row, 16 + column : 48 + column]
    chunks = wanted.reshape(8, 8, 4)
    spread = (np.arange(8)[:, None] & (max(16, swizzle) // 16 - 1)) ^ np.arange(8)
    np.testing.assert_array_equal(
        out, np.take_along_axis(chunks, spread[..., None], 1).reshape(8, 32)
    )


def test_a_box_that_was_not_waited_for(rng: np.random.Generator) -> None:
    x, out = rng.random((16, 40), np.float32), poison(8, 32)
    report = run_threads(MAP, box_program(0, 0, wait=""), [tensor_map(x, (8, 32)), out], check=True)
    assert set(kinds(report)) == {"race"}
    assert "which a copy of workgroup (0, 0, 0) wrote" in str(report)
    assert "whose workgroup may have ended" in str(report)
    assert np.isnan(out).all()


def test_a_barrier_that_nobody_knows_to_be_initialised(rng: np.random.Generator) -> None:
    args = [tensor_map(rng.random((16, 40), np.float32), (8, 32)), poison(8, 32)]
    report = run_threads(MAP, box_program(0, 0, met=""), args, check=True)
    assert "race" in kinds(report) and "mbarrier.wait" in str(report)


def test_a_barrier_that_the_copy_engine_does_not_see(rng: np.random.Generator) -> None:
    args = [tensor_map(rng.random((16, 40), np.float32), (8, 32)), poison(8, 32)]
    report = run_threads(MAP, box_program(0, 0, visible=""), args, check=True)
    assert kinds(report) == ["barrier misuse"] and "no fence" in str(report)


def test_a_phase_that_never_ends_is_a_deadlock_with_its_state(rng: np.random.Generator) -> None:
    args = [tensor_map(rng.random((16, 40), np.float32), (8, 32)), poison(8, 32)]
    text = box_program(0, 0).replace("arith.constant 1024 : i32", "arith.constant 1040 : i32")
    with pytest.raises(CheckError, match="0 of 1 arrivals and 16 bytes missing") as caught:
        run_threads(MAP, text, args)
    assert "workgroup (0, 0, 0) thread 0 to 63: mach.instr waits for the end" in str(caught.value)


def test_one_thread_asks_for_a_box(rng: np.random.Generator) -> None:
    args = [tensor_map(rng.random((16, 40), np.float32), (8, 32)), poison(8, 32)]
    start, asks = box_program(0, 0).split("gpu.barrier", 1)
    text = f"{start} gpu.barrier\n %all = arith.constant true {asks.replace('%first', '%all', 1)}"
    found = kinds(run_threads(MAP, text, args, check=True))
    assert "not one thread" in found and "barrier misuse" in found


OUT = """
  %v = arith.index_cast %t : index to i32
  %f = arith.sitofp %v : i32 to f32
  mach.store %f, %mine : f32, !llvm.ptr<3>
  FENCE
  gpu.barrier
  scf.if %first {
    mach.instr "nvptx.tma.KIND.2d"(%s, %map, %i1, %i1) : (!llvm.ptr<3>, !llvm.ptr, i32, i32) -> ()
    mach.instr "nvptx.bulk.commit_group"() : () -> ()
    WAIT
  }
  gpu.barrier
  mach.store %i1, %mine : i32, !llvm.ptr<3>
"""
ONLY_MAP = "%map: !llvm.ptr {mach.tensor_map}"
FENCE = 'mach.instr "nvptx.fence.proxy.async"() : () -> ()'
READ = 'mach.instr "nvptx.bulk.wait_group.read"() {params = {n = 0 : i64}} : () -> ()'


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", ["store", "reduce.add"])
def test_boxes_out_of_shared_memory(kind: str, schedule: Any, rng: np.random.Generator) -> None:
    """What lies outside of the array is dropped."""
    x = rng.integers(0, 9, (8, 7)).astype(np.float32)
    wanted = x.copy()
    tile = np.arange(64, dtype=np.float32).reshape(8, 8)[:7, :6]
    wanted[1:, 1:] = tile + (x[1:, 1:] if kind == "reduce.add" else 0)
    text = OUT.replace("FENCE", FENCE).replace("WAIT", READ).replace("KIND", kind)
    args = [tensor_map(x, (8, 8))]
    report = run_threads(ONLY_MAP, text, args, check=True, schedule=schedule)
    assert report.ok, str(report)
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("missing", ["FENCE", "WAIT"])
def test_what_orders_a_box_out_of_shared_memory(missing: str) -> None:
    text = OUT.replace(missing, "").replace("FENCE", FENCE).replace("WAIT", READ)
    x = np.zeros((8, 8), np.float32)
    args = [tensor_map(x, (8, 8))]
    report = run_threads(ONLY_MAP, text.replace("KIND", "store"), args, check=True)
    assert set(kinds(report)) == {"race"}
    assert ("no fence made it visible" in str(report)) == (missing == "FENCE")
    assert ("whose workgroup may have ended" in str(report)) == (missing == "WAIT")


MULTICAST = """
  %i = gpu.block_id x
  %leads = arith.cmpi eq, %i, %c0 : index
  %both = arith.constant 3 : i16
  scf.if %first {
    mach.instr "nvptx.mbarrier.init"(%bar, %i1) : (!llvm.ptr<3>, i32) -> ()
    mach.instr "nvptx.fence.mbarrier_init"() : () -> ()
    mach.instr "nvptx.mbarrier.arrive.expect_tx"(%bar, %size) : (!llvm.ptr<3>, i32) -> ()
  }
  mach.instr "nvptx.cluster.arrive"() : () -> ()
  mach.instr "nvptx.cluster.wait"() : () -> ()
  %asks = arith.andi %first, %leads : i1
  scf.if %asks {
    mach.instr "nvptx.tma.load.2d.multicast"(%slot, %bar, %map, %column, %row, %both)
      : (!llvm.ptr<3>, !llvm.ptr<3>, !llvm.ptr, i32, i32, i16) -> ()
  }
  mach.instr "nvptx.mbarrier.wait.parity"(%bar, %i0) : (!llvm.ptr<3>, i32) -> ()
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_box_for_all_workgroups_of_a_cluster(schedule: Any, rng: np.random.Generator) -> None:
    """Each waits at its own mbarrier, and adds what it got."""
    x, out = rng.random((8, 32), np.float32), np.zeros((8, 32), np.float32)
    text = BOX.replace("ROW", "0").replace("COLUMN", "0") + SIZES + MULTICAST + STORE
    add = '%old = mach.atomic_rmw "addf" %v, %y {ordering = "monotonic"} : f32, !llvm.ptr<1>'
    text = text.replace("mach.store %v, %y : f32, !llvm.ptr<1>", add)
    args = [tensor_map(x, (8, 32)), out]
    report = run_threads(MAP, text, args, cluster=2, grid=2, check=True, schedule=schedule)
    assert report.ok, str(report)
    np.testing.assert_array_equal(out, 2 * x)


PARTS = """
gpu.module @m {
  gpu.func @parts(%x: memref<10xf32>, %y: memref<10xf32>) kernel {
    %b = gpu.block_id x
    %c4 = arith.constant 4 : index
    %c10 = arith.constant 10 : index
    %at = arith.muli %b, %c4 : index
    %left = arith.subi %c10, %at : index
    %n = arith.minsi %left, %c4 : index
    %from = memref.subview %x[%at] [%n] [1] : memref<10xf32> to memref<?xf32, strided<[1], offset: ?>>
    %to = memref.subview %y[%at] [%n] [1] : memref<10xf32> to memref<?xf32, strided<[1], offset: ?>>
    memref.copy %from, %to : memref<?xf32, strided<[1], offset: ?>> to memref<?xf32, strided<[1], offset: ?>>
    gpu.return
  }
}
"""


def test_each_workgroup_copies_as_much_as_is_left() -> None:
    x, y = np.arange(10, dtype=np.float32), np.full(10, np.nan, np.float32)
    assert reference.run(parse_module(PARTS), (3, 1, 1), [x, y], check=True).errors == []
    np.testing.assert_array_equal(y, x)
