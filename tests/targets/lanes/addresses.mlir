// Chunks under a mask, loops that lanes leave at different times, atomics, and an address that is a number.
#t = #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 1]>
gpu.module @m {
  gpu.func @k(%A: memref<512xf32>, %n: index, %o: memref<8x3x4xf32>, %h: memref<4xi32>, %X: memref<64xf32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 3 : i64, tilewright.lanes = 8 : i64} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c20 = arith.constant 20 : index
    %sg = gpu.subgroup_id : index
    %lane = gpu.lane_id
    %lanes = vector.step : vector<8xindex>
    %twenty = arith.constant dense<20> : vector<8xindex>
    %o0 = arith.muli %lanes, %twenty : vector<8xindex>
    %s4 = arith.constant 4 : index
    %sh = arith.muli %sg, %s4 : index
    %shv = vector.broadcast %sh : index to vector<8xindex>
    %o1 = arith.addi %o0, %shv : vector<8xindex>
    %nv = vector.broadcast %n : index to vector<8xindex>
    %mask = arith.cmpi ult, %lanes, %nv : vector<8xindex>
    %t = xegpu.create_tdesc %A, %o1 : memref<512xf32>, vector<8xindex> into !xegpu.tensor_desc<8x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #t>
    %v = xegpu.load %t, %mask {transpose = [1, 0]} : !xegpu.tensor_desc<8x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #t>, vector<8xi1> -> vector<4x1xf32>
    %f = vector.shape_cast %v : vector<4x1xf32> to vector<4xf32>
    %on = arith.cmpi ult, %lane, %n : index
    %one = arith.constant dense<1.0> : vector<4xf32>
    %res = scf.if %on -> (vector<4xf32>) {
      %r = scf.for %i = %c0 to %lane step %c1 iter_args(%q = %f) -> (vector<4xf32>) {
        %q1 = arith.addf %q, %one : vector<4xf32>
        scf.yield %q1 : vector<4xf32>
      }
      scf.yield %r : vector<4xf32>
    } else {
      scf.yield %one : vector<4xf32>
    }
    vector.store %res, %o[%lane, %sg, %c0] : memref<8x3x4xf32>, vector<4xf32>
    %i1 = arith.constant dense<1> : vector<1xi32>
    %c4 = arith.constant 4 : index
    %slot = arith.remui %lane, %c4 : index
    %sv = vector.broadcast %slot : index to vector<1xindex>
    %onv = vector.broadcast %on : i1 to vector<1xi1>
    %old = xegpu.atomic_rmw addi %h[%sv], %onv, %i1 : memref<4xi32>, vector<1xindex>, vector<1xi1>, vector<1xi32> -> vector<1xi32>
    %pi = memref.extract_aligned_pointer_as_index %X : memref<64xf32> -> index
    %pa = arith.index_cast %pi : index to i64
    %c8 = arith.constant 8 : index
    %w0 = arith.muli %sg, %c8 : index
    %w1 = arith.addi %w0, %lane : index
    %wv = vector.broadcast %w1 : index to vector<1xindex>
    %xv = xegpu.load %pa[%wv], %onv : i64, vector<1xindex>, vector<1xi1> -> vector<1xf32>
    %yv = arith.addf %xv, %xv : vector<1xf32>
    xegpu.store %yv, %pa[%wv], %onv : vector<1xf32>, i64, vector<1xindex>, vector<1xi1>
    xegpu.fence memory_kind = global, fence_scope = gpu
    gpu.return
  }
}
