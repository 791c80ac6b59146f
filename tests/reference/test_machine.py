"""Lockstep, divergence and reconvergence: what an instance computes does not depend on the others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.kernels import module_of, run
from tilewright import reference
from tilewright.diagnostics import LaunchError, UnsupportedError
from tilewright.reference import launch

STORE = """
  %i = gpu.block_id x
"""


def test_each_workgroup_has_its_own_trip_count():
    out = np.full(7, -1, np.int64)
    run(
        "%o: memref<?xi64, strided<[1]>>",
        STORE
        + """
  %zero = arith.constant 0 : i64
  %sum = scf.for %j = %c0 to %i step %c1 iter_args(%s = %zero) -> (i64) {
    %j64 = arith.index_cast %j : index to i64
    %n = arith.addi %s, %j64 : i64
    scf.yield %n : i64
  }
  memref.store %sum, %o[%i] : memref<?xi64, strided<[1]>>
""",
        [out],
        (7,),
    )
    assert out.tolist() == [sum(range(i)) for i in range(7)]


def test_values_of_diverged_branches_meet_again():
    out = np.zeros(9, np.int64)
    run(
        "%o: memref<?xi64, strided<[1]>>",
        STORE
        + """
  %rest = arith.remui %i, %c2 : index
  %even = arith.cmpi eq, %rest, %c0 : index
  %r = scf.if %even -> (index) {
    %small = arith.cmpi ult, %i, %c4 : index
    %q = scf.if %small -> (index) {
      %a = arith.muli %i, %c4 : index
      scf.yield %a : index
    } else {
      scf.yield %i : index
    }
    scf.yield %q : index
  } else {
    %b = arith.addi %i, %c4 : index
    scf.yield %b : index
  }
  %r64 = arith.index_cast %r : index to i64
  memref.store %r64, %o[%i] : memref<?xi64, strided<[1]>>
""",
        [out],
        (9,),
    )
    expected = [i + 4 if i % 2 else (4 * i if i < 4 else i) for i in range(9)]
    assert out.tolist() == expected


def test_while_counts_collatz_steps():
    out = np.zeros(20, np.int64)
    run(
        "%o: memref<?xi64, strided<[1]>>",
        STORE
        + """
  %start = arith.addi %i, %c1 : index
  %n, %steps = scf.while (%x = %start, %s = %c0) : (index, index) -> (index, index) {
    %more = arith.cmpi ne, %x, %c1 : index
    scf.condition(%more) %x, %s : index, index
  } do {
  ^bb0(%x: index, %s: index):
    %odd = arith.remui %x, %c2 : index
    %is_odd = arith.cmpi eq, %odd, %c1 : index
    %triple = arith.muli %x, %c3 : index
    %up = arith.addi %triple, %c1 : index
    %half = arith.divui %x, %c2 : index
    %next = arith.select %is_odd, %up, %half : index
    %count = arith.addi %s, %c1 : index
    scf.yield %next, %count : index, index
  }
  %r = arith.index_cast %steps : index to i64
  memref.store %r, %o[%i] : memref<?xi64, strided<[1]>>
""",
        [out],
        (20,),
    )

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)

    assert out.tolist() == [steps(i + 1) for i in range(20)]


def test_branches_between_blocks():
    """Euclid's algorithm with cf: each instance leaves the loop at its own time."""
    out = np.zeros(12, np.int64)
    run(
        "%o: memref<?xi64, strided<[1]>>",
        STORE
        + """
  cf.br ^head(%c36, %i : index, index)
^head(%a: index, %b: index):
  %done = arith.cmpi eq, %b, %c0 : index
  cf.cond_br %done, ^exit(%a : index), ^body
^body:
  %r = arith.remui %a, %b : index
  cf.br ^head(%b, %r : index, index)
^exit(%g: index):
  %g64 = arith.index_cast %g : index to i64
  memref.store %g64, %o[%i] : memref<?xi64, strided<[1]>>
""",
        [out],
        (12,),
    )
    assert out.tolist() == [int(np.gcd(36, i)) for i in range(12)]


def test_batches_agree_with_one_batch(monkeypatch: pytest.MonkeyPatch):
    body = (
        STORE
        + """
  %v = arith.constant dense<1.0> : vector<4x4xf32>
  %row = arith.muli %i, %c4 : index
  %t = xetile.init_tile %o[%row, %c0] : memref<40x4xf32> -> !xetile.tile<4x4xf32>
  xetile.store_tile %v, %t : vector<4x4xf32>, !xetile.tile<4x4xf32>
"""
    )
    monkeypatch.setattr(launch, "BATCH_BYTES", 1)
    out = np.full((40, 4), np.nan, np.float32)
    assert run("%o: memref<40x4xf32>", body, [out], (10,)).workgroups == 10
    assert (out == 1).all()


