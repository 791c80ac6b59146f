"""The product's SPIR-V: what it holds, that it is valid, and that the reader finds what is not."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tilewright.diagnostics import UnsupportedError
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.xe import spirv_reader, tables
from tilewright.targets.xe.tables.rewrite import SpirvModule

PER_STEP = {
    "OpSubgroupMatrixMultiplyAccumulateINTEL": 32,
    "OpSubgroup2DBlockLoadINTEL": 1,
    "OpSubgroup2DBlockLoadTransformINTEL": 2,
    "OpSubgroup2DBlockPrefetchINTEL": 2,
}


@pytest.fixture(scope="module")
def product() -> bytes:
    return build(kernels.gemm()).spirv("intel")


def test_gemm_by_hand_has_what_it_needs_and_no_more(product: bytes) -> None:
    module = spirv_reader.read(product)
    assert spirv_reader.faults(module) == []
    (loop,) = module.kernel("gemm").loop_counts()
    assert {name: loop[name] for name in PER_STEP} == PER_STEP
    moves = ("OpVectorShuffle", "OpGroupNonUniformShuffle", "OpCompositeExtract", "OpFunctionCall")
    assert not any(loop[name] for name in moves)
    # Five messages have a position of two numbers each; no other composite is built.
    assert loop["OpCompositeInsert"] == 10
    # 8 fragments of A and 8 of B, each read once.
    assert loop["OpLoad"] == 16


def test_each_table_gives_a_valid_module() -> None:
    found = build(kernels.gemm(256, 256, 64))
    for table in ("intel", "igc", "emu"):
        assert spirv_reader.faults(spirv_reader.read(found.spirv(table))) == []


@tw.kernel
def column_sums(X, Y):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 16, 0], (16, 128)))
    inside = tw.arange(0, 128, axis=1, shape=(1, 128)) < X.shape[1]
    x = tw.where(inside, x - tw.sum(x, 1), 0.0)
    tw.atomic_rmw("add", tw.sum(x, 0), tw.init_tile(Y, [0], (1, 128)))


@pytest.mark.usefixtures("ocloc")
@pytest.mark.parametrize("target", ["xe-pvc", "xe-bmg", "xe-dg2"])
def test_rows_of_shared_memory_are_read_through_pointers_to_elements(target: str) -> None:
    """A block read of the variable itself would be one of its array, which the offline compiler does not know."""
    x = np.zeros((50, 100), np.float32)
    made = column_sums.compile(x, x[0], target=target)
    body = SpirvModule.of(made.asm["spirv"]).body
    variables = {a[1] for opcode, a in body if opcode == 59}
    reads = [a[2] for opcode, a in body if opcode == 5575]
    assert reads and not variables.intersection(reads)


def test_texts_are_made_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build prints the product's; what comes from the disk cache makes the others as the build would."""
    printed: list[str] = []
    real = tables.emit
    monkeypatch.setattr(
        tables, "emit", lambda module, name: printed.append(name) or real(module, name)
    )
    made = build(kernels.gemm(256, 256, 64))
    again = get_target("xe-pvc").load(made.artifacts(), CompileOptions(target="xe-pvc"))
    assert again.asm["llvm-intel"] == made.asm["llvm-intel"] and printed == ["intel"]
    for stage in ("llvm", "llvm-igc", "llvm-emu"):
        assert again.asm[stage] == made.asm[stage]


def two_prefetches(first: str, second: str) -> str:
    desc = "!xegpu.tensor_desc<8x32xf16>"
    return (
        kernels.head("%a: memref<64x64xf16>")
        + f"""
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16> -> {desc}
    xegpu.prefetch_nd %t[0, 0] {first} : {desc}
    xegpu.prefetch_nd %t[8, 0] {second} : {desc}"""
        + kernels.FOOT
    )


