// Scattered accesses in both forms, chunks, the RFC's transposed gather, atomics, shared matrices.
func.func @f(%m: memref<512xf32>, %n: memref<512xf32>, %u: memref<512xi32>, %o: memref<32x32xf32>, %i: index) {
  %step = vector.step : vector<16xindex>
  %three = arith.constant dense<6> : vector<16xindex>
  %offs = arith.muli %step, %three : vector<16xindex>
  %ten = arith.constant dense<10> : vector<16xindex>
  %k = arith.cmpi ult, %step, %ten : vector<16xindex>
  %all = arith.constant dense<true> : vector<16xi1>
  %zero = arith.constant dense<0.0> : vector<16x2xf32>
  %v = xegpu.load %m[%offs], %all <{chunk_size = 2 : i64}> : memref<512xf32>, vector<16xindex>, vector<16xi1> -> vector<16x2xf32>
  %t = xegpu.create_tdesc %n, %offs : memref<512xf32>, vector<16xindex> -> !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>
  %t2 = xegpu.update_offset %t, %step : !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, vector<16xindex>
  %g = xegpu.load %t2, %all <{transpose}> : !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>, vector<16xi1> -> vector<2x16xf32>
  %gt = vector.transpose %g, [1, 0] : vector<2x16xf32> to vector<16x2xf32>
  %sum = arith.addf %gt, %v : vector<16x2xf32>
  xegpu.store %sum, %m[%offs], %k <{chunk_size = 2 : i64}> : vector<16x2xf32>, memref<512xf32>, vector<16xindex>, vector<16xi1>
  %one = arith.constant dense<3> : vector<16xi32>
  %same = arith.divui %step, %three : vector<16xindex>
  %old = xegpu.atomic_rmw addi %u[%same], %k, %one : memref<512xi32>, vector<16xindex>, vector<16xi1>, vector<16xi32> -> vector<16xi32>
  %slm = memref.alloc() : memref<4096xi8, 3>
  %md = xegpu.create_mem_desc %slm : memref<4096xi8, 3> -> !xegpu.mem_desc<32x32xf32>
  %mt = xegpu.create_mem_desc %slm : memref<4096xi8, 3> -> !xegpu.mem_desc<32x32xf32, #xegpu.mem_layout<stride = [1, 32]>>
  %to = xegpu.create_nd_tdesc %o : memref<32x32xf32> -> !xegpu.tensor_desc<32x32xf32>
  %vo = xegpu.load_nd %to[0, 0] : !xegpu.tensor_desc<32x32xf32> -> vector<32x32xf32>
  xegpu.store_matrix %vo, %md[0, 0] : vector<32x32xf32>, !xegpu.mem_desc<32x32xf32>
  gpu.barrier
  %part = xegpu.load_matrix %mt[%i, 5] : !xegpu.mem_desc<32x32xf32, #xegpu.mem_layout<stride = [1, 32]>>, index -> vector<2x16xf32>
  %ts = xegpu.create_nd_tdesc %o : memref<32x32xf32> -> !xegpu.tensor_desc<2x16xf32>
  xegpu.store_nd %part, %ts[3, 20] : vector<2x16xf32>, !xegpu.tensor_desc<2x16xf32>
  xegpu.fence memory_kind = global, fence_scope = workgroup
  return
}
