# ruff: noqa: E501
"""Programs of lanes: what lanes agree on, what they do not, and control flow that parts them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.calls import calls
from tests.targets.emu.agree import agree, build, emulate, kernel, lane_kernel
from tilewright.diagnostics import CheckError, UnsupportedError

ID = """
  %lane = gpu.lane_id
  %sg = gpu.subgroup_id
  %block = gpu.block_id x
  %r0 = arith.muli %block, %c32 : index
  %r1 = arith.muli %sg, %c16 : index
  %r2 = arith.addi %r0, %r1 : index
  %me = arith.addi %r2, %lane : index
"""


def data(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def test_every_thread_knows_where_it_is(rng):
    body = """
  %b = gpu.block_id x
  %by = gpu.block_id y
  %t = gpu.thread_id x
  %g = gpu.global_id x
  %n = gpu.block_dim x
  %s = gpu.subgroup_id
  %l = gpu.lane_id
  %m = gpu.num_subgroups
  %w = gpu.subgroup_size
  %gy = gpu.grid_dim y
  %y = arith.muli %by, %n : index
  %y2 = arith.muli %y, %c2 : index
  %row = arith.addi %y2, %g : index
""" + "".join(
        f"  %i{i} = arith.constant {i} : index\n  memref.store %{x}, %o[%row, %i{i}] : memref<?x9xindex>\n"
        for i, x in enumerate(("b", "by", "t", "g", "n", "s", "l", "m", "w"))
    )
    out = np.full((2 * 3 * 32, 9), -1, np.int64)
    agree(lane_kernel("%o: memref<?x9xindex>", body, subgroups=2), [out], (2, 3, 1))


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_arithmetic_on_what_differs_and_what_does_not(rng, lanes):
    body = f"""
  %lane = gpu.lane_id
  %k = arith.constant 3 : index
  %i = arith.muli %lane, %k : index
  %c = arith.constant {lanes} : index
  %j = arith.remui %i, %c : index
  %x = memref.load %a[%j] : memref<{lanes}xf32>
  %s = memref.load %a[%k] : memref<{lanes}xf32>
  %p = arith.mulf %x, %s : f32
  %e = math.exp2 %p : f32
  %t = arith.truncf %e : f32 to bf16
  %u = arith.extf %t : bf16 to f32
  %n = arith.index_cast %j : index to i32
  %f = arith.sitofp %n : i32 to f32
  %q = arith.addf %u, %f : f32
  %cmp = arith.cmpf ogt, %q, %x : f32
  %z = arith.select %cmp, %q, %s : f32
  memref.store %z, %o[%lane] : memref<{lanes}xf32>"""
    args = f"%a: memref<{lanes}xf32>, %o: memref<{lanes}xf32>"
    agree(lane_kernel(args, body, lanes=lanes), [data(rng, lanes), data(rng, lanes)])


def test_threads_of_a_block_in_three_dimensions():
    """Rows of four threads: a subgroup of eight has two of them, and planes end in the middle of one."""
    body = """
  %x = gpu.thread_id x
  %y = gpu.thread_id y
  %z = gpu.global_id z
  %s = gpu.subgroup_id
  memref.store %s, %o[%z, %y, %x] : memref<4x3x4xindex>"""
    attributes = (
        'tilewright.level = "lane", tilewright.subgroups = 3 : i64, tilewright.lanes = 8 : i64, '
        "tilewright.block = array<i64: 4, 3, 2>"
    )
    module = kernel("%o: memref<4x3x4xindex>", body, attributes)
    (o,) = agree(module, [np.full((4, 3, 4), -1, np.int64)], (1, 1, 2))
    np.testing.assert_array_equal(o.reshape(2, 24), np.arange(48).reshape(2, 24) // 8 % 3)


def test_thread_ids_divided_by_the_lanes_are_uniform(rng):
    body = """
  %t = gpu.thread_id x
  %s = arith.divui %t, %c16 : index
  %l = arith.andi %t, %c15 : index
  %h = arith.shrui %t, %c4 : index
  %y = arith.muli %s, %c4 : index
  %td = xegpu.create_nd_tdesc %a : memref<16x16xf32> -> !xegpu.tensor_desc<4x16xf32>
  %v = xegpu.load_nd %td[%y, 0] : !xegpu.tensor_desc<4x16xf32> -> vector<4xf32>
  %e = vector.extract %v[2] : f32 from vector<4xf32>
  memref.store %e, %o[%h, %l] : memref<4x16xf32>"""
    args = "%a: memref<16x16xf32>, %o: memref<4x16xf32>"
    (a, o) = agree(lane_kernel(args, body, subgroups=4), [data(rng, 16, 16), data(rng, 4, 16)])
    np.testing.assert_array_equal(o, a[2::4])


def test_an_offset_that_differs_between_lanes_is_told():
    body = """
  %lane = gpu.lane_id
  %td = xegpu.create_nd_tdesc %a : memref<16x16xf32> -> !xegpu.tensor_desc<4x16xf32>
  %v = xegpu.load_nd %td[%lane, 0] : !xegpu.tensor_desc<4x16xf32> -> vector<4xf32>
  xegpu.store_nd %v, %td[0, 0] : vector<4xf32>, !xegpu.tensor_desc<4x16xf32>"""
    with pytest.raises(CheckError, match="differs between the lanes"):
        emulate(
            lane_kernel("%a: memref<16x16xf32>", body), (1, 1, 1), [np.zeros((16, 16), np.float32)]
        )


def test_lanes_that_go_different_ways(rng):
    body = (
        ID
        + """
  %five = arith.constant 5 : index
  %x = memref.load %a[%me] : memref<?xf32>
  %low = arith.cmpi ult, %lane, %five : index
  %r = scf.if %low -> (f32) {
    %even0 = arith.remui %lane, %c2 : index
    %even = arith.cmpi eq, %even0, %c0 : index
    %s = scf.if %even -> (f32) {
      %y = arith.addf %x, %x : f32
      memref.store %y, %b[%me] : memref<?xf32>
      scf.yield %y : f32
    } else {
      scf.yield %x : f32
    }
    scf.yield %s : f32
  } else {
    %z = arith.negf %x : f32
    scf.yield %z : f32
  }
  memref.store %r, %o[%me] : memref<?xf32>"""
    )
    args = "%a: memref<?xf32>, %b: memref<?xf32>, %o: memref<?xf32>"
    agree(lane_kernel(args, body, subgroups=2), [data(rng, 96) for _ in range(3)], (3, 1, 1))


def test_lanes_leave_loops_at_different_times(rng):
    body = (
        ID
        + """
  %z = arith.constant 0.0 : f32
  %sum = scf.for %i = %c0 to %lane step %c1 iter_args(%acc = %z) -> (f32) {
    %x = memref.load %a[%i] : memref<?xf32>
    %n = arith.addf %acc, %x : f32
    scf.yield %n : f32
  }
  %n0 = arith.index_cast %me : index to i64
  %one = arith.constant 1 : i64
  %three = arith.constant 3 : i64
  %two = arith.constant 2 : i64
  %start = arith.addi %n0, %one : i64
  %zero = arith.constant 0 : i64
  %last, %steps = scf.while (%v = %start, %k = %zero) : (i64, i64) -> (i64, i64) {
    %more = arith.cmpi ne, %v, %one : i64
    scf.condition(%more) %v, %k : i64, i64
  } do {
  ^bb0(%v: i64, %k: i64):
    %rem = arith.remui %v, %two : i64
    %odd = arith.cmpi eq, %rem, %one : i64
    %next = scf.if %odd -> (i64) {
      %t = arith.muli %v, %three : i64
      %t1 = arith.addi %t, %one : i64
      scf.yield %t1 : i64
    } else {
      %h = arith.divui %v, %two : i64
      scf.yield %h : i64
    }
    %k1 = arith.addi %k, %one : i64
    scf.yield %next, %k1 : i64, i64
  }
  memref.store %sum, %o[%me] : memref<?xf32>
  memref.store %steps, %p[%me] : memref<?xi64>
  memref.store %last, %q[%me] : memref<?xi64>"""
    )
    args = "%a: memref<?xf32>, %o: memref<?xf32>, %p: memref<?xi64>, %q: memref<?xi64>"
    arrays = [data(rng, 64), data(rng, 64), np.full(64, -1), np.full(64, -1)]
    _, _, steps, last = agree(lane_kernel(args, body, subgroups=2), arrays, (2, 1, 1))
    assert steps[26] == 111 and (last == 1).all()  # the sequence from 27


def test_divisions_of_lanes_that_are_not_there_do_not_trap(rng):
    body = (
        ID
        + """
  %n = arith.index_cast %lane : index to i32
  %hundred = arith.constant 100 : i32
  %zero = arith.constant 0 : i32
  %some = arith.cmpi ne, %n, %zero : i32
  %r = scf.if %some -> (i32) {
    %q = arith.divsi %hundred, %n : i32
    scf.yield %q : i32
  } else {
    scf.yield %zero : i32
  }
  memref.store %r, %o[%me] : memref<16xi32>"""
    )
    agree(lane_kernel("%o: memref<16xi32>", body), [np.full(16, -1, np.int32)])


def test_uniform_loops_and_branches_stay_so(rng):
    body = (
        ID
        + """
  %z = arith.constant dense<0.0> : vector<4xf32>
  %td = xegpu.create_nd_tdesc %a[0, 0] : memref<4x64xf32> -> !xegpu.tensor_desc<4x16xf32>
  %n = arith.constant 4 : index
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %z, %t = %td) -> (vector<4xf32>, !xegpu.tensor_desc<4x16xf32>) {
    %v = xegpu.load_nd %t : !xegpu.tensor_desc<4x16xf32> -> vector<4xf32>
    %odd0 = arith.remui %i, %c2 : index
    %odd = arith.cmpi eq, %odd0, %c1 : index
    %s = scf.if %odd -> (vector<4xf32>) {
      %x = arith.addf %acc, %v : vector<4xf32>
      scf.yield %x : vector<4xf32>
    } else {
      %y = arith.subf %acc, %v : vector<4xf32>
      scf.yield %y : vector<4xf32>
    }
    %u = xegpu.update_nd_offset %t, [0, 16] : !xegpu.tensor_desc<4x16xf32>
    scf.yield %s, %u : vector<4xf32>, !xegpu.tensor_desc<4x16xf32>
  }
  %to = xegpu.create_nd_tdesc %o[0, 0] : memref<4x16xf32> -> !xegpu.tensor_desc<4x16xf32>
  xegpu.store_nd %r#0, %to : vector<4xf32>, !xegpu.tensor_desc<4x16xf32>"""
    )
    args = "%a: memref<4x64xf32>, %o: memref<4x16xf32>"
    agree(lane_kernel(args, body), [data(rng, 4, 64), data(rng, 4, 16)])


