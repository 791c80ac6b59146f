// XeGPU RFC, appendix 1.3: a GEMM that prefetches through two cache levels.
//   C[4096, 4096] = A[4096, 4096] * B[4096, 4096]
//
// Mended: %i steps by 512, the rows of its descriptor; blocks of 128 columns follow each other at 128;
// "every fourth k-step" is k mod 128 = 0, and the if gives the moved descriptors back; the accumulator is
// carried. As printed, the C tile alone fills all registers of a subgroup: legal text, refused for PVC.

#mp_a = #xegpu.layout<sg_layout = [8, 4], sg_data = [64, 32], order = [1, 0]>
#mp_b = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], order = [1, 0]>
#mp_c = #xegpu.layout<sg_layout = [8, 4], sg_data = [64, 64], order = [1, 0]>
#mp_a_copl2 = #xegpu.layout<sg_layout = [32, 1], sg_data = [16, 128], order = [1, 0]>
#mp_b_copl2 = #xegpu.layout<sg_layout = [16, 2], sg_data = [8, 128], order = [1, 0]>
#mp_a_copl1 = #xegpu.layout<sg_layout = [32, 1], sg_data = [16, 32], order = [1, 0]>
#mp_b_copl1 = #xegpu.layout<sg_layout = [4, 8], sg_data = [8, 32], order = [1, 0]>

!a_l2 = !xegpu.tensor_desc<512x128xf16, #mp_a_copl2>
!b_l2 = !xegpu.tensor_desc<128x256xf16, #mp_b_copl2>
!a_l1 = !xegpu.tensor_desc<512x32xf16, #mp_a_copl1>
!b_l1 = !xegpu.tensor_desc<32x256xf16, #mp_b_copl1>
!a_load = !xegpu.tensor_desc<512x32xf16, #mp_a>
!b_load = !xegpu.tensor_desc<32x256xf16, #mp_b>
!c_tile = !xegpu.tensor_desc<512x256xf32, #mp_c>

