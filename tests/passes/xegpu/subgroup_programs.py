# ruff: noqa: E501
"""Programs of one subgroup, each about one op: bodies of a kernel over arrays %a, %b, .."""

from __future__ import annotations

from dataclasses import dataclass

T = "!xegpu.tensor_desc"


@dataclass(frozen=True)
class Array:
    element: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"memref<{'x'.join(map(str, self.shape))}x{self.element}>"


@dataclass(frozen=True)
class Program:
    arrays: tuple[Array, ...]
    body: str


def load(name: str, array: str, of: Array, shape: tuple[int, ...], at: str = "%y, %x") -> str:
    block = f"{'x'.join(map(str, shape))}x{of.element}"
    return f"""
    %t{name} = xegpu.create_nd_tdesc %{array} : {of} -> {T}<{block}>
    %{name} = xegpu.load_nd %t{name}[{at}] : {T}<{block}> -> vector<{block}>"""


def store(name: str, array: str, of: Array, shape: tuple[int, ...], at: str = "%y, %x") -> str:
    block = f"{'x'.join(map(str, shape))}x{of.element}"
    return f"""
    %ts{name} = xegpu.create_nd_tdesc %{array} : {of} -> {T}<{block}>
    xegpu.store_nd %{name}, %ts{name}[{at}] : vector<{block}>, {T}<{block}>"""


WIDE = Array("f32", (32, 64))
HALF = Array("f16", (32, 64))
ROW = Array("f32", (1024,))


def unary(body: str, source: Array = WIDE, target: Array = WIDE, result: str = "q") -> Program:
    """Loads all of %a as %v, computes, stores %q to all of %b."""
    return Program(
        (source, target),
        load("v", "a", source, source.shape) + body + store(result, "b", target, target.shape),
    )


