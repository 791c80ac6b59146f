"""Batches and interleaved values: subgroup-level forms that no instruction has, down to lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from ml_dtypes import float8_e4m3fn as f8e4m3fn
from ml_dtypes import float8_e5m2 as f8e5m2
from xdsl.dialects.builtin import Float32Type

from tests.draws import fresh_rng
from tests.lowering.programs import lowered, ops
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

BATCHED = """
#a = #xegpu.layout<sg_layout = [1, 2, 2], sg_data = [1, 16, 32]>
#b = #xegpu.layout<sg_layout = [1, 2, 2], sg_data = [1, 32, 16]>
#c = #xegpu.layout<sg_layout = [1, 2, 2], sg_data = [1, 16, 16]>
gpu.module @m { gpu.func @f(%a: memref<3x32x32xf16>, %b: memref<3x32x32xf16>, %c: memref<3x32x32xf32>) kernel {
  %n = gpu.block_id x
  %ta = xegpu.create_nd_tdesc %a : memref<3x32x32xf16> -> !xegpu.tensor_desc<1x32x32xf16, #a>
  %tb = xegpu.create_nd_tdesc %b : memref<3x32x32xf16> -> !xegpu.tensor_desc<1x32x32xf16, #b>
  %tc = xegpu.create_nd_tdesc %c : memref<3x32x32xf32> -> !xegpu.tensor_desc<1x32x32xf32, #c>
  xegpu.prefetch_nd %ta[%n, 0, 0] : !xegpu.tensor_desc<1x32x32xf16, #a>
  %x = xegpu.load_nd %ta[%n, 0, 0] : !xegpu.tensor_desc<1x32x32xf16, #a> -> vector<1x32x32xf16>
  %y = xegpu.load_nd %tb[%n, 0, 0] : !xegpu.tensor_desc<1x32x32xf16, #b> -> vector<1x32x32xf16>
  %p = vector.shape_cast %x : vector<1x32x32xf16> to vector<32x32xf16>
  %q = vector.shape_cast %y : vector<1x32x32xf16> to vector<32x32xf16>
  %d = xegpu.dpas %p, %q : vector<32x32xf16>, vector<32x32xf16> -> vector<32x32xf32>
  %z = vector.shape_cast %d : vector<32x32xf32> to vector<1x32x32xf32>
  xegpu.store_nd %z, %tc[%n, 0, 0] : vector<1x32x32xf32>, !xegpu.tensor_desc<1x32x32xf32, #c>
  gpu.return } }
