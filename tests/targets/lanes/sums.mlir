// Columns summed by transposed loads and shuffles, then over subgroups through shared memory; and sums of subgroups.
#t = #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>
gpu.module @m {
  gpu.func @k(%A: memref<64x40xf32>, %o: memref<40xf32>, %p: memref<4x16xf32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 4 : i64, tilewright.lanes = 16 : i64} {
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %sg = gpu.subgroup_id : index
    %bx = gpu.block_id x
    %lane = gpu.lane_id
    %slm = memref.alloc() : memref<64xf32, 3>
    %md = xegpu.create_mem_desc %slm : memref<64xf32, 3> -> !xegpu.mem_desc<4x16xf32>
    %r = arith.muli %sg, %c16 : index
    %c = arith.muli %bx, %c8 : index
    %ta = xegpu.create_nd_tdesc %A[%r, %c] : memref<64x40xf32> -> !xegpu.tensor_desc<16x8xf32, #t>
    %v = xegpu.load_nd %ta {transpose = [1, 0]} : !xegpu.tensor_desc<16x8xf32, #t> into vector<8x1xf32>
    %f = vector.shape_cast %v : vector<8x1xf32> to vector<8xf32>
    %w = arith.constant 16 : i32
    %x1 = arith.constant 1 : i32
    %x2 = arith.constant 2 : i32
    %x4 = arith.constant 4 : i32
    %x8 = arith.constant 8 : i32
    %s1, %k1 = gpu.shuffle xor %f, %x1, %w : vector<8xf32>
    %a1 = arith.addf %f, %s1 : vector<8xf32>
    %s2, %k2 = gpu.shuffle xor %a1, %x2, %w : vector<8xf32>
    %a2 = arith.addf %a1, %s2 : vector<8xf32>
    %s4, %k4 = gpu.shuffle xor %a2, %x4, %w : vector<8xf32>
    %a4 = arith.addf %a2, %s4 : vector<8xf32>
    %s8, %k8 = gpu.shuffle xor %a4, %x8, %w : vector<8xf32>
    %a8 = arith.addf %a4, %s8 : vector<8xf32>
    %first = arith.cmpi eq, %lane, %c0 : index
    scf.if %first {
      xegpu.store_matrix %a8, %md[%sg, 0] : vector<8xf32>, !xegpu.mem_desc<4x16xf32>, index
    }
    gpu.barrier
    %zero = arith.cmpi eq, %sg, %c0 : index
    %low = arith.cmpi ult, %lane, %c8 : index
    %here = arith.andi %zero, %low : i1
    scf.if %here {
      %q0 = xegpu.load_matrix %md[0, %lane] : !xegpu.mem_desc<4x16xf32>, index -> f32
      %q1 = xegpu.load_matrix %md[1, %lane] : !xegpu.mem_desc<4x16xf32>, index -> f32
      %q2 = xegpu.load_matrix %md[2, %lane] : !xegpu.mem_desc<4x16xf32>, index -> f32
      %q3 = xegpu.load_matrix %md[3, %lane] : !xegpu.mem_desc<4x16xf32>, index -> f32
      %t0 = arith.addf %q0, %q1 : f32
      %t1 = arith.addf %q2, %q3 : f32
      %t2 = arith.addf %t0, %t1 : f32
      %at = arith.addi %c, %lane : index
      memref.store %t2, %o[%at] : memref<40xf32>
    }
    %sum = vector.reduction <add>, %f : vector<8xf32> into f32
    %all = gpu.subgroup_reduce add %sum : (f32) -> f32
    %b0 = arith.cmpi eq, %bx, %c0 : index
    scf.if %b0 {
      memref.store %all, %p[%sg, %lane] : memref<4x16xf32>
    }
    gpu.return
  }
}