PROGRAMS: dict[str, Program] = {
    "elementwise": unary("""
    %z = arith.constant dense<0.25> : vector<32x64xf32>
    %q = arith.maximumf %v, %z : vector<32x64xf32>"""),
    "outside": Program(
        (Array("f32", (30, 64)), Array("f32", (30, 64))),
        load("v", "a", Array("f32", (30, 64)), (32, 64), "3, -5")
        + store("v", "b", Array("f32", (30, 64)), (32, 64), "2, 5"),
    ),
    "rows reduced": unary("""
    %z = arith.constant dense<0.0> : vector<32xf32>
    %r = vector.multi_reduction <add>, %v, %z [1] : vector<32x64xf32> to vector<32xf32>
    %rc = vector.shape_cast %r : vector<32xf32> to vector<32x1xf32>
    %rb = vector.broadcast %rc : vector<32x1xf32> to vector<32x64xf32>
    %q = arith.subf %v, %rb : vector<32x64xf32>"""),
    "columns reduced": unary("""
    %z = arith.constant dense<0.0> : vector<64xf32>
    %r = vector.multi_reduction <maximumf>, %v, %z [0] : vector<32x64xf32> to vector<64xf32>
    %rb = vector.broadcast %r : vector<64xf32> to vector<32x64xf32>
    %q = arith.subf %v, %rb : vector<32x64xf32>"""),
    "all reduced": unary("""
    %z = arith.constant 1.5 : f32
    %r = vector.multi_reduction <minnumf>, %v, %z [0, 1] : vector<32x64xf32> to f32
    %rb = vector.broadcast %r : f32 to vector<32x64xf32>
    %q = arith.subf %v, %rb : vector<32x64xf32>"""),
    "transpose": unary(
        "\n    %q = vector.transpose %v, [1, 0] : vector<32x64xf32> to vector<64x32xf32>",
        target=Array("f32", (64, 32)),
    ),
    "transpose of 16 bits": unary(
        """
    %r = vector.transpose %v, [1, 0] : vector<32x64xf16> to vector<64x32xf16>
    %q = arith.addf %r, %r : vector<64x32xf16>""",
        HALF,
        Array("f16", (64, 32)),
    ),
    "transpose and itself": unary(
        """
    %r = vector.transpose %v, [1, 0] : vector<32x32xf32> to vector<32x32xf32>
    %q = arith.subf %r, %v : vector<32x32xf32>""",
        Array("f32", (32, 32)),
        Array("f32", (32, 32)),
    ),
    "bitcast to wider": unary(
        "\n    %q = vector.bitcast %v : vector<32x64xf16> to vector<32x32xi32>",
        HALF,
        Array("i32", (32, 32)),
    ),
    "bitcast to narrower": unary(
        "\n    %q = vector.bitcast %v : vector<32x32xi32> to vector<32x64xi16>",
        Array("i32", (32, 32)),
        Array("i16", (32, 64)),
    ),
    "cast": unary(
        "\n    %q = arith.sitofp %v : vector<32x64xi8> to vector<32x64xf32>",
        Array("i8", (32, 64)),
    ),
    "shape_cast": unary(
        "\n    %q = vector.shape_cast %v : vector<32x64xf32> to vector<64x32xf32>",
        target=Array("f32", (64, 32)),
    ),
    "shape_cast to 3-D": Program(
        (WIDE, Array("f32", (8, 64))),
        load("v", "a", WIDE, (32, 64))
        + """
    %r = vector.shape_cast %v : vector<32x64xf32> to vector<4x8x64xf32>
    %z = arith.constant dense<0.0> : vector<8x64xf32>
    %q = vector.multi_reduction <add>, %r, %z [0] : vector<4x8x64xf32> to vector<8x64xf32>"""
        + store("q", "b", Array("f32", (8, 64)), (8, 64)),
    ),
    "slices": unary("""
    %p = vector.extract_strided_slice %v {offsets = [5, 3], sizes = [16, 32], strides = [1, 1]} : vector<32x64xf32> to vector<16x32xf32>
    %r = vector.insert_strided_slice %p, %v {offsets = [2, 7], strides = [1, 1]} : vector<16x32xf32> into vector<32x64xf32>
    %e = vector.extract %v[3, 9] : f32 from vector<32x64xf32>
    %w = vector.extract %v[4] : vector<64xf32> from vector<32x64xf32>
    %r1 = vector.insert %e, %r [1, 2] : f32 into vector<32x64xf32>
    %q = vector.insert %w, %r1 [30] : vector<64xf32> into vector<32x64xf32>"""),
    "interleave": Program(
        (WIDE, WIDE),
        load("v", "a", WIDE, (32, 32))
        + "\n    %q = vector.interleave %v, %v : vector<32x32xf32> -> vector<32x64xf32>"
        + store("q", "b", WIDE, (32, 64)),
    ),
    "a constant of many numbers": unary(f"""
    %k = arith.constant dense<[{", ".join(str(float(i * i % 17)) for i in range(64))}]> : vector<64xf32>
    %kb = vector.broadcast %k : vector<64xf32> to vector<32x64xf32>
    %q = arith.subf %v, %kb : vector<32x64xf32>"""),
    "narrow": unary(
        "\n    %q = arith.mulf %v, %v : vector<32x8xf32>",
        Array("f32", (32, 8)),
        Array("f32", (32, 8)),
    ),
    "one column": Program(
        (Array("f32", (64, 1)), Array("f32", (64, 1))),
        load("v", "a", Array("f32", (64, 1)), (32, 1), "40, %x")
        + "\n    %q = arith.mulf %v, %v : vector<32x1xf32>"
        + store("q", "b", Array("f32", (64, 1)), (32, 1), "40, %x"),
    ),
    "odd extents": Program(
        (Array("f32", (20, 100)), Array("f32", (20, 100))),
        load("v", "a", Array("f32", (20, 100)), (20, 24))
        + "\n    %q = arith.mulf %v, %v : vector<20x24xf32>"
        + store("q", "b", Array("f32", (20, 100)), (20, 24)),
    ),
    "a pitch that blocks cannot have": Program(
        (Array("f16", (33, 63)), Array("f32", (33, 63))),
        load("v", "a", Array("f16", (33, 63)), (32, 32), "9, 40")
        + "\n    %q = arith.extf %v : vector<32x32xf16> to vector<32x32xf32>"
        + store("q", "b", Array("f32", (33, 63)), (32, 32), "9, 40"),
    ),
    "bias": Program(
        (Array("f32", (1, 64)), WIDE),
        load("v", "a", Array("f32", (1, 64)), (1, 64))
        + "\n    %q = vector.broadcast %v : vector<1x64xf32> to vector<32x64xf32>"
        + store("q", "b", WIDE, (32, 64)),
    ),
    "gather": Program(
        (ROW, ROW),
        """
    %o = vector.step : vector<64xindex>
    %c7 = arith.constant dense<7> : vector<64xindex>
    %p = arith.muli %o, %c7 : vector<64xindex>
    %c400 = arith.constant dense<400> : vector<64xindex>
    %m = arith.cmpi slt, %p, %c400 : vector<64xindex>
    %v = xegpu.load %a[%p], %m : memref<1024xf32>, vector<64xindex>, vector<64xi1> -> vector<64xf32>
    %n = arith.negf %v : vector<64xf32>
    xegpu.store %n, %b[%o], %m : vector<64xf32>, memref<1024xf32>, vector<64xindex>, vector<64xi1>""",
    ),
    "an atomic of half a subgroup": Program(
        (ROW, ROW),
        """
    %o = vector.step : vector<4xindex>
    %m = arith.constant dense<true> : vector<4xi1>
    %v = xegpu.load %a[%o], %m : memref<1024xf32>, vector<4xindex>, vector<4xi1> -> vector<4xf32>
    %old = xegpu.atomic_rmw addf %b[%o], %m, %v : memref<1024xf32>, vector<4xindex>, vector<4xi1>, vector<4xf32> -> vector<4xf32>
    %c8 = arith.constant dense<8> : vector<4xindex>
    %o8 = arith.addi %o, %c8 : vector<4xindex>
    xegpu.store %old, %b[%o8], %m : vector<4xf32>, memref<1024xf32>, vector<4xindex>, vector<4xi1>""",
    ),
    "a gather of two dimensions": Program(
        (ROW, ROW),
        """
    %o = vector.step : vector<64xindex>
    %o2 = vector.shape_cast %o : vector<64xindex> to vector<4x16xindex>
    %m = vector.constant_mask [3, 11] : vector<4x16xi1>
    %v = xegpu.load %a[%o2], %m : memref<1024xf32>, vector<4x16xindex>, vector<4x16xi1> -> vector<4x16xf32>
    xegpu.store %v, %b[%o2], %m : vector<4x16xf32>, memref<1024xf32>, vector<4x16xindex>, vector<4x16xi1>""",
    ),
    "chunks": Program(
        (ROW, ROW),
        """
    %o = vector.step : vector<32xindex>
    %c4 = arith.constant dense<4> : vector<32xindex>
    %p = arith.muli %o, %c4 : vector<32xindex>
    %m = arith.constant dense<true> : vector<32xi1>
    %v = xegpu.load %a[%p], %m <{chunk_size = 4 : i64}> : memref<1024xf32>, vector<32xindex>, vector<32xi1> -> vector<32x4xf32>
    %w = arith.addf %v, %v : vector<32x4xf32>
    xegpu.store %w, %b[%p], %m <{chunk_size = 4 : i64}> : vector<32x4xf32>, memref<1024xf32>, vector<32xindex>, vector<32xi1>""",
    ),
    "a mask": unary("""
    %n = arith.constant 19 : index
    %k = arith.constant 37 : index
    %m = vector.create_mask %n, %k : vector<32x64xi1>
    %z = arith.constant dense<-1.0> : vector<32x64xf32>
    %q = arith.select %m, %v, %z : vector<32x64xi1>, vector<32x64xf32>"""),
    "a branch": unary("""
    %one = arith.constant 1 : index
    %c = arith.cmpi slt, %s, %one : index
    %q = scf.if %c -> (vector<32x64xf32>) {
      %p = arith.addf %v, %v : vector<32x64xf32>
      scf.yield %p : vector<32x64xf32>
    } else {
      scf.yield %v : vector<32x64xf32>
    }"""),
    "a loop": unary("""
    %one = arith.constant 1 : index
    %three = arith.constant 3 : index
    %z = arith.constant dense<0.0> : vector<32xf32>
    %l = arith.constant dense<-100.0> : vector<32xf32>
    %r:2 = scf.for %i = %x to %three step %one iter_args(%sum = %z, %most = %l) -> (vector<32xf32>, vector<32xf32>) {
      %m2 = vector.multi_reduction <maximumf>, %v, %most [1] : vector<32x64xf32> to vector<32xf32>
      %mc = vector.shape_cast %m2 : vector<32xf32> to vector<32x1xf32>
      %mb = vector.broadcast %mc : vector<32x1xf32> to vector<32x64xf32>
      %e = arith.subf %v, %mb : vector<32x64xf32>
      %s2 = vector.multi_reduction <add>, %e, %sum [1] : vector<32x64xf32> to vector<32xf32>
      scf.yield %s2, %m2 : vector<32xf32>, vector<32xf32>
    }
    %rc = vector.shape_cast %r#0 : vector<32xf32> to vector<32x1xf32>
    %q = vector.broadcast %rc : vector<32x1xf32> to vector<32x64xf32>"""),
    "shared memory": Program(
        (HALF, HALF),
        load("v", "a", HALF, (32, 64))
        + """
    %mem = memref.alloc() : memref<4096xi8, 3>
    %md = xegpu.create_mem_desc %mem : memref<4096xi8, 3> -> !xegpu.mem_desc<32x64xf16>
    xegpu.store_matrix %v, %md[0, 0] : vector<32x64xf16>, !xegpu.mem_desc<32x64xf16>
    gpu.barrier
    %w = xegpu.load_matrix %md[%y, 0] : !xegpu.mem_desc<32x64xf16>, index -> vector<16x64xf16>
    %u = xegpu.load_matrix %md[16, 0] : !xegpu.mem_desc<32x64xf16> -> vector<16x64xf16>"""
        + store("w", "b", HALF, (16, 64), "16, 0")
        + store("u", "b", HALF, (16, 64)),
    ),
    "blocked shared memory": Program(
        (HALF, HALF),
        load("v", "a", HALF, (32, 64))
        + """
    %mem = memref.alloc() : memref<4096xi8, 3>
    %md = xegpu.create_mem_desc %mem : memref<4096xi8, 3> -> !xegpu.mem_desc<32x64xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>>
    xegpu.store_matrix %v, %md[0, 0] : vector<32x64xf16>, !xegpu.mem_desc<32x64xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>>
    gpu.barrier
    %q = xegpu.load_matrix %md[0, 0] : !xegpu.mem_desc<32x64xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>> -> vector<32x64xf16>"""
        + store("q", "b", HALF, (32, 64)),
    ),
    "convert_layout": unary("""
    %w = xegpu.convert_layout %v <{input_layout = #xegpu.layout<lane_layout = [1, LANES], lane_data = [1, 1]>, target_layout = #xegpu.layout<inst_data = [LANES, LANES], lane_layout = [LANES, 1], lane_data = [1, 1]>}> : vector<32x64xf32>
    %q = arith.addf %w, %w : vector<32x64xf32>"""),
    "slices inside of a branch and behind it": unary(
        """
    %one = arith.constant 1 : index
    %c = arith.cmpi slt, %s, %one : index
    %w = xegpu.convert_layout %v <{target_layout = #xegpu.layout<inst_data = [LANES, LANES], lane_layout = [LANES, 1], lane_data = [1, 1]>}> : vector<32x32xf32>
    %p = scf.if %c -> (vector<4x16xf32>) {
      %e = vector.extract_strided_slice %w {offsets = [4, 0], sizes = [4, 16], strides = [1, 1]} : vector<32x32xf32> to vector<4x16xf32>
      scf.yield %e : vector<4x16xf32>
    } else {
      %z = arith.constant dense<0.0> : vector<4x16xf32>
      scf.yield %z : vector<4x16xf32>
    }
    %e2 = vector.extract_strided_slice %w {offsets = [4, 0], sizes = [4, 16], strides = [1, 1]} : vector<32x32xf32> to vector<4x16xf32>
    %sum = arith.addf %p, %e2 : vector<4x16xf32>
    %q = vector.insert_strided_slice %sum, %w {offsets = [8, 16], strides = [1, 1]} : vector<4x16xf32> into vector<32x32xf32>""",
        Array("f32", (32, 32)),
        Array("f32", (32, 32)),
    ),
    "a row": Program(
        (ROW, ROW),
        f"""
    %t = xegpu.create_nd_tdesc %a : memref<1024xf32> -> {T}<128xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
    %v = xegpu.load_nd %t[64] : {T}<128xf32, #xegpu.block_tdesc_attr<boundary_check = false>> -> vector<128xf32>
    %q = arith.addf %v, %v : vector<128xf32>
    %u = xegpu.create_nd_tdesc %b : memref<1024xf32> -> {T}<128xf32, #xegpu.block_tdesc_attr<boundary_check = false>>
    xegpu.store_nd %q, %u[32] : vector<128xf32>, {T}<128xf32, #xegpu.block_tdesc_attr<boundary_check = false>>""",
    ),
    "a reduction to a number": Program(
        (Array("i32", (256,)), Array("i32", (256,))),
        """
    %o = vector.step : vector<64xindex>
    %m = arith.constant dense<true> : vector<64xi1>
    %v = xegpu.load %a[%o], %m : memref<256xi32>, vector<64xindex>, vector<64xi1> -> vector<64xi32>
    %r = vector.reduction <add>, %v : vector<64xi32> into i32
    memref.store %r, %b[%x] : memref<256xi32>""",
    ),
    "a product without dpas": Program(
        (Array("f32", (16, 16)), Array("f32", (16, 32))),
        load("v", "a", Array("f32", (16, 16)), (16, 16))
        + load("w", "b", Array("f32", (16, 32)), (16, 32))
        + "\n    %q = xegpu.dpas %v, %w : vector<16x16xf32>, vector<16x32xf32> -> vector<16x32xf32>"
        + store("q", "b", Array("f32", (16, 32)), (16, 32)),
    ),
    "a packed operand": Program(
        (Array("f16", (16, 64)), Array("f32", (8, 64))),
        f"""
    %ta = xegpu.create_nd_tdesc %a : memref<16x64xf16> -> {T}<8x16xf16>
    %tb = xegpu.create_nd_tdesc %a : memref<16x64xf16> -> {T}<16xLANESxf16>
    %va = xegpu.load_nd %ta[0, 0] : {T}<8x16xf16> -> vector<8x16xf16>
    %vb = xegpu.load_nd %tb[0, 0] <{{packed}}> : {T}<16xLANESxf16> -> vector<8xLANESx2xf16>
    %q = xegpu.dpas %va, %vb : vector<8x16xf16>, vector<8xLANESx2xf16> -> vector<8xLANESxf32>
    %tq = xegpu.create_nd_tdesc %b : memref<8x64xf32> -> {T}<8xLANESxf32>
    xegpu.store_nd %q, %tq[0, 0] : vector<8xLANESxf32>, {T}<8xLANESxf32>""",
    ),
}


def text(program: Program, lanes: int) -> str:
    """The kernel of one subgroup."""
    names = "abcdefgh"
    arguments = ", ".join(f"%{n}: {a}" for n, a in zip(names, program.arrays, strict=False))
    body = program.body.replace("LANES", str(lanes))
    return f"""gpu.module @m {{
  gpu.func @k({arguments}) kernel attributes {{tilewright.level = "subgroup", tilewright.subgroups = 1 : i64}} {{
    %y = arith.constant 0 : index
    %x = arith.constant 0 : index
    %s = gpu.subgroup_id : index
{body}
    gpu.return
  }}
}}"""
