// The fragments of the XeTile RFC's text as whole functions, in the order of the text: a subgroup's tiles.
// tests/examples/test_rfc_fragments.py runs each and says what it must give.

// [later 41, 58-61] "init_tile with memref of static shape"; load_tile; store_tile.
func.func @static_shape(%base: memref<128x128xbf16>, %out: memref<128x128xbf16>, %x: index, %y: index) {
  %tile0 = xetile.init_tile %base[%x, %y] : memref<128x128xbf16> -> !xetile.tile<8x16xbf16>
  %v = xetile.load_tile %tile0 : !xetile.tile<8x16xbf16> -> vector<8x16xbf16>
  %to = xetile.init_tile %out[%x, %y] : memref<128x128xbf16> -> !xetile.tile<8x16xbf16>
  xetile.store_tile %v, %to : vector<8x16xbf16>, !xetile.tile<8x16xbf16>
  return
}

// [later 63-66] init_tile of a base of four dimensions: offsets of all of them, the last two are the tile's.
func.func @ranks(%base: memref<2x3x32x64xf32>, %out: memref<64x64xf32>, %n: index, %c: index) {
  %tile = xetile.init_tile %base[%n, %c, 8, 16] : memref<2x3x32x64xf32> -> !xetile.tile<16x32xf32>
  %v = xetile.load_tile %tile : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  xetile.store_tile %v, %to : vector<16x32xf32>, !xetile.tile<16x32xf32>
  return
}

// [later 68-71] "init_tile with memref of dynamic shape": sizes and strides are passed.
func.func @dynamic_shape(%base: memref<?x?xbf16>, %out: memref<128x128xbf16>, %h: index, %w: index) {
  %tile0 = xetile.init_tile %base[4, 8], [%h, %w], [%w, 1] : memref<?x?xbf16> -> !xetile.tile<8x16xbf16>
  %v = xetile.load_tile %tile0 : !xetile.tile<8x16xbf16> -> vector<8x16xbf16>
  %to = xetile.init_tile %out[0, 0] : memref<128x128xbf16> -> !xetile.tile<8x16xbf16>
  xetile.store_tile %v, %to : vector<8x16xbf16>, !xetile.tile<8x16xbf16>
  return
}

// [later 73-76] "init_tile with an address".
func.func @address(%base: memref<64x128xf32>, %out: memref<64x128xf32>) {
  %p = memref.extract_aligned_pointer_as_index %base : memref<64x128xf32> -> index
  %a = arith.index_cast %p : index to i64
  %tile0 = xetile.init_tile %a[3, 5], [64, 128], [128, 1] : i64 -> !xetile.tile<8x16xf32>
  %v = xetile.load_tile %tile0 : !xetile.tile<8x16xf32> -> vector<8x16xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x128xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %v, %to : vector<8x16xf32>, !xetile.tile<8x16xf32>
  return
}

// [later 78-82, 346, 381] order = [0, 1] of a memref whose columns lie one after the other, as affine_map says it.
#columns = affine_map<(d0, d1) -> (d1, d0)>
!columns = !xetile.tile<16x32xf16, #xetile.tile_attr<order = [0, 1]>>
func.func @affine_order(%base: memref<64x32xf16, #columns>, %out: memref<64x64xf16>) {
  %tile = xetile.init_tile %base[8, 0] : memref<64x32xf16, #columns> -> !columns
  %v = xetile.load_tile %tile : !columns -> vector<16x32xf16>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf16> -> !xetile.tile<16x32xf16>
  xetile.store_tile %v, %to : vector<16x32xf16>, !xetile.tile<16x32xf16>
  return
}

// [later 84-88] "The tile with order attribute can be created from the high-dimension memref".
#deep_columns = affine_map<(d3, d2, d0, d1) -> (d3, d2, d1, d0)>
!deep_columns = !xetile.tile<64x32xbf16, #xetile.tile_attr<order = [0, 1]>>
func.func @order_of_ranks(%base: memref<4x4x128x128xbf16, #deep_columns>, %out: memref<64x32xbf16>, %n: index, %c: index) {
  %tile0 = xetile.init_tile %base[%n, %c, 32, 64] : memref<4x4x128x128xbf16, #deep_columns> -> !deep_columns
  %v = xetile.load_tile %tile0 : !deep_columns -> vector<64x32xbf16>
  %to = xetile.init_tile %out[0, 0] : memref<64x32xbf16> -> !xetile.tile<64x32xbf16>
  xetile.store_tile %v, %to : vector<64x32xbf16>, !xetile.tile<64x32xbf16>
  return
}

