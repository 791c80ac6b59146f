// XeTile RFC, appendix 2.4: a GEMM whose workgroup loads its operands together, through a ring of
// four slots in shared local memory.
//   C[4096, 4096] = A[4096, 4096] * B[4096, 4096]
//
// Mended: the shared buffers have the ring's size, four slots side by side, not 4096x4096; the tiles
// of shared memory are made at the ring's absolute offsets (the text passes an absolute offset to the
// relative update_tile_offset); slots are f16 as the loads are; the accumulator is carried.

#mp_a     = #xetile.wg_map<sg_layout = [8, 8], sg_data = [32, 32]>
#mp_a_cop = #xetile.wg_map<sg_layout = [64, 1], sg_data = [4, 32]>
#mp_b     = #xetile.wg_map<sg_layout = [8, 8], sg_data = [32, 32]>
#mp_b_cop = #xetile.wg_map<sg_layout = [8, 8], sg_data = [4, 32]>
#mp_c     = #xetile.wg_map<sg_layout = [8, 8], sg_data = [32, 32]>

!a_glb = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a_cop>>
!b_glb = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b_cop>>
!a_slm = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a_cop, memory_space = 3>>
!b_slm = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b_cop, memory_space = 3>>
!a_mma = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a, memory_space = 3>>
!b_mma = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b, memory_space = 3>>
!c_glb = !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #mp_c>>

func.func @test_gemm(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c96 = arith.constant 96 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<256x256xf32>
  scf.for %i = %c0 to %c4096 step %c256 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %slm_a = memref.alloc() : memref<256x128xf16, 3>
      %slm_b = memref.alloc() : memref<128x256xf16, 3>
      %a1_glb = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !a_glb
      %b1_glb = xetile.init_tile %b[%c0, %j] : memref<4096x4096xf16> -> !b_glb
      %a2_glb = xetile.init_tile %a[%i, %c32] : memref<4096x4096xf16> -> !a_glb
      %b2_glb = xetile.init_tile %b[%c32, %j] : memref<4096x4096xf16> -> !b_glb
      %a3_glb = xetile.init_tile %a[%i, %c64] : memref<4096x4096xf16> -> !a_glb
      %b3_glb = xetile.init_tile %b[%c64, %j] : memref<4096x4096xf16> -> !b_glb
      %a4_glb = xetile.init_tile %a[%i, %c96] : memref<4096x4096xf16> -> !a_glb
      %b4_glb = xetile.init_tile %b[%c96, %j] : memref<4096x4096xf16> -> !b_glb
      %a1_slm = xetile.init_tile %slm_a[%c0, %c0] : memref<256x128xf16, 3> -> !a_slm
      %b1_slm = xetile.init_tile %slm_b[%c0, %c0] : memref<128x256xf16, 3> -> !b_slm
      %a2_slm = xetile.init_tile %slm_a[%c0, %c32] : memref<256x128xf16, 3> -> !a_slm
      %b2_slm = xetile.init_tile %slm_b[%c32, %c0] : memref<128x256xf16, 3> -> !b_slm
      %a3_slm = xetile.init_tile %slm_a[%c0, %c64] : memref<256x128xf16, 3> -> !a_slm
      %b3_slm = xetile.init_tile %slm_b[%c64, %c0] : memref<128x256xf16, 3> -> !b_slm
      %a1_r = xetile.load_tile %a1_glb : !a_glb -> vector<256x32xf16>
      %b1_r = xetile.load_tile %b1_glb : !b_glb -> vector<32x256xf16>
      %a2_r = xetile.load_tile %a2_glb : !a_glb -> vector<256x32xf16>
      %b2_r = xetile.load_tile %b2_glb : !b_glb -> vector<32x256xf16>
      %a3_r = xetile.load_tile %a3_glb : !a_glb -> vector<256x32xf16>
      %b3_r = xetile.load_tile %b3_glb : !b_glb -> vector<32x256xf16>
      gpu.barrier
      xetile.store_tile %a1_r, %a1_slm : vector<256x32xf16>, !a_slm
      xetile.store_tile %b1_r, %b1_slm : vector<32x256xf16>, !b_slm
      xetile.store_tile %a2_r, %a2_slm : vector<256x32xf16>, !a_slm
      xetile.store_tile %b2_r, %b2_slm : vector<32x256xf16>, !b_slm
      xetile.store_tile %a3_r, %a3_slm : vector<256x32xf16>, !a_slm
      xetile.store_tile %b3_r, %b3_slm : vector<32x256xf16>, !b_slm
      gpu.barrier
      %c_glb = xetile.init_tile %c[%i, %j] : memref<4096x4096xf32> -> !c_glb
      %r:3 = scf.for %k = %c0 to %c4096 step %c32 iter_args(%ta = %a4_glb, %tb = %b4_glb, %acc = %zero)
          -> (!a_glb, !b_glb, vector<256x256xf32>) {
        // Cooperative load from global memory, three k-steps ahead.
        %a4_r = xetile.load_tile %ta : !a_glb -> vector<256x32xf16>
        %b4_r = xetile.load_tile %tb : !b_glb -> vector<32x256xf16>
        // Load from the ring: slot (k / 32) mod 4.
        %slot = arith.remui %k, %c128 : index
        %a1_load = xetile.init_tile %slm_a[%c0, %slot] : memref<256x128xf16, 3> -> !a_mma
        %b1_load = xetile.init_tile %slm_b[%slot, %c0] : memref<128x256xf16, 3> -> !b_mma
        %a1_rr = xetile.load_tile %a1_load : !a_mma -> vector<256x32xf16>
        %b1_rr = xetile.load_tile %b1_load : !b_mma -> vector<32x256xf16>
        %na = xetile.update_tile_offset %ta, [%c0, %c32] : !a_glb
        %nb = xetile.update_tile_offset %tb, [%c32, %c0] : !b_glb
        %c_r = xetile.tile_mma %a1_rr, %b1_rr, %acc {wg_map_a = #mp_a, wg_map_b = #mp_b, wg_map_c = #mp_c}
            : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        gpu.barrier
        // Cooperative save to the slot that was read one k-step ago.
        %ahead = arith.addi %k, %c96 : index
        %free = arith.remui %ahead, %c128 : index
        %a4_slm = xetile.init_tile %slm_a[%c0, %free] : memref<256x128xf16, 3> -> !a_slm
        %b4_slm = xetile.init_tile %slm_b[%free, %c0] : memref<128x256xf16, 3> -> !b_slm
        xetile.store_tile %a4_r, %a4_slm : vector<256x32xf16>, !a_slm
        xetile.store_tile %b4_r, %b4_slm : vector<32x256xf16>, !b_slm
        scf.yield %na, %nb, %c_r : !a_glb, !b_glb, vector<256x256xf32>
      }
      xetile.store_tile %r#2, %c_glb : vector<256x256xf32>, !c_glb
    }
  }
  return
}