def test_blocks_that_branch_to_each_other(rng):
    body = (
        ID
        + """
  %n = arith.constant 5 : index
  %z = arith.constant 0.0 : f32
  cf.br ^head(%c0, %z : index, f32)
^head(%i: index, %acc: f32):
  %more = arith.cmpi slt, %i, %n : index
  cf.cond_br %more, ^body, ^exit(%acc : f32)
^body:
  %at = arith.addi %me, %i : index
  %x = memref.load %a[%at] : memref<?xf32>
  %s = arith.addf %acc, %x : f32
  %i1 = arith.addi %i, %c1 : index
  cf.br ^head(%i1, %s : index, f32)
^exit(%r: f32):
  memref.store %r, %o[%me] : memref<?xf32>
  gpu.return"""
    )
    args = "%a: memref<?xf32>, %o: memref<?xf32>"
    agree(lane_kernel(args, body), [data(rng, 32), data(rng, 16)])


SWITCH = """
  %flag = memref.load %k[{at}] : memref<16xi32>
  %w = arith.constant 7 : index
  cf.switch %flag : i32, [
    default: ^other(%me : index),
    -1: ^one(%w : index),
    5: ^one(%lane : index),
    6: ^end
  ]
^one(%x: index):
  %y = arith.addi %x, %me : index
  cf.br ^other(%y : index)
^other(%r: index):
  memref.store %r, %o[%me] : memref<?xindex>
  cf.br ^end
^end:
  gpu.return"""
