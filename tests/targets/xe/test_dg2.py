"""DG2 without 2D blocks, and PVC and BMG where 2D blocks cannot: right at every stage, without spills, few messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.xe import kernels
from tests.targets.xe.conftest import agree, build
from tests.targets.xe.dg2 import adapted
from tests.targets.xe.test_execution import random
from tests.targets.xe.test_pipeline import check_attention, compiled, gemm, loop_of, no_spills
from tilewright.diagnostics import UnsupportedError
from tilewright.targets.xe import forms, offline, report, spirv_reader
from tilewright.tools.cli import main

DPAS, ROWS = "OpSubgroupMatrixMultiplyAccumulateINTEL", "OpSubgroupBlockReadINTEL"

# Per step of 32 along k: 16 rows of A; 32 of B, or 8 vectors of 32 bytes of a transposed B; with shared memory the
# subgroup's share of both, 4 + 4 rows, and 16 messages of 8 rows of B from there.
APPENDIX = {
    "xegpu_1_1_gemm_prefetch": 48,
    "xetile_2_1_gemm_prefetch": 48,
    "xegpu_1_2_transpose_broadcast_reduction": 16,
    "xetile_2_4_cooperative_slm": 24,
}


@pytest.mark.parametrize("name", APPENDIX)
def test_appendix_programs(name: str, tmp_path: Path) -> None:
    file = tmp_path / "program.mlir"
    file.write_text(adapted(f"{name}.mlir"))
    found = compiled(file, "xe-dg2")
    loop = loop_of(found)
    assert (loop[DPAS], loop[ROWS]) == (16, APPENDIX[name])
    assert not loop["OpGroupNonUniformShuffleXor"]
    no_spills(found)


# Appendix 1.2 adds to an array without masks: its extents are the tiles'. In the other one, workgroups are ragged.
@pytest.mark.parametrize(
    ("name", "size"),
    [("xegpu_1_2_transpose_broadcast_reduction", 128), ("xetile_2_4_cooperative_slm", 160)],
)
def test_appendix_programs_check(
    name: str, size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every stage on random numbers, and the SPIR-V where a CPU's OpenCL is installed."""
    file = tmp_path / "program.mlir"
    file.write_text(adapted(f"{name}.mlir", size))
    assert main(["check", str(file), "--target", "xe-dg2"]) == 0
    assert "stages agree" in capsys.readouterr().out


