"""AMX micro-kernels: the code that is made for them on any machine, their results where there is one."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import llvm
from xdsl.dialects.builtin import bf16
from xdsl.ir import Block

import tilewright as tw
from tests.acceptance.kernels import gemm_init_in_loop as product
from tilewright.codegen.builder import Builder
from tilewright.codegen.native import host_features
from tilewright.dialects import mach
from tilewright.dialects.upstream.arith import constant
from tilewright.ops.attention import attention_kernel
from tilewright.targets.cpu.contract import ContractEmitter
from tilewright.targets.cpu.family import PanelOperand
from tilewright.targets.cpu.panels import PanelFormat

BF16 = np.dtype(ml_dtypes.bfloat16)
I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)


def assembly(dtype, out, acc, bk, bn=160, bm=64):
    a, c = np.zeros((256, 256), dtype), np.zeros((256, 256), out)
    kernel = product.options(target="cpu", machine="amx")
    return kernel.compile(a, a, c, BM=bm, BN=bn, BK=bk, ACC=acc).asm["asm"]


def count(asm: str, instruction: str) -> int:
    return len(re.findall(rf"\t{instruction}\t", asm))


def loads(asm: str, product: str) -> set[tuple[int, int, int]]:
    """Of each loop: loads of tiles that pass the first cache, other loads, products."""
    loops = [each for each in re.split(r"\n(?=\.L\w+:)", asm) if count(each, product)]
    names = "tileloaddt1", "tileloadd", product
    return {tuple(count(each, name) for name in names) for each in loops}


@pytest.mark.parametrize(
    "dtype, out, acc, instruction, bk",
    [
        (BF16, BF16, tw.f32, "tdpbf16ps", 32),
        (I8, np.int32, tw.i32, "tdpbssd", 64),
        (U8, np.int32, tw.i32, "tdpbuud", 64),
    ],
    ids=str,
)
def test_no_tile_is_spilled_and_the_configuration_is_loaded_once(dtype, out, acc, instruction, bk):
    asm = assembly(dtype, out, acc, bk)
    loops = count(asm, instruction) // 4
    assert loops >= 1, "the kernel does not use AMX"
    assert count(asm, instruction) == 4 * loops
    # LLVM may share the stores of the two loops; one copies two tiles of A. A spill would be one more, on the stack.
    assert count(asm, "tilestored") <= 4 * loops + 2, "tiles are spilled"
    assert not re.search(r"\ttile(stored|loadd)\t.*%rsp", asm), "tiles are spilled"
    # Panels of A pass the first cache; rows of its array do not: each may start within a line, and need two.
    assert loads(asm, instruction) == {(2, 2, 4), (0, 4, 4)}
    # What comes next of either operand's panels is fetched while tiles are multiplied: four lines of each per step. Of
    # rows of the array of A, which every other loop reads, nothing is: measured, caches fetch them sooner.
    assert count(asm, "prefetcht1") == 4 * loops + 4 * (loops // 2)
    # So is the block of C that comes next, into the first cache: two of its rows, of two lines, per step.
    assert count(asm, "prefetcht0") == 4 * loops
    calls = len(re.findall(r"\tcallq\t\w*_panels", asm))
    assert count(asm, "ldtilecfg") <= 1 + calls, "the configuration is lost in calls only"


def test_the_next_panel_of_a_is_fetched_whole():
    """By as many micro-kernels as there are panels of B: eleven of 32 lines, so three of A and four of B per step."""
    asm = assembly(BF16, BF16, tw.f32, 32, bn=352)
    loops = count(asm, "tdpbf16ps") // 4
    assert count(asm, "prefetcht1") == 4 * loops + 3 * (loops // 2)


@pytest.mark.parametrize("steps", [1, 2, 16])
@pytest.mark.parametrize("uses", [8, 16, 32])
def test_turns_of_a_panel_fetch_each_line_of_the_next_once(uses, steps):
    """However few steps of tiles a block of k takes, as heads of 64 elements do."""
    format = PanelFormat(32, 2, bf16)
    block = Block(arg_types=[llvm.LLVMPointerType()] * 2)
    emitter = SimpleNamespace(b=Builder(block))
    panel = PanelOperand(block.args[0], 4, 128)
    lines: list[int] = []
    for turn in range(uses):
        fetch = ContractEmitter.fetch(
            emitter, panel, format, 1 << 20, 32 * uses, 32, turn, steps, block.args[1]
        )
        made = fetch.pointer.owner
        start = constant(made.offset) if isinstance(made, mach.PtrAddOp) else 0
        lines += [start + k * fetch.step + 64 * i for k in range(steps) for i in range(fetch.lines)]
    assert lines == list(range(0, 32 * 64 * steps, 64))


def test_a_depth_that_is_no_whole_tile_uses_tiles_too():
    """The last step is padded, and no tile is spilled for it."""
    asm = assembly(I8, np.int32, tw.i32, 32)
    assert count(asm, "tdpbssd") > 4
    assert not re.search(r"\ttile(stored|loadd)\t.*%rsp", asm), "tiles are spilled"


@pytest.mark.parametrize("bm, bn", [(16, 16), (16, 32), (64, 16)])
def test_panels_are_as_narrow_as_tiles_of_programs_so_that_both_operands_are_packed_once(bm, bn):
    asm = assembly(BF16, BF16, tw.f32, 32, bn, bm)
    rows, columns = (1 if n <= 16 else 2 for n in (bm, bn))
    expected = {(rows, columns, rows * columns), (0, rows + columns, rows * columns)}
    assert loads(asm, "tdpbf16ps") == expected
    assert "tw_pack0" in asm and "tw_pack1" in asm


@pytest.mark.parametrize("bm, bn, tiles", [(64, 64, 4), (32, 40, 3), (64, 80, 3), (32, 128, 4)])
def test_rows_along_k_are_read_once_beside_up_to_four_tiles_of_columns(bm, bn, tiles):
    """Beside up to eight twice, half of these each time."""
    asm = assembly(BF16, BF16, tw.f32, 32, bn, bm)
    assert loads(asm, "tdpbf16ps") == {(1, tiles, tiles), (0, 1 + tiles, tiles)}
    assert not re.search(r"\ttile(stored|loadd)\t.*%rsp", asm), "tiles are spilled"


@pytest.mark.parametrize("bm, d, turned", [(16, 64, True), (32, 128, False), (64, 256, False)])
def test_scores_of_a_loop_are_not_turned_round_where_k_is_short(bm, d, turned):
    """Keys lie along k: beside one tile of queries they are read where they lie, else packed in groups of two."""
    q, out = np.zeros((2, 2, 256, d), BF16)
    kernel = attention_kernel.options(target="cpu", machine="amx")
    stage = str(kernel.compile(q, q, q, out, 1.0, D=d, BM=bm, BN=128).ir["stage"])
    of_keys = re.search(r'stage.pack"\(%K,.*?-> !stage.panels<(\w+), k = 1>', stage, re.DOTALL)
    assert of_keys is not None
    assert of_keys[1] == ("32x32xbf16" if turned else "32x2xbf16")


@pytest.mark.skipif("amx-tile" not in host_features(), reason="this machine has no AMX")
@pytest.mark.parametrize("form", ["nn", "nt"])
@pytest.mark.parametrize("dtype", [BF16, I8, np.dtype(np.float16)], ids=str)
def test_results_of_rows_that_are_read_once(dtype, form, rng):
    """33 to 128 columns beside A, or rows beside a B that lies along k: parts of tiles, and of blocks of k."""
    for bk, most in ((32, 65), (64, 65), (64, 129)):
        m, n, k = (
            int(rng.integers(low, high)) for low, high in ((1, 2 * most), (65, 300), (1, 5000))
        )
        tile = (int(rng.integers(most // 2 + 1, most)), 128)
        if form == "nn":
            m, n, tile = n, m, tile[::-1]
        if dtype == I8:
            a, b = (rng.integers(-128, 128, s, np.int8) for s in ((m, k), (n, k)))
            c, acc = np.full((m, n), -1, np.int32), tw.i32
        else:
            a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (n, k)))
            c, acc = np.full((m, n), np.nan, np.float32), tw.f32
        b = b.T if form == "nt" else np.ascontiguousarray(b.T)
        bm, bn = tile
        product.options(target="cpu")[tw.cdiv(m, bm), tw.cdiv(n, bn)](
            a, b, c, BM=bm, BN=bn, BK=bk, ACC=acc
        )
        exact = a.astype(np.float64) @ b.astype(np.float64)
        limit = 0 if dtype == I8 else 1e-5
        assert np.linalg.norm(c - exact) <= limit * np.linalg.norm(exact), (m, n, k, tile)


@pytest.mark.skipif("amx-tile" not in host_features(), reason="this machine has no AMX")
@pytest.mark.parametrize("tile", [(16, 16, 32), (48, 16, 64), (16, 48, 16)], ids=str)
def test_results_of_small_tiles_on_ragged_shapes(tile, rng):
    a, b = (rng.standard_normal(s).astype(BF16) for s in ((70, 130), (130, 90)))
    c = np.full((70, 90), np.nan, np.float32)
    bm, bn, bk = tile
    product.options(target="cpu")[-(-70 // bm), -(-90 // bn)](a, b, c, BM=bm, BN=bn, BK=bk)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(c - wanted) <= 1e-6 * np.linalg.norm(wanted)


@pytest.mark.skipif("amx-tile" not in host_features(), reason="this machine has no AMX")
@pytest.mark.parametrize("shape", [(64, 96, 64), (1, 1, 1), (70, 100, 130), (65, 97, 33)], ids=str)
@pytest.mark.parametrize("dtype, bk", [(BF16, 32), (I8, 64), (U8, 128)], ids=str)
def test_results_on_ragged_shapes(dtype, bk, shape, rng):
    m, n, k = shape
    if dtype == BF16:
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
        c, acc = np.full((m, n), np.nan, np.float32), tw.f32
    else:
        info = np.iinfo(dtype)
        a, b = (rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in ((m, k), (k, n)))
        c, acc = np.full((m, n), -1, np.int32), tw.i32
    product.options(target="cpu")[tw.cdiv(m, 64), tw.cdiv(n, 96)](
        a, b, c, BM=64, BN=96, BK=bk, ACC=acc
    )
    exact = a.astype(np.float64) @ b.astype(np.float64)
    if dtype == BF16:
        assert np.linalg.norm(c - exact) <= 1e-5 * np.linalg.norm(exact)
    else:
        np.testing.assert_array_equal(c, exact.astype(np.int64))


def test_f16_without_products_of_its_own_is_exact_and_keeps_infinity_and_nan(rng):
    """As sums of two bf16: on machines with AMX-FP16 it is one product, and the same holds."""
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((70, 300), (300, 50)))
    a[3, 5], a[7, 6], b[9, 2] = np.inf, -np.inf, np.nan
    b[5, 4] = b[6, 8] = 0
    a[20] *= np.float16(1e-6)
    a[21] = 0
    c = np.full((70, 50), 7, np.float32)
    product.options(target="cpu")[2, 1](a, b, c, BM=64, BN=96, BK=16, ACC=tw.f32)
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(c), np.isfinite(exact))
    np.testing.assert_array_equal(c[~np.isfinite(c)], exact[~np.isfinite(c)])
    assert not c[21][np.isfinite(exact[21])].any()
    fine = np.isfinite(exact)
    small = np.zeros_like(fine)
    small[20] = fine[20]
    for part in (fine, small):
        assert np.linalg.norm(c[part] - exact[part]) <= 1e-6 * np.linalg.norm(exact[part])


@pytest.mark.parametrize("scale", [False, True])
def test_rows_of_a_result_are_fetched_before_they_are_written(scale):
    """Whatever becomes of the sums: micro-kernels of tiles fetch nothing that is written."""

    @tw.kernel
    def scaled(A, B, C, S: tw.constexpr):
        m = tw.program_id(0) * 64
        a, b = tw.init_tile(A, [m, 0], (64, 64)), tw.init_tile(B, [0, 0], (64, 96))
        c = tw.tile_mma(tw.load_tile(a), tw.load_tile(b))
        tw.store_tile((c * 0.5 if S else c).to(C.dtype), tw.init_tile(C, [m, 0], (64, 96)))

    a, b, c = (np.zeros(shape, BF16) for shape in ((256, 64), (64, 96), (256, 96)))

    def fetched(**options) -> int:
        kernel = scaled.options(target="cpu", machine="amx", **options)
        return len(re.findall("mach.prefetch.*write", kernel.compile(a, b, c, S=scale).ir["mach"]))

    assert fetched() > 0
    assert fetched(disable="prefetch") == 0


def test_rows_of_a_are_copied_by_the_first_products():
    """Beside more than four panels of B: of two loops one stores, beside sums, the tiles of A that it loads."""

    def stores(bn: int) -> list[int]:
        a, c = np.zeros((256, 256), BF16), np.zeros((256, 256), BF16)
        kernel = product.options(target="cpu", machine="amx")
        text = kernel.compile(a, a, c, BM=64, BN=bn, BK=32).ir["mach"]
        loops = text.split("scf.for")
        return [n for n in (each.count("x86.amx.tilestore") for each in loops) if n]

    assert sorted(set(stores(160))) == [4, 6] and set(stores(128)) == {4}


@pytest.mark.skipif("amx-tile" not in host_features(), reason="this machine has no AMX")
@pytest.mark.parametrize("dtype, bk", [(BF16, 32), (I8, 64), (U8, 64)], ids=str)
def test_results_where_rows_of_a_are_copied_by_the_first_products(dtype, bk, rng):
    """Panels that are not whole, k that ends in a step, strided rows with other numbers behind them, few readers or
    rows 8 KB apart, which are packed in front."""
    for apart in (0, 0, 8192 // dtype.itemsize):
        m, n, k = (int(rng.integers(low, high)) for low, high in ((40, 500), (130, 900), (1, 1500)))
        behind = apart or k + int(rng.integers(0, 70))
        if dtype == BF16:
            wide, b = (rng.standard_normal(s).astype(dtype) for s in ((m, max(behind, k)), (k, n)))
            wide[:, k:] = np.nan
            c, acc = np.full((m, n), np.nan, np.float32), tw.f32
        else:
            info, shapes = np.iinfo(dtype), ((m, max(behind, k)), (k, n))
            wide, b = (rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in shapes)
            c, acc = np.full((m, n), -1, np.int32), tw.i32
        a = wide[:, :k]
        product.options(target="cpu")[tw.cdiv(m, 64), tw.cdiv(n, 256)](
            a, b, c, BM=64, BN=256, BK=bk, ACC=acc
        )
        exact = a.astype(np.float64) @ b.astype(np.float64)
        limit = 1e-5 if dtype == BF16 else 0
        assert np.linalg.norm(c - exact) <= limit * np.linalg.norm(exact), (m, n, k, behind)


@pytest.mark.parametrize("columns", ["short rows along n", "rows along k"])
@pytest.mark.parametrize("threads", [1, 3])
def test_bytes_are_packed_in_parts_of_long_rows(columns, threads, rng):
    """More panels than one task packs, blocks of k in several parts, the last of them short; either operand."""
    m, n, k = (
        int(rng.integers(low, high)) for low, high in ((300, 400), (2050, 2200), (1030, 1200))
    )
    if columns == "rows along k":
        b = rng.integers(-128, 127, (n, k), np.int8, endpoint=True).T
        a = rng.integers(-128, 127, (k, m), np.int8, endpoint=True).T
    else:
        b = rng.integers(-128, 127, (k, n), np.int8, endpoint=True)
        a = rng.integers(-128, 127, (m, k), np.int8, endpoint=True)
    c = np.full((m, n), -1, np.int32)
    grid = tw.cdiv(m, 32), tw.cdiv(n, 256)
    kernel = product.options(target="cpu", num_threads=threads)
    kernel[grid](a, b, c, BM=32, BN=256, BK=64, ACC=tw.i32)
    np.testing.assert_array_equal(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))


ASKED = """
import numpy as np
from tests.acceptance.kernels import gemm_init_in_loop as product
a, c = np.ones((64, 64), np.int8), np.zeros((64, 64), np.int32)
import tilewright as tw
product.options(target="cpu", machine="amx")[1, 1](a, a, c, BM=64, BN=64, BK=64, ACC=tw.i32)
assert (c == 64).all()
"""


@pytest.mark.skipif("amx-tile" not in host_features(), reason="this machine has no AMX")
def test_leave_to_use_tiles_is_asked_for_where_a_kernel_names_the_level():
    """A process that did not get it is killed by its first tile."""
    subprocess.run([sys.executable, "-c", ASKED], check=True)
