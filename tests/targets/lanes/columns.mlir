// Matrices of 6 columns that 32 lanes share: rows begin anywhere.
gpu.module @m {
  gpu.func @k(%A: memref<32x16xf32>, %B: memref<16x6xf32>, %C: memref<32x6xf32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 32 : i64} {
    %c0 = arith.constant 0 : index
    %a = gpu.subgroup_mma_load_matrix %A[%c0, %c0] {leadDimension = 16 : index}
      : memref<32x16xf32> -> !gpu.mma_matrix<32x16xf32, "AOp">
    %b = gpu.subgroup_mma_load_matrix %B[%c0, %c0] {leadDimension = 6 : index}
      : memref<16x6xf32> -> !gpu.mma_matrix<16x6xf32, "BOp">
    %c = gpu.subgroup_mma_load_matrix %C[%c0, %c0] {leadDimension = 6 : index}
      : memref<32x6xf32> -> !gpu.mma_matrix<32x6xf32, "COp">
    %d = gpu.subgroup_mma_compute %a, %b, %c
      : !gpu.mma_matrix<32x16xf32, "AOp">, !gpu.mma_matrix<16x6xf32, "BOp"> -> !gpu.mma_matrix<32x6xf32, "COp">
    gpu.subgroup_mma_store_matrix %d, %C[%c0, %c0] {leadDimension = 6 : index}
      : !gpu.mma_matrix<32x6xf32, "COp">, memref<32x6xf32>
    gpu.return
  }
}
