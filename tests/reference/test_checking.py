"""Checking mode finds what is undefined, at the op, and stays silent where nothing is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation

from tests.reference.kernels import run
from tilewright.diagnostics import CheckError
from tilewright.reference.machine import Group

SLM = "memref<8x8xf32, 3>"
SLM_TILE = "!xetile.tile<8x8xf32, #xetile.tile_attr<memory_space = 3 : i64>>"


def kinds(report: object) -> list[str]:
    return [finding.kind for finding in report.findings]  # type: ignore[attr-defined]


def store_at(row: str) -> str:
    return f"""
  %i = gpu.block_id x
  %own = arith.muli %i, %c8 : index
  %v = arith.constant dense<1.0> : vector<8x8xf32>
  %t = xetile.init_tile %o[{row}, %c0] : memref<32x8xf32> -> !xetile.tile<8x8xf32>
  xetile.store_tile %v, %t : vector<8x8xf32>, !xetile.tile<8x8xf32>
"""


def test_workgroups_that_write_the_same_element_race():
    out = np.zeros((32, 8), np.float32)
    assert run("%o: memref<32x8xf32>", store_at("%own"), [out], (4,), check=True).ok
    report = run("%o: memref<32x8xf32>", store_at("%c8"), [out], (4,), check=True)
    assert kinds(report) == ["race"]
    (finding,) = report.errors
    assert finding.location is not None and finding.location.file == "kernel.mlir"
    assert "xetile.store_tile" in finding.op
    assert "workgroup (1, 0, 0) writes element 64" in finding.message
    assert "workgroup (0, 0, 0) wrote" in finding.message
    with pytest.raises(CheckError, match="race"):
        report.raise_on_error()


def test_a_read_races_with_a_write_of_another_workgroup():
    read = """
  %all = xetile.init_tile %o[%c0, %c0] : memref<32x8xf32> -> !xetile.tile<8x8xf32>
  %w = xetile.load_tile %all : !xetile.tile<8x8xf32> -> vector<8x8xf32>
"""
    out = np.zeros((32, 8), np.float32)
    report = run("%o: memref<32x8xf32>", store_at("%own") + read, [out], (4,), check=True)
    assert kinds(report) == ["race"]
    assert "reads" in report.errors[0].message


def test_arguments_that_overlap_race():
    memory = np.zeros((40, 8), np.float32)
    body = (
        store_at("%own")
        + """
  %s = xetile.init_tile %p[%own, %c0] : memref<32x8xf32> -> !xetile.tile<8x8xf32>
  %w = xetile.load_tile %s : !xetile.tile<8x8xf32> -> vector<8x8xf32>
"""
    )
    arguments = "%o: memref<32x8xf32>, %p: memref<32x8xf32>"
    apart = [memory[:32], np.zeros((32, 8), np.float32)]
    assert run(arguments, body, apart, (4,), check=True).ok
    assert kinds(run(arguments, body, [memory[:32], memory[8:]], (4,), check=True)) == ["race"]


@pytest.mark.parametrize("mixed", [False, True])
def test_atomics_do_not_race_with_each_other(mixed: bool):
    out = np.zeros((32, 8), np.float32)
    body = store_at("%own").replace(
        "xetile.store_tile %v, %t : vector<8x8xf32>, !xetile.tile<8x8xf32>",
        """%same = xetile.init_tile %o[%c0, %c0] : memref<32x8xf32> -> !xetile.tile<8x8xf32>
        %old = xetile.atomic_rmw addf %v, %same
          : vector<8x8xf32>, !xetile.tile<8x8xf32> -> vector<8x8xf32>""",
    )
    if mixed:
        body += "%w = xetile.load_tile %same : !xetile.tile<8x8xf32> -> vector<8x8xf32>"
    report = run("%o: memref<32x8xf32>", body, [out], (4,), check=True)
    assert kinds(report) == (["race"] if mixed else [])
    assert (out[:8] == 4).all() and (out[8:] == 0).all()


def test_atomics_order_what_stands_before_them():
    """The first workgroup publishes data with a flag; the other waits for the flag, then reads."""
    body = """
  %i = gpu.block_id x
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %first = arith.cmpi eq, %i, %c0 : index
  scf.if %first {
    %v = arith.constant 42 : i32
    memref.store %v, %data[%c0] : memref<1xi32>
    %old = memref.atomic_rmw addi %one, %flag[%c0] : (i32, memref<1xi32>) -> i32
  } else {
    %seen = scf.while (%z = %zero) : (i32) -> (i32) {
      %f = memref.atomic_rmw addi %zero, %flag[%c0] : (i32, memref<1xi32>) -> i32
      %again = arith.cmpi eq, %f, %zero : i32
      scf.condition(%again) %f : i32
    } do {
    ^bb0(%z: i32):
      scf.yield %z : i32
    }
    %d = memref.load %data[%c0] : memref<1xi32>
    memref.store %d, %result[%c0] : memref<1xi32>
  }
