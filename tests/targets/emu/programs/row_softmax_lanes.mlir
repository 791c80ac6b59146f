// Each subgroup normalises 8 rows of 16: a row's maximum and sum by shuffles and by a reduction of the subgroup.
module @softmax attributes {gpu.container_module} {
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @printAllcloseF32(memref<*xf32>, memref<*xf32>) attributes {llvm.emit_c_interface}
  gpu.module @kernels {
    gpu.func @softmax(%a: memref<16x16xf32>, %o: memref<16x16xf32>) kernel {
      %sg = gpu.subgroup_id : index
      %c8 = arith.constant 8 : index
      %y = arith.muli %sg, %c8 : index
      %w = arith.constant 16 : i32
      %t = xegpu.create_nd_tdesc %a : memref<16x16xf32> -> !xegpu.tensor_desc<8x16xf32>
      %u = xegpu.create_nd_tdesc %o : memref<16x16xf32> -> !xegpu.tensor_desc<8x16xf32>
      %x = xegpu.load_nd %t[%y, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
      %m = gpu.subgroup_reduce maximumf %x : (vector<8xf32>) -> vector<8xf32>
      %d = arith.subf %x, %m : vector<8xf32>
      %e0 = math.exp %d : vector<8xf32>
      %d1 = arith.constant 1 : i32
      %s1, %v1 = gpu.shuffle xor %e0, %d1, %w : vector<8xf32>
      %e1 = arith.addf %e0, %s1 : vector<8xf32>
      %d2 = arith.constant 2 : i32
      %s2, %v2 = gpu.shuffle xor %e1, %d2, %w : vector<8xf32>
      %e2 = arith.addf %e1, %s2 : vector<8xf32>
      %d4 = arith.constant 4 : i32
      %s4, %v4 = gpu.shuffle xor %e2, %d4, %w : vector<8xf32>
      %e4 = arith.addf %e2, %s4 : vector<8xf32>
      %d8 = arith.constant 8 : i32
      %s8, %v8 = gpu.shuffle xor %e4, %d8, %w : vector<8xf32>
      %e8 = arith.addf %e4, %s8 : vector<8xf32>
      %r = arith.divf %e0, %e8 : vector<8xf32>
      xegpu.store_nd %r, %u[%y, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      gpu.return
    }
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %zero = arith.constant 0.0 : f32
    %seventh = arith.constant 0.14 : f32
    %a = memref.alloc() : memref<16x16xf32>
    %ref = memref.alloc() : memref<16x16xf32>
    %out = memref.alloc() : memref<16x16xf32>
    scf.for %i = %c0 to %c16 step %c1 {
      %s = scf.for %j = %c0 to %c16 step %c1 iter_args(%acc = %zero) -> (f32) {
        %p0 = arith.muli %i, %j : index
        %p1 = arith.addi %p0, %j : index
        %p2 = arith.remui %p1, %c16 : index
        %p3 = arith.index_cast %p2 : index to i32
        %p4 = arith.sitofp %p3 : i32 to f32
        %p = arith.mulf %p4, %seventh : f32
        memref.store %p, %a[%i, %j] : memref<16x16xf32>
        %e = math.exp %p : f32
        memref.store %e, %ref[%i, %j] : memref<16x16xf32>
        %n = arith.addf %acc, %e : f32
        scf.yield %n : f32
      }
      scf.for %j = %c0 to %c16 step %c1 {
        %e = memref.load %ref[%i, %j] : memref<16x16xf32>
        %q = arith.divf %e, %s : f32
        memref.store %q, %ref[%i, %j] : memref<16x16xf32>
      }
    }
    %ag = gpu.alloc () : memref<16x16xf32>
    %og = gpu.alloc () : memref<16x16xf32>
    gpu.memcpy %ag, %a : memref<16x16xf32>, memref<16x16xf32>
    gpu.launch_func @kernels::@softmax blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1) args(%ag : memref<16x16xf32>, %og : memref<16x16xf32>)
    gpu.memcpy %out, %og : memref<16x16xf32>, memref<16x16xf32>
    %ou = memref.cast %out : memref<16x16xf32> to memref<*xf32>
    %ru = memref.cast %ref : memref<16x16xf32> to memref<*xf32>
    call @printAllcloseF32(%ou, %ru) : (memref<*xf32>, memref<*xf32>) -> ()
    return
  }
}
