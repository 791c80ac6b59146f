// Scattered tiles, atomics on elements and on a block that hangs over the edge, rows of 1-D arrays.
func.func @f(%a: memref<512xf32>, %b: memref<512xf32>, %h: memref<24x40xf32>, %row: memref<40xf32>, %i: index, %j: index) {
  %step = vector.step : vector<32xindex>
  %c3 = arith.constant dense<3> : vector<32xindex>
  %idx = arith.muli %step, %c3 : vector<32xindex>
  %c20 = arith.constant dense<20> : vector<32xindex>
  %k = arith.cmpi ult, %step, %c20 : vector<32xindex>
  %ta = xetile.init_tile %a, %idx : memref<512xf32>, vector<32xindex> -> !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>
  %t2 = xetile.update_tile_offset %ta, %idx : !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>, vector<32xindex>
  %v = xetile.load %t2, %k {padding = 7.0 : f32} : !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>, vector<32xi1> -> vector<32xf32>
  %tb = xetile.init_tile %b, %idx : memref<512xf32>, vector<32xindex> -> !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>
  xetile.store %v, %tb, %k : vector<32xf32>, !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>, vector<32xi1>
  %old = xetile.atomic_rmw addf %v, %t2 : vector<32xf32>, !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>> -> vector<32xf32>
  %one = arith.constant dense<1.5> : vector<8x16xf32>
  %th = xetile.init_tile %h[%i, %j] : memref<24x40xf32> -> !xetile.tile<8x16xf32>
  %oh = xetile.atomic_rmw addf %one, %th : vector<8x16xf32>, !xetile.tile<8x16xf32> -> vector<8x16xf32>
  %tr = xetile.init_tile %row[%j] : memref<40xf32> -> !xetile.tile<1x16xf32>
  %vr = xetile.load_tile %tr : !xetile.tile<1x16xf32> -> vector<1x16xf32>
  %vb = xetile.broadcast %vr [0] : vector<1x16xf32> -> vector<8x16xf32>
  %sum = arith.addf %vb, %oh : vector<8x16xf32>
  %tz = xetile.init_tile %h[0, 0] : memref<24x40xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %sum, %tz : vector<8x16xf32>, !xetile.tile<8x16xf32>
  return
}
