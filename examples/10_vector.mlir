// The XeTile RFC's second use case (appendix 1) in memref and vector: B lies transposed in memory, and is written as a
// column-major matrix. Subviews and transfers become tiles with the layout of their memref, contractions tile_mma.
//
//     tilewright run examples/10_vector.mlir --filecheck
//     tilewright opt examples/10_vector.mlir -p vector-to-xetile
//     tilewright opt examples/10_vector.mlir -p vector-to-xetile,xetile-to-vector

#rows = affine_map<(m, n, k) -> (m, k)>
#columns = affine_map<(m, n, k) -> (k, n)>
#result = affine_map<(m, n, k) -> (m, n)>

func.func @gemm(%a: memref<128x64xf32>, %b: memref<64x96xf32, strided<[1, 64]>>, %c: memref<128x96xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c96 = arith.constant 96 : index
  %c128 = arith.constant 128 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<64x32xf32>
  scf.for %i = %c0 to %c128 step %c64 {
    scf.for %j = %c0 to %c96 step %c32 {
      %sum = scf.for %k = %c0 to %c64 step %c16 iter_args(%so_far = %zero) -> (vector<64x32xf32>) {
        %pa = memref.subview %a[%i, %k] [64, 16] [1, 1]
          : memref<128x64xf32> to memref<64x16xf32, strided<[64, 1], offset: ?>>
        %pb = memref.subview %b[%k, %j] [16, 32] [1, 1]
          : memref<64x96xf32, strided<[1, 64]>> to memref<16x32xf32, strided<[1, 64], offset: ?>>
        %va = vector.transfer_read %pa[%c0, %c0], %pad {in_bounds = [true, true]}
          : memref<64x16xf32, strided<[64, 1], offset: ?>>, vector<64x16xf32>
        %vb = vector.transfer_read %pb[%c0, %c0], %pad {in_bounds = [true, true]}
          : memref<16x32xf32, strided<[1, 64], offset: ?>>, vector<16x32xf32>
        %next = vector.contract {indexing_maps = [#rows, #columns, #result],
            iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %va, %vb, %so_far
          : vector<64x16xf32>, vector<16x32xf32> into vector<64x32xf32>
        scf.yield %next : vector<64x32xf32>
      }
      vector.transfer_write %sum, %c[%i, %j] {in_bounds = [true, true]} : vector<64x32xf32>, memref<128x96xf32>
    }
  }
  return
}

func.func private @printAllcloseF32(memref<*xf32>, memref<*xf32>)
func.func private @fillResource1DF32(memref<*xf32>, f32)

func.func @main() {
  %a = memref.alloc() : memref<128x64xf32>
  %bt = memref.alloc() : memref<96x64xf32>
  %b = memref.transpose %bt (n, k) -> (k, n) : memref<96x64xf32> to memref<64x96xf32, strided<[1, 64]>>
  %c = memref.alloc() : memref<128x96xf32>
  %want = memref.alloc() : memref<128x96xf32>
  %ua = memref.cast %a : memref<128x64xf32> to memref<*xf32>
  %ub = memref.cast %bt : memref<96x64xf32> to memref<*xf32>
  %uc = memref.cast %c : memref<128x96xf32> to memref<*xf32>
  %uwant = memref.cast %want : memref<128x96xf32> to memref<*xf32>
  %half = arith.constant 0.5 : f32
  %three = arith.constant 3.0 : f32
  %sum = arith.constant 96.0 : f32
  call @fillResource1DF32(%ua, %half) : (memref<*xf32>, f32) -> ()
  call @fillResource1DF32(%ub, %three) : (memref<*xf32>, f32) -> ()
  call @fillResource1DF32(%uwant, %sum) : (memref<*xf32>, f32) -> ()
  call @gemm(%a, %b, %c) : (memref<128x64xf32>, memref<64x96xf32, strided<[1, 64]>>, memref<128x96xf32>) -> ()
  // CHECK: [ALLCLOSE: TRUE]
  call @printAllcloseF32(%uc, %uwant) : (memref<*xf32>, memref<*xf32>) -> ()
  return
}
