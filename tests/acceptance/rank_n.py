"""Reductions, broadcasts and transpositions of three and four dimensions, as a kernel in text."""

RANK_N = """\
gpu.module @m {
  gpu.func @k(%A: memref<8x48xf32>, %B: memref<4x24xf32>, %C: memref<12x8xf32>)
      kernel attributes {tilewright.level = "workgroup"} {
    %t = xetile.init_tile %A[0, 0] : memref<8x48xf32> -> !xetile.tile<8x48xf32>
    %x = xetile.load_tile %t : !xetile.tile<8x48xf32> -> vector<8x48xf32>
    %y = vector.shape_cast %x : vector<8x48xf32> to vector<4x2x12x4xf32>
    %z = arith.constant dense<0.0> : vector<4x12xf32>
    %r = vector.multi_reduction <add>, %y, %z [1, 3] : vector<4x2x12x4xf32> to vector<4x12xf32>
    %b = vector.broadcast %r : vector<4x12xf32> to vector<2x4x12xf32>
    %bt = vector.transpose %b, [1, 2, 0] : vector<2x4x12xf32> to vector<4x12x2xf32>
    %s = vector.shape_cast %bt : vector<4x12x2xf32> to vector<4x24xf32>
    %o = xetile.init_tile %B[0, 0] : memref<4x24xf32> -> !xetile.tile<4x24xf32>
    xetile.store_tile %s, %o : vector<4x24xf32>, !xetile.tile<4x24xf32>
    %u = vector.transpose %y, [2, 0, 1, 3] : vector<4x2x12x4xf32> to vector<12x4x2x4xf32>
    %zz = arith.constant dense<0.0> : vector<12x4x2xf32>
    %q = vector.multi_reduction <maximumf>, %u, %zz [3] : vector<12x4x2x4xf32> to vector<12x4x2xf32>
    %qs = vector.shape_cast %q : vector<12x4x2xf32> to vector<12x8xf32>
    %p = xetile.init_tile %C[0, 0] : memref<12x8xf32> -> !xetile.tile<12x8xf32>
    xetile.store_tile %qs, %p : vector<12x8xf32>, !xetile.tile<12x8xf32>
    gpu.return
  }
}
"""
