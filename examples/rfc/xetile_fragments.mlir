// The fragments of the XeTile RFC's text as whole functions, in the order of the text.
// tests/examples/test_rfc_fragments.py runs each and says what it must give.

#wg_map_a = #xetile.wg_map<sg_layout = [2, 2], sg_data = [32, 128]>
#wg_map_d = #xetile.wg_map<sg_layout = [4, 1], sg_data = [16, 64]>

// "init_tile with memref of static shape"; load_tile; store_tile.
func.func @static_shape(%base: memref<128x128xbf16>, %out: memref<128x128xbf16>, %x: index, %y: index) {
  %tile0 = xetile.init_tile %base[%x, %y] : memref<128x128xbf16> -> !xetile.tile<8x16xbf16>
  %v = xetile.load_tile %tile0 : !xetile.tile<8x16xbf16> -> vector<8x16xbf16>
  %to = xetile.init_tile %out[%x, %y] : memref<128x128xbf16> -> !xetile.tile<8x16xbf16>
  xetile.store_tile %v, %to : vector<8x16xbf16>, !xetile.tile<8x16xbf16>
  return
}

// "init_tile with memref of dynamic shape": sizes and strides are passed.
func.func @dynamic_shape(%base: memref<?x?xbf16>, %out: memref<128x128xbf16>, %h: index, %w: index) {
  %tile0 = xetile.init_tile %base[4, 8], [%h, %w], [%w, 1] : memref<?x?xbf16> -> !xetile.tile<8x16xbf16>
  %v = xetile.load_tile %tile0 : !xetile.tile<8x16xbf16> -> vector<8x16xbf16>
  %to = xetile.init_tile %out[0, 0] : memref<128x128xbf16> -> !xetile.tile<8x16xbf16>
  xetile.store_tile %v, %to : vector<8x16xbf16>, !xetile.tile<8x16xbf16>
  return
}

// "init_tile with an address".
func.func @address(%base: memref<64x128xf32>, %out: memref<64x128xf32>) {
  %p = memref.extract_aligned_pointer_as_index %base : memref<64x128xf32> -> index
  %a = arith.index_cast %p : index to i64
  %tile0 = xetile.init_tile %a[3, 5], [64, 128], [128, 1] : i64 -> !xetile.tile<8x16xf32>
  %v = xetile.load_tile %tile0 : !xetile.tile<8x16xf32> -> vector<8x16xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x128xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %v, %to : vector<8x16xf32>, !xetile.tile<8x16xf32>
  return
}

