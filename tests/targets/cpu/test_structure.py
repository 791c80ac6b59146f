"""What the compiler makes of programs: equal code for equal meaning, ablations, machine levels, remarks."""

from __future__ import annotations

import gc
import re
from types import SimpleNamespace
from typing import Any
from weakref import ref

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import bf16, i8

import tilewright as tw
from benchmarks.suites.layers import product
from tests.acceptance import kernels
from tilewright import ops
from tilewright.codegen.elf import objects
from tilewright.codegen.native import host_architecture, host_level
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu import target
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.packing import k_per_task
from tilewright.targets.cpu.panels import PanelFormat
from tilewright.targets.cpu.pipeline import PIPELINE
from tilewright.targets.cpu.target import TARGET

TILES = {"BM": 64, "BN": 64, "BK": 32}


def objects_of(made: Any) -> list[bytes]:
    return [*objects(made.executable.artifacts()["object"])]


@pytest.mark.parametrize("level", ["avx2", "avx512", "amx"])
def test_what_packs_arrays_is_compiled_once_for_kernels_that_differ_elsewhere(level: str) -> None:
    x, c = np.zeros((256, 256), ml_dtypes.bfloat16), np.zeros((256, 256), np.float32)
    kernel = product.options(machine=level)
    tiles = ({"BM": 128, "BN": 128, "BK": k} for k in (32, 64))
    one, other = (kernel.compile(x, x, c, ACC=tw.f32, target="cpu", **t) for t in tiles)
    # Two that pack, and nests of loops in which the kernels are the same, too.
    assert objects_of(one)[:-1] == objects_of(other)[:-1] and len(objects_of(one)) > 3
    # How often arrays are read is the plan's to compute: divisions by numbers of a grid, which might fail.
    assert "tw_program_failed" not in one.asm["llvm"]
    assert one.asm["llvm"].count("\ndefine ") == other.asm["llvm"].count("\ndefine ")
    assert len([*objects(one.executable.linkable())]) == 1


def test_the_text_of_a_kernel_from_disk_is_that_of_its_code() -> None:
    x = np.zeros((256, 256), np.float32)
    made = product.compile(x, x, x.copy(), target="cpu", **TILES)
    again = TARGET.load(made.executable.artifacts(), made.options)
    assert "llvm" not in made.executable.artifacts()
    assert again.asm["llvm"] == made.asm["llvm"]


def test_the_code_of_a_kernel_goes_with_it() -> None:
    """Its memory does not wait for the garbage collector."""
    x = np.zeros((256, 256), np.float32)
    made = product.compile(x, x, x.copy(), target="cpu", **TILES)
    again = TARGET.load(made.executable.artifacts(), made.options)
    gone = ref(again)
    gc.disable()
    try:
        del again
        assert gone() is None
    finally:
        gc.enable()


def operands(
    rng: np.random.Generator, m: int, n: int, k: int, dtype: Any = np.float32
) -> list[Any]:
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    return [a, b, np.full((m, n), np.nan).astype(np.float32)]


def grid_of(kernel: Any, m: int, n: int) -> tuple[int, int]:
    grid = tw.cdiv(m, 64), tw.cdiv(n, 64)
    return grid[::-1] if "swapped" in kernel.__name__ else grid