SWITCHED = "%k: memref<16xi32>, %o: memref<?xindex>"


@pytest.mark.parametrize("flag", [-1, 5, 6, 9])
def test_a_switch_between_blocks(flag: int):
    module = lane_kernel(SWITCHED, ID + SWITCH.format(at="%c0"))
    flags, out = np.full(16, flag, np.int32), np.full(16, -1, np.int64)
    emulate(module, (1, 1, 1), [flags, out])
    lanes = np.arange(16)
    wanted = {-1: lanes + 7, 5: 2 * lanes, 6: np.full(16, -1), 9: lanes}[flag]
    assert (out == wanted).all()
    if flag != 6:  # which writes nothing
        agree(module, [flags, np.full(16, -2, np.int64)])


def test_a_switch_that_lanes_disagree_on_stops_the_run():
    module = lane_kernel(SWITCHED, ID + SWITCH.format(at="%lane"))
    with pytest.raises(CheckError, match=r"cf\.switch differs between the lanes"):
        emulate(module, (1, 1, 1), [np.arange(16, dtype=np.int32), np.zeros(16, np.int64)])


def test_a_branch_between_blocks_that_lanes_disagree_on_is_refused():
    body = (
        ID
        + """
  %k = arith.cmpi ult, %lane, %c8 : index
  cf.cond_br %k, ^a, ^b
^a:
  memref.store %lane, %o[%me] : memref<16xindex>
  cf.br ^b
^b:
  gpu.return"""
    )
    module = lane_kernel("%o: memref<16xindex>", body)
    # Lanes are asked when the program runs: it stops with the op's place.
    with pytest.raises((CheckError, UnsupportedError), match="differs between"):
        emulate(module, (1, 1, 1), [np.zeros(16, np.int64)])


