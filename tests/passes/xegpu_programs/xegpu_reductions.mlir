// Reductions of vectors, with accumulators that count, and what surrounds them.
func.func @f(%a: memref<16x32xf32>, %o: memref<64xf32>, %u: memref<16x32xi32>, %w: memref<64xi32>) {
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
  return
}
