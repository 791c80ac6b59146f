// A transposed load in the oldest XeGPU: pairs of a row stay together, as the innermost dimension that the product's
// right operand has. C = A B^T with A[i, j] = i - j, B[i, j] = 2 i + 3 j; and the block as the load gives it.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @product(%a: memref<8x32xf16>, %b: memref<16x32xf16>, %c: memref<8x16xf32>, %p: memref<8x32xf16>) kernel attributes {VectorComputeFunctionINTEL} {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c32 = arith.constant 32 : index
      %zero = arith.constant dense<0.0> : vector<8x16xf32>
      %sum = scf.for %k = %c0 to %c32 step %c16 iter_args(%acc = %zero) -> (vector<8x16xf32>) {
        %ta = xegpu.create_nd_tdesc %a[%c0, %k] : memref<8x32xf16> -> !xegpu.tensor_desc<8x16xf16>
        %tb = xegpu.create_nd_tdesc %b[%c0, %k] : memref<16x32xf16> -> !xegpu.tensor_desc<16x16xf16>
        %x = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xf16> -> vector<8x16xf16>
        %y = xegpu.load_nd %tb {transpose_bit_width = 32 : i32, transpose = array<i64: 1, 0>} : !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
        %next = xegpu.dpas %x, %y, %acc : vector<8x16xf16>, vector<8x16x2xf16>, vector<8x16xf32> -> vector<8x16xf32>
        scf.yield %next : vector<8x16xf32>
      }
      %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %sum, %tc : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
      %td = xegpu.create_nd_tdesc %b[0, 4] : memref<16x32xf16> -> !xegpu.tensor_desc<16x16xf16>
      %v = xegpu.load_nd %td {transpose_bit_width = 32 : i32, transpose = array<i64: 1, 0>} : !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
      %w = vector.shape_cast %v : vector<8x16x2xf16> to vector<8x32xf16>
      %tp = xegpu.create_nd_tdesc %p[0, 0] : memref<8x32xf16> -> !xegpu.tensor_desc<8x32xf16>
      xegpu.store_nd %w, %tp : vector<8x32xf16>, !xegpu.tensor_desc<8x32xf16>
      gpu.return
    }
  }
  func.func @main() {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %a = memref.alloc() : memref<8x32xf16>
    %b = memref.alloc() : memref<16x32xf16>
    scf.for %i = %c0 to %c16 step %c1 {
      scf.for %j = %c0 to %c32 step %c1 {
        %less = arith.subi %i, %j : index
        %less_i = arith.index_cast %less : index to i32
        %less_f = arith.sitofp %less_i : i32 to f16
        %above = arith.cmpi ult, %i, %c8 : index
        scf.if %above {
          memref.store %less_f, %a[%i, %j] : memref<8x32xf16>
        }
        %two = arith.muli %i, %c2 : index
        %three = arith.muli %j, %c3 : index
        %both = arith.addi %two, %three : index
        %both_i = arith.index_cast %both : index to i32
        %both_f = arith.sitofp %both_i : i32 to f16
        memref.store %both_f, %b[%i, %j] : memref<16x32xf16>
      }
    }
    %c = memref.alloc() : memref<8x16xf32>
    %p = memref.alloc() : memref<8x32xf16>
    gpu.launch_func @kernels::@product blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%a : memref<8x32xf16>, %b : memref<16x32xf16>, %c : memref<8x16xf32>, %p : memref<8x32xf16>)
    %cast = memref.cast %c : memref<8x16xf32> to memref<*xf32>
    call @printMemrefF32(%cast) : (memref<*xf32>) -> ()
    // CHECK: [-31248, -32240, -33232, -34224
    // CHECK: [-29760, -30688, -31616
    %half = memref.cast %p : memref<8x32xf16> to memref<*xf16>
    call @printMemrefF16(%half) : (memref<*xf16>) -> ()
    // CHECK: [12, 15, 14, 17, 16, 19
    // CHECK: [18, 21, 20, 23
    return
  }
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @printMemrefF16(memref<*xf16>) attributes {llvm.emit_c_interface}
}