def test_a_lane_has_memory_of_its_own(rng):
    body = (
        ID
        + """
  %m = memref.alloca() : memref<4xf32>
  %n = arith.constant 4 : index
  scf.for %i = %c0 to %n step %c1 {
    %at = arith.addi %me, %i : index
    %x = memref.load %a[%at] : memref<?xf32>
    memref.store %x, %m[%i] : memref<4xf32>
  }
  %k = arith.remui %lane, %n : index
  %y = memref.load %m[%k] : memref<4xf32>
  %v = vector.load %m[%c0] : memref<4xf32>, vector<4xf32>
  %s = vector.reduction <add>, %v : vector<4xf32> into f32
  %t = arith.addf %y, %s : f32
  memref.store %t, %o[%me] : memref<?xf32>"""
    )
    agree(lane_kernel("%a: memref<?xf32>, %o: memref<?xf32>", body), [data(rng, 32), data(rng, 16)])


def test_views_and_vectors_of_arrays(rng):
    body = (
        ID
        + """
  %row = arith.remui %lane, %c8 : index
  %sub = memref.subview %a[%row, 2] [1, 8] [1, 1] : memref<8x16xf32> to memref<8xf32, strided<[1], offset: ?>>
  %v = vector.load %sub[%c1] : memref<8xf32, strided<[1], offset: ?>>, vector<4xf32>
  %pad = arith.constant 7.0 : f32
  %t = vector.transfer_read %a[%row, %lane], %pad : memref<8x16xf32>, vector<4xf32>
  %w = arith.addf %v, %t : vector<4xf32>
  %mask = vector.create_mask %row : vector<4xi1>
  %u = vector.maskedload %a[%row, %c3], %mask, %w : memref<8x16xf32>, vector<4xi1>, vector<4xf32> into vector<4xf32>
  %flat = memref.collapse_shape %a [[0, 1]] : memref<8x16xf32> into memref<128xf32>
  %cast = memref.reinterpret_cast %flat to offset: [4], sizes: [16, 4], strides: [4, 1] : memref<128xf32> to memref<16x4xf32, strided<[4, 1], offset: 4>>
  %x = vector.load %cast[%lane, %c0] : memref<16x4xf32, strided<[4, 1], offset: 4>>, vector<4xf32>
  %y = arith.addf %u, %x : vector<4xf32>
  vector.store %y, %o[%lane, %c0] : memref<16x8xf32>, vector<4xf32>
  vector.transfer_write %w, %o[%lane, %c3] : vector<4xf32>, memref<16x8xf32>
  vector.maskedstore %o[%lane, %c1], %mask, %u : memref<16x8xf32>, vector<4xi1>, vector<4xf32>"""
    )
    args = "%a: memref<8x16xf32>, %o: memref<16x8xf32>"
    agree(lane_kernel(args, body), [data(rng, 8, 16), data(rng, 16, 8)])


