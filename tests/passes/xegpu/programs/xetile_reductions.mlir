// Reductions and broadcasts with and without sizes of runs.
func.func @f(%a: memref<32x64xf32>, %o: memref<32x64xf32>, %p: memref<32x64xi32>, %q: memref<32x64xi32>) {
  %ta = xetile.init_tile %a[0, 0] : memref<32x64xf32> -> !xetile.tile<32x64xf32>
  %v = xetile.load_tile %ta : !xetile.tile<32x64xf32> -> vector<32x64xf32>
  %r = xetile.reduction <add>, %v [1] : vector<32x64xf32> -> vector<32x1xf32>
  %m = xetile.reduction <maximumf>, %v [0] {reduction_size = 8 : i64} : vector<32x64xf32> -> vector<4x64xf32>
  %n = xetile.reduction <minnumf>, %v [1] {reduction_size = 16 : i64} : vector<32x64xf32> -> vector<32x4xf32>
  %rb = xetile.broadcast %r [1] : vector<32x1xf32> -> vector<32x64xf32>
  %mb = xetile.broadcast %m [0] {broadcast_size = 8 : i64} : vector<4x64xf32> -> vector<32x64xf32>
  %nb = xetile.broadcast %n [1] {broadcast_size = 16 : i64} : vector<32x4xf32> -> vector<32x64xf32>
  %s = arith.addf %rb, %mb : vector<32x64xf32>
  %u = arith.mulf %s, %nb : vector<32x64xf32>
  %to = xetile.init_tile %o[0, 0] : memref<32x64xf32> -> !xetile.tile<32x64xf32>
  xetile.store_tile %u, %to : vector<32x64xf32>, !xetile.tile<32x64xf32>
  %tp = xetile.init_tile %p[0, 0] : memref<32x64xi32> -> !xetile.tile<32x64xi32>
  %vi = xetile.load_tile %tp : !xetile.tile<32x64xi32> -> vector<32x64xi32>
  %mi = xetile.reduction <maxsi>, %vi [0] : vector<32x64xi32> -> vector<1x64xi32>
  %ai = xetile.reduction <minui>, %vi [1] : vector<32x64xi32> -> vector<32x1xi32>
  %mib = xetile.broadcast %mi [0] : vector<1x64xi32> -> vector<32x64xi32>
  %aib = xetile.broadcast %ai [1] : vector<32x1xi32> -> vector<32x64xi32>
  %xi = arith.xori %mib, %aib : vector<32x64xi32>
  %tq = xetile.init_tile %q[0, 0] : memref<32x64xi32> -> !xetile.tile<32x64xi32>
  xetile.store_tile %xi, %tq : vector<32x64xi32>, !xetile.tile<32x64xi32>
  return
}
