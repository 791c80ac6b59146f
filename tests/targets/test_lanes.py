"""Programs of lanes (lanes/*.mlir) on every target: of a GPU the last program before code; code where there is one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import copied
from tests.draws import fresh_rng
from tests.examples.arrays import BF16, Case, garbage, numbers, wide
from tests.examples.fragments import LAST, compare
from tilewright import reference
from tilewright.arguments import ArrayArg
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.kernel import kernel_of, level_of
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda import driver
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.entry import build_text, state_levels

Grid = tuple[int, int, int]


def gemm() -> tuple[Grid, Case]:
    m, n, k, s = 60, 40, 72, 0.25
    a, b, bias = numbers(m, k, dtype=BF16), numbers(k, n, dtype=BF16), numbers(n)
    c = garbage(m, n, dtype=BF16)
    right = np.maximum(wide(a) @ wide(b) * s + bias, 0)
    return (3, 2, 1), ([a, b, bias, c, 80, s], [(c, right)])


def sums() -> tuple[Grid, Case]:
    a, columns, subgroups = numbers(64, 40), garbage(40), garbage(4, 16)
    first = wide(a)[:, :8].reshape(4, -1).sum(1)
    pairs = [(columns, wide(a).sum(0)), (subgroups, np.repeat(first[:, None], 16, 1))]
    return (5, 1, 1), ([a, columns, subgroups], pairs)


def addresses() -> tuple[Grid, Case]:
    n = 5
    a, o, x = numbers(512), garbage(8, 3, 4), numbers(64)
    counts = garbage(4, dtype=np.int32)
    right, doubled, counted = np.ones((8, 3, 4)), wide(x), counts.astype(np.int64)
    for lane in range(n):
        for subgroup in range(3):
            at = 20 * lane + 4 * subgroup
            right[lane, subgroup] = wide(a)[at : at + 4] + lane
            doubled[8 * subgroup + lane] *= 2
            counted[lane % 4] += 1
    pairs: list[tuple[Any, Any]] = [(o, right), (x, doubled), (counts, counted.astype(np.int32))]
    return (1, 1, 1), ([a, n, o, counts, x], pairs)


def eights() -> tuple[Grid, Case]:
    a, b = numbers(24, 96, dtype=np.int8), numbers(96, 8, dtype=np.int8)
    c, sums = garbage(24, 8, dtype=np.int32), garbage(3, 8, dtype=np.int32)
    product = (a.astype(np.int32) @ b.astype(np.int32)).reshape(3, 8, 8)
    totals = np.repeat(product.sum((1, 2))[:, None], 8, axis=1)
    blocks = np.roll(product, -1, axis=0).reshape(24, 8)
    return (1, 1, 1), ([a, b, c, sums], [(c, blocks), (sums, totals)])


def owners() -> tuple[Grid, Case]:
    a, b, c = numbers(48, 4), numbers(4, 16), garbage(48, 16)
    return (1, 1, 1), ([a, b, c], [(c, wide(a) @ wide(b))])


def columns() -> tuple[Grid, Case]:
    a, b, c = numbers(32, 16), numbers(16, 6), numbers(32, 6)
    return (1, 1, 1), ([a, b, c], [(c, wide(c) + wide(a) @ wide(b))])


def totals() -> tuple[Grid, Case]:
    a, sums = numbers(2, 3, 160), garbage(2, 3, 160)
    most = fresh_rng().integers(-1000, -1, (2, 3, 160)).astype(np.int32)
    spread = np.ones((2, 3, 160))
    right = wide(a).sum(2, keepdims=True) * spread, (most.max(2, keepdims=True) * spread)
    pairs: list[tuple[Any, Any]] = [(sums, right[0]), (most, right[1].astype(np.int32))]
    return (2, 1, 1), ([a, sums, most], pairs)


MAKE = (eights, gemm, sums, addresses, owners, columns, totals)
TEXTS = {path.stem: path.read_text() for path in Path(__file__).with_name("lanes").iterdir()}


def _described(args: list[Any]) -> list[Any]:
    return [describe(a) if isinstance(a, np.ndarray) else a for a in args]


@pytest.mark.parametrize("target", ["reference", "cpu", "sm_90a", "xe-pvc", "xe-dg2"])
@pytest.mark.parametrize("make", MAKE)
def test_lanes_do_on_every_target_what_numpy_says(make: Callable[[], Any], target: str):
    text, (grid, (args, pairs)) = TEXTS[make.__name__], make()
    module = last = parse_module(text)

    def observe(stage: str, program: Any) -> None:
        nonlocal last
        if stage == LAST or not target.startswith("xe"):
            last = program.clone()

    built = build_text(module, CompileOptions(target=target), observe)
    if isinstance(built, CudaExecutable):
        built.interpret(last, grid, _described(args), "late", 0).raise_on_error()
    elif target in ("reference", "cpu"):
        built.launch(grid, _described(args))
    else:
        assert last is not module
        reference.run(last, grid, args)
    compare(pairs, target)


@pytest.mark.skipif(not driver.available(), reason="this machine has no NVIDIA GPU")
@pytest.mark.parametrize("make", MAKE)
def test_lanes_on_a_gpu(make: Callable[[], Any]):
    text, (grid, (args, pairs)) = TEXTS[make.__name__], make()
    built = build_text(parse_module(text), CompileOptions(target="cuda"))
    given = _described(args)
    with copied([a for a in given if isinstance(a, ArrayArg)]) as moved:
        there = iter(moved)
        built.launch(grid, [next(there) if isinstance(a, ArrayArg) else a for a in given])
    compare(pairs, "on the GPU")


def test_a_part_of_a_warp_shuffles_alone():
    """Two subgroups of a warp may be at different places: neither waits for the other's threads."""
    ptx = build_text(parse_module(TEXTS["sums"]), CompileOptions(target="sm_90a")).asm["ptx"]
    masks = re.findall(r"shfl\.sync\.\S+\s+\S+, \S+, \S+, \S+, (\S+);", ptx)
    assert masks and all(mask.startswith("%r") for mask in masks)
    assert "barrier.sync" in ptx or "bar.sync" not in ptx