@pytest.mark.parametrize("kernel", kernels.GEMM_REWRITES, ids=lambda k: k.__name__)
def test_rewrites_keep_their_products_and_copies(rng: np.random.Generator, kernel: Any) -> None:
    args = operands(rng, 130, 70, 100)
    plain = kernels.gemm.compile(*args, **TILES, target="cpu")
    other = kernel.compile(*args, **TILES, target="cpu")
    for op in ("stage.contract", "stage.pack ", "stage.panel ", "scf.for"):
        assert other.ir["stage"].count(op) == plain.ir["stage"].count(op), op
    for op in ("math.fma", "scf.for"):
        assert other.ir["mach"].count(op) == plain.ir["mach"].count(op), op
    kernel[grid_of(kernel, 130, 70)](*args, **TILES)
    np.testing.assert_allclose(args[2], args[0] @ args[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", PIPELINE.switches)
def test_without_an_optimisation_results_stay(rng: np.random.Generator, name: str) -> None:
    a, b, c = operands(rng, 130, 70, 100)
    kernels.gemm.options(disable=name)[3, 2](a, b, c, **TILES)
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    q, k, v = (rng.standard_normal((2, 100, 64)).astype(np.float32) for _ in range(3))
    outs = [np.full_like(q, np.nan) for _ in range(2)]
    for out, off in zip(outs, (name, ()), strict=True):
        kernels.window_attention.options(disable=off)[4, 2](q, k, v, out, 0.125, W=40, CAP=20.0)
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-4, atol=1e-5)
    x = rng.standard_normal((100, 130)).astype(np.float32)
    mean, var = np.full(130, np.nan, np.float32), np.full(130, np.nan, np.float32)
    kernels.column_stats.options(disable=name)[3](x, mean, var)
    np.testing.assert_allclose(mean, x.mean(0), atol=1e-5)


def test_ablations_change_the_code(rng: np.random.Generator) -> None:
    args = operands(rng, 130, 70, 100)
    stage = {
        off: kernels.gemm.options(disable=off).compile(*args, **TILES, target="cpu").ir["stage"]
        for off in ((), "packing", "contraction")
    }
    assert "stage.panel" in stage[()] and "stage.panel" not in stage["packing"]
    assert "scf.for" in stage["contraction"] and "scf.for" not in stage[()]


def test_machines_say_what_their_products_use() -> None:
    named = {name: str(machine(name)) for name in ("x86-64", "avx2", "avx512", "vnni", "amx")}
    assert named["x86-64"] == "SSE2" and named["avx2"] == "AVX2" and named["avx512"] == "AVX-512"
    assert named["vnni"] == "AVX-512 with VNNI"
    assert named["amx"] == "AVX-512 with VNNI and AMX for bf16, i8"
    assert str(target.chosen(None)) in TARGET.describe(CompileOptions())


def test_an_unknown_pass_to_disable_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(
        tw.UnsupportedError,
        match=r"no pass 'pakcing' to disable\s+hint: did you mean packing\? its",
    ):
        kernels.gemm.options(disable="pakcing").compile(
            *operands(rng, 64, 64, 64), **TILES, target="cpu"
        )


def available(level: str) -> bool:
    return level in levels_here()


@pytest.mark.parametrize("level", ["x86-64", "avx2", "avx512", "vnni"])
def test_every_level_of_vectors(rng: np.random.Generator, level: str) -> None:
    if not available(level):
        pytest.skip(f"this machine has no {level}")
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float16):
        a, b, c = operands(rng, 70, 90, 50, dtype)
        kernels.gemm.options(machine=level)[2, 2](a, b, c, **TILES)
        want = a.astype(np.float64) @ b.astype(np.float64)
        assert np.linalg.norm(c - want) <= 1e-5 * np.linalg.norm(want)
    q, k, v = (rng.standard_normal((2, 50, 64)).astype(np.float32) for _ in range(3))
    o, p = np.full_like(q, np.nan), np.full_like(q, np.nan)
    kernels.window_attention.options(machine=level)[2, 2](q, k, v, o, 0.125, W=40, CAP=20.0)
    kernels.window_attention.options(target="reference")[2, 2](q, k, v, p, 0.125, W=40, CAP=20.0)
    np.testing.assert_allclose(o, p, rtol=1e-4, atol=1e-5)


def test_inner_loops_of_products_hold_no_other_memory(rng: np.random.Generator) -> None:
    """In the loop of products accumulators stay in registers: no store, and one load per operand element."""
    args = operands(rng, 256, 256, 256)
    asm = kernels.gemm.compile(*args, target="cpu").asm["asm"].splitlines()
    first = next(i for i, line in enumerate(asm) if "vfmadd" in line)
    start = max(i for i in range(first) if re.match(r"\.LBB\d+_\d+:", asm[i]))
    stop = next(i for i in range(first, len(asm)) if re.match(r"\s+j\w+\s", asm[i]))
    body = asm[start:stop]
    assert not any(re.search(r"\tv?mov\w+\t%[xyz]mm\d+, .*\(", line) for line in body)


def test_three_panels_at_once_stay_in_registers(rng: np.random.Generator) -> None:
    """avx2: loops of 4 x 24, 4 x 16 and 4 x 8 of C, in each as many products as accumulators and no store."""
    args = operands(rng, 256, 256, 256)
    asm = kernels.gemm.options(machine="avx2").compile(*args, target="cpu").asm["asm"].splitlines()
    starts = [i for i, line in enumerate(asm) if re.match(r"\.LBB\d+_\d+:", line)]
    bodies = [asm[i:j] for i, j in zip(starts, [*starts[1:], len(asm)], strict=True)]
    products = {sum("vfmadd" in line for line in body) for body in bodies} - {0}
    assert products >= {24, 16, 8}  # two k per trip
    for body in bodies:
        if any("vfmadd" in line for line in body):
            end = next(
                (i for i, line in enumerate(body) if re.match(r"\s+j\w+\s", line)), len(body)
            )
            assert not any(re.search(r"\tv?mov\w+\t%[xyz]mm\d+, .*\(", line) for line in body[:end])


