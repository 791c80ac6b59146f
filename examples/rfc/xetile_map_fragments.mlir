// The fragments of the XeTile RFCs and of the slides with maps, as whole functions: a workgroup's tiles.
// tests/examples/test_rfc_fragments.py runs each and says what it must give.

#wg_map_a = #xetile.wg_map<sg_layout = [2, 2], sg_data = [32, 128]>
#wg_map_d = #xetile.wg_map<sg_layout = [4, 1], sg_data = [16, 64]>

// [later 190-192] "Workgroup Level XeTile extension": a tile distributed in two rounds; transpose and convert_layout.
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

// [later 194-199] A map together with an order, of a matrix whose columns lie one after the other.
#columns = affine_map<(d0, d1) -> (d1, d0)>
!wg_tile = !xetile.tile<128x128xf16, #xetile.tile_attr<wg_map = #wg_map_a, order = [0, 1]>>
func.func @map_and_order(%A: memref<1024x1024xf16, #columns>, %out: memref<128x128xf16>, %m: index) {
  %wg_tile = xetile.init_tile %A[%m, 0] : memref<1024x1024xf16, #columns> -> !wg_tile
  %v = xetile.load_tile %wg_tile : !wg_tile -> vector<128x128xf16>
  %to = xetile.init_tile %out[0, 0] : memref<128x128xf16> -> !xetile.tile<128x128xf16>
  xetile.store_tile %v, %to : vector<128x128xf16>, !xetile.tile<128x128xf16>
  return
}

// [early 106-116; later 201-211] The maps of a 128x128 tile: four blocks of rows, distributed in two rounds and twice each.
!distributed = !xetile.tile<128x128xf16, #xetile.tile_attr<wg_map = #wg_map_a>>
func.func @rounds(%A: memref<1024x1024xf16>, %out: memref<1024x1024xf16>, %m: index) {
  %a_init_tile = xetile.init_tile %A[%m, 0] : memref<1024x1024xf16> -> !distributed
  %v = xetile.load_tile %a_init_tile : !distributed -> vector<128x128xf16>
  %to = xetile.init_tile %out[%m, 0] : memref<1024x1024xf16> -> !distributed
  xetile.store_tile %v, %to : vector<128x128xf16>, !distributed
  return
}

// [early 94-104, 118-120] The same with its sg_map: 16 lanes in two rows of eight, two elements each.
#sg_map_a = #xetile.sg_map<wi_layout = [2, 8], wi_data = [1, 2]>
#xe_map_a = #xetile.xe_map<wg = #wg_map_a, sg = #sg_map_a>
func.func @rounds_and_lanes(%A: memref<1024x1024xf16>, %out: memref<1024x1024xf16>, %m: index) {
  %a_init_tile = xetile.init_tile %A[%m, 0] : memref<1024x1024xf16> -> !xetile.tile<128x128xf16, #xe_map_a>
  %v = xetile.load_tile %a_init_tile : !xetile.tile<128x128xf16, #xe_map_a> -> vector<128x128xf16>
  %to = xetile.init_tile %out[%m, 0] : memref<1024x1024xf16> -> !xetile.tile<128x128xf16, #xe_map_a>
  xetile.store_tile %v, %to : vector<128x128xf16>, !xetile.tile<128x128xf16, #xe_map_a>
  return
}

// [later 218, 224-236] "tile_mma with wg_map": the maps of A, B and C follow from that of the result.
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

