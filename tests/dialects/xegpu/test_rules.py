"""Every rule refuses its program with a sentence at the op's place; none ends in a traceback."""

from __future__ import annotations

import re

import pytest
from xdsl.utils.exceptions import VerifyException

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.strict import strictness
from tilewright.dialects.text import parse_module

T = "!xegpu.tensor_desc"
V = "vector"
SCATTER = "#xegpu.scatter_tdesc_attr<>"


def layout(**fields: list[int]) -> str:
    return "#xegpu.layout<" + ", ".join(f"{k} = {v}" for k, v in fields.items()) + ">"


L1 = layout(lane_layout=[1, 16], lane_data=[1, 1])
MAP = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>"
CHUNKS = (
    f"{T}<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>, "
    "#xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 2]>>"
)
COLUMNS = "!xegpu.mem_desc<16x64xf16, #xegpu.mem_layout<stride = [1, 16], block = [16, 16]>>"

# (function arguments, one op, part of the message)
INVALID = [
    # create_nd_tdesc
    ("%m: memref<24xf32>", f"%t = xegpu.create_nd_tdesc %m : memref<24xf32> -> {T}<8x16xf32>",
     "TensorDesc rank is not greater than the ranks of shape, strides or the memref source"),
    ("%m: memref<24x32xf32>",
     f"%t = xegpu.create_nd_tdesc %m[0, 0] : memref<24x32xf32> -> {T}<8x16xf16>",
     "TensorDesc should have the same element type with the source if it is a memref"),
    ("%i: i32", "%b = xegpu.init_nbarrier %i, %i : i32, i32 -> !xegpu.nbarrier",
     "'nbarrier_id' at position 0 does not verify: expected attribute i8 but got i32"),
    ("%m: memref<2x24x32xf32, 3>",
     f"%t = xegpu.create_nd_tdesc %m : memref<2x24x32xf32, 3> -> {T}<16xf32>",
     "Memory space mismatch. Source: slm, TensorDesc: global"),
    ("%p: i64", f"%t = xegpu.create_nd_tdesc %p : i64 -> {T}<8x16xf32>",
     "expecting strides and shape to be present for integer source."),
    ("%p: i64, %h: index", f"%t = xegpu.create_nd_tdesc %p, shape : [%h, %h], strides : [1] : i64 "
     f"-> {T}<8x16xf32>", "should match with each other"),
    ("%m: memref<24x32xf32>",
     f"%t = xegpu.create_nd_tdesc %m[0] : memref<24x32xf32> -> {T}<8x16xf32>",
     "one offset per dimension of the source"),
    ("%m: memref<24x32xf32>",
     f"%t = xegpu.create_nd_tdesc %m : memref<24x32xf32> -> {T}<8xf32, {SCATTER}>",
     "Expects a non-scattered TensorDesc"),
    ("%m: f32", f"%t = xegpu.create_nd_tdesc %m : f32 -> {T}<8x16xf32>", "source must be a memref"),
    (f"%t: {T}<16x16xf16>", f"%v = xegpu.load_nd %t[0, 0] <{{transpose = array<i64: 1, 0>, "
     f"transpose_bit_width = 32 : i32}}> : {T}<16x16xf16> -> vector<16x8x2xf16>",
     "Result shape [16, 8, 2] is not consistent with tensor descriptor"),
    # tensor_desc
    (f"%t: {T}<f32>", "", "expected non-zero rank tensor"),
    (f"%t: {T}<8x16xindex>", "", "unsupported element type 'index': expected integer or float"),
    (f"%t: {T}<0x16xf32>", "", "static, positive"),
    (f"%t: {T}<?x16xf32>", "", "static, positive"),
    (f"%t: {T}<4x8xf32, {layout(lane_layout=[1], lane_data=[1])}>", "",
     "expected layout rank to match tensor rank"),
    (f"%t: {T}<4x8xf32, {L1}>", "", "cannot distribute [4x8]"),
    (f"%t: {T}<256x32xf32, {layout(sg_layout=[3, 1], sg_data=[32, 32])}>", "",
     "256 elements over 3 subgroups of 32 each in dimension 0"),
    (f"%t: {T}<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 5>>", "", "invalid chunk size"),
    (f"%t: {T}<4x5xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>>", "",
     "expected last dim of tensor to match chunk size"),
    (f"%t: {T}<16x3xf16, #xegpu.scatter_tdesc_attr<chunk_size = 3>>", "",
     "expected last dim of tensor to be a multiple of 2"),
    (f"%t: {T}<16xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>", "",
     "expected non-contiguous elements for 1D tensor"),
    (f"%t: {T}<16x16xf32, #xegpu.scatter_tdesc_attr<chunk_size = 16>>", "", "at most 512"),
    (f"%t: {T}<8x16xf32, #xegpu.block_tdesc_attr<array_length = 0>>", "", "array_length"),
    (f"%t: {T}<12x30xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>", "",
     "cannot distribute [12x30]"),
    # layout, slice, mem_layout
    ("%v: i1", f"%w = arith.constant {{a = {layout(sg_data=[16, 2])}}} 1 : i32",
     "expected at least one of sg_layout, inst_data or lane_layout"),
    ("%v: i1", f"%w = arith.constant {{a = {layout(sg_data=[16, 2], lane_layout=[8, 1])}}} 1 : i32",
     "sg_layout and sg_data must be used together"),
    ("%v: i1", f"%w = arith.constant {{a = {layout(inst_data=[16, 2], lane_data=[8, 1])}}} 1 : i32",
     "lane_layout and lane_data must be used together"),
    ("%v: i1", f"%w = arith.constant {{a = {layout(inst_data=[16, 2], order=[1, 0])}}} 1 : i32",
     "expected sg_layout/lane_layout being used with order"),
    *[("%v: i1", f"%w = arith.constant {{a = {layout(**fields)}}} 1 : i32",
       f"expected {a} and {b} to have the same rank")
      for a, b, fields in (
          ("sg_layout", "inst_data", {"sg_layout": [1, 1, 1], "inst_data": [16, 2]}),
          ("sg_layout", "lane_layout", {"sg_layout": [1, 1, 1], "lane_layout": [16, 2]}),
          ("inst_data", "lane_layout", {"inst_data": [1, 1, 1], "lane_layout": [16, 2]}),
          ("sg_data", "sg_layout", {"sg_layout": [1, 1], "sg_data": [16, 2, 1]}),
          ("lane_data", "lane_layout", {"lane_layout": [1, 1], "lane_data": [16, 2, 1]}),
          ("order", "sg_layout", {"sg_layout": [1, 1], "order": [0, 1, 2]}),
          ("order", "lane_layout", {"lane_layout": [1, 1], "order": [0, 1, 2]}),
      )],
    ("%v: i1", f"%w = arith.constant {{a = {layout(lane_layout=[1, 8], order=[0, 0])}}} 1 : i32",
     "permutation"),
    ("%v: i1", f"%w = arith.constant {{a = {layout(lane_layout=[1, 0])}}} 1 : i32", "positive"),
    ("%v: i1", f"%w = arith.constant {{a = #xegpu.slice<{L1}, dims = [1, 1]>}} 1 : i32",
     "repeated dim (1) in slice attribute"),
    ("%v: i1", f"%w = arith.constant {{a = #xegpu.slice<{L1}, dims = [2]>}} 1 : i32",
     "invalid dim (2) in slice attribute"),
    ("%m: !xegpu.mem_desc<16xf16>", "", "mem_desc must be 2D or greater."),
    ("%m: !xegpu.mem_desc<16x16xf16, #xegpu.mem_layout<stride = [1]>>", "", "rank 2"),
    ("%m: !xegpu.mem_desc<16x16xf16, #xegpu.mem_layout<block = [5, 16]>>", "", "does not divide"),
    # block accesses
    *[(f"%t: {T}<8x16xf16>, %v: vector<8x16xf16>", op, f"invalid {level}: #xegpu.cache_hint<{hint}>")
      for op, level, hint in (
          (f"xegpu.prefetch_nd %t <{{l1_hint = #xegpu.cache_hint<write_back>}}> : {T}<8x16xf16>",
           "l1_hint", "write_back"),
          (f"%r = xegpu.load_nd %t <{{l2_hint = #xegpu.cache_hint<write_through>}}> : "
           f"{T}<8x16xf16> -> vector<8x16xf16>", "l2_hint", "write_through"),
          (f"xegpu.store_nd %v, %t <{{l3_hint = #xegpu.cache_hint<read_invalidate>}}> : "
           f"vector<8x16xf16>, {T}<8x16xf16>", "l3_hint", "read_invalidate"),
      )],
    (f"%t: {T}<8x16xf32>", f"%v = xegpu.load_nd %t : {T}<8x16xf32> -> vector<8x1xf32>",
     "Result shape [8, 1] is not consistent with tensor descriptor"),
    (f"%t: {T}<16xf32>", f"%v = xegpu.load_nd %t : {T}<16xf32> -> vector<3xf32>",
     "Result shape [3] is not a valid distribution for tensor descriptor"),
    (f"%t: {T}<8x16xf32>, %v: vector<8x1xf32>",
     f"xegpu.store_nd %v, %t : vector<8x1xf32>, {T}<8x16xf32>",
     "Value shape [8, 1] is not consistent with tensor descriptor"),
    (f"%t: {T}<16xf32>, %v: vector<3xf32>", f"xegpu.store_nd %v, %t : vector<3xf32>, {T}<16xf32>",
     "Value shape [3] is not a valid distribution for tensor descriptor"),
    (f"%t: {T}<8x16xf32>", f"%v = xegpu.load_nd %t : {T}<8x16xf32> -> vector<8x16xf16>",
     "same element type"),
    (f"%t: {T}<8x16xf32>", f"%v = xegpu.load_nd %t[0] : {T}<8x16xf32> -> vector<8x16xf32>",
     "Mismatched ranks between offsets and tensor descriptor"),
    (f"%t: {T}<8x16xf16, #xegpu.block_tdesc_attr<array_length = 2>>, %v: vector<2x8x16xf16>",
     f"xegpu.store_nd %v, %t : vector<2x8x16xf16>, {T}<8x16xf16, "
     "#xegpu.block_tdesc_attr<array_length = 2>>", "array length is not supported by store_nd."),
    (f"%t: {T}<8x16xf16>", f"%v = xegpu.load_nd %t <{{packed, transpose = array<i64: 1, 0>}}> : "
     f"{T}<8x16xf16> -> vector<16x8xf16>", "packed and transpose cannot be combined"),
    (f"%t: {T}<8x16xf16>", f"%v = xegpu.load_nd %t <{{transpose = array<i64: 1, 2>}}> : "
     f"{T}<8x16xf16> -> vector<16x8xf16>", "Invalid transpose attr"),
    (f"%t: {T}<8x16xf16>", f"%v = xegpu.load_nd %t <{{layout = "
     f"{layout(sg_layout=[3, 1], sg_data=[4, 16])}}}> : {T}<8x16xf16> -> vector<8x16xf16>",
     "TensorDesc shape is not distributable with the layout"),
    (f"%t: {T}<8x16xf16, {layout(sg_layout=[1, 1], sg_data=[8, 16])}>",
     f"%v = xegpu.load_nd %t : {T}<8x16xf16, {layout(sg_layout=[1, 1], sg_data=[8, 16])}> -> "
     "vector<8xf16>", "TensorDesc doesn't need LayoutAttr for SIMT code"),
    (f"%t: {T}<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>",
     f"%v = xegpu.load_nd %t : {T}<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>"
     " -> vector<4x2xbf16>", "distributed vector shape [8, 1]"),
    (f"%t: {T}<8xf16, {SCATTER}>", f"xegpu.prefetch_nd %t : {T}<8xf16, {SCATTER}>",
     "Expects a non-scattered TensorDesc"),
    (f"%t: {T}<8x16xf16>", f"xegpu.prefetch_nd %t locality<7> : {T}<8x16xf16>", "locality is 0, 1"),
    (f"%t: {T}<8x16xf16>", f"%u = xegpu.update_nd_offset %t, [0] : {T}<8x16xf16>",
     "Invalid number of offsets"),
    # scattered accesses
    ("%p: ui64, %o: vector<8xindex>",
     f"%t = xegpu.create_tdesc %p, %o : ui64, vector<8xindex> -> {T}<8xf16>",
     "Expects a scattered TensorDesc"),
    ("%m: memref<?xf32>, %o: vector<8xindex>",
     f"%t = xegpu.create_tdesc %m, %o : memref<?xf32>, vector<8xindex> -> {T}<8xf32, "
     "#xegpu.scatter_tdesc_attr<memory_space = slm>>", "Memory space mismatch"),
    ("%p: ui64, %o: vector<8xindex>",
     f"%t = xegpu.create_tdesc %p, %o : ui64, vector<8xindex> -> {T}<4xf32, {SCATTER}>",
     "one offset per lane"),
    ("%m: memref<8x16xf32>, %o: vector<8xindex>, %k: vector<8xi1>",
     "%v = xegpu.load %m[%o], %k : memref<8x16xf32>, vector<8xindex>, vector<8xi1> -> "
     "vector<8xf32>", "operand #0 must be 1D memref"),
    ("%m: memref<64xf32>, %o: vector<8xindex>, %k: vector<4xi1>",
     "%v = xegpu.load %m[%o], %k : memref<64xf32>, vector<8xindex>, vector<4xi1> -> vector<8xf32>",
     "Mask should match value except the chunk size dim."),
    ("%m: memref<64xf32>, %o: vector<8xindex>, %k: i1",
     "%v = xegpu.load %m[%o], %k : memref<64xf32>, vector<8xindex>, i1 -> vector<8xf32>",
     "Expecting a vector type mask."),
    ("%m: memref<64xf32>, %o: vector<8xindex>, %k: vector<8xi1>",
     "%v = xegpu.load %m[%o], %k <{chunk_size = 2}> : memref<64xf32>, vector<8xindex>, vector<8xi1>"
     " -> vector<8x4xf32>", "value elements must match chunk size 2"),
    ("%m: memref<64xf32>, %o: index, %k: i1",
     "%v = xegpu.load %m[%o], %k <{chunk_size = 2}> : memref<64xf32>, index, i1 -> f32",
     "Expecting chunk size == 1 for scalar result"),
    ("%m: memref<64xf32>, %o: vector<8xindex>, %k: vector<8xi1>",
     "%v = xegpu.load %m[%o], %k : memref<64xf32>, vector<8xindex>, vector<8xi1> -> f32",
     "Expecting scalar mask and offsets."),
    ("%m: memref<64xf32>, %o: vector<8xindex>, %k: vector<8xi1>",
     "%v = xegpu.load %m[%o], %k : memref<64xf32>, vector<8xindex>, vector<8xi1> -> vector<8xf16>",
     "same element type as MemRef"),
    ("%p: i64, %o: vector<8xindex>", "xegpu.prefetch %p[%o] : i64, vector<8xindex>",
     "offset_align_byte is required with integer source."),
    ("%m: memref<64xf32>, %o: vector<8xindex>",
     "xegpu.prefetch %m[%o] <{offset_align_byte = 4}> : memref<64xf32>, vector<8xindex>",
     "only allowed with integer source."),
    (f"%t: {T}<4x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, %k: vector<4xi1>",
     f"%v = xegpu.load %t, %k : {T}<4x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, "
     "vector<4xi1> -> vector<6xf32>", "is not a valid distribution for tensor descriptor"),
    (f"%t: {T}<4x2xf16>, %k: vector<4xi1>",
     f"%v = xegpu.load %t, %k : {T}<4x2xf16>, vector<4xi1> -> vector<4x2xf16>",
     "Expects a scattered TensorDesc"),
    (f"%t: {T}<16xf32, {SCATTER}>, %k: vector<16xi1>, %v: vector<16xf32>",
     f"%r = xegpu.atomic_rmw addi %t, %k, %v : {T}<16xf32, {SCATTER}>, vector<16xi1>, "
     "vector<16xf32> -> vector<16xf32>", "atomic addi is not defined on f32"),
    (f"%t: {T}<16x8xf32, #xegpu.scatter_tdesc_attr<chunk_size = 8>>, %k: vector<16xi1>, "
     "%v: vector<16x4xf32>",
     f"%r = xegpu.atomic_rmw addf %t, %k, %v : {T}<16x8xf32, #xegpu.scatter_tdesc_attr<chunk_size = "
     "8>>, vector<16xi1>, vector<16x4xf32> -> vector<16x4xf32>",
     "failed to verify that all of {tensorDesc, value, result} have same shape"),
    # dpas
    *[(f"%a: {a}, %b: {b}, %c: {d}", f"%d = xegpu.dpas %a, %b : {a}, {b} -> {d}", message)
      for a, b, d, message in (
          ("vector<8x8xf16>", "vector<8x16x2xf16>", "vector<8x16xf32>",
           "K-dimension mismatch: A has K=8 but B has K=16."),
          ("vector<16x16xf16>", "vector<8x16x2xf16>", "vector<8x16xf32>",
           "M-dimension mismatch: A has M=16 but Result has M=8."),
          ("vector<8x16xf16>", "vector<8x8x2xf16>", "vector<8x16xf32>",
           "N-dimension mismatch: B has N=8 but Result has N=16."),
          ("vector<128xf16>", "vector<8x16x2xf16>", "vector<8x16xf32>",
           "A operand must be a 2D vector."),
          ("vector<8x16xf16>", "vector<256xf16>", "vector<8x16xf32>",
           "B operand must be a 2D or 3D vector."),
          ("vector<8x16xf16>", "vector<16x16xf16>", "vector<128xf32>",
           "Result must be a 2D vector."),
          ("vector<8x16xf16>", "vector<16x16xi16>", "vector<8x16xf32>", "mix integer and float"),
      )],
    ("%a: vector<8x16xf16>, %b: vector<16x16xf16>, %c: vector<8x16xf16>",
     "%d = xegpu.dpas %a, %b, %c : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf16> -> "
     "vector<8x16xf32>", "Accumulator type must match result type"),
    ("%a: vector<8x16xf16>, %b: vector<16x16xf16>",
     f"%d = xegpu.dpas %a, %b {{layout_a = {layout(sg_layout=[3, 1], sg_data=[4, 16])}}} : "
     "vector<8x16xf16>, vector<16x16xf16> -> vector<8x16xf32>",
     "A shape is not distributable with the layout"),
    *[(f"%a: vector<8x64xf8E5M2>, %b: vector<64x16xf8E5M2>, %s: {scale}, %u: vector<2x16xf8E8M0FNU>",
       f"%d = xegpu.dpas_mx %a, %b {which} = %s{extra} : vector<8x64xf8E5M2>, "
       f"vector<64x16xf8E5M2>, {scale}{', vector<2x16xf8E8M0FNU>' if extra else ''} -> "
       "vector<8x16xf32>", message)
      for which, extra, scale, message in (
          ("scale_a", "", "vector<16xf8E8M0FNU>", "Scale A must be a 2D vector when not a scalar."),
          ("scale_a", "", "vector<4x2xf8E8M0FNU>",
           "Scale A M dimension [4] must match A M dimension [8]."),
          ("scale_b", "", "vector<2x8xf8E8M0FNU>",
           "Scale B N dimension [8] must match B N dimension [16]."),
          ("scale_a", " scale_b = %u", "vector<8x4xf8E8M0FNU>", "Scale K dimension mismatch"),
          ("scale_a", "", "vector<8x2xf32>", "scales are 8-bit floats, got vector<8x2xf32>"),
          ("scale_b", "", "i8", "scales are 8-bit floats, got i8"),
      )],
    *[("%a: vector<8x64xf8E5M2>, %b: vector<64x16xf8E5M2>, %s: vector<8x2xf8E8M0FNU>",
       f"%d = xegpu.dpas_mx %a, %b scale_a = %s {{{name} = {layout(sg_layout=[3, 1], sg_data=[4, 2])}}} : "
       "(vector<8x64xf8E5M2>, vector<64x16xf8E5M2>, vector<8x2xf8E8M0FNU>) -> vector<8x16xf32>",
       f"{what} shape is not distributable with the layout")
      for name, what in (("layout_a", "A"), ("layout_b", "B"), ("layout_cd", "Result"),
                         ("layout_a_scale", "Scale A"))],
    (f"%t: {T}<16x32xf32, #xegpu.layout<lane_layout = [1, 16], lane_data = [2, 2]>>", "",
     "packed elements come from a single dimension"),
    # convert_layout, truncf
    ("%v: vector<32x64xf16>", f"%w = xegpu.convert_layout %v <{{input_layout = "
     f"{layout(sg_layout=[2, 4], sg_data=[16, 16])}, target_layout = {L1}}}> : vector<32x64xf16>",
     "expected input layout and target layout be WgLayout or SgLayout at the same time."),
    ("%v: vector<32x65xf16>", f"%w = xegpu.convert_layout %v <{{target_layout = {L1}}}> : "
     "vector<32x65xf16>", "invalid target layout, data cannot be evenly distributed"),
    ("%v: vector<8x16xf16>", "%w = xegpu.truncf %v : vector<8x16xf16> -> vector<8x16xf32>",
     "input type must be wider than result type."),
    # shared matrices
    ("%m: memref<2048xi8>", "%d = xegpu.create_mem_desc %m : memref<2048xi8> -> "
     "!xegpu.mem_desc<32x32xf16>", "must reside in share memory"),
    ("%m: memref<1024xi8, 3>", "%d = xegpu.create_mem_desc %m : memref<1024xi8, 3> -> "
     "!xegpu.mem_desc<32x32xf16>", "same size in bits"),
    ("%m: !xegpu.mem_desc<16x64xf16>", "%v = xegpu.load_matrix %m[8, 8] : "
     "!xegpu.mem_desc<16x64xf16> -> vector<8x16xf32>",
     "failed to verify that all of {mem_desc, res} have same element type"),
    ("%m: !xegpu.mem_desc<16x64xf16>", "%v = xegpu.load_matrix %m[8, 8] : "
     "!xegpu.mem_desc<16x64xf16> -> vector<32x16xf16>", "data shape must not exceed mem_desc shape"),
    ("%m: !xegpu.mem_desc<16x64xf16>, %v: vector<8x16xf16>", "xegpu.store_matrix %v, %m[8] : "
     "vector<8x16xf16>, !xegpu.mem_desc<16x64xf16>", "one offset per dimension"),
    ("%m: !xegpu.mem_desc<16x64xf16>", "%v = xegpu.load_matrix %m[0, 0] <{subgroup_block_io}> : "
     "!xegpu.mem_desc<16x64xf16> -> vector<8x16xf16>", "must be contiguous and coalesced"),
    (f"%m: {COLUMNS}", f"%v = xegpu.load_matrix %m[0, 0] <{{subgroup_block_io, layout = {L1}}}> : {COLUMNS} -> "
     "vector<16x16xf16>", "the distributed dimensions must be contiguous"),
    ("%a: vector<8xf16>, %b: vector<15xf16>", "%d = xegpu.dpas %a, %b : vector<8xf16>, vector<15xf16> -> vector<8xf32>",
     "Expecting B operand to be a multiple of 32 bits"),
    # barriers
    ("", "xegpu.alloc_nbarrier 0", "the number of named barriers is positive"),
]  # fmt: skip

