// XeTile RFC, appendix 2.1: a simple GEMM with prefetch.
//   C[4096, 4096] = A[4096, 4096] * B[4096, 4096]
//
// Mended: %c is 4096x4096; the accumulator and the moving tiles are carried by the k loop; the
// prefetches take the prefetch tiles %p1 and %p2, three k-steps ahead, with their own maps.

#mp_a     = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 32]>
#mp_a_pfh = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 32]>
#mp_b     = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#mp_b_pfh = #xetile.wg_map<sg_layout = [4, 8], sg_data = [8, 32]>
#mp_c     = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>

!tile_a     = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a>>
!tile_a_pfh = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a_pfh>>
!tile_b     = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b>>
!tile_b_pfh = !xetile.tile<32x256xf16, #xetile.tile_attr<wg_map = #mp_b_pfh>>
!tile_c     = !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #mp_c>>

func.func @test_gemm(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c96 = arith.constant 96 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<256x256xf32>
  scf.for %i = %c0 to %c4096 step %c256 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %1 = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !tile_a
      %2 = xetile.init_tile %b[%c0, %j] : memref<4096x4096xf16> -> !tile_b
      %p1 = xetile.init_tile %a[%i, %c96] : memref<4096x4096xf16> -> !tile_a_pfh
      %p2 = xetile.init_tile %b[%c96, %j] : memref<4096x4096xf16> -> !tile_b_pfh
      %3 = xetile.init_tile %c[%i, %j] : memref<4096x4096xf32> -> !tile_c
      %r:5 = scf.for %k = %c0 to %c4096 step %c32
          iter_args(%ta = %1, %tb = %2, %tap = %p1, %tbp = %p2, %acc = %zero)
          -> (!tile_a, !tile_b, !tile_a_pfh, !tile_b_pfh, vector<256x256xf32>) {
        %4 = xetile.load_tile %ta : !tile_a -> vector<256x32xf16>
        %10 = xetile.load_tile %tb : !tile_b -> vector<32x256xf16>
        xetile.prefetch_tile %tap : !tile_a_pfh
        xetile.prefetch_tile %tbp : !tile_b_pfh
        %6 = xetile.tile_mma %4, %10, %acc {wg_map_a = #mp_a, wg_map_b = #mp_b, wg_map_c = #mp_c}
            : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        %n1 = xetile.update_tile_offset %ta, [%c0, %c32] : !tile_a
        %n2 = xetile.update_tile_offset %tb, [%c32, %c0] : !tile_b
        %n1p = xetile.update_tile_offset %tap, [%c0, %c32] : !tile_a_pfh
        %n2p = xetile.update_tile_offset %tbp, [%c32, %c0] : !tile_b_pfh
        scf.yield %n1, %n2, %n1p, %n2p, %6
            : !tile_a, !tile_b, !tile_a_pfh, !tile_b_pfh, vector<256x256xf32>
      }
      xetile.store_tile %r#4, %3 : vector<256x256xf32>, !tile_c
    }
  }
  return
}
