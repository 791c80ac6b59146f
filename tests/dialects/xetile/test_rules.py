"""Every rule of the XeTile verifiers, with its message and the place that it points at."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import CompileError, TilewrightError, VerifyError
from tilewright.dialects.text import parse_module

COL = "#xetile.tile_attr<order = [0, 1]>"
SCAT = "#xetile.tile_attr<scattered = true>"
UNEVEN_WG = "#xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 24]>"

# Name of the rule -> (arguments, op, part of the message).
ILLEGAL = {
    "memory space": ("%x: memref<64x64xf16, 3>",
     "%r = xetile.init_tile %x[8, 16] : memref<64x64xf16, 3> -> !xetile.tile<32x64xf16>",
     "memory space of the tile doesn't match with the source."),
    "memory space of a tile in global memory": ("%x: memref<64x64xf16>",
     "%r = xetile.init_tile %x[8, 16] : memref<64x64xf16> -> !xetile.tile<32x64xf16, "
     "#xetile.tile_attr<memory_space = 3>>", "memory space of the tile doesn't match with the source."),
    "element type": ("%x: memref<64x64xf32>",
     "%r = xetile.init_tile %x[8, 16] : memref<64x64xf32> -> !xetile.tile<32x64xf16>",
     "element type of the tile, f16, doesn't match that of the source, f32"),
    "source": ("%x: f32", "%r = xetile.init_tile %x[8, 16] : f32 -> !xetile.tile<32x64xf16>",
     "expected a memref or an integer address of 32 or 64 bits as source, got f32"),
    "number of offsets": ("%x: memref<64x64xf16>",
     "%r = xetile.init_tile %x[8] : memref<64x64xf16> -> !xetile.tile<32x64xf16>",
     "expected 2 offsets, one per dimension of the source, got 1"),
    "number of offsets, n-D": ("%x: memref<4x64x64xf16>",
     "%r = xetile.init_tile %x[8, 8] : memref<4x64x64xf16> -> !xetile.tile<32x64xf16>",
     "expected 3 offsets, one per dimension of the source, got 2"),
    "number of offsets, too many": ("%x: memref<96x80xf16>",
     "%r = xetile.init_tile %x[0, 8, 16] : memref<96x80xf16> -> !xetile.tile<16x16xf16>",
     "expected 2 offsets, one per dimension of the source, got 3"),
    "1-D source": ("%x: memref<64xf16>", "%r = xetile.init_tile %x[8] : memref<64xf16> -> !xetile.tile<8x8xf16>",
     "a tile of a 1-D memref is one row, got a tile of shape 8x8"),
    "sizes with a static memref": ("%x: memref<64x64xf16>",
     "%r = xetile.init_tile %x[8, 8], [64, 64], [64, 1] : memref<64x64xf16> -> !xetile.tile<32x64xf16>",
     "dynamic sizes are not allowed with a static shaped memref as source"),
    "dynamic memref without sizes": ("%x: memref<?x?xf16>",
     "%r = xetile.init_tile %x[8, 8] : memref<?x?xf16> -> !xetile.tile<32x64xf16>",
     "dynamic shape argument missing or it is not of valid rank"),
    "address without sizes": ("%x: i64", "%r = xetile.init_tile %x[8, 8] : i64 -> !xetile.tile<32x64xf16>",
     "dynamic shape argument missing or it is not of valid rank"),
    "sizes of the wrong rank": ("%x: memref<?x?xf16>",
     "%r = xetile.init_tile %x[8, 8], [8], [1] : memref<?x?xf16> -> !xetile.tile<32x64xf16>",
     "dynamic shape argument missing or it is not of valid rank"),
    "sizes of an address of the wrong rank": ("%x: ui64, %n: index",
     "%r = xetile.init_tile %x[0, 0], [%n], [%n, 1] : ui64 -> !xetile.tile<16x32xf16>",
     "dynamic shape argument missing or it is not of valid rank"),
    "strides of an address of the wrong rank": ("%x: i64, %n: index",
     "%r = xetile.init_tile %x[0, 0], [%n, %n], [1] : i64 -> !xetile.tile<16x32xf16>",
     "dynamic shape argument missing or it is not of valid rank"),
    "sizes without strides": ("%x: memref<?x?xf16>",
     "%r = xetile.init_tile %x[8, 8], [8, 8] : memref<?x?xf16> -> !xetile.tile<32x64xf16>",
     "dynamic shape and strides must not be empty"),
    "row-major memref, column-major tile": ("%x: memref<64x64xf16>",
     f"%r = xetile.init_tile %x[8, 8] : memref<64x64xf16> -> !xetile.tile<32x64xf16, {COL}>",
     "memref operand is expected to have a column-major layout"),
    "column-major memref, row-major tile": ("%x: memref<64x32xf16, affine_map<(d0, d1) -> (d1, d0)>>",
     "%r = xetile.init_tile %x[8, 8] : memref<64x32xf16, affine_map<(d0, d1) -> (d1, d0)>> -> !xetile.tile<32x16xf16>",
     "memref operand is expected to have a row-major layout"),
    "linear affine map, row-major tile": ("%x: memref<64x32xf16, affine_map<(d0, d1) -> (d1 * 64 + d0)>>",
     "%r = xetile.init_tile %x[8, 8] : memref<64x32xf16, affine_map<(d0, d1) -> (d1 * 64 + d0)>> -> "
     "!xetile.tile<32x16xf16>", "memref operand is expected to have a row-major layout"),
    "columns that overlap": ("%x: memref<512x1024xf16, strided<[1, 256], offset: ?>>",
     f"%r = xetile.init_tile %x[8, 16] : memref<512x1024xf16, strided<[1, 256], offset: ?>> -> "
     f"!xetile.tile<32x64xf16, {COL}>", "memref operand is expected to have a column-major layout"),
    "no unit stride": ("%x: memref<64x32xf16, strided<[128, 2]>>",
     "%r = xetile.init_tile %x[8, 8] : memref<64x32xf16, strided<[128, 2]>> -> !xetile.tile<32x16xf16>",
     "memref operand is expected to have a row-major layout"),
    "rows that are one in memory": ("%x: memref<64x32xf16, strided<[0, 1]>>",
     "%r = xetile.init_tile %x[8, 8] : memref<64x32xf16, strided<[0, 1]>> -> !xetile.tile<32x16xf16>",
     "stride 0 makes its rows one in memory"),
    "constant strides of an address": ("%x: i64",
     "%r = xetile.init_tile %x[8, 8], [64, 64], [1, 64] : i64 -> !xetile.tile<32x64xf16>",
     "memref operand is expected to have a row-major layout"),
    "constant strides of an address, column-major tile": ("%x: i64",
     f"%r = xetile.init_tile %x[8, 8], [64, 64], [64, 1] : i64 -> !xetile.tile<32x64xf16, {COL}>",
     "memref operand is expected to have a column-major layout"),
    "an affine map that is no order": ("%x: memref<64x32xf16, affine_map<(d0, d1) -> (d0 floordiv 2, d1)>>",
     "%r = xetile.init_tile %x[8, 8] : memref<64x32xf16, affine_map<(d0, d1) -> (d0 floordiv 2, d1)>> -> "
     "!xetile.tile<32x16xf16>", "expected a valid affine map in the layout"),
    "scattered from a matrix": ("%x: memref<64x64xf16>, %o: vector<8x16xindex>",
     f"%r = xetile.init_tile %x, %o : memref<64x64xf16>, vector<8x16xindex> -> !xetile.tile<8x16xf16, {SCAT}>",
     "Expecting a 0-D or 1-D memref as source."),
    "scattered result": ("%x: memref<64xf16>, %o: vector<8x16xindex>",
     "%r = xetile.init_tile %x, %o : memref<64xf16>, vector<8x16xindex> -> !xetile.tile<8x16xf16>",
     "Expecting a scattered TileType."),
    "scattered without a vector": ("%x: memref<64xf16>",
     f"%r = xetile.init_tile %x[0] : memref<64xf16> -> !xetile.tile<8x16xf16, {SCAT}>",
     "a scattered tile takes a vector of offsets, one per element"),
    "offsets of another shape": ("%x: memref<64xf16>, %o: vector<16x8xindex>",
     f"%r = xetile.init_tile %x, %o : memref<64xf16>, vector<16x8xindex> -> !xetile.tile<8x16xf16, {SCAT}>",
     "offsets of shape 16x8 don't match the tile's shape 8x16"),
    "offsets that are no indices": ("%x: memref<64xf16>, %o: vector<8x16xi32>",
     f"%r = xetile.init_tile %x, %o : memref<64xf16>, vector<8x16xi32> -> !xetile.tile<8x16xf16, {SCAT}>",
     "offsets of a scattered tile are of type index"),
    "load shape": ("%t: !xetile.tile<32x32xf16>",
     "%r = xetile.load_tile %t : !xetile.tile<32x32xf16> -> vector<32x64xf16>",
     "result of shape 32x64 doesn't match the tile's shape 32x32"),
    "load element type": ("%t: !xetile.tile<32x32xf16>",
     "%r = xetile.load_tile %t : !xetile.tile<32x32xf16> -> vector<32x32xf32>",
     "result of element type f32 doesn't match the tile's element type f16"),
    "load of a transposed shape": ("%t: !xetile.tile<32x16xf16>",
     "%r = xetile.load_tile %t {transpose = [1, 0]} : !xetile.tile<32x16xf16> -> vector<32x16xf16>",
     "result of shape 32x16 doesn't match the tile's transposed shape 16x32"),
    "number of results": ("%t: !xetile.tile<32x16xf16, #xetile.tile_attr<array_length = 2>>",
     "%r = xetile.load_tile %t : !xetile.tile<32x16xf16, #xetile.tile_attr<array_length = 2>> -> vector<32x16xf16>",
     "expected 2 results, the tile's array_length, got 1"),
    "load of a scattered tile": (f"%t: !xetile.tile<8x16xf16, {SCAT}>",
     f"%r = xetile.load_tile %t : !xetile.tile<8x16xf16, {SCAT}> -> vector<8x16xf16>",
     "expected a block tile; a scattered one takes xetile.load"),
    "padding": ("%t: !xetile.tile<32x32xf16>",
     "%r = xetile.load_tile %t {padding = \"zero\"} : !xetile.tile<32x32xf16> -> vector<32x32xf16>",
     "padding must be a number, got \"zero\""),
    "padding of integers": ("%t: !xetile.tile<32x32xi8>",
     "%r = xetile.load_tile %t {padding = 0.5} : !xetile.tile<32x32xi8> -> vector<32x32xi8>",
     "padding of i8 elements must be an integer"),
    "padding of another type": ("%t: !xetile.tile<32x32xf32>",
     "%r = xetile.load_tile %t {padding = 1 : i32} : !xetile.tile<32x32xf32> -> vector<32x32xf32>",
     "padding of f32 elements must have their type, got 1 : i32"),
    "hint of a load": ("%t: !xetile.tile<32x32xf16>",
     "%r = xetile.load_tile %t {l2_hint = #xetile.cache_hint<write_back>} : !xetile.tile<32x32xf16> -> "
     "vector<32x32xf16>", "invalid l2_hint: #xetile.cache_hint<write_back> for a load"),
    "hint of a store": ("%t: !xetile.tile<32x32xf16>, %v: vector<32x32xf16>",
     "xetile.store_tile %v, %t {l1_hint = #xetile.cache_hint<read_invalidate>} : vector<32x32xf16>, "
     "!xetile.tile<32x32xf16>", "invalid l1_hint: #xetile.cache_hint<read_invalidate> for a store"),
    "padding of a store": ("%t: !xetile.tile<32x32xf16>, %v: vector<32x32xf16>",
     "xetile.store_tile %v, %t {padding = 1.0 : f16} : vector<32x32xf16>, !xetile.tile<32x32xf16>",
     "a store takes no padding"),
    "store shape": ("%t: !xetile.tile<32x32xf16>, %v: vector<16x32xf16>",
     "xetile.store_tile %v, %t : vector<16x32xf16>, !xetile.tile<32x32xf16>",
     "value of shape 16x32 doesn't match the tile's shape 32x32"),
    "mask of a store": ("%t: !xetile.tile<32x32xf16>, %v: vector<32x32xf16>, %m: vector<32x1xi1>",
     "xetile.store_tile %v, %t, %m : vector<32x32xf16>, !xetile.tile<32x32xf16>, vector<32x1xi1>",
     "mask must be a vector of i1 of the tile's shape 32x32, got vector<32x1xi1>"),
    "locality": ("%t: !xetile.tile<32x32xf16>", "xetile.prefetch_tile %t locality<4> : !xetile.tile<32x32xf16>",
     "locality ranges from 0 to 3, got 4"),
    "number of moves": ("%t: !xetile.tile<32x32xf16>",
     "%r = xetile.update_tile_offset %t, [8] : !xetile.tile<32x32xf16>",
     "expected two offsets, for rows and columns, got 1"),
    "moving a scattered tile": (f"%t: !xetile.tile<8x16xf16, {SCAT}>",
     f"%r = xetile.update_tile_offset %t, [8, 8] : !xetile.tile<8x16xf16, {SCAT}>",
     "a scattered tile moves by a vector of offsets, one per element"),
    "mma ranks": ("%a: vector<32x32xf16>, %b: vector<32xf16>",
     "%r = xetile.tile_mma %a, %b : vector<32x32xf16>, vector<32xf16> -> vector<32x32xf32>",
     "A and B inputs must have the same rank."),
    "mma types": ("%a: vector<32x32xf16>, %b: vector<32x32xbf16>",
     "%r = xetile.tile_mma %a, %b : vector<32x32xf16>, vector<32x32xbf16> -> vector<32x32xf32>",
     "A and B inputs must have the same type."),
    "mma of a scale": ("%a: vector<32x32xf8E8M0FNU>, %b: vector<32x32xf8E4M3FN>",
     "%r = xetile.tile_mma %a, %b : vector<32x32xf8E8M0FNU>, vector<32x32xf8E4M3FN> -> vector<32x32xf32>",
     "A and B inputs must have the same type."),
    "mma C type": ("%a: vector<32x32xf16>, %c: vector<32x32xf16>",
     "%r = xetile.tile_mma %a, %a, %c : vector<32x32xf16>, vector<32x32xf16>, vector<32x32xf16> -> vector<32x32xf32>",
     "C and output vector must have the same type."),
    "mma sizes": ("%a: vector<32x16xf16>, %b: vector<32x64xf16>",
     "%r = xetile.tile_mma %a, %b : vector<32x16xf16>, vector<32x64xf16> -> vector<32x64xf32>",
     "2D tile mma should have the shape (m x k) x (k x n) = (m x n). Here it is (32 x 16) x (32 x 64) = (32x64)."),
    "mma output": ("%a: vector<8x16xf16>, %b: vector<16x8xf16>",
     "%r = xetile.tile_mma %a, %b : vector<8x16xf16>, vector<16x8xf16> -> vector<16x8xf32>",
     "incompatible A, B and output sizes for 2D tile mma op."),
    "mma C shape": ("%a: vector<8x16xf16>, %b: vector<16x8xf16>, %c: vector<16x8xf32>",
     "%r = xetile.tile_mma %a, %b, %c : vector<8x16xf16>, vector<16x8xf16>, vector<16x8xf32> -> vector<8x8xf32>",
     "input C must have the same shape as output."),
    "mma accumulator": ("%a: vector<8x8xf16>",
     "%r = xetile.tile_mma %a, %a : vector<8x8xf16>, vector<8x8xf16> -> vector<8x8xi32>",
     "cannot accumulate products of f16 in i32"),
    "mma map": ("%a: vector<32x32xf16>",
     f"%r = xetile.tile_mma %a, %a {{wg_map_c = {UNEVEN_WG}}} : vector<32x32xf16>, vector<32x32xf16> -> "
     f"vector<32x32xf32>", "data is not evenly distributed to each subgroup"),
    "transpose index": ("%a: vector<8x16xf16>",
     "%r = xetile.transpose %a, [2, 0] : vector<8x16xf16> -> vector<16x8xf16>", "permutation index out of bounds"),
    "transpose permutation": ("%a: vector<8x16xf16>",
     "%r = xetile.transpose %a, [0, 1] : vector<8x16xf16> -> vector<16x8xf16>", "Incorrect transpose permutation"),
    "reduction result": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <add>, %a [0] : vector<8x16xf16> -> vector<2x16xf16>",
     "reduction dimension of result must have size 1"),
    "reduction size and two dimensions": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <add>, %a [0, 1] {reduction_size = 4} : vector<8x16xf16> -> vector<2x4xf16>",
     "when reduction size is specified, only a single reduction dimension is allowed."),
    "reduction size of a 3-D vector": ("%a: vector<2x8x16xf16>",
     "%r = xetile.reduction <add>, %a [1] {reduction_size = 4} : vector<2x8x16xf16> -> vector<2x2x16xf16>",
     "when reduction size is specified, source must be a 2D vector."),
    "reduction size and result": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <add>, %a [0] {reduction_size = 4} : vector<8x16xf16> -> vector<4x16xf16>",
     "reduction size does not match the expected size of the result dimension after reduction."),
    "reduction size that does not divide": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <add>, %a [0] {reduction_size = 3} : vector<8x16xf16> -> vector<2x16xf16>",
     "reduction size does not match the expected size of the result dimension after reduction."),
    "reduction dimension": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <add>, %a [2] : vector<8x16xf16> -> vector<8x16xf16>",
     "reduction dimensions [2] don't fit a vector of rank 2"),
    "reduction of the other dimension": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <add>, %a [0] : vector<8x16xf16> -> vector<1x8xf16>",
     "dimension 1 is not reduced: result has 8, source 16"),
    "reduction kind": ("%a: vector<8x16xf16>",
     "%r = xetile.reduction <minsi>, %a [0] : vector<8x16xf16> -> vector<1x16xf16>",
     "reduction minsi is not defined on elements of type f16"),
    "broadcast source": ("%a: vector<2x16xf16>", "%r = xetile.broadcast %a [0] : vector<2x16xf16> -> vector<8x16xf16>",
     "broadcast dimension of source must have size 1"),
    "broadcast size": ("%a: vector<2x16xf16>",
     "%r = xetile.broadcast %a [0] {broadcast_size = 3} : vector<2x16xf16> -> vector<8x16xf16>",
     "broadcast size 3 times 2 elements of the source is not the 8 of the result"),
    "broadcast of the other dimension": ("%a: vector<1x16xf16>",
     "%r = xetile.broadcast %a [0] : vector<1x16xf16> -> vector<8x32xf16>",
     "dimension 1 is not broadcast: result has 32, source 16"),
    "convert_layout map": ("%a: vector<32x32xf16>",
     f"%r = xetile.convert_layout %a {{wg_map_result = {UNEVEN_WG}}} : vector<32x32xf16>",
     "data is not evenly distributed to each subgroup"),
    "convert_layout source map": ("%a: vector<32x32xf16>",
     f"%r = xetile.convert_layout %a {{wg_map_result = #xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 16]>, "
     f"wg_map_source = {UNEVEN_WG}}} : vector<32x32xf16>",
     "data is not evenly distributed to each subgroup: wg_map_source"),
    "atomic shape": ("%v: vector<8x8xf32>, %t: !xetile.tile<8x16xf32>",
     "%r = xetile.atomic_rmw addf %v, %t : vector<8x8xf32>, !xetile.tile<8x16xf32> -> vector<8x8xf32>",
     "value of shape 8x8 doesn't match the tile's shape 8x16"),
    "scattered value of another type": (f"%t: !xetile.tile<16xf16, {SCAT}>, %v: vector<16xf32>, %k: vector<16xi1>",
     f"xetile.store %v, %t, %k : vector<16xf32>, !xetile.tile<16xf16, {SCAT}>, vector<16xi1>",
     "value of element type f32 doesn't match the tile's element type f16"),
    "atomic kind": ("%v: vector<8x8xf32>, %t: !xetile.tile<8x8xf32>",
     "%r = xetile.atomic_rmw addi %v, %t : vector<8x8xf32>, !xetile.tile<8x8xf32> -> vector<8x8xf32>",
     "addi is not defined on elements of type f32"),
    "gather of a block tile": ("%t: !xetile.tile<8x16xf16>",
     "%r = xetile.load %t : !xetile.tile<8x16xf16> -> vector<8x16xf16>", "Expecting a scattered TileType."),
    "mask": (f"%t: !xetile.tile<8x16xf16, {SCAT}>, %k: vector<8x8xi1>",
     f"%r = xetile.load %t, %k : !xetile.tile<8x16xf16, {SCAT}>, vector<8x8xi1> -> vector<8x16xf16>",
     "mask must be a vector of i1 of the tile's shape 8x16"),
}  # fmt: skip


def function(arguments: str, op: str) -> str:
    return f"func.func @f({arguments}) {{\n  {op}\n  return\n}}\n"


def error_of(text: str, **options: bool) -> TilewrightError:
    with pytest.raises(TilewrightError) as caught:
        parse_module(text, "kernel.mlir", **options)
    return caught.value


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_op_is_refused_at_its_place(name: str) -> None:
    arguments, op, message = ILLEGAL[name]
    error = error_of(function(arguments, op))
    assert isinstance(error, VerifyError)
    assert message in error.message
    mnemonic = op.split("=", 1)[1].split()[0] if op.startswith("%") else op.split()[0]
    assert error.message.startswith(f"'{mnemonic}' op ")
    assert error.location is not None
    assert (error.location.line, error.location.col) == (2, 3 + op.index(mnemonic))


@pytest.mark.parametrize("name", ["transpose permutation", "mma output"])
def test_the_rule_comes_before_a_missing_terminator(name: str) -> None:
    arguments, op, message = ILLEGAL[name]
    error = error_of(function(arguments, op).replace("  return\n", ""))
    assert message in error.message


# Attribute or type -> part of the message. These are refused where they stand.
MALFORMED = {
    "#xetile.sg_map<wi_layout = [2, 8, 2], wi_data = [1, 2]>": "integer array of size 2 for wi_la",
    "#xetile.sg_map<wi_layout = [2, 8], wi_data = [1]>": "integer array of size 2 for wi_data",
    "#xetile.wg_map<sg_layout = [4], sg_data = [32, 128]>": "integer array of size 2 for sg_layo",
    "#xetile.wg_map<sg_layout = [2, 2], sg_data = [1, 2, 3]>": "integer array of size 2 for sg_da",
    "#xetile.wg_map<sg_layout = [2, 2]>": "wg_map needs the field 'sg_data'",
    "#xetile.wg_map<sg_layout = [2, 0], sg_data = [1, 2]>": "integers of at least 1 for sg_layout",
    "#xetile.wg_map<sg_layout = [2, 2], sg_layout = [2, 2]>": "'sg_layout' of wg_map is given twi",
    "#xetile.wg_map<layout = [2, 2], sg_data = [1, 2]>": "unknown field 'layout' of wg_map",
    "#xetile.tile_attr<order = [0, 1, 2]>": "expect integer array of size 2 for order",
    "#xetile.tile_attr<order = [1, 1]>": "expect order to be [1, 0] or [0, 1], got [1, 1]",
    "#xetile.tile_attr<array_length = 0>": "expect integer greater than 0 for array_length",
    "#xetile.tile_attr<array_length = 2, scattered = true>": "array_length cannot be used with sc",
    "#xetile.tile_attr<memory_space = -1>": "expect a non-negative integer for memory_space",
    "#xetile.tile_attr<wg_map = #xetile.cache_hint<cached>>": "expected a #xetile.wg_map",
    "#xetile.cache_hint<warm>": "Expected `cached`",
    "!xetile.tile<32x64xf16, #xetile.cache_hint<cached>>": "expect xetile::XeTileAttr for encoding",
    "!xetile.tile<32x64xf16, 3>": "expect xetile::XeTileAttr for encoding",
    "!xetile.tile<32x64xf16,>": "expected a #xetile.tile_attr",
    "!xetile.tile<0x64xf16>": "dimensions of a tile are static and positive, got 0",
    "!xetile.tile<?x64xf16>": "dimensions of a tile are static and positive, got dynamic",
    "!xetile.tile<64xf16>": "expected a 2-D tile, got 1 dimensions",
    "!xetile.tile<2x2x2xf16, #xetile.tile_attr<scattered = true>>": "expected a 1-D or 2-D scatt",
    "!xetile.tile<8x8xf80>": "unsupported element type of a tile: f80",
    "!xetile.tile<32x32xf16, #xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 24]>>": "not evenly distributed",
    "!xetile.tile<32x24xf16, #xetile.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>": "not evenly distributed",
    "!xetile.tile<8x8xmemref<4xf32>>": "unsupported element type of a tile",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_attribute_is_refused(text: str) -> None:
    error = error_of(f"#a = {text}\n" if text[0] == "#" else f"!a = {text}\n")
    assert isinstance(error, CompileError)
    assert MALFORMED[text].lower() in error.message.lower()
    assert error.location is not None and error.location.line == 1
    assert "evenly distributed" not in error.message or "sg_data divides" in str(error.hint)


@pytest.mark.parametrize(
    "kind, strides, order",
    [
        ("memref<?x?xbf16, strided<[?, 1]>>", "[%s, 1]", ""),
        ("memref<?x?xbf16, strided<[1, ?]>>", "[1, %s]", f", {COL}"),
        ("memref<?x?xbf16, strided<[?, ?]>>", "[%s, %s]", ""),
        ("memref<?x1xbf16, strided<[?, 1]>>", "[%s, 1]", ""),
        ("memref<1x?xbf16, strided<[?, 1]>>", "[%s, 1]", ""),
    ],
)
def test_array_arguments_of_kernels(kind: str, strides: str, order: str) -> None:
    """The forms in which the front ends hand arrays over."""
    parse_module(
        function(
            f"%x: {kind}, %s: index",
            f"%r = xetile.init_tile %x[0, %s], [%s, %s], {strides} : {kind} "
            f"-> !xetile.tile<1x1xbf16{order}>",
        ),
        strict=True,
    )
