// XeGPU RFC, appendix 1.2: a GEMM with transpose, broadcast and reduction.
//   C[4096, 4096] = A[4096, 4096] * transpose(BT[4096, 4096]) + broadcast(bcast[4096], dim = 0)
//   Reduce[4096] = reduce_add(C[4096, 4096], dim = 1)
//
// Mended: %bt is an argument; the loaded row is f32 and of rank 1 throughout, its layout before the
// broadcast a slice of C's; vector.multi_reduction takes an accumulator, and its result's layout is a
// slice too; BT's prefetch advances along k as BT does; the reduced vector is added to %res by an
// atomic, because every %j adds its part (%res starts at zero).

#mp_a       = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], order = [1, 0]>
#mp_a_pfh   = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 32], order = [1, 0]>
#mp_b       = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], order = [1, 0]>
#mp_bt      = #xegpu.layout<sg_layout = [4, 8], sg_data = [64, 32], order = [0, 1]>
#mp_bt_pfh  = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 32], order = [1, 0]>
#mp_c       = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], order = [1, 0]>
#mp_bcast   = #xegpu.slice<#mp_c, dims = [0]>
#mp_bcast2  = #xegpu.layout<sg_layout = [32], sg_data = [8], order = [0]>
#mp_reduce2 = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 256], order = [1, 0]>
#mp_reduce  = #xegpu.slice<#mp_reduce2, dims = [1]>

!desc_a      = !xegpu.tensor_desc<256x32xf16, #mp_a>
!desc_a_pfh  = !xegpu.tensor_desc<256x32xf16, #mp_a_pfh>
!desc_bt     = !xegpu.tensor_desc<256x32xf16, #mp_bt>
!desc_bt_pfh = !xegpu.tensor_desc<256x32xf16, #mp_bt_pfh>
!desc_bcast  = !xegpu.tensor_desc<256xf32, #mp_bcast2>
!desc_reduce = !xegpu.tensor_desc<256xf32, #xegpu.scatter_tdesc_attr<>, #mp_reduce>

func.func @test_gemm(%a: memref<4096x4096xf16>, %bt: memref<4096x4096xf16>,
                     %bcast: memref<4096xf32>, %res: memref<4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c192 = arith.constant 192 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<256x256xf32>
  %none = arith.constant dense<0.0> : vector<256xf32>
  %all = arith.constant dense<true> : vector<256xi1>
  %lanes = vector.step {layout_result_0 = #mp_reduce} : vector<256xindex>
  scf.for %i = %c0 to %c4096 step %c256 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %1 = xegpu.create_nd_tdesc %a[%i, %c0] : memref<4096x4096xf16> -> !desc_a
      %2 = xegpu.create_nd_tdesc %bt[%j, %c0] : memref<4096x4096xf16> -> !desc_bt
      %p1 = xegpu.create_nd_tdesc %a[%i, %c192] : memref<4096x4096xf16> -> !desc_a_pfh
      %p2 = xegpu.create_nd_tdesc %bt[%j, %c192] : memref<4096x4096xf16> -> !desc_bt_pfh
      %7 = xegpu.create_nd_tdesc %bcast[%j] : memref<4096xf32> -> !desc_bcast
      %row = vector.broadcast %i {layout_result_0 = #mp_reduce} : index to vector<256xindex>
      %rows = arith.addi %row, %lanes {layout_result_0 = #mp_reduce} : vector<256xindex>
      %3 = xegpu.create_tdesc %res, %rows : memref<4096xf32>, vector<256xindex> -> !desc_reduce
      %r:5 = scf.for %k = %c0 to %c4096 step %c32
          iter_args(%ta = %1, %tb = %2, %tap = %p1, %tbp = %p2, %acc = %zero)
          -> (!desc_a, !desc_bt, !desc_a_pfh, !desc_bt_pfh, vector<256x256xf32>) {
        %4 = xegpu.load_nd %ta : !desc_a -> vector<256x32xf16>
        %10 = xegpu.load_nd %tb : !desc_bt -> vector<256x32xf16>
        %5 = vector.transpose %10, [1, 0] {layout_result_0 = #mp_b}
            : vector<256x32xf16> to vector<32x256xf16>
        xegpu.prefetch_nd %tap : !desc_a_pfh
        xegpu.prefetch_nd %tbp : !desc_bt_pfh
        %6 = xegpu.dpas %4, %5, %acc {layout_a = #mp_a, layout_b = #mp_b, layout_cd = #mp_c}
            : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        %n1 = xegpu.update_nd_offset %ta, [%c0, %c32] : !desc_a
        %n2 = xegpu.update_nd_offset %tb, [%c0, %c32] : !desc_bt
        %n1p = xegpu.update_nd_offset %tap, [%c0, %c32] : !desc_a_pfh
        %n2p = xegpu.update_nd_offset %tbp, [%c0, %c32] : !desc_bt_pfh
        scf.yield %n1, %n2, %n1p, %n2p, %6
            : !desc_a, !desc_bt, !desc_a_pfh, !desc_bt_pfh, vector<256x256xf32>
      }
      %12 = xegpu.load_nd %7 : !desc_bcast -> vector<256xf32>
      %c12 = xegpu.convert_layout %12 <{input_layout = #mp_bcast2, target_layout = #mp_bcast}>
          : vector<256xf32>
      %13 = vector.broadcast %c12 {layout_result_0 = #mp_c} : vector<256xf32> to vector<256x256xf32>
      %14 = arith.addf %r#4, %13 {layout_result_0 = #mp_c} : vector<256x256xf32>
      %c14 = xegpu.convert_layout %14 <{input_layout = #mp_c, target_layout = #mp_reduce2}>
          : vector<256x256xf32>
      %16 = vector.multi_reduction <add>, %c14, %none {layout_result_0 = #mp_reduce} [1]
          : vector<256x256xf32> to vector<256xf32>
      %17 = xegpu.atomic_rmw addf %3, %all, %16
          : !desc_reduce, vector<256xi1>, vector<256xf32> -> vector<256xf32>
    }
  }
  return
}