def test_two_cache_levels_are_two_prefetches() -> None:
    found = build(two_prefetches("locality<3>", "locality<2>"))
    assert "@xe_prefetch2d_16b_8x16x2_ca_ca" in found.asm["llvm"]
    assert "@xe_prefetch2d_16b_8x16x2_uc_ca" in found.asm["llvm"]
    module = spirv_reader.read(found.spirv("intel"))
    assert spirv_reader.faults(module) == []
    policies: dict[int, dict[int, int]] = {}
    for i in module.instructions:
        if i.opcode == 71 and i.operands[1] == 6442:
            policies.setdefault(i.operands[0], {})[i.operands[2]] = i.operands[3]
    # Level 0 is the first: cached for one message, uncached for the other.
    assert sorted(p[0] for p in policies.values()) == [0, 1]
    assert [p[1] for p in policies.values()] == [1, 1]
    bases = [
        i.operands[4]
        for f in module.functions
        for b in f.blocks.values()
        for i in b
        if i.opcode == 6234
    ]
    assert set(bases) == set(policies)


def without(opcode: int, operand: int | None = None) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        words = SpirvModule.of(data)
        words.body = [
            (op, a)
            for op, a in words.body
            if op != opcode or (operand is not None and a[0] != operand)
        ]
        return words.data()

    return change


def twice(data: bytes) -> bytes:
    words = SpirvModule.of(data)
    first = next(i for i, (op, _) in enumerate(words.body) if op == 43)
    words.body.insert(first, words.body[first])
    return words.data()


@pytest.mark.parametrize(
    "change, message",
    [
        (twice, "is defined more than once"),
        (without(17, 6236), "OpSubgroupMatrixMultiplyAccumulateINTEL needs capability 6236"),
        (without(10), "needs the extension SPV_INTEL_2d_block_io"),
        (without(14), "there is no OpMemoryModel"),
        (without(15), "there is no kernel"),
        (without(250), "does not end with its only branch"),
    ],
    ids=["twice", "capability", "extension", "memory model", "entry point", "branch"],
)
def test_reader_finds_faults(
    product: bytes, change: Callable[[bytes], bytes], message: str
) -> None:
    assert any(
        message in fault for fault in spirv_reader.faults(spirv_reader.read(change(product)))
    )


def test_reader_refuses_other_bytes(product: bytes) -> None:
    for data in (b"", b"\x7fELF" + bytes(40), product[:-8] + struct.pack("<II", 0x00FF0001, 0)):
        with pytest.raises(spirv_reader.Malformed):
            spirv_reader.read(data)


def test_named_barriers_and_fences() -> None:
    text = (
        kernels.head("%a: memref<64xf32>", subgroups=8)
        + """
    %id = arith.constant 3 : i8
    %n = arith.constant 8 : i8
    xegpu.alloc_nbarrier 4
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier
    xegpu.nbarrier_arrive %b : !xegpu.nbarrier
    xegpu.fence memory_kind = slm, fence_scope = workgroup
    xegpu.nbarrier_wait %b : !xegpu.nbarrier"""
        + kernels.FOOT
    )
    found = build(text)
    counts = spirv_reader.read(found.spirv("intel")).kernel("k").counts()
    assert counts["OpAsmCallINTEL"] == 2
    assert counts["OpMemoryBarrier"] == 1
    with pytest.raises(UnsupportedError, match="a named barrier is not executed by a CPU"):
        found.spirv("emu")


def test_bf16_is_converted_by_the_machine() -> None:
    text = (
        kernels.head("%a: memref<64xf32>, %b: memref<64xbf16>")
        + """
    %v = xegpu.load %a[%lane], %true : memref<64xf32>, index, i1 -> f32
    %w = arith.truncf %v : f32 to bf16
    xegpu.store %w, %b[%lane], %true : bf16, memref<64xbf16>, index, i1"""
        + kernels.FOOT
    )
    found = build(text)
    opcodes = {
        t: {i.opcode for i in spirv_reader.read(found.spirv(t)).instructions}
        for t in ("intel", "emu")
    }
    assert 6116 in opcodes["intel"] and 6116 not in opcodes["emu"]
