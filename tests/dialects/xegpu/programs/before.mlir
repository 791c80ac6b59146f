// The generation before today's: offsets on create_nd_tdesc, descriptors of scattered accesses.
#l = #xegpu.layout<lane_layout = [1, 16], lane_data = [2, 1]>
func.func @old(%m: memref<512x256xf16>, %d: memref<?x?xf16>, %p: ui64, %i: index, %j: index,
               %flat: memref<?xf32>, %slm: memref<?xf32, 3>, %o: vector<4xindex>, %k: vector<4xi1>,
               %two: vector<2x4xindex>, %v: vector<32x64xf16>) {
  %t = xegpu.create_nd_tdesc %m[%i, 8] : memref<512x256xf16> -> !xegpu.tensor_desc<16x16xf16>
  %u = xegpu.create_nd_tdesc %d[%i, %j], shape : [%i, %j], strides : [%j, 1] : memref<?x?xf16> -> !xegpu.tensor_desc<8x16xf16>
  %w = xegpu.create_nd_tdesc %d[%i, %j], [%i, %j], [%j, 1] {mode = vc} : memref<?x?xf16> -> !xegpu.tensor_desc<8x16xf16>
  xegpu.prefetch_nd %t {l1_hint = #xegpu.cache_hint<cached>, l3_hint = #xegpu.cache_hint<uncached>} : !xegpu.tensor_desc<16x16xf16>
  %b = xegpu.load_nd %t {packed, l1_hint = #xegpu.cache_hint<cached>, mode = vc} : !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
  %a = xegpu.load_nd %u <{l1_hint = #xegpu.cache_hint<streaming>}> : !xegpu.tensor_desc<8x16xf16> -> vector<8x16xf16>
  %bt = xegpu.load_nd %t {transpose_bit_width = 32 : i32, transpose = array<i64: 1, 0>} : !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
  %ct = xegpu.dpas %a, %bt : vector<8x16xf16>, vector<8x16x2xf16> -> vector<8x16xf32>
  %lane = xegpu.load_nd %t : !xegpu.tensor_desc<16x16xf16> -> vector<16xf16>
  %c = xegpu.dpas %a, %b : vector<8x16xf16>, vector<8x16x2xf16> -> vector<8x16xf32>
  %c2 = xegpu.dpas %a, %b, %c {a_layout = #l, b_layout = #l, c_layout = #l} : vector<8x16xf16>, vector<8x16x2xf16>, vector<8x16xf32> -> vector<8x16xf32>
  %t2 = xegpu.update_nd_offset %t, [%i, 16] : !xegpu.tensor_desc<16x16xf16>
  %s = xegpu.create_tdesc %p, %o : ui64, vector<4xindex> -> !xegpu.tensor_desc<4x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>
  %s2 = xegpu.create_tdesc %slm, %o : memref<?xf32, 3>, vector<4xindex> -> !xegpu.tensor_desc<4x2xf32, #xegpu.scatter_tdesc_attr<memory_space = slm, chunk_size = 2>>
  %s3 = xegpu.create_tdesc %flat, %o : memref<?xf32>, vector<4xindex> -> !xegpu.tensor_desc<4xf32, #xegpu.scatter_tdesc_attr<>>
  %s4 = xegpu.create_tdesc %p, %two : ui64, vector<2x4xindex> -> !xegpu.tensor_desc<2x4x2xf16, #xegpu.scatter_tdesc_attr<chunk_size = 2>>
  %g = xegpu.load %s, %k <{l1_hint = #xegpu.cache_hint<cached>}> : !xegpu.tensor_desc<4x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, vector<4xi1> -> vector<4x2xf32>
  %gl = xegpu.load %s, %k : !xegpu.tensor_desc<4x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, vector<4xi1> -> vector<2xf32>
  xegpu.store %g, %s2, %k {l1_hint = #xegpu.cache_hint<write_back>} : vector<4x2xf32>, !xegpu.tensor_desc<4x2xf32, #xegpu.scatter_tdesc_attr<memory_space = slm, chunk_size = 2>>, vector<4xi1>
  xegpu.prefetch %s3 : !xegpu.tensor_desc<4xf32, #xegpu.scatter_tdesc_attr<>>
  %s5 = xegpu.update_offset %s3, %o : !xegpu.tensor_desc<4xf32, #xegpu.scatter_tdesc_attr<>>, vector<4xindex>
  %one = arith.constant dense<1.0> : vector<4xf32>
  %r = xegpu.atomic_rmw "addf" %s5, %k, %one : !xegpu.tensor_desc<4xf32, #xegpu.scatter_tdesc_attr<>>, vector<4xi1>, vector<4xf32> -> vector<4xf32>
  %x = xegpu.convert_layout %v {srcMap = #xegpu.layout<lane_layout = [1, 16], lane_data = [2, 1]>, resMap = #xegpu.layout<lane_layout = [1, 16], lane_data = [1, 1]>} : vector<32x64xf16>
  return
}
