// RUN: imex-opt %s | mlir-runner -e main --shared-libs=%irunner_utils | FileCheck %s
module @gemm attributes {gpu.container_module} {
  memref.global "private" constant @scale : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
  memref.global "private" @counter : memref<1xi32> = dense<0>
  func.func private @printAllcloseF32(memref<*xf32>, memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @printAllcloseBF16(memref<*xbf16>, memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @fillResource1DRandomBF16(memref<*xbf16>, f32, f32, i1) attributes {llvm.emit_c_interface}
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}
  func.func private @rtclock() -> f64 attributes {llvm.emit_c_interface}
  gpu.module @kernel attributes {spirv.target_env = #spirv.target_env<#spirv.vce<v1.4, [Addresses, Float16Buffer], [SPV_EXT_shader_atomic_float_add]>, api=OpenCL, #spirv.resource_limits<>>} {
    gpu.func @matmul(%A: memref<100x72xbf16>, %B: memref<72x80xbf16>, %C: memref<100x80xf32>) kernel attributes {VectorComputeFunctionINTEL, gpu.known_block_size = array<i32: 1, 1, 1>, gpu.known_grid_size = array<i32: 4, 3, 1>, spirv.entry_point_abi = #spirv.entry_point_abi<>} {
      %c0 = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %c72 = arith.constant 72 : index
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %m = arith.muli %bx, %c32 : index
      %n = arith.muli %by, %c32 : index
      %ct = xetile.init_tile %C[%m, %n] : memref<100x80xf32> -> !xetile.tile<32x32xf32>
      %cv = xetile.load_tile %ct {padding = 0.000000e+00 : f32} : !xetile.tile<32x32xf32> -> vector<32x32xf32>
      %at = xetile.init_tile %A[%m, %c0] : memref<100x72xbf16> -> !xetile.tile<32x32xbf16>
      %bt = xetile.init_tile %B[%c0, %n] : memref<72x80xbf16> -> !xetile.tile<32x32xbf16>
      %r:3 = scf.for %k = %c0 to %c72 step %c32 iter_args(%a_t = %at, %b_t = %bt, %acc = %cv) -> (!xetile.tile<32x32xbf16>, !xetile.tile<32x32xbf16>, vector<32x32xf32>) {
        %a = xetile.load_tile %a_t {padding = 0.000000e+00 : bf16} : !xetile.tile<32x32xbf16> -> vector<32x32xbf16>
        %b = xetile.load_tile %b_t {padding = 0.000000e+00 : bf16} : !xetile.tile<32x32xbf16> -> vector<32x32xbf16>
        %a2 = xetile.update_tile_offset %a_t, [%c0, %c32] : !xetile.tile<32x32xbf16>
        %b2 = xetile.update_tile_offset %b_t, [%c32, %c0] : !xetile.tile<32x32xbf16>
        %d = xetile.tile_mma %a, %b, %acc : vector<32x32xbf16>, vector<32x32xbf16>, vector<32x32xf32> -> vector<32x32xf32>
        scf.yield %a2, %b2, %d : !xetile.tile<32x32xbf16>, !xetile.tile<32x32xbf16>, vector<32x32xf32>
      }
      xetile.store_tile %r#2, %ct : vector<32x32xf32>, !xetile.tile<32x32xf32>
      gpu.return
    }
  }
  func.func @reference(%a: memref<100x72xbf16>, %b: memref<72x80xbf16>, %c: memref<100x80xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %m = memref.dim %a, %c0 : memref<100x72xbf16>
    %n = memref.dim %b, %c1 : memref<72x80xbf16>
    %k = memref.dim %b, %c0 : memref<72x80xbf16>
    scf.parallel (%i, %j) = (%c0, %c0) to (%m, %n) step (%c1, %c1) {
      %s0 = memref.load %c[%i, %j] : memref<100x80xf32>
      %s = scf.for %l = %c0 to %k step %c1 iter_args(%acc = %s0) -> (f32) {
        %x = memref.load %a[%i, %l] : memref<100x72xbf16>
        %y = memref.load %b[%l, %j] : memref<72x80xbf16>
        %xf = arith.extf %x : bf16 to f32
        %yf = arith.extf %y : bf16 to f32
        %p = math.fma %xf, %yf, %acc : f32
        scf.yield %p : f32
      }
      memref.store %s, %c[%i, %j] : memref<100x80xf32>
      scf.reduce
    }
    return
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c100 = arith.constant 100 : index
    %c80 = arith.constant 80 : index
    %lo = arith.constant -1.0 : f32
    %hi = arith.constant 1.0 : f32
    %no = arith.constant false
    %A = memref.alloc() : memref<100x72xbf16>
    %B = memref.alloc() : memref<72x80xbf16>
    %C = memref.alloc() {alignment = 64 : i64} : memref<100x80xf32>
    %D = memref.alloc() : memref<100x80xf32>
    %Au = memref.cast %A : memref<100x72xbf16> to memref<*xbf16>
    %Bu = memref.cast %B : memref<72x80xbf16> to memref<*xbf16>
    call @fillResource1DRandomBF16(%Au, %lo, %hi, %no) : (memref<*xbf16>, f32, f32, i1) -> ()
    call @fillResource1DRandomBF16(%Bu, %lo, %hi, %no) : (memref<*xbf16>, f32, f32, i1) -> ()
    affine.for %i = 0 to 100 {
      affine.for %j = 0 to 80 {
        %x = affine.apply affine_map<(d0, d1) -> (d0 * 3 + d1)>(%i, %j)
        %xi = arith.index_cast %x : index to i32
        %xf = arith.sitofp %xi : i32 to f32
        affine.store %xf, %C[%i, %j] : memref<100x80xf32>
        affine.store %xf, %D[%i, %j] : memref<100x80xf32>
      }
    }
    %t0 = call @rtclock() : () -> f64
    %Ag = gpu.alloc host_shared () : memref<100x72xbf16>
    memref.copy %A, %Ag : memref<100x72xbf16> to memref<100x72xbf16>
    %Bg = gpu.alloc host_shared () : memref<72x80xbf16>
    memref.copy %B, %Bg : memref<72x80xbf16> to memref<72x80xbf16>
    %Cg = gpu.alloc host_shared () : memref<100x80xf32>
    memref.copy %C, %Cg : memref<100x80xf32> to memref<100x80xf32>
    gpu.launch_func @kernel::@matmul blocks in (%c4, %c3, %c1) threads in (%c1, %c1, %c1) args(%Ag : memref<100x72xbf16>, %Bg : memref<72x80xbf16>, %Cg : memref<100x80xf32>)
    call @reference(%A, %B, %D) : (memref<100x72xbf16>, memref<72x80xbf16>, memref<100x80xf32>) -> ()
    %Cu = memref.cast %Cg : memref<100x80xf32> to memref<*xf32>
    %Du = memref.cast %D : memref<100x80xf32> to memref<*xf32>
    // CHECK: [ALLCLOSE: TRUE]
    call @printAllcloseF32(%Cu, %Du) : (memref<*xf32>, memref<*xf32>) -> ()
    %s = memref.get_global @scale : memref<4xf32>
    %su = memref.cast %s : memref<4xf32> to memref<*xf32>
    // CHECK: [1, 2, 3, 4]
    call @printMemrefF32(%su) : (memref<*xf32>) -> ()
    %g = memref.get_global @counter : memref<1xi32>
    %seven = arith.constant 7 : i32
    cf.br ^loop(%c0 : index)
  ^loop(%i: index):
    %go = arith.cmpi slt, %i, %c3 : index
    cf.cond_br %go, ^body, ^done
  ^body:
    %old = memref.load %g[%c0] : memref<1xi32>
    %new = arith.addi %old, %seven : i32
    memref.store %new, %g[%c0] : memref<1xi32>
    %next = index.add %i, %c1
    cf.br ^loop(%next : index)
  ^done:
    %gu = memref.cast %g : memref<1xi32> to memref<*xi32>
    // CHECK: [21]
    call @printMemrefI32(%gu) : (memref<*xi32>) -> ()
    %v = arith.constant dense<[1.5, 2.5]> : vector<2xf32>
    // CHECK: ( 1.5, 2.5 )
    vector.print %v : vector<2xf32>
    %e = vector.extract %v[1] : f32 from vector<2xf32>
    // CHECK-NEXT: 2.5
    vector.print %e : f32
    gpu.dealloc %Ag : memref<100x72xbf16>
    memref.dealloc %A : memref<100x72xbf16>
    return
  }
}
