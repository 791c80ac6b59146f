// A product whose lanes have three rows of A each, one after the other, and rows of C that lie apart: no bits of a lane's
// number tell whose row of A it needs.
#a = #xegpu.sg_map<wi_layout = [16, 1], wi_data = [3, 1]>
#b = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>
#c = #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>
gpu.module @m {
  gpu.func @k(%A: memref<48x4xf32>, %B: memref<4x16xf32>, %C: memref<48x16xf32>) kernel
    attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %A[%c0, %c0] : memref<48x4xf32> -> !xegpu.tensor_desc<48x4xf32, #a>
    %tb = xegpu.create_nd_tdesc %B[%c0, %c0] : memref<4x16xf32> -> !xegpu.tensor_desc<4x16xf32, #b>
    %tc = xegpu.create_nd_tdesc %C[%c0, %c0] : memref<48x16xf32> -> !xegpu.tensor_desc<48x16xf32, #c>
    %a = xegpu.load_nd %ta : !xegpu.tensor_desc<48x4xf32, #a> -> vector<4x3xf32>
    %b = xegpu.load_nd %tb : !xegpu.tensor_desc<4x16xf32, #b> -> vector<4x1xf32>
    %d = xegpu.dpas %a, %b {layout_a = #a, layout_b = #b, layout_cd = #c}
      : vector<4x3xf32>, vector<4x1xf32> -> vector<48x1xf32>
    xegpu.store_nd %d, %tc : vector<48x1xf32>, !xegpu.tensor_desc<48x16xf32, #c>
    gpu.return
  }
}