func.func @test_gemm(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c96 = arith.constant 96 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %c512 = arith.constant 512 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<512x256xf32>
  scf.for %i = %c0 to %c4096 step %c512 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %a1_l2 = xegpu.create_nd_tdesc %a[%i, %c0] : memref<4096x4096xf16> -> !a_l2
      %b1_l2 = xegpu.create_nd_tdesc %b[%c0, %j] : memref<4096x4096xf16> -> !b_l2
      %a2_l2 = xegpu.create_nd_tdesc %a[%i, %c128] : memref<4096x4096xf16> -> !a_l2
      %b2_l2 = xegpu.create_nd_tdesc %b[%c128, %j] : memref<4096x4096xf16> -> !b_l2
      xegpu.prefetch_nd %a1_l2 locality<2> : !a_l2
      xegpu.prefetch_nd %b1_l2 locality<2> : !b_l2
      xegpu.prefetch_nd %a2_l2 locality<2> : !a_l2
      xegpu.prefetch_nd %b2_l2 locality<2> : !b_l2
      %a3_l2 = xegpu.update_nd_offset %a2_l2, [%c0, %c128] : !a_l2
      %b3_l2 = xegpu.update_nd_offset %b2_l2, [%c128, %c0] : !b_l2
      %a1_l1 = xegpu.create_nd_tdesc %a[%i, %c0] : memref<4096x4096xf16> -> !a_l1
      %b1_l1 = xegpu.create_nd_tdesc %b[%c0, %j] : memref<4096x4096xf16> -> !b_l1
      %a2_l1 = xegpu.create_nd_tdesc %a[%i, %c32] : memref<4096x4096xf16> -> !a_l1
      %b2_l1 = xegpu.create_nd_tdesc %b[%c32, %j] : memref<4096x4096xf16> -> !b_l1
      %a3_l1 = xegpu.create_nd_tdesc %a[%i, %c64] : memref<4096x4096xf16> -> !a_l1
      %b3_l1 = xegpu.create_nd_tdesc %b[%c64, %j] : memref<4096x4096xf16> -> !b_l1
      %a4_l1 = xegpu.create_nd_tdesc %a[%i, %c96] : memref<4096x4096xf16> -> !a_l1
      %b4_l1 = xegpu.create_nd_tdesc %b[%c96, %j] : memref<4096x4096xf16> -> !b_l1
      xegpu.prefetch_nd %a1_l1 locality<3> : !a_l1
      xegpu.prefetch_nd %b1_l1 locality<3> : !b_l1
      xegpu.prefetch_nd %a2_l1 locality<3> : !a_l1
      xegpu.prefetch_nd %b2_l1 locality<3> : !b_l1
      xegpu.prefetch_nd %a3_l1 locality<3> : !a_l1
      xegpu.prefetch_nd %b3_l1 locality<3> : !b_l1
      xegpu.prefetch_nd %a4_l1 locality<3> : !a_l1
      xegpu.prefetch_nd %b4_l1 locality<3> : !b_l1
      %a5_l1 = xegpu.update_nd_offset %a4_l1, [%c0, %c32] : !a_l1
      %b5_l1 = xegpu.update_nd_offset %b4_l1, [%c32, %c0] : !b_l1
      %a1_load = xegpu.create_nd_tdesc %a[%i, %c0] : memref<4096x4096xf16> -> !a_load
      %b1_load = xegpu.create_nd_tdesc %b[%c0, %j] : memref<4096x4096xf16> -> !b_load
      %c_tile = xegpu.create_nd_tdesc %c[%i, %j] : memref<4096x4096xf32> -> !c_tile
      %r:7 = scf.for %k = %c0 to %c4096 step %c32
          iter_args(%al2 = %a3_l2, %bl2 = %b3_l2, %al1 = %a5_l1, %bl1 = %b5_l1,
                    %al = %a1_load, %bl = %b1_load, %acc = %zero)
          -> (!a_l2, !b_l2, !a_l1, !b_l1, !a_load, !b_load, vector<512x256xf32>) {
        %a1_r = xegpu.load_nd %al : !a_load -> vector<512x32xf16>
        %b1_r = xegpu.load_nd %bl : !b_load -> vector<32x256xf16>
        %rest = arith.remui %k, %c128 : index
        %fourth = arith.cmpi eq, %rest, %c0 : index
        %l2:2 = scf.if %fourth -> (!a_l2, !b_l2) {
          gpu.barrier
          xegpu.prefetch_nd %al2 locality<2> : !a_l2
          xegpu.prefetch_nd %bl2 locality<2> : !b_l2
          %na = xegpu.update_nd_offset %al2, [%c0, %c128] : !a_l2
          %nb = xegpu.update_nd_offset %bl2, [%c128, %c0] : !b_l2
          scf.yield %na, %nb : !a_l2, !b_l2
        } else {
          scf.yield %al2, %bl2 : !a_l2, !b_l2
        }
        xegpu.prefetch_nd %al1 locality<3> : !a_l1
        xegpu.prefetch_nd %bl1 locality<3> : !b_l1
        %nal1 = xegpu.update_nd_offset %al1, [%c0, %c32] : !a_l1
        %nbl1 = xegpu.update_nd_offset %bl1, [%c32, %c0] : !b_l1
        %nal = xegpu.update_nd_offset %al, [%c0, %c32] : !a_load
        %nbl = xegpu.update_nd_offset %bl, [%c32, %c0] : !b_load
        %6 = xegpu.dpas %a1_r, %b1_r, %acc {layout_a = #mp_a, layout_b = #mp_b, layout_cd = #mp_c}
            : vector<512x32xf16>, vector<32x256xf16>, vector<512x256xf32> -> vector<512x256xf32>
        scf.yield %l2#0, %l2#1, %nal1, %nbl1, %nal, %nbl, %6
            : !a_l2, !b_l2, !a_l1, !b_l1, !a_load, !b_load, vector<512x256xf32>
      }
      xegpu.store_nd %r#6, %c_tile : vector<512x256xf32>, !c_tile
    }
  }
  return
}
