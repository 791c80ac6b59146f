"""Kernels as such programs have them: spellings of all generations, ragged and batched, in the types of the machines.

Each runs compiled and on the executor, and says through which path: what is compiled must not fall back unnoticed.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.program.fragments import launch
from tilewright.tools.cli import main

NUMPY = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
}


def kernel(arguments: str, body: str) -> str:
    used = sorted({int(n) for n in re.findall(r"%c(\d+)\b", body)})
    constants = "\n".join(f"%c{n} = arith.constant {n} : index" for n in used)
    return (
        "module attributes {gpu.container_module} {\n gpu.module @k {\n"
        f"  gpu.func @f({arguments}) kernel {{\n{constants}\n"
        f"%bx = gpu.block_id x\n%by = gpu.block_id y\n%bz = gpu.block_id z\n{body}\n"
        "gpu.return\n}\n}\n}"
    )


def numbers(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    dtype = NUMPY[element]
    if dtype.kind in "iu":
        return rng.integers(-8, 8, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(text, grid, block, arrays, want, path, tolerance=2e-6):
    """Runs on both targets; the last array is the result."""
    for target in ("cpu", "reference"):
        copies = [a.copy() for a in arrays]
        said = launch(text, grid, block, copies, target)
        if target == "cpu":
            assert path in said[-1]
        got = copies[-1].astype(np.float64)
        norm = max(float(np.linalg.norm(want)), 1e-30)
        assert float(np.linalg.norm(got - want)) / norm < tolerance


LAYOUT = "#xegpu.layout<sg_layout = [2, 2], sg_data = [32, 32], inst_data = [8, 16]>"


def gemm(m: int, n: int, k: int, element: str, result: str, sums: str, batch: int, old: bool):
    lead, at = (f"{batch}x", "%bz, ") if batch else ("", "")
    memrefs = [f"memref<{lead}{s}x{t}>" for s, t in (
        (f"{m}x{k}", element), (f"{k}x{n}", element), (f"{m}x{n}", result))]  # fmt: skip
    ta, tb, tc = (f"!xegpu.tensor_desc<{s}x{t}, {LAYOUT}>" for s, t in (
        ("64x32", element), ("32x64", element), ("64x64", result)))  # fmt: skip
    va, vb, vc, vo = (f"vector<{s}x{t}>" for s, t in (
        ("64x32", element), ("32x64", element), ("64x64", sums), ("64x64", result)))  # fmt: skip
    zero = "0" if sums[0] == "i" else "0.0"
    rounded = "" if sums == result else f"%o = arith.truncf %sum : {vc} to {vo}\n"
    out = "%o" if rounded else "%sum"
    head = f"""%m = arith.muli %bx, %c64 : index
%n = arith.muli %by, %c64 : index
%z = arith.constant dense<{zero}> : {vc}"""
    if old:
        body = f"""{head}