"""


def random(*shape: int, dtype: Any = np.float32) -> Any:
    return fresh_rng().standard_normal(shape).astype(dtype)


def test_a_batch_is_a_matrix_per_workgroup():
    """Unit dimensions cost nothing: no exchange between subgroups, one message per operand."""
    args = [random(3, 32, 32, dtype=np.float16) for _ in range(2)]
    args.append(np.full((3, 32, 32), np.nan, np.float32))
    found = lowered(parse_module(BATCHED), (3, 1, 1), args, (*WORKGROUP, *SUBGROUP))
    assert not ops(found, "xegpu.store_matrix")
    assert len(ops(found, "xegpu.load_nd")) == 2
    assert len(ops(found, "xegpu.dpas")) == 4


def test_several_matrices_at_once():
    text = """
    #l = #xegpu.layout<sg_layout = [2, 1, 2], sg_data = [2, 16, 16]>
    gpu.module @m { gpu.func @f(%a: memref<4x16x32xf32>, %c: memref<4x16x32xf32>) kernel {
      %ta = xegpu.create_nd_tdesc %a : memref<4x16x32xf32> -> !xegpu.tensor_desc<4x16x32xf32, #l>
      %tc = xegpu.create_nd_tdesc %c : memref<4x16x32xf32> -> !xegpu.tensor_desc<4x16x32xf32, #l>
      %x = xegpu.load_nd %ta[0, 0, 0] : !xegpu.tensor_desc<4x16x32xf32, #l> -> vector<4x16x32xf32>
      %y = arith.addf %x, %x : vector<4x16x32xf32>
      xegpu.store_nd %y, %tc[0, 0, 0] : vector<4x16x32xf32>, !xegpu.tensor_desc<4x16x32xf32, #l>
      gpu.return } }
    """
    args = [random(4, 16, 32), np.full((4, 16, 32), np.nan, np.float32)]
    found = lowered(parse_module(text), (1, 1, 1), args, (*WORKGROUP, *SUBGROUP))
    assert not ops(found, "xegpu.store_matrix")


@pytest.mark.parametrize("element", ["f16", "i8", "f32"])
def test_interleaved_values(element: str):
    """Neighbours in memory come from both operands, and back; nothing crosses subgroups."""
    text = """
    #l = #xegpu.layout<sg_layout = [2, 2], sg_data = [8, 32]>
    gpu.module @m { gpu.func @f(%a: memref<16x64xT>, %b: memref<16x64xT>, %c: memref<16x128xT>, %e: memref<16x64xT>)
        kernel {
      %ta = xegpu.create_nd_tdesc %a : memref<16x64xT> -> !xegpu.tensor_desc<16x64xT, #l>
      %tb = xegpu.create_nd_tdesc %b : memref<16x64xT> -> !xegpu.tensor_desc<16x64xT>
      %tc = xegpu.create_nd_tdesc %c : memref<16x128xT> -> !xegpu.tensor_desc<16x128xT>
      %te = xegpu.create_nd_tdesc %e : memref<16x64xT> -> !xegpu.tensor_desc<16x64xT>
      %x = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<16x64xT, #l> -> vector<16x64xT>
      %y = xegpu.load_nd %tb[0, 0] : !xegpu.tensor_desc<16x64xT> -> vector<16x64xT>
      %z = vector.interleave %x, %y : vector<16x64xT> -> vector<16x128xT>
      xegpu.store_nd %z, %tc[0, 0] : vector<16x128xT>, !xegpu.tensor_desc<16x128xT>
      %u, %v = vector.deinterleave %z : vector<16x128xT> -> vector<16x64xT>
      xegpu.store_nd %v, %te[0, 0] : vector<16x64xT>, !xegpu.tensor_desc<16x64xT>
      gpu.return } }
    """.replace("T", element)
    dtype = {"f16": np.float16, "i8": np.int8, "f32": np.float32}[element]
    a, b = ((10 * random(16, 64)).astype(dtype) for _ in range(2))
    args = [a, b, np.zeros((16, 128), dtype), np.zeros((16, 64), dtype)]
    found = lowered(parse_module(text), (1, 1, 1), args, WORKGROUP)
    assert "vector.interleave" in print_module(found) and not ops(found, "xegpu.store_matrix")
    lowered(parse_module(text), (1, 1, 1), args, (*WORKGROUP, *SUBGROUP))


@pytest.mark.parametrize(
    ("chip", "types"),
    [
        ("pvc", ("f8E5M2", "f8E5M2", "f32")),
        ("pvc", ("f8E4M3FN", "f8E5M2", "f32")),
        ("dg2", ("f16", "f16", "f16")),
        ("dg2", ("f8E5M2", "f8E5M2", "f16")),
    ],
    ids=str,
)
def test_products_the_machine_has_not(chip: str, types: tuple[str, str, str]):
    """Narrow floats widen exactly; sums in f16 are rounded sums in f32: one matrix instruction each."""
    a, b, c = types
    text = f"""
    #l = #xegpu.layout<sg_layout = [2, 1], sg_data = [8, 16]>
    gpu.module @m {{ gpu.func @f(%a: memref<16x32x{a}>, %b: memref<32x16x{b}>, %c: memref<16x16x{c}>) kernel {{
      %ta = xegpu.create_nd_tdesc %a : memref<16x32x{a}> -> !xegpu.tensor_desc<16x32x{a}>
      %tb = xegpu.create_nd_tdesc %b : memref<32x16x{b}> -> !xegpu.tensor_desc<32x16x{b}>
      %tc = xegpu.create_nd_tdesc %c : memref<16x16x{c}> -> !xegpu.tensor_desc<16x16x{c}, #l>
      %x = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<16x32x{a}> -> vector<16x32x{a}>
      %y = xegpu.load_nd %tb[0, 0] : !xegpu.tensor_desc<32x16x{b}> -> vector<32x16x{b}>
      %z = xegpu.dpas %x, %y : vector<16x32x{a}>, vector<32x16x{b}> -> vector<16x16x{c}>
      xegpu.store_nd %z, %tc[0, 0] : vector<16x16x{c}>, !xegpu.tensor_desc<16x16x{c}, #l>
      gpu.return }} }}
    """
    dtypes = {"f16": np.float16, "f32": np.float32, "f8E5M2": f8e5m2, "f8E4M3FN": f8e4m3fn}
    args = [random(16, 32).astype(dtypes[a]), random(32, 16).astype(dtypes[b])]
    args.append(np.zeros((16, 16), dtypes[c]))
    found = lowered(parse_module(text), (1, 1, 1), args, (*WORKGROUP, *SUBGROUP), chip)
    (product, *_) = ops(found, "xegpu.dpas")
    assert product.result_types[0].element_type == Float32Type()  # pyright: ignore


@pytest.mark.parametrize("shape", [(16, 8), (32, 48), (8, 16)])
@pytest.mark.parametrize("element", ["f16", "i8", "f32", "f64"])
@pytest.mark.parametrize("chip", ["pvc", "bmg"])
def test_blocks_that_no_message_transposes(chip: str, element: str, shape: tuple[int, int]):
    """Elements of other sizes than 32 and 64 bits, and blocks beyond the messages', at subgroup level."""
    (rows, columns), dtype = shape, {"f16": np.float16, "i8": np.int8, "f64": np.float64}
    text = f"""
    gpu.module @m {{ gpu.func @f(%a: memref<64x64x{element}>, %c: memref<64x64x{element}>) kernel
        attributes {{tilewright.level = "subgroup", tilewright.subgroups = 1 : i64}} {{
      %ta = xegpu.create_nd_tdesc %a : memref<64x64x{element}> -> !xegpu.tensor_desc<{rows}x{columns}x{element}>
      %tc = xegpu.create_nd_tdesc %c : memref<64x64x{element}> -> !xegpu.tensor_desc<{columns}x{rows}x{element}>
      %x = xegpu.load_nd %ta[8, 16] <{{transpose = array<i64: 1, 0>}}>
        : !xegpu.tensor_desc<{rows}x{columns}x{element}> -> vector<{columns}x{rows}x{element}>
      xegpu.store_nd %x, %tc[0, 0] : vector<{columns}x{rows}x{element}>, !xegpu.tensor_desc<{columns}x{rows}x{element}>
      gpu.return }} }}
    """
    a = fresh_rng().integers(-99, 99, (64, 64)).astype(dtype.get(element, np.float32))
    want, passes = np.full_like(a, 7), [p for p in WORKGROUP if "subgroup" in p.requires]
    lowered(parse_module(text), (1, 1, 1), [a, want], (*passes, *SUBGROUP), chip)
    build_text(parse_module(text), CompileOptions(target=f"xe-{chip}"))


