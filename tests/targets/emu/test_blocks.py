# ruff: noqa: E501
"""Block loads, stores and products: fragments of lanes and whole blocks of subgroups, inside and at the edges."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.emu.agree import agree, lane_kernel, subgroup_kernel

NUMPY: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "tf32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "ui8": np.uint8,
    "i16": np.int16,
    "i32": np.int32,
}


def array(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    dtype = np.dtype(NUMPY[element])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, int(info.max) + 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def block(shape: str, element: str, *attributes: str) -> str:
    return f"!xegpu.tensor_desc<{', '.join((f'{shape}x{element}', *attributes))}>"


# element, lanes, block, attributes of the load, array_length, elements per lane, columns of the stored block
LOADS = [
    ("f32", 16, (8, 16), "", 1),
    ("f16", 16, (8, 16), "", 1),
    ("f16", 16, (16, 16), "packed", 1),
    ("f16", 16, (32, 16), "", 2),
    ("f16", 16, (32, 16), "packed", 2),
    ("bf16", 16, (4, 32), "", 1),
    ("i8", 16, (8, 32), "", 1),
    ("i8", 16, (32, 16), "packed", 1),
    ("f32", 16, (8, 8), "", 1),
    ("f32", 16, (16, 8), "transpose = array<i64: 1, 0>", 1),
    ("f16", 16, (16, 16), "transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32", 1),
    ("f32", 8, (8, 8), "", 1),
    ("f16", 8, (8, 16), "", 1),
    ("i8", 8, (8, 32), "", 1),
    ("f64", 16, (4, 16), "", 1),
    ("f32", 16, (16,), "", 1),
    ("f32", 16, (32,), "", 1),
]


@pytest.mark.parametrize(("element", "lanes", "shape", "how", "count"), LOADS)
@pytest.mark.parametrize("edge", [False, True])
def test_fragments_of_block_loads(rng, element, lanes, shape, how, count, edge):
    """Every lane writes what it got where nobody else writes."""
    n = int(np.prod(shape)) * count // lanes
    extent = [s + 5 for s in shape]
    extent[-1] = shape[-1] * count + 7
    where = [extent[i] - 3 if edge else 2 for i in range(len(shape))]
    text = "x".join(map(str, shape))
    memref = "memref<" + "x".join(map(str, extent)) + f"x{element}>"
    attributes = [] if count == 1 else [f"#xegpu.block_tdesc_attr<array_length = {count} : i64>"]
    tdesc = block(text, element, *attributes)
    body = f"""
  %lane = gpu.lane_id
  %t = xegpu.create_nd_tdesc %a : {memref} -> {tdesc}
  %v = xegpu.load_nd %t[{", ".join(map(str, where))}]{f" <{{{how}}}>" if how else ""} : {tdesc} -> vector<{n}x{element}>
  vector.store %v, %o[%lane, %c0] : memref<{lanes}x{n}x{element}>, vector<{n}x{element}>"""
    module = lane_kernel(f"%a: {memref}, %o: memref<{lanes}x{n}x{element}>", body, lanes=lanes)
    agree(module, [array(rng, element, *extent), array(rng, element, lanes, n)])


@pytest.mark.parametrize("element", ["f32", "f16", "i8", "bf16"])
@pytest.mark.parametrize("edge", [False, True])
def test_stores_of_fragments(rng, element, edge):
    width = 32 if element == "i8" else 16
    n = 8 * width // 16
    where = "12, 30" if edge else "1, 2"
    tdesc = block(f"8x{width}", element)
    body = f"""
  %t = xegpu.create_nd_tdesc %a : memref<20x40x{element}> -> {tdesc}
  %u = xegpu.create_nd_tdesc %o : memref<20x40x{element}> -> {tdesc}
  %v = xegpu.load_nd %t[1, 1] : {tdesc} -> vector<{n}x{element}>
  xegpu.store_nd %v, %u[{where}] : vector<{n}x{element}>, {tdesc}"""
    module = lane_kernel(f"%a: memref<20x40x{element}>, %o: memref<20x40x{element}>", body)
    agree(module, [array(rng, element, 20, 40), array(rng, element, 20, 40)])


def test_sg_maps_deal_units(rng):
    """The RFC's fragments: [units, packed elements]."""
    plain = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>"
    pairs = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [2, 1]>"
    rows = "#xegpu.sg_map<wi_layout = [2, 8], wi_data = [1, 1]>"
    body = f"""
  %lane = gpu.lane_id
  %ta = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xbf16> -> {block("8x16", "bf16", plain)}
  %tb = xegpu.create_nd_tdesc %b[0, 0] : memref<16x16xbf16> -> {block("16x16", "bf16", pairs)}
  %tc = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> {block("8x16", "f32", plain)}
  %td = xegpu.create_nd_tdesc %d[0, 0] : memref<8x8xf32> -> {block("8x8", "f32", rows)}
  %va = xegpu.load_nd %ta : {block("8x16", "bf16", plain)} -> vector<8x1xbf16>
  %vb = xegpu.load_nd %tb : {block("16x16", "bf16", pairs)} -> vector<8x2xbf16>
  %vd = xegpu.load_nd %td : {block("8x8", "f32", rows)} -> vector<4x1xf32>
  %r = xegpu.dpas %va, %vb {{layout_a = {plain}, layout_b = {pairs}, layout_cd = {plain}}} : vector<8x1xbf16>, vector<8x2xbf16> -> vector<8x1xf32>
  xegpu.store_nd %r, %tc : vector<8x1xf32>, {block("8x16", "f32", plain)}
  %neg = arith.negf %vd : vector<4x1xf32>
  xegpu.store_nd %neg, %td : vector<4x1xf32>, {block("8x8", "f32", rows)}"""
    args = (
        "%a: memref<8x16xbf16>, %b: memref<16x16xbf16>, %c: memref<8x16xf32>, %d: memref<8x8xf32>"
    )
    arrays = [
        array(rng, "bf16", 8, 16),
        array(rng, "bf16", 16, 16),
        array(rng, "f32", 8, 16),
        array(rng, "f32", 8, 8),
    ]
    agree(lane_kernel(args, body), arrays)


