// Reductions of vectors, with accumulators that count, and what surrounds them.
func.func @f(%a: memref<16x32xf32>, %o: memref<64xf32>, %u: memref<16x32xi32>, %w: memref<64xi32>, %n: memref<128xf32>) {
  %ta = xegpu.create_nd_tdesc %a : memref<16x32xf32> -> !xegpu.tensor_desc<16x32xf32>
  %v = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<16x32xf32> -> vector<16x32xf32>
  %start = arith.constant dense<2.5> : vector<16xf32>
  %low = arith.constant dense<0xFF800000> : vector<32xf32>
  %r = vector.multi_reduction <add>, %v, %start [1] : vector<16x32xf32> to vector<16xf32>
  %m = vector.multi_reduction <maximumf>, %v, %low [0] : vector<16x32xf32> to vector<32xf32>
  %to = xegpu.create_nd_tdesc %o : memref<64xf32> -> !xegpu.tensor_desc<16xf32>
  xegpu.store_nd %r, %to[0] : vector<16xf32>, !xegpu.tensor_desc<16xf32>
  %tm = xegpu.create_nd_tdesc %o : memref<64xf32> -> !xegpu.tensor_desc<32xf32>
  xegpu.store_nd %m, %tm[32] : vector<32xf32>, !xegpu.tensor_desc<32xf32>
  %tu = xegpu.create_nd_tdesc %u : memref<16x32xi32> -> !xegpu.tensor_desc<16x32xi32>
  %x = xegpu.load_nd %tu[0, 0] : !xegpu.tensor_desc<16x32xi32> -> vector<16x32xi32>
  %top = arith.constant dense<7> : vector<16xi32>
  %s = vector.multi_reduction <minsi>, %x, %top [1] : vector<16x32xi32> to vector<16xi32>
  %tw = xegpu.create_nd_tdesc %w : memref<64xi32> -> !xegpu.tensor_desc<16xi32>
  xegpu.store_nd %s, %tw[8] : vector<16xi32>, !xegpu.tensor_desc<16xi32>
  // Other ranks: a trailing pair, a leading one, one in between, and all at once.
  %cube = vector.shape_cast %v : vector<16x32xf32> to vector<4x8x16xf32>
  %zero4 = arith.constant dense<0.0> : vector<4xf32>
  %zero16 = arith.constant dense<1.0> : vector<16xf32>
  %zero = arith.constant dense<0.0> : vector<4x16xf32>
  %one = arith.constant 1.5 : f32
  %c1 = vector.multi_reduction <add>, %cube, %zero4 [1, 2] : vector<4x8x16xf32> to vector<4xf32>
  %c2 = vector.multi_reduction <mul>, %cube, %zero16 [0, 1] : vector<4x8x16xf32> to vector<16xf32>
  %c3 = vector.multi_reduction <add>, %cube, %zero [1] : vector<4x8x16xf32> to vector<4x16xf32>
  %c4 = vector.multi_reduction <add>, %cube, %one [0, 1, 2] : vector<4x8x16xf32> to f32
  %c3f = vector.shape_cast %c3 : vector<4x16xf32> to vector<64xf32>
  %c4v = vector.broadcast %c4 : f32 to vector<64xf32>
  %mix = arith.addf %c3f, %c4v : vector<64xf32>
  %tn = xegpu.create_nd_tdesc %n : memref<128xf32> -> !xegpu.tensor_desc<64xf32>
  xegpu.store_nd %mix, %tn[0] : vector<64xf32>, !xegpu.tensor_desc<64xf32>
  %t16 = xegpu.create_nd_tdesc %n : memref<128xf32> -> !xegpu.tensor_desc<16xf32>
  xegpu.store_nd %c2, %t16[64] : vector<16xf32>, !xegpu.tensor_desc<16xf32>
  %t4 = xegpu.create_nd_tdesc %n : memref<128xf32> -> !xegpu.tensor_desc<4xf32>
  xegpu.store_nd %c1, %t4[90] : vector<4xf32>, !xegpu.tensor_desc<4xf32>
  return
}
