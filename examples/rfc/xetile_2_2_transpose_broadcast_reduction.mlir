// XeTile RFC, appendix 2.2: a GEMM with transpose, broadcast and reduction.
//   C[4096, 4096] = A[4096, 4096] * transpose(BT[4096, 4096]) + broadcast(bcast[4096], dim = 0)
//   Reduce[4096] = reduce_add(C[4096, 4096], dim = 1)
//
// Mended: %bt is an argument; %bcast is a row of its 1-D array; %res is seen as a column by a
// reinterpret_cast (a cast cannot change the rank); BT's prefetch advances along k as BT does; the
// reduced tile is added to %res by an atomic, because every %j adds its part (%res starts at zero).

#mp_a       = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 32]>
#mp_a_pfh   = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 32]>
#mp_b       = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#mp_bt      = #xetile.wg_map<sg_layout = [4, 8], sg_data = [64, 32]>
#mp_bt_pfh  = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 32]>
#mp_c       = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#mp_bcast   = #xetile.wg_map<sg_layout = [8, 4], sg_data = [1, 64]>
#mp_reduce  = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 1]>
#mp_reduce2 = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 256]>

!tile_a      = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a>>
!tile_a_pfh  = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a_pfh>>
!tile_bt     = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_bt>>
!tile_bt_pfh = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_bt_pfh>>
!tile_bcast  = !xetile.tile<1x256xf32, #xetile.tile_attr<wg_map = #mp_bcast>>
!tile_reduce = !xetile.tile<256x1xf32, #xetile.tile_attr<wg_map = #mp_reduce>>

func.func @test_gemm(%a: memref<4096x4096xf16>, %bt: memref<4096x4096xf16>,
                     %bcast: memref<4096xf32>, %res: memref<4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c192 = arith.constant 192 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<256x256xf32>
  %column = memref.reinterpret_cast %res to offset: [0], sizes: [4096, 1], strides: [1, 1]
      : memref<4096xf32> to memref<4096x1xf32>
  scf.for %i = %c0 to %c4096 step %c256 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %1 = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !tile_a
      %2 = xetile.init_tile %bt[%j, %c0] : memref<4096x4096xf16> -> !tile_bt
      %p1 = xetile.init_tile %a[%i, %c192] : memref<4096x4096xf16> -> !tile_a_pfh
      %p2 = xetile.init_tile %bt[%j, %c192] : memref<4096x4096xf16> -> !tile_bt_pfh
      %7 = xetile.init_tile %bcast[%j] : memref<4096xf32> -> !tile_bcast
      %3 = xetile.init_tile %column[%i, %c0] : memref<4096x1xf32> -> !tile_reduce
      %r:5 = scf.for %k = %c0 to %c4096 step %c32
          iter_args(%ta = %1, %tb = %2, %tap = %p1, %tbp = %p2, %acc = %zero)
          -> (!tile_a, !tile_bt, !tile_a_pfh, !tile_bt_pfh, vector<256x256xf32>) {
        %4 = xetile.load_tile %ta : !tile_a -> vector<256x32xf16>
        %10 = xetile.load_tile %tb : !tile_bt -> vector<256x32xf16>
        %5 = xetile.transpose %10, [1, 0] {wg_map_source = #mp_bt, wg_map = #mp_b}
            : vector<256x32xf16> -> vector<32x256xf16>
        xetile.prefetch_tile %tap : !tile_a_pfh
        xetile.prefetch_tile %tbp : !tile_bt_pfh
        %6 = xetile.tile_mma %4, %5, %acc {wg_map_a = #mp_a, wg_map_b = #mp_b, wg_map_c = #mp_c}
            : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        %n1 = xetile.update_tile_offset %ta, [%c0, %c32] : !tile_a
        %n2 = xetile.update_tile_offset %tb, [%c0, %c32] : !tile_bt
        %n1p = xetile.update_tile_offset %tap, [%c0, %c32] : !tile_a_pfh
        %n2p = xetile.update_tile_offset %tbp, [%c0, %c32] : !tile_bt_pfh
        scf.yield %n1, %n2, %n1p, %n2p, %6
            : !tile_a, !tile_bt, !tile_a_pfh, !tile_bt_pfh, vector<256x256xf32>
      }
      %12 = xetile.load_tile %7 : !tile_bcast -> vector<1x256xf32>
      %13 = xetile.broadcast %12 [0] {wg_map_source = #mp_bcast, wg_map = #mp_c}
          : vector<1x256xf32> -> vector<256x256xf32>
      %14 = arith.addf %r#4, %13 {map = #mp_c} : vector<256x256xf32>
      %15 = xetile.convert_layout %14 {wg_map_result = #mp_reduce2, wg_map_source = #mp_c}
          : vector<256x256xf32>
      %16 = xetile.reduction <add>, %15 [1] {wg_map_source = #mp_reduce2, wg_map = #mp_reduce}
          : vector<256x256xf32> -> vector<256x1xf32>
      %17 = xetile.atomic_rmw addf %16, %3 : vector<256x1xf32>, !tile_reduce -> vector<256x1xf32>
    }
  }
  return
}