# Programs that the RFC allows and the public implementation does not: (arguments, op, message).
NARROWER = [
    ("%m: memref<24x32xf32, 3>",
     f"%t = xegpu.create_nd_tdesc %m : memref<24x32xf32, 3> -> {T}<8x16xf32, "
     "#xegpu.block_tdesc_attr<memory_space = slm>>", "SLM is only supported for 1D block tensor"),
    (f"%t: {T}<8x16xf16>, %v: vector<8x16xf16>",
     f"xegpu.store_nd %v, %t <{{l1_hint = #xegpu.cache_hint<streaming>}}> : vector<8x16xf16>, "
     f"{T}<8x16xf16>", "invalid l1_hint: #xegpu.cache_hint<streaming>"),
    ("%a: vector<8x8x2xf16>, %b: vector<8x16x2xf16>",
     "%d = xegpu.dpas %a, %b : vector<8x8x2xf16>, vector<8x16x2xf16> -> vector<8x16xf32>",
     "A operand must be a 2D vector."),
    ("%a: vector<4x16xf16>, %b: vector<16x8xbf16>",
     "%d = xegpu.dpas %a, %b : vector<4x16xf16>, vector<16x8xbf16> -> vector<4x8xf32>",
     "failed to verify that all of {lhs, rhs} have same element type"),
    (f"%t: {T}<16xf16>", f"%v = xegpu.load_nd %t <{{packed}}> : {T}<16xf16> -> vector<16xf16>",
     "Invalid Packed Attr."),
    (f"%t: {T}<16x16xf16>", f"%v = xegpu.load_nd %t : {T}<16x16xf16> -> vector<8x16x2xf16>",
     "needs the attribute packed"),
    ("%m: memref<16x64xf16, 3>", "%d = xegpu.create_mem_desc %m : memref<16x64xf16, 3> -> "
     "!xegpu.mem_desc<16x64xf16>", "statically 1d shaped"),
    (f"%t: {T}<2x8x16xf32>", f"%v = xegpu.load_nd %t[0, 0, 0] : {T}<2x8x16xf32> -> vector<2x8x16xf32>",
     "Expects a 1D or 2D TensorDesc."),
    (f"%t: {T}<16xf32>", f"%v = xegpu.load_nd %t[0, 0] : {T}<16xf32> -> vector<16xf32>",
     "Mismatched ranks between offsets and tensor descriptor"),
    (f"%t: {T}<8x16xf32, {L1}>", f"%v = xegpu.load_nd %t[0, 0] : {T}<8x16xf32, {L1}> -> vector<8xf32>",
     "TensorDesc doesn't need LayoutAttr for SIMT code"),
    (f"%t: {T}<4x16xf32, {MAP}>", f"%v = xegpu.load_nd %t : {T}<4x16xf32, {MAP}> -> vector<4x16xf32>",
     "[4, 16] is not consistent with distributed vector shape [4, 1]"),
    (f"%t: {T}<16xf32, {MAP}>, %v: vector<1xf32>", f"xegpu.store_nd %v, %t : vector<1xf32>, {T}<16xf32, {MAP}>",
     "Value shape [1] is not consistent with distributed vector shape [1, 1]"),
    (f"%t: {CHUNKS}, %m: vector<16xi1>", f"%v = xegpu.load %t, %m : {CHUNKS}, vector<16xi1> -> vector<16x2xf32>",
     "Result shape [16, 2] is not consistent with distributed vector shape [1, 2]"),
    (f"%t: {CHUNKS}, %m: vector<16xi1>, %v: vector<2xf32>",
     f"xegpu.store %v, %t, %m : vector<2xf32>, {CHUNKS}, vector<16xi1>",
     "Value shape [2] is not consistent with distributed vector shape [1, 2]"),
    ("%p: ui64, %o: vector<8xindex>", f"%t = xegpu.create_tdesc %p, %o : ui64, vector<8xindex> -> {T}<8x2xf32, "
     "#xegpu.scatter_tdesc_attr<chunk_size = 2>, #xegpu.layout<lane_layout = [1, 2], lane_data = [2, 1]>>",
     "cannot map over non-contiguous scattered row elements"),
    ("%p: ui64, %o: vector<16xindex>", f"%t = xegpu.create_tdesc %p, %o : ui64, vector<16xindex> -> {T}<16xf32, "
     "#xegpu.scatter_tdesc_attr<>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>>",
     "work item data mapping must match the number of contiguous elements"),
    ("%v: vector<8x16xf32>", f"%w = xegpu.convert_layout %v <{{input_layout = {L1}, target_layout = {L1}}}> : "
     "vector<8x16xf32>", "expected different input layout and target layout"),
    ("%m: memref<8x16xf32>", f"%t = xegpu.create_nd_tdesc %m : memref<8x16xf32> -> {T}<8x16xf32, "
     "#xegpu.layout<inst_data = [8, 16], lane_layout = [1, 16]>>", "lane_layout and lane_data must be used together"),
    (f"%m: {COLUMNS}", f"%v = xegpu.load_matrix %m[0, 0] <{{subgroup_block_io}}> : {COLUMNS} -> vector<8xf16>",
     "mem_desc should be row major when subgroup_block_io is set"),
    (f"%m: {COLUMNS}", f"%v = xegpu.load_matrix %m[0, 0] <{{subgroup_block_io}}> : {COLUMNS} -> f16",
     "only allowed when the value is a vector"),
]  # fmt: skip


