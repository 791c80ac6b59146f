// Today's text: offsets on the memory op, properties in <{..}>. Every op, every attribute.
#l = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], inst_data = [8, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @c(%m: memref<4096x4096xf16>, %p: i64, %i: index, %j: index, %s: memref<2048xi8, 3>, %base: memref<1024xf32>, %o: vector<16xindex>, %k: vector<16xi1>, %id: i8) {
  %t = xegpu.create_nd_tdesc %m : memref<4096x4096xf16> -> !xegpu.tensor_desc<256x128xf16, #l>
  %t2 = xegpu.create_nd_tdesc %p, shape : [%i, 64], strides : [%j, 1] : i64 -> !xegpu.tensor_desc<16x16xf16>
  %t3 = xegpu.create_nd_tdesc %m[%i, 8] : memref<4096x4096xf16> -> !xegpu.tensor_desc<8x16xf16, #xegpu.block_tdesc_attr<array_length = 2, boundary_check = false>>
  %v = xegpu.load_nd %t[%i, 0] <{l1_hint = #xegpu.cache_hint<cached>, layout = #l}> : !xegpu.tensor_desc<256x128xf16, #l> -> vector<256x128xf16>
  %b = xegpu.load_nd %t2[%i, %j] {packed} : !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
  %bt = xegpu.load_nd %t2[%i, %j] <{transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32}> : !xegpu.tensor_desc<16x16xf16> -> vector<8x32xf16>
  %aa = xegpu.load_nd %t3 : !xegpu.tensor_desc<8x16xf16, #xegpu.block_tdesc_attr<array_length = 2, boundary_check = false>> -> vector<2x8x16xf16>
  xegpu.store_nd %v, %t[%i, 0] : vector<256x128xf16>, !xegpu.tensor_desc<256x128xf16, #l>
  xegpu.prefetch_nd %t[%i, 0] locality<2> : !xegpu.tensor_desc<256x128xf16, #l>
  %t4 = xegpu.update_nd_offset %t3, [%i, 16] : !xegpu.tensor_desc<8x16xf16, #xegpu.block_tdesc_attr<array_length = 2, boundary_check = false>>
  %a1 = vector.extract %aa[0] : vector<8x16xf16> from vector<2x8x16xf16>
  %d = xegpu.dpas %a1, %b : vector<8x16xf16>, vector<8x16x2xf16> -> vector<8x16xf32>
  %d2 = xegpu.dpas %a1, %b, %d {layout_cd = #xegpu.layout<inst_data = [8, 16]>} : vector<8x16xf16>, vector<8x16x2xf16>, vector<8x16xf32> -> vector<8x16xf32>
  %md = xegpu.create_mem_desc %s : memref<2048xi8, 3> -> !xegpu.mem_desc<32x32xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>>
  xegpu.store_matrix %a1, %md[%i, 8] <{subgroup_block_io}> : vector<8x16xf16>, !xegpu.mem_desc<32x32xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>>, index
  %lm = xegpu.load_matrix %md[0, 8] : !xegpu.mem_desc<32x32xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>> -> vector<8x16xf16>
  %g = xegpu.load %base[%o], %k <{chunk_size = 2 : i64, l1_hint = #xegpu.cache_hint<cached>}> : memref<1024xf32>, vector<16xindex>, vector<16xi1> -> vector<16x2xf32>
  xegpu.store %g, %p[%o], %k <{chunk_size = 2}> : vector<16x2xf32>, i64, vector<16xindex>, vector<16xi1>
  xegpu.prefetch %p[%o] <{offset_align_byte = 4}> : i64, vector<16xindex>
  %st = xegpu.create_tdesc %base, %o : memref<1024xf32>, vector<16xindex> -> !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>
  %g2 = xegpu.load %st, %k <{transpose}> : !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, vector<16xi1> -> vector<2x16xf32>
  %st2 = xegpu.update_offset %st, %o : !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, vector<16xindex>
  %st1 = xegpu.create_tdesc %base, %o : memref<1024xf32>, vector<16xindex> -> !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>
  %one = arith.constant dense<1.0> : vector<16xf32>
  %r = xegpu.atomic_rmw addf %st1, %k, %one : !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>, vector<16xi1>, vector<16xf32> -> vector<16xf32>
  %r2 = xegpu.atomic_rmw "addf" %one, %base[%o], %k : vector<16xf32>, memref<1024xf32>, vector<16xindex>, vector<16xi1> -> vector<16xf32>
  xegpu.alloc_nbarrier 8
  %nb = xegpu.init_nbarrier %id, %id : i8, i8 -> !xegpu.nbarrier
  xegpu.nbarrier_arrive %nb : !xegpu.nbarrier
  xegpu.nbarrier_wait %nb : !xegpu.nbarrier
  xegpu.fence memory_kind = global, fence_scope = workgroup
  xegpu.fence memory_kind = slm, fence_scope = gpu, fence_op_flush = evict
  xegpu.compile_hint
  %cv = xegpu.convert_layout %a1 <{input_layout = #xegpu.layout<lane_layout = [1, 16], lane_data = [1, 1]>, target_layout = #xegpu.slice<#xegpu.layout<lane_layout = [1, 16, 1], lane_data = [1, 1, 1]>, dims = [2]>}> : vector<8x16xf16>
  %tr = xegpu.truncf %a1 : vector<8x16xf16> -> vector<8x16xf8E5M2>
  %tt = xegpu.truncf %d : vector<8x16xf32> -> vector<8x16xtf32>
  return
}