def test_an_operand_that_cannot_be_packed_ahead_has_a_remark(rng: np.random.Generator) -> None:
    a = rng.standard_normal((64, 64)).astype(np.float32)
    k = kernels.gemm.compile(a, a, a, **TILES, target="cpu")
    del k
    s = rng.standard_normal((64, 1)).astype(np.float32)
    i = rng.integers(-9, 9, (64, 64)).astype(np.int8)
    k = kernels.dequant_gemm.compile(i, s, a, a.copy(), target="cpu")
    assert any("packed by every workgroup" in r for r in k.remarks)


@tw.kernel
def mapped(X, Y):
    m = tw.wg_map([2, 2], [8, 16])
    x = tw.load_tile(tw.init_tile(X, [0, 0], (16, 32), wg_map=m))
    tw.store_tile(x + 1.0, tw.init_tile(Y, [0, 0], (16, 32), wg_map=m))


def test_maps_are_advice_or_refused(rng: np.random.Generator) -> None:
    x = rng.standard_normal((16, 32)).astype(np.float32)
    y = np.full_like(x, np.nan)
    mapped[1](x, y)
    np.testing.assert_array_equal(y, x + 1)
    assert any("map" in r for r in mapped.compile(x, y, target="cpu").remarks)
    with pytest.raises(tw.UnsupportedError, match="map"):
        mapped.options(maps="strict")[1](x, y)


@tw.kernel(level="subgroup", subgroups=4)
def by_subgroup(X, Y, BM: tw.constexpr = 8, BN: tw.constexpr = 32):
    m = (tw.program_id(0) * tw.num_subgroups() + tw.subgroup_id()) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)))
    tw.store_tile(x * 2.0 + tw.sum(x, 1), tw.init_tile(Y, [m, 0], (BM, BN)))


def test_subgroup_kernels(rng: np.random.Generator) -> None:
    x = rng.standard_normal((90, 32)).astype(np.float32)
    y = np.full_like(x, np.nan)
    by_subgroup[3](x, y)
    np.testing.assert_allclose(y, x * 2 + x.sum(1, keepdims=True), rtol=1e-4, atol=1e-4)


@tw.kernel(level="subgroup", subgroups=2)
def turned(X, Y, Z, M: tw.constexpr):
    at = (tw.program_id(0) * tw.num_subgroups() + tw.subgroup_id()) * M
    x = tw.load_tile(tw.init_tile(X, [at, 0], (M, 96)))
    tw.store_tile(tw.transpose(x), tw.init_tile(Y, [0, at], (96, M)))
    tw.store_tile(x - tw.max(x, 1), tw.init_tile(Z, [at, 0], (M, 96)))


def test_tiles_that_no_subgroup_holds_are_loops(rng: np.random.Generator) -> None:
    lines: list[int] = []
    for m in (256, 512):
        x = rng.standard_normal((2 * m + 5, 96)).astype(np.float32)
        y, z = np.full_like(x.T, np.nan, order="C"), np.full_like(x, np.nan)
        turned[2](x, y, z, M=m)
        np.testing.assert_array_equal(y, x.T)
        np.testing.assert_array_equal(z, x - x.max(1, keepdims=True))
        lines.append(turned.compile(x, y, z, M=m, target="cpu").asm["llvm"].count("\n"))
    assert lines[0] == pytest.approx(lines[1], rel=0.02) and lines[0] < 5000


def test_threads_give_the_same_result(rng: np.random.Generator) -> None:
    a, b, c = operands(rng, 300, 200, 100)
    for threads in (1, 2, 3):
        c[:] = np.nan
        kernels.gemm.options(num_threads=threads)[5, 4](a, b, c, **TILES)
        np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)


def test_launches_from_several_threads(rng: np.random.Generator) -> None:
    from concurrent.futures import ThreadPoolExecutor

    cases = [operands(rng, 100 + i, 70, 90) for i in range(8)]

    def run(args: list[Any]) -> None:
        for _ in range(5):
            kernels.gemm[2, 2](*args, **TILES)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, cases))
    for a, b, c in cases:
        np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)


