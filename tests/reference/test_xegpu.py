# ruff: noqa: E501
"""XeGPU below workgroup level: subgroups with their own blocks, lanes with their own fragments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.texts import parse_module
from tilewright import reference
from tilewright.diagnostics import CheckError, UnsupportedError
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target


def kernel(args: str, body: str, attributes: str) -> Any:
    return parse_module(
        f"gpu.module @m {{ gpu.func @k({args}) kernel attributes {{{attributes}}} {{\n{body}\n"
        "gpu.return } }",
        "kernel.mlir",
    )


def lanes(count: int = 1, width: int = 16) -> str:
    return (
        f'tilewright.level = "lane", tilewright.subgroups = {count} : i64, '
        f"tilewright.lanes = {width} : i64"
    )


def subgroups(count: int) -> str:
    return f'tilewright.level = "subgroup", tilewright.subgroups = {count} : i64'


def close(found: np.ndarray, expected: np.ndarray, limit: float = 1e-6) -> None:
    error = np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)
    assert error < limit, error


# element, lanes, K, A's per-lane elements, B's
PRODUCTS = [
    ("f16", 16, 16, 8, 16),
    ("i8", 16, 32, 16, 32),
    ("f16", 8, 16, 16, 16),
    ("i8", 8, 32, 32, 32),
    ("f32", 16, 8, 4, 8),
]


@pytest.mark.parametrize(("element", "width", "k", "a", "b"), PRODUCTS)
def test_dpas_on_lane_fragments(element: str, width: int, k: int, a: int, b: int):
    out = "i32" if element == "i8" else "f32"
    packed = "" if element == "f32" else " <{packed}>"
    tdesc = "!xegpu.tensor_desc"
    body = f"""
  %k0 = arith.constant {k} : index
  %kk = arith.constant {3 * k} : index
  %z = arith.constant dense<0{"" if out == "i32" else ".0"}> : vector<8x{out}>
  %ta = xegpu.create_nd_tdesc %a : memref<8x{3 * k}x{element}> -> {tdesc}<8x{k}x{element}>
  %tb = xegpu.create_nd_tdesc %b : memref<{3 * k}x{width}x{element}> -> {tdesc}<{k}x{width}x{element}>
  %r = scf.for %i = %c0 to %kk step %k0 iter_args(%acc = %z) -> (vector<8x{out}>) {{
    %va = xegpu.load_nd %ta[0, %i] : {tdesc}<8x{k}x{element}> -> vector<{a}x{element}>
    %vb = xegpu.load_nd %tb[%i, 0]{packed} : {tdesc}<{k}x{width}x{element}> -> vector<{b}x{element}>
    %n = xegpu.dpas %va, %vb, %acc : vector<{a}x{element}>, vector<{b}x{element}>, vector<8x{out}> -> vector<8x{out}>
    scf.yield %n : vector<8x{out}>
  }}
  %tc = xegpu.create_nd_tdesc %c : memref<8x{width}x{out}> -> {tdesc}<8x{width}x{out}>
  xegpu.store_nd %r, %tc[0, 0] : vector<8x{out}>, {tdesc}<8x{width}x{out}>"""
    args = f"%a: memref<8x{3 * k}x{element}>, %b: memref<{3 * k}x{width}x{element}>, "
    module = kernel(args + f"%c: memref<8x{width}x{out}>", body, lanes(1, width))
    rng = fresh_rng()
    if element == "i8":
        left = rng.integers(-128, 128, (8, 3 * k)).astype(np.int8)
        right = rng.integers(-128, 128, (3 * k, width)).astype(np.int8)
        result = np.full((8, width), -1, np.int32)
        reference.run(module, 1, [left, right, result])
        np.testing.assert_array_equal(result, left.astype(np.int64) @ right.astype(np.int64))
        return
    dtype = {"f16": np.float16, "f32": np.float32}[element]
    left = rng.standard_normal((8, 3 * k)).astype(dtype)
    right = rng.standard_normal((3 * k, width)).astype(dtype)
    result = np.full((8, width), np.nan, np.float32)
    reference.run(module, 1, [left, right, result])
    close(result, left.astype(np.float64) @ right.astype(np.float64))


def test_sg_maps_give_fragments_of_units_and_packed_elements():
    a_map = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>"
    b_map = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>"
    body = f"""
  %ta = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xbf16> -> !xegpu.tensor_desc<8x16xbf16, {a_map}>
  %tb = xegpu.create_nd_tdesc %b[0, 0] : memref<16x16xbf16> -> !xegpu.tensor_desc<16x16xbf16, {b_map}>
  %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32, {a_map}>
  %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xbf16, {a_map}> -> vector<8x1xbf16>
  %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<16x16xbf16, {b_map}> -> vector<8x2xbf16>
  %r = xegpu.dpas %va, %vb {{layout_a = {a_map}, layout_b = {b_map}, layout_cd = {a_map}}} : vector<8x1xbf16>, vector<8x2xbf16> -> vector<8x1xf32>
  xegpu.store_nd %r, %tc : vector<8x1xf32>, !xegpu.tensor_desc<8x16xf32, {a_map}>"""
    args = "%a: memref<8x16xbf16>, %b: memref<16x16xbf16>, %c: memref<8x16xf32>"
    import ml_dtypes

    from tilewright.dialects.text import print_module
    from tilewright.passes.xegpu.upgrade import upgrade

    rng = fresh_rng()
    left, right = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((8, 16), (16, 16)))
    expected = left.astype(np.float64) @ right.astype(np.float64)
    module = kernel(args, body, lanes())
    for _ in range(2):  # as written, and as today's text has it
        result = np.full((8, 16), np.nan, np.float32)
        reference.run(module, 1, [left, right, result])
        close(result, expected)
        upgrade(module)
        assert "sg_map" not in print_module(module)


@pytest.mark.parametrize("array_length", [1, 2])
def test_each_lane_owns_a_column_and_a_transposed_load_gives_it_a_row(array_length: int):
    n = 16 * array_length
    tdesc = f"!xegpu.tensor_desc<8x16xf32, #xegpu.block_tdesc_attr<array_length = {array_length}>>"
    count = 8 * array_length
    body = f"""
  %t = xegpu.create_nd_tdesc %a : memref<8x{n}xf32> -> {tdesc}
  %v = xegpu.load_nd %t[0, 0] : {tdesc} -> vector<{count}xf32>
  %u = xegpu.create_nd_tdesc %b : memref<16x8xf32> -> !xegpu.tensor_desc<16x8xf32>
  %w = xegpu.load_nd %u[0, 0] <{{transpose = array<i64: 1, 0>}}> : !xegpu.tensor_desc<16x8xf32> -> vector<8xf32>
  %lane = gpu.lane_id
  vector.store %v, %o[%lane, %lane] : memref<16x64xf32>, vector<{count}xf32>
  vector.store %w, %p[%lane, %lane] : memref<16x64xf32>, vector<8xf32>"""
    args = (
        f"%a: memref<8x{n}xf32>, %b: memref<16x8xf32>, %o: memref<16x64xf32>, %p: memref<16x64xf32>"
    )
    rng = fresh_rng()
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((8, n), (16, 8)))
    o, p = (np.zeros((16, 64), np.float32) for _ in range(2))
    reference.run(kernel(args, body, lanes()), 1, [a, b, o, p])
    for lane in range(16):
        columns = [a[:, lane + 16 * block] for block in range(array_length)]
        np.testing.assert_array_equal(o[lane, lane : lane + count], np.concatenate(columns))
        np.testing.assert_array_equal(p[lane, lane : lane + 8], b[lane])


def test_shuffles_and_lane_reductions():
    body = """
  %lane = gpu.lane_id
  %sg = gpu.subgroup_id
  %w = arith.constant 16 : i32
  %three = arith.constant 3 : i32
  %i = arith.index_cast %lane : index to i32
  %x, %ok = gpu.shuffle xor %i, %three, %w : i32
  %d, %valid = gpu.shuffle down %i, %three, %w : i32
  %s = gpu.subgroup_reduce add %i : (i32) -> i32
  %v = arith.extui %valid : i1 to i32
  %r = arith.muli %sg, %c16 : index
  %row = arith.addi %r, %lane : index
  memref.store %x, %o[%row, %c0] : memref<32x3xi32>
  memref.store %s, %o[%row, %c1] : memref<32x3xi32>
  memref.store %v, %o[%row, %c2] : memref<32x3xi32>"""
    out = np.full((32, 3), -1, np.int32)
    reference.run(kernel("%o: memref<32x3xi32>", body, lanes(2)), 1, [out])
    lane = np.arange(32) % 16
    np.testing.assert_array_equal(out[:, 0], lane ^ 3)
    np.testing.assert_array_equal(out[:, 1], np.full(32, 120))
    np.testing.assert_array_equal(out[:, 2], lane < 13)


def test_a_launch_has_subgroups_of_as_many_lanes_as_exchange():
    text = """func.func @main(%o: memref<64xi32>) {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%x, %y, %z) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%t, %u, %v) in (%bx = %c64, %by = %c1, %bz = %c1) {
    %half = arith.constant 16 : i32
    %w = arith.constant 32 : i32
    %i = arith.index_cast %t : index to i32
    %r, %ok = gpu.shuffle xor %i, %half, %w : i32
    memref.store %r, %o[%t] : memref<64xi32>
    gpu.terminator
  }
  return
}"""
    out = np.full(64, -1, np.int32)
    reference.run(parse_module(text), 1, [out], kernel="main")
    np.testing.assert_array_equal(out, np.arange(64) ^ 16)


def test_scattered_accesses_of_single_lanes():
    body = """
  %lane = gpu.lane_id
  %two = arith.constant 2 : index
  %o = arith.muli %lane, %two : index
  %eight = arith.constant 8 : index
  %k = arith.cmpi ult, %lane, %eight : index
  %all = arith.constant true
  %v = xegpu.load %a[%o], %all <{chunk_size = 2 : i64}> : memref<64xf32>, index, i1 -> vector<2xf32>
  %s = arith.addf %v, %v : vector<2xf32>
  xegpu.store %s, %b[%o], %k <{chunk_size = 2 : i64}> : vector<2xf32>, memref<64xf32>, index, i1"""
    a = fresh_rng().standard_normal(64).astype(np.float32)
    b = np.zeros(64, np.float32)
    reference.run(kernel("%a: memref<64xf32>, %b: memref<64xf32>", body, lanes()), 1, [a, b])
    expected = np.zeros(64, np.float32)
    expected[:16] = 2 * a[:16]
    np.testing.assert_array_equal(b, expected)


def test_a_collective_that_not_all_lanes_reach_is_an_error():
    body = """
  %lane = gpu.lane_id
  %k = arith.cmpi ult, %lane, %c8 : index
  %t = xegpu.create_nd_tdesc %a : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  scf.if %k {
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
    xegpu.store_nd %v, %t[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
  }"""
    module = kernel("%a: memref<8x16xf32>", body, lanes())
    with pytest.raises(CheckError, match="not all of them"):
        reference.run(module, 1, [np.zeros((8, 16), np.float32)])


def test_subgroups_meet_at_named_barriers_and_share_matrices():
    body = """
  %sg = gpu.subgroup_id
  %row = arith.muli %sg, %c8 : index
  %slm = memref.alloc() : memref<2048xi8, 3>
  %m = xegpu.create_mem_desc %slm : memref<2048xi8, 3> -> !xegpu.mem_desc<32x16xf32, #xegpu.mem_layout<stride = [1, 32], block = [8, 16]>>
  %id = arith.constant 1 : i8
  %n = arith.constant 4 : i8
  xegpu.alloc_nbarrier 2
  %bar = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
  %t = xegpu.create_nd_tdesc %a : memref<32x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %v = xegpu.load_nd %t[%row, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  xegpu.store_matrix %v, %m[%row, 0] : vector<8x16xf32>, !xegpu.mem_desc<32x16xf32, #xegpu.mem_layout<stride = [1, 32], block = [8, 16]>>, index
  xegpu.nbarrier_arrive %bar : !xegpu.nbarrier
  xegpu.nbarrier_wait %bar : !xegpu.nbarrier
  %o = arith.subi %c3, %sg : index
  %other = arith.muli %o, %c8 : index
  %w = xegpu.load_matrix %m[%other, 0] : !xegpu.mem_desc<32x16xf32, #xegpu.mem_layout<stride = [1, 32], block = [8, 16]>>, index -> vector<8x16xf32>
  %u = xegpu.create_nd_tdesc %b : memref<32x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %w, %u[%row, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>"""
    a = fresh_rng().standard_normal((32, 16)).astype(np.float32)
    b = np.full_like(a, np.nan)
    args = "%a: memref<32x16xf32>, %b: memref<32x16xf32>"
    report = reference.run(kernel(args, body, subgroups(4)), 1, [a, b], check=True)
    np.testing.assert_array_equal(b, a.reshape(4, 8, 16)[::-1].reshape(32, 16))
    assert not report.findings, report.findings
    without = "\n".join(line for line in body.splitlines() if "nbarrier_" not in line)
    found = reference.run(kernel(args, without, subgroups(4)), 1, [a, b], check=True)
    assert found.findings  # the race that the barrier prevented


def test_products_of_small_floats():
    """dpas_mx with f8 operands; absent scales are 1."""
    import ml_dtypes

    body = """
  %ta = xegpu.create_nd_tdesc %a : memref<8x64xf8E5M2> -> !xegpu.tensor_desc<8x64xf8E5M2>
  %tb = xegpu.create_nd_tdesc %b : memref<64x16xf8E5M2> -> !xegpu.tensor_desc<64x16xf8E5M2>
  %tc = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %va = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<8x64xf8E5M2> -> vector<8x64xf8E5M2>
  %vb = xegpu.load_nd %tb[0, 0] <{packed}> : !xegpu.tensor_desc<64x16xf8E5M2> -> vector<16x16x4xf8E5M2>
  %vc = xegpu.load_nd %tc[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  %r = xegpu.dpas_mx %va, %vb, %vc : (vector<8x64xf8E5M2>, vector<16x16x4xf8E5M2>, vector<8x16xf32>) -> vector<8x16xf32>
  xegpu.store_nd %r, %tc[0, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>"""
    rng = fresh_rng()
    a = rng.standard_normal((8, 64)).astype(ml_dtypes.float8_e5m2)
    b = rng.standard_normal((64, 16)).astype(ml_dtypes.float8_e5m2)
    c = rng.standard_normal((8, 16)).astype(np.float32)
    expected = c + a.astype(np.float64) @ b.astype(np.float64)
    args = "%a: memref<8x64xf8E5M2>, %b: memref<64x16xf8E5M2>, %c: memref<8x16xf32>"
    reference.run(kernel(args, body, subgroups(1)), 1, [a, b, c])
    close(c, expected)


WHOLE = """
#l = #xegpu.layout<sg_layout = [4, 2], sg_data = [8, 16]>
gpu.module @m {{ gpu.func @k(%a: memref<32x32xf32>, %b: memref<32x32xf32>) kernel {{
  %id = arith.constant 1 : i8
  %n = arith.constant {count} : i8
  xegpu.alloc_nbarrier 2
  %t = xegpu.create_nd_tdesc %a : memref<32x32xf32> -> !xegpu.tensor_desc<32x32xf32, #l>
  %u = xegpu.create_nd_tdesc %b : memref<32x32xf32> -> !xegpu.tensor_desc<32x32xf32, #l>
  {body}
  gpu.return }} }}
"""
LOOP = """
  %bar = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
  scf.for %i = %c0 to %c3 step %c1 {
    xegpu.nbarrier_arrive %bar : !xegpu.nbarrier
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<32x32xf32, #l> -> vector<32x32xf32>
    xegpu.nbarrier_wait %bar : !xegpu.nbarrier
    xegpu.store_nd %v, %u[0, 0] : vector<32x32xf32>, !xegpu.tensor_desc<32x32xf32, #l>
  }"""
RUN = f"""
  %sg = gpu.subgroup_id : index
  %some = arith.cmpi uge, %sg, %c3 : index
  scf.if %some {{{LOOP}
  }} {{sg_id_range = #xegpu.range<[3, 11]>}}"""


@pytest.mark.parametrize("body", [LOOP, RUN], ids=["all", "a run of subgroups"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_workgroup_arrives_for_all_of_its_subgroups(body: str, target: str):
    """One program stands for the 8 subgroups of the layout, at barriers and in a branch that 8 of them take."""
    module = parse_module(WHOLE.format(count=8, body=body), "workgroup.mlir")
    a = fresh_rng().standard_normal((32, 32)).astype(np.float32)
    b = np.full_like(a, np.nan)
    if target == "reference":
        reference.run(module, 1, [a, b], check=True).raise_on_error()
    else:
        executable = get_target(target).build(module, CompileOptions(target=target))
        executable.launch((1, 1, 1), [describe(a), describe(b)])
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("body", [LOOP, RUN], ids=["all", "a run of subgroups"])
def test_a_barrier_of_other_subgroups_than_those_that_come(body: str):
    module = parse_module(WHOLE.format(count=6, body=body), "workgroup.mlir")
    a = np.zeros((32, 32), np.float32)
    with pytest.raises(CheckError, match="expects 6 subgroups, and 8 do this op"):
        reference.run(module, 1, [a, a.copy()])
    with pytest.raises(UnsupportedError, match="expects 6 subgroups, and 8 do this op") as caught:
        get_target("cpu").build(module, CompileOptions())
    assert caught.value.location is not None