def test_grid_axes_and_empty_grid():
    out = np.zeros((4, 3, 2), np.int64)
    body = """
  %x = gpu.block_id x
  %y = gpu.block_id y
  %z = gpu.block_id z
  %gx = gpu.grid_dim x
  %gy = gpu.grid_dim y
  %a = arith.muli %z, %gy : index
  %b = arith.addi %a, %y : index
  %c = arith.muli %b, %gx : index
  %d = arith.addi %c, %x : index
  %e = arith.index_cast %d : index to i64
  memref.store %e, %o[%z, %y, %x] : memref<4x3x2xi64>
"""
    run("%o: memref<4x3x2xi64>", body, [out], (2, 3, 4))
    assert (out.ravel() == np.arange(24)).all()
    before = out.copy()
    assert run("%o: memref<4x3x2xi64>", body, [out], (2, 0, 4)).workgroups == 0
    assert (out == before).all()


def test_function_with_calls_and_loops_as_grid():
    """An RFC program: a func whose outer loops are the grid, run plainly; results come back."""
    module = reference_module()
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    total = a.sum()
    report = reference.run(module, 1, [a], kernel="main_like")
    assert report.results[0].item() == 2 * total
    assert (a == 2 * np.arange(64).reshape(8, 8)).all()


def reference_module():
    from tests.texts import parse_module

    return parse_module("""
builtin.module {
  func.func @twice(%v: vector<4x4xf32>) -> vector<4x4xf32> {
    %d = arith.addf %v, %v : vector<4x4xf32>
    func.return %d : vector<4x4xf32>
  }
  func.func @main_like(%a: memref<8x8xf32>) -> f32 {
    %zero = arith.constant 0.0 : f32
    %r = scf.for %i = %c0 to %c8 step %c4 iter_args(%s = %zero) -> (f32) {
      %q = scf.for %j = %c0 to %c8 step %c4 iter_args(%t = %s) -> (f32) {
        %tile = xetile.init_tile %a[%i, %j] : memref<8x8xf32> -> !xetile.tile<4x4xf32>
        %v = xetile.load_tile %tile : !xetile.tile<4x4xf32> -> vector<4x4xf32>
        %d = func.call @twice(%v) : (vector<4x4xf32>) -> vector<4x4xf32>
        xetile.store_tile %d, %tile : vector<4x4xf32>, !xetile.tile<4x4xf32>
        %n = vector.multi_reduction <add>, %d, %t [0, 1] : vector<4x4xf32> to f32
        scf.yield %n : f32
      }
      scf.yield %q : f32
    }
    func.return %r : f32
  }
}
""")


def test_host_code_launches_kernels():
    module = module_of(
        "%o: memref<6xi64>",
        """
  %i = gpu.block_id x
  %v = arith.index_cast %i : index to i64
  memref.store %v, %o[%i] : memref<6xi64>
""",
        outside="""
  func.func @main() {
    %m = memref.alloc() : memref<6xi64>
    gpu.launch_func @m::@k blocks in (%c6, %c1, %c1) threads in (%c1, %c1, %c1)
      args(%m : memref<6xi64>)
    %v = memref.load %m[%c3] : memref<6xi64>
    %three = arith.constant 3 : i64
    %ok = arith.cmpi eq, %v, %three : i64
    cf.assert %ok, "the kernel ran"
    memref.dealloc %m : memref<6xi64>
    func.return
  }
""",
    )
    assert reference.run(module, check=True).ok


def test_parallel_loops():
    """scf.parallel with a reduction, scf.forall with mixed bounds."""
    out = np.zeros((6, 8), np.int64)
    total = np.zeros(1, np.int64)
    body = """
  %zero = arith.constant 0 : i64
  scf.forall (%i, %j) = (0, 1) to (%c6, 8) step (2, 3) {
    %a = arith.muli %i, %c10 : index
    %b = arith.addi %a, %j : index
    %v = arith.index_cast %b : index to i64
    memref.store %v, %o[%i, %j] : memref<6x8xi64>
  }
  %sum = scf.parallel (%k) = (%c0) to (%c6) step (%c2) init (%zero) -> i64 {
    %k64 = arith.index_cast %k : index to i64
    scf.reduce(%k64 : i64) {
    ^bb0(%x: i64, %y: i64):
      %s = arith.addi %x, %y : i64
      scf.reduce.return %s : i64
    }
  }
  memref.store %sum, %t[%c0] : memref<1xi64>
"""
    run("%o: memref<6x8xi64>, %t: memref<1xi64>", body, [out, total])
    expected = np.zeros((6, 8), np.int64)
    for i in (0, 2, 4):
        for j in (1, 4, 7):
            expected[i, j] = 10 * i + j
    assert (out == expected).all()
    assert total[0] == 0 + 2 + 4


def test_errors_name_what_is_wrong():
    body = '%r = "test.op"() : () -> index'
    with pytest.raises(UnsupportedError, match=r"test\.op"):
        run("", body, [])
    with pytest.raises(LaunchError, match="takes 1 arguments, 0 given"):
        run("%o: memref<4xf32>", "", [])
    with pytest.raises(LaunchError, match="float32"):
        run("%o: memref<4xf32>", "", [np.zeros(4, np.float64)])
    with pytest.raises(LaunchError, match="shape"):
        run("%o: memref<4xf32>", "", [np.zeros(5, np.float32)])
    with pytest.raises(LaunchError, match="no function called 'other'"):
        run("", "", [], kernel="other")
