// Column-major tiles, padding, arrays of tiles, transposes, ragged edges and negative offsets.
func.func @f(%a: memref<24x40xf32>, %t: memref<24x40xf32, strided<[1, 24]>>, %o: memref<64x64xf32>, %ot: memref<64x64xf32, strided<[1, 64]>>, %i: index, %j: index) {
  %ta = xetile.init_tile %a[%i, %j] : memref<24x40xf32> -> !xetile.tile<16x16xf32>
  %va = xetile.load_tile %ta {padding = 2.5 : f32} : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %tt = xetile.init_tile %t[%i, -3] : memref<24x40xf32, strided<[1, 24]>> -> !xetile.tile<16x8xf32, #xetile.tile_attr<order = [0, 1]>>
  %vt = xetile.load_tile %tt {padding = -1.0 : f32} : !xetile.tile<16x8xf32, #xetile.tile_attr<order = [0, 1]>> -> vector<16x8xf32>
  %tx = xetile.init_tile %a[2, %j] : memref<24x40xf32> -> !xetile.tile<8x8xf32, #xetile.tile_attr<array_length = 2>>
  %x:2 = xetile.load_tile %tx : !xetile.tile<8x8xf32, #xetile.tile_attr<array_length = 2>> -> vector<8x8xf32>, vector<8x8xf32>
  %s = arith.addf %x#0, %x#1 : vector<8x8xf32>
  %tr = xetile.transpose %vt, [1, 0] : vector<16x8xf32> -> vector<8x16xf32>
  %o0 = xetile.init_tile %o[0, 0] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
  xetile.store_tile %va, %o0 : vector<16x16xf32>, !xetile.tile<16x16xf32>
  %o1 = xetile.init_tile %o[20, 3] : memref<64x64xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %tr, %o1 : vector<8x16xf32>, !xetile.tile<8x16xf32>
  %o2 = xetile.init_tile %o[60, 60] : memref<64x64xf32> -> !xetile.tile<8x8xf32>
  xetile.store_tile %s, %o2 : vector<8x8xf32>, !xetile.tile<8x8xf32>
  %o3 = xetile.init_tile %ot[5, %j] : memref<64x64xf32, strided<[1, 64]>> -> !xetile.tile<16x8xf32, #xetile.tile_attr<order = [0, 1]>>
  xetile.store_tile %vt, %o3 : vector<16x8xf32>, !xetile.tile<16x8xf32, #xetile.tile_attr<order = [0, 1]>>
  return
}
