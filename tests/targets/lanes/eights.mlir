// Products of i8 by subgroups of 8 lanes; each hands its block on through shared memory, and adds it up across its lanes.
#a = #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>
#b = #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>
#c = #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>
gpu.module @m {
  gpu.func @k(%A: memref<24x96xi8>, %B: memref<96x8xi8>, %C: memref<24x8xi32>, %S: memref<3x8xi32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 3 : i64, tilewright.lanes = 8 : i64} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c8 = arith.constant 8 : index
    %c32 = arith.constant 32 : index
    %c96 = arith.constant 96 : index
    %s = gpu.subgroup_id : index
    %lane = gpu.lane_id
    %row = arith.muli %s, %c8 : index
    %slm = memref.alloc() : memref<768xi8, 3>
    %m = xegpu.create_mem_desc %slm : memref<768xi8, 3> -> !xegpu.mem_desc<24x8xi32>
    %zero = arith.constant dense<0> : vector<8x1xi32>
    %ta = xegpu.create_nd_tdesc %A[%row, 0] : memref<24x96xi8> -> !xegpu.tensor_desc<8x32xi8, #a>
    %tb = xegpu.create_nd_tdesc %B[0, 0] : memref<96x8xi8> -> !xegpu.tensor_desc<32x8xi8, #b>
    %sum = scf.for %k = %c0 to %c96 step %c32 iter_args(%y = %zero) -> (vector<8x1xi32>) {
      %xa = xegpu.update_nd_offset %ta, [0, %k] : !xegpu.tensor_desc<8x32xi8, #a>
      %xb = xegpu.update_nd_offset %tb, [%k, 0] : !xegpu.tensor_desc<32x8xi8, #b>
      %va = xegpu.load_nd %xa : !xegpu.tensor_desc<8x32xi8, #a> into vector<8x4xi8>
      %vb = xegpu.load_nd %xb : !xegpu.tensor_desc<32x8xi8, #b> into vector<8x4xi8>
      %w = xegpu.dpas %va, %vb, %y {#a #b #c} : vector<8x4xi8>, vector<8x4xi8>, vector<8x1xi32> into vector<8x1xi32>
      scf.yield %w : vector<8x1xi32>
    }
    %f = vector.shape_cast %sum : vector<8x1xi32> to vector<8xi32>
    xegpu.store_matrix %f, %m[%row, 0] {subgroup_block_io} : vector<8xi32>, !xegpu.mem_desc<24x8xi32>, index
    gpu.barrier
    %next = arith.addi %s, %c1 : index
    %other = arith.remui %next, %c3 : index
    %from = arith.muli %other, %c8 : index
    %g = xegpu.load_matrix %m[%from, 0] {subgroup_block_io} : !xegpu.mem_desc<24x8xi32>, index -> vector<8xi32>
    %h = vector.shape_cast %g : vector<8xi32> to vector<8x1xi32>
    %tc = xegpu.create_nd_tdesc %C[%row, 0] : memref<24x8xi32> -> !xegpu.tensor_desc<8x8xi32, #c>
    xegpu.store_nd %h, %tc : vector<8x1xi32>, !xegpu.tensor_desc<8x8xi32, #c>
    %own = vector.reduction <add>, %f : vector<8xi32> into i32
    %all = gpu.subgroup_reduce add %own : (i32) -> i32
    memref.store %all, %S[%s, %lane] : memref<3x8xi32>
    gpu.return
  }
}