def program(args: str, op: str) -> str:
    return f"func.func @f({args}) {{\n  {op}\n  func.return\n}}"


def diagnose(text: str) -> str:
    """The message of the first error; a test failure when there is none or it is of another kind."""
    try:
        parse_module(text, "bad.mlir").verify()
    except TilewrightError as error:
        assert error.location is not None and 1 <= error.location.line <= 3
        return error.message
    except VerifyException as error:
        return str(error)
    pytest.fail("the program was accepted")


@pytest.mark.parametrize(("args", "op", "message"), INVALID, ids=lambda text: text[:40])
def test_refused(args: str, op: str, message: str):
    # Diagnostics begin in lower case and end without a full stop.
    assert message.rstrip(".").lower() in diagnose(program(args, op)).lower()


@pytest.mark.parametrize(("args", "op", "message"), NARROWER, ids=lambda text: text[:40])
def test_narrower_rules_warn_and_are_errors_when_strict(args: str, op: str, message: str):
    module = parse_module(program(args, op), "wide.mlir")
    with strictness() as warnings:
        module.verify()
    assert [w.message for w in warnings if message in w.message], warnings
    assert warnings[0].op.name.startswith("xegpu.")
    with strictness(strict=True), pytest.raises(Exception, match="(?s)" + re.escape(message[:20])):
        module.verify()


def test_mixed_widths_of_valid_programs_pass():
    """The tables above would prove nothing if everything were refused."""
    text = program(
        f"%t: {T}<8x16xf16>, %a: vector<8x16xf16>, %b: vector<16x16xf16>",
        f"%v = xegpu.load_nd %t[0, 0] : {T}<8x16xf16> -> vector<8x16xf16>\n"
        f"%l = xegpu.load_nd %t[0, 0] : {T}<8x16xf16> -> vector<8xf16>\n"
        "%d = xegpu.dpas %v, %b : vector<8x16xf16>, vector<16x16xf16> -> vector<8x16xf32>",
    )
    with strictness(strict=True) as warnings:
        parse_module(text, "good.mlir").verify()
    assert warnings == []