%ta0 = xegpu.create_nd_tdesc %A[{at}%m, %c0] : {memrefs[0]} -> {ta}
%tb0 = xegpu.create_nd_tdesc %B[{at}%c0, %n] : {memrefs[1]} -> {tb}
%tc = xegpu.create_nd_tdesc %C[{at}%m, %n] : {memrefs[2]} -> {tc}
%sum, %ta9, %tb9 = scf.for %k = %c0 to %c{k} step %c32
    iter_args(%acc = %z, %ta = %ta0, %tb = %tb0) -> ({vc}, {ta}, {tb}) {{
 %a = xegpu.load_nd %ta {{l1_hint = #xegpu.cache_hint<cached>}} : {ta} -> {va}
 %b = xegpu.load_nd %tb <{{l2_hint = #xegpu.cache_hint<uncached>}}> : {tb} -> {vb}
 %d = xegpu.dpas %a, %b, %acc : {va}, {vb}, {vc} -> {vc}
 %ta1 = xegpu.update_nd_offset %ta, [%c0, %c32] : {ta}
 %tb1 = xegpu.update_nd_offset %tb, [%c32, %c0] : {tb}
 scf.yield %d, %ta1, %tb1 : {vc}, {ta}, {tb}
}}
{rounded}xegpu.store_nd {out}, %tc : {vo}, {tc}"""
    else:
        body = f"""{head}
%ta = xegpu.create_nd_tdesc %A : {memrefs[0]} -> {ta}
%tb = xegpu.create_nd_tdesc %B : {memrefs[1]} -> {tb}
%tc = xegpu.create_nd_tdesc %C : {memrefs[2]} -> {tc}
%sum = scf.for %k = %c0 to %c{k} step %c32 iter_args(%acc = %z) -> ({vc}) {{
 %a = xegpu.load_nd %ta[{at}%m, %k] : {ta} -> {va}
 %b = xegpu.load_nd %tb[{at}%k, %n] : {tb} -> {vb}
 xegpu.prefetch_nd %ta[{at}%m, %k] : {ta}
 %d = xegpu.dpas %a, %b, %acc {{layout_cd = {LAYOUT}}} : {va}, {vb}, {vc} -> {vc}
 scf.yield %d : {vc}
}}
{rounded}xegpu.store_nd {out}, %tc[{at}%m, %n] : {vo}, {tc}"""
    names = ", ".join(f"%{x}: {t}" for x, t in zip("ABC", memrefs, strict=True))
    return kernel(names, body)


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize(
    "m, n, k, types, batch",
    [
        (128, 64, 64, ("f16", "f32", "f32"), 0),
        (70, 65, 40, ("bf16", "bf16", "f32"), 2),
        (100, 90, 50, ("i8", "i32", "i32"), 0),
        (64, 64, 32, ("f16", "f16", "f16"), 3),
    ],
)
def test_gemm(m, n, k, types, batch, old, rng):
    element, result, sums = types
    lead = (batch,) if batch else ()
    a, b = numbers(rng, (*lead, m, k), element), numbers(rng, (*lead, k, n), element)
    want = a.astype(np.float64) @ b.astype(np.float64)
    c = np.full(want.shape, 77, NUMPY[result])
    grid = (-(-m // 64), -(-n // 64), batch or 1)
    tolerance = {"bf16": 4e-3, "f16": 1e-3, "f32": 2e-6, "i32": 1e-12}[result]
    text = gemm(m, n, k, element, result, sums, batch, old)
    check(text, grid, (64, 1, 1), [a, b, c], want, "workgroup level, compiled for cpu", tolerance)


TILE = "!xegpu.tensor_desc<32x32xELEMENTLAYOUT>"
PERSISTENT = """%z = arith.constant dense<0.0> : vector<32x32xf32>
%ta = xegpu.create_nd_tdesc %A : memref<96x96xf16> -> TA
%tb = xegpu.create_nd_tdesc %B : memref<96x96xf16> -> TA
%tc = xegpu.create_nd_tdesc %C : memref<96x96xf32> -> TC
%step = gpu.grid_dim x
cf.br ^head(%bx : index)
^head(%tile: index):
%more = arith.cmpi slt, %tile, %c9 : index
cf.cond_br %more, ^body, ^end
^body:
%i = arith.divui %tile, %c3 : index
%j = arith.remui %tile, %c3 : index
%m = arith.muli %i, %c32 : index
%n = arith.muli %j, %c32 : index
%sum = scf.for %k = %c0 to %c96 step %c32 iter_args(%acc = %z) -> (vector<32x32xf32>) {
 %a = xegpu.load_nd %ta[%m, %k] : TA -> vector<32x32xf16>
 %b = xegpu.load_nd %tb[%k, %n] : TA -> vector<32x32xf16>
 %d = xegpu.dpas %a, %b, %acc
   : vector<32x32xf16>, vector<32x32xf16>, vector<32x32xf32> -> vector<32x32xf32>
 scf.yield %d : vector<32x32xf32>
}
xegpu.store_nd %sum, %tc[%m, %n] : vector<32x32xf32>, TC
%next = arith.addi %tile, %step : index
cf.br ^head(%next : index)
^end:"""


@pytest.mark.parametrize("level", ["workgroup", "subgroup"])
def test_persistent_loops_with_branches(level, rng):
    layout = ", #xegpu.layout<sg_layout = [2, 2], sg_data = [16, 16]>"
    tile = TILE.replace("LAYOUT", layout if level == "workgroup" else "")
    body = PERSISTENT.replace("TA", tile.replace("ELEMENT", "f16")).replace(
        "TC", tile.replace("ELEMENT", "f32")
    )
    a, b = numbers(rng, (96, 96), "f16"), numbers(rng, (96, 96), "f16")
    text = kernel("%A: memref<96x96xf16>, %B: memref<96x96xf16>, %C: memref<96x96xf32>", body)
    c = np.full((96, 96), np.nan, np.float32)
    threads = 64 if level == "workgroup" else 16
    want = a.astype(np.float64) @ b.astype(np.float64)
    check(text, (4, 1, 1), (threads, 1, 1), [a, b, c], want, f"{level} level, compiled for cpu")


def test_packed_operands_of_the_older_text(rng):
    ta, tb, tc = (f"!xegpu.tensor_desc<{s}>" for s in ("8x16xbf16", "16x16xbf16", "8x16xf32"))
    body = f"""%sg = gpu.subgroup_id : index
%m = arith.muli %bx, %c8 : index
%n0 = arith.muli %by, %c32 : index
%part = arith.muli %sg, %c16 : index
%n = arith.addi %n0, %part : index
%z = arith.constant dense<0.0> : vector<8x16xf32>
%h = memref.dim %A, %c0 : memref<?x?xbf16>
%w = memref.dim %A, %c1 : memref<?x?xbf16>
%ta0 = xegpu.create_nd_tdesc %A[%m, %c0], shape : [%h, %w], strides : [%w, %c1]
  : memref<?x?xbf16> -> {ta}
%tb0 = xegpu.create_nd_tdesc %B[%c0, %n] : memref<64x64xbf16> -> {tb}
%tc = xegpu.create_nd_tdesc %C[%m, %n] : memref<64x64xf32> -> {tc}
%r:3 = scf.for %k = %c0 to %c64 step %c16 iter_args(%acc = %z, %ta = %ta0, %tb = %tb0)
    -> (vector<8x16xf32>, {ta}, {tb}) {{
 %a = xegpu.load_nd %ta <{{l1_hint = #xegpu.cache_hint<cached>}}> : {ta} -> vector<8x16xbf16>
 %b = xegpu.load_nd %tb <{{packed}}> : {tb} -> vector<8x16x2xbf16>
 xegpu.compile_hint
 %d = xegpu.dpas %a, %b, %acc
   : vector<8x16xbf16>, vector<8x16x2xbf16>, vector<8x16xf32> -> vector<8x16xf32>
 %ta1 = xegpu.update_nd_offset %ta, [%c0, %c16] : {ta}
 %tb1 = xegpu.update_nd_offset %tb, [%c16, %c0] : {tb}
 scf.yield %d, %ta1, %tb1 : vector<8x16xf32>, {ta}, {tb}
}}
xegpu.store_nd %r#0, %tc : vector<8x16xf32>, {tc}"""
    a, b = numbers(rng, (64, 64), "bf16"), numbers(rng, (64, 64), "bf16")
    text = kernel("%A: memref<?x?xbf16>, %B: memref<64x64xbf16>, %C: memref<64x64xf32>", body)
    want = a.astype(np.float64) @ b.astype(np.float64)
    c = np.zeros((64, 64), np.float32)
    check(text, (8, 2, 1), (2, 1, 1), [a, b, c], want, "subgroup level, compiled for cpu")


def test_a_transpose_through_shared_memory(rng):
    body = """%sg = gpu.subgroup_id : index
%o = arith.muli %sg, %c16 : index
%t = xegpu.create_nd_tdesc %A : memref<32x32xf32> -> !xegpu.tensor_desc<16x32xf32>
%v = xegpu.load_nd %t[%o, %c0] : !xegpu.tensor_desc<16x32xf32> -> vector<16x32xf32>
%slm = memref.alloca() : memref<4096xi8, 3>
%md = xegpu.create_mem_desc %slm : memref<4096xi8, 3> -> !xegpu.mem_desc<32x32xf32>
xegpu.store_matrix %v, %md[%o, %c0] : vector<16x32xf32>, !xegpu.mem_desc<32x32xf32>
gpu.barrier
%w = xegpu.load_matrix %md[%c0, %o] : !xegpu.mem_desc<32x32xf32> -> vector<32x16xf32>
%x = vector.transpose %w, [1, 0] : vector<32x16xf32> to vector<16x32xf32>
%tc = xegpu.create_nd_tdesc %C : memref<32x32xf32> -> !xegpu.tensor_desc<16x32xf32>
xegpu.store_nd %x, %tc[%o, %c0] : vector<16x32xf32>, !xegpu.tensor_desc<16x32xf32>"""
    a = numbers(rng, (32, 32), "f32")
    text = kernel("%A: memref<32x32xf32>, %C: memref<32x32xf32>", body)
    c = np.zeros((32, 32), np.float32)
    check(text, (1, 1, 1), (32, 1, 1), [a, c], a.T.astype(np.float64), "subgroup level, compiled")


def test_parts_put_into_tiles(rng):
    tile, v = "!xegpu.tensor_desc<32x32xf32>", "vector<32x32xf32>"
    half = "vector<16x32xf32>"
    body = f"""%t = xegpu.create_nd_tdesc %A : memref<32x32xf32> -> {tile}
%v = xegpu.load_nd %t[%c0, %c0] : {tile} -> {v}
%a = vector.extract_strided_slice %v {{offsets = [0, 0], sizes = [16, 32], strides = [1, 1]}}
  : {v} to {half}
%b = vector.extract_strided_slice %v {{offsets = [16, 0], sizes = [16, 32], strides = [1, 1]}}
  : {v} to {half}
%s = arith.addf %a, %b : {half}
%one = arith.constant dense<1.0> : {v}
%i = vector.insert_strided_slice %s, %one {{offsets = [8, 0], strides = [1, 1]}} : {half} into {v}
%narrow = vector.extract_strided_slice %v {{offsets = [0, 4], sizes = [32, 7], strides = [1, 1]}}
  : {v} to vector<32x7xf32>
%j = vector.insert_strided_slice %narrow, %i {{offsets = [0, 21], strides = [1, 1]}}
  : vector<32x7xf32> into {v}
%row = vector.extract %v[3] : vector<32xf32> from {v}
%k = vector.insert %row, %j [30] : vector<32xf32> into {v}
%e = vector.extract %v[2, 4] : f32 from {v}
%l = vector.insert %e, %k [0, 0] : f32 into {v}
%c = xegpu.create_nd_tdesc %C : memref<32x32xf32> -> {tile}
xegpu.store_nd %l, %c[%c0, %c0] : {v}, {tile}"""
    a = numbers(rng, (32, 32), "f32")
    want = np.ones((32, 32))
    want[8:24] = a[:16] + a[16:]
    want[:, 21:28] = a[:, 4:11]
    want[30] = a[3]
    want[0, 0] = a[2, 4]
    text = kernel("%A: memref<32x32xf32>, %C: memref<32x32xf32>", body)
    c = np.zeros((32, 32), np.float32)
    check(text, (1, 1, 1), (1, 1, 1), [a, c], want, "subgroup level, compiled for cpu")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_masks_of_leading_boxes(rank, rng):
    shape = {1: (64,), 2: (4, 16), 3: (2, 4, 8)}[rank]
    size = "x".join(map(str, shape))
    bounds = (3, 13) if rank == 2 else (20,) if rank == 1 else (2, 3, 5)
    names = ", ".join(f"%c{n}" for n in bounds)
    fixed = ", ".join(str(n - 1) for n in bounds)
    body = f"""%line = vector.step : vector<64xindex>
%of = vector.shape_cast %line : vector<64xindex> to vector<{size}xindex>
%m = vector.create_mask {names} : vector<{size}xi1>
%f = vector.constant_mask [{fixed}] : vector<{size}xi1>
%v = xegpu.load %A[%of], %m
  : memref<64xf32>, vector<{size}xindex>, vector<{size}xi1> -> vector<{size}xf32>
%two = arith.constant dense<2.0> : vector<{size}xf32>
%s = arith.select %f, %v, %two : vector<{size}xi1>, vector<{size}xf32>
%all = arith.constant dense<true> : vector<{size}xi1>
xegpu.store %s, %C[%of], %all
  {{layout = #xegpu.layout<sg_layout = {[1] * rank}, sg_data = {list(shape)}>}}
  : vector<{size}xf32>, memref<64xf32>, vector<{size}xindex>, vector<{size}xi1>"""
    a = numbers(rng, (64,), "f32")
    want = np.full(shape, 2.0)
    box = tuple(slice(n - 1) for n in bounds)
    want[box] = a.reshape(shape)[box]
    text = kernel("%A: memref<64xf32>, %C: memref<64xf32>", body)
    c = np.zeros(64, np.float32)
    check(text, (1, 1, 1), (16, 1, 1), [a, c], want.ravel(), "workgroup level, compiled for cpu")


def test_single_elements(rng):
    body = """%t = xegpu.create_nd_tdesc %A : memref<4x32xf32>
  -> !xegpu.tensor_desc<4x32xf32, #xegpu.layout<sg_layout = [4, 1], sg_data = [1, 32]>>
%v = xegpu.load_nd %t[%c0, %c0]
  : !xegpu.tensor_desc<4x32xf32, #xegpu.layout<sg_layout = [4, 1], sg_data = [1, 32]>>
  -> vector<4x32xf32>
%zero = arith.constant 0.0 : f32
%s = vector.multi_reduction <add>, %v, %zero [0, 1] : vector<4x32xf32> to f32
%e = memref.load %S[%bx] : memref<3xf32>
%p = arith.mulf %s, %e : f32
memref.store %p, %C[%bx] : memref<3xf32>"""
    a = abs(numbers(rng, (4, 32), "f32"))  # a sum that nothing cancels
    s = numbers(rng, (3,), "f32")
    text = kernel("%A: memref<4x32xf32>, %S: memref<3xf32>, %C: memref<3xf32>", body)
    want = a.astype(np.float64).sum() * s.astype(np.float64)
    c = np.zeros(3, np.float32)
    check(text, (3, 1, 1), (64, 1, 1), [a, s, c], want, "workgroup level, compiled for cpu", 1e-5)


@pytest.mark.parametrize("executed", [("run",), ("check", "--seed", "1")], ids=lambda w: w[0])
def test_a_grid_that_no_machine_counts_is_refused(executed, tmp_path, capfd) -> None:
    """Its product wraps to no programs at all."""
    path = tmp_path / "huge.mlir"
    path.write_text("""
module attributes {gpu.container_module} {
  func.func @main() {
    %huge = arith.constant 4294967296 : index
    %one = arith.constant 1 : index
    %m = memref.alloc() : memref<4xf32>
    gpu.launch_func @m::@k blocks in (%huge, %huge, %huge) threads in (%one, %one, %one) args(%m : memref<4xf32>)
    return
  }
  gpu.module @m {
    gpu.func @k(%m: memref<4xf32>) kernel {
      %zero = arith.constant 0 : index
      %f = arith.constant 1.0 : f32
      memref.store %f, %m[%zero] : memref<4xf32>
      gpu.return
    }
  }
}""")
    assert main([executed[0], str(path), *executed[1:]]) == 1
    assert "axis 0 of the grid is 4294967296" in capfd.readouterr().err
