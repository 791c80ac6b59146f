// Workgroup level: ranks 1 to 3, packed, transposed and array loads, ragged edges, three generations.
#a = #xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16], order = [1, 0]>
func.func @f(%a: memref<40x48xf16>, %b: memref<48x56xf16>, %c: memref<40x56xf32>, %r: memref<100xf32>, %s: memref<100xf32>, %q: memref<3x20x24xf32>, %w: memref<3x20x24xf32>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c48 = arith.constant 48 : index
  %zero = arith.constant dense<0.0> : vector<16x32xf32>
  %ta = xegpu.create_nd_tdesc %a : memref<40x48xf16> -> !xegpu.tensor_desc<16x16xf16, #a>
  %tb = xegpu.create_nd_tdesc %b[0, %j] : memref<48x56xf16> -> !xegpu.tensor_desc<16x32xf16>
  %tt = xegpu.create_nd_tdesc %a[%c0, %c0] : memref<40x48xf16> -> !xegpu.tensor_desc<16x16xf16, #xegpu.block_tdesc_attr<array_length = 2>>
  %tc = xegpu.create_nd_tdesc %c : memref<40x56xf32> -> !xegpu.tensor_desc<16x32xf32>
  %p:2 = scf.for %k = %c0 to %c48 step %c16 iter_args(%y = %tb, %acc = %zero) -> (!xegpu.tensor_desc<16x32xf16>, vector<16x32xf32>) {
    %va = xegpu.load_nd %ta[%i, %k] <{layout = #a}> : !xegpu.tensor_desc<16x16xf16, #a> -> vector<16x16xf16>
    %vb = xegpu.load_nd %y {packed} : !xegpu.tensor_desc<16x32xf16> -> vector<8x32x2xf16>
    %y2 = xegpu.update_nd_offset %y, [%c16, 0] : !xegpu.tensor_desc<16x32xf16>
    %n = xegpu.dpas %va, %vb, %acc {layout_cd = #xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>} : vector<16x16xf16>, vector<8x32x2xf16>, vector<16x32xf32> -> vector<16x32xf32>
    scf.yield %y2, %n : !xegpu.tensor_desc<16x32xf16>, vector<16x32xf32>
  }
  %x = xegpu.load_nd %tt[4, 7] : !xegpu.tensor_desc<16x16xf16, #xegpu.block_tdesc_attr<array_length = 2>> -> vector<2x16x16xf16>
  %t1 = xegpu.create_nd_tdesc %a : memref<40x48xf16> -> !xegpu.tensor_desc<16x16xf16>
  %xt = xegpu.load_nd %t1[%j, 3] <{transpose = array<i64: 1, 0>}> : !xegpu.tensor_desc<16x16xf16> -> vector<16x16xf16>
  %xw = xegpu.load_nd %t1[%i, 2] <{transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32}> : !xegpu.tensor_desc<16x16xf16> -> vector<8x32xf16>
  %x0 = vector.extract %x[0] : vector<16x16xf16> from vector<2x16x16xf16>
  %x1 = vector.extract %x[1] : vector<16x16xf16> from vector<2x16x16xf16>
  %xs = vector.shape_cast %xw : vector<8x32xf16> to vector<16x16xf16>
  %sum = arith.addf %x0, %xt : vector<16x16xf16>
  %mul = arith.mulf %x1, %xs : vector<16x16xf16>
  %left = arith.extf %sum : vector<16x16xf16> to vector<16x16xf32>
  %right = arith.extf %mul : vector<16x16xf16> to vector<16x16xf32>
  %both = arith.addf %left, %right : vector<16x16xf32>
  xegpu.store_nd %p#1, %tc[%i, %j] : vector<16x32xf32>, !xegpu.tensor_desc<16x32xf32>
  %td = xegpu.create_nd_tdesc %c[30, 44] : memref<40x56xf32> -> !xegpu.tensor_desc<16x16xf32>
  xegpu.store_nd %both, %td : vector<16x16xf32>, !xegpu.tensor_desc<16x16xf32>
  %t2 = xegpu.create_nd_tdesc %r : memref<100xf32> -> !xegpu.tensor_desc<32xf32>
  %v2 = xegpu.load_nd %t2[%j] : !xegpu.tensor_desc<32xf32> -> vector<32xf32>
  %t3 = xegpu.create_nd_tdesc %s : memref<100xf32> -> !xegpu.tensor_desc<32xf32, #xegpu.slice<#xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>, dims = [0]>>
  xegpu.store_nd %v2, %t3[80] : vector<32xf32>, !xegpu.tensor_desc<32xf32, #xegpu.slice<#xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>, dims = [0]>>
  %t4 = xegpu.create_nd_tdesc %q : memref<3x20x24xf32> -> !xegpu.tensor_desc<2x8x16xf32>
  %v4 = xegpu.load_nd %t4[1, %j, 4] : !xegpu.tensor_desc<2x8x16xf32> -> vector<2x8x16xf32>
  %t5 = xegpu.create_nd_tdesc %w : memref<3x20x24xf32> -> !xegpu.tensor_desc<2x8x16xf32>
  xegpu.store_nd %v4, %t5[0, 14, 2] : vector<2x8x16xf32>, !xegpu.tensor_desc<2x8x16xf32>
  return
}
