// The fragments of the early XeTile RFC's text as whole functions, in its own spelling: names in capitals, bare types.
// tests/examples/test_rfc_fragments.py runs each and says what it must give.

// [early 22, 33-36] "init_tile with memref of static shape".
func.func @static_shape(%base_memref: memref<128x128xbf16>, %out: memref<8x16xbf16>, %offset_x: index, %offset_y: index) {
  %block = XeTile.init_tile %base_memref, [%offset_x, %offset_y] :
     memref<128x128xbf16> into tile<8x16xbf16>
  %v = XeTile.load_tile %block : tile<8x16xbf16> into vector<8x16xbf16>
  %to = XeTile.init_tile %out, [0, 0] : memref<8x16xbf16> into tile<8x16xbf16>
  XeTile.store_tile %to, %v : vector<8x16xbf16> into tile<8x16xbf16>
  return
}

// [early 38-42] "init_tile with memref of dynamic shape": its sizes and strides are passed.
func.func @dynamic_shape(%base_memref: memref<?x?xbf16>, %out: memref<8x16xbf16>, %offset_x: index, %offset_y: index) {
  %base, %begin, %base_shape:2, %base_strides:2 = memref.extract_strided_metadata %base_memref
      : memref<?x?xbf16> -> memref<bf16>, index, index, index, index, index
  %block = XeTile.init_tile %base_memref, [%offset_x, %offset_y], [%base_shape:2], [%base_strides:2]:
     memref<?x?xbf16> into tile<8x16xbf16>
  %v = XeTile.load_tile %block : tile<8x16xbf16> into vector<8x16xbf16>
  %to = XeTile.init_tile %out, [0, 0] : memref<8x16xbf16> into tile<8x16xbf16>
  XeTile.store_tile %to, %v : vector<8x16xbf16> into tile<8x16xbf16>
  return
}

// [early 43-47] "init_tile with an address for the base matrix".
func.func @address(%base_memref: memref<?x?xbf16>, %out: memref<8x16xbf16>, %offset_x: index, %offset_y: index) {
  %base, %begin, %base_shape:2, %base_strides:2 = memref.extract_strided_metadata %base_memref
      : memref<?x?xbf16> -> memref<bf16>, index, index, index, index, index
  %pointer = memref.extract_aligned_pointer_as_index %base_memref : memref<?x?xbf16> -> index
  %base_addr = arith.index_cast %pointer : index to i64
  %block = XeTile.init_tile %base_addr, [%offset_x, %offset_y], [%base_shape:2], [%base_strides:2]:
     i64 into tile<8x16xbf16>
  %v = XeTile.load_tile %block : tile<8x16xbf16> into vector<8x16xbf16>
  %to = XeTile.init_tile %out, [0, 0] : memref<8x16xbf16> into tile<8x16xbf16>
  XeTile.store_tile %to, %v : vector<8x16xbf16> into tile<8x16xbf16>
  return
}

// [early 24, 50-54, 67-71] load_tile and store_tile, whose operands the RFC prints in this order.
func.func @load_store(%base: memref<128x128xbf16>, %out: memref<128x128xbf16>) {
  %tile_a = XeTile.init_tile %base, [32, 64] : memref<128x128xbf16> into tile<64x64xbf16>
  %vector_a = XeTile.load_tile %tile_a :
     tile<64x64xbf16> into vector<64x64xb16>
  %tile_b = XeTile.init_tile %out, [64, 32] : memref<128x128xbf16> into tile<64x64xbf16>
  XeTile.store_tile %tile_b, %vector_a :
   vector<64x64xbf16> into tile<64x64xbf16>
  return
}

// [early 23, 55-59] "transpose specifies the dimensions being transposed along the load".
func.func @transpose(%base: memref<128x128xbf16>, %out: memref<64x32xbf16>) {
  %tile_a = XeTile.init_tile %base, [32, 64] : memref<128x128xbf16> into tile<32x64xbf16>
  %vector_a = XeTile.load_tile %tile_a {transpose = [1, 0]} :
     tile<32x64xbf16> into vector<64x32xbf16>
  %to = XeTile.init_tile %out, [0, 0] : memref<64x32xbf16> into tile<64x32xbf16>
  XeTile.store_tile %to, %vector_a : vector<64x32xbf16> into tile<64x32xbf16>
  return
}

