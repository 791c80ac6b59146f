// XeTile RFC, appendix 2.5: a GEMM that prefetches through two cache levels.
//   C[4096, 4096] = A[4096, 4096] * B[4096, 4096]
//
// Mended: %i steps by 512, the rows of its tile; tiles of 128 columns follow each other at 128; "every
// fourth k-step" is k mod 128 = 0, and the if gives the moved tiles back; the accumulator is carried.

#mp_a = #xetile.wg_map<sg_layout = [8, 4], sg_data = [64, 32]>
#mp_b = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#mp_c = #xetile.wg_map<sg_layout = [8, 4], sg_data = [64, 64]>
#mp_a_copl2 = #xetile.wg_map<sg_layout = [32, 1], sg_data = [16, 128]>
#mp_b_copl2 = #xetile.wg_map<sg_layout = [16, 2], sg_data = [8, 128]>
#mp_a_copl1 = #xetile.wg_map<sg_layout = [32, 1], sg_data = [16, 32]>
#mp_b_copl1 = #xetile.wg_map<sg_layout = [4, 8], sg_data = [8, 32]>

!a_l2 = !xetile.tile<512x128xf16, #xetile.tile_attr<wg_map = #mp_a_copl2>>
!b_l2 = !xetile.tile<128x256xf16, #xetile.tile_attr<wg_map = #mp_b_copl2>>
!a_l1 = !xetile.tile<512x32xf16, #xetile.tile_attr<wg_map = #mp_a_copl1>>
!b_l1 = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b_copl1>>
!a_load = !xetile.tile<512x32xf16, #xetile.tile_attr<wg_map = #mp_a>>
!b_load = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b>>
!c_tile = !xetile.tile<512x256xf32, #xetile.tile_attr<wg_map = #mp_c>>

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
      %a1_l2 = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !a_l2
      %b1_l2 = xetile.init_tile %b[%c0, %j] : memref<4096x4096xf16> -> !b_l2
      %a2_l2 = xetile.init_tile %a[%i, %c128] : memref<4096x4096xf16> -> !a_l2
      %b2_l2 = xetile.init_tile %b[%c128, %j] : memref<4096x4096xf16> -> !b_l2
      xetile.prefetch_tile %a1_l2 locality<2> : !a_l2
      xetile.prefetch_tile %b1_l2 locality<2> : !b_l2
      xetile.prefetch_tile %a2_l2 locality<2> : !a_l2
      xetile.prefetch_tile %b2_l2 locality<2> : !b_l2
      %a3_l2 = xetile.update_tile_offset %a2_l2, [%c0, %c128] : !a_l2
      %b3_l2 = xetile.update_tile_offset %b2_l2, [%c128, %c0] : !b_l2
      %a1_l1 = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !a_l1
      %b1_l1 = xetile.init_tile %b[%c0, %j] : memref<4096x4096xf16> -> !b_l1
      %a2_l1 = xetile.init_tile %a[%i, %c32] : memref<4096x4096xf16> -> !a_l1
      %b2_l1 = xetile.init_tile %b[%c32, %j] : memref<4096x4096xf16> -> !b_l1
      %a3_l1 = xetile.init_tile %a[%i, %c64] : memref<4096x4096xf16> -> !a_l1
      %b3_l1 = xetile.init_tile %b[%c64, %j] : memref<4096x4096xf16> -> !b_l1
      %a4_l1 = xetile.init_tile %a[%i, %c96] : memref<4096x4096xf16> -> !a_l1
      %b4_l1 = xetile.init_tile %b[%c96, %j] : memref<4096x4096xf16> -> !b_l1
      xetile.prefetch_tile %a1_l1 locality<3> : !a_l1
      xetile.prefetch_tile %b1_l1 locality<3> : !b_l1
      xetile.prefetch_tile %a2_l1 locality<3> : !a_l1
      xetile.prefetch_tile %b2_l1 locality<3> : !b_l1
      xetile.prefetch_tile %a3_l1 locality<3> : !a_l1
      xetile.prefetch_tile %b3_l1 locality<3> : !b_l1
      xetile.prefetch_tile %a4_l1 locality<3> : !a_l1
      xetile.prefetch_tile %b4_l1 locality<3> : !b_l1
      %a5_l1 = xetile.update_tile_offset %a4_l1, [%c0, %c32] : !a_l1
      %b5_l1 = xetile.update_tile_offset %b4_l1, [%c32, %c0] : !b_l1
      %a1_load = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !a_load
      %b1_load = xetile.init_tile %b[%c0, %j] : memref<4096x4096xf16> -> !b_load
      %c_tile = xetile.init_tile %c[%i, %j] : memref<4096x4096xf32> -> !c_tile
      %r:7 = scf.for %k = %c0 to %c4096 step %c32
          iter_args(%al2 = %a3_l2, %bl2 = %b3_l2, %al1 = %a5_l1, %bl1 = %b5_l1,
                    %al = %a1_load, %bl = %b1_load, %acc = %zero)
          -> (!a_l2, !b_l2, !a_l1, !b_l1, !a_load, !b_load, vector<512x256xf32>) {
        %a1_r = xetile.load_tile %al : !a_load -> vector<512x32xf16>
        %b1_r = xetile.load_tile %bl : !b_load -> vector<32x256xf16>
        %rest = arith.remui %k, %c128 : index
        %fourth = arith.cmpi eq, %rest, %c0 : index
        %l2:2 = scf.if %fourth -> (!a_l2, !b_l2) {
          gpu.barrier
          xetile.prefetch_tile %al2 locality<2> : !a_l2
          xetile.prefetch_tile %bl2 locality<2> : !b_l2
          %na = xetile.update_tile_offset %al2, [%c0, %c128] : !a_l2
          %nb = xetile.update_tile_offset %bl2, [%c128, %c0] : !b_l2
          scf.yield %na, %nb : !a_l2, !b_l2
        } else {
          scf.yield %al2, %bl2 : !a_l2, !b_l2
        }
        xetile.prefetch_tile %al1 locality<3> : !a_l1
        xetile.prefetch_tile %bl1 locality<3> : !b_l1
        %nal1 = xetile.update_tile_offset %al1, [%c0, %c32] : !a_l1
        %nbl1 = xetile.update_tile_offset %bl1, [%c32, %c0] : !b_l1
        %nal = xetile.update_tile_offset %al, [%c0, %c32] : !a_load
        %nbl = xetile.update_tile_offset %bl, [%c32, %c0] : !b_load
        %6 = xetile.tile_mma %a1_r, %b1_r, %acc {wg_map_a = #mp_a, wg_map_b = #mp_b, wg_map_c = #mp_c}
            : vector<512x32xf16>, vector<32x256xf16>, vector<512x256xf32> -> vector<512x256xf32>
        scf.yield %l2#0, %l2#1, %nal1, %nbl1, %nal, %nbl, %6
            : !a_l2, !b_l2, !a_l1, !b_l1, !a_load, !b_load, vector<512x256xf32>
      }
      xetile.store_tile %r#6, %c_tile : vector<512x256xf32>, !c_tile
    }
  }
  return
}
