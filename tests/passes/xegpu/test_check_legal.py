"""xegpu-check-legal: each limit of each machine is refused with op, number and limit, and not before."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.passes.xegpu.check_legal import check_legal
from tilewright.uarch.xe import xe_machine

T = "!xegpu.tensor_desc"


def program(args: str, body: str) -> str:
    return f"gpu.module @m {{ gpu.func @k({args}) kernel {{\n{body}\ngpu.return\n}} }}"


def check(args: str, body: str, target: str = "pvc", grf: int = 128) -> None:
    module = parse_module(program(args, body), "legal.mlir")
    check_legal(module, xe_machine(target), grf)


def load(
    shape: str, element: str, options: str = "", result: str | None = None, array: int = 1
) -> tuple[str, str]:
    """Arguments and body of one block load."""
    attribute = "" if array == 1 else f", #xegpu.block_tdesc_attr<array_length = {array}>"
    desc = f"{T}<{shape}x{element}{attribute}>"
    result = result or (f"{array}x" if array > 1 else "") + shape
    return (
        f"%t: {desc}",
        f"%v = xegpu.load_nd %t[0, 0]{options} : {desc} -> vector<{result}x{element}>",
    )


def store(shape: str, element: str) -> tuple[str, str]:
    return (
        f"%t: {T}<{shape}x{element}>, %v: vector<{shape}x{element}>",
        f"xegpu.store_nd %v, %t[0, 0] : vector<{shape}x{element}>, {T}<{shape}x{element}>",
    )


def dpas(m: int, n: int, k: int, a: str, c: str) -> tuple[str, str]:
    types = f"vector<{m}x{k}x{a}>", f"vector<{k}x{n}x{a}>", f"vector<{m}x{n}x{c}>"
    return (
        f"%a: {types[0]}, %b: {types[1]}",
        f"%d = xegpu.dpas %a, %b : {types[0]}, {types[1]} -> {types[2]}",
    )


def create(source: str, desc: str = f"{T}<8x16xf16>") -> tuple[str, str]:
    return f"%m: {source}", f"%t = xegpu.create_nd_tdesc %m : {source} -> {desc}"


TRANSPOSE = " <{transpose = array<i64: 1, 0>}>"
PAIRS = " <{transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32}>"

LEGAL = [
    ("pvc", load("32x16", "f16", array=2)),
    ("pvc", load("8x16", "f16")),
    ("pvc", load("32x16", "f16", " <{packed}>", "16x16x2")),
    ("pvc", load("16x8", "f32", TRANSPOSE, "8x16")),
    ("pvc", load("16x16", "f16", PAIRS, "8x32")),
    ("bmg", load("8x32", "i8", array=2)),
    ("pvc", store("8x16", "f32")),
    ("pvc", dpas(8, 16, 16, "f16", "f32")),
    ("pvc", dpas(4, 16, 32, "i8", "i32")),
    ("pvc", dpas(8, 16, 8, "tf32", "f32")),
    ("dg2", dpas(8, 8, 16, "bf16", "f32")),
    ("pvc", create("memref<64x32xf16>")),
]

# (target, program, parts of the message)
ILLEGAL = [
    ("pvc", load("64x16", "f16"), ("xegpu.load_nd", "height 64", "1 to 32")),
    ("pvc", load("8x64", "f16"), ("width 64", "2 to 32")),
    ("pvc", load("8x3", "i8"), ("width 3",)),
    ("pvc", load("8x16", "f32", array=2), ("2 blocks of width 16", "16 elements")),
    ("pvc", load("8x16", "f16", array=3), ("3 blocks", "1 or 2 or 4")),
    ("pvc", load("16x16", "f16", TRANSPOSE, "16x16"), ("16-bit", "32 or 64 bits")),
    ("pvc", load("16x16", "f32", TRANSPOSE, "16x16"), ("width 16", "1 to 8")),
    ("pvc", (f"%t: {T}<2x8x16xf16>",
             f"%v = xegpu.load_nd %t[0, 0, 0] : {T}<2x8x16xf16> -> vector<2x8x16xf16>"),
     ("2x8x16", "two dimensions")),
    ("dg2", load("8x16", "f16"), ("no 2D block messages", "xe-dg2")),
    ("pvc", store("16x16", "f32"), ("xegpu.store_nd", "height 16", "1 to 8")),
    ("pvc", store("8x32", "f32"), ("width 32", "1 to 16")),
    ("pvc", (f"%t: {T}<8x16xf16>", f"xegpu.prefetch_nd %t[0, 3] : {T}<8x16xf16>"),
     ("column 3", "multiples of 2")),
    ("pvc", dpas(16, 16, 16, "f16", "f32"), ("M = 16", "1, 2, 4, 8")),
    ("pvc", dpas(8, 8, 16, "f16", "f32"), ("N = 8", "16")),
    ("pvc", dpas(8, 16, 32, "f16", "f32"), ("K = 32", "16")),
    ("dg2", dpas(8, 8, 8, "tf32", "f32"), ("no matrix instruction for tf32", "xe-dg2")),
    ("dg2", dpas(8, 16, 32, "i8", "i32"), ("N = 16", "8")),
    ("pvc", dpas(8, 16, 16, "f16", "bf16"), ("f16 x f16 -> bf16",)),
    ("pvc", ("%a: vector<6xf16>, %b: vector<16xf16>",
             "%d = xegpu.dpas %a, %b : vector<6xf16>, vector<16xf16> -> vector<6xf32>"),
     ("M = 6", "1, 2, 4, 8")),
    ("pvc", create("memref<64x16xf16>"), ("base matrix width", "32 bytes", "at least 64")),
    ("pvc", create("memref<64x33xf16>"), ("66 bytes", "multiple of 4")),
    ("pvc", create("memref<64x34xf16>"), ("pitch", "68 bytes", "multiple of 16")),
    ("pvc", create("memref<4x16777216xf16>"), ("33554432", "at most 16777216")),
    ("pvc", create("memref<64x64xf16, strided<[64, 1], offset: 8>>"), ("base address", "16 bytes", "64")),
    ("pvc", create("memref<64x64xf16, strided<[64, 2]>>"), ("innermost stride of 2",)),
    ("pvc", create("memref<64x64xf16, 3>",
                   f"{T}<8x16xf16, #xegpu.block_tdesc_attr<memory_space = slm>>"),
     ("shared memory", "device memory only")),
    ("pvc", ("%m: memref<512xf32>, %o: vector<12xindex>, %k: vector<12xi1>",
             "%v = xegpu.load %m[%o], %k : memref<512xf32>, vector<12xindex>, vector<12xi1> -> "
             "vector<12xf32>"), ("12 offsets", "16 or 32 lanes")),
    ("pvc", ("%m: memref<512xf32>, %o: vector<32xindex>, %k: vector<32xi1>",
             "%v = xegpu.load %m[%o], %k <{chunk_size = 8}> : memref<512xf32>, vector<32xindex>, "
             "vector<32xi1> -> vector<32x8xf32>"), ("1024 bytes", "at most 512")),
    ("pvc", (f"%t: {T}<8x16xf16>", "%v = xegpu.load_nd %t[0, 0] <{l1_hint = #xegpu.cache_hint<"
             f"read_invalidate>, l3_hint = #xegpu.cache_hint<uncached>}}> : {T}<8x16xf16> -> "
             "vector<8x16xf16>"), ("L1 read_invalidate", "uncached")),
    ("pvc", (f"%t: {T}<8x16xf16>", "xegpu.prefetch_nd %t[0, 0] <{l1_hint = #xegpu.cache_hint<"
             f"uncached>, l3_hint = #xegpu.cache_hint<uncached>}}> : {T}<8x16xf16>"),
     ("prefetch into no cache",)),
    ("pvc", ("", "xegpu.alloc_nbarrier 64"), ("named barrier", "63", "at most 31")),
    ("dg2", ("", "%i = arith.constant 3 : i8\n%n = arith.constant 8 : i8\n"
             "%b = xegpu.init_nbarrier %i, %n : i8, i8 -> !xegpu.nbarrier"), ("named barrier of 3", "at most 0")),
    ("dg2", ("%i: i8, %n: i8", "%b = xegpu.init_nbarrier %i, %n : i8, i8 -> !xegpu.nbarrier"), ("named barrier",)),
    ("pvc", ("", "%s = memref.alloc() : memref<40000xf32, 3>"), ("shared local memory", "160000", "131072")),
    ("bmg", ("", "%s = memref.alloc() : memref<40000xf32, 3>"), ("160000", "131072")),
    ("dg2", ("", "%s = memref.alloc() : memref<20000xf32, 3>"), ("80000", "65536")),
]  # fmt: skip


@pytest.mark.parametrize(("target", "text"), LEGAL, ids=str)
def test_what_the_machine_has_passes(target: str, text: tuple[str, str]):
    check(*text, target)


@pytest.mark.parametrize(("target", "text", "parts"), ILLEGAL, ids=lambda v: str(v)[:60])
def test_what_it_lacks_is_refused(target: str, text: tuple[str, str], parts: tuple[str, ...]):
    with pytest.raises(UnsupportedError) as caught:
        check(*text, target)
    for part in parts:
        assert part in caught.value.message, caught.value.message
    assert caught.value.rule and caught.value.location is not None


def layout(**fields: list[int]) -> str:
    return "#xegpu.layout<" + ", ".join(f"{k} = {v}" for k, v in fields.items()) + ">"


def workgroup_load(**fields: list[int]) -> tuple[str, str]:
    return load("256x256", "f16", f" <{{layout = {layout(**fields)}}}>")


def test_a_workgroup_op_is_checked_at_its_instruction_size():
    check(*workgroup_load(sg_layout=[8, 4], sg_data=[32, 64]))
    check(*workgroup_load(sg_layout=[8, 4], sg_data=[32, 64], inst_data=[32, 16]))
    with pytest.raises(UnsupportedError, match="height 64"):
        check(*workgroup_load(sg_layout=[4, 4], sg_data=[64, 64], inst_data=[64, 16]))


@pytest.mark.parametrize(("grid", "grf", "limit"), [([16, 4], 128, None), ([16, 4], 256, "at most 32"),
                                                    ([32, 4], 128, "at most 64")])  # fmt: skip
def test_subgroups_per_workgroup_by_registers(grid: list[int], grf: int, limit: str | None):
    text = workgroup_load(sg_layout=grid, sg_data=[256 // grid[0], 256 // grid[1]])
    if limit is None:
        check(*text, grf=grf)
        return
    with pytest.raises(UnsupportedError, match=limit):
        check(*text, grf=grf)


# The RFC's tables: (target, element, wi_layout, wi_data, tile shape, role)
RFC_MAPS = [
    *[("pvc", t, [1, 16], [1, 1], "8x16") for t in ("bf16", "f16", "f32", "i32")],
    ("pvc", "tf32", [2, 8], [1, 1], "8x8"),
    *[("pvc", t, [1, 16], [1, 2], "8x32") for t in ("ui8", "i8")],
    *[("pvc", t, [1, 16], [2, 1], "16x16") for t in ("bf16", "f16")],
    ("pvc", "tf32", [1, 16], [1, 1], "8x16"),
    *[("pvc", t, [1, 16], [4, 1], "32x16") for t in ("ui8", "i8")],
    ("pvc", "tf32", [16, 1], [1, 1], "16x8"),
    *[("dg2", t, [1, 8], [1, 2], "8x16") for t in ("bf16", "f16")],
    *[("dg2", t, [1, 8], [1, 4], "8x32") for t in ("ui8", "i8")],
    *[("dg2", t, [1, 8], [2, 1], "16x8") for t in ("bf16", "f16")],
    *[("dg2", t, [1, 8], [4, 1], "32x8") for t in ("ui8", "i8")],
    *[("dg2", t, [1, 8], [1, 1], "8x8") for t in ("f32", "i32")],
]


@pytest.mark.parametrize(("target", "element", "lanes", "data", "shape"), RFC_MAPS, ids=str)
def test_sg_maps_of_the_rfcs_tables(
    target: str, element: str, lanes: list[int], data: list[int], shape: str
):
    def body(map: str) -> tuple[str, str]:
        desc = f"{T}<{shape}x{element}, {map}>"
        return (
            "%p: i64",
            f"%t = xegpu.create_nd_tdesc %p, shape : [64, 64], strides : [64, 1] : i64 -> {desc}",
        )

    check(*body(f"#xegpu.sg_map<wi_layout = {lanes}, wi_data = {data}>"), target)
    other = "dg2" if target == "pvc" else "pvc"
    with pytest.raises(UnsupportedError, match="work items"):
        check(*body(f"#xegpu.sg_map<wi_layout = {lanes}, wi_data = {data}>"), other)


def test_a_map_that_no_message_has_is_refused():
    desc = f"{T}<64x64xf16, #xegpu.sg_map<wi_layout = [4, 4], wi_data = [1, 1]>>"
    with pytest.raises(UnsupportedError, match=r"wi_layout = \[4, 4\]"):
        check(
            "%p: i64",
            f"%t = xegpu.create_nd_tdesc %p, shape : [64, 64], strides : [64, 1] : i64 -> {desc}",
        )


def test_all_breaches_are_told():
    args, body = load("64x16", "f16")
    second = store("16x16", "f32")[1].replace("%t", "%u").replace("%v", "%w")
    text = program(f"{args}, %u: {T}<16x16xf32>, %w: vector<16x16xf32>", body + "\n" + second)
    with pytest.raises(UnsupportedError) as caught:
        check_legal(parse_module(text, "two.mlir"), xe_machine("pvc"))
    assert "height 64" in caught.value.message
    assert "height 16" in caught.value.notes[0].message


def test_unknown_targets_are_named():
    with pytest.raises(UnsupportedError, match="xe-foo"):
        check("", "", "foo")
    with pytest.raises(UnsupportedError, match="128 or 256"):
        check("", "", "pvc", grf=64)