@pytest.mark.parametrize("element, rows, columns", [("f16", 16, 8), ("i8", 32, 4), ("bf16", 4, 8)])
def test_blocks_that_no_message_packs(element: str, rows: int, columns: int):
    """Packed blocks that are narrower than a subgroup: a message would put several of their rows side by side."""
    dtype = {"f16": np.float16, "i8": np.int8, "bf16": bfloat16}[element]
    groups, part = rows * np.dtype(dtype).itemsize // 4, 4 // np.dtype(dtype).itemsize
    packed, turned = (
        f"vector<{groups}x{shape}x{element}>"
        for shape in (f"{columns}x{part}", f"{part}x{columns}")
    )
    tile, block = (f"{kind}<{rows}x{columns}x{element}>" for kind in ("vector", "tensor_desc"))
    arrays = f"%x: memref<70x64x{element}>, %y: memref<{rows}x{columns}x{element}>"
    text = f"""gpu.module @m {{
    gpu.func @f({arrays}) kernel attributes {{tilewright.level = "subgroup"}} {{
      %t = xegpu.create_nd_tdesc %x : memref<70x64x{element}> -> !xegpu.{block}
      %p = xegpu.load_nd %t[2, 8] <{{packed}}> : !xegpu.{block} -> {packed}
      %q = vector.transpose %p, [0, 2, 1] : {packed} to {turned}
      %v = vector.shape_cast %q : {turned} to {tile}
      %o = xegpu.create_nd_tdesc %y : memref<{rows}x{columns}x{element}> -> !xegpu.{block}
      xegpu.store_nd %v, %o[0, 0] : {tile}, !xegpu.{block}
      gpu.return }} }}"""
    x = fresh_rng().integers(-50, 50, (70, 64)).astype(dtype)
    y, passes = np.zeros((rows, columns), dtype), [p for p in WORKGROUP if "subgroup" in p.requires]
    lowered(parse_module(text), (1, 1, 1), [x, y], (*passes, *SUBGROUP))
    build_text(parse_module(text), CompileOptions(target="xe-pvc"))
