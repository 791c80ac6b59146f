"""Machine code of the offline compiler: PVC and DG2, counted."""

from __future__ import annotations

import re

import pytest

from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tilewright.targets.xe import report

pytestmark = pytest.mark.usefixtures("ocloc")


def test_gemm_by_hand() -> None:
    """32 dpas per 8 + 8 block loads (the product has 3: this compiler holds 16 components) and 2 prefetches."""
    binary = build(kernels.gemm()).isa()
    assert (binary.spilled, binary.scratch) == (0, 0)
    assert (binary.number("grf_count"), binary.number("simd_size")) == (256, 16)
    loop = report.loops(binary.asm)[0]
    steps = loop.dpas // 32
    assert loop.dpas == 32 * steps > 0
    assert dict(loop.messages) == {
        "block load d16": 8 * steps,
        "block load d16 vnni": 8 * steps,
        "block prefetch d16": 2 * steps,
    }
    assert loop.moves == 0, "payload is moved"


@pytest.mark.parametrize(
    "types, m, k",
    [
        (("f16", "f16", "f32"), 8, 16),
        (("bf16", "bf16", "bf16"), 8, 16),
        (("i8", "i8", "i32"), 8, 32),
        (("ui8", "i8", "i32"), 4, 32),
        (("tf32", "tf32", "f32"), 8, 8),
    ],
    ids=str,
)
def test_products(types: tuple[str, str, str], m: int, k: int) -> None:
    binary = build(kernels.product(*types, m, k)).isa()
    code = report.count(binary.asm)
    assert code.dpas == 1
    names = {"f16": "hf", "bf16": "bf", "i8": "b", "ui8": "ub", "tf32": "tf32"}
    line = next(x for x in binary.asm.splitlines() if "dpas" in x)
    assert f":{names[types[0]]}" in line and f":{names[types[1]]}" in line
    assert binary.spilled == 0


def test_dg2() -> None:
    """Without 2D block messages blocks are loads of elements; dpas is the same instruction on 8 lanes."""
    binary = build(kernels.product("f16", "f16", "f32", 8, 16, lanes=8), "xe-dg2").isa()
    code = report.count(binary.asm)
    assert code.dpas == 1 and binary.number("simd_size") == 8
    assert not any(name.startswith("block") for name in code.messages)


def test_lanes_that_are_known_are_read_in_place() -> None:
    """A product that no matrix instruction does: one multiply-add per row and k, its A a lane of a register."""
    chunk = "<{chunk_size = 8 : i64}>"
    text = (
        kernels.head("%a: memref<128xf32>, %out: memref<128xf32>")
        + f"""
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : i32
    %at = arith.muli %lane, %c8 : index
    %v = xegpu.load %a[%at], %true {chunk} : memref<128xf32>, index, i1 -> vector<8xf32>"""
    )
    value = "%v"
    for k in range(16):
        text += f"""
    %k{k} = arith.constant {k} : i32
    %s{k}, %p{k} = gpu.shuffle idx %v, %k{k}, %c16 : vector<8xf32>
    %v{k} = vector.fma %s{k}, %v, {value} : vector<8xf32>"""
        value = f"%v{k}"
    text += f"""
    xegpu.store {value}, %out[%at], %true {chunk} : vector<8xf32>, memref<128xf32>, index, i1"""
    asm = build(text + kernels.FOOT).isa().asm
    assert len(re.findall(r"^\s+mad ", asm, re.M)) == 16 * 8
    assert "r[a0" not in asm, "a register is addressed"


def test_named_barrier_and_policies() -> None:
    text = (
        kernels.head("%a: memref<64x64xf16>", subgroups=8)
        + """
    %id = arith.constant 3 : i8
    %n = arith.constant 8 : i8
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
    xegpu.nbarrier_arrive %b : !xegpu.nbarrier
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16>
    %v = xegpu.load_nd %t[0, 0] <{l1_hint = #xegpu.cache_hint<streaming>, l3_hint = #xegpu.cache_hint<cached>}>
        : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
    xegpu.nbarrier_wait %b : !xegpu.nbarrier
    xegpu.store_nd %v, %t[8, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"""
        + kernels.FOOT
    )
    binary = build(text).isa()
    messages = report.count(binary.asm).messages
    assert messages["barrier signal"] == 1
    assert messages["block load d16"] == 1 and messages["block store d16"] == 1
    assert "sync.bar" in binary.asm


def test_a_barrier_of_any_number_and_a_fence_that_flushes() -> None:
    """What SPIR-V has no words for is vISA text: the compiler takes it."""
    text = (
        kernels.head("%a: memref<64x64xf16>, %id: i8", subgroups=8)
        + """
    %n = arith.constant 4 : i8
    xegpu.alloc_nbarrier 8
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
    xegpu.nbarrier_arrive %b : !xegpu.nbarrier
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
    xegpu.nbarrier_wait %b : !xegpu.nbarrier
    xegpu.fence memory_kind = global, fence_scope = gpu, fence_op_flush = evict
    xegpu.store_nd %v, %t[8, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"""
        + kernels.FOOT
    )
    assembly = build(text).isa().asm
    assert report.count(assembly).messages["barrier signal"] == 1 and "sync.bar" in assembly
    assert "fence.ugm.evict.gpu" in assembly