"""
    arguments = "%data: memref<1xi32>, %flag: memref<1xi32>, %result: memref<1xi32>"
    data, flag, result = (np.zeros(1, np.int32) for _ in range(3))
    report = run(arguments, body, [data, flag, result], (2,), check=True)
    assert report.ok, report
    assert result[0] == 42
    start, end = body.index("    %seen ="), body.index("    %d =")
    report = run(arguments, body[:start] + body[end:], [data, flag, result], (2,), check=True)
    assert kinds(report) == ["race"]


SHARED = f"""
  %s = gpu.subgroup_id
  %slm = memref.alloc() : {SLM}
  %n = gpu.num_subgroups
  %sum = arith.addi %s, %c1 : index
  %other = arith.remui %sum, %n : index
  %si = arith.index_cast %s : index to i64
  %sf = arith.sitofp %si : i64 to f32
  memref.store %sf, %slm[%s, %c0] : {SLM}
  BARRIER
  %v = memref.load %slm[%other, %c0] : {SLM}
  %b = gpu.block_id x
  memref.store %v, %o[%b, %s] : memref<2x4xf32>
"""


def test_subgroups_exchange_through_slm_with_a_barrier():
    out = np.full((2, 4), np.nan, np.float32)
    body = SHARED.replace("BARRIER", "gpu.barrier")
    report = run("%o: memref<2x4xf32>", body, [out], (2,), subgroups=4, check=True)
    assert report.ok, report
    assert out.tolist() == [[1, 2, 3, 0]] * 2


def test_subgroups_race_without_a_barrier():
    out = np.full((2, 4), np.nan, np.float32)
    report = run(
        "%o: memref<2x4xf32>", SHARED.replace("BARRIER", ""), [out], (2,), subgroups=4, check=True
    )
    assert kinds(report) == ["race"]
    assert "workgroup (0, 0, 0) subgroup" in report.errors[0].message


def test_uninitialised_slm_is_found_and_poisoned():
    body = f"""
  %slm = memref.alloc() : {SLM}
  %one = arith.constant 1.0 : f32
  memref.store %one, %slm[%c0, %c0] : {SLM}
  %v = memref.load %slm[%c0, PLACE] : {SLM}
  memref.store %v, %o[%c0] : memref<1xf32>
"""
    out = np.zeros(1, np.float32)
    assert run("%o: memref<1xf32>", body.replace("PLACE", "%c0"), [out], check=True).ok
    assert out[0] == 1
    report = run("%o: memref<1xf32>", body.replace("PLACE", "%c1"), [out], check=True)
    assert kinds(report) == ["uninitialised"] and "SLM" in report.errors[0].message
    assert np.isnan(out[0])


@pytest.mark.parametrize("programs", [3, 8])
def test_one_condition_takes_or_leaves_a_whole_tile(programs: int):
    array = f"memref<{8 * programs}x8xf32>"
    body = f"""
  %slm = memref.alloc() : {SLM}
  %t = xetile.init_tile %slm[%c0, %c0] : {SLM} -> {SLM_TILE}
  %i = gpu.block_id x
  %own = arith.muli %i, %c8 : index
  %u = xetile.init_tile %o[%own, %c0] : {array} -> !xetile.tile<8x8xf32>
  %one = arith.constant dense<1.0> : vector<8x8xf32>
  %some = arith.cmpi sge, %i, FIRST : index
  scf.if %some {{
    xetile.store_tile %one, %t : vector<8x8xf32>, {SLM_TILE}
  }}
  %v = xetile.load_tile %t : {SLM_TILE} -> vector<8x8xf32>
  %c = arith.cmpi sge, %i, %c1 : index
  %w = arith.select %c, %v, %one : vector<8x8xf32>
  xetile.store_tile %w, %u : vector<8x8xf32>, !xetile.tile<8x8xf32>