NAMED = """gpu.module @m { gpu.func @k() kernel attributes {tilewright.level = "lane", tilewright.lanes = LANES : i64} {
  %one = arith.constant 1 : i8
  %b = xegpu.init_nbarrier %one, %one : i8, i8 -> !xegpu.nbarrier
  xegpu.nbarrier_arrive %b : !xegpu.nbarrier
  gpu.return } }"""


@pytest.mark.parametrize(
    ("lanes", "why"), [("16", "has no form for a thread"), ("64", "subgroups of 64 lanes")]
)
def test_what_threads_cannot_do_is_refused(lanes: str, why: str):
    with pytest.raises(UnsupportedError, match=why) as caught:
        build_text(parse_module(NAMED.replace("LANES", lanes)), CompileOptions(target="sm_90a"))
    assert caught.value.location is not None


SHUFFLE = """gpu.module @m { gpu.func @k(%o: memref<4x8xf32>, %n: index) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 4 : i64, tilewright.lanes = 8 : i64} {
  %s = gpu.subgroup_id : index
  %l = gpu.lane_id
  %x = arith.constant 1.0 : f32
  %c = arith.cmpi ult, %VALUE, %n : index
  scf.if %c {
    %t = gpu.subgroup_reduce add %x : (f32) -> f32
    memref.store %t, %o[%s, %l] : memref<4x8xf32>
  }
  gpu.return } }"""


def test_halves_of_a_subgroup_do_together_what_both_come_to():
    """Of an Intel GPU whose subgroups have 16 lanes."""
    for value, fine in (("n", True), ("s", False)):
        module = parse_module(SHUFFLE.replace("VALUE", value))
        if fine:
            assert build_text(module, CompileOptions(target="xe-pvc"))
            continue
        with pytest.raises(UnsupportedError, match=r"may part in the scf\.if"):
            build_text(module, CompileOptions(target="xe-pvc"))


OUTSIDE = """gpu.module @m { gpu.func @k(%a: memref<40xf32>, %o: memref<40xf32>, %n: memref<20xi32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
  %l = gpu.lane_id
  %c3 = arith.constant 3 : index
  %c2 = arith.constant 2 : index
  %at = arith.muli %l, %c3 : index
  %on = arith.constant true
  %v = xegpu.load %a[%at], %on <{chunk_size = 3 : i64}> : memref<40xf32>, index, i1 -> vector<3xf32>
  xegpu.store %v, %o[%at], %on <{chunk_size = 3 : i64}> : vector<3xf32>, memref<40xf32>, index, i1
  %one = arith.constant 1 : i32
  %by = arith.muli %l, %c2 : index
  %old = xegpu.atomic_rmw addi %n[%by], %on, %one : memref<20xi32>, index, i1, i32 -> i32
  gpu.return } }"""


def test_what_a_lane_addresses_outside_of_an_array_does_not_happen():
    a, o, n = numbers(40), garbage(40), garbage(20, dtype=np.int32)
    counted = n.astype(np.int64) + (np.arange(20) % 2 == 0)
    last: list[Any] = []
    module = parse_module(OUTSIDE)
    built = build_text(module, CompileOptions(target="sm_90a"), lambda _, m: last.append(m.clone()))
    assert isinstance(built, CudaExecutable)
    built.interpret(last[-1], (1, 1, 1), _described([a, o, n]), "late", 0).raise_on_error()
    compare([(o, a), (n, counted.astype(np.int32))], "outside")


