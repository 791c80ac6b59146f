// Four subgroups in two pairs, each at a named barrier of its own: each takes the other's rows through shared memory.
// Lanes then add their number where they are even, and count themselves with an atomic.
module @pairs attributes {gpu.container_module} {
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}
  gpu.module @kernels {
    gpu.func @pairs(%a: memref<8x16xf32>, %o: memref<8x16xf32>, %n: memref<4xi32>) kernel {
      %lane = gpu.lane_id
      %sg = gpu.subgroup_id : index
      %b = gpu.block_id x
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c4 = arith.constant 4 : index
      %slm = memref.alloc() : memref<4x16xf32, 3>
      %pair = arith.divui %sg, %c2 : index
      %id0 = arith.addi %pair, %c1 : index
      %id = arith.index_cast %id0 : index to i8
      %two = arith.constant 2 : i8
      xegpu.alloc_nbarrier 3
      %bar = xegpu.init_nbarrier %id, %two : i8, i8 -> !xegpu.nbarrier
      %r0 = arith.muli %b, %c4 : index
      %row = arith.addi %r0, %sg : index
      %x = memref.load %a[%row, %lane] : memref<8x16xf32>
      memref.store %x, %slm[%sg, %lane] : memref<4x16xf32, 3>
      xegpu.nbarrier_arrive %bar : !xegpu.nbarrier
      xegpu.nbarrier_wait %bar : !xegpu.nbarrier
      %other = arith.xori %sg, %c1 : index
      %y = memref.load %slm[%other, %lane] : memref<4x16xf32, 3>
      %odd0 = arith.remui %lane, %c2 : index
      %even = arith.cmpi eq, %odd0, %c0 : index
      %z = scf.if %even -> (f32) {
        %i = arith.index_cast %lane : index to i32
        %f = arith.sitofp %i : i32 to f32
        %s = arith.addf %y, %f : f32
        %one = arith.constant 1 : i32
        %old = memref.atomic_rmw addi %one, %n[%sg] : (i32, memref<4xi32>) -> i32
        scf.yield %s : f32
      } else {
        scf.yield %y : f32
      }
      memref.store %z, %o[%row, %lane] : memref<8x16xf32>
      gpu.return
    }
  }
  func.func @main() attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant 0 : i32
    %a = gpu.alloc () : memref<8x16xf32>
    %o = gpu.alloc () : memref<8x16xf32>
    %n = gpu.alloc () : memref<4xi32>
    scf.for %i = %c0 to %c8 step %c1 {
      scf.for %j = %c0 to %c16 step %c1 {
        %p0 = arith.muli %i, %c16 : index
        %p1 = arith.addi %p0, %j : index
        %p2 = arith.index_cast %p1 : index to i32
        %p = arith.sitofp %p2 : i32 to f32
        memref.store %p, %a[%i, %j] : memref<8x16xf32>
      }
    }
    scf.for %i = %c0 to %c4 step %c1 {
      memref.store %zero, %n[%i] : memref<4xi32>
    }
    gpu.launch_func @kernels::@pairs blocks in (%c2, %c1, %c1) threads in (%c64, %c1, %c1) args(%a : memref<8x16xf32>, %o : memref<8x16xf32>, %n : memref<4xi32>)
    %ou = memref.cast %o : memref<8x16xf32> to memref<*xf32>
    %nu = memref.cast %n : memref<4xi32> to memref<*xi32>
    call @printMemrefF32(%ou) : (memref<*xf32>) -> ()
    call @printMemrefI32(%nu) : (memref<*xi32>) -> ()
    return
  }
}