# element, lanes, K, elements of A and B per lane, accumulator
PRODUCTS = [
    ("f16", 16, 16, 8, 16, "f32"),
    ("f16", 16, 16, 8, 16, "f16"),
    ("bf16", 16, 16, 8, 16, "f32"),
    ("bf16", 16, 16, 8, 16, "bf16"),
    ("tf32", 16, 8, 4, 8, "f32"),
    ("i8", 16, 32, 16, 32, "i32"),
    ("ui8", 16, 32, 16, 32, "i32"),
    ("f16", 8, 16, 16, 16, "f32"),
    ("i8", 8, 32, 32, 32, "i32"),
    ("f8E5M2", 16, 32, 16, 32, "f32"),
]


@pytest.mark.parametrize(("element", "lanes", "k", "a", "b", "out"), PRODUCTS)
def test_products_of_fragments(rng, element, lanes, k, a, b, out):
    packed = "" if element == "tf32" else " <{packed}>"
    body = f"""
  %ta = xegpu.create_nd_tdesc %a : memref<8x{k}x{element}> -> {block(f"8x{k}", element)}
  %tb = xegpu.create_nd_tdesc %b : memref<{k}x{lanes}x{element}> -> {block(f"{k}x{lanes}", element)}
  %tc = xegpu.create_nd_tdesc %c : memref<8x{lanes}x{out}> -> {block(f"8x{lanes}", out)}
  %va = xegpu.load_nd %ta[0, 0] : {block(f"8x{k}", element)} -> vector<{a}x{element}>
  %vb = xegpu.load_nd %tb[0, 0]{packed} : {block(f"{k}x{lanes}", element)} -> vector<{b}x{element}>
  %vc = xegpu.load_nd %tc[0, 0] : {block(f"8x{lanes}", out)} -> vector<8x{out}>
  %p = xegpu.dpas %va, %vb : vector<{a}x{element}>, vector<{b}x{element}> -> vector<8x{out}>
  %q = xegpu.dpas %va, %vb, %vc : vector<{a}x{element}>, vector<{b}x{element}>, vector<8x{out}> -> vector<8x{out}>
  %r = arith.{"addi" if out == "i32" else "addf"} %p, %q : vector<8x{out}>
  xegpu.store_nd %r, %tc[0, 0] : vector<8x{out}>, {block(f"8x{lanes}", out)}"""
    args = f"%a: memref<8x{k}x{element}>, %b: memref<{k}x{lanes}x{element}>, %c: memref<8x{lanes}x{out}>"
    arrays = [array(rng, element, 8, k), array(rng, element, k, lanes), array(rng, out, 8, lanes)]
    agree(
        lane_kernel(args, body, lanes=lanes), arrays, limit=1e-6 if out in ("f32", "i32") else 1e-2
    )