CASES: dict[str, tuple[str, str, str, tuple[int, int, int], dict[str, Any]]] = {
    "f16 on dg2": ("xe-dg2", "f16", "f32", (48, 40, 72), {}),
    "bf16 on dg2": ("xe-dg2", "bf16", "f32", (32, 64, 64), {}),
    "i8 on dg2": ("xe-dg2", "i8", "i32", (32, 64, 128), {"ACC": tw.i32, "BK": 64}),
    "rows of 2 bytes on dg2": ("xe-dg2", "f16", "f32", (33, 35, 37), {}),
    "narrow B on pvc": ("xe-pvc", "f16", "f32", (64, 24, 64), {"BM": 32, "SG": (1, 1)}),
    "rows of 2 bytes on bmg": ("xe-bmg", "f16", "f32", (45, 47, 33), {"BM": 32, "SG": (1, 1)}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("device")
def test_products_run(name: str, rng: np.random.Generator) -> None:
    target, given, result, (m, n, k), constants = CASES[name]
    constants = {"BM": 16, "BN": 32, "SG": (1, 1)} | constants
    a, b = random(rng, (m, k), given), random(rng, (k, n), given)
    c = random(rng, (m, n), result)
    kernel = gemm.compile(a, b, c, target=target, **constants)
    kernel[tw.cdiv(m, constants["BM"]), tw.cdiv(n, 32)](a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want)
    assert error <= (0 if result == "i32" else 1e-6)
    no_spills(kernel.executable)


def test_ragged_4095_fits() -> None:
    """Rows of 8190 bytes: elements one by one, the subgroup tile of 32 x 64 all the same."""
    a = np.zeros((4095, 4095), np.float16)
    c = np.zeros((4095, 4095), np.float32)
    found = gemm.compile(a, a, c, target="xe-pvc", BM=256, BN=256, SG=(8, 4)).executable
    assert "goes element by element: its pitch is only known to be" in found.remarks[0]
    no_spills(found)


def test_why_and_how_is_said() -> None:
    """BMG: B's rows are narrower than block messages ask for; they are read as rows, the others as blocks."""
    a, b = np.zeros((64, 64), np.float16), np.zeros((64, 24), np.float16)
    c = np.zeros((64, 24), np.float32)
    found = gemm.compile(a, b, c, target="xe-bmg", SG=(1, 1)).executable
    assert any("goes by rows of the subgroup, 2 words of 16 bits" in r for r in found.remarks)
    loop = loop_of(found)
    assert loop["OpSubgroup2DBlockLoadINTEL"] and loop[ROWS] == 32
    assert spirv_reader.faults(spirv_reader.read(found.spirv("intel"))) == []


@tw.kernel
def plain(
    A, B, C, BM: tw.constexpr = 128, BN: tw.constexpr = 128, BK: tw.constexpr = 32,
    TURNED: tw.constexpr = False,
):  # fmt: skip
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        x = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        if TURNED:
            y = tw.transpose(tw.load_tile(tw.init_tile(B, [n, k], (BN, BK))))
        else:
            y = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(x, y, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize(("bm", "bn", "turned"), [(128, 128, False), (128, 256, True)])
def test_a_kernel_without_maps_gets_tiles_that_fit(bm: int, bn: int, turned: bool) -> None:
    a = np.zeros((1024, 1024), np.float16)
    c = np.zeros((1024, 1024), np.float32)
    found = plain.compile(a, a, c, target="xe-dg2", BM=bm, BN=bn, TURNED=turned).executable
    assert found.meta["subgroups"] * 16 * 32 == bm * bn
    assert loop_of(found)[ROWS] == (16 if turned else 48)
    no_spills(found)


def test_a_large_tile_without_maps_comes_in_smaller_parts() -> None:
    """256 x 256 are half of the registers of 64 subgroups: A and B get what is left. Twice as much takes passes."""
    a = np.zeros((1024, 1024), np.float16)
    c = np.zeros((1024, 1024), np.float32)
    found = plain.compile(a, a, c, target="xe-dg2", BM=256, BN=256).executable
    assert found.meta["subgroups"] == 64
    assert loop_of(found)[DPAS] == 32
    no_spills(found)
    whole = plain.options(disable={"retile", "xe-spill"})
    with pytest.raises(UnsupportedError, match="xe-dg2 has 256") as refused:
        whole.compile(a, a, c, target="xe-dg2", BM=512, BN=256)
    assert "512x256 of f32 are 512 KiB" in str(refused.value)
    assert "a workgroup tile of 256x256 fits" in str(refused.value)


@tw.kernel
def attend(
    Q, K, V, O, scale, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 32
):  # fmt: skip
    m, head = tw.program_id(0) * BM, tw.program_id(1)
    q = tw.load_tile(tw.init_tile(Q, [head, m, 0], (BM, D)))
    top, total = tw.full((BM, 1), -1.0e30, tw.f32), tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    for n in range(0, K.shape[1], BN):
        s = tw.tile_mma(q, tw.transpose(tw.load_tile(tw.init_tile(K, [head, n, 0], (BN, D)))))
        s = s * scale
        new = tw.maximum(top, tw.max(s, axis=1))
        p, keep = tw.exp2(s - new), tw.exp2(top - new)
        total = total * keep + tw.sum(p, axis=1)
        v = tw.load_tile(tw.init_tile(V, [head, n, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out * keep)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [head, m, 0], (BM, D)))


@pytest.mark.usefixtures("device")
def test_attention_on_dg2(rng: np.random.Generator) -> None:
    check_attention(attend, "xe-dg2", 64, rng)


def test_printed_maps_that_do_not_fit_are_told_with_numbers(tmp_path: Path, capsys: Any) -> None:
    """Appendix 1.1's C tile fills DG2's registers; 2.4's ring is twice its shared memory. Both need passes."""
    folder = Path(__file__).parents[3] / "examples" / "rfc"
    source = str(folder / "xegpu_1_1_gemm_prefetch.mlir")
    off = ["--disable", "retile,xe-spill"]
    assert main(["compile", source, "--target", "xe-dg2", *off]) == 1
    told = capsys.readouterr().err
    assert "256 of them in one vector<32x64xf32>; xe-dg2 has 256" in told
    assert "smaller sg_data" in told and "128 registers for each of 64 subgroups" in told
    source = str(folder / "xetile_2_4_cooperative_slm.mlir")
    assert main(["compile", source, "--target", "xe-dg2", *off]) == 1
    assert "131072 bytes is not possible on xe-dg2: it is at most 65536" in capsys.readouterr().err


# --- The messages themselves --------------------------------------------------------------------------


def row_copy(lanes: int, element: str, count: int, group: bool) -> str:
    """Reads a row of words and writes it to another array, by one message each."""
    pack = (16 if lanes >= 16 else 32) // (8 if element == "i8" else 16) if group else 1
    width = lanes * count * pack
    shape = f"1x{width}" if group else str(width)
    tile = f"!xegpu.tensor_desc<{shape}x{element}, #xegpu.block_tdesc_attr<boundary_check = false>>"
    kind = f"vector<{count * pack}x{element}>"
    at = "[%c1, %c8]"
    return (
        kernels.head(f"%a: memref<2x256x{element}>, %b: memref<2x256x{element}>", lanes=lanes)
        + f"""
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 16 : index
    %s = xegpu.create_nd_tdesc %a : memref<2x256x{element}> -> {tile}
    %t = xegpu.create_nd_tdesc %b : memref<2x256x{element}> -> {tile}
    %v = xegpu.load_nd %s{at} {{tilewright.row}} : {tile} -> {kind}
    xegpu.store_nd %v, %t{at} {{tilewright.row}} : {kind}, {tile}"""
        + kernels.FOOT
    )


ROW_FORMS = [
    (8, "f16", 4, False),
    (8, "f16", 2, True),
    (8, "i8", 4, True),
    (16, "i8", 4, True),
    (16, "f32", 1, False),
    (16, "f16", 8, False),
]


@pytest.mark.parametrize(("lanes", "element", "count", "group"), ROW_FORMS)
@pytest.mark.usefixtures("device")
def test_rows_land_where_the_text_says(lanes: int, element: str, count: int, group: bool) -> None:
    rng = fresh_rng()
    kind = {"f16": np.float16, "i8": np.int8, "f32": np.float32}[element]
    a = rng.integers(-100, 100, (2, 256)).astype(kind)
    text = row_copy(lanes, element, count, group)
    target = "xe-dg2" if lanes == 8 else "xe-pvc"
    (b,) = agree(text, [a, np.zeros_like(a)], [1], target=target)
    width = np.flatnonzero((b == a)[1] & (a[1] != 0)).size
    assert width and not b[0].any()


@pytest.mark.optional
def test_a_row_is_one_message_everywhere() -> None:
    found = build(row_copy(8, "f16", 4, False), "xe-dg2")
    product = spirv_reader.read(found.spirv("intel")).kernel(found.meta["name"]).counts()
    assert (product[ROWS], product["OpSubgroupBlockWriteINTEL"]) == (1, 1)
    for name in ("row_load_32b_x2", "row_store_8b_x16_slm", "row_load_16b_x4_ca_uc"):
        form = forms.parse(f"xe_{name}")
        assert isinstance(form, forms.RowMessage) and form.name == f"xe_{name}"
    if not offline.missing():
        sends = Counter(report.count(found.isa().asm).messages)
        assert not any("block load" in name for name in sends)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_a_product_of_one_subgroup_loads_in_smaller_parts(element: str) -> None:
    """32 x 32 x 32 fills all registers but for the parts of A and B; arrays that may overlap are stored to last."""
    ab, c = f"32x32x{element}", "32x32xf32"
    load = "%{0}d = xegpu.create_nd_tdesc %{0} : memref<{1}> -> !xegpu.tensor_desc<{1}>\n"
    load += "%{0}v = xegpu.load_nd %{0}d[0, 0] : !xegpu.tensor_desc<{1}> -> vector<{1}>\n"
    found = build(
        f"""gpu.module @m {{ gpu.func @k(%a: memref<{ab}>, %b: memref<{ab}>, %c: memref<{c}>)
          kernel attributes {{tilewright.level = "subgroup"}} {{
        {load.format("a", ab)} {load.format("b", ab)} {load.format("c", c)}
        %d = xegpu.dpas %av, %bv, %cv : vector<{ab}>, vector<{ab}>, vector<{c}> -> vector<{c}>
        xegpu.store_nd %d, %cd[0, 0] : vector<{c}>, !xegpu.tensor_desc<{c}>
        gpu.return }} }}""",
        "xe-dg2",
    )
    no_spills(found)


@pytest.mark.parametrize("wide, narrow", [("i32", "f16"), ("i32", "bf16"), ("i64", "f16")])
def test_integers_reach_narrow_floats_without_f64(wide: str, narrow: str) -> None:
    """The machine has none, and its compiler refuses it."""
    text = (
        kernels.head(f"%a: memref<8x{wide}>, %out: memref<8x{narrow}>", lanes=8)
        + f"""
    %x = memref.load %a[%lane] : memref<8x{wide}>
    %y = arith.sitofp %x : {wide} to {narrow}
    memref.store %y, %out[%lane] : memref<8x{narrow}>"""
        + kernels.FOOT
    )
    found = build(text, "xe-dg2")
    assert "double" not in found.asm["llvm"]
    no_spills(found)