// Appendix 1, second use: order = [0, 1] views a transposed matrix in the order of the program.
func.func @order(%a: memref<64x32xf16>, %bt: memref<32x64xf16, strided<[1, 32]>>, %c: memref<64x64xf32>) {
  %ta = xetile.init_tile %a[0, 0] : memref<64x32xf16> -> !xetile.tile<64x32xf16>
  %tb = xetile.init_tile %bt[0, 0] : memref<32x64xf16, strided<[1, 32]>>
      -> !xetile.tile<32x64xf16, #xetile.tile_attr<order = [0, 1]>>
  %va = xetile.load_tile %ta : !xetile.tile<64x32xf16> -> vector<64x32xf16>
  %vb = xetile.load_tile %tb : !xetile.tile<32x64xf16, #xetile.tile_attr<order = [0, 1]>> -> vector<32x64xf16>
  %vc = xetile.tile_mma %va, %vb : vector<64x32xf16>, vector<32x64xf16> -> vector<64x64xf32>
  %tc = xetile.init_tile %c[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  xetile.store_tile %vc, %tc : vector<64x64xf32>, !xetile.tile<64x64xf32>
  return
}

// Appendix 1, third use: the tile follows the memory, a transpose the program.
func.func @transposed(%a: memref<64x32xf16>, %bt: memref<64x32xf16>, %c: memref<64x64xf32>) {
  %ta = xetile.init_tile %a[0, 0] : memref<64x32xf16> -> !xetile.tile<64x32xf16>
  %tbt = xetile.init_tile %bt[0, 0] : memref<64x32xf16> -> !xetile.tile<64x32xf16>
  %va = xetile.load_tile %ta : !xetile.tile<64x32xf16> -> vector<64x32xf16>
  %vbt = xetile.load_tile %tbt : !xetile.tile<64x32xf16> -> vector<64x32xf16>
  %vb = xetile.transpose %vbt, [1, 0] : vector<64x32xf16> -> vector<32x64xf16>
  %vc = xetile.tile_mma %va, %vb : vector<64x32xf16>, vector<32x64xf16> -> vector<64x64xf32>
  %tc = xetile.init_tile %c[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  xetile.store_tile %vc, %tc : vector<64x64xf32>, !xetile.tile<64x64xf32>
  return
}

// "load_tile ... padding": what lies outside of the base matrix.
func.func @padding(%base: memref<20x24xf32>, %out: memref<64x64xf32>) {
  %tile = xetile.init_tile %base[12, 16] : memref<20x24xf32> -> !xetile.tile<16x16xf32>
  %v = xetile.load_tile %tile {padding = 3.0 : f32} : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
  xetile.store_tile %v, %to : vector<16x16xf32>, !xetile.tile<16x16xf32>
  return
}

// prefetch_tile with hints, update_tile_offset.
func.func @update(%base: memref<64x64xf32>, %out: memref<64x64xf32>, %x: index, %y: index) {
  %tile = xetile.init_tile %base[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  %moved = xetile.update_tile_offset %tile, [%x, %y] : !xetile.tile<16x32xf32>
  xetile.prefetch_tile %moved {l1_hint = #xetile.cache_hint<uncached>} : !xetile.tile<16x32xf32>
  %v = xetile.load_tile %moved : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  xetile.store_tile %v, %to : vector<16x32xf32>, !xetile.tile<16x32xf32>
  return
}

// tile_mma with and without C.
func.func @mma(%a: memref<64x32xbf16>, %b: memref<32x128xbf16>, %c: memref<64x128xf32>) {
  %ta = xetile.init_tile %a[0, 0] : memref<64x32xbf16> -> !xetile.tile<64x32xbf16>
  %tb = xetile.init_tile %b[0, 0] : memref<32x128xbf16> -> !xetile.tile<32x128xbf16>
  %tc = xetile.init_tile %c[0, 0] : memref<64x128xf32> -> !xetile.tile<64x128xf32>
  %va = xetile.load_tile %ta : !xetile.tile<64x32xbf16> -> vector<64x32xbf16>
  %vb = xetile.load_tile %tb : !xetile.tile<32x128xbf16> -> vector<32x128xbf16>
  %first = xetile.tile_mma %va, %vb : vector<64x32xbf16>, vector<32x128xbf16> -> vector<64x128xf32>
  %twice = xetile.tile_mma %va, %vb, %first
      : vector<64x32xbf16>, vector<32x128xbf16>, vector<64x128xf32> -> vector<64x128xf32>
  xetile.store_tile %twice, %tc : vector<64x128xf32>, !xetile.tile<64x128xf32>
  return
}

// atomic_rmw on a block.
func.func @atomic(%base: memref<64x64xf32>) {
  %value = arith.constant dense<0.5> : vector<8x16xf32>
  %tile = xetile.init_tile %base[60, 8] : memref<64x64xf32> -> !xetile.tile<8x16xf32>
  %old = xetile.atomic_rmw addf %value, %tile : vector<8x16xf32>, !xetile.tile<8x16xf32> -> vector<8x16xf32>
  return
}

// Gather and scatter through a tile of offsets.
func.func @gather(%base: memref<1024xf32>, %out: memref<1024xf32>) {
  %step = vector.step : vector<64xindex>
  %five = arith.constant dense<5> : vector<64xindex>
  %offsets = arith.muli %step, %five : vector<64xindex>
  %limit = arith.constant dense<40> : vector<64xindex>
  %mask = arith.cmpi ult, %step, %limit : vector<64xindex>
  %from = xetile.init_tile %base, %offsets : memref<1024xf32>, vector<64xindex>
      -> !xetile.tile<64xf32, #xetile.tile_attr<scattered = true>>
  %to = xetile.init_tile %out, %step : memref<1024xf32>, vector<64xindex>
      -> !xetile.tile<64xf32, #xetile.tile_attr<scattered = true>>
  %v = xetile.load %from, %mask {padding = -1.0 : f32}
      : !xetile.tile<64xf32, #xetile.tile_attr<scattered = true>>, vector<64xi1> -> vector<64xf32>
  xetile.store %v, %to : vector<64xf32>, !xetile.tile<64xf32, #xetile.tile_attr<scattered = true>>
  return
}

// reduction along one dimension, and of runs of reduction_size.
func.func @reduction(%base: memref<64x32xf32>, %out: memref<64x64xf32>) {
  %tile = xetile.init_tile %base[0, 0] : memref<64x32xf32> -> !xetile.tile<64x32xf32>
  %v = xetile.load_tile %tile : !xetile.tile<64x32xf32> -> vector<64x32xf32>
  %r = xetile.reduction <add>, %v [1] : vector<64x32xf32> -> vector<64x1xf32>
  %s = xetile.reduction <add>, %v [0] {reduction_size = 8 : i64} : vector<64x32xf32> -> vector<8x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<64x1xf32>
  xetile.store_tile %r, %to : vector<64x1xf32>, !xetile.tile<64x1xf32>
  %ts = xetile.init_tile %out[0, 32] : memref<64x64xf32> -> !xetile.tile<8x32xf32>
  xetile.store_tile %s, %ts : vector<8x32xf32>, !xetile.tile<8x32xf32>
  return
}

// broadcast of a row, and of runs of broadcast_size.
func.func @broadcast(%base: memref<64x32xf32>, %out: memref<64x64xf32>) {
  %row = xetile.init_tile %base[0, 0] : memref<64x32xf32> -> !xetile.tile<1x32xf32>
  %v = xetile.load_tile %row : !xetile.tile<1x32xf32> -> vector<1x32xf32>
  %b = xetile.broadcast %v [0] : vector<1x32xf32> -> vector<64x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<64x32xf32>
  xetile.store_tile %b, %to : vector<64x32xf32>, !xetile.tile<64x32xf32>
  %few = xetile.init_tile %base[8, 0] : memref<64x32xf32> -> !xetile.tile<2x32xf32>
  %w = xetile.load_tile %few : !xetile.tile<2x32xf32> -> vector<2x32xf32>
  %c = xetile.broadcast %w [0] {broadcast_size = 32 : i64} : vector<2x32xf32> -> vector<64x32xf32>
  %tc = xetile.init_tile %out[0, 32] : memref<64x64xf32> -> !xetile.tile<64x32xf32>
  xetile.store_tile %c, %tc : vector<64x32xf32>, !xetile.tile<64x32xf32>
  return
}

// "Workgroup Level XeTile extension": a tile dealt in two rounds; transpose and convert_layout.
func.func @maps(%base: memref<128x128xf16>, %out: memref<128x128xf16>) {
  %tile = xetile.init_tile %base[0, 0] : memref<128x128xf16>
      -> !xetile.tile<128x128xf16, #xetile.tile_attr<wg_map = #wg_map_a>>
  %v = xetile.load_tile %tile : !xetile.tile<128x128xf16, #xetile.tile_attr<wg_map = #wg_map_a>> -> vector<128x128xf16>
  %t = xetile.transpose %v, [1, 0] : vector<128x128xf16> -> vector<128x128xf16>
  %w = xetile.convert_layout %t {wg_map_result = #wg_map_d, wg_map_source = #wg_map_a} : vector<128x128xf16>
  %to = xetile.init_tile %out[0, 0] : memref<128x128xf16> -> !xetile.tile<128x128xf16>
  xetile.store_tile %w, %to : vector<128x128xf16>, !xetile.tile<128x128xf16>
  return
}
