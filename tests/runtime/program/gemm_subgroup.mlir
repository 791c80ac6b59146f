module @t attributes {gpu.container_module} {
  func.func private @printAllcloseF32(memref<*xf32>, memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @fillResource1DRandomF16(memref<*xf16>, f32, f32, i1) attributes {llvm.emit_c_interface}
  func.func private @gemmF16F16F32(memref<*xf16>, memref<*xf16>, memref<*xf32>) attributes {llvm.emit_c_interface}
  gpu.module @k {
    gpu.func @gemm(%a: memref<128x64xf16>, %b: memref<64x96xf16>, %c: memref<128x96xf32>) kernel {
      %c0 = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %s = gpu.subgroup_id
      %c2 = arith.constant 2 : index
      %sm = arith.divui %s, %c2 : index
      %m0 = arith.muli %bx, %c64 : index
      %m1 = arith.muli %sm, %c32 : index
      %m = arith.addi %m0, %m1 : index
      %sn = arith.remui %s, %c2 : index
      %n0 = arith.muli %by, %c64 : index
      %n1 = arith.muli %sn, %c32 : index
      %n = arith.addi %n0, %n1 : index
      %z = arith.constant dense<0.0> : vector<32x32xf32>
      %r = scf.for %k = %c0 to %c64 step %c32 iter_args(%acc = %z) -> (vector<32x32xf32>) {
        %ta = xetile.init_tile %a[%m, %k] : memref<128x64xf16> -> !xetile.tile<32x32xf16>
        %tb = xetile.init_tile %b[%k, %n] : memref<64x96xf16> -> !xetile.tile<32x32xf16>
        %va = xetile.load_tile %ta : !xetile.tile<32x32xf16> -> vector<32x32xf16>
        %vb = xetile.load_tile %tb : !xetile.tile<32x32xf16> -> vector<32x32xf16>
        %d = xetile.tile_mma %va, %vb, %acc : vector<32x32xf16>, vector<32x32xf16>, vector<32x32xf32> -> vector<32x32xf32>
        scf.yield %d : vector<32x32xf32>
      }
      %tc = xetile.init_tile %c[%m, %n] : memref<128x96xf32> -> !xetile.tile<32x32xf32>
      xetile.store_tile %r, %tc : vector<32x32xf32>, !xetile.tile<32x32xf32>
      gpu.return
    }
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %a = memref.alloc() : memref<128x64xf16>
    %b = memref.alloc() : memref<64x96xf16>
    %ref = memref.alloc() : memref<128x96xf32>
    %out = memref.alloc() : memref<128x96xf32>
    %lo = arith.constant -1.0 : f32
    %hi = arith.constant 1.0 : f32
    %f = arith.constant false
    %zf = arith.constant 0.0 : f32
    %au = memref.cast %a : memref<128x64xf16> to memref<*xf16>
    %bu = memref.cast %b : memref<64x96xf16> to memref<*xf16>
    %ru = memref.cast %ref : memref<128x96xf32> to memref<*xf32>
    %ou = memref.cast %out : memref<128x96xf32> to memref<*xf32>
    func.call @fillResource1DRandomF16(%au, %lo, %hi, %f) : (memref<*xf16>, f32, f32, i1) -> ()
    func.call @fillResource1DRandomF16(%bu, %lo, %hi, %f) : (memref<*xf16>, f32, f32, i1) -> ()
    %c0 = arith.constant 0 : index
    %c128 = arith.constant 128 : index
    %c96 = arith.constant 96 : index
    scf.for %i = %c0 to %c128 step %c1 {
      scf.for %j = %c0 to %c96 step %c1 {
        memref.store %zf, %ref[%i, %j] : memref<128x96xf32>
      }
    }
    func.call @gemmF16F16F32(%au, %bu, %ru) : (memref<*xf16>, memref<*xf16>, memref<*xf32>) -> ()
    %ga = gpu.alloc () : memref<128x64xf16>
    %gb = gpu.alloc () : memref<64x96xf16>
    %gc = gpu.alloc () : memref<128x96xf32>
    gpu.memcpy %ga, %a : memref<128x64xf16>, memref<128x64xf16>
    gpu.memcpy %gb, %b : memref<64x96xf16>, memref<64x96xf16>
    %c64 = arith.constant 64 : index
    gpu.launch_func @k::@gemm blocks in (%c2, %c2, %c1) threads in (%c2, %c2, %c1) args(%ga : memref<128x64xf16>, %gb : memref<64x96xf16>, %gc : memref<128x96xf32>)
    gpu.memcpy %out, %gc : memref<128x96xf32>, memref<128x96xf32>
    gpu.dealloc %ga : memref<128x64xf16>
    func.call @printAllcloseF32(%ou, %ru) : (memref<*xf32>, memref<*xf32>) -> ()
    // CHECK: [ALLCLOSE: TRUE]
    return
  }
}
