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

// "Workgroup Level XeTile extension": a tile distributed in two rounds; transpose and convert_layout.
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

// init_tile of a base of four dimensions: offsets of all of them, the last two are the tile's.
func.func @ranks(%base: memref<2x3x32x64xf32>, %out: memref<64x64xf32>, %n: index, %c: index) {
  %tile = xetile.init_tile %base[%n, %c, 8, 16] : memref<2x3x32x64xf32> -> !xetile.tile<16x32xf32>
  %v = xetile.load_tile %tile : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  xetile.store_tile %v, %to : vector<16x32xf32>, !xetile.tile<16x32xf32>
  return
}

// order = [0, 1] of a memref whose columns lie one after the other, as affine_map says it.
#columns = affine_map<(d0, d1) -> (d1, d0)>
!columns = !xetile.tile<16x32xf16, #xetile.tile_attr<order = [0, 1]>>
func.func @affine_order(%base: memref<64x32xf16, #columns>, %out: memref<64x64xf16>) {
  %tile = xetile.init_tile %base[8, 0] : memref<64x32xf16, #columns> -> !columns
  %v = xetile.load_tile %tile : !columns -> vector<16x32xf16>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf16> -> !xetile.tile<16x32xf16>
  xetile.store_tile %v, %to : vector<16x32xf16>, !xetile.tile<16x32xf16>
  return
}

