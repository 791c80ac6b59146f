// XeTile RFC, appendix 2.3: the transpose of 2.2 with a map that moves nothing between subgroups.
//   C[4096, 4096] = A[4096, 4096] * transpose(BT[4096, 4096])
//
// The fragment's load and transpose, with the optimised #mp_bt, in a whole program: with sg_layout
// [32, 1] every subgroup loads those rows of BT that it multiplies as columns of B.

#mp_a  = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 32]>
#mp_b  = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#mp_bt = #xetile.wg_map<sg_layout = [32, 1], sg_data = [64, 32]>
#mp_c  = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>

!tile_a  = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_a>>
!tile_bt = !xetile.tile<256x32xf16, #xetile.tile_attr<wg_map = #mp_bt>>
!tile_c  = !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #mp_c>>

func.func @test_gemm(%a: memref<4096x4096xf16>, %bt: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<256x256xf32>
  scf.for %i = %c0 to %c4096 step %c256 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %1 = xetile.init_tile %a[%i, %c0] : memref<4096x4096xf16> -> !tile_a
      %2 = xetile.init_tile %bt[%j, %c0] : memref<4096x4096xf16> -> !tile_bt
      %3 = xetile.init_tile %c[%i, %j] : memref<4096x4096xf32> -> !tile_c
      %r:3 = scf.for %k = %c0 to %c4096 step %c32 iter_args(%ta = %1, %tb = %2, %acc = %zero)
          -> (!tile_a, !tile_bt, vector<256x256xf32>) {
        %4 = xetile.load_tile %ta : !tile_a -> vector<256x32xf16>
        %10 = xetile.load_tile %tb : !tile_bt -> vector<256x32xf16>
        %5 = xetile.transpose %10, [1, 0] {wg_map_source = #mp_bt, wg_map = #mp_b}
            : vector<256x32xf16> -> vector<32x256xf16>
        %6 = xetile.tile_mma %4, %5, %acc {wg_map_a = #mp_a, wg_map_b = #mp_b, wg_map_c = #mp_c}
            : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        %n1 = xetile.update_tile_offset %ta, [%c0, %c32] : !tile_a
        %n2 = xetile.update_tile_offset %tb, [%c0, %c32] : !tile_bt
        scf.yield %n1, %n2, %6 : !tile_a, !tile_bt, vector<256x256xf32>
      }
      xetile.store_tile %r#2, %3 : vector<256x256xf32>, !tile_c
    }
  }
  return
}