@pytest.mark.parametrize("element", ["f16", "bf16", "i8", "f32"])
def test_products_of_whole_tiles_of_subgroups(rng, element):
    """Two subgroups, each 32x32 of C over two steps of k, with array_length loads and a ragged edge."""
    out = "i32" if element == "i8" else "f32"
    ta, tb = block("32x32", element), block("32x32", element)
    body = f"""
  %sg = gpu.subgroup_id
  %n = arith.muli %sg, %c32 : index
  %z = arith.constant dense<0{"" if out == "i32" else ".0"}> : vector<32x32x{out}>
  %ta = xegpu.create_nd_tdesc %a : memref<30x64x{element}> -> {ta}
  %tb = xegpu.create_nd_tdesc %b : memref<64x60x{element}> -> {tb}
  %tc = xegpu.create_nd_tdesc %c : memref<30x60x{out}> -> {block("32x32", out)}
  %r = scf.for %k = %c0 to %c64 step %c32 iter_args(%acc = %z) -> (vector<32x32x{out}>) {{
    %va = xegpu.load_nd %ta[0, %k] : {ta} -> vector<32x32x{element}>
    %vb = xegpu.load_nd %tb[%k, %n] : {tb} -> vector<32x32x{element}>
    %d = xegpu.dpas %va, %vb, %acc : vector<32x32x{element}>, vector<32x32x{element}>, vector<32x32x{out}> -> vector<32x32x{out}>
    scf.yield %d : vector<32x32x{out}>
  }}
  xegpu.store_nd %r, %tc[0, %n] : vector<32x32x{out}>, {block("32x32", out)}"""
    args = f"%a: memref<30x64x{element}>, %b: memref<64x60x{element}>, %c: memref<30x60x{out}>"
    arrays = [array(rng, element, 30, 64), array(rng, element, 64, 60), array(rng, out, 30, 60)]
    a, b, c = agree(subgroup_kernel(args, body, subgroups=2), arrays)
    if out == "i32":
        np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))


PAIRS = "transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32"
WHOLE = [
    ("f16", (16, 16), "packed", "8x16x2"),
    ("f16", (16, 16), "transpose = array<i64: 1, 0>", "16x16"),
    ("f32", (8, 16), "transpose = array<i64: 1, 0>", "16x8"),
    ("f16", (16, 8), PAIRS, "4x32"),
    ("f16", (16, 8), PAIRS, "4x16x2"),
    ("i8", (32, 16), "packed", "8x16x4"),
    ("i32", (2, 24), "", "2x24"),
]


@pytest.mark.parametrize(("element", "shape", "how", "given"), WHOLE)
def test_whole_blocks_of_subgroups(rng, element, shape, how, given):
    size = int(np.prod(shape))
    tdesc = block("x".join(map(str, shape)), element)
    extent = f"{shape[0] + 3}x{shape[1] + 3}"
    body = f"""
  %t = xegpu.create_nd_tdesc %a : memref<{extent}x{element}> -> {tdesc}
  %v = xegpu.load_nd %t[-1, 5]{f" <{{{how}}}>" if how else ""} : {tdesc} -> vector<{given}x{element}>
  %f = vector.shape_cast %v : vector<{given}x{element}> to vector<{size}x{element}>
  vector.store %f, %o[%c0] : memref<{size}x{element}>, vector<{size}x{element}>"""
    module = subgroup_kernel(f"%a: memref<{extent}x{element}>, %o: memref<{size}x{element}>", body)
    agree(module, [array(rng, element, shape[0] + 3, shape[1] + 3), array(rng, element, size)])


