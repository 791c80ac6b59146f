"""A program with a multi-buffer, asynchronous products and two roles, for tests: C = A B of 4 steps of k."""

RING = (
    "!stage.multi_buffer<2, [#stage.part<128x64xbf16, order = [1, 0], swizzle = 128>,"
    " #stage.part<64x128xbf16, order = [1, 0], swizzle = 128>]>"
)
CURSOR = "!stage.pipeline_state<2>"
PENDING = "!stage.pending<vector<128x128xf32>>"

PRODUCT = f"""
gpu.module @m {{
  gpu.func @k(%A: memref<128x256xbf16>, %B: memref<256x128xbf16>, %C: memref<128x128xf32>) kernel
      attributes {{tilewright.level = "workgroup"}} {{
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %cst = arith.constant dense<0.0> : vector<128x128xf32>
    %r = stage.multi_buffer : {RING}
    %c = stage.pipeline_state : {CURSOR}
    stage.roles {{
      stage.role "copy" attributes {{warps = 4 : i64, registers = 40 : i64}} {{
        %e = scf.for %i = %c0 to %c4 step %c1 iter_args(%d = %c) -> ({CURSOR}) {{
          %k = arith.muli %i, %c64 : index
          %a = xetile.init_tile %A[0, %k] : memref<128x256xbf16> -> !xetile.tile<128x64xbf16>
          %b = xetile.init_tile %B[%k, 0] : memref<256x128xbf16> -> !xetile.tile<64x128xbf16>
          stage.copy.issue %r[%d], %a, %b
            : {RING}, {CURSOR}, !xetile.tile<128x64xbf16>, !xetile.tile<64x128xbf16>
          %n = stage.advance %d : {CURSOR}
          scf.yield %n : {CURSOR}
        }}
      }}
      stage.role "compute" attributes {{warps = 8 : i64}} {{
        %p0 = stage.mma.start %cst : vector<128x128xf32>
        %e:3 = scf.for %i = %c0 to %c4 step %c1
            iter_args(%d = %c, %q = %c, %p = %p0) -> ({CURSOR}, {CURSOR}, {PENDING}) {{
          %a, %b = stage.copy.wait %r[%d] : {RING}, {CURSOR} -> vector<128x64xbf16>, vector<64x128xbf16>
          %s = stage.mma.issue %a, %b, %p
            : vector<128x64xbf16>, vector<64x128xbf16>, {PENDING} -> {PENDING}
          stage.mma.wait {{pending = 1 : i64}}
          %more = arith.cmpi ne, %i, %c0 : index
          stage.copy.release %r[%q] when %more : {RING}, {CURSOR}
          %n = stage.advance %d : {CURSOR}
          scf.yield %n, %d, %s : {CURSOR}, {CURSOR}, {PENDING}
        }}
        %v = stage.mma.wait %e#2 : {PENDING} -> vector<128x128xf32> {{pending = 0 : i64}}
        stage.copy.release %r[%e#1] : {RING}, {CURSOR}
        %t = xetile.init_tile %C[0, 0] : memref<128x128xf32> -> !xetile.tile<128x128xf32>
        xetile.store_tile %v, %t : vector<128x128xf32>, !xetile.tile<128x128xf32>
      }}
    }}
    gpu.return
  }}
}}
"""