// [later 220, 238-241, 250-252] "reduction with wg_map".
#rows = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 1]>
func.func @reduction_map(%in: memref<256x128xf32>, %out: memref<256x1xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x128xf32> -> !xetile.tile<256x128xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<256x128xf32> -> vector<256x128xf32>
  %vector_a = xetile.reduction <add>, %vector_b [1] {wg_map = #rows} : vector<256x128xf32> -> vector<256x1xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x1xf32> -> !xetile.tile<256x1xf32>
  xetile.store_tile %vector_a, %to : vector<256x1xf32>, !xetile.tile<256x1xf32>
  return
}

// [later 243-248] "reduction_size ... partial reduction": 32 rows each, of what math.exp with a map made.
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

// [later 221, 254-261] "broadcast with wg_map".
#copies = #xetile.wg_map<sg_layout = [16, 1], sg_data = [16, 256]>
func.func @broadcast_map(%in: memref<256x1xf32>, %out: memref<256x256xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x1xf32> -> !xetile.tile<256x1xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<256x1xf32> -> vector<256x1xf32>
  %vector_a = xetile.broadcast %vector_b [1] {wg_map = #copies} : vector<256x1xf32> -> vector<256x256xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  xetile.store_tile %vector_a, %to : vector<256x256xf32>, !xetile.tile<256x256xf32>
  return
}

// [later 219, 263-274] "transpose with wg_map": 64 x 32 of f32 for each of 32 subgroups, before and after.
#turned = #xetile.wg_map<sg_layout = [4, 8], sg_data = [32, 64]>
func.func @transpose_map(%in: memref<512x128xf32>, %out: memref<128x512xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<512x128xf32> -> !xetile.tile<512x128xf32>
  %vector_b = xetile.load_tile %t : !xetile.tile<512x128xf32> -> vector<512x128xf32>
  %vector_a = xetile.transpose %vector_b, [1, 0] {wg_map = #turned} : vector<512x128xf32> -> vector<128x512xf32>
  %to = xetile.init_tile %out[0, 0] : memref<128x512xf32> -> !xetile.tile<128x512xf32>
  xetile.store_tile %vector_a, %to : vector<128x512xf32>, !xetile.tile<128x512xf32>
  return
}

// [later 222, 276-282] "convert_layout with wg_map", of both sides.
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

// [later 284-289] "convert_layout ... without the wg_map specified for the input operand": that of the load.
!loaded = !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #loaded>>
func.func @convert_layout_result(%in: memref<256x256xf32>, %out: memref<256x256xf32>) {
  %t = xetile.init_tile %in[0, 0] : memref<256x256xf32> -> !loaded
  %vector_b = xetile.load_tile %t : !loaded -> vector<256x256xf32>
  %vector_a = xetile.convert_layout %vector_b {wg_map_result = #multiplied} : vector<256x256xf32>
  %to = xetile.init_tile %out[0, 0] : memref<256x256xf32> -> !xetile.tile<256x256xf32>
  xetile.store_tile %vector_a, %to : vector<256x256xf32>, !xetile.tile<256x256xf32>
  return
}

// [slides 71-86] Example 1: each of 16 subgroups owns a block of 32x32.
!blocks = !xetile.tile<128x128xf16, #xetile.tile_attr<wg_map = <sg_layout = [4, 4], sg_data = [32, 32]>>>
func.func @blocks(%in: memref<128x128xf16>, %out: memref<128x128xf16>) {
  %t = xetile.init_tile %in[0, 0] : memref<128x128xf16> -> !blocks
  %v = xetile.load_tile %t : !blocks -> vector<128x128xf16>
  %to = xetile.init_tile %out[0, 0] : memref<128x128xf16> -> !blocks
  xetile.store_tile %v, %to : vector<128x128xf16>, !blocks
  return
}

// [slides 88-98] Example 2: each block of 32x32 is owned by the four subgroups of a row.
!rows = !xetile.tile<128x32xf16, #xetile.tile_attr<wg_map = <sg_layout = [4, 4], sg_data = [32, 32]>>>
func.func @shared_blocks(%in: memref<128x32xf16>, %out: memref<128x32xf16>) {
  %t = xetile.init_tile %in[0, 0] : memref<128x32xf16> -> !rows
  %v = xetile.load_tile %t : !rows -> vector<128x32xf16>
  %to = xetile.init_tile %out[0, 0] : memref<128x32xf16> -> !rows
  xetile.store_tile %v, %to : vector<128x32xf16>, !rows
  return
}

// [slides 102-219] The product of the slides: C is loaded, tiles move along k, others are prefetched by maps of their own.
#map_a = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 32]>
#map_b = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#map_c = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
!a = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #map_a>>
!b = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #map_b>>
!c = !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #map_c>>
!a_prefetch = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = <sg_layout = [32, 1], sg_data = [8, 32]>>>
!b_prefetch = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = <sg_layout = [4, 8], sg_data = [8, 32]>>>
func.func @product(%arg0: memref<512x128xf16>, %arg1: memref<128x512xf16>, %arg2: memref<512x512xf32>, %0: index, %1: index) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c128 = arith.constant 128 : index
  %2 = xetile.init_tile %arg2[%0, %1] : memref<512x512xf32> -> !c
  %3 = xetile.load_tile %2 : !c -> vector<256x256xf32>
  %4 = xetile.init_tile %arg0[%0, %c0] : memref<512x128xf16> -> !a
  %5 = xetile.init_tile %arg1[%c0, %1] : memref<128x512xf16> -> !b
  %ahead_a = xetile.init_tile %arg0[%0, %c32] : memref<512x128xf16> -> !a_prefetch
  %ahead_b = xetile.init_tile %arg1[%c32, %1] : memref<128x512xf16> -> !b_prefetch
  %6:5 = scf.for %arg3 = %c0 to %c128 step %c32
      iter_args(%arg4 = %4, %arg5 = %5, %arg6 = %3, %arg7 = %ahead_a, %arg8 = %ahead_b)
      -> (!a, !b, vector<256x256xf32>, !a_prefetch, !b_prefetch) {
    %8 = xetile.load_tile %arg4 : !a -> vector<256x32xf16>
    %9 = xetile.load_tile %arg5 : !b -> vector<32x256xf16>
    xetile.prefetch_tile %arg7 : !a_prefetch
    xetile.prefetch_tile %arg8 : !b_prefetch
    %10 = xetile.update_tile_offset %arg4, [%c0, %c32] : !a
    %11 = xetile.update_tile_offset %arg5, [%c32, %c0] : !b
    %13 = xetile.update_tile_offset %arg7, [%c0, %c32] : !a_prefetch
    %14 = xetile.update_tile_offset %arg8, [%c32, %c0] : !b_prefetch
    %12 = xetile.tile_mma %8, %9, %arg6 {wg_map_c = #map_c}
        : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
    scf.yield %10, %11, %12, %13, %14 : !a, !b, vector<256x256xf32>, !a_prefetch, !b_prefetch
  }
  %7 = xetile.init_tile %arg2[%0, %1] : memref<512x512xf32> -> !c
  xetile.store_tile %6#2, %7 : vector<256x256xf32>, !c
  return
}
