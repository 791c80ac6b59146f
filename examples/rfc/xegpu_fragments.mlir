// The fragments of the XeGPU RFC's text as whole functions, in its generation of the text.
// tests/examples/test_rfc_fragments.py runs each and says what it must give.

#sg_map_a = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>
#sg_map_b = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>
#sg_map_t = #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>
#layout_a = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 128], inst_data = [1, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
#layout_3 = #xegpu.layout<sg_layout = [8, 1, 4], sg_data = [1, 32, 32], inst_data = [1, 1, 16], lane_layout = [1, 1, 16], lane_data = [1, 1, 1], order = [2, 1, 0]>
#layout_b = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], inst_data = [1, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>

// [xegpu 27, 50-60, 71-79, 107-110] create_nd_tdesc of an address with offsets, shape and strides; a block of an array of two.
func.func @address(%base: memref<64x128xbf16>, %out: memref<64x128xbf16>, %x: index, %y: index) {
  %h = arith.constant 64 : index
  %w = arith.constant 128 : index
  %one = arith.constant 1 : index
  %p = memref.extract_aligned_pointer_as_index %base : memref<64x128xbf16> -> index
  %mem_addr = arith.index_cast %p : index to i64
  %t = xegpu.create_nd_tdesc %mem_addr, %x, %y, %h, %w, %w, %one
      : i64, index, index, index, index, index, index
      into !xegpu.tensor_desc<8x16xbf16, #xegpu.block_tdesc_attr<array_length = 2>>
  %v = xegpu.load_nd %t {L1_hint = uncached, L3_hint = uncached}
      : !xegpu.tensor_desc<8x16xbf16, #xegpu.block_tdesc_attr<array_length = 2>> into vector<2x8x16xbf16>
  %v0 = vector.extract %v[0] : vector<8x16xbf16> from vector<2x8x16xbf16>
  %v1 = vector.extract %v[1] : vector<8x16xbf16> from vector<2x8x16xbf16>
  %t0 = xegpu.create_nd_tdesc %out[0, 0] : memref<64x128xbf16> -> !xegpu.tensor_desc<8x16xbf16>
  xegpu.store_nd %v0, %t0 : vector<8x16xbf16>, !xegpu.tensor_desc<8x16xbf16>
  %t1 = xegpu.create_nd_tdesc %out[8, 0] : memref<64x128xbf16> -> !xegpu.tensor_desc<8x16xbf16>
  xegpu.store_nd %v1, %t1 : vector<8x16xbf16>, !xegpu.tensor_desc<8x16xbf16>
  return
}

// [xegpu 80-89] A memref of higher rank: the descriptor covers its innermost dimensions. A 1-D descriptor.
func.func @ranks(%base: memref<2x3x16x32xf32>, %row: memref<1024xf32>, %out: memref<64x64xf32>) {
  %t = xegpu.create_nd_tdesc %base[1, 2, 4, 8] {mode = vc} : memref<2x3x16x32xf32> -> !xegpu.tensor_desc<8x16xf32>
  %v = xegpu.load_nd %t : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %v, %to : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  %r = xegpu.create_nd_tdesc %row[100] : memref<1024xf32>
      -> !xegpu.tensor_desc<16xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
  %w = xegpu.load_nd %r : !xegpu.tensor_desc<16xf32, #xegpu.block_tdesc_attr<boundary_check = false>> -> vector<16xf32>
  %s = xegpu.create_nd_tdesc %row[0] : memref<1024xf32> -> !xegpu.tensor_desc<16xf32>
  xegpu.store_nd %w, %s : vector<16xf32>, !xegpu.tensor_desc<16xf32>
  return
}