// [later 42-43, 92-95, 110-113] load_tile and store_tile of 64x64.
func.func @load_store(%base: memref<128x128xbf16>, %out: memref<128x128xbf16>) {
  %tile_a = xetile.init_tile %base[32, 64] : memref<128x128xbf16> -> !xetile.tile<64x64xbf16>
  %vector_a = xetile.load_tile %tile_a : !xetile.tile<64x64xbf16> -> vector<64x64xbf16>
  %tile_b = xetile.init_tile %out[64, 32] : memref<128x128xbf16> -> !xetile.tile<64x64xbf16>
  xetile.store_tile %vector_a, %tile_b : vector<64x64xbf16>, !xetile.tile<64x64xbf16>
  return
}

// [later 42, 97-100] "load_tile ... padding": what lies outside of the base matrix.
func.func @padding(%base: memref<20x24xf32>, %out: memref<64x64xf32>) {
  %tile = xetile.init_tile %base[12, 16] : memref<20x24xf32> -> !xetile.tile<16x16xf32>
  %v = xetile.load_tile %tile {padding = 3.0 : f32} : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
  xetile.store_tile %v, %to : vector<16x16xf32>, !xetile.tile<16x16xf32>
  return
}

// [later 104-108, 115-119] load_tile and store_tile "according to the tile's order attribute"; the vector has the tile's shape.
!ordered = !xetile.tile<64x32xbf16, #xetile.tile_attr<order = [0, 1]>>
func.func @ordered(%base: memref<128x128xbf16, #columns>, %out: memref<128x128xbf16, #columns>) {
  %tile_a = xetile.init_tile %base[64, 32] : memref<128x128xbf16, #columns> -> !ordered
  %vector_a = xetile.load_tile %tile_a : !ordered -> vector<64x32xbf16>
  %tile_b = xetile.init_tile %out[32, 64] : memref<128x128xbf16, #columns> -> !ordered
  xetile.store_tile %vector_a, %tile_b : vector<64x32xbf16>, !ordered
  return
}

// [later 45, 121-123] "prefetch_tile ... locality": all cache levels, all but the first, the last, none.
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

// [later 46, 125-135] tile_mma with and without C.
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

