"""Programs with multi-buffers, for tests: C = A B of 4 steps of k, with asynchronous products and two roles; and with
copies by threads."""

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

BUFFER = (
    "!stage.multi_buffer<3, [#stage.part<64x32xbf16, order = [1, 0], swizzle = 64>,"
    " #stage.part<32x40xbf16, order = [1, 0], swizzle = 0>]>"
)
STATE = "!stage.pipeline_state<3>"


def _fill(state: str, k: str, runs: str) -> str:
    """The copies of the iteration that begins at column `k` of A."""
    return f"""
    {k}a = xetile.init_tile %A[0, {k}], [64, %end], [%end, 1] : memref<64x?xbf16> -> !xetile.tile<64x32xbf16>
    {k}b = xetile.init_tile %B[{k}, 0], [%end, 40], [40, 1] : memref<?x40xbf16> -> !xetile.tile<32x40xbf16>
    {k}r = arith.cmpi slt, {k}, %end : index
    stage.copy.issue %r[{state}]{runs.replace("%runs", f"{k}r")}, {k}a, {k}b
      : {BUFFER}, {STATE}, !xetile.tile<64x32xbf16>, !xetile.tile<32x40xbf16>"""


COPIED = f"""
gpu.module @m {{
  gpu.func @k(%A: memref<64x?xbf16>, %B: memref<?x40xbf16>, %C: memref<64x40xf32>) kernel
      attributes {{tilewright.level = "workgroup"}} {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %end = memref.dim %A, %c1 : memref<64x?xbf16>
    %cst = arith.constant dense<0.0> : vector<64x40xf32>
    %r = stage.multi_buffer {{by_threads}} : {BUFFER}
    %s0 = stage.pipeline_state : {STATE} {_fill("%s0", "%c0", " when %runs")}
    %s1 = stage.advance %s0 : {STATE} {_fill("%s1", "%c32", " when %runs")}
    %s2 = stage.advance %s1 : {STATE}
    %e:3 = scf.for %k = %c0 to %end step %c32
        iter_args(%x = %cst, %w = %s2, %h = %s0) -> (vector<64x40xf32>, {STATE}, {STATE}) {{
      %a, %b = stage.copy.wait %r[%h] {{pending = 1 : i64}}
        : {BUFFER}, {STATE} -> vector<64x32xbf16>, vector<32x40xbf16>
      %k1 = arith.addi %k, %c32 : index
      %k2 = arith.addi %k1, %c32 : index {_fill("%w", "%k2", " when %runs")}
      %d = xetile.tile_mma %a, %b, %x
        : vector<64x32xbf16>, vector<32x40xbf16>, vector<64x40xf32> -> vector<64x40xf32>
      stage.copy.release %r[%h] : {BUFFER}, {STATE}
      %v = stage.advance %w : {STATE}
      %n = stage.advance %h : {STATE}
      scf.yield %d, %v, %n : vector<64x40xf32>, {STATE}, {STATE}
    }}
    stage.dealloc %r : {BUFFER}
    %t = xetile.init_tile %C[0, 0] : memref<64x40xf32> -> !xetile.tile<64x40xf32>
    xetile.store_tile %e#0, %t : vector<64x40xf32>, !xetile.tile<64x40xf32>
    gpu.return
  }}
}}
"""
"""C = A B with copies by threads, two iterations ahead; lines of B are no whole panels."""
