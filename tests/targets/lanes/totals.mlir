// Sums and maxima over workgroups of 20 subgroups, more than a subgroup has lanes; in a loop, so that shared memory is used again.
gpu.module @m {
  gpu.func @k(%A: memref<2x3x160xf32>, %S: memref<2x3x160xf32>, %M: memref<2x3x160xi32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 20 : i64, tilewright.lanes = 8 : i64} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c8 = arith.constant 8 : index
    %b = gpu.block_id x
    %s = gpu.subgroup_id : index
    %lane = gpu.lane_id
    %first = arith.muli %s, %c8 : index
    %t = arith.addi %first, %lane : index
    scf.for %i = %c0 to %c3 step %c1 {
      %x = memref.load %A[%b, %i, %t] : memref<2x3x160xf32>
      %n = memref.load %M[%b, %i, %t] : memref<2x3x160xi32>
      %sum = gpu.all_reduce add %x uniform {} : (f32) -> f32
      %most = gpu.all_reduce %n uniform {
      ^bb0(%p: i32, %q: i32):
        %r = arith.maxsi %p, %q : i32
        gpu.yield %r : i32
      } : (i32) -> i32
      memref.store %sum, %S[%b, %i, %t] : memref<2x3x160xf32>
      memref.store %most, %M[%b, %i, %t] : memref<2x3x160xi32>
    }
    gpu.return
  }
}
