"""Workgroup programs, as text and as Python, down to SPIR-V and machine code: the counts that the algorithm needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tests.targets.xe.test_spirv import PER_STEP
from tilewright.targets.xe import offline, spirv_reader
from tilewright.tools.compile import compile_source
from tilewright.tools.sources import parse_argument, parse_source

pytestmark = pytest.mark.optional  # machine code is looked at where its compiler is installed

RFC = Path(__file__).parents[3] / "examples" / "rfc"


def compiled(path: Path | str, target: str = "xe-pvc") -> Any:
    return compile_source(parse_source(str(path)), [], [], {"target": target})


def loop_of(found: Any) -> Any:
    """Counts of the loop with most products."""
    kernel = spirv_reader.read(found.spirv("intel")).kernel(found.meta["name"])
    return max(kernel.loop_counts(), key=lambda c: c["OpSubgroupMatrixMultiplyAccumulateINTEL"])


def no_spills(found: Any) -> None:
    if not offline.missing():
        binary = found.isa()
        assert (binary.spilled, binary.scratch) == (0, 0)
        assert binary.number("grf_count") == found.meta["registers"]


def test_appendix_1_1_is_what_one_writes_by_hand() -> None:
    found = compiled(RFC / "xegpu_1_1_gemm_prefetch.mlir")
    loop, hand = loop_of(found), loop_of(build(kernels.gemm()))
    assert {name: loop[name] for name in PER_STEP} == PER_STEP
    assert {name: loop[name] for name in spirv_reader.INTERESTING} == {
        name: hand[name] for name in spirv_reader.INTERESTING
    }
    module = spirv_reader.read(found.spirv("intel"))
    shaped = module.kernel(found.meta["name"]).loop_counts(module.naming())[0]
    assert {name: n for name, n in shaped.items() if "2DBlock" in name} == {
        "OpSubgroup2DBlockLoadINTEL 16b 32x16x2": 1,
        "OpSubgroup2DBlockLoadTransformINTEL 16b 32x16x2": 2,
        "OpSubgroup2DBlockPrefetchINTEL 16b 8x16x2": 2,
    }
    assert found.meta["registers"] == 256 and found.remarks == []
    no_spills(found)


def test_appendix_1_2() -> None:
    """Transposed B comes by transposing loads; the reduction moves nothing in the loop."""
    found = compiled(RFC / "xegpu_1_2_transpose_broadcast_reduction.mlir")
    loop = loop_of(found)
    assert loop["OpSubgroupMatrixMultiplyAccumulateINTEL"] == 32
    assert loop["OpSubgroup2DBlockLoadINTEL"] == 1
    assert loop["OpSubgroup2DBlockLoadTransposeINTEL"] == 8
    assert loop["OpSubgroup2DBlockPrefetchINTEL"] == 2
    assert not loop["OpVectorShuffle"] and not loop["OpGroupNonUniformShuffleXor"]
    no_spills(found)


def test_appendix_2_2_through_shared_memory() -> None:
    """Its maps move B between subgroups in every step: each brings 8 rows in one block load, stores them by two
    messages of 8 words, and its lanes load what they own 32 bytes at once."""
    found = compiled(RFC / "xetile_2_2_transpose_broadcast_reduction.mlir")
    loop = loop_of(found)
    assert loop["OpSubgroupMatrixMultiplyAccumulateINTEL"] == 32
    assert loop["OpSubgroup2DBlockLoadINTEL"] == 2 and loop["OpSubgroupBlockWriteINTEL"] == 2
    assert not loop["OpStore"] and not loop["OpVectorShuffle"]
    body = found.ir["xegpu-lane"].split("scf.for", 1)[1].split("scf.yield", 1)[0]
    loads = [line for line in body.splitlines() if "xegpu.load_matrix" in line]
    assert len(loads) == 8 and all("vector<16xf16>" in line for line in loads)
    assert not loop["OpGroupNonUniformShuffleXor"]
    no_spills(found)


def test_appendix_1_3_in_two_passes() -> None:
    """64 x 64 of C would be all registers of a subgroup: its loop is that of 32 x 64, and runs twice."""
    found = compiled(RFC / "xegpu_1_3_two_cache_levels.mlir")
    assert any("computed in 2 passes" in remark for remark in found.remarks)
    body = found.ir["xegpu-lane"].split("scf.for")
    assert len(body) == 3 and body[2].count("xegpu.dpas") == 32
    assert loop_of(found)["OpSubgroupMatrixMultiplyAccumulateINTEL"] == 32
    assert "_ca_ca(" in found.asm["llvm"] and "_uc_ca(" in found.asm["llvm"]
    no_spills(found)


def test_shared_memory_with_64_subgroups() -> None:
    found = compiled(RFC / "xetile_2_4_cooperative_slm.mlir")
    assert (found.meta["subgroups"], found.meta["registers"]) == (64, 128)
    loop = loop_of(found)
    assert loop["OpSubgroupMatrixMultiplyAccumulateINTEL"] == 16
    assert loop["OpSubgroup2DBlockLoadINTEL"] == 2
    assert loop["OpControlBarrier"] == 1
    no_spills(found)


@tw.kernel
def gemm(
    A, B, C,
    BM: tw.constexpr = 32, BN: tw.constexpr = 32, BK: tw.constexpr = 32, T: tw.constexpr = None,
    ACC: tw.constexpr = tw.f32, SG: tw.constexpr = (2, 1),
):  # fmt: skip
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK), wg_map=tw.wg_map(SG, [BM // SG[0], BK]))
    b = tw.init_tile(B, [0, n], (BK, BN), wg_map=tw.wg_map(SG, [BK, BN // SG[1]]))
    part = tw.wg_map(SG, [BM // SG[0], BN // SG[1]])
    acc = tw.zeros((BM, BN), ACC)
    for _ in range(0, A.shape[1], BK):
        x, y = tw.load_tile(a), tw.load_tile(b)
        if T is not None:
            x, y = x.to(T), y.to(T)
        acc = tw.tile_mma(x, y, acc, wg_map=part)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN), wg_map=part))


@pytest.mark.parametrize(
    "length, blocks", [(4000, True), (4008, True), (4001, False), (24, False)], ids=str
)
def test_rows_of_any_length_of_16_bytes(length: int, blocks: bool) -> None:
    """What block messages reach, they move: rows of 64 bytes and more, at multiples of 16 bytes."""
    spec = [parse_argument(f"f16[{length},{length}]")] * 2 + [
        parse_argument(f"f32[{length},{length}]")
    ]
    found = gemm.compile(*spec, target="xe-pvc")
    loop = loop_of(found.executable)
    assert (loop["OpSubgroup2DBlockLoadTransformINTEL"] > 0) == blocks
    assert (found.remarks == []) == blocks


@pytest.mark.parametrize("target", ["xe-pvc", "xe-dg2"])
def test_rows_of_whole_words_are_read_by_the_subgroup(target: str) -> None:
    """Full blocks at multiples of 4 bytes: rows of A and B, no single elements."""
    spec = [parse_argument("f16[4002,4002]")] * 2 + [parse_argument("f32[4002,4002]")]
    found = gemm.compile(*spec, target=target, BM=64, BN=64, SG=(4, 2)).executable
    loop = loop_of(found)
    # A: 16 rows; B: 32, of 32 columns. What else is loaded stands in branches of ragged blocks.
    assert loop["OpSubgroupBlockReadINTEL"] == 48
    assert all("by rows of the subgroup" in each for each in found.remarks if "load_nd" in each)
    odd = [parse_argument("f16[4001,4001]")] * 2 + [parse_argument("f32[4001,4001]")]
    assert not loop_of(gemm.compile(*odd, target=target, BM=64, BN=64, SG=(4, 2)).executable)[
        "OpSubgroupBlockReadINTEL"
    ]


CASES = {
    "f16": ("f16", "f32", (64, 64, 64), {}),
    "bf16 to bf16": ("bf16", "bf16", (32, 32, 64), {}),
    "i8": ("i8", "i32", (32, 32, 64), {"ACC": tw.i32, "BK": 64}),
    "tf32": ("f32", "f32", (32, 32, 32), {"T": tw.tf32, "BK": 16}),
    "ragged": ("f16", "f32", (45, 47, 33), {}),
    "ragged rows of words": ("f16", "f32", (45, 46, 70), {}),
    "rows of 80 bytes": ("f16", "f32", (40, 40, 40), {}),
    "f16 on dg2": ("f16", "f32", (32, 32, 64), {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("device")
def test_gemm_from_python_runs(name: str, rng: np.random.Generator) -> None:
    from tests.targets.xe.test_execution import random

    given, result, (m, n, k), constants = CASES[name]
    a, b = random(rng, (m, k), given), random(rng, (k, n), given)
    c = random(rng, (m, n), result)
    target = "xe-dg2" if "dg2" in name else "xe-pvc"
    kernel = gemm.compile(a, b, c, target=target, **constants)
    kernel[tw.cdiv(m, 32), tw.cdiv(n, 32)](a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want)
    assert error <= {"bf16": 4e-3, "i32": 0}.get(result, 1e-3 if "tf32" in name else 1e-6)
    no_spills(kernel.executable)


@tw.kernel
def attention(
    Q, K, V, O, scale,
    D: tw.constexpr = 64, BM: tw.constexpr = 128, BN: tw.constexpr = 64, SG: tw.constexpr = 16,
):  # fmt: skip
    m, head = tw.program_id(0) * BM, tw.program_id(1)
    rows = tw.wg_map([SG, 1], [BM // SG, D])
    q = tw.load_tile(tw.init_tile(Q, [head, m, 0], (BM, D), wg_map=rows))
    top = tw.full((BM, 1), -1.0e30, tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    for n in range(0, K.shape[1], BN):
        k = tw.load_tile(tw.init_tile(K, [head, n, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k), wg_map=tw.wg_map([SG, 1], [BM // SG, BN])) * scale
        new = tw.maximum(top, tw.max(s, axis=1))
        p, keep = tw.exp2(s - new), tw.exp2(top - new)
        total = total * keep + tw.sum(p, axis=1)
        v = tw.load_tile(tw.init_tile(V, [head, n, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out * keep, wg_map=rows)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [head, m, 0], (BM, D), wg_map=rows))


def check_attention(kernel: tw.Kernel, target: str, length: int, rng: np.random.Generator) -> None:
    """Two heads of depth 64 without spills, against float64."""
    heads, d = 2, 64
    q, k, v = (rng.standard_normal((heads, length, d)).astype(np.float16) for _ in range(3))
    o = np.full((heads, length, d), np.nan, np.float16)
    compiled = kernel.compile(q, k, v, o, 1.0, target=target)
    no_spills(compiled.executable)
    compiled[1, heads](q, k, v, o, float(np.log2(np.e) / np.sqrt(d)))
    s = q.astype(np.float64) @ k.swapaxes(1, 2) / np.sqrt(d)
    p = np.exp(s - s.max(2, keepdims=True))
    want = p / p.sum(2, keepdims=True) @ v
    assert np.linalg.norm(o - want) <= 2e-3 * np.linalg.norm(want)


@pytest.mark.usefixtures("device")
def test_attention_runs(rng: np.random.Generator) -> None:
    check_attention(attention, "xe-pvc", 128, rng)
