// The fragments of the XeGPU RFC's text as whole functions, in its generation of the text.
// tests/examples/test_rfc_fragments.py runs each and says what it must give.

#sg_map_a = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>
#sg_map_b = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>
#sg_map_t = #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>
#layout_a = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 128], inst_data = [1, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>
#layout_3 = #xegpu.layout<sg_layout = [8, 1, 4], sg_data = [1, 32, 32], inst_data = [1, 1, 16], lane_layout = [1, 1, 16], lane_data = [1, 1, 1], order = [2, 1, 0]>
#layout_b = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], inst_data = [1, 16], lane_layout = [1, 16], lane_data = [1, 1], order = [1, 0]>

// create_nd_tdesc of an address with offsets, shape and strides; a block of an array of two.
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

// A memref of higher rank: the descriptor covers its innermost dimensions. A 1-D descriptor.
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

// transpose, packed, and transpose_bit_width, which makes the VNNI form of a transposed matrix.
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

// dpas in its three shapes: plain, B packed, A and B packed.
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

// create_tdesc, load with chunks and transpose, store with a mask, update_offset, atomic_rmw.
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

// "layout": reductions to 1-D and from 3-D, shape_cast, broadcast, transpose, convert_layout.
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

// "sg_map use case - 2D load": a lane's program. Lanes own columns; B comes in pairs of rows.
gpu.module @lanes {
  gpu.func @sg_map_2d(%a: memref<8x16xbf16>, %b: memref<16x16xbf16>, %c: memref<8x16xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64} {
    %tdesc1 = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xbf16> -> !xegpu.tensor_desc<8x16xbf16, #sg_map_a>
    %vector_a = xegpu.load_nd %tdesc1 : !xegpu.tensor_desc<8x16xbf16, #sg_map_a> into vector<8x1xbf16>
    xegpu.prefetch_nd %tdesc1 : !xegpu.tensor_desc<8x16xbf16, #sg_map_a>
    %tdesc2 = xegpu.create_nd_tdesc %b[0, 0] : memref<16x16xbf16> -> !xegpu.tensor_desc<16x16xbf16, #sg_map_b>
    %vector_b = xegpu.load_nd %tdesc2 : !xegpu.tensor_desc<16x16xbf16, #sg_map_b> into vector<8x2xbf16>
    %vector_c = xegpu.dpas %vector_a, %vector_b {#sg_map_a #sg_map_b #sg_map_a}
        : vector<8x1xbf16>, vector<8x2xbf16> into vector<8x1xfloat>
    %tdesc3 = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32, #sg_map_a>
    xegpu.store_nd %vector_c, %tdesc3 : vector<8x1xfloat>, !xegpu.tensor_desc<8x16xf32, #sg_map_a>
    gpu.return
  }

  // "sg_map use case - regular load": a transpose by a load with chunks.
  gpu.func @sg_map_chunks(%a: memref<64xf32>, %c: memref<64xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64} {
    %lanes = vector.step : vector<16xindex>
    %four = arith.constant dense<4> : vector<16xindex>
    %offsets = arith.muli %lanes, %four : vector<16xindex>
    %mask = arith.constant dense<true> : vector<16xi1>
    %chunk = xegpu.create_tdesc %a, %offsets {chunk_size = 4} : memref<64xf32>, vector<16xindex>
        into !xegpu.tensor_desc<16x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #sg_map_t>
    %v = xegpu.load %chunk, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]}
        : !xegpu.tensor_desc<16x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #sg_map_t>, vector<16xi1> -> vector<4x1xf32>
    %value = vector.shape_cast %v : vector<4x1xf32> to vector<4xf32>
    %to = xegpu.create_nd_tdesc %c[0] : memref<64xf32>
        -> !xegpu.tensor_desc<64xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
    xegpu.store_nd %value, %to : vector<4xf32>, !xegpu.tensor_desc<64xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
    gpu.return
  }
}
