// The fragments of the XeGPU RFC about sg_map as whole functions: programs of a lane, whose vectors are its fragments.
// Each lane stores its fragment as a row. tests/examples/test_rfc_fragments.py runs each and says what it must give.

#sg_map_a = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>
#sg_map_b = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>
#sg_map_t = #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>

gpu.module @lanes {
  // [xegpu 324-387] "Examples of WI distribution": 8x16 and 12x32 by single elements, 8x32 of i8 by pairs.
  gpu.func @fragments(%a: memref<64x64xbf16>, %oa: memref<16x8xbf16>, %b: memref<64x64xi8>, %ob: memref<16x16xi8>, %c: memref<64x64xbf16>, %oc: memref<16x24xbf16>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xbf16>
    %fa = vector.shape_cast %va : vector<8x1xbf16> to vector<8xbf16>
    vector.store %fa, %oa[%lane, %c0] : memref<16x8xbf16>, vector<8xbf16>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xi8> -> !xegpu.tensor_desc<8x32xi8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<8x32xi8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>> into vector<8x2xi8>
    %fb = vector.shape_cast %vb : vector<8x2xi8> to vector<16xi8>
    vector.store %fb, %ob[%lane, %c0] : memref<16x16xi8>, vector<16xi8>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<12x32xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<12x32xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<24x1xbf16>
    %fc = vector.shape_cast %vc : vector<24x1xbf16> to vector<24xbf16>
    vector.store %fc, %oc[%lane, %c0] : memref<16x24xbf16>, vector<24xbf16>
    gpu.return
  }

  // [xegpu 389-392] 12x32 of bf16 by pairs, which the RFC's rules for PVC and ARC then exclude.
  gpu.func @pairs_of_columns(%d: memref<64x64xbf16>, %od: memref<16x24xbf16>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %td = xegpu.create_nd_tdesc %d[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<12x32xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>>
    %vd = xegpu.load_nd %td : !xegpu.tensor_desc<12x32xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>> into vector<12x2xbf16>
    %fd = vector.shape_cast %vd : vector<12x2xbf16> to vector<24xbf16>
    vector.store %fd, %od[%lane, %c0] : memref<16x24xbf16>, vector<24xbf16>
    gpu.return
  }

  // [xegpu 394-400] wi_data of two rows: a lane's elements come packed, as "VNNI" has them.
  gpu.func @vnni_fragment(%b: memref<64x64xbf16>, %ob: memref<16x16xbf16>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<16x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<16x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>> into vector<8x2xbf16>
    %fb = vector.shape_cast %vb : vector<8x2xbf16> to vector<16xbf16>
    vector.store %fb, %ob[%lane, %c0] : memref<16x16xbf16>, vector<16xbf16>
    gpu.return
  }

  // [xegpu 402-422, 506] load_nd with transpose: of f32; of f16 by single elements, and by pairs as transpose_bit_width has them.
  gpu.func @transposed_fragments(%a: memref<64x64xf32>, %oa: memref<16x8xf32>, %b: memref<64x64xf16>, %ob: memref<16x16xf16>, %c: memref<64x64xbf16>, %oc: memref<16x16xbf16>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<16x8xf32, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta {transpose = [1, 0]} : !xegpu.tensor_desc<16x8xf32, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>> into vector<8x1xf32>
    %fa = vector.shape_cast %va : vector<8x1xf32> to vector<8xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<16x8xf32>, vector<8xf32>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xf16> -> !xegpu.tensor_desc<16x16xf16, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>>
    %vb = xegpu.load_nd %tb {transpose = [1, 0]} : !xegpu.tensor_desc<16x16xf16, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>> into vector<16x1xf16>
    %fb = vector.shape_cast %vb : vector<16x1xf16> to vector<16xf16>
    vector.store %fb, %ob[%lane, %c0] : memref<16x16xf16>, vector<16xf16>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<16x16xbf16, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 2]>>
    %vc = xegpu.load_nd %tc {transpose = [1, 0]} : !xegpu.tensor_desc<16x16xbf16, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 2]>> into vector<8x2xbf16>
    %fc = vector.shape_cast %vc : vector<8x2xbf16> to vector<16xbf16>
    vector.store %fc, %oc[%lane, %c0] : memref<16x16xbf16>, vector<16xbf16>
    gpu.return
  }

  // [xegpu 483-492, 533] "For matrix A load" on PVC: bf16, f16, 8 bits; tf32 is pvc_a_tf32.
  gpu.func @pvc_a(%a: memref<64x64xbf16>, %oa: memref<16x8xbf16>, %b: memref<64x64xf16>, %ob: memref<16x8xf16>, %c: memref<64x64xui8>, %oc: memref<16x16xui8>, %d: memref<64x64xsi8>, %od: memref<16x16xsi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xbf16>
    %fa = vector.shape_cast %va : vector<8x1xbf16> to vector<8xbf16>
    vector.store %fa, %oa[%lane, %c0] : memref<16x8xbf16>, vector<8xbf16>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<8x16xf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xf16>
    %fb = vector.shape_cast %vb : vector<8x1xf16> to vector<8xf16>
    vector.store %fb, %ob[%lane, %c0] : memref<16x8xf16>, vector<8xf16>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xui8> -> !xegpu.tensor_desc<8x32xui8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<8x32xui8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>> into vector<8x2xui8>
    %fc = vector.shape_cast %vc : vector<8x2xui8> to vector<16xui8>
    vector.store %fc, %oc[%lane, %c0] : memref<16x16xui8>, vector<16xui8>
    %td = xegpu.create_nd_tdesc %d[8, 16] : memref<64x64xsi8> -> !xegpu.tensor_desc<8x32xsi8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>>
    %vd = xegpu.load_nd %td : !xegpu.tensor_desc<8x32xsi8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>> into vector<8x2xsi8>
    %fd = vector.shape_cast %vd : vector<8x2xsi8> to vector<16xsi8>
    vector.store %fd, %od[%lane, %c0] : memref<16x16xsi8>, vector<16xsi8>
    gpu.return
  }

  // [xegpu 490] The same of tf32: 16 lanes in two rows of eight.
  gpu.func @pvc_a_tf32(%a: memref<64x64xf32>, %oa: memref<16x4xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [2, 8], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [2, 8], wi_data = [1, 1]>> into vector<4x1xf32>
    %fa = vector.shape_cast %va : vector<4x1xf32> to vector<4xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<16x4xf32>, vector<4xf32>
    gpu.return
  }

  // [xegpu 493-498] "For matrix B load" on PVC: bf16, f16, tf32, 8 bits.
  gpu.func @pvc_b(%a: memref<64x64xbf16>, %oa: memref<16x16xbf16>, %b: memref<64x64xf16>, %ob: memref<16x16xf16>, %c: memref<64x64xf32>, %oc: memref<16x8xf32>, %d: memref<64x64xui8>, %od: memref<16x32xui8>, %e: memref<64x64xsi8>, %oe: memref<16x32xsi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<16x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<16x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>> into vector<8x2xbf16>
    %fa = vector.shape_cast %va : vector<8x2xbf16> to vector<16xbf16>
    vector.store %fa, %oa[%lane, %c0] : memref<16x16xbf16>, vector<16xbf16>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xf16> -> !xegpu.tensor_desc<16x16xf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<16x16xf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>> into vector<8x2xf16>
    %fb = vector.shape_cast %vb : vector<8x2xf16> to vector<16xf16>
    vector.store %fb, %ob[%lane, %c0] : memref<16x16xf16>, vector<16xf16>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<8x16xf32, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xf32>
    %fc = vector.shape_cast %vc : vector<8x1xf32> to vector<8xf32>
    vector.store %fc, %oc[%lane, %c0] : memref<16x8xf32>, vector<8xf32>
    %td = xegpu.create_nd_tdesc %d[8, 16] : memref<64x64xui8> -> !xegpu.tensor_desc<32x16xui8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [4, 1]>>
    %vd = xegpu.load_nd %td : !xegpu.tensor_desc<32x16xui8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [4, 1]>> into vector<8x4xui8>
    %fd = vector.shape_cast %vd : vector<8x4xui8> to vector<32xui8>
    vector.store %fd, %od[%lane, %c0] : memref<16x32xui8>, vector<32xui8>
    %te = xegpu.create_nd_tdesc %e[8, 16] : memref<64x64xsi8> -> !xegpu.tensor_desc<32x16xsi8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [4, 1]>>
    %ve = xegpu.load_nd %te : !xegpu.tensor_desc<32x16xsi8, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [4, 1]>> into vector<8x4xsi8>
    %fe = vector.shape_cast %ve : vector<8x4xsi8> to vector<32xsi8>
    vector.store %fe, %oe[%lane, %c0] : memref<16x32xsi8>, vector<32xsi8>
    gpu.return
  }

  // [xegpu 499-504] "For matrix C load", and load of any type, on PVC.
  gpu.func @pvc_c(%a: memref<64x64xf32>, %oa: memref<16x8xf32>, %b: memref<64x64xi32>, %ob: memref<16x8xi32>, %c: memref<64x64xbf16>, %oc: memref<16x8xbf16>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xf32, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xf32>
    %fa = vector.shape_cast %va : vector<8x1xf32> to vector<8xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<16x8xf32>, vector<8xf32>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xi32> -> !xegpu.tensor_desc<8x16xi32, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<8x16xi32, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xi32>
    %fb = vector.shape_cast %vb : vector<8x1xi32> to vector<8xi32>
    vector.store %fb, %ob[%lane, %c0] : memref<16x8xi32>, vector<8xi32>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<8x1xbf16>
    %fc = vector.shape_cast %vc : vector<8x1xbf16> to vector<8xbf16>
    vector.store %fc, %oc[%lane, %c0] : memref<16x8xbf16>, vector<8xbf16>
    gpu.return
  }

  // [xegpu 509-517] "For matrix A load" on ARC: subgroups of 8 lanes, 32 bits each.
  gpu.func @arc_a(%a: memref<64x64xbf16>, %oa: memref<8x16xbf16>, %b: memref<64x64xf16>, %ob: memref<8x16xf16>, %c: memref<64x64xf32>, %oc: memref<8x8xf32>, %d: memref<64x64xui8>, %od: memref<8x32xui8>, %e: memref<64x64xsi8>, %oe: memref<8x32xsi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xbf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>> into vector<8x2xbf16>
    %fa = vector.shape_cast %va : vector<8x2xbf16> to vector<16xbf16>
    vector.store %fa, %oa[%lane, %c0] : memref<8x16xbf16>, vector<16xbf16>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<8x16xf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>> into vector<8x2xf16>
    %fb = vector.shape_cast %vb : vector<8x2xf16> to vector<16xf16>
    vector.store %fb, %ob[%lane, %c0] : memref<8x16xf16>, vector<16xf16>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>> into vector<8x1xf32>
    %fc = vector.shape_cast %vc : vector<8x1xf32> to vector<8xf32>
    vector.store %fc, %oc[%lane, %c0] : memref<8x8xf32>, vector<8xf32>
    %td = xegpu.create_nd_tdesc %d[8, 16] : memref<64x64xui8> -> !xegpu.tensor_desc<8x32xui8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>>
    %vd = xegpu.load_nd %td : !xegpu.tensor_desc<8x32xui8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>> into vector<8x4xui8>
    %fd = vector.shape_cast %vd : vector<8x4xui8> to vector<32xui8>
    vector.store %fd, %od[%lane, %c0] : memref<8x32xui8>, vector<32xui8>
    %te = xegpu.create_nd_tdesc %e[8, 16] : memref<64x64xsi8> -> !xegpu.tensor_desc<8x32xsi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>>
    %ve = xegpu.load_nd %te : !xegpu.tensor_desc<8x32xsi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>> into vector<8x4xsi8>
    %fe = vector.shape_cast %ve : vector<8x4xsi8> to vector<32xsi8>
    vector.store %fe, %oe[%lane, %c0] : memref<8x32xsi8>, vector<32xsi8>
    gpu.return
  }

  // [xegpu 518-523] "For matrix B load" on ARC.
  gpu.func @arc_b(%a: memref<64x64xbf16>, %oa: memref<8x16xbf16>, %b: memref<64x64xf16>, %ob: memref<8x16xf16>, %c: memref<64x64xf32>, %oc: memref<8x8xf32>, %d: memref<64x64xui8>, %od: memref<8x32xui8>, %e: memref<64x64xsi8>, %oe: memref<8x32xsi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<16x8xbf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [2, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<16x8xbf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [2, 1]>> into vector<8x2xbf16>
    %fa = vector.shape_cast %va : vector<8x2xbf16> to vector<16xbf16>
    vector.store %fa, %oa[%lane, %c0] : memref<8x16xbf16>, vector<16xbf16>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xf16> -> !xegpu.tensor_desc<16x8xf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [2, 1]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<16x8xf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [2, 1]>> into vector<8x2xf16>
    %fb = vector.shape_cast %vb : vector<8x2xf16> to vector<16xf16>
    vector.store %fb, %ob[%lane, %c0] : memref<8x16xf16>, vector<16xf16>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>> into vector<8x1xf32>
    %fc = vector.shape_cast %vc : vector<8x1xf32> to vector<8xf32>
    vector.store %fc, %oc[%lane, %c0] : memref<8x8xf32>, vector<8xf32>
    %td = xegpu.create_nd_tdesc %d[8, 16] : memref<64x64xui8> -> !xegpu.tensor_desc<32x8xui8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>>
    %vd = xegpu.load_nd %td : !xegpu.tensor_desc<32x8xui8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>> into vector<8x4xui8>
    %fd = vector.shape_cast %vd : vector<8x4xui8> to vector<32xui8>
    vector.store %fd, %od[%lane, %c0] : memref<8x32xui8>, vector<32xui8>
    %te = xegpu.create_nd_tdesc %e[8, 16] : memref<64x64xsi8> -> !xegpu.tensor_desc<32x8xsi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>>
    %ve = xegpu.load_nd %te : !xegpu.tensor_desc<32x8xsi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>> into vector<8x4xsi8>
    %fe = vector.shape_cast %ve : vector<8x4xsi8> to vector<32xsi8>
    vector.store %fe, %oe[%lane, %c0] : memref<8x32xsi8>, vector<32xsi8>
    gpu.return
  }

  // [xegpu 524-531] "For matrix C load", load of any type, and with transpose, on ARC.
  gpu.func @arc_c(%a: memref<64x64xf32>, %oa: memref<8x8xf32>, %b: memref<64x64xi32>, %ob: memref<8x8xi32>, %c: memref<64x64xbf16>, %oc: memref<8x8xbf16>, %d: memref<64x64xf32>, %od: memref<8x8xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>> into vector<8x1xf32>
    %fa = vector.shape_cast %va : vector<8x1xf32> to vector<8xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<8x8xf32>, vector<8xf32>
    %tb = xegpu.create_nd_tdesc %b[8, 16] : memref<64x64xi32> -> !xegpu.tensor_desc<8x8xi32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<8x8xi32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>> into vector<8x1xi32>
    %fb = vector.shape_cast %vb : vector<8x1xi32> to vector<8xi32>
    vector.store %fb, %ob[%lane, %c0] : memref<8x8xi32>, vector<8xi32>
    %tc = xegpu.create_nd_tdesc %c[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x8xbf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<8x8xbf16, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>> into vector<8x1xbf16>
    %fc = vector.shape_cast %vc : vector<8x1xbf16> to vector<8xbf16>
    vector.store %fc, %oc[%lane, %c0] : memref<8x8xbf16>, vector<8xbf16>
    %td = xegpu.create_nd_tdesc %d[8, 16] : memref<64x64xf32> -> !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 1]>>
    %vd = xegpu.load_nd %td {transpose = [1, 0]} : !xegpu.tensor_desc<8x8xf32, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 1]>> into vector<8x1xf32>
    %fd = vector.shape_cast %vd : vector<8x1xf32> to vector<8xf32>
    vector.store %fd, %od[%lane, %c0] : memref<8x8xf32>, vector<8xf32>
    gpu.return
  }

  // [xegpu 613-617] "For 1D block load" on PVC, of 32 bits.
  gpu.func @pvc_lines(%a: memref<1024xf32>, %oa: memref<16x2xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[64] : memref<1024xf32> -> !xegpu.tensor_desc<32xf32, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<32xf32, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>> into vector<2x1xf32>
    %fa = vector.shape_cast %va : vector<2x1xf32> to vector<2xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<16x2xf32>, vector<2xf32>
    gpu.return
  }

  // [xegpu 424-434, 613-619] "For 1D block load" on PVC, of 16 and 8 bits: 32 bits for each lane.
  gpu.func @pvc_packed_lines(%b: memref<1024xbf16>, %ob: memref<16x4xbf16>, %c: memref<1024xi8>, %oc: memref<16x8xi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %tb = xegpu.create_nd_tdesc %b[64] : memref<1024xbf16> -> !xegpu.tensor_desc<64xbf16, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<64xbf16, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>> into vector<2x2xbf16>
    %fb = vector.shape_cast %vb : vector<2x2xbf16> to vector<4xbf16>
    vector.store %fb, %ob[%lane, %c0] : memref<16x4xbf16>, vector<4xbf16>
    %tc = xegpu.create_nd_tdesc %c[64] : memref<1024xi8> -> !xegpu.tensor_desc<128xi8, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 4]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<128xi8, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 4]>> into vector<2x4xi8>
    %fc = vector.shape_cast %vc : vector<2x4xi8> to vector<8xi8>
    vector.store %fc, %oc[%lane, %c0] : memref<16x8xi8>, vector<8xi8>
    gpu.return
  }

  // [xegpu 457-479, 621-624] "For regular load with chunk_size" on PVC.
  gpu.func @pvc_chunks(%a: memref<1024xf32>, %oa: memref<16x4xf32>, %b: memref<1024xbf16>, %ob: memref<16x8xbf16>, %c: memref<1024xi8>, %oc: memref<16x8xi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %lanes = vector.step : vector<16xindex>
    %eight = arith.constant dense<8> : vector<16xindex>
    %offsets = arith.muli %lanes, %eight : vector<16xindex>
    %mask = arith.constant dense<true> : vector<16xi1>
    %ta = xegpu.create_tdesc %a, %offsets : memref<1024xf32>, vector<16xindex> into !xegpu.tensor_desc<16x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>>
    %va = xegpu.load %ta, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]} : !xegpu.tensor_desc<16x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 1]>>, vector<16xi1> -> vector<4x1xf32>
    %fa = vector.shape_cast %va : vector<4x1xf32> to vector<4xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<16x4xf32>, vector<4xf32>
    %tb = xegpu.create_tdesc %b, %offsets : memref<1024xbf16>, vector<16xindex> into !xegpu.tensor_desc<16x8xbf16, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 2]>>
    %vb = xegpu.load %tb, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]} : !xegpu.tensor_desc<16x8xbf16, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 2]>>, vector<16xi1> -> vector<4x2xbf16>
    %fb = vector.shape_cast %vb : vector<4x2xbf16> to vector<8xbf16>
    vector.store %fb, %ob[%lane, %c0] : memref<16x8xbf16>, vector<8xbf16>
    %tc = xegpu.create_tdesc %c, %offsets : memref<1024xi8>, vector<16xindex> into !xegpu.tensor_desc<16x8xi8, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 4]>>
    %vc = xegpu.load %tc, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]} : !xegpu.tensor_desc<16x8xi8, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [16, 1], wi_data = [1, 4]>>, vector<16xi1> -> vector<2x4xi8>
    %fc = vector.shape_cast %vc : vector<2x4xi8> to vector<8xi8>
    vector.store %fc, %oc[%lane, %c0] : memref<16x8xi8>, vector<8xi8>
    gpu.return
  }

  // [xegpu 626-628] "For 1D block load" on ARC, of 32 bits.
  gpu.func @arc_lines(%a: memref<1024xf32>, %oa: memref<8x2xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %ta = xegpu.create_nd_tdesc %a[64] : memref<1024xf32> -> !xegpu.tensor_desc<16xf32, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    %va = xegpu.load_nd %ta : !xegpu.tensor_desc<16xf32, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>> into vector<2x1xf32>
    %fa = vector.shape_cast %va : vector<2x1xf32> to vector<2xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<8x2xf32>, vector<2xf32>
    gpu.return
  }

  // [xegpu 626-630] "For 1D block load" on ARC, of 16 and 8 bits.
  gpu.func @arc_packed_lines(%b: memref<1024xbf16>, %ob: memref<8x4xbf16>, %c: memref<1024xi8>, %oc: memref<8x8xi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %tb = xegpu.create_nd_tdesc %b[64] : memref<1024xbf16> -> !xegpu.tensor_desc<32xbf16, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>>
    %vb = xegpu.load_nd %tb : !xegpu.tensor_desc<32xbf16, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 2]>> into vector<2x2xbf16>
    %fb = vector.shape_cast %vb : vector<2x2xbf16> to vector<4xbf16>
    vector.store %fb, %ob[%lane, %c0] : memref<8x4xbf16>, vector<4xbf16>
    %tc = xegpu.create_nd_tdesc %c[64] : memref<1024xi8> -> !xegpu.tensor_desc<64xi8, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>>
    %vc = xegpu.load_nd %tc : !xegpu.tensor_desc<64xi8, #xegpu.block_tdesc_attr<boundary_check = false>, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>> into vector<2x4xi8>
    %fc = vector.shape_cast %vc : vector<2x4xi8> to vector<8xi8>
    vector.store %fc, %oc[%lane, %c0] : memref<8x8xi8>, vector<8xi8>
    gpu.return
  }

  // [xegpu 632-635] "For regular load with chunk_size" on ARC.
  gpu.func @arc_chunks(%a: memref<1024xf32>, %oa: memref<8x4xf32>, %b: memref<1024xbf16>, %ob: memref<8x8xbf16>, %c: memref<1024xi8>, %oc: memref<8x8xi8>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %lanes = vector.step : vector<8xindex>
    %eight = arith.constant dense<8> : vector<8xindex>
    %offsets = arith.muli %lanes, %eight : vector<8xindex>
    %mask = arith.constant dense<true> : vector<8xi1>
    %ta = xegpu.create_tdesc %a, %offsets : memref<1024xf32>, vector<8xindex> into !xegpu.tensor_desc<8x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 1]>>
    %va = xegpu.load %ta, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]} : !xegpu.tensor_desc<8x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 1]>>, vector<8xi1> -> vector<4x1xf32>
    %fa = vector.shape_cast %va : vector<4x1xf32> to vector<4xf32>
    vector.store %fa, %oa[%lane, %c0] : memref<8x4xf32>, vector<4xf32>
    %tb = xegpu.create_tdesc %b, %offsets : memref<1024xbf16>, vector<8xindex> into !xegpu.tensor_desc<8x8xbf16, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 2]>>
    %vb = xegpu.load %tb, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]} : !xegpu.tensor_desc<8x8xbf16, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 2]>>, vector<8xi1> -> vector<4x2xbf16>
    %fb = vector.shape_cast %vb : vector<4x2xbf16> to vector<8xbf16>
    vector.store %fb, %ob[%lane, %c0] : memref<8x8xbf16>, vector<8xbf16>
    %tc = xegpu.create_tdesc %c, %offsets : memref<1024xi8>, vector<8xindex> into !xegpu.tensor_desc<8x8xi8, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 4]>>
    %vc = xegpu.load %tc, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]} : !xegpu.tensor_desc<8x8xi8, #xegpu.scatter_tdesc_attr<chunk_size = 8>, #xegpu.sg_map<wi_layout = [8, 1], wi_data = [1, 4]>>, vector<8xi1> -> vector<2x4xi8>
    %fc = vector.shape_cast %vc : vector<2x4xi8> to vector<8xi8>
    vector.store %fc, %oc[%lane, %c0] : memref<8x8xi8>, vector<8xi8>
    gpu.return
  }

  // [xegpu 435-444] A load of two blocks, one behind the other in a lane's fragment.
  gpu.func @array_length(%a: memref<64x64xbf16>, %o: memref<16x16xbf16>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %tdesc2 = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16>
        -> !xegpu.tensor_desc<8x16xbf16, #xegpu.block_tdesc_attr<array_length = 2>, #sg_map_a>
    %result = xegpu.load_nd %tdesc2 {L1_hint = uncached, L3_hint = uncached}
        : !xegpu.tensor_desc<8x16xbf16, #xegpu.block_tdesc_attr<array_length = 2>, #sg_map_a> into vector<16x1xbf16>
    %f = vector.shape_cast %result : vector<16x1xbf16> to vector<16xbf16>
    vector.store %f, %o[%lane, %c0] : memref<16x16xbf16>, vector<16xbf16>
    gpu.return
  }

  // [xegpu 446-455] A regular load of one element for each lane.
  gpu.func @single(%a: memref<64xf32>, %c: memref<16x1xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lane = gpu.lane_id
    %c0 = arith.constant 0 : index
    %lanes = vector.step : vector<16xindex>
    %three = arith.constant dense<3> : vector<16xindex>
    %offsets = arith.muli %lanes, %three : vector<16xindex>
    %mask = arith.constant dense<true> : vector<1xi1>
    %scatter_tdesc = xegpu.create_tdesc %a, %offsets : memref<64xf32>, vector<16xindex>
        into !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>, #sg_map_a>
    %result = xegpu.load %scatter_tdesc, %mask {L1 = cached, L2 = uncached}
        : !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>, #sg_map_a>, vector<1xi1> -> vector<1xf32>
    vector.store %result, %c[%lane, %c0] : memref<16x1xf32>, vector<1xf32>
    gpu.return
  }

  // [xegpu 536-546] dpas on fragments, "PVC BF16 example".
  gpu.func @dpas_pvc(%a: memref<64x64xbf16>, %b: memref<64x64xbf16>, %c: memref<64x64xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xbf16> -> !xegpu.tensor_desc<8x16xbf16, #sg_map_a>
    %vector_a = xegpu.load_nd %ta : !xegpu.tensor_desc<8x16xbf16, #sg_map_a> into vector<8x1xbf16>
    %tb = xegpu.create_nd_tdesc %b[16, 32] : memref<64x64xbf16> -> !xegpu.tensor_desc<16x16xbf16, #sg_map_b>
    %vector_b = xegpu.load_nd %tb : !xegpu.tensor_desc<16x16xbf16, #sg_map_b> into vector<8x2xbf16>
    %vector_c = xegpu.dpas %vector_a, %vector_b {#sg_map_a} : vector<8x1xbf16>, vector<8x2xbf16> into vector<8x1xfloat>
    %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32, #sg_map_a>
    xegpu.store_nd %vector_c, %tc : vector<8x1xfloat>, !xegpu.tensor_desc<8x16xf32, #sg_map_a>
    gpu.return
  }

  // [xegpu 548-555] dpas on fragments, "ARC int8 example".
  gpu.func @dpas_arc(%a: memref<64x64xi8>, %b: memref<64x64xi8>, %c: memref<64x64xi32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 8 : i64} {
    %ta = xegpu.create_nd_tdesc %a[8, 16] : memref<64x64xi8> -> !xegpu.tensor_desc<8x32xi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>>
    %vector_a = xegpu.load_nd %ta : !xegpu.tensor_desc<8x32xi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 4]>> into vector<8x4xi8>
    %tb = xegpu.create_nd_tdesc %b[16, 32] : memref<64x64xi8> -> !xegpu.tensor_desc<32x8xi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>>
    %vector_b = xegpu.load_nd %tb : !xegpu.tensor_desc<32x8xi8, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [4, 1]>> into vector<8x4xi8>
    %vector_c = xegpu.dpas %vector_a, %vector_b {#xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>} : vector<8x4xi8>, vector<8x4xi8> into vector<8x1xi32>
    %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<64x64xi32> -> !xegpu.tensor_desc<8x8xi32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    xegpu.store_nd %vector_c, %tc : vector<8x1xi32>, !xegpu.tensor_desc<8x8xi32, #xegpu.sg_map<wi_layout = [1, 8], wi_data = [1, 1]>>
    gpu.return
  }

  // [xegpu 638-669] "sg_map use case - 2D load": lanes own columns; B comes in pairs of rows.
  gpu.func @sg_map_2d(%a: memref<8x16xbf16>, %b: memref<16x16xbf16>, %c: memref<8x16xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %tdesc1 = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xbf16> -> !xegpu.tensor_desc<8x16xbf16, #sg_map_a>
    %vector_a = xegpu.load_nd %tdesc1 : !xegpu.tensor_desc<8x16xbf16, #sg_map_a> into vector<8x1xbf16>
    xegpu.prefetch_nd %tdesc1 : !xegpu.tensor_desc<8x16xbf16, #sg_map_a>
    %tdesc2 = xegpu.create_nd_tdesc %b[0, 0] : memref<16x16xbf16> -> !xegpu.tensor_desc<16x16xbf16, #sg_map_b>
    %vector_b = xegpu.load_nd %tdesc2 : !xegpu.tensor_desc<16x16xbf16, #sg_map_b> into vector<8x2xbf16>
    %vector_c = xegpu.dpas %vector_a, %vector_b {#sg_map_a #sg_map_b #sg_map_a}
        : vector<8x1xbf16>, vector<8x2xbf16> into vector<8x1xfloat>
    %tdesc3 = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32, #sg_map_a>
    xegpu.store_nd %vector_c, %tdesc3 : vector<8x1xfloat>, !xegpu.tensor_desc<8x16xf32, #sg_map_a>
    gpu.return
  }

  // [xegpu 671-692] "sg_map use case - regular load": a transpose by a load with chunks.
  gpu.func @sg_map_chunks(%a: memref<64xf32>, %c: memref<64xf32>) kernel
      attributes {tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64} {
    %lanes = vector.step : vector<16xindex>
    %four = arith.constant dense<4> : vector<16xindex>
    %offsets = arith.muli %lanes, %four : vector<16xindex>
    %mask = arith.constant dense<true> : vector<16xi1>
    %chunk = xegpu.create_tdesc %a, %offsets {chunk_size = 4} : memref<64xf32>, vector<16xindex>
        into !xegpu.tensor_desc<16x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #sg_map_t>
    %v = xegpu.load %chunk, %mask {L1 = cached, L2 = uncached, transpose = [1, 0]}
        : !xegpu.tensor_desc<16x4xf32, #xegpu.scatter_tdesc_attr<chunk_size = 4>, #sg_map_t>, vector<16xi1> -> vector<4x1xf32>
    %value = vector.shape_cast %v : vector<4x1xf32> to vector<4xf32>
    %to = xegpu.create_nd_tdesc %c[0] : memref<64xf32>
        -> !xegpu.tensor_desc<64xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
    xegpu.store_nd %value, %to : vector<4xf32>, !xegpu.tensor_desc<64xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
    gpu.return
  }
}
