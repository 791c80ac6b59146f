// A product for Intel Xe, written by hand as the program of one lane: XeGPU RFC, appendix 1.1.
//
//     tilewright compile examples/08_xe_lanes.mlir --target xe-pvc --emit llvm
//     tilewright compile examples/08_xe_lanes.mlir --target xe-pvc --emit spirv -o /dev/null
//
// C[4096, 4096] = A B in f16; a workgroup of 8 x 4 subgroups has 256 x 256 of C, a subgroup 32 x 64, a lane 16 fragments of
// 8 elements: one column of an 8 x 16 block each. A step of k is 32: one load of A (two blocks 32 x 16), two of B (two blocks
// 32 x 16 each, pairs of rows packed), the subgroup's share of a prefetch three steps ahead, and 32 dpas.
// docs/xe.md shows the inner loop beside the one that the compiler makes of the workgroup's program.

module {
  gpu.module @m {
    gpu.func @gemm(%A: memref<4096x4096xf16>, %B: memref<4096x4096xf16>, %C: memref<4096x4096xf32>) kernel attributes {tilewright.level = "lane", tilewright.subgroups = 32 : i64, tilewright.lanes = 16 : i64} {
      %c0 = arith.constant 0 : index
      %c8 = arith.constant 8 : index
      %c32 = arith.constant 32 : index
      %c96 = arith.constant 96 : index
      %end = arith.constant 4096 : index
      %sn = arith.constant 4 : index
      %pcols = arith.constant 8 : index
      %wm = arith.constant 256 : index
      %wn = arith.constant 256 : index
      %tm = arith.constant 32 : index
      %tn = arith.constant 64 : index
      %part = arith.constant 8 : index
      %zero = arith.constant dense<0.000000e+00> : vector<8xf32>
      %bi = gpu.block_id x
      %bj = gpu.block_id y
      %sg = gpu.subgroup_id : index
      %si = arith.divui %sg, %sn : index
      %sj = arith.remui %sg, %sn : index
      %m0 = arith.muli %bi, %wm : index
      %n0 = arith.muli %bj, %wn : index
      %mo = arith.muli %si, %tm : index
      %no = arith.muli %sj, %tn : index
      %row = arith.addi %m0, %mo : index
      %col0 = arith.addi %n0, %no : index
      %col1 = arith.addi %col0, %c32 : index
      %pao = arith.muli %sg, %part : index
      %pam = arith.addi %m0, %pao : index
      %pr = arith.divui %sg, %pcols : index
      %pc = arith.remui %sg, %pcols : index
      %pbr = arith.muli %pr, %c8 : index
      %pbo = arith.muli %pc, %c32 : index
      %pbn = arith.addi %n0, %pbo : index
      %ta = xegpu.create_nd_tdesc %A : memref<4096x4096xf16> -> !xegpu.tensor_desc<32x16xf16, #xegpu.block_tdesc_attr<array_length = 2 : i64>>
      %tb = xegpu.create_nd_tdesc %B : memref<4096x4096xf16> -> !xegpu.tensor_desc<32x16xf16, #xegpu.block_tdesc_attr<array_length = 2 : i64>>
      %tc = xegpu.create_nd_tdesc %C : memref<4096x4096xf32> -> !xegpu.tensor_desc<8x16xf32>
      %pa = xegpu.create_nd_tdesc %A : memref<4096x4096xf16> -> !xegpu.tensor_desc<8x32xf16>
      %pb = xegpu.create_nd_tdesc %B : memref<4096x4096xf16> -> !xegpu.tensor_desc<8x32xf16>
      %r:16 = scf.for %k = %c0 to %end step %c32 iter_args(%a0 = %zero, %a0_0 = %zero, %a0_1 = %zero, %a0_2 = %zero, %a1 = %zero, %a1_3 = %zero, %a1_4 = %zero, %a1_5 = %zero, %a2 = %zero, %a2_6 = %zero, %a2_7 = %zero, %a2_8 = %zero, %a3 = %zero, %a3_9 = %zero, %a3_10 = %zero, %a3_11 = %zero) -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>) {
        %av = xegpu.load_nd %ta[%row, %k] : !xegpu.tensor_desc<32x16xf16, #xegpu.block_tdesc_attr<array_length = 2 : i64>> -> vector<64xf16>
        %kp = arith.addi %k, %c96 : index
        xegpu.prefetch_nd %pa[%pam, %kp] : !xegpu.tensor_desc<8x32xf16>
        %pbk = arith.addi %kp, %pbr : index
        xegpu.prefetch_nd %pb[%pbk, %pbn] : !xegpu.tensor_desc<8x32xf16>
        %b0 = xegpu.load_nd %tb[%k, %col0] <{packed}> : !xegpu.tensor_desc<32x16xf16, #xegpu.block_tdesc_attr<array_length = 2 : i64>> -> vector<64xf16>
        %b1 = xegpu.load_nd %tb[%k, %col1] <{packed}> : !xegpu.tensor_desc<32x16xf16, #xegpu.block_tdesc_attr<array_length = 2 : i64>> -> vector<64xf16>
        %sa0 = vector.extract_strided_slice %av {offsets = [0], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sa1 = vector.extract_strided_slice %av {offsets = [8], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sa2 = vector.extract_strided_slice %av {offsets = [16], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sa3 = vector.extract_strided_slice %av {offsets = [24], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sb0 = vector.extract_strided_slice %b0 {offsets = [0], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sb1 = vector.extract_strided_slice %b0 {offsets = [32], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sb2 = vector.extract_strided_slice %b1 {offsets = [0], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sb3 = vector.extract_strided_slice %b1 {offsets = [32], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sa0_12 = vector.extract_strided_slice %av {offsets = [32], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sa1_13 = vector.extract_strided_slice %av {offsets = [40], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sa2_14 = vector.extract_strided_slice %av {offsets = [48], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sa3_15 = vector.extract_strided_slice %av {offsets = [56], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
        %sb0_16 = vector.extract_strided_slice %b0 {offsets = [16], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sb1_17 = vector.extract_strided_slice %b0 {offsets = [48], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sb2_18 = vector.extract_strided_slice %b1 {offsets = [16], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %sb3_19 = vector.extract_strided_slice %b1 {offsets = [48], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
        %d0_0 = xegpu.dpas %sa0, %sb0, %a0 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_1 = xegpu.dpas %sa0, %sb1, %a0_0 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_2 = xegpu.dpas %sa0, %sb2, %a0_1 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_3 = xegpu.dpas %sa0, %sb3, %a0_2 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_0 = xegpu.dpas %sa1, %sb0, %a1 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_1 = xegpu.dpas %sa1, %sb1, %a1_3 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_2 = xegpu.dpas %sa1, %sb2, %a1_4 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_3 = xegpu.dpas %sa1, %sb3, %a1_5 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_0 = xegpu.dpas %sa2, %sb0, %a2 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_1 = xegpu.dpas %sa2, %sb1, %a2_6 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_2 = xegpu.dpas %sa2, %sb2, %a2_7 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_3 = xegpu.dpas %sa2, %sb3, %a2_8 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_0 = xegpu.dpas %sa3, %sb0, %a3 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_1 = xegpu.dpas %sa3, %sb1, %a3_9 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_2 = xegpu.dpas %sa3, %sb2, %a3_10 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_3 = xegpu.dpas %sa3, %sb3, %a3_11 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_0_20 = xegpu.dpas %sa0_12, %sb0_16, %d0_0 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_1_21 = xegpu.dpas %sa0_12, %sb1_17, %d0_1 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_2_22 = xegpu.dpas %sa0_12, %sb2_18, %d0_2 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d0_3_23 = xegpu.dpas %sa0_12, %sb3_19, %d0_3 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_0_24 = xegpu.dpas %sa1_13, %sb0_16, %d1_0 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_1_25 = xegpu.dpas %sa1_13, %sb1_17, %d1_1 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_2_26 = xegpu.dpas %sa1_13, %sb2_18, %d1_2 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d1_3_27 = xegpu.dpas %sa1_13, %sb3_19, %d1_3 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_0_28 = xegpu.dpas %sa2_14, %sb0_16, %d2_0 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_1_29 = xegpu.dpas %sa2_14, %sb1_17, %d2_1 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_2_30 = xegpu.dpas %sa2_14, %sb2_18, %d2_2 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d2_3_31 = xegpu.dpas %sa2_14, %sb3_19, %d2_3 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_0_32 = xegpu.dpas %sa3_15, %sb0_16, %d3_0 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_1_33 = xegpu.dpas %sa3_15, %sb1_17, %d3_1 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_2_34 = xegpu.dpas %sa3_15, %sb2_18, %d3_2 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        %d3_3_35 = xegpu.dpas %sa3_15, %sb3_19, %d3_3 : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
        scf.yield %d0_0_20, %d0_1_21, %d0_2_22, %d0_3_23, %d1_0_24, %d1_1_25, %d1_2_26, %d1_3_27, %d2_0_28, %d2_1_29, %d2_2_30, %d2_3_31, %d3_0_32, %d3_1_33, %d3_2_34, %d3_3_35 : vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>
      }
      %row0 = arith.addi %row, %c0 : index
      %row1 = arith.addi %row0, %c8 : index
      %row2 = arith.addi %row1, %c8 : index
      %row3 = arith.addi %row2, %c8 : index
      %c16 = arith.constant 16 : index
      %cc0 = arith.addi %col0, %c0 : index
      %cc1 = arith.addi %cc0, %c16 : index
      %cc2 = arith.addi %cc1, %c16 : index
      %cc3 = arith.addi %cc2, %c16 : index
      xegpu.store_nd %r#0, %tc[%row0, %cc0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#1, %tc[%row0, %cc1] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#2, %tc[%row0, %cc2] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#3, %tc[%row0, %cc3] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#4, %tc[%row1, %cc0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#5, %tc[%row1, %cc1] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#6, %tc[%row1, %cc2] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#7, %tc[%row1, %cc3] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#8, %tc[%row2, %cc0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#9, %tc[%row2, %cc1] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#10, %tc[%row2, %cc2] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#11, %tc[%row2, %cc3] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#12, %tc[%row3, %cc0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#13, %tc[%row3, %cc1] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#14, %tc[%row3, %cc2] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      xegpu.store_nd %r#15, %tc[%row3, %cc3] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>
      gpu.return
    }
  }
}
