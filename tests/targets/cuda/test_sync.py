"""Barriers between accesses: memory that the compiler had for an exchange, and that is an array's after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import gpu, scf

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget, run_threads
from tests.targets.emu.agree import subgroup_kernel
from tilewright import reference
from tilewright.dialects.text import parse_module
from tilewright.reference import machine
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.entry import build_text

REUSED = """
gpu.module @m { gpu.func @k(%n: memref<4xi64>, %o: memref<4xi64>) kernel attributes {tilewright.level = "workgroup"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i64
  %old = memref.atomic_rmw addi %one, %n[%c0] : (i64, memref<4xi64>) -> i64
  %p = gpu.block_id x
  %none = scf.for %i = %c0 to %p step %c1 iter_args(%x = %old) -> (i64) {
    scf.yield %x : i64
  }
  %two = arith.constant dense<2> : vector<2xi64>
  %m = memref.alloca() : memref<2xi64>
  vector.transfer_write %two, %m[%c0] : vector<2xi64>, memref<2xi64>
  %x = memref.load %m[%p] : memref<2xi64>
  %y = arith.addi %x, %none : i64
  memref.store %y, %o[%c0] : memref<4xi64>
  gpu.return } }
"""
"""What the atomic found reaches all threads through the first bytes of shared memory, where the array lies after."""


def test_an_array_where_an_exchange_was() -> None:
    n, o = np.array([5, 0, 0, 0]), np.zeros(4, np.int64)
    last: list[Any] = []
    module = parse_module(REUSED)
    built = build_text(module, CompileOptions(target="sm_90a"), lambda _, m: last.append(m.clone()))
    assert isinstance(built, CudaExecutable)
    args = [describe(n), describe(o)]
    built.interpret(last[-1], (1, 1, 1), args, "late", 0).raise_on_error()
    assert n[0] == 6 and o[0] == 7


@tw.kernel
def moments(X, Y, N: tw.constexpr = 4096):  # pyright: ignore[reportMissingParameterType]
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0), 0], (1, N)))
    y = tw.sum(x, 1) + tw.sum(x * x, 1)
    tw.store_tile(y, tw.init_tile(Y, [tw.program_id(0), 0], (1, 1)))


def test_what_warps_exchange_next_goes_elsewhere() -> None:
    """Nobody waits for those who still read what was exchanged before: a barrier for each exchange, none between."""
    args = tw.spec((64, 4096), tw.f32), tw.spec((64, 1), tw.f32)
    code = moments.compile(*args, target="sm_90a").ir["mach"]
    assert code.count("gpu.barrier") == 2


@tw.kernel
def read_back(X, Y, Z, N: tw.constexpr = 512):  # pyright: ignore[reportMissingParameterType]
    tile = tw.init_tile(Y, [0, 0], (1, N))
    tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], (1, N))), tile)
    total = tw.zeros((1, N), tw.f32)
    for n in range(0, X.shape[1], N):
        total = total + tw.load_tile(tw.init_tile(Y, [0, N - 1 - n], (1, N)))
    tw.store_tile(total, tw.init_tile(Z, [0, 0], (1, N)))


def test_what_stood_before_a_loop_is_met_before_it() -> None:
    """Not in every iteration."""
    args = (tw.spec((1, 8192), tw.f32),) * 3
    module = parse_module(read_back.compile(*args, target="sm_90a").ir["mach"])
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    assert not any(isinstance(op, gpu.BarrierOp) for op in loop.walk())
    assert sum(isinstance(op, gpu.BarrierOp) for op in module.walk()) == 1


OPERANDS = """
%sg = gpu.subgroup_id : index
%two = arith.constant 2 : index
%row = arith.muli %sg, %two : index
%ta = xegpu.create_nd_tdesc %a : memref<16x16xf16> -> !xegpu.tensor_desc<2x16xf16>
%tb = xegpu.create_nd_tdesc %a : memref<16x16xf16> -> !xegpu.tensor_desc<16x16xf16>
%tc = xegpu.create_nd_tdesc %c : memref<16x16xf16> -> !xegpu.tensor_desc<2x16xf16>
%u = xegpu.load_nd %ta[%row, 0] : !xegpu.tensor_desc<2x16xf16> -> vector<2x16xf16>
%m = memref.alloc() : memref<512xi8, 3>
%d = xegpu.create_mem_desc %m : memref<512xi8, 3> -> !xegpu.mem_desc<16x16xf16>
xegpu.store_matrix %u, %d[%row, 0] : vector<2x16xf16>, !xegpu.mem_desc<16x16xf16>, index
gpu.barrier
%v = xegpu.load_matrix %d[%row, 0] : !xegpu.mem_desc<16x16xf16>, index -> vector<2x16xf16>
%x = vector.extract %v[0] : vector<16xf16> from vector<2x16xf16>
%y = vector.extract %u[0] : vector<16xf16> from vector<2x16xf16>
%z = vector.shuffle %x, %y [11, 7, 10, 16, 10, 5, 0, 17, 1, 25, 7, 10, 27, 0, 14, 3] : vector<16xf16>, vector<16xf16>
%w = vector.insert %z, %v [0] : vector<16xf16> into vector<2x16xf16>
%b = xegpu.load_nd %tb[0, 0] : !xegpu.tensor_desc<16x16xf16> -> vector<16x16xf16>
%p = xegpu.dpas %w, %b : vector<2x16xf16>, vector<16x16xf16> -> vector<2x16xf32>
%q = arith.truncf %p : vector<2x16xf32> to vector<2x16xf16>
xegpu.store_nd %q, %tc[%row, 0] : vector<2x16xf16>, !xegpu.tensor_desc<2x16xf16>
"""


def test_memory_of_an_operand_is_written_again_when_all_have_read_it(
    rng: np.random.Generator,
) -> None:
    """An operand is read while the product is made, so after all that makes threads meet for the other operand."""
    a = rng.integers(-8, 9, (16, 16)).astype(np.float16)
    c, right = np.full((2, 16, 16), np.nan, np.float16)
    kernel = subgroup_kernel("%a: memref<16x16xf16>, %c: memref<16x16xf16>", OPERANDS, subgroups=4)
    reference.run(kernel.clone(), (1, 1, 1), [a, right])
    options = CompileOptions(target="cuda", machine="sm_90a")
    ThreadsTarget("sm_90a").build(kernel, options).launch((1, 1, 1), [describe(a), describe(c)])
    np.testing.assert_array_equal(c, right)


@tw.kernel
def stored_operand(A, B, C):
    """Rows of A that are no multiple of 16 bytes are loaded by the threads that multiply."""
    acc = tw.zeros((64, 128), tw.i32)
    for k in range(0, 96, 32):
        a = tw.load_tile(tw.init_tile(A, [0, k], (64, 32)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, 0], (32, 128))), acc)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (64, 128)))


def test_a_warpgroup_meets_again_whoever_goes_on_first(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind a branch do not go on to the wait for products before those in it have come."""
    monkeypatch.setattr(machine, "_FAIRNESS", 16)
    a, b = (rng.integers(-8, 9, s).astype(np.int8) for s in ((64, 98), (96, 128)))
    a, c = a[:, :96], np.full((64, 128), -1, np.int32)
    text = stored_operand.compile(a, b, c, target="reference").ir["xetile"]
    options = CompileOptions(target="cuda", machine="sm_90a")
    built = ThreadsTarget("sm_90a").build(parse_module(text), options)
    run_threads(built.lowered, [describe(x) for x in (a, b, c)], (1, 1, 1), "random", 1)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
