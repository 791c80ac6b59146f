// A workgroup tile of a product, maps included; order, padding, and locality besides.
#a = #xetile.wg_map<sg_layout = [2, 2], sg_data = [8, 16]>
#b = #xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 16]>
#c = #xetile.wg_map<sg_layout = [2, 2], sg_data = [8, 16]>
func.func @f(%a: memref<40x48xf16>, %b: memref<56x48xf16, strided<[1, 56]>>, %c: memref<40x56xf32>, %i: index, %j: index) {
  %c0 = arith.constant 0 : index
  %c48 = arith.constant 48 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : vector<16x32xf32>
  %bt = memref.transpose %b (m, n) -> (n, m) : memref<56x48xf16, strided<[1, 56]>> to memref<48x56xf16, strided<[56, 1]>>
  %ta = xetile.init_tile %a[%i, 0] : memref<40x48xf16> -> !xetile.tile<16x16xf16, #xetile.tile_attr<wg_map = #a>>
  %tb = xetile.init_tile %bt[0, %j] : memref<48x56xf16, strided<[56, 1]>> -> !xetile.tile<16x32xf16, #xetile.tile_attr<wg_map = #b>>
  %r:3 = scf.for %k = %c0 to %c48 step %c16 iter_args(%x = %ta, %y = %tb, %acc = %zero) -> (!xetile.tile<16x16xf16, #xetile.tile_attr<wg_map = #a>>, !xetile.tile<16x32xf16, #xetile.tile_attr<wg_map = #b>>, vector<16x32xf32>) {
    %va = xetile.load_tile %x : !xetile.tile<16x16xf16, #xetile.tile_attr<wg_map = #a>> -> vector<16x16xf16>
    %vb = xetile.load_tile %y : !xetile.tile<16x32xf16, #xetile.tile_attr<wg_map = #b>> -> vector<16x32xf16>
    %x2 = xetile.update_tile_offset %x, [0, 16] : !xetile.tile<16x16xf16, #xetile.tile_attr<wg_map = #a>>
    %y2 = xetile.update_tile_offset %y, [16, 0] : !xetile.tile<16x32xf16, #xetile.tile_attr<wg_map = #b>>
    xetile.prefetch_tile %x2 locality<2> : !xetile.tile<16x16xf16, #xetile.tile_attr<wg_map = #a>>
    %n = xetile.tile_mma %va, %vb, %acc {wg_map_a = #a, wg_map_b = #b, wg_map_c = #c} : vector<16x16xf16>, vector<16x32xf16>, vector<16x32xf32> -> vector<16x32xf32>
    scf.yield %x2, %y2, %n : !xetile.tile<16x16xf16, #xetile.tile_attr<wg_map = #a>>, !xetile.tile<16x32xf16, #xetile.tile_attr<wg_map = #b>>, vector<16x32xf32>
  }
  %tc = xetile.init_tile %c[%i, %j] : memref<40x56xf32> -> !xetile.tile<16x32xf32, #xetile.tile_attr<wg_map = #c>>
  xetile.store_tile %r#2, %tc : vector<16x32xf32>, !xetile.tile<16x32xf32, #xetile.tile_attr<wg_map = #c>>
  return
}
