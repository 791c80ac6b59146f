"""Dot products of bytes and of bf16 pairs: which machines use them, and what comes out."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import f32
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tests.acceptance import kernels
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.targets.cpu.test_thin import thin_product
from tilewright.dialects import make_context
from tilewright.dialects.fused import PanelsType
from tilewright.targets.cpu import target as cpu
from tilewright.targets.cpu.machine import CpuMachine, host_features, host_level
from tilewright.uarch.x86 import AVX512, X86_64

I8, U8, BF16 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(ml_dtypes.bfloat16)
VNNI = {"avx512f", "avx512bw", "avx512vnni", "avx512bf16"}

needs_vnni = pytest.mark.skipif(host_level() not in ("vnni", "amx"), reason="needs AVX-512 VNNI")


def random_bytes(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Bytes with many of the least and the greatest."""
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max + 1, shape)
    extreme = rng.choice([info.min, info.max], shape)
    return np.where(rng.random(shape) < 0.5, extreme, drawn).astype(dtype)


@needs_vnni
@pytest.mark.parametrize("size", [(64, 64, 64), (70, 33, 101), (1, 1, 1), (9, 100, 1100)], ids=str)
@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
def test_bytes_of_either_sign(rng, dtype, size):
    m, n, k = size
    a, b = random_bytes(rng, (m, k), dtype), random_bytes(rng, (k, n), dtype)
    want = a.astype(np.int64) @ b.astype(np.int64)
    for operands in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        c = np.full((m, n), 77, np.int32)
        kernel = product.options(machine="vnni")
        tiles = {"BM": 64, "BN": 64, "BK": 32, "ACC": tw.i32}
        made = kernel.compile(*operands, c, **tiles, target="cpu")
        assert "x86.vpdpbusd" in made.ir["mach"]
        assert ", biased>" in made.ir["stage"]
        kernel[tw.cdiv(m, 64), tw.cdiv(n, 64)](*operands, c, **tiles)
        np.testing.assert_array_equal(c, want)


