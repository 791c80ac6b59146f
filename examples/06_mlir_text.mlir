// A program in XeTile text, as the RFC writes it: a func whose loop visits the tiles of the result.
//
//     tilewright run examples/06_mlir_text.mlir --filecheck
//     tilewright opt examples/06_mlir_text.mlir -p outer-loops-to-grid

func.func @scale(%x: memref<64x64xf32>, %y: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %three = arith.constant dense<3.0> : vector<32x32xf32>
  scf.for %i = %c0 to %c64 step %c32 {
    scf.for %j = %c0 to %c64 step %c32 {
      %tx = xetile.init_tile %x[%i, %j] : memref<64x64xf32> -> !xetile.tile<32x32xf32>
      %v = xetile.load_tile %tx : !xetile.tile<32x32xf32> -> vector<32x32xf32>
      %w = arith.mulf %v, %three : vector<32x32xf32>
      %ty = xetile.init_tile %y[%i, %j] : memref<64x64xf32> -> !xetile.tile<32x32xf32>
      xetile.store_tile %w, %ty : vector<32x32xf32>, !xetile.tile<32x32xf32>
    }
  }
  return
}

func.func private @printAllcloseF32(memref<*xf32>, memref<*xf32>)
func.func private @fillResource1DF32(memref<*xf32>, f32)

func.func @main() {
  %x = memref.alloc() : memref<64x64xf32>
  %y = memref.alloc() : memref<64x64xf32>
  %want = memref.alloc() : memref<64x64xf32>
  %ux = memref.cast %x : memref<64x64xf32> to memref<*xf32>
  %uy = memref.cast %y : memref<64x64xf32> to memref<*xf32>
  %uwant = memref.cast %want : memref<64x64xf32> to memref<*xf32>
  %two = arith.constant 2.0 : f32
  %six = arith.constant 6.0 : f32
  call @fillResource1DF32(%ux, %two) : (memref<*xf32>, f32) -> ()
  call @fillResource1DF32(%uwant, %six) : (memref<*xf32>, f32) -> ()
  call @scale(%x, %y) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  // CHECK: [ALLCLOSE: TRUE]
  call @printAllcloseF32(%uy, %uwant) : (memref<*xf32>, memref<*xf32>) -> ()
  return
}
