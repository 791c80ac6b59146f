// The RFC's spellings, as far as types leave one reading only.
#scattered = #xegpu.scatter_tdesc_attr<>
#tdesc_attr = #xegpu.scatter_tdesc_attr< memory_space=slm, chunk_size=8>
#tdesc_attr2 = #xegpu.block_tdesc_attr<memory_space=slm, boundary_check=false>
#sg_map_a = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>
#sg_map_b = #xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>
#layout_a = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 32], inst_data=[8,16], lane_layout=[1,16], lane_data = [1, 1], order=[1, 0]>
#layout_b = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], inst_data=[16,16], lane_layout=[1,16], lane_data = [2, 1], order=[1, 0]>
#layout_d = #xegpu.layout<sg_layout = [8, 4], sg_data = [32, 64], inst_data=[8,16], lane_layout=[1,16], lane_data = [1, 1], order=[1, 0]>
#red = #xegpu.slice<#layout_a, 1>
func.func @c(%mem_addr: ui64, %mref: memref<1024x1024xbf16>, %m4: memref<4x4x1024x1024xbf16>, %x: index, %y: index, %h: index, %w: index, %s: index, %slm: memref<1024xbf16, 3>, %offs: vector<16xindex>, %mask: vector<16xi1>, %id: i8, %va: vector<256x32xbf16>, %vb: vector<32x256xbf16>, %vc: vector<256x256xf32>, %ss: memref<4096xi16>) {
  %offsets:2 = "test.op"() : () -> (index, index)
  %base_shape:2 = "test.op"() : () -> (index, index)
  %base_stride:2 = "test.op"() : () -> (index, index)
  %t0 = xegpu.create_nd_tdesc %mem_addr, %offsets:2, %base_shape:2,%base_stride:2
		: uint64, index, index, index, index, index, index
     	into tensor_desc<8x16xbf16>
  %t1 = xegpu.create_nd_tdesc %mem_addr, %x, %y, %h, %w, %s, %x : ui64, index, index, index, index, index, index into tensor_desc<8x16xbf16, #xegpu.block_tdesc_attr<array_length=2>>
  %t2 = xegpu.create_nd_tdesc  %mref, %offsets:2
		: memref<1024x1024xbf16>, index, index
     	into tensor_desc<8x16xbf16>
  %off4:4 = "test.op"() : () -> (index, index, index, index)
  %t3 = xegpu.create_nd_tdesc  %m4, %off4:4 {mode =vc}
		: memref<4x4x1024x1024xbf16>, index, index
     	into tensor_desc<8x16xbf16>
  %t4 = xegpu.create_nd_tdesc %slm, %x :
		memref<1024xbf16, 3>, index into tensor_desc<16xbf16, #tdesc_attr2>
  %r0 = xegpu.load_nd %t2 {L1_hint = uncached, L3_hint = uncached} :
          tensor_desc<8x16xbf16> into vector<8x16xbf16>
  %f = xegpu.create_nd_tdesc %mem_addr[%x, %y], [%h, %w], [%w, 1] : ui64 -> !xegpu.tensor_desc<16x8xf32>
  %at = xegpu.load_nd %f {transpose = [1,0]} :
     tensor_desc<16x8xf32> into vector<8x16xf32>
  %t5 = xegpu.create_nd_tdesc %mref[0, 0] : memref<1024x1024xbf16> -> tensor_desc<16x16xbf16>
  %bt = xegpu.load_nd %t5 {packed} :
     tensor_desc<16x16xbf16> into vector<8x16x2xbf16>
  %t6 = xegpu.create_nd_tdesc %mref[0, 0] : memref<1024x1024xbf16> -> tensor_desc<32x16xbf16>
  %at2 = xegpu.load_nd %t6 {transpose = [1, 0], transpose_bit_width = 32} :
     tensor_desc<32x16xbf16> into vector<8x64xbf16>
  %vector_c = xegpu.dpas %r0, %bt :
     vector<8x16xbf16>, vector<8x16x2xbf16>
	   into vector<8x16xfloat>
  %r3 = vector.shape_cast %r0 : vector<8x16xbf16> to vector<8x8x2xbf16>
  %vector_c2 = xegpu.dpas %r3, %bt, %vector_c:
     vector<8x8x2xbf16>, vector<8x16x2xbf16>, vector<8x16xfloat>
	   into vector<8x16xfloat>
  %vector_c3 = xegpu.dpas %vector_c, %r3, %bt : vector<8x16xfloat>, vector<8x8x2xbf16>, vector<8x16x2xbf16> -> vector<8x16xfloat>
  %st = xegpu.create_nd_tdesc %mem_addr[%x, %y], [%h, %w], [%w, 1] : ui64 -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %vector_c2, %st:
          vector<8x16xf32>, tensor_desc<8x16xf32>
  xegpu.store_nd %st, %vector_c2: (tensor_desc<8x16xfloat>, vector<8x16xf32>)
  xegpu.prefetch_nd %t2: tensor_desc<8x16xbf16>
  %tdesc_updated = xegpu.update_nd_offset %t2, %offsets:2 :
  	  tensor_desc<8x16xbf16>, index, index into tensor_desc<8x16xbf16>
  %scatter_tdesc0 = xegpu.create_tdesc, %mem_addr, %offs :
     	uint64, vector<16xindex>, into tensor_desc<16xui8, #scattered>
  %chunk = xegpu.create_tdesc, %mem_addr, %offs :
		uint64, vector<16xindex> into tensor_desc<16x8xuint16, #tdesc_attr>
  %result0 = xegpu.load %scatter_tdesc0, %mask {L1_hint = cached, L2_hint = uncached} :
        	  tensor_desc<16xui8, #xegpu.scatter_tdesc_attr<>>, vector<16xi1> into vector<16xuint8>
  %result = xegpu.load %chunk, %mask {L1 = cached, L2 = uncached, transpose} :
          tensor_desc<16x8xui16, #tdesc_attr>, vector<16xi1> -> vector<8x16xui16>
  %sc1 = xegpu.create_tdesc %ss, %offs : memref<4096xi16>, vector<16xindex> -> tensor_desc<16xi16, #scattered>
  %v16 = xegpu.load %sc1, %mask : tensor_desc<16xi16, #scattered>, vector<16xi1> -> vector<16xi16>
  xegpu.store %v16, %sc1, %mask :
     	 vector<16xi16>, vector<16xi1>, tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  xegpu.prefetch %scatter_tdesc0 : tensor_desc<16xui8, #xegpu.scatter_tdesc_attr<>>
  %up = xegpu.update_offset %sc1, %offs :
  	tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>, vector<16xindex> into tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>
  %ret_value = xegpu.atomic_rmw "addi" %v16, %sc1, %mask :
          vector<16xi16>, tensor_desc<16xi16, #xegpu.scatter_tdesc_attr<>>, vector<16xi1> to vector<16xi16>
  xegpu.alloc_nbarrier %id: i8
  %nbarrier = xegpu.init_nbarrier %id, %id : i8, i8 into nbarrier
  xegpu.nbarrier_arrive %nbarrier
  xegpu.nbarrier_wait %nbarrier
  xegpu.fence {scope = "gpu",  memory_kind = "global", }
  %m1 = xegpu.create_nd_tdesc %mref[%x, %y] : memref<1024x1024xbf16> -> tensor_desc<8x16xbf16, #sg_map_a>
  %m2 = xegpu.create_nd_tdesc %mref[%x, %y] : memref<1024x1024xbf16> -> tensor_desc<16x16xbf16, #sg_map_b>
  %vector_a = xegpu.load_nd %m1: tensor_desc<8x16xbf16, #sg_map_a> into vector<8x1xbf16>
  %vector_b = xegpu.load_nd %m2: tensor_desc<16x16xbf16, #sg_map_b> into vector<8x2xbf16>
  %wi_c = xegpu.dpas %vector_a, %vector_b {#sg_map_a #sg_map_b #sg_map_a} :vector<8x1xbf16>, vector<8x2xbf16> into vector<8x1xfloat>
  %vector_d = xegpu.dpas %va, %vb, %vc {#layout_d}: vector<256x32xbf16>, vector<32x256xbf16>, vector<256x256xf32> into vector<256x256xfloat>
  %vector_e = xegpu.dpas %va, %vb {#layout_a #layout_b #layout_d} : (vector<256x32xbf16>, vector<32x256xbf16>) -> vector<256x256xf32>
  return
}