WAITING = """gpu.module @m { gpu.func @k(%n: memref<8xi32>, %o: memref<3x8xi32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 3 : i64, tilewright.lanes = 8 : i64} {
  %s = gpu.subgroup_id : index
  %l = gpu.lane_id
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %thirty = arith.constant 30 : i32
  %width = arith.constant 8 : i32
  %mine = scf.while (%many = %zero) : (i32) -> i32 {
    %before = memref.atomic_rmw addi %one, %n[%l] : (i32, memref<8xi32>) -> i32
    %again = arith.cmpi slt, %before, %thirty : i32
    scf.condition(%again) %many : i32
  } do {
  ^bb0(%many: i32):
    %more = arith.addi %many, %one : i32
    scf.yield %more : i32
  }
  gpu.barrier
  %all = gpu.subgroup_reduce add %mine : (i32) -> i32
  memref.store %all, %o[%s, %l] : memref<3x8xi32>
  gpu.return } }"""


def test_the_half_that_no_subgroup_has_waits_for_no_atomic():
    """Three subgroups of 8 in two of 16: each lane counts until 30 are counted of its number."""
    n, o = np.zeros(8, np.int32), garbage(3, 8, dtype=np.int32)
    last: list[Any] = []

    def observe(stage: str, program: Any) -> None:
        if stage == LAST:
            last.append(program.clone())

    build_text(parse_module(WAITING), CompileOptions(target="xe-pvc"), observe)
    reference.run(last[-1], (1, 1, 1), [n, o])
    assert o[:, 0].sum() == 8 * 30 and (o == o[:, :1]).all() and (n == 33).all()


AGREED = """gpu.module @m { gpu.func @k(%n: memref<1xi32>, %x: memref<3x8xi32>, %o: memref<3x8xi32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 3 : i64, tilewright.lanes = 8 : i64} {
  %s = gpu.subgroup_id : index
  %l = gpu.lane_id
  %first = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %times = memref.load %n[%first] : memref<1xi32>
  %mine = memref.load %x[%s, %l] : memref<3x8xi32>
  %r, %done = scf.while (%v = %mine, %i = %zero) : (i32, i32) -> (i32, i32) {
    %again = arith.cmpi slt, %i, %times : i32
    scf.condition(%again) %v, %i : i32, i32
  } do {
  ^bb0(%v: i32, %i: i32):
    %all = gpu.subgroup_reduce add %v : (i32) -> i32
    %next = arith.subi %all, %v : i32
    %more = arith.addi %i, %one : i32
    scf.yield %next, %more : i32, i32
  }
  memref.store %r, %o[%s, %l] : memref<3x8xi32>
  gpu.return } }"""


def test_parts_of_a_subgroup_reduce_in_a_loop_that_all_lanes_go_around_alike():
    n, x, o = np.array([3], np.int32), numbers(3, 8, dtype=np.int32), garbage(3, 8, dtype=np.int32)
    right, last = x.copy(), list[Any]()
    for _ in range(3):
        right = right.sum(1, keepdims=True, dtype=np.int32) - right

    def observe(stage: str, program: Any) -> None:
        if stage == LAST:
            last.append(program.clone())

    build_text(parse_module(AGREED), CompileOptions(target="xe-pvc"), observe)
    reference.run(last[-1], (1, 1, 1), [n, x, o])
    np.testing.assert_array_equal(o, right)


def test_the_threads_that_the_text_says():
    """Compiled ahead of time, a kernel has the threads of its `known_block_size`; it had 16."""
    text = """gpu.module @m { gpu.func @k(%a: memref<?xindex>) kernel
    attributes {known_block_size = array<i32: 20, 2, 1>} {
  %x = gpu.thread_id x
  %y = gpu.thread_id y
  %n = gpu.block_dim x
  %r = arith.muli %y, %n : index
  %t = arith.addi %r, %x : index
  memref.store %t, %a[%t] : memref<?xindex>
  gpu.return
} }"""
    built = build_text(parse_module(text), CompileOptions(target="sm_90a"))
    assert ".reqntid 40" in built.asm["ptx"]
    a = np.zeros(48, np.int64)
    module = parse_module(text)
    state_levels(module)
    reference.run(module, args=[a])
    np.testing.assert_array_equal(a, np.where(np.arange(48) < 40, np.arange(48), 0))


def test_a_part_of_a_row_is_a_lanes():
    """mlir-opt's xegpu-subgroup-distribute leaves such text, without a word of its level."""
    module = parse_module("""gpu.module @m {
gpu.func @f(%x: memref<64xf32>) kernel {
  %t = xegpu.create_nd_tdesc %x : memref<64xf32> -> !xegpu.tensor_desc<64xf32>
  %v = xegpu.load_nd %t[0] : !xegpu.tensor_desc<64xf32> -> vector<4xf32>
  xegpu.store_nd %v, %t[0] : vector<4xf32>, !xegpu.tensor_desc<64xf32>
  gpu.return
}
}""")
    assert level_of(kernel_of(module)) == "lane"
    assert (
        level_of(kernel_of(parse_module(print_module(module).replace("<4x", "<64x")))) == "subgroup"
    )