"""
    out = np.zeros((8 * programs, 8), np.float32)

    def found(first: str) -> list[str]:
        text = body.replace("FIRST", first)
        return kinds(run(f"%o: {array}", text, [out], (programs,), check=True))

    assert found("%c1") == [] and (out == 1).all()
    assert found("%c2") == ["uninitialised"]


def test_conditions_behind_a_load_are_computed_ahead_once(monkeypatch: pytest.MonkeyPatch):
    """However many ways lead from the condition back to a value."""
    squares = "\n".join(f"%n{i + 1} = arith.muli %n{i}, %n{i} : index" for i in range(12))
    body = f"""
  %t = xetile.init_tile %o[%c0, %c0] : memref<8x8xf32> -> !xetile.tile<8x8xf32>
  %v = xetile.load_tile %t : !xetile.tile<8x8xf32> -> vector<8x8xf32>
  %n0 = gpu.block_id x
  {squares}
  %c = arith.cmpi eq, %n12, %c0 : index
  %w = arith.select %c, %v, %v0 : vector<8x8xf32>
  xetile.store_tile %w, %t : vector<8x8xf32>, !xetile.tile<8x8xf32>
"""
    runs: list[str] = []
    execute = Group.execute

    def counted(self: Group, op: Operation, meaning: Any) -> None:
        runs.append(op.name)
        execute(self, op, meaning)

    monkeypatch.setattr(Group, "execute", counted)
    zero = "%v0 = arith.constant dense<0.0> : vector<8x8xf32>\n"
    out = np.ones((8, 8), np.float32)
    assert run("%o: memref<8x8xf32>", zero + body, [out], check=True).ok and (out == 1).all()
    assert runs.count("arith.muli") <= 2 * 12


def test_what_a_condition_takes_out_is_read_from_memory_all_the_same():
    body = """
  %t = xetile.init_tile %p[0, 0], [%c4, %c8], [%c8, %c1] : i64 -> !xetile.tile<4x8xf32>
  %none = arith.constant dense<false> : vector<4x8xi1>
  %zero = arith.constant dense<0.0> : vector<4x8xf32>
  %v = xetile.load_tile %t : !xetile.tile<4x8xf32> -> vector<4x8xf32>
  %w = arith.select %none, %v, %zero : vector<4x8xi1>, vector<4x8xf32>
  %u = xetile.init_tile %o[0, 0] : memref<4x8xf32> -> !xetile.tile<4x8xf32>
  xetile.store_tile %w, %u : vector<4x8xf32>, !xetile.tile<4x8xf32>
"""
    out = np.zeros((4, 8), np.float32)
    report = run("%p: i64, %o: memref<4x8xf32>", body, [64, out], check=True)
    assert kinds(report) == ["wild access"]


def test_out_of_bounds_tiles_warn_and_memref_accesses_are_errors():
    a, out = np.ones((5, 8), np.float32), np.zeros((5, 8), np.float32)
    body = """
  %t = xetile.init_tile %a[2, 0] : memref<5x8xf32> -> !xetile.tile<4x8xf32>
  %v = xetile.load_tile %t {padding = 7.0 : f32} : !xetile.tile<4x8xf32> -> vector<4x8xf32>
  %u = xetile.init_tile %o[0, 0] : memref<5x8xf32> -> !xetile.tile<4x8xf32>
  xetile.store_tile %v, %u : vector<4x8xf32>, !xetile.tile<4x8xf32>
"""
    report = run("%a: memref<5x8xf32>, %o: memref<5x8xf32>", body, [a, out], check=True)
    assert [(f.severity, f.kind) for f in report.findings] == [("warning", "out of bounds")]
    assert (out[:3] == 1).all() and (out[3] == 7).all()
    wild = """
  %v = memref.load %a[%c9, %c9] : memref<5x8xf32>