// [xegpu 113-129, 140-150] transpose, packed, and transpose_bit_width, which makes the VNNI form of a transposed matrix.
func.func @forms(%a: memref<16x8xf32>, %b: memref<32x16xf16>, %at: memref<8x16xf32>, %packed: memref<16x32xf16>, %turned: memref<8x64xf16>) {
  %t = xegpu.create_nd_tdesc %a[0, 0] : memref<16x8xf32> -> !xegpu.tensor_desc<16x8xf32>
  %v = xegpu.load_nd %t {transpose = [1, 0]} : !xegpu.tensor_desc<16x8xf32> into vector<8x16xf32>
  %to = xegpu.create_nd_tdesc %at[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %v, %to : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  %tb = xegpu.create_nd_tdesc %b[0, 0] : memref<32x16xf16> -> !xegpu.tensor_desc<32x16xf16>
  %p = xegpu.load_nd %tb {packed} : !xegpu.tensor_desc<32x16xf16> into vector<16x16x2xf16>
  %rows = vector.shape_cast %p : vector<16x16x2xf16> to vector<16x32xf16>
  %tp = xegpu.create_nd_tdesc %packed[0, 0] : memref<16x32xf16> -> !xegpu.tensor_desc<16x32xf16>
  xegpu.store_nd %rows, %tp : vector<16x32xf16>, !xegpu.tensor_desc<16x32xf16>
  %w = xegpu.load_nd %tb {transpose = [1, 0], transpose_bit_width = 32} : !xegpu.tensor_desc<32x16xf16> into vector<8x64xf16>
  %tt = xegpu.create_nd_tdesc %turned[0, 0] : memref<8x64xf16> -> !xegpu.tensor_desc<8x64xf16>
  xegpu.store_nd %w, %tt : vector<8x64xf16>, !xegpu.tensor_desc<8x64xf16>
  return
}

// [xegpu 154-182] dpas in its three shapes: plain, B packed, A and B packed.
func.func @dpas(%a: memref<8x16xbf16>, %b: memref<16x16xbf16>, %c: memref<8x16xf32>) {
  %ta = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xbf16> -> !xegpu.tensor_desc<8x16xbf16>
  %tb = xegpu.create_nd_tdesc %b[0, 0] : memref<16x16xbf16> -> !xegpu.tensor_desc<16x16xbf16>
  %vector_a = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xbf16> -> vector<8x16xbf16>
  %plain_b = xegpu.load_nd %tb : !xegpu.tensor_desc<16x16xbf16> -> vector<16x16xbf16>
  %vector_b = xegpu.load_nd %tb {packed} : !xegpu.tensor_desc<16x16xbf16> -> vector<8x16x2xbf16>
  %1 = xegpu.dpas %vector_a, %plain_b : vector<8x16xbf16>, vector<16x16xbf16> into vector<8x16xfloat>
  %2 = xegpu.dpas %vector_a, %vector_b, %1 : vector<8x16xbf16>, vector<8x16x2xbf16>, vector<8x16xf32> into vector<8x16xfloat>
  %packed_a = vector.shape_cast %vector_a : vector<8x16xbf16> to vector<8x8x2xbf16>
  %3 = xegpu.dpas %packed_a, %vector_b, %2 : vector<8x8x2xbf16>, vector<8x16x2xbf16>, vector<8x16xf32> into vector<8x16xfloat>
  %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.prefetch_nd %ta : !xegpu.tensor_desc<8x16xbf16>
  xegpu.store_nd %3, %tc : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  return
}

// [xegpu 22-24, 37, 275-279, 317-322] create_tdesc, load with chunks and transpose, store with a mask, update_offset, atomic_rmw.
func.func @scattered(%base: memref<512xi16>, %sums: memref<16xf32>, %out: memref<512xi16>) {
  %lanes = vector.step : vector<16xindex>
  %eight = arith.constant dense<8> : vector<16xindex>
  %offsets = arith.muli %lanes, %eight : vector<16xindex>
  %half = arith.cmpi ult, %lanes, %eight : vector<16xindex>
  %all = arith.constant dense<true> : vector<16xi1>
  %chunk = xegpu.create_tdesc %base, %offsets : memref<512xi16>, vector<16xindex>
      -> !xegpu.tensor_desc<16x8xi16, #xegpu.scatter_tdesc_attr<chunk_size = 8>>
  %moved = xegpu.update_offset %chunk, %eight
      : !xegpu.tensor_desc<16x8xi16, #xegpu.scatter_tdesc_attr<chunk_size = 8>>, vector<16xindex>
  %v = xegpu.load %moved, %all {L1 = cached, L2 = uncached, transpose}
      : !xegpu.tensor_desc<16x8xi16, #xegpu.scatter_tdesc_attr<chunk_size = 8>>, vector<16xi1> -> vector<8x16xi16>
  %first = vector.extract %v[3] : vector<16xi16> from vector<8x16xi16>
  %to = xegpu.create_tdesc %out, %offsets : memref<512xi16>, vector<16xindex>
      -> !xegpu.tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  xegpu.store %first, %to, %half : vector<16xi16>, !xegpu.tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>, vector<16xi1>
  xegpu.prefetch %to : !xegpu.tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  %value = arith.constant dense<0.25> : vector<16xf32>
  %three = arith.constant dense<3> : vector<16xindex>
  %few = arith.remui %lanes, %three : vector<16xindex>
  %acc = xegpu.create_tdesc %sums, %few : memref<16xf32>, vector<16xindex>
      -> !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>
  %old = xegpu.atomic_rmw "addf" %value, %acc, %all
      : vector<16xf32>, !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>, vector<16xi1> -> vector<16xf32>
  xegpu.fence {scope = gpu, memory_kind = global}
  return
}

// [xegpu 819-820, 892-894] "layout": reductions to 1-D and from 3-D, shape_cast, broadcast, transpose, convert_layout.
func.func @layouts(%a: memref<256x128xf32>, %sums: memref<256x1xf32>, %deep: memref<8x128xf32>, %turned: memref<128x256xf32>) {
  %t = xegpu.create_nd_tdesc %a[0, 0] : memref<256x128xf32> -> !xegpu.tensor_desc<256x128xf32, #layout_b>
  %v = xegpu.load_nd %t : !xegpu.tensor_desc<256x128xf32, #layout_b> -> vector<256x128xf32>
  %w = xegpu.convert_layout %v <{input_layout = #layout_b, target_layout = #layout_a}> : vector<256x128xf32>
  %none = arith.constant dense<0.0> : vector<256xf32>
  %r = vector.multi_reduction <add>, %w, %none {layout_result_0 = #xegpu.slice<#layout_a, dims = [1]>} [1] : vector<256x128xf32> to vector<256xf32>
  %ts = xegpu.create_nd_tdesc %sums[0, 0] : memref<256x1xf32> -> !xegpu.tensor_desc<256x1xf32>
  %column = vector.shape_cast %r : vector<256xf32> to vector<256x1xf32>
  xegpu.store_nd %column, %ts : vector<256x1xf32>, !xegpu.tensor_desc<256x1xf32>
  %cube = vector.shape_cast %v {layout_result_0 = #layout_3} : vector<256x128xf32> to vector<8x32x128xf32>
  %flat = arith.constant dense<0.0> : vector<8x128xf32>
  %d = vector.multi_reduction <add>, %cube, %flat {layout_result_0 = #xegpu.slice<#layout_3, dims = [1]>} [1] : vector<8x32x128xf32> to vector<8x128xf32>
  %td = xegpu.create_nd_tdesc %deep[0, 0] : memref<8x128xf32> -> !xegpu.tensor_desc<8x128xf32>
  xegpu.store_nd %d, %td : vector<8x128xf32>, !xegpu.tensor_desc<8x128xf32>
  %turn = vector.transpose %v, [1, 0] : vector<256x128xf32> to vector<128x256xf32>
  %row = vector.broadcast %r {layout_result_0 = #xegpu.layout<sg_layout = [4, 8], sg_data = [32, 32]>} : vector<256xf32> to vector<128x256xf32>
  %both = arith.addf %turn, %row : vector<128x256xf32>
  %tt = xegpu.create_nd_tdesc %turned[0, 0] : memref<128x256xf32> -> !xegpu.tensor_desc<128x256xf32>
  xegpu.store_nd %both, %tt : vector<128x256xf32>, !xegpu.tensor_desc<128x256xf32>
  return
}

// [xegpu 91-104] 1-D descriptors of shared memory, by memref; what a subgroup put there comes back.
#slm_line = #xegpu.block_tdesc_attr<memory_space = slm, boundary_check = false>
func.func @shared_lines(%in: memref<1024xbf16>, %out: memref<1024xbf16>) {
  %mref = memref.alloc() : memref<1024xbf16, 3>
  %offset = arith.constant 64 : index
  %from = xegpu.create_nd_tdesc %in[128] : memref<1024xbf16> -> !xegpu.tensor_desc<32xbf16, #xegpu.block_tdesc_attr<boundary_check = false>>
  %v = xegpu.load_nd %from : !xegpu.tensor_desc<32xbf16, #xegpu.block_tdesc_attr<boundary_check = false>> -> vector<32xbf16>
  %tdesc2 = xegpu.create_nd_tdesc %mref, %offset :
		memref<1024xbf16, 3>, index into tensor_desc<32xbf16, #slm_line>
  xegpu.store_nd %v, %tdesc2 : vector<32xbf16>, tensor_desc<32xbf16, #slm_line>
  %w = xegpu.load_nd %tdesc2 : tensor_desc<32xbf16, #slm_line> into vector<32xbf16>
  %to = xegpu.create_nd_tdesc %out[0] : memref<1024xbf16> -> !xegpu.tensor_desc<32xbf16, #xegpu.block_tdesc_attr<boundary_check = false>>
  xegpu.store_nd %w, %to : vector<32xbf16>, !xegpu.tensor_desc<32xbf16, #xegpu.block_tdesc_attr<boundary_check = false>>
  return
}

// [xegpu 133-138] transpose_bit_width of 32 on a tile of 16x16: pairs of f16 are transposed.
func.func @pairs(%in: memref<64x64xf16>, %out: memref<8x32xf16>) {
  %tdesc1 = xegpu.create_nd_tdesc %in[8, 16] : memref<64x64xf16> -> !xegpu.tensor_desc<16x16xf16>
  %at = xegpu.load_nd %tdesc1 {transpose = [1,0], transpose_bit_width = 32} :
     tensor_desc<16x16xfp16> into vector<8x32xfp16>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<8x32xf16> -> !xegpu.tensor_desc<8x32xf16>
  xegpu.store_nd %at, %to : vector<8x32xf16>, !xegpu.tensor_desc<8x32xf16>
  return
}

// [xegpu 28-32, 184-206] load_nd, prefetch_nd and store_nd with hints; update_nd_offset; dpas with C first.
func.func @moved(%a: memref<64x64xbf16>, %b: memref<64x64xbf16>, %c: memref<8x64xf32>, %offset_x: index, %offset_y: index) {
  %tdesc = xegpu.create_nd_tdesc %a[8, 0] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x16xbf16>
  xegpu.prefetch_nd %tdesc: tensor_desc<8x16xbf16>
  %tdesc_updated = xegpu.update_nd_offset %tdesc, %offset_x, %offset_y :
		tensor_desc<8x16xbf16>, index, index into tensor_desc<8x16xbf16>
  %vector_a = xegpu.load_nd %tdesc_updated {L1_hint = uncached, L3_hint = uncached} : tensor_desc<8x16xbf16> -> vector<8x16xbf16>
  %tb = xegpu.create_nd_tdesc %b[16, 32] : memref<64x64xbf16> -> !xegpu.tensor_desc<16x16xbf16>
  %vector_b = xegpu.load_nd %tb {packed} : tensor_desc<16x16xbf16> -> vector<8x16x2xbf16>
  %packed_a = vector.shape_cast %vector_a : vector<8x16xbf16> to vector<8x8x2xbf16>
  %start = arith.constant dense<1.0> : vector<8x16xf32>
  %vector_c = xegpu.dpas %start, %packed_a, %vector_b: vector<8x16xfloat>, vector<8x8x2xbf16>, vector<8x16x2xbf16> -> vector<8x16xfloat>
  %tc = xegpu.create_nd_tdesc %c[0, 16] : memref<8x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %vector_c, %tc {L1_hint = uncached, L3_hint = uncached} : vector<8x16xf32>, tensor_desc<8x16xf32>
  return
}

// [xegpu 25, 208-222, 242-248, 262-271] create_tdesc for 16 single bytes; load with hints; store of 16 bits.
func.func @bytes(%in: memref<256xi8>, %out: memref<256xi16>) {
  %lanes = vector.step : vector<16xindex>
  %three = arith.constant dense<3> : vector<16xindex>
  %offsets = arith.muli %lanes, %three : vector<16xindex>
  %mask = arith.constant dense<true> : vector<16xi1>
  %scatter_tdesc0 = xegpu.create_tdesc %in, %offsets :
     	memref<256xi8>, Vector<16 x index>, into tensor_desc<16 x i8, #xegpu.scatter_tdesc_attr<>>
  xegpu.prefetch %scatter_tdesc0 {L1 = cached, L2 = uncached} : tensor_desc<16xi8, #xegpu.scatter_tdesc_attr<>>
  %result0 = xegpu.load %scatter_tdesc0, %mask {L1_hint = cached, L2_hint = uncached} :
        	  tensor_desc<16xi8, #xegpu.scatter_tdesc_attr<>>, vector<16xi1> into vector<16xi8>
  %value = arith.extui %result0 : vector<16xi8> to vector<16xi16>
  %scatter_tdesc1 = xegpu.create_tdesc %out, %offsets : memref<256xi16>, vector<16xindex> -> tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  xegpu.store %value, %scatter_tdesc1, %mask :
     	 vector<16xi16>, vector<16xi1>, tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  return
}

// [xegpu 21-22, 224-240, 250-260] Chunks of 8 in shared memory: create_tdesc, store, load with transpose.
#slm_chunks = #xegpu.scatter_tdesc_attr<memory_space = slm, chunk_size = 8>
#chunks = #xegpu.scatter_tdesc_attr<chunk_size = 8>
func.func @shared_chunks(%in: memref<256xbf16>, %out: memref<8x16xbf16>) {
  %base_addr = memref.alloc() : memref<256xbf16, 3>
  %lanes = vector.step : vector<16xindex>
  %sixteen = arith.constant dense<16> : vector<16xindex>
  %offsets = arith.muli %lanes, %sixteen : vector<16xindex>
  %mask = arith.constant dense<true> : vector<16xi1>
  %from = xegpu.create_tdesc %in, %offsets : memref<256xbf16>, vector<16xindex> into tensor_desc<16x8xbf16, #chunks>
  %v = xegpu.load %from, %mask {transpose} : tensor_desc<16x8xbf16, #chunks>, vector<16xi1> -> vector<8x16xbf16>
  %scatter_tdesc_chunk = xegpu.create_tdesc, %base_addr, %offsets :
		memref<256xbf16, 3>, vector<16xindex> into tensor_desc<16x8xbf16, #slm_chunks>
  xegpu.store %v, %scatter_tdesc_chunk, %mask {transpose} : vector<8x16xbf16>, tensor_desc<16x8xbf16, #slm_chunks>, vector<16xi1>
  %result = xegpu.load %scatter_tdesc_chunk, %mask {L1 = cached, L2 = uncached, transpose} :
          tensor_desc<16x8xbf16, #slm_chunks>, vector<16xi1> -> vector<8x16xbf16>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<8x16xbf16> -> tensor_desc<8x16xbf16>
  xegpu.store_nd %result, %to : vector<8x16xbf16>, tensor_desc<8x16xbf16>
  return
}

// [xegpu 24, 281-285] update_offset of a scattered descriptor.
func.func @update_offsets(%in: memref<256xi16>, %out: memref<256xi16>) {
  %lanes = vector.step : vector<16xindex>
  %mask = arith.constant dense<true> : vector<16xi1>
  %scatter_tdesc1 = xegpu.create_tdesc %in, %lanes : memref<256xi16>, vector<16xindex> -> tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  %tdesc_updated = xegpu.update_offset %scatter_tdesc1, %lanes :
  	tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>, vector<16xindex> into tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  %v = xegpu.load %tdesc_updated, %mask : tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>, vector<16xi1> -> vector<16xi16>
  %to = xegpu.create_tdesc %out, %lanes : memref<256xi16>, vector<16xindex> -> tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  xegpu.store %v, %to, %mask {L1 = write_through, L2 = write_back} : vector<16xi16>, tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>, vector<16xi1>
  return
}

// [xegpu 26, 287-294] atomic_rmw of bf16, whose lanes meet in three elements.
func.func @atomic_bf16(%sums: memref<16xbf16>) {
  %lanes = vector.step : vector<16xindex>
  %mask = arith.constant dense<true> : vector<16xi1>
  %value = arith.constant dense<1.0> : vector<16xbf16>
  %three = arith.constant dense<3> : vector<16xindex>
  %few = arith.remui %lanes, %three : vector<16xindex>
  %scatter_Desc1 = xegpu.create_tdesc %sums, %few : memref<16xbf16>, vector<16xindex> -> tensor_desc<16xbf16, #xegpu.scatter_tdesc_attr<>>
  %ret_value = xegpu.atomic_rmw "addf" %value, %scatter_Desc1, %mask :
          vector<16xbf16>, tensor_desc<16xbf16, #xegpu.scatter_tdesc_attr<>>, vector<16xi1> to vector<16xbf16>
  return
}

// [xegpu 33-36, 296-322] Named barriers: four subgroups exchange rows through shared memory, seen as a matrix.
gpu.module @subgroups {
  gpu.func @named_barriers(%a: memref<32x64xf32>, %b: memref<32x64xf32>) kernel
      attributes {tilewright.level = "subgroup", tilewright.subgroups = 4 : i64} {
    %sg = gpu.subgroup_id : index
    %c8 = arith.constant 8 : index
    %c3 = arith.constant 3 : index
    %row = arith.muli %sg, %c8 : index
    %slm = memref.alloc() : memref<2048xi8, 3>
    %m = xegpu.create_mem_desc %slm : memref<2048xi8, 3> -> !xegpu.mem_desc<32x16xf32>
    %nbarrier_id = arith.constant 1 : i8
    %participant_thread_num = arith.constant 4 : i8
    xegpu.alloc_nbarrier 2
    %nbarrier = xegpu.init_nbarrier %nbarrier_id, %participant_thread_num : i8, i8 into nbarrier
    %t = xegpu.create_nd_tdesc %a[%row, 0] : memref<32x64xf32> -> !xegpu.tensor_desc<8x16xf32>
    %v = xegpu.load_nd %t : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
    xegpu.store_matrix %v, %m[%row, 0] : vector<8x16xf32>, !xegpu.mem_desc<32x16xf32>, index
    xegpu.fence {scope = "workgroup", memory_kind = "shared"}
    xegpu.nbarrier_arrive %nbarrier
    xegpu.nbarrier_wait %nbarrier
    %o = arith.subi %c3, %sg : index
    %other = arith.muli %o, %c8 : index
    %w = xegpu.load_matrix %m[%other, 0] : !xegpu.mem_desc<32x16xf32>, index -> vector<8x16xf32>
    %u = xegpu.create_nd_tdesc %b[%row, 0] : memref<32x64xf32> -> !xegpu.tensor_desc<8x16xf32>
    xegpu.store_nd %w, %u : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
    gpu.return
  }
}

// [xegpu 700-718] order = [0, 1]: subgroups are numbered along columns.
#down = #xegpu.layout<sg_layout = [4, 4], sg_data = [8, 16], order = [0, 1]>
func.func @order(%a: memref<32x64xf32>, %out: memref<32x64xf32>) {
  %t = xegpu.create_nd_tdesc %a[0, 0] : memref<32x64xf32> -> !xegpu.tensor_desc<32x64xf32, #down>
  %v = xegpu.load_nd %t : !xegpu.tensor_desc<32x64xf32, #down> -> vector<32x64xf32>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<32x64xf32> -> !xegpu.tensor_desc<32x64xf32, #down>
  xegpu.store_nd %v, %to : vector<32x64xf32>, !xegpu.tensor_desc<32x64xf32, #down>
  return
}

// [xegpu 788-803] 64x16 for 32 subgroups, cut into instructions: the second dimension is every subgroup's of a row.
#rows_of_16 = #xegpu.layout<sg_layout = [4, 8], sg_data = [16, 16], inst_data = [8, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @distributed(%A: memref<1024x1024xbf16>, %out: memref<64x16xbf16>, %m: index) {
  %wg_tdesc = xegpu.create_nd_tdesc %A[%m, 0] : memref<1024x1024xbf16> -> tensor_desc<64x16xbf16, #rows_of_16>
  %wg_vec  = xegpu.load_nd %wg_tdesc : tensor_desc<64x16xbf16, #rows_of_16> -> vector<64x16xbf16>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<64x16xbf16> -> tensor_desc<64x16xbf16, #rows_of_16>
  xegpu.store_nd %wg_vec, %to : vector<64x16xbf16>, tensor_desc<64x16xbf16, #rows_of_16>
  return
}

// [xegpu 805-817] 128x128 for 4 subgroups in two rounds.
#rounds = #xegpu.layout<sg_layout = [2, 2], sg_data = [32, 128], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @rounds(%A: memref<1024x1024xf16>, %out: memref<128x128xf16>, %m: index) {
  %wg_tdesc = xegpu.create_nd_tdesc %A[%m, 0] : memref<1024x1024xf16> -> tensor_desc<128x128xf16, #rounds>
  %v = xegpu.load_nd %wg_tdesc : tensor_desc<128x128xf16, #rounds> -> vector<128x128xf16>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<128x128xf16> -> tensor_desc<128x128xf16, #rounds>
  xegpu.store_nd %v, %to : vector<128x128xf16>, tensor_desc<128x128xf16, #rounds>
  return
}

// [xegpu 821-831] dpas with the layout of its result: those of A, B and C follow.
#layout_d = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], inst_data = [8, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @dpas_layout(%a: memref<256x32xbf16>, %b: memref<32x256xbf16>, %c: memref<256x256xf32>, %d: memref<256x256xf32>) {
  %ta = xegpu.create_nd_tdesc %a[0, 0] : memref<256x32xbf16> -> tensor_desc<256x32xbf16>
  %tb = xegpu.create_nd_tdesc %b[0, 0] : memref<32x256xbf16> -> tensor_desc<32x256xbf16>
  %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<256x256xf32> -> tensor_desc<256x256xf32>
  %vector_a = xegpu.load_nd %ta : tensor_desc<256x32xbf16> -> vector<256x32xbf16>
  %vector_b = xegpu.load_nd %tb : tensor_desc<32x256xbf16> -> vector<32x256xbf16>
  %vector_c = xegpu.load_nd %tc : tensor_desc<256x256xf32> -> vector<256x256xf32>
  %vector_d = xegpu.dpas %vector_a, %vector_b, %vector_c {#layout_d}:
     vector<256x32xbf16>, vector<32x256xbf16>, vector<256x256xf32>
	   into vector<256x256xfloat>
  %td = xegpu.create_nd_tdesc %d[0, 0] : memref<256x256xf32> -> tensor_desc<256x256xf32>
  xegpu.store_nd %vector_d, %td : vector<256x256xf32>, tensor_desc<256x256xf32>
  return
}

// [xegpu 785-787, 833-853] multi_reduction to 1-D and from 3-D to 2-D: the results have slices of layouts.
func.func @reductions(%a: memref<256x128xf32>, %sums: memref<256x1xf32>, %flat: memref<8x128xf32>) {
  %cst_0 = arith.constant dense<0.0> : vector<256xf32>
  %ta = xegpu.create_nd_tdesc %a[0, 0] : memref<256x128xf32> -> tensor_desc<256x128xf32, #layout_a>
  %vector_b = xegpu.load_nd %ta : tensor_desc<256x128xf32, #layout_a> -> vector<256x128xf32>
  %vector_a = vector.multi_reduction <add>, %vector_b, %cst_0 {layout_result_0 = #xegpu.slice<#layout_a, dims = [1]>} [1] : vector<256x128xf32> to vector<256xf32>
  %column = vector.shape_cast %vector_a : vector<256xf32> to vector<256x1xf32>
  %ts = xegpu.create_nd_tdesc %sums[0, 0] : memref<256x1xf32> -> tensor_desc<256x1xf32>
  xegpu.store_nd %column, %ts : vector<256x1xf32>, tensor_desc<256x1xf32>
  %none = arith.constant dense<0.0> : vector<8x128xf32>
  %td = xegpu.create_nd_tdesc %a[0, 0] : memref<256x128xf32> -> tensor_desc<256x128xf32, #layout_b>
  %v = xegpu.load_nd %td : tensor_desc<256x128xf32, #layout_b> -> vector<256x128xf32>
  %cube = vector.shape_cast %v {layout_result_0 = #layout_3} : vector<256x128xf32> to vector<8x32x128xf32>
  %d = vector.multi_reduction <add>, %cube, %none {layout_result_0 = #xegpu.slice<#layout_3, dims = [1]>} [1] : vector<8x32x128xf32> to vector<8x128xf32>
  %tf = xegpu.create_nd_tdesc %flat[0, 0] : memref<8x128xf32> -> tensor_desc<8x128xf32>
  xegpu.store_nd %d, %tf : vector<8x128xf32>, tensor_desc<8x128xf32>
  return
}

// [xegpu 855-870] shape_cast that splits a dimension, and one that adds one.
#middle = #xegpu.layout<sg_layout = [8, 1, 4], sg_data = [32, 1, 32], inst_data = [1, 1, 16], lane_layout = [1, 1, 16], lane_data = [1, 1, 1], order = [2, 1, 0]>
func.func @shape_casts(%a: memref<256x128xf32>, %flat: memref<8x128xf32>, %out: memref<256x128xf32>) {
  %ta = xegpu.create_nd_tdesc %a[0, 0] : memref<256x128xf32> -> tensor_desc<256x128xf32, #layout_b>
  %vector_b = xegpu.load_nd %ta : tensor_desc<256x128xf32, #layout_b> -> vector<256x128xf32>
  %cube = vector.shape_cast %vector_b {layout_result_0 = #layout_3} : vector<256x128xf32> to vector<8x32x128xf32>
  %none = arith.constant dense<-1.0e30> : vector<8x128xf32>
  %d = vector.multi_reduction <maximumf>, %cube, %none [1] : vector<8x32x128xf32> to vector<8x128xf32>
  %tf = xegpu.create_nd_tdesc %flat[0, 0] : memref<8x128xf32> -> tensor_desc<8x128xf32>
  xegpu.store_nd %d, %tf : vector<8x128xf32>, tensor_desc<8x128xf32>
  %lines = vector.shape_cast %vector_b {layout_result_0 = #middle} : vector<256x128xf32> to vector<256x1x128xf32>
  %twice = arith.addf %lines, %lines : vector<256x1x128xf32>
  %whole = vector.shape_cast %twice : vector<256x1x128xf32> to vector<256x128xf32>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<256x128xf32> -> tensor_desc<256x128xf32>
  xegpu.store_nd %whole, %to : vector<256x128xf32>, tensor_desc<256x128xf32>
  return
}

// [xegpu 872-881] broadcast of 256 numbers along columns, for 16 subgroups.
#wide_rows = #xegpu.layout<sg_layout = [16, 1], sg_data = [16, 256], inst_data = [1, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @broadcast(%in: memref<256x1xf32>, %out: memref<256x256xf32>) {
  %t = xegpu.create_nd_tdesc %in[0, 0] : memref<256x1xf32> -> tensor_desc<256x1xf32>
  %v = xegpu.load_nd %t : tensor_desc<256x1xf32> -> vector<256x1xf32>
  %vector_a = vector.broadcast %v {layout_result_0 = #wide_rows} : vector<256x1xf32> to vector<256x256xf32>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<256x256xf32> -> tensor_desc<256x256xf32>
  xegpu.store_nd %vector_a, %to : vector<256x256xf32>, tensor_desc<256x256xf32>
  return
}

// [xegpu 883-890] transpose of 512x128, for 32 subgroups.
#turned = #xegpu.layout<sg_layout = [4, 8], sg_data = [32, 64], inst_data = [16, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @transpose(%in: memref<512x128xf32>, %out: memref<128x512xf32>) {
  %t = xegpu.create_nd_tdesc %in[0, 0] : memref<512x128xf32> -> tensor_desc<512x128xf32>
  %vector_b = xegpu.load_nd %t : tensor_desc<512x128xf32> -> vector<512x128xf32>
  %vector_a = vector.transpose %vector_b, [1, 0] {layout_result_0 = #turned} : vector<512x128xf32> to vector<128x512xf32>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<128x512xf32> -> tensor_desc<128x512xf32>
  xegpu.store_nd %vector_a, %to : vector<128x512xf32>, tensor_desc<128x512xf32>
  return
}

// [xegpu 896-901] convert_layout, through shared memory.
#loaded = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], inst_data = [16, 8], lane_layout = [16, 1], lane_data = [1, 1], order = [1, 0]>
#multiplied = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 256], inst_data = [1, 256], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
func.func @convert_layout(%in: memref<256x256xf32>, %out: memref<256x256xf32>) {
  %t = xegpu.create_nd_tdesc %in[0, 0] : memref<256x256xf32> -> tensor_desc<256x256xf32, #loaded>
  %vector_b = xegpu.load_nd %t : tensor_desc<256x256xf32, #loaded> -> vector<256x256xf32>
  %vector_a = xegpu.convert_layout %vector_b {#multiplied #loaded}: vector<256x256xfloat> into vector<256x256xfloat>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<256x256xf32> -> tensor_desc<256x256xf32>
  xegpu.store_nd %vector_a, %to : vector<256x256xf32>, tensor_desc<256x256xf32>
  return
}

// [xegpu 557-569] "the transpose operation swaps the wi_layout and wi_data ..., and the bitcast operation adjusts the wi_data".
func.func @transpose_and_bitcast(%a: memref<64x64xbf16>, %b: memref<64x64xi16>, %turned: memref<16x16xbf16>, %bytes: memref<8x32xi8>) {
  %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> tensor_desc<16x16xbf16>
  %vector_a = xegpu.load_nd %ta : tensor_desc<16x16xbf16> -> vector<16x16xbf16>
  %vector_b = vector.transpose %vector_a, [1, 0] : vector<16x16xbf16> to vector<16x16xbf16>
  %to = xegpu.create_nd_tdesc %turned[0, 0] : memref<16x16xbf16> -> tensor_desc<16x16xbf16>
  xegpu.store_nd %vector_b, %to : vector<16x16xbf16>, tensor_desc<16x16xbf16>
  %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xi16> -> tensor_desc<8x16xi16>
  %words = xegpu.load_nd %tb : tensor_desc<8x16xi16> -> vector<8x16xi16>
  %cast = vector.bitcast %words : vector<8x16xi16> to vector<8x32xi8>
  %tc = xegpu.create_nd_tdesc %bytes[0, 0] : memref<8x32xi8> -> tensor_desc<8x32xi8>
  xegpu.store_nd %cast, %tc : vector<8x32xi8>, tensor_desc<8x32xi8>
  return
}

// [xegpu 571-588] reduction along rows, which every lane has the result of, and broadcast of it.
func.func @reduce_and_broadcast(%a: memref<64x64xbf16>, %out: memref<16x16xbf16>) {
  %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> tensor_desc<16x16xbf16>
  %vector_a = xegpu.load_nd %ta : tensor_desc<16x16xbf16> -> vector<16x16xbf16>
  %none = arith.constant dense<-1.0e30> : vector<16xbf16>
  %vector_b = vector.multi_reduction <maximumf>, %vector_a, %none [1] : vector<16x16xbf16> to vector<16xbf16>
  %all = vector.broadcast %vector_b : vector<16xbf16> to vector<16x16xbf16>
  %to = xegpu.create_nd_tdesc %out[0, 0] : memref<16x16xbf16> -> tensor_desc<16x16xbf16>
  xegpu.store_nd %all, %to : vector<16x16xbf16>, tensor_desc<16x16xbf16>
  return
}

// [xegpu 590-611] "Extract, insert and regular element-wise operations do not modify the sg_map".
func.func @extract_and_add(%a: memref<64x64xbf16>, %half: memref<32x16xbf16>, %sum: memref<24x32xbf16>) {
  %ta = xegpu.create_nd_tdesc %a[0, 16] : memref<64x64xbf16> -> tensor_desc<64x16xbf16>
  %vector_a = xegpu.load_nd %ta : tensor_desc<64x16xbf16> -> vector<64x16xbf16>
  %two = vector.shape_cast %vector_a : vector<64x16xbf16> to vector<2x32x16xbf16>
  %first = vector.extract %two[1] : vector<32x16xbf16> from vector<2x32x16xbf16>
  %slice = vector.extract_strided_slice %vector_a {offsets = [0], sizes = [32], strides = [1]} : vector<64x16xbf16> to vector<32x16xbf16>
  %both = arith.addf %first, %slice : vector<32x16xbf16>
  %th = xegpu.create_nd_tdesc %half[0, 0] : memref<32x16xbf16> -> tensor_desc<32x16xbf16>
  xegpu.store_nd %both, %th : vector<32x16xbf16>, tensor_desc<32x16xbf16>
  %tb = xegpu.create_nd_tdesc %a[8, 0] : memref<64x64xbf16> -> tensor_desc<24x32xbf16>
  %vector_b = xegpu.load_nd %tb : tensor_desc<24x32xbf16> -> vector<24x32xbf16>
  %vector_c = arith.addf %vector_b, %vector_b : vector<24x32xbf16>
  %tc = xegpu.create_nd_tdesc %sum[0, 0] : memref<24x32xbf16> -> tensor_desc<24x32xbf16>
  xegpu.store_nd %vector_c, %tc : vector<24x32xbf16>, tensor_desc<24x32xbf16>
  return
}
