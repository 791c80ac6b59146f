# ruff: noqa: E501
"""Ops that expand-ops knows, and that break a rule of theirs, are refused when they are read."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module

INVALID = [
    ("%r = math.isnan %n : i32", "takes floats"),
    ("%r = math.clampf %n to [%n, %n] : i32", "takes floats"),
    ('%r = "math.isinf"(%s) : (f32) -> f32', "expected i1, got f32"),
    ("%r = vector.outerproduct %x, %x : vector<4x8xf32>, vector<4x8xf32>", "expected 1-d vector for operand #1"),
    ("%r = vector.outerproduct %v, %x : vector<8xf32>, vector<4x8xf32>", "expected 1-d vector for operand #2"),
    ("%r = vector.outerproduct %v, %v {kind = #vector.kind<and>} : vector<8xf32>, vector<8xf32>", "and"),
    ("%r:2 = vector.scan <add>, %x, %v {inclusive = true, reduction_dim = 2 : i64} : vector<4x8xf32>, vector<8xf32>", "has to be less than 2"),
    ("%r:2 = vector.scan <add>, %x, %v {inclusive = true, reduction_dim = 1 : i64} : vector<4x8xf32>, vector<8xf32>", "incompatible input/initial value shapes"),
    ("%r:2 = vector.scan <add>, %x, %v {inclusive = true} : vector<4x8xf32>, vector<8xf32>", "'reduction_dim' expected"),
    ('%r = "gpu.subgroup_broadcast"(%s) <{broadcast_type = #gpu<broadcast specific_lane>}> : (f32) -> f32', "lane must be specified"),
    ("%r:2 = gpu.rotate %s, 4, 12 : f32", "width must be a power of two"),
    ("%r:2 = gpu.rotate %s, 16, 16 : f32", r"offset must be in the range \[0, 16\)"),
    ("%r = vector.mask %k { arith.negf %x : vector<4x8xf32> } : vector<4x8xi1> -> vector<4x8xf32>", "expects a maskable operation"),
    ("%r = vector.mask %k { vector.reduction <add>, %v : vector<8xf32> into f32 } : vector<4x8xi1> -> f32", "expects a mask of vector<8xi1>"),
    ("%r = vector.mask %k { %a = arith.negf %v : vector<8xf32>\nvector.reduction <add>, %a : vector<8xf32> into f32 } : vector<4x8xi1> -> f32", "expects only one operation to mask"),
    ("%r = vector.mask %k, %x { vector.yield %v : vector<8xf32> } : vector<4x8xi1> -> vector<4x8xf32>", "expects the results"),
    ("%r = memref.reshape %h(%d) : (memref<4x8xf32>, memref<1xf32>) -> memref<32xf32>", "a shape in one row of integers"),
    ("%r = memref.reshape %h(%g) : (memref<4x8xf32>, memref<2xindex>) -> memref<32xf32>", "length of shape operand differs"),
    ("%r = memref.reshape %h(%g) : (memref<4x8xf32>, memref<2xindex>) -> memref<2x16xf16>", "element types of source and destination"),
    ("%r = memref.reshape %h(%g) : (memref<4x8xf32>, memref<2xindex>) -> memref<2x16xf32, strided<[1, 2]>>", "identity affine map"),
    ("%r = memref.generic_atomic_rmw %h[%i] : memref<4x8xf32> {\n^bb0(%e: f32):\nmemref.atomic_yield %e : f32\n}", "number of subscripts"),
    ("%r = memref.generic_atomic_rmw %h[%i, %i] : memref<4x8xf32> {\n^bb0(%e: i32):\nmemref.atomic_yield %s : f32\n}", "argument of the element type"),
    ("%r = memref.generic_atomic_rmw %h[%i, %i] : memref<4x8xf32> {\n^bb0(%e: f32):\nmemref.store %e, %h[%i, %i] : memref<4x8xf32>\nmemref.atomic_yield %s : f32\n}", "no side effects"),
    ("%r:2 = affine.delinearize_index %i into (0) : index, index", "statically non-positive, got 0"),
    ("%r:2 = affine.delinearize_index %i into (2, 3, 4) : index, index", "a basis of 2 extents or one fewer, got 3"),
    ("%r = affine.linearize_index [%i] by (%i, 2) : index", "a basis of 1 extents or one fewer, got 2"),
    ("%r = xegpu.extf %v : vector<8xf32> -> vector<8xf16>", "must be narrower"),
    ("%r = xegpu.truncf %v : vector<8xf32> -> vector<8xi8>", "truncf takes floats"),
    ("%r = xegpu.lane_shuffle %v pack : vector<8xf32>", "up to 64 bits"),
    ("%r = xegpu.lane_shuffle %x pack : vector<4x8xf32>", "one row of whole bytes"),
    ("%r = xegpu.mem_desc_subview %mem[0, 0] : !xegpu.mem_desc<8x8xf32> -> !xegpu.mem_desc<4x4xf32>", "strides"),
    ("%r = xegpu.mem_desc_subview %mem[0, 0] : !xegpu.mem_desc<8x8xf32> -> !xegpu.mem_desc<16x4xf32>", "no larger than its matrix"),
    ("%r = xegpu.mem_desc_subview %mem[0] : !xegpu.mem_desc<8x8xf32> -> !xegpu.mem_desc<4x8xf32>", "one offset per dimension"),
    ("%r = xegpu.mem_desc_subview %mem[0, 0] : !xegpu.mem_desc<8x8xf32> -> !xegpu.mem_desc<4x8xf16>", "element type"),
    ("%r = xegpu.mem_desc_subview %blocks[2, 0] : !xegpu.mem_desc<8x8xf32, #xegpu.mem_layout<block = [4, 8]>> -> !xegpu.mem_desc<4x8xf32, #xegpu.mem_layout<block = [4, 8]>>", "begins where a block of 4 does"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "message"), INVALID, ids=lambda text: text[:40])
def test_what_breaks_a_rule_is_refused(op: str, message: str) -> None:
    text = (
        "func.func @f(%n: i32, %s: f32, %i: index, %v: vector<8xf32>, %x: vector<4x8xf32>, %k: vector<4x8xi1>, "
        "%h: memref<4x8xf32>, %d: memref<1xf32>, %g: memref<2xindex>, %mem: !xegpu.mem_desc<8x8xf32>, "
        f"%blocks: !xegpu.mem_desc<8x8xf32, #xegpu.mem_layout<block = [4, 8]>>) {{\n{op}\nreturn\n}}"
    )
    with pytest.raises(TilewrightError, match=message):
        parse_module(text)