// [early 23, 60-64] padding of another value, and of zero, with transpose: rows and columns that are outside.
func.func @padding(%base: memref<40x50xbf16>, %out: memref<64x64xbf16>, %turned: memref<32x64xbf16>) {
  %tile_a = XeTile.init_tile %base, [8, 4] : memref<40x50xbf16> into tile<64x64xbf16>
  %vector_a = XeTile.load_tile %tile_a {padding = 1.0} :
     tile<64x64xbf16> into vector<64x64xb16>
  %to = XeTile.init_tile %out, [0, 0] : memref<64x64xbf16> into tile<64x64xbf16>
  XeTile.store_tile %to, %vector_a : vector<64x64xbf16> into tile<64x64xbf16>
  %tile_b = XeTile.init_tile %base, [8, 4] : memref<40x50xbf16> into tile<64x32xbf16>
  %vector_b = XeTile.load_tile %tile_b {transpose = [1,0], padding=0} : tile<64x32xbf16> into vector<32x64xbf16>
  %tb = XeTile.init_tile %turned, [0, 0] : memref<32x64xbf16> into tile<32x64xbf16>
  XeTile.store_tile %tb, %vector_b : vector<32x64xbf16> into tile<32x64xbf16>
  return
}

// [early 25-26, 72-75, 88-92] prefetch_tile; update_tile_offset, relative to where the tile is.
func.func @update(%base: memref<128x128xbf16>, %out: memref<64x64xbf16>, %offset_x: index, %offset_y: index) {
  %coop_tile = XeTile.init_tile %base, [16, 8] : memref<128x128xbf16> into tile<8x8xbf16>
  XeTile.prefetch_tile %coop_tile: tile<8x8xbf16>
  %tile = XeTile.init_tile %base, [16, 8] : memref<128x128xbf16> into tile<64x64xbf16>
  %tile_updated = XeTile.update_tile_offset %tile, %offset_x, %offset_y :
		tile<64x64xbf16>, index, index into tile <64x64xbf16>
  %v = XeTile.load_tile %tile_updated : tile<64x64xbf16> into vector<64x64xbf16>
  %to = XeTile.init_tile %out, [0, 0] : memref<64x64xbf16> into tile<64x64xbf16>
  XeTile.store_tile %to, %v : vector<64x64xbf16> into tile<64x64xbf16>
  return
}

// [early 27, 76-87] tile_mma without C, then with it, whose types the RFC prints first.
func.func @mma(%a: memref<64x32xbf16>, %b: memref<32x128xbf16>, %c: memref<64x128xf32>) {
  %tile_a = XeTile.init_tile %a, [0, 0] : memref<64x32xbf16> into tile<64x32xbf16>
  %tile_b = XeTile.init_tile %b, [0, 0] : memref<32x128xbf16> into tile<32x128xbf16>
  %vector_a = XeTile.load_tile %tile_a : tile<64x32xbf16> into vector<64x32xbf16>
  %vector_b = XeTile.load_tile %tile_b : tile<32x128xbf16> into vector<32x128xbf16>
  %vector_c = XeTile.tile_mma %vector_a, %vector_b :
     vector<64x32xbf16>, vector<32x128xbf16>
	   into vector<64x128xfloat>
  %vector_d = XeTile.tile_mma %vector_a, %vector_b, %vector_c :
     vector<64x128xfloat>, vector<64x32xbf16>, vector<32x128xbf16>
	   into vector<64x128xfloat>
  %tile_c = XeTile.init_tile %c, [0, 0] : memref<64x128xf32> into tile<64x128xf32>
  XeTile.store_tile %tile_c, %vector_d : vector<64x128xfloat> into tile<64x128xf32>
  return
}
