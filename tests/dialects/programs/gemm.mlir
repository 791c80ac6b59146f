// A whole program: host code that launches a kernel over workgroup tiles, and checks nothing.
#map_a = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 32]>
#map_b = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#map_c = #xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>
#fetch = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 32]>
module @gemm attributes {gpu.container_module} {
  memref.global "private" constant @ones : memref<1x256xf32> = dense<1.0>
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func @run(%A: memref<1024x1024xf16>, %B: memref<1024x1024xf16>) -> memref<1024x1024xf32> attributes {llvm.emit_c_interface} {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c32 = arith.constant 32 : index
    %a = gpu.alloc host_shared () : memref<1024x1024xf16>
    memref.copy %A, %a : memref<1024x1024xf16> to memref<1024x1024xf16>
    %b = gpu.alloc () : memref<1024x1024xf16>
    gpu.memcpy %b, %B : memref<1024x1024xf16>, memref<1024x1024xf16>
    %c = gpu.alloc host_shared () : memref<1024x1024xf32>
    gpu.launch_func @kernels::@gemm blocks in (%c4, %c4, %c1) threads in (%c4, %c32, %c1) args(%a : memref<1024x1024xf16>, %b : memref<1024x1024xf16>, %c : memref<1024x1024xf32>)
    gpu.dealloc %a : memref<1024x1024xf16>
    gpu.dealloc %b : memref<1024x1024xf16>
    %u = memref.cast %c : memref<1024x1024xf32> to memref<*xf32>
    call @printMemrefF32(%u) : (memref<*xf32>) -> ()
    return %c : memref<1024x1024xf32>
  }
  gpu.module @kernels attributes {spirv.target_env = #spirv.target_env<#spirv.vce<v1.4, [Addresses, Kernel], [SPV_KHR_a]>, api=OpenCL, #spirv.resource_limits<>>} {
    gpu.func @gemm(%a: memref<1024x1024xf16>, %b: memref<1024x1024xf16>, %c: memref<1024x1024xf32>) kernel attributes {VectorComputeFunctionINTEL, spirv.entry_point_abi = #spirv.entry_point_abi<>} {
      %c0 = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %c256 = arith.constant 256 : index
      %c1024 = arith.constant 1024 : index
      %lowest = arith.constant dense<0xFF800000> : vector<256x256xf32>
      %x = gpu.block_id x
      %y = gpu.block_id  y
      %m = arith.muli %x, %c256 : index
      %n = index.mul %y, %c256
      %tc = xetile.init_tile %c[%m, %n] : memref<1024x1024xf32> -> !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #map_c>>
      %acc = xetile.load_tile %tc {padding = 0.0 : f32} : !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #map_c>> -> vector<256x256xf32>
      %ta = xetile.init_tile %a[%m, %c0] : memref<1024x1024xf16> -> !xetile.tile<256x32xf16, #map_a>
      %tb = xetile.init_tile %b[%c0, %n] : memref<1024x1024xf16> -> !xetile.tile<32x256xf16, #map_b>
      %fa = xetile.init_tile %a[%m, 64] : memref<1024x1024xf16> -> !xetile.tile<256x32xf16, #fetch>
      %r:4 = scf.for %k = %c0 to %c1024 step %c32 iter_args(%i0 = %acc, %i1 = %ta, %i2 = %tb, %i3 = %fa) -> (vector<256x256xf32>, !xetile.tile<256x32xf16, #map_a>, !xetile.tile<32x256xf16, #map_b>, !xetile.tile<256x32xf16, #fetch>) {
        xetile.prefetch_tile %i3 locality<2> : !xetile.tile<256x32xf16, #fetch>
        %va = xetile.load_tile %i1 : !xetile.tile<256x32xf16, #map_a> -> vector<256x32xf16>
        %vb = xetile.load_tile %i2 : !xetile.tile<32x256xf16, #map_b> -> vector<32x256xf16>
        %d = xetile.tile_mma %va, %vb, %i0 {wg_map_a = #map_a, wg_map_b = #map_b, wg_map_c = #map_c} : vector<256x32xf16>, vector<32x256xf16>, vector<256x256xf32> -> vector<256x256xf32>
        %n1 = xetile.update_tile_offset %i1, [%c0, %c32] : !xetile.tile<256x32xf16, #map_a>
        %n2 = xetile.update_tile_offset %i2, [%c32, %c0] : !xetile.tile<32x256xf16, #map_b>
        %n3 = xetile.update_tile_offset %i3, [0, 32] : !xetile.tile<256x32xf16, #fetch>
        scf.yield %d, %n1, %n2, %n3 : vector<256x256xf32>, !xetile.tile<256x32xf16, #map_a>, !xetile.tile<32x256xf16, #map_b>, !xetile.tile<256x32xf16, #fetch>
      }
      %big = arith.cmpf ogt, %r#0, %lowest {map = #map_c} : vector<256x256xf32>
      %kept = arith.select %big, %r#0, %lowest {map = #map_c} : vector<256x256xi1>, vector<256x256xf32>
      %top = xetile.reduction <maximumf>, %kept [1] {wg_map = #xetile.wg_map<sg_layout = [32, 1], sg_data = [8, 1]>} : vector<256x256xf32> -> vector<256x1xf32>
      %wide = xetile.broadcast %top [1] {wg_map = #map_c} : vector<256x1xf32> -> vector<256x256xf32>
      %out = arith.subf %kept, %wide {map = #map_c} : vector<256x256xf32>
      xetile.store_tile %out, %tc : vector<256x256xf32>, !xetile.tile<256x256xf32, #xetile.tile_attr<wg_map = #map_c>>
      gpu.barrier
      gpu.return
    }
  }
}