def test_arrays_without_a_unit_stride_have_a_remark(rng: np.random.Generator) -> None:
    a, b, c = operands(rng, 64, 64, 64)
    plain = kernels.gemm.compile(a, b, c, **TILES, target="cpu")
    assert not any("unit stride" in r for r in plain.remarks)
    strided = kernels.gemm.compile(a[::2, ::2], b, c, **TILES, target="cpu")
    assert any("A has no unit stride" in r for r in strided.remarks)


@tw.kernel
def product_of_part(
    A: Any, B: Any, C: Any, K: Any, ACC: tw.constexpr = tw.f32, BM: tw.constexpr = 64, BN: tw.constexpr = 48,
    BK: tw.constexpr = 8,
):  # fmt: skip
    """C = A[:, :K] B[:K]."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, K, BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


LEVELS = ["x86-64", "avx2", "avx512", "vnni", "amx"]


def levels_here() -> list[str]:
    """The levels of machines whose code this one runs."""
    levels = list(host_architecture().levels)
    return levels[: levels.index(host_level()) + 1]


@pytest.mark.parametrize("level", levels_here())
@pytest.mark.parametrize("dtype", ["bf16", "i8", "u8"])
@pytest.mark.parametrize("size", [(60, 40), (300, 200)], ids=["one", "many"])
def test_a_range_of_k_ends_within_a_group_while_the_arrays_go_on(
    rng: np.random.Generator, level: str, dtype: str, size: tuple[int, int]
) -> None:
    m, n = size
    k, end = 1200, 8 * int(rng.integers(1, 140)) + 8
    element = getattr(tw, dtype).numpy
    if dtype == "bf16":
        a, b = (rng.standard_normal(s).astype(element) for s in ((m, k), (k, n)))
        a[:, end:], b[end:] = np.nan, np.inf
        c, acc = np.full((m, n), np.nan, np.float32), tw.f32
    else:
        info = np.iinfo(element)
        a, b = (
            rng.integers(info.min, info.max, s, element, endpoint=True) for s in ((m, k), (k, n))
        )
        c, acc = np.full((m, n), -1, np.int32), tw.i32
    kernel = product_of_part.options(target="cpu", machine=level)
    kernel[tw.cdiv(m, 64), tw.cdiv(n, 48)](a, b, c, end, ACC=acc)
    exact = a[:, :end].astype(np.float64) @ b[:end].astype(np.float64)
    error = np.linalg.norm(c - exact) / np.linalg.norm(exact)
    assert error <= (1e-5 if dtype == "bf16" else 0)


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(
    "size", [(1, 300, 700), (300, 3, 700), (100, 100, 700), (600, 600, 40)], ids=str
)
def test_operands_read_once_or_often_from_any_layout(
    rng: np.random.Generator, size: tuple[int, int, int], dtype: Any, form: str
) -> None:
    m, n, k = size
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((2, m, k), (2, k, n)))
    if form[0] == "t":
        a = np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)
    if form[1] == "t":
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    c = np.full((2, m, n), np.nan, np.float32)
    ops.matmul(a, b, out=c, target="cpu")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(c - exact) <= 1e-5 * np.linalg.norm(exact)


def test_a_pack_says_how_often_it_is_read() -> None:
    """As a number of the launch, which decides who packs: a phase of its own, or those who read."""
    a, b, c = (np.zeros((512, 512), np.float32) for _ in range(3))
    mach = kernels.gemm.compile(a, b, c, **TILES, target="cpu").ir
    assert mach["stage"].count("gpu.grid_dim") == 3
    assert mach["mach"].count("_panels(%") - 2 == 4  # by a phase of its own, or by who reads


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_few_rows_are_packed_by_many_threads(rng: np.random.Generator, layout: str) -> None:
    """In front, since 35 tiles read them; blocks of k are as deep as eight rows of tiles there, their parts are not."""
    format = PanelFormat(16, 64, i8)
    runs = [SimpleNamespace(format=format, along_k=True, depth=d) for d in (0, 512, 1024, 8192)]
    assert [k_per_task(each) for each in runs] == [128, 512, 1024, 1024]
    wide = SimpleNamespace(format=PanelFormat(16, 32, bf16), along_k=True, depth=4096)
    assert k_per_task(wide) == 512
    m, n, k = 61, 1100, 3001
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    if layout == "nt":
        b = np.asfortranarray(b)
    c = np.full((m, n), 7, np.int32)
    options = {"target": "cpu", "num_threads": 16}
    product.options(**options)[1, tw.cdiv(n, 32)](a, b, c, BM=64, BN=32, BK=64, ACC=tw.i32)
    assert np.array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