@tw.kernel
def shifted(A, B, S, C, K, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    """C += (A xor S) B over K k, which may be more than either array has; A is made in the kernel."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    c = tw.init_tile(C, [m, n], (BM, BN))
    acc = tw.load_tile(c)
    for k in range(0, K, BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        s = tw.load_tile(tw.init_tile(S, [m, 0], (BM, 1)))
        acc = tw.tile_mma(a ^ s, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc, c)


@needs_vnni
@pytest.mark.parametrize("extents", [(90, 50), (50, 90), (61, 61)], ids=str)
@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
def test_computed_bytes_and_arrays_that_end_early(rng, dtype, extents):
    a, b = random_bytes(rng, (40, extents[0]), dtype), random_bytes(rng, (extents[1], 70), dtype)
    s = random_bytes(rng, (40, 1), dtype)
    c = rng.integers(-(2**31), 2**31, (40, 70)).astype(np.int32)
    wide, deep = np.zeros((40, 128), dtype), np.zeros((128, 70), dtype)
    wide[:, : extents[0]], deep[: extents[1]] = a, b
    want = c + ((wide ^ s).astype(np.int64) @ deep.astype(np.int64)).astype(np.int32)
    kernel = shifted.options(machine="vnni")
    made = kernel.compile(a, b, s, c, 128, BM=32, BN=64, BK=16, target="cpu")
    assert "x86.vpdpbusd" in made.ir["mach"]
    kernel[2, 2](a, b, s, c, 128, BM=32, BN=64, BK=16)
    np.testing.assert_array_equal(c, want)


def test_the_bias_is_taken_off_once_per_panel_of_b():
    a, c = np.zeros((512, 512), np.int8), np.zeros((512, 512), np.int32)
    tiles = {"BM": 256, "BN": 256, "BK": 64, "ACC": tw.i32}
    made = product.options(machine="vnni").compile(a, a, c, **tiles, target="cpu")
    vectors = sum(range(1, AVX512.panels + 1)) * AVX512.nv  # as many panels at once, and fewer
    assert made.ir["mach"].count("x86.vpdpbusd") == (AVX512.mr + 1) * vectors


def bf16_machine() -> Any:
    return CpuMachine.of(X86_64, "vnni", frozenset({"avx512bf16"}), "znver4")


def test_pairs_of_bf16_stay_in_registers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "chosen", lambda _: bf16_machine())
    a, c = np.zeros((256, 256), BF16), np.zeros((256, 256), np.float32)
    made = product.compile(a, a, c, BM=64, BN=64, BK=32, ACC=tw.f32, target="cpu")
    asm = made.asm["asm"]
    # Each of panels and of rows where they lie, a step at once; of rows where they lie beside three panels of B two
    # steps, and the one that is left.
    count = AVX512.mr * (2 * (1 + 2 + 3) + 2 * 3)
    # Where all k are few, both tiles are read where they lie: 4 rows by 4 vectors, inside of the arrays and beyond.
    count += 4 * 4 * 2 * 2
    assert len(re.findall(r"\tvdpbf16ps\t", asm)) == count
    assert not re.search(r"vdpbf16ps\t.*%rsp", asm), "accumulators are spilled"


@pytest.mark.skipif("avx512bf16" not in host_features(), reason="needs AVX-512 BF16")
@pytest.mark.parametrize("size", [(64, 64, 64), (70, 33, 101), (1, 1, 1), (9, 100, 1100)], ids=str)
def test_products_of_bf16(rng, monkeypatch: pytest.MonkeyPatch, size):
    monkeypatch.setattr(cpu, "chosen", lambda _: bf16_machine())
    m, n, k = size
    a, b = (rng.standard_normal(s).astype(BF16) for s in ((m, k), (k, n)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    for operands in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        c = np.full((m, n), np.nan, np.float32)
        product[tw.cdiv(m, 64), tw.cdiv(n, 64)](*operands, c, BM=64, BN=64, BK=32, ACC=tw.f32)
        assert np.linalg.norm(c - want) <= 1e-5 * np.linalg.norm(want)
    q, keys, v = (rng.standard_normal((2, 70, 64)).astype(BF16) for _ in range(3))
    o, p = (np.full(q.shape, np.nan).astype(BF16) for _ in range(2))
    kernels.window_attention[3, 2](q, keys, v, o, 0.125, W=40, CAP=20.0)
    kernels.window_attention.options(target="reference")[3, 2](q, keys, v, p, 0.125, W=40, CAP=20.0)
    got, right = o.astype(np.float64), p.astype(np.float64)
    assert np.linalg.norm(got - right) <= 1e-2 * np.linalg.norm(right)


@pytest.mark.parametrize(
    ("rows", "form", "pairs"),
    [(1, "nn", True), (8, "nn", True), (4, "nt", False), (8, "nt", True)],
)
def test_few_rows_take_pairs_of_bf16_from_where_they_lie(monkeypatch, rows, form, pairs):
    """Rows of B are interleaved in registers; vectors along k are pairs. Beside few rows those are converted: memory
    gives them no sooner."""
    monkeypatch.setattr(cpu, "chosen", lambda _: bf16_machine())
    a, c = np.zeros((rows, 1024), BF16), np.zeros((rows, 256), np.float32)
    b = np.zeros((1024, 256), BF16, order="C" if form == "nn" else "F")
    text = thin_product.compile(a, b, c, 1024, BM=rows, BN=256, BK=32, target="cpu").ir["mach"]
    assert "vdpbf16ps" in text if pairs else "math.fma" in text
    assert ("arith.extf" in text) != pairs
    assert "tw_pack" not in text


@pytest.mark.skipif("avx512bf16" not in host_features(), reason="needs AVX-512 BF16")
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "flip"])
def test_few_rows_of_pairs_at_every_edge(rng, monkeypatch: pytest.MonkeyPatch, form):
    """k, rows and columns end anywhere; whole small tiles, single k and long runs; C holds something before."""
    monkeypatch.setattr(cpu, "chosen", lambda _: bf16_machine())
    for rows, cols, step, most in (
        (1, 64, 2, 300),
        (3, 48, 16, 99),
        (8, 96, 32, 64),
        (7, 24, 64, 900),
    ):
        m, n, k = (int(rng.integers(1, end + 1)) for end in (2 * rows, 2 * cols, most))
        a, b = (rng.standard_normal(s).astype(BF16) for s in ((m, k), (k, n)))
        c = rng.standard_normal((m, n)).astype(np.float32)
        want = c + a.astype(np.float64) @ b.astype(np.float64)
        given = [
            np.asfortranarray(x) if t == "t" else x for x, t in zip((a, b), form, strict=False)
        ]
        if form == "flip":
            given[1] = np.ascontiguousarray(b.T)
        tiles = {"BM": rows, "BN": cols, "BK": step, "FLIP": form == "flip"}
        thin_product[tw.cdiv(m, rows), tw.cdiv(n, cols)](*given, c, k, **tiles)
        assert np.linalg.norm(c - want) <= 1e-5 * np.linalg.norm(want), (m, n, k)


def test_pairs_of_bf16_are_used_where_the_core_is_faster_with_them():
    """By rates: half of f32 FMA on the core that was measured first, twice on Zen 4 and 5; none without the feature."""

    def pairs(features: set[str], core: str) -> bool:
        return any(m.types[0] == "bf16" for m in X86_64.dots(features, 64, core))

    kernel = X86_64.able(VNNI, "bf16", "bf16", "f32")[0]
    wide = X86_64.able(VNNI, "f32", "f32", "f32")[0]
    for core in ("znver4", "znver5"):
        assert pairs(VNNI, core)
        assert not pairs(VNNI - {"avx512bf16"}, core)
        assert X86_64.rate(kernel, core) == 2 * X86_64.rate(wide, core)
    assert not pairs(VNNI, "")
    assert CpuMachine.of(X86_64, "vnni", frozenset({"avx512bf16"})).key() != bf16_machine().key()


def test_biased_panels_as_text():
    text = "!stage.panels<8x4xsi8, k = 1, biased>"
    kind = Parser(make_context(), text).parse_type()
    assert isinstance(kind, PanelsType) and kind.biased.data == 1 and str(kind) == text
    plain = "!stage.panels<8x4xsi8, k = 1>"
    assert str(Parser(make_context(), plain).parse_type()) == plain
    with pytest.raises(VerifyException, match="biased panels hold integers, not f32"):
        PanelsType(8, 1, f32, 1, biased=True)