// [later 44, 137-139] update_tile_offset; prefetch_tile with hints.
func.func @update(%base: memref<64x64xf32>, %out: memref<64x64xf32>, %x: index, %y: index) {
  %tile = xetile.init_tile %base[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  %moved = xetile.update_tile_offset %tile, [%x, %y] : !xetile.tile<16x32xf32>
  xetile.prefetch_tile %moved {l1_hint = #xetile.cache_hint<uncached>} : !xetile.tile<16x32xf32>
  %v = xetile.load_tile %moved : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %to = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<16x32xf32>
  xetile.store_tile %v, %to : vector<16x32xf32>, !xetile.tile<16x32xf32>
  return
}

// [later 47] atomic_rmw on a block, part of which is outside.
func.func @atomic(%base: memref<64x64xf32>) {
  %value = arith.constant dense<0.5> : vector<8x16xf32>
  %tile = xetile.init_tile %base[60, 8] : memref<64x64xf32> -> !xetile.tile<8x16xf32>
  %old = xetile.atomic_rmw addf %value, %tile : vector<8x16xf32>, !xetile.tile<8x16xf32> -> vector<8x16xf32>
  return
}

// [later 47, 141-144] atomic_rmw of bf16, which gives what was there.
func.func @atomic_bf16(%base: memref<64x64xbf16>, %out: memref<8x16xbf16>) {
  %value = arith.constant dense<0.5> : vector<8x16xbf16>
  %tile = xetile.init_tile %base[16, 32] : memref<64x64xbf16> -> !xetile.tile<8x16xbf16>
  %ret_value = xetile.atomic_rmw <addf> %value, %tile : vector<8x16xbf16>, !xetile.tile<8x16xbf16> to vector<8x16xbf16>
  %to = xetile.init_tile %out[0, 0] : memref<8x16xbf16> -> !xetile.tile<8x16xbf16>
  xetile.store_tile %ret_value, %to : vector<8x16xbf16>, !xetile.tile<8x16xbf16>
  return
}

// [later 48, 148-150] transpose.
func.func @transpose(%base: memref<64x32xf32>, %out: memref<32x64xf32>) {
  %tile = xetile.init_tile %base[0, 0] : memref<64x32xf32> -> !xetile.tile<64x32xf32>
  %vector_b = xetile.load_tile %tile : !xetile.tile<64x32xf32> -> vector<64x32xf32>
  %vector_a = xetile.transpose [1, 0] %vector_b : vector<64x32xfloat> into vector<32x64xfloat>
  %to = xetile.init_tile %out[0, 0] : memref<32x64xf32> -> !xetile.tile<32x64xf32>
  xetile.store_tile %vector_a, %to : vector<32x64xf32>, !xetile.tile<32x64xf32>
  return
}

// [later 49, 152-154] reduction along one dimension, and of runs of reduction_size.
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

// [later 156-159] reduction_size along either dimension.
func.func @partial_reduction(%base: memref<64x64xf32>, %rows: memref<2x64xf32>, %columns: memref<64x2xf32>) {
  %tile = xetile.init_tile %base[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  %vector_b = xetile.load_tile %tile : !xetile.tile<64x64xf32> -> vector<64x64xf32>
  %r = xetile.reduction <add> %vector_b [0] {reduction_size = 32} : vector<64x64xfloat> into vector<2x64xfloat>
  %c = xetile.reduction <add> %vector_b [1] {reduction_size = 32} : vector<64x64xfloat> into vector<64x2xfloat>
  %tr = xetile.init_tile %rows[0, 0] : memref<2x64xf32> -> !xetile.tile<2x64xf32>
  xetile.store_tile %r, %tr : vector<2x64xf32>, !xetile.tile<2x64xf32>
  %tc = xetile.init_tile %columns[0, 0] : memref<64x2xf32> -> !xetile.tile<64x2xf32>
  xetile.store_tile %c, %tc : vector<64x2xf32>, !xetile.tile<64x2xf32>
  return
}

// [later 50, 161-163] broadcast of a row, and of runs of broadcast_size.
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

// [later 165-168] broadcast_size along either dimension.
func.func @broadcast_size(%rows: memref<2x64xf32>, %columns: memref<64x2xf32>, %out: memref<64x64xf32>, %other: memref<64x64xf32>) {
  %tr = xetile.init_tile %rows[0, 0] : memref<2x64xf32> -> !xetile.tile<2x64xf32>
  %r = xetile.load_tile %tr : !xetile.tile<2x64xf32> -> vector<2x64xf32>
  %a = xetile.broadcast %r [0] {broadcast_size = 32} : vector<2x64xfloat> into vector<64x64xfloat>
  %ta = xetile.init_tile %out[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  xetile.store_tile %a, %ta : vector<64x64xf32>, !xetile.tile<64x64xf32>
  %tc = xetile.init_tile %columns[0, 0] : memref<64x2xf32> -> !xetile.tile<64x2xf32>
  %c = xetile.load_tile %tc : !xetile.tile<64x2xf32> -> vector<64x2xf32>
  %b = xetile.broadcast %c [1] {broadcast_size = 32} : vector<64x2xfloat> into vector<64x64xfloat>
  %tb = xetile.init_tile %other[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  xetile.store_tile %b, %tb : vector<64x64xf32>, !xetile.tile<64x64xf32>
  return
}

// [later 170-183] Gather and scatter through a tile of offsets.
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

// [later 177-178] A scattered tile of two dimensions: each element of the tile has an offset.
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

// [later 172-178] Tiles of 256 and of 8x64 offsets into a memref whose size is not known.
!scatter = !xetile.tile<256xbf16, #xetile.tile_attr<scattered = true>>
!scatter_2d = !xetile.tile<8x64xbf16, #xetile.tile_attr<scattered = true>>
func.func @scattered(%base_memref: memref<?xbf16>, %out: memref<?xbf16>) {
  %step = vector.step : vector<512xindex>
  %at = vector.shape_cast %step : vector<512xindex> to vector<8x64xindex>
  %three = arith.constant dense<3> : vector<8x64xindex>
  %offsets = arith.muli %at, %three : vector<8x64xindex>
  %all = arith.constant dense<true> : vector<8x64xi1>
  %tile0 = xetile.init_tile %base_memref, %offsets : memref<?xbf16>, vector<8x64xindex> into !scatter_2d
  %v = xetile.load %tile0, %all : !scatter_2d, vector<8x64xi1> -> vector<8x64xbf16>
  %to = xetile.init_tile %out, %at : memref<?xbf16>, vector<8x64xindex> into !scatter_2d
  xetile.store %v, %to, %all : vector<8x64xbf16>, !scatter_2d, vector<8x64xi1>
  %few = vector.step : vector<256xindex>
  %two = arith.constant dense<2> : vector<256xindex>
  %evens = arith.muli %few, %two : vector<256xindex>
  %behind = arith.constant dense<512> : vector<256xindex>
  %places = arith.addi %few, %behind : vector<256xindex>
  %some = arith.constant dense<true> : vector<256xi1>
  %tile1 = xetile.init_tile %base_memref, %evens : memref<?xbf16>, vector<256xindex> into !scatter
  %w = xetile.load %tile1, %some : !scatter, vector<256xi1> -> vector<256xbf16>
  %tw = xetile.init_tile %out, %places : memref<?xbf16>, vector<256xindex> into !scatter
  xetile.store %w, %tw, %some : vector<256xbf16>, !scatter, vector<256xi1>
  return
}

// [later 180-188] load_gather, with padding where the mask is off; store_scatter with a mask.
!line = !xetile.tile<1x256xbf16, #xetile.tile_attr<scattered = true>>
func.func @masked_scatter(%base: memref<1024xbf16>, %out: memref<1024xbf16>) {
  %step = vector.step : vector<256xindex>
  %at = vector.shape_cast %step : vector<256xindex> to vector<1x256xindex>
  %four = arith.constant dense<4> : vector<1x256xindex>
  %from = arith.muli %at, %four : vector<1x256xindex>
  %two = arith.constant dense<2> : vector<1x256xindex>
  %to = arith.muli %at, %two : vector<1x256xindex>
  %end = arith.constant dense<200> : vector<1x256xindex>
  %mask = arith.cmpi ult, %at, %end : vector<1x256xindex>
  %begin = arith.constant dense<100> : vector<1x256xindex>
  %other = arith.cmpi uge, %at, %begin : vector<1x256xindex>
  %tile_0 = xetile.init_tile %base, %from : memref<1024xbf16>, vector<1x256xindex> into !line
  %vector_a = xetile.load_gather %tile_0, %mask, {padding = 1.0} : !line, vector<1x256xi1>, vector<1x256xbf16>
  %tile_1 = xetile.init_tile %out, %to : memref<1024xbf16>, vector<1x256xindex> into !line
  xetile.store_scatter %vector_a, %other, %tile_1 : vector<1x256xbf16>, vector<1x256xi1>, !line
  return
}

// [later 295-308] Appendix 1, first use: tiles of row-major matrices in a loop over k; i and j are a workgroup's.
func.func @plain(%A: memref<128x96xbf16>, %B: memref<96x128xbf16>, %C: memref<128x128xbf16>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %K_tile = arith.constant 32 : index
  %K = arith.constant 96 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %k = %c0 to %K step %K_tile iter_args(%acc = %none) -> (vector<64x64xf32>) {
    %a = xetile.init_tile %A[%i, %k] : memref<128x96xbf16> -> !xetile.tile<64x32xbf16>
    %b = xetile.init_tile %B[%k, %j] : memref<96x128xbf16> -> !xetile.tile<32x64xbf16>
    %va = xetile.load_tile %a : !xetile.tile<64x32xbf16> -> vector<64x32xbf16>
    %vb = xetile.load_tile %b : !xetile.tile<32x64xbf16> -> vector<32x64xbf16>
    %vc = xetile.tile_mma %va, %vb, %acc : vector<64x32xbf16>, vector<32x64xbf16>, vector<64x64xf32> into vector<64x64xf32>
    scf.yield %vc : vector<64x64xf32>
  }
  %short = arith.truncf %sum : vector<64x64xf32> to vector<64x64xbf16>
  %c = xetile.init_tile %C[%i, %j] : memref<128x128xbf16> -> !xetile.tile<64x64xbf16>
  xetile.store_tile %short, %c : vector<64x64xbf16>, !xetile.tile<64x64xbf16>
  return
}

// [later 310-323] Appendix 1, second use: order = [0, 1] views a transposed matrix in the order of the program.
!view = !xetile.tile<32x64xbf16, #xetile.tile_attr<order = [0, 1]>>
func.func @order(%A: memref<128x96xbf16>, %BT: memref<96x128xbf16, strided<[1, 96]>>, %C: memref<128x128xbf16>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %K_tile = arith.constant 32 : index
  %K = arith.constant 96 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %k = %c0 to %K step %K_tile iter_args(%acc = %none) -> (vector<64x64xf32>) {
    %a = xetile.init_tile %A[%i, %k] : memref<128x96xbf16> -> !xetile.tile<64x32xbf16>
    %b = xetile.init_tile %BT[%k, %j] : memref<96x128xbf16, strided<[1, 96]>> -> !view
    %va = xetile.load_tile %a : !xetile.tile<64x32xbf16> -> vector<64x32xbf16>
    %vb = xetile.load_tile %b : !view -> vector<32x64xbf16>
    %vc = xetile.tile_mma %va, %vb, %acc : vector<64x32xbf16>, vector<32x64xbf16>, vector<64x64xf32> into vector<64x64xf32>
    scf.yield %vc : vector<64x64xf32>
  }
  %short = arith.truncf %sum : vector<64x64xf32> to vector<64x64xbf16>
  %c = xetile.init_tile %C[%i, %j] : memref<128x128xbf16> -> !xetile.tile<64x64xbf16>
  xetile.store_tile %short, %c : vector<64x64xbf16>, !xetile.tile<64x64xbf16>
  return
}

// [later 325-337] Appendix 1, third use: the tile follows the memory, a transpose the program.
func.func @transposed(%A: memref<128x96xbf16>, %BT: memref<128x96xbf16>, %C: memref<128x128xbf16>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %K_tile = arith.constant 32 : index
  %K = arith.constant 96 : index
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %k = %c0 to %K step %K_tile iter_args(%acc = %none) -> (vector<64x64xf32>) {
    %a = xetile.init_tile %A[%i, %k] : memref<128x96xbf16> -> !xetile.tile<64x32xbf16>
    %bt = xetile.init_tile %BT[%j, %k] : memref<128x96xbf16> -> !xetile.tile<64x32xbf16>
    %va = xetile.load_tile %a : !xetile.tile<64x32xbf16> -> vector<64x32xbf16>
    %vbt = xetile.load_tile %bt : !xetile.tile<64x32xbf16> -> vector<64x32xbf16>
    %vb = xetile.transpose %vbt, [1, 0] : vector<64x32xbf16> -> vector<32x64xbf16>
    %vc = xetile.tile_mma %va, %vb, %acc : vector<64x32xbf16>, vector<32x64xbf16>, vector<64x64xf32> into vector<64x64xf32>
    scf.yield %vc : vector<64x64xf32>
  }
  %short = arith.truncf %sum : vector<64x64xf32> to vector<64x64xbf16>
  %c = xetile.init_tile %C[%i, %j] : memref<128x128xbf16> -> !xetile.tile<64x64xbf16>
  xetile.store_tile %short, %c : vector<64x64xbf16>, !xetile.tile<64x64xbf16>
  return
}

// [later 341-356] The second use in vector and memref: "subview maps to init_tile, transfer_read to load_tile, and contract to tile_mma".
#row = affine_map<(m, n, k) -> (m, k)>
#col = affine_map<(m, n, k) -> (k, n)>
#res = affine_map<(m, n, k) -> (m, n)>
func.func @subview_order(%A: memref<128x96xbf16>, %REFB: memref<96x128xbf16, strided<[1, 96]>>, %C: memref<128x128xbf16>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %K_tile = arith.constant 32 : index
  %K = arith.constant 96 : index
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %k = %c0 to %K step %K_tile iter_args(%acc = %none) -> (vector<64x64xf32>) {
    %a = memref.subview %A[%i, %k] [64, 32] [1, 1] : memref<128x96xbf16> to memref<64x32xbf16, strided<[96, 1], offset: ?>>
    %b = memref.subview %REFB[%k, %j] [32, 64] [1, 1]
        : memref<96x128xbf16, strided<[1, 96]>> to memref<32x64xbf16, strided<[1, 96], offset: ?>>
    %va = vector.transfer_read %a[%c0, %c0], %zero {in_bounds = [true, true]} : memref<64x32xbf16, strided<[96, 1], offset: ?>>, vector<64x32xbf16>
    %vb = vector.transfer_read %b[%c0, %c0], %zero {in_bounds = [true, true]} : memref<32x64xbf16, strided<[1, 96], offset: ?>>, vector<32x64xbf16>
    %vc = vector.contract {indexing_maps = [#row, #col, #res], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %va, %vb, %acc
        : vector<64x32xbf16>, vector<32x64xbf16> into vector<64x64xf32>
    scf.yield %vc : vector<64x64xf32>
  }
  %short = arith.truncf %sum : vector<64x64xf32> to vector<64x64xbf16>
  %c = memref.subview %C[%i, %j] [64, 64] [1, 1] : memref<128x128xbf16> to memref<64x64xbf16, strided<[128, 1], offset: ?>>
  vector.transfer_write %short, %c[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xbf16>, memref<64x64xbf16, strided<[128, 1], offset: ?>>
  return
}

// [later 358-375] The third use in vector and memref.
func.func @subview_transposed(%A: memref<128x96xbf16>, %BT: memref<128x96xbf16>, %C: memref<128x128xbf16>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %K_tile = arith.constant 32 : index
  %K = arith.constant 96 : index
  %zero = arith.constant 0.0 : bf16
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %k = %c0 to %K step %K_tile iter_args(%acc = %none) -> (vector<64x64xf32>) {
    %a = memref.subview %A[%i, %k] [64, 32] [1, 1] : memref<128x96xbf16> to memref<64x32xbf16, strided<[96, 1], offset: ?>>
    %bt = memref.subview %BT[%j, %k] [64, 32] [1, 1] : memref<128x96xbf16> to memref<64x32xbf16, strided<[96, 1], offset: ?>>
    %va = vector.transfer_read %a[%c0, %c0], %zero {in_bounds = [true, true]} : memref<64x32xbf16, strided<[96, 1], offset: ?>>, vector<64x32xbf16>
    %vbt = vector.transfer_read %bt[%c0, %c0], %zero {in_bounds = [true, true]} : memref<64x32xbf16, strided<[96, 1], offset: ?>>, vector<64x32xbf16>
    %vb = vector.transpose %vbt, [1, 0] : vector<64x32xbf16> to vector<32x64xbf16>
    %vc = vector.contract {indexing_maps = [#row, #col, #res], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %va, %vb, %acc
        : vector<64x32xbf16>, vector<32x64xbf16> into vector<64x64xf32>
    scf.yield %vc : vector<64x64xf32>
  }
  %short = arith.truncf %sum : vector<64x64xf32> to vector<64x64xbf16>
  %c = memref.subview %C[%i, %j] [64, 64] [1, 1] : memref<128x128xbf16> to memref<64x64xbf16, strided<[128, 1], offset: ?>>
  vector.transfer_write %short, %c[%c0, %c0] {in_bounds = [true, true]} : vector<64x64xbf16>, memref<64x64xbf16, strided<[128, 1], offset: ?>>
  return
}

// [later 377-381] "Correct lowering": the order is stated, or the default, of rows; or that of columns.
func.func @orders(%rows: memref<1024x1024xf16>, %columns: memref<1024x1024xf16, #columns>, %out: memref<64x96xf16>) {
  %0 = xetile.init_tile %rows[0, 0] : memref<1024x1024xf16> -> !xetile.tile<64x32xf16, #xetile.tile_attr<order = [1, 0]>>
  %1 = xetile.init_tile %rows[0, 0] : memref<1024x1024xf16> -> !xetile.tile<64x32xf16>
  %2 = xetile.init_tile %columns[0, 0] : memref<1024x1024xf16, #columns> -> !xetile.tile<64x32xf16, #xetile.tile_attr<order = [0, 1]>>
  %v0 = xetile.load_tile %0 : !xetile.tile<64x32xf16, #xetile.tile_attr<order = [1, 0]>> -> vector<64x32xf16>
  %v1 = xetile.load_tile %1 : !xetile.tile<64x32xf16> -> vector<64x32xf16>
  %v2 = xetile.load_tile %2 : !xetile.tile<64x32xf16, #xetile.tile_attr<order = [0, 1]>> -> vector<64x32xf16>
  %t0 = xetile.init_tile %out[0, 0] : memref<64x96xf16> -> !xetile.tile<64x32xf16>
  xetile.store_tile %v0, %t0 : vector<64x32xf16>, !xetile.tile<64x32xf16>
  %t1 = xetile.init_tile %out[0, 32] : memref<64x96xf16> -> !xetile.tile<64x32xf16>
  xetile.store_tile %v1, %t1 : vector<64x32xf16>, !xetile.tile<64x32xf16>
  %t2 = xetile.init_tile %out[0, 64] : memref<64x96xf16> -> !xetile.tile<64x32xf16>
  xetile.store_tile %v2, %t2 : vector<64x32xf16>, !xetile.tile<64x32xf16>
  return
}