def test_descriptors_of_addresses_and_of_any_rank(rng):
    """A dynamic shape over an integer address, and a batch dimension; strides that are not 1."""
    body = """
  %p = memref.extract_aligned_pointer_as_index %a : memref<3x8x20xf32> -> index
  %q = arith.index_cast %p : index to i64
  %t = xegpu.create_nd_tdesc %q, shape: [%c8, %c16], strides: [%c20, %c1] : i64 -> !xegpu.tensor_desc<8x16xf32>
  %u = xegpu.create_nd_tdesc %a : memref<3x8x20xf32> -> !xegpu.tensor_desc<8x16xf32>
  %s = memref.subview %a[1, 0, 0] [1, 8, 10] [1, 1, 2] : memref<3x8x20xf32> to memref<8x10xf32, strided<[20, 2], offset: 160>>
  %w = xegpu.create_nd_tdesc %s : memref<8x10xf32, strided<[20, 2], offset: 160>> -> !xegpu.tensor_desc<8x16xf32>
  %x = xegpu.load_nd %t[0, 4] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
  %y = xegpu.load_nd %u[2, 1, 3] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
  %z = xegpu.load_nd %w[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
  %r = arith.addf %x, %y : vector<8xf32>
  %r2 = arith.addf %r, %z : vector<8xf32>
  %o_ = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %r2, %o_[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
    args = "%a: memref<3x8x20xf32>, %o: memref<8x16xf32>"
    agree(lane_kernel(args, body), [array(rng, "f32", 3, 8, 20), array(rng, "f32", 8, 16)])


# element, lanes, block, wi_layout, wi_data, attributes of the load, array_length, fragment: the RFC's tables
SG_MAPS = [
    ("bf16", 16, (12, 32), (1, 16), (1, 1), "", 1, "24x1"),
    ("i8", 16, (12, 32), (1, 16), (1, 2), "", 1, "12x2"),
    ("f32", 16, (8, 8), (2, 8), (1, 1), "", 1, "4x1"),
    ("i8", 16, (32, 16), (1, 16), (4, 1), "packed", 1, "8x4"),
    ("bf16", 16, (16, 16), (1, 16), (2, 1), "packed", 1, "8x2"),
    ("f32", 16, (16, 8), (16, 1), (1, 1), "transpose = array<i64: 1, 0>", 1, "8x1"),
    (
        "bf16",
        16,
        (16, 16),
        (16, 1),
        (1, 2),
        "transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32",
        1,
        "8x2",
    ),
    ("bf16", 16, (32,), (1, 16), (1, 2), "", 1, "1x2"),
    ("bf16", 16, (8, 16), (1, 16), (1, 1), "", 2, "16x1"),
    ("f16", 8, (8, 16), (1, 8), (1, 2), "", 1, "8x2"),
    ("f16", 8, (16, 8), (1, 8), (2, 1), "packed", 1, "8x2"),
    ("i8", 8, (8, 32), (1, 8), (1, 4), "", 1, "8x4"),
]


@pytest.mark.parametrize(
    ("element", "lanes", "shape", "layout", "unit", "how", "count", "fragment"), SG_MAPS
)
def test_loads_by_the_rfcs_tables(rng, element, lanes, shape, layout, unit, how, count, fragment):
    dims = [int(n) for n in fragment.split("x")]
    n = int(np.prod(dims))
    extent = [s + 5 for s in shape]
    extent[-1] = shape[-1] * count + 7
    memref = "memref<" + "x".join(map(str, extent)) + f"x{element}>"
    attributes = [] if count == 1 else [f"#xegpu.block_tdesc_attr<array_length = {count} : i64>"]
    attributes.append(f"#xegpu.sg_map<wi_layout = {[*layout]}, wi_data = {[*unit]}>")
    tdesc = block("x".join(map(str, shape)), element, *attributes)
    body = f"""
  %lane = gpu.lane_id
  %t = xegpu.create_nd_tdesc %a[{", ".join(["2"] * len(shape))}] : {memref} -> {tdesc}
  %v = xegpu.load_nd %t{f" <{{{how}}}>" if how else ""} : {tdesc} -> vector<{fragment}x{element}>
  %f = vector.shape_cast %v : vector<{fragment}x{element}> to vector<{n}x{element}>
  vector.store %f, %o[%lane, %c0] : memref<{lanes}x{n}x{element}>, vector<{n}x{element}>"""
    module = lane_kernel(f"%a: {memref}, %o: memref<{lanes}x{n}x{element}>", body, lanes=lanes)
    agree(module, [array(rng, element, *extent), array(rng, element, lanes, n)])


def test_the_exceptions_of_sg_maps(rng):
    """What the RFC writes of lanes where a vector is not distributed: reduction, broadcast, bitcast, halves."""
    plain = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 1]>"
    pairs = "#xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>"
    body = f"""
  %lane = gpu.lane_id
  %t = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xbf16> -> {block("8x16", "bf16", plain)}
  %v = xegpu.load_nd %t : {block("8x16", "bf16", plain)} -> vector<8x1xbf16>
  %r = vector.shape_cast %v : vector<8x1xbf16> to vector<8xbf16>
  %s = gpu.subgroup_reduce add %r : (vector<8xbf16>) -> vector<8xbf16>
  %zero = arith.constant 0 : i32
  %w = arith.constant 16 : i32
  %b, %p = gpu.shuffle idx %r, %zero, %w : vector<8xbf16>
  %q = xegpu.create_nd_tdesc %c[0, 0] : memref<8x32xbf16> -> {block("8x32", "bf16", pairs)}
  %x = xegpu.load_nd %q : {block("8x32", "bf16", pairs)} -> vector<8x2xbf16>
  %even, %odd = vector.deinterleave %x : vector<8x2xbf16> -> vector<8x1xbf16>
  %e2 = arith.addf %even, %v : vector<8x1xbf16>
  %y = vector.interleave %e2, %odd : vector<8x1xbf16> -> vector<8x2xbf16>
  %bits = vector.bitcast %v : vector<8x1xbf16> to vector<8x2xi8>
  %back = vector.bitcast %bits : vector<8x2xi8> to vector<8x1xbf16>
  %z0 = vector.extract_strided_slice %y {{offsets = [4], sizes = [4], strides = [1]}} : vector<8x2xbf16> to vector<4x2xbf16>
  %z1 = vector.shape_cast %z0 : vector<4x2xbf16> to vector<8xbf16>
  %z2 = vector.shape_cast %back : vector<8x1xbf16> to vector<8xbf16>
  %k0 = arith.addf %s, %b : vector<8xbf16>
  %k1 = arith.addf %k0, %z1 : vector<8xbf16>
  %k2 = arith.addf %k1, %z2 : vector<8xbf16>
  vector.store %k2, %o[%lane, %c0] : memref<16x8xbf16>, vector<8xbf16>
  xegpu.store_nd %y, %q : vector<8x2xbf16>, {block("8x32", "bf16", pairs)}"""
    args = "%a: memref<8x16xbf16>, %c: memref<8x32xbf16>, %o: memref<16x8xbf16>"
    arrays = [array(rng, "bf16", 8, 16), array(rng, "bf16", 8, 32), array(rng, "bf16", 16, 8)]
    agree(lane_kernel(args, body), arrays, limit=1e-2)


def test_a_lane_may_load_a_whole_block(rng):
    body = """
  %lane = gpu.lane_id
  %t = xegpu.create_nd_tdesc %a : memref<64xf32> -> !xegpu.tensor_desc<8xf32>
  %v = xegpu.load_nd %t[16] : !xegpu.tensor_desc<8xf32> -> vector<8xf32>
  %x = memref.load %a[%lane] : memref<64xf32>
  %w = vector.broadcast %x : f32 to vector<8xf32>
  %s = arith.mulf %v, %w : vector<8xf32>
  vector.store %s, %o[%lane, %c0] : memref<16x8xf32>, vector<8xf32>"""
    args = "%a: memref<64xf32>, %o: memref<16x8xf32>"
    agree(lane_kernel(args, body), [array(rng, "f32", 64), array(rng, "f32", 16, 8)])


@pytest.mark.parametrize("offsets", ["", "[0, 16]"], ids=["today", "older"])
def test_a_branch_chooses_a_descriptor(offsets, rng):
    """Of two arrays, in today's text and in the older, whose descriptors have places and move."""
    kind, place = "!xegpu.tensor_desc<4x16xf32>", "" if offsets else "[0, 16]"
    moved = f"%u = xegpu.update_nd_offset %t, [0, 16] : {kind}" if offsets else ""
    again = "%u" if offsets else "%t[0, 32]"
    text = f"""
  %g = gpu.block_id x
  %first = arith.cmpi eq, %g, %c0 : index
  %t = scf.if %first -> ({kind}) {{
    %ta = xegpu.create_nd_tdesc %a{offsets} : memref<4x64xf32> -> {kind}
    scf.yield %ta : {kind}
  }} else {{
    %tb = xegpu.create_nd_tdesc %b{offsets} : memref<4x64xf32> -> {kind}
    scf.yield %tb : {kind}
  }}
  {moved}
  %v = xegpu.load_nd %t{place} : {kind} -> vector<4xf32>
  %w = xegpu.load_nd {again} : {kind} -> vector<4xf32>
  %x = arith.subf %v, %w : vector<4xf32>
  %r = arith.muli %g, %c4 : index
  %to = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> {kind}
  xegpu.store_nd %x, %to[%r, 0] : vector<4xf32>, {kind}"""
    args = "%a: memref<4x64xf32>, %b: memref<4x64xf32>, %o: memref<8x16xf32>"
    arrays = [array(rng, "f32", *shape) for shape in ((4, 64), (4, 64), (8, 16))]
    agree(lane_kernel(args, text), arrays, (2, 1, 1))