// "prefetch_tile ... locality": all cache levels, all but the first, the last, none.
func.func @locality(%base: memref<64x64xf32>, %out: memref<64x64xf32>) {
  %tile = xetile.init_tile %base[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  xetile.prefetch_tile %tile locality<3> : !xetile.tile<16x32xf32>
  xetile.prefetch_tile %tile locality<2> : !xetile.tile<16x32xf32>
  xetile.prefetch_tile %tile locality<1> : !xetile.tile<16x32xf32>
  xetile.prefetch_tile %tile locality<0> : !xetile.tile<16x32xf32>
  %v = xetile.load_tile %tile : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  xetile.store_tile %v, %to : vector<16x32xf32>, !xetile.tile<16x32xf32>
  return
}

// A scattered tile of two dimensions: each element of the tile has an offset.
!scattered = !xetile.tile<4x32xf32, #xetile.tile_attr<scattered = true>>
func.func @gather_2d(%base: memref<1024xf32>, %out: memref<64x64xf32>) {
  %step = vector.step : vector<128xindex>
  %at = vector.shape_cast %step : vector<128xindex> to vector<4x32xindex>
  %three = arith.constant dense<3> : vector<4x32xindex>
  %offsets = arith.muli %at, %three : vector<4x32xindex>
  %mask = arith.constant dense<true> : vector<4x32xi1>
  %from = xetile.init_tile %base, %offsets : memref<1024xf32>, vector<4x32xindex> -> !scattered
  %v = xetile.load %from, %mask : !scattered, vector<4x32xi1> -> vector<4x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<4x32xf32>
  xetile.store_tile %v, %to : vector<4x32xf32>, !xetile.tile<4x32xf32>
  return
}

// "tile_mma with wg_map": the maps of A, B and C follow from that of the result.
#mma_d = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
func.func @mma_map(%a: memref<256x32xbf16>, %b: memref<32x256xbf16>, %c: memref<256x256xf32>, %d: memref<256x256xf32>) {
  %ta = xetile.init_tile %a[0, 0] : memref<256x32xbf16> -> !xetile.tile<256x32xbf16>
  %tb = xetile.init_tile %b[0, 0] : memref<32x256xbf16> -> !xetile.tile<32x256xbf16>
  %tc = xetile.init_tile %c[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  %td = xetile.init_tile %d[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  %vector_a = xetile.load_tile %ta : !xetile.tile<256x32xbf16> -> vector<256x32xbf16>
  %vector_b = xetile.load_tile %tb : !xetile.tile<32x256xbf16> -> vector<32x256xbf16>
  %vector_c = xetile.load_tile %tc : !xetile.tile<256x256xf32> -> vector<256x256xf32>
  %vector_d = xetile.tile_mma %vector_a, %vector_b, %vector_c {wg_map_c = #mma_d}
      : vector<256x32xbf16>, vector<32x256xbf16>, vector<256x256xf32> -> vector<256x256xf32>
  xetile.store_tile %vector_d, %td : vector<256x256xf32>, !xetile.tile<256x256xf32>
  return
}

// "reduction with wg_map".
#rows = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 1]>
func.func @reduction_map(%in: memref<256x128xf32>, %out: memref<256x1xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x128xf32> -> !xetile.tile<256x128xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<256x128xf32> -> vector<256x128xf32>
  %vector_a = xetile.reduction <add>, %vector_b [1] {wg_map = #rows} : vector<256x128xf32> -> vector<256x1xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x1xf32> -> !xetile.tile<256x1xf32>
  xetile.store_tile %vector_a, %to : vector<256x1xf32>, !xetile.tile<256x1xf32>
  return
}

// "reduction_size ... partial reduction": 32 rows each, of what math.exp with a map made.
#partial_a = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 32]>
#partial_b = #xetile.wg_map<sg_layout = [8, 4], sg_data = [1, 32]>
func.func @reduction_size(%in: memref<256x128xf32>, %out: memref<8x128xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x128xf32> -> !xetile.tile<256x128xf32>
  %input = xetile.load_tile %t : !xetile.tile<256x128xf32> -> vector<256x128xf32>
  %vector_a = math.exp %input {map = #partial_a} : vector<256x128xf32>
  %vector_b = xetile.reduction <add>, %vector_a [0] {reduction_size = [32], wg_map = #partial_b}
      : vector<256x128xf32> -> vector<8x128xf32>
  %to = xetile.init_tile %out[0, 0] : memref<8x128xf32> -> !xetile.tile<8x128xf32>
  xetile.store_tile %vector_b, %to : vector<8x128xf32>, !xetile.tile<8x128xf32>
  return
}

// "broadcast with wg_map".
#copies = #xetile.wg_map<sg_layout = [16, 1], sg_data = [16, 256]>
func.func @broadcast_map(%in: memref<256x1xf32>, %out: memref<256x256xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x1xf32> -> !xetile.tile<256x1xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<256x1xf32> -> vector<256x1xf32>
  %vector_a = xetile.broadcast %vector_b [1] {wg_map = #copies} : vector<256x1xf32> -> vector<256x256xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  xetile.store_tile %vector_a, %to : vector<256x256xf32>, !xetile.tile<256x256xf32>
  return
}

// "transpose with wg_map": 64 x 32 of f32 for each of 32 subgroups, before and after.
#turned = #xetile.wg_map<sg_layout = [4, 8], sg_data = [32, 64]>
func.func @transpose_map(%in: memref<512x128xf32>, %out: memref<128x512xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<512x128xf32> -> !xetile.tile<512x128xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<512x128xf32> -> vector<512x128xf32>
  %vector_a = xetile.transpose %vector_b, [1, 0] {wg_map = #turned} : vector<512x128xf32> -> vector<128x512xf32>
  %to = xetile.init_tile %out[0, 0] : memref<128x512xf32> -> !xetile.tile<128x512xf32>
  xetile.store_tile %vector_a, %to : vector<128x512xf32>, !xetile.tile<128x512xf32>
  return
}

// "convert_layout with wg_map", of both sides.
#loaded = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#multiplied = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 256]>
func.func @convert_layout(%in: memref<256x256xf32>, %out: memref<256x256xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<256x256xf32> -> vector<256x256xf32>
  %vector_a = xetile.convert_layout %vector_b {wg_map_result = #multiplied, wg_map_source = #loaded}
      : vector<256x256xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  xetile.store_tile %vector_a, %to : vector<256x256xf32>, !xetile.tile<256x256xf32>
  return
}

// "convert_layout ... without the wg_map specified for the input operand": that of the load.
!loaded = !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #loaded>>
func.func @convert_layout_result(%in: memref<256x256xf32>, %out: memref<256x256xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x256xf32> -> !loaded
  %vector_b = xetile.load_tile %t : !loaded -> vector<256x256xf32>
  %vector_a = xetile.convert_layout %vector_b {wg_map_result = #multiplied} : vector<256x256xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  xetile.store_tile %vector_a, %to : vector<256x256xf32>, !xetile.tile<256x256xf32>
  return
}

// The early RFC's maps of a 128x128 tile: four blocks of rows, distributed in two rounds and twice each.
!distributed = !xetile.tile<128x128xf16, #xetile.tile_attr<wg_map = #wg_map_a>>
func.func @rounds(%A: memref<1024x1024xf16>, %out: memref<1024x1024xf16>, %m: index) {
  %a_init_tile = xetile.init_tile %A[%m, 0] : memref<1024x1024xf16> -> !distributed
  %v = xetile.load_tile %a_init_tile : !distributed -> vector<128x128xf16>
  %to = xetile.init_tile %out[%m, 0] : memref<1024x1024xf16> -> !distributed
  xetile.store_tile %v, %to : vector<128x128xf16>, !distributed
  return
}

// The same with its sg_map: 16 lanes in two rows of eight, two elements each.
#sg_map_a = #xetile.sg_map<wi_layout = [2, 8], wi_data = [1, 2]>
#xe_map_a = #xetile.xe_map<wg = #wg_map_a, sg = #sg_map_a>
func.func @rounds_and_lanes(%A: memref<1024x1024xf16>, %out: memref<1024x1024xf16>, %m: index) {
  %a_init_tile = xetile.init_tile %A[%m, 0] : memref<1024x1024xf16> -> !xetile.tile<128x128xf16, #xe_map_a>
  %v = xetile.load_tile %a_init_tile : !xetile.tile<128x128xf16, #xe_map_a> -> vector<128x128xf16>
  %to = xetile.init_tile %out[%m, 0] : memref<1024x1024xf16> -> !xetile.tile<128x128xf16, #xe_map_a>
  xetile.store_tile %v, %to : vector<128x128xf16>, !xetile.tile<128x128xf16, #xe_map_a>
  return
}