OPS = {
    "shape_cast": "%r = vector.shape_cast %v : vector<8xf32> to vector<2x4xf32>\n%z = vector.shape_cast %r : vector<2x4xf32> to vector<8xf32>",
    "transpose": "%r = vector.shape_cast %v : vector<8xf32> to vector<2x4xf32>\n%t = vector.transpose %r, [1, 0] : vector<2x4xf32> to vector<4x2xf32>\n%z = vector.shape_cast %t : vector<4x2xf32> to vector<8xf32>",
    "interleave": "%a0, %b0 = vector.deinterleave %v : vector<8xf32> -> vector<4xf32>\n%s0 = arith.addf %a0, %b0 : vector<4xf32>\n%z = vector.interleave %s0, %a0 : vector<4xf32> -> vector<8xf32>",
    "slices": "%e = vector.extract_strided_slice %v {offsets = [2], sizes = [4], strides = [1]} : vector<8xf32> to vector<4xf32>\n%z = vector.insert_strided_slice %e, %v {offsets = [4], strides = [1]} : vector<4xf32> into vector<8xf32>",
    "shuffle": "%z = vector.shuffle %v, %v [3, 9, 1, 15, 0, 7, 2, 4] : vector<8xf32>, vector<8xf32>",
    "insert": "%e = vector.extract %v[5] : f32 from vector<8xf32>\n%z = vector.insert %e, %v[1] : f32 into vector<8xf32>",
    "at a lane's place": "%k = arith.remui %lane, %c8 : index\n%e = vector.extract %v[%k] : f32 from vector<8xf32>\n%d = arith.addf %e, %e : f32\n%z = vector.insert %d, %v[%k] : f32 into vector<8xf32>",
    "broadcast": "%e = vector.extract %v[5] : f32 from vector<8xf32>\n%z = vector.broadcast %e : f32 to vector<8xf32>",
    "bits": "%b = vector.bitcast %v : vector<8xf32> to vector<16xi16>\n%h = arith.addi %b, %b : vector<16xi16>\n%z = vector.bitcast %h : vector<16xi16> to vector<8xf32>",
    "constant": "%k = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : vector<8xf32>\n%z = arith.mulf %v, %k : vector<8xf32>",
    "reductions": "%s = vector.reduction <maximumf>, %v : vector<8xf32> into f32\n%r = vector.shape_cast %v : vector<8xf32> to vector<2x4xf32>\n%q = vector.extract %r[0] : vector<4xf32> from vector<2x4xf32>\n%m = vector.multi_reduction <add>, %r, %q [0] : vector<2x4xf32> to vector<4xf32>\n%i = vector.interleave %m, %m : vector<4xf32> -> vector<8xf32>\n%b = vector.broadcast %s : f32 to vector<8xf32>\n%z = arith.addf %i, %b : vector<8xf32>",
    "fma": "%z = vector.fma %v, %v, %v : vector<8xf32>",
    "select": "%k = arith.cmpi ult, %lane, %c8 : index\n%n = arith.negf %v : vector<8xf32>\n%z = arith.select %k, %v, %n : vector<8xf32>",
    "masks": "%c = vector.create_mask %lane : vector<8xi1>\n%n = arith.negf %v : vector<8xf32>\n%z = arith.select %c, %v, %n : vector<8xi1>, vector<8xf32>",
}


