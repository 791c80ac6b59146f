// XeGPU RFC, appendix 1.1: a simple GEMM with prefetch.
//   C[4096, 4096] = A[4096, 4096] * B[4096, 4096]
//
// Mended: %c is 4096x4096; the accumulator and the moving descriptors are carried by the k loop; the
// prefetches take the prefetch descriptors %p1 and %p2, with their own layouts; update_nd_offset keeps
// the layout of its operand.

#mp_a     = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], order = [1, 0]>
#mp_a_pfh = #xegpu.layout<sg_layout = [32, 1], sg_data = [8, 32], order = [1, 0]>
#mp_b     = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], order = [1, 0]>
#mp_b_pfh = #xegpu.layout<sg_layout = [4, 8], sg_data = [8, 32], order = [1, 0]>
#mp_c     = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], order = [1, 0]>

!desc_a     = !xegpu.tensor_desc<256x32xf16, #mp_a>
!desc_a_pfh = !xegpu.tensor_desc<256x32xf16, #mp_a_pfh>
!desc_b     = !xegpu.tensor_desc<32x256xf16, #mp_b>
!desc_b_pfh = !xegpu.tensor_desc<32x256xf16, #mp_b_pfh>
!desc_c     = !xegpu.tensor_desc<256x256xf32, #mp_c>

func.func @test_gemm(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c96 = arith.constant 96 : index
  %c256 = arith.constant 256 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<256x256xf32>
  scf.for %i = %c0 to %c4096 step %c256 {
    scf.for %j = %c0 to %c4096 step %c256 {
      %1 = xegpu.create_nd_tdesc %a[%i, %c0] : memref<4096x4096xf16> -> !desc_a
      %2 = xegpu.create_nd_tdesc %b[%c0, %j] : memref<4096x4096xf16> -> !desc_b
      %p1 = xegpu.create_nd_tdesc %a[%i, %c96] : memref<4096x4096xf16> -> !desc_a_pfh
      %p2 = xegpu.create_nd_tdesc %b[%c96, %j] : memref<4096x4096xf16> -> !desc_b_pfh
      %3 = xegpu.create_nd_tdesc %c[%i, %j] : memref<4096x4096xf32> -> !desc_c
      %r:5 = scf.for %k = %c0 to %c4096 step %c32
          iter_args(%ta = %1, %tb = %2, %tap = %p1, %tbp = %p2, %acc = %zero)
          -> (!desc_a, !desc_b, !desc_a_pfh, !desc_b_pfh, vector<256x256xf32>) {
        %4 = xegpu.load_nd %ta : !desc_a -> vector<256x32xf16>
        %10 = xegpu.load_nd %tb : !desc_b -> vector<32x256xf16>
        xegpu.prefetch_nd %tap : !desc_a_pfh
        xegpu.prefetch_nd %tbp : !desc_b_pfh
        %6 = xegpu.dpas %4, %10, %acc {layout_a = #mp_a, layout_b = #mp_b, layout_cd = #mp_c}
            : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        %n1 = xegpu.update_nd_offset %ta, [%c0, %c32] : !desc_a
        %n2 = xegpu.update_nd_offset %tb, [%c32, %c0] : !desc_b
        %n1p = xegpu.update_nd_offset %tap, [%c0, %c32] : !desc_a_pfh
        %n2p = xegpu.update_nd_offset %tbp, [%c32, %c0] : !desc_b_pfh
        scf.yield %n1, %n2, %n1p, %n2p, %6
            : !desc_a, !desc_b, !desc_a_pfh, !desc_b_pfh, vector<256x256xf32>
      }
      xegpu.store_nd %r#4, %3 : vector<256x256xf32>, !desc_c
    }
  }
  return
}
