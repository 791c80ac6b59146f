// RUN: imex-opt %s --gpu-lower-to-xevm-pipeline="xegpu-op-level=lane" | mlir-runner -e run_it | FileCheck %s
module attributes {gpu.container_module} {
  gpu.module @k {
    gpu.func @square(%a: memref<64xf32>, %c: memref<64xf32>) kernel {
      %id = gpu.thread_id x
      %mask = arith.constant 1 : i1
      %v = xegpu.load %a[%id], %mask <{chunk_size = 1}> : memref<64xf32>, index, i1 -> vector<1xf32>
      %w = arith.mulf %v, %v : vector<1xf32>
      xegpu.store %w, %c[%id], %mask <{chunk_size = 1}> : vector<1xf32>, memref<64xf32>, index, i1
      gpu.return
    }
  }
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func @run_it() attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %c48 = arith.constant 48 : index
    %c64 = arith.constant 64 : index
    %h = memref.alloc() : memref<64xf32>
    scf.for %i = %c0 to %c64 step %c1 {
      %n = arith.index_cast %i : index to i32
      %f = arith.sitofp %n : i32 to f32
      memref.store %f, %h[%i] : memref<64xf32>
    }
    %t0 = gpu.wait async
    %a, %t1 = gpu.alloc async [%t0] () : memref<64xf32>
    %c, %t2 = gpu.alloc async [%t1] () : memref<64xf32>
    %t3 = gpu.memcpy async [%t2] %a, %h : memref<64xf32>, memref<64xf32>
    %t4 = gpu.launch_func async [%t3] @k::@square blocks in (%c1, %c1, %c1) threads in (%c48, %c1, %c1) args(%a : memref<64xf32>, %c : memref<64xf32>)
    %t5 = gpu.memcpy async [%t4] %h, %c : memref<64xf32>, memref<64xf32>
    gpu.wait [%t5]
    %u = memref.cast %h : memref<64xf32> to memref<*xf32>
    // What no lane wrote is as the driver left it: cleared.
    // CHECK: [0,  1,  4,  9,  16,
    // CHECK-SAME: 2116,  2209,  0,  0,  0,  0
    call @printMemrefF32(%u) : (memref<*xf32>) -> ()
    return
  }
}