"""
    assert kinds(run("%a: memref<5x8xf32>", wild, [a], check=True)) == ["out of bounds"]
    with pytest.raises(CheckError, match="outside its memref"):
        run("%a: memref<5x8xf32>", wild, [a])


def test_wild_addresses_and_read_only_arrays_are_refused():
    a = np.zeros((4, 8), np.float32)
    address = """
  %t = xetile.init_tile %p[0, 0], [%c4, %c8], [%c8, %c1] : i64 -> !xetile.tile<4x8xf32>
  %v = arith.constant dense<1.0> : vector<4x8xf32>
  xetile.store_tile %v, %t : vector<4x8xf32>, !xetile.tile<4x8xf32>
"""
    with pytest.raises(CheckError, match="belongs to no array"):
        run("%p: i64", address, [64])
    a.flags.writeable = False
    body = """
  %t = xetile.init_tile %a[0, 0] : memref<4x8xf32> -> !xetile.tile<4x8xf32>
  %v = arith.constant dense<1.0> : vector<4x8xf32>
  xetile.store_tile %v, %t : vector<4x8xf32>, !xetile.tile<4x8xf32>
"""
    with pytest.raises(CheckError, match="read-only argument 0"):
        run("%a: memref<4x8xf32>", body, [a])
    assert (a == 0).all()


def test_divergent_barriers_and_deadlocks():
    branches = """
  %s = gpu.subgroup_id
  %first = arith.cmpi eq, %s, %c0 : index
  scf.if %first {
    gpu.barrier
  } else {
    OTHER
  }
"""
    report = run("", branches.replace("OTHER", "gpu.barrier"), [], subgroups=2, check=True)
    assert kinds(report) == ["divergent barrier"]
    report = run("", branches.replace("OTHER", ""), [], subgroups=3, check=True)
    assert kinds(report) == ["deadlock"]
    assert "gpu.barrier reached by 1 of 3 subgroups (0)" in report.errors[0].message
    with pytest.raises(CheckError, match="deadlock"):
        run("", branches.replace("OTHER", ""), [], subgroups=3)


def test_integer_division_by_zero():
    body = """
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %q = arith.divsi %one, %zero : i32
"""
    assert kinds(run("", body, [], check=True)) == ["division"]


def test_assertions():
    body = """
  %i = gpu.block_id x
  %ok = arith.cmpi ne, %i, %c1 : index
  cf.assert %ok, "not the second"
"""
    with pytest.raises(CheckError, match=r"workgroup \(1, 0, 0\): not the second"):
        run("", body, [], (3,))
    assert run("", body, [], (1,)).ok


def test_bytes_are_counted():
    """Every access of memory that all workgroups see, clipped to it; and every element once for either way."""
    body = """
  %a = xetile.init_tile %x[%c4, %c0] : memref<8x8xf32> -> !xetile.tile<8x8xf32>
  %v = xetile.load_tile %a : !xetile.tile<8x8xf32> -> vector<8x8xf32>
  %w = xetile.load_tile %a : !xetile.tile<8x8xf32> -> vector<8x8xf32>
  %s = arith.addf %v, %w : vector<8x8xf32>
  %i = gpu.block_id x
  %own = arith.muli %i, %c8 : index
  %b = xetile.init_tile %o[%own, %c0] : memref<16x8xf32> -> !xetile.tile<8x8xf32>
  xetile.store_tile %s, %b : vector<8x8xf32>, !xetile.tile<8x8xf32>
"""
    x, out = np.ones((8, 8), np.float32), np.zeros((16, 8), np.float32)
    report = run("%x: memref<8x8xf32>, %o: memref<16x8xf32>", body, [x, out], (2,), check=True)
    half = x.nbytes // 2
    assert (report.moved_bytes, report.touched_bytes) == (
        2 * 2 * half + out.nbytes,
        half + out.nbytes,
    )
    assert run("%x: memref<8x8xf32>, %o: memref<16x8xf32>", body, [x, out], (2,)).moved_bytes == 0
