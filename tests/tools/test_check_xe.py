"""`tilewright check --target xe-pvc`: every level of the examples, without an Intel GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.codegen.native import host_features
from tilewright.tools.cli import main

pytestmark = pytest.mark.optional  # `check` goes on to SPIR-V where OpenCL is installed

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        ("01_gemm.py:gemm", ["f16[260,40]", "f16[40,70]", "f32[260,70]"]),
        (
            "04_attention.py:attention",
            ["f16[1,70,64]", "f16[1,150,64]", "f16[1,150,64]", "f16[1,70,64]", "0.125"],
        ),
        ("05_every_stage.py:scale_rows", ["f32[70,100]", "f32[70,1]", "f32[70,100]"]),
    ],
    ids=lambda value: value.partition(".")[0] if isinstance(value, str) else "",
)
def test_examples(kernel: str, arguments: list[str], capsys: pytest.CaptureFixture[str]):
    code = main(["check", f"{EXAMPLES}/{kernel}", "--target", "xe-pvc", "--args", *arguments])
    out = capsys.readouterr()
    assert code == 0, out.err
    for stage in ("xegpu-propagate-layout", "xegpu-wg-to-sg-distribute", "xegpu-blocking"):
        assert f"right: pass {stage}" in out.out
    assert "right: the lanes' program, compiled for this CPU" in out.out


def test_a_function_whose_outer_loops_are_the_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """XeTile, appendix 2.3, with one of its workgroups."""
    text = (EXAMPLES / "rfc/xetile_2_3_transpose_optimization.mlir").read_text()
    file = tmp_path / "small.mlir"
    file.write_text(re.sub(r"(?<!%c)4096", "512", text))
    assert main(["check", str(file), "--target", "xe-pvc", "--grid", "1"]) == 0
    assert "stages agree" in capsys.readouterr().out


PROGRAMS = {
    "rows apart": """
    #l = #xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>
    gpu.module @m { gpu.func @f(%a: memref<16x32xf32, strided<[64, 1]>>, %c: memref<16x32xf32>) kernel {
      %t = xegpu.create_nd_tdesc %a : memref<16x32xf32, strided<[64, 1]>> -> !xegpu.tensor_desc<16x32xf32, #l>
      %u = xegpu.create_nd_tdesc %c : memref<16x32xf32> -> !xegpu.tensor_desc<16x32xf32, #l>
      %x = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<16x32xf32, #l> -> vector<16x32xf32>
      xegpu.store_nd %x, %u[0, 0] : vector<16x32xf32>, !xegpu.tensor_desc<16x32xf32, #l>
      gpu.return } }""",
    "tf32 in memory": """
    #l = #xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>
    gpu.module @m { gpu.func @f(%a: memref<16x32xtf32>, %b: memref<32x32xtf32>, %c: memref<16x32xf32>) kernel {
      %t = xegpu.create_nd_tdesc %a : memref<16x32xtf32> -> !xegpu.tensor_desc<16x32xtf32>
      %u = xegpu.create_nd_tdesc %b : memref<32x32xtf32> -> !xegpu.tensor_desc<32x32xtf32>
      %v = xegpu.create_nd_tdesc %c : memref<16x32xf32> -> !xegpu.tensor_desc<16x32xf32, #l>
      %x = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<16x32xtf32> -> vector<16x32xtf32>
      %y = xegpu.load_nd %u[0, 0] : !xegpu.tensor_desc<32x32xtf32> -> vector<32x32xtf32>
      %z = xegpu.dpas %x, %y : vector<16x32xtf32>, vector<32x32xtf32> -> vector<16x32xf32>
      xegpu.store_nd %z, %v[0, 0] : vector<16x32xf32>, !xegpu.tensor_desc<16x32xf32, #l>
      gpu.return } }""",
    "pairs that a transposed load of the oldest text keeps": """
    gpu.module @m { gpu.func @f(%a: memref<16x32xf16>, %b: memref<16x32xf16>, %c: memref<8x16xf32>) kernel {
      %t = xegpu.create_nd_tdesc %a[8, 2] : memref<16x32xf16> -> !xegpu.tensor_desc<8x16xf16>
      %u = xegpu.create_nd_tdesc %b[0, 18] : memref<16x32xf16> -> !xegpu.tensor_desc<16x16xf16>
      %v = xegpu.create_nd_tdesc %c[0, 0] : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
      %x = xegpu.load_nd %t : !xegpu.tensor_desc<8x16xf16> -> vector<8x16xf16>
      %y = xegpu.load_nd %u {transpose_bit_width = 32 : i32, transpose = array<i64: 1, 0>} :
        !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
      %z = xegpu.dpas %x, %y : vector<8x16xf16>, vector<8x16x2xf16> -> vector<8x16xf32>
      xegpu.store_nd %z, %v : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
      gpu.return } }""",
    "owners change in a loop": """
    #l = #xegpu.layout<sg_layout = [4, 2], sg_data = [16, 16]>
    #k = #xegpu.layout<sg_layout = [2, 4], sg_data = [32, 8]>
    gpu.module @m { gpu.func @f(%a: memref<64x64xf32>, %c: memref<64x32xf32>) kernel {
      %c0 = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %c64 = arith.constant 64 : index
      %z = arith.constant dense<0.0> : vector<64x32xf32>
      %t = xegpu.create_nd_tdesc %a : memref<64x64xf32> -> !xegpu.tensor_desc<64x32xf32>
      %u = xegpu.create_nd_tdesc %c : memref<64x32xf32> -> !xegpu.tensor_desc<64x32xf32, #k>
      %r:2 = scf.for %i = %c0 to %c64 step %c32 iter_args(%p = %z, %q = %z) -> (vector<64x32xf32>, vector<64x32xf32>) {
        %x = xegpu.load_nd %t[0, %i] <{layout = #l}> : !xegpu.tensor_desc<64x32xf32> -> vector<64x32xf32>
        %y = xegpu.load_nd %t[0, %i] <{layout = #k}> : !xegpu.tensor_desc<64x32xf32> -> vector<64x32xf32>
        %m = arith.addf %p, %x : vector<64x32xf32>
        %n = arith.addf %q, %y : vector<64x32xf32>
        %o = arith.addf %n, %p : vector<64x32xf32>
        scf.yield %m, %o : vector<64x32xf32>, vector<64x32xf32>
      }
      xegpu.store_nd %r#1, %u[0, 0] : vector<64x32xf32>, !xegpu.tensor_desc<64x32xf32, #k>
      gpu.return } }""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_workgroup_programs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Inputs are what the types say; through OpenCL too, where a runtime is installed."""
    file = tmp_path / "program.mlir"
    file.write_text(PROGRAMS[name])
    code = main(["check", str(file), "--target", "xe-pvc"])
    assert code == 0, capsys.readouterr().err


def test_elements_that_no_array_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "program.mlir"
    file.write_text(PROGRAMS["rows apart"].replace("xf32", "xi4"))
    assert main(["check", str(file), "--target", "xe-pvc"]) == 1
    assert "no launch passes such a value" in capsys.readouterr().err


UNSIGNED = """
import tilewright as tw
@tw.kernel
def unsigned(X, Y, Z, W):
    m = tw.program_id(0) * 8
    here = tw.arange(0, 16, axis=1, shape=(8, 16)) + tw.arange(0, 8, axis=0, shape=(8, 16)) * 16
    x, y = tw.load_tile(tw.init_tile(X, [m, 0], (8, 16)), padding=7), tw.load_tile(tw.init_tile(Y, [m, 0], (8, 16)))
    z = tw.load_gather(tw.init_tile(Z, here), here > 10, padding=9)
    large = tw.max(x // 3 + (x >> 1), 1)
    z = z + tw.where(y > 3, y, 2) % 5
    tw.store_scatter(z, tw.init_tile(Z, here), here > 20)
    small = tw.load_tile(tw.init_tile(X, [m, 0], (2, 8)))
    tw.store_tile(tw.tile_mma(small, tw.transpose(small)).to(tw.f32), tw.init_tile(W, [m, 0], (2, 2)))
    tw.store_tile(z + large.to(tw.u32), tw.init_tile(Y, [m, 0], (8, 16)))
"""


def checked(text: str, kernel: str, arguments: list[str], folder: Path) -> int:
    """The exit code of `check` for a kernel of a program in Python."""
    file = folder / "program.py"
    file.write_text(text)
    return main(["check", f"{file}:{kernel}", "--target", "xe-pvc", "--args", *arguments])


@pytest.mark.skipif(
    "avx512vnni" in host_features() and "avx512bf16" not in host_features(),
    reason="there Intel's compiler ends (SIGABRT) on products of bytes from rows of any width",
)
def test_unsigned_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Arrays of them in every access, arithmetic that asks for the sign, a product: at every level, on lanes too."""
    arrays = ["u8[8,15]", "u32[8,16]", "u32[8,16]", "f32[2,2]"]
    assert checked(UNSIGNED, "unsigned", arrays, tmp_path) == 0, capsys.readouterr().err


FAR = """
import tilewright as tw
@tw.kernel
def far(X, Y, r, c):
    x = tw.load_tile(tw.init_tile(X, [4294967296, 0], (8, 16)), padding=3)
    x = x + tw.load_tile(tw.init_tile(X, [0, r], (8, 16)))
    tw.store_tile(x, tw.init_tile(Y, [c, 0], (8, 16)))
    tw.store_tile(x, tw.init_tile(Y, [8, 0], (8, 16)))
"""


def test_places_beyond_32_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What wraps to a place inside of the matrix lies outside: padding, and stores that are dropped."""
    places = ["f32[16,16]", "f32[16,16]", "-4294967296", "8589934592"]
    assert checked(FAR, "far", places, tmp_path) == 0, capsys.readouterr().err


LANES = """gpu.module @m {
  gpu.func @k(%a: memref<?xf32>, %o: memref<?xf32>) kernel {
    %b = gpu.block_id x
    %d = gpu.block_dim x
    %t = gpu.thread_id x
    %m = arith.muli %b, %d : index
    %l = arith.addi %m, %t : index
    %v = memref.load %a[%l] : memref<?xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %o[%l] : memref<?xf32>
    gpu.return
  }
}
"""


@pytest.mark.parametrize("target", ["cpu", "emu", "xe-pvc"])
def test_lanes_whose_program_does_not_say_that_it_is(target: str, tmp_path: Path):
    """As written it has the lanes that its stages have."""
    path = tmp_path / "lanes.mlir"
    path.write_text(LANES)
    assert main(["check", str(path), "--target", target]) == 0