@pytest.mark.parametrize("op", OPS)
def test_ops_on_a_lanes_vector(rng, op):
    body = (
        ID
        + f"""
  %t = xegpu.create_nd_tdesc %a : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
  {OPS[op].replace("%t ", "%tt ").replace("%t :", "%tt :")}
  %to = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %z, %to[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
    )
    args = "%a: memref<8x16xf32>, %o: memref<8x16xf32>"
    agree(lane_kernel(args, body), [data(rng, 8, 16), data(rng, 8, 16)])


def test_work_grows_with_the_program():
    """Four times the ops, at most five times the work."""

    def work(count: int) -> int:
        lines = [ID, "  %v0 = arith.constant dense<1.0> : vector<8xf32>\n"]
        lines.append("  %x0 = memref.load %a[%me] : memref<16xf32>\n")
        lines.append("  %w0 = vector.broadcast %x0 : f32 to vector<8xf32>\n")
        for i in range(count):
            lines.append(f"  %v{i + 1} = arith.mulf %w{i}, %v0 : vector<8xf32>\n")
            lines.append(f"  %w{i + 1} = arith.addf %v{i + 1}, %w{max(0, i - 3)} : vector<8xf32>\n")
            lines.append(f"  %y{i} = vector.extract %w{i + 1}[{i % 8}] : f32 from vector<8xf32>\n")
            if i % 50 == 0:
                lines.append(f"  memref.store %y{i}, %a[%me] : memref<16xf32>\n")
        module = lane_kernel("%a: memref<16xf32>", "".join(lines))
        return calls(lambda: build(module))

    work(1)
    assert work(320) < 5 * work(80)


def test_cases_that_lanes_choose(rng):
    body = (
        ID
        + """
  %k = arith.remui %lane, %c3 : index
  %x = memref.load %a[%lane] : memref<16xf32>
  %r = scf.index_switch %k -> f32
  case 0 {
    %y = arith.addf %x, %x : f32
    scf.yield %y : f32
  }
  case 2 {
    %y = arith.negf %x : f32
    memref.store %y, %b[%lane] : memref<16xf32>
    scf.yield %y : f32
  }
  default {
    scf.yield %x : f32
  }
  memref.store %r, %o[%lane] : memref<16xf32>"""
    )
    args = "%a: memref<16xf32>, %b: memref<16xf32>, %o: memref<16xf32>"
    agree(lane_kernel(args, body), [data(rng, 16) for _ in range(3)])


def test_vectors_of_scalars(rng):
    """Of more than two, of lanes and of all; and scalars of them."""
    body = """
  %lane = gpu.lane_id
  %two = arith.constant 2.0 : f32
  %x = memref.load %a[%lane] : memref<16xf32>
  %y = arith.addf %x, %two : f32
  %z = arith.mulf %x, %two : f32
  %own = vector.from_elements %x, %y, %z, %two : vector<2x2xf32>
  %e:4 = vector.to_elements %own : vector<2x2xf32>
  %all = vector.from_elements %two, %two, %two : vector<3xf32>
  %f:3 = vector.to_elements %all : vector<3xf32>
  %s = arith.subf %e#2, %e#1 : f32
  %r = arith.addf %s, %f#2 : f32
  memref.store %r, %o[%lane] : memref<16xf32>"""
    args = "%a: memref<16xf32>, %o: memref<16xf32>"
    agree(lane_kernel(args, body), [data(rng, 16) for _ in range(2)])
