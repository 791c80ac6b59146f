// Through shared memory, and a dynamic matrix of rank 3.
func.func @f(%a: memref<?x?x?xf32>, %b: memref<32x32xf32>, %n: index, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %d0 = memref.dim %a, %c0 : memref<?x?x?xf32>
  %d1 = memref.dim %a, %c1 : memref<?x?x?xf32>
  %d2 = memref.dim %a, %c2 : memref<?x?x?xf32>
  %s0 = arith.muli %d1, %d2 : index
  %ta = xetile.init_tile %a[1, %i, %j], [%d0, %d1, %d2], [%s0, %d2, 1] : memref<?x?x?xf32> -> !xetile.tile<16x16xf32>
  %v = xetile.load_tile %ta : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %slm = memref.alloc() : memref<32x32xf32, 3>
  %ts = xetile.init_tile %slm[8, 4] : memref<32x32xf32, 3> -> !xetile.tile<16x16xf32, #xetile.tile_attr<memory_space = 3>>
  xetile.store_tile %v, %ts : vector<16x16xf32>, !xetile.tile<16x16xf32, #xetile.tile_attr<memory_space = 3>>
  gpu.barrier
  %tr = xetile.init_tile %slm[10, 6] : memref<32x32xf32, 3> -> !xetile.tile<8x8xf32, #xetile.tile_attr<memory_space = 3>>
  %w = xetile.load_tile %tr : !xetile.tile<8x8xf32, #xetile.tile_attr<memory_space = 3>> -> vector<8x8xf32>
  %tb = xetile.init_tile %b[%n, 0] : memref<32x32xf32> -> !xetile.tile<8x8xf32>
  xetile.store_tile %w, %tb : vector<8x8xf32>, !xetile.tile<8x8xf32>
  return
}
