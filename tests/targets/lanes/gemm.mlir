// C = max(s A B + bias, 0) in bf16, of sizes that no tile divides; descriptors move along k.
#a = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>
#b = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>
gpu.module @m {
  gpu.func @k(%A: memref<?x?xbf16>, %B: memref<?x?xbf16>, %bias: memref<?xf32>, %C: memref<?x?xbf16>, %K: index, %s: f32) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 4 : i64, tilewright.lanes = 16 : i64} {
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %z = arith.constant dense<0.0> : vector<8x1xf32>
    %zero = arith.constant dense<0.0> : vector<8xf32>
    %sg = gpu.subgroup_id : index
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %r0 = arith.muli %by, %c32 : index
    %r1 = arith.muli %sg, %c8 : index
    %r = arith.addi %r0, %r1 : index
    %c = arith.muli %bx, %c16 : index
    %lane = gpu.lane_id
    %m = memref.dim %A, %c0 : memref<?x?xbf16>
    %one = arith.constant 1 : index
    %n = memref.dim %B, %one : memref<?x?xbf16>
    %k = memref.dim %A, %one : memref<?x?xbf16>
    %ta = xegpu.create_nd_tdesc %A[%r, 0], [%m, %k], [%k, 1] : memref<?x?xbf16> -> !xegpu.tensor_desc<8x16xbf16, #a>
    %tb = xegpu.create_nd_tdesc %B[0, %c], [%k, %n], [%n, 1] : memref<?x?xbf16> -> !xegpu.tensor_desc<16x16xbf16, #b>
    %acc, %xa, %xb = scf.for %i = %c0 to %K step %c16 iter_args(%y = %z, %ua = %ta, %ub = %tb) -> (vector<8x1xf32>, !xegpu.tensor_desc<8x16xbf16, #a>, !xegpu.tensor_desc<16x16xbf16, #b>) {
      %va = xegpu.load_nd %ua : !xegpu.tensor_desc<8x16xbf16, #a> into vector<8x1xbf16>
      %vb = xegpu.load_nd %ub : !xegpu.tensor_desc<16x16xbf16, #b> into vector<8x2xbf16>
      %w = xegpu.dpas %va, %vb, %y {#a #b #a} : vector<8x1xbf16>, vector<8x2xbf16>, vector<8x1xf32> into vector<8x1xf32>
      %na = xegpu.update_nd_offset %ua, [0, 16] : !xegpu.tensor_desc<8x16xbf16, #a>
      %nb = xegpu.update_nd_offset %ub, [16, 0] : !xegpu.tensor_desc<16x16xbf16, #b>
      xegpu.prefetch_nd %na : !xegpu.tensor_desc<8x16xbf16, #a>
      scf.yield %w, %na, %nb : vector<8x1xf32>, !xegpu.tensor_desc<8x16xbf16, #a>, !xegpu.tensor_desc<16x16xbf16, #b>
    }
    %flat = vector.shape_cast %acc : vector<8x1xf32> to vector<8xf32>
    %col = arith.addi %c, %lane : index
    %ok = arith.cmpi ult, %col, %n : index
    %bv = scf.if %ok -> (f32) {
      %t = memref.load %bias[%col] : memref<?xf32>
      scf.yield %t : f32
    } else {
      %t = arith.constant 0.0 : f32
      scf.yield %t : f32
    }
    %bb = vector.broadcast %bv : f32 to vector<8xf32>
    %ss = vector.broadcast %s : f32 to vector<8xf32>
    %e0 = arith.mulf %flat, %ss : vector<8xf32>
    %e1 = arith.addf %e0, %bb : vector<8xf32>
    %e2 = arith.maximumf %e1, %zero : vector<8xf32>
    %e3 = arith.truncf %e2 : vector<8xf32> to vector<8xbf16>
    %e4 = vector.shape_cast %e3 : vector<8xbf16> to vector<8x1xbf16>
    %tc = xegpu.create_nd_tdesc %C[%r, %c], [%m, %n], [%n, 1] : memref<?x?xbf16> -> !xegpu.tensor_desc<8x16xbf16, #a>
    xegpu.store_nd %e4, %tc : vector<8x1xbf16>, !xegpu.tensor_desc<8x16xbf16, #a>
    gpu.return
  }
}
