# ruff: noqa: E501
"""Memrefs by affine_map, the RFC's own spelling of column-major, on every path: strides, host code, targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType

from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.dialects.upstream.strided import strided_form
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.tools.cli import main

UNKNOWN = DYNAMIC_INDEX


def memref(text: str) -> MemRefType:
    module = parse_module(f"func.func private @f(memref<{text}>)", "type.mlir")
    kind = next(op for op in module.body.block.ops).properties["function_type"].inputs.data[0]  # pyright: ignore
    assert isinstance(kind, MemRefType)
    return kind


@pytest.mark.parametrize(
    ("text", "strides", "offset"),
    [
        ("4x8xf32", (8, 1), 0),
        ("?x8xf32", (8, 1), 0),
        ("4x?xf32", (UNKNOWN, 1), 0),
        ("4x8xf32, affine_map<(i, j) -> (j, i)>", (1, 4), 0),
        ("4x?xf32, affine_map<(i, j) -> (j, i)>", (1, 4), 0),
        ("?x8xf32, affine_map<(i, j) -> (j, i)>", (1, UNKNOWN), 0),
        ("2x3x4x5xf16, affine_map<(a, b, c, d) -> (a, b, d, c)>", (60, 20, 1, 4), 0),
        ("4x8xf32, affine_map<(i, j) -> (i * 16 + j + 3)>", (16, 1), 3),
        ("4x8xf32, affine_map<(i, j)[s] -> (i * 8 + j + s)>", (8, 1), UNKNOWN),
        ("4x8xf32, strided<[16, 1], offset: 2>", (16, 1), 2),
    ],
)
def test_strides(text: str, strides: tuple[int, ...], offset: int):
    assert strided_form(memref(text)) == (strides, offset)


@pytest.mark.parametrize(
    "layout", ["(i, j) -> (i floordiv 2, j, i mod 2)", "(i, j) -> (i, i)", "(i, j) -> (i * 8 + j mod 4)"]
)  # fmt: skip
def test_what_is_no_strided_form(layout: str):
    with pytest.raises(TypeError, match="not a strided form"):
        strided_form(memref(f"4x8xf32, affine_map<{layout}>"))


KERNEL = """
#cm = affine_map<(d0, d1) -> (d1, d0)>
#tile = #xetile.tile_attr<order = [0, 1]>
module attributes {gpu.container_module} {
gpu.module @m { gpu.func @k(%a: memref<32x16xf16>, %b: memref<64x32xf16, #cm>, %o: memref<32x16xf32>, %p: memref<32x16xf32, #cm>) kernel attributes {tilewright.level = "workgroup"} {
  %c0 = arith.constant 0 : index
  %ta = xetile.init_tile %a[0, 0] : memref<32x16xf16> -> !xetile.tile<32x16xf16>
  %t = xetile.init_tile %b[32, %c0] : memref<64x32xf16, #cm> -> !xetile.tile<16x16xf16, #tile>
  %x = xetile.load_tile %ta : !xetile.tile<32x16xf16> -> vector<32x16xf16>
  %v = xetile.load_tile %t : !xetile.tile<16x16xf16, #tile> -> vector<16x16xf16>
  %m = xetile.tile_mma %x, %v : vector<32x16xf16>, vector<16x16xf16> -> vector<32x16xf32>
  %u = xetile.init_tile %o[0, 0] : memref<32x16xf32> -> !xetile.tile<32x16xf32>
  xetile.store_tile %m, %u : vector<32x16xf32>, !xetile.tile<32x16xf32>
  %w = xetile.init_tile %p[0, 0] : memref<32x16xf32, #cm> -> !xetile.tile<32x16xf32, #tile>
  xetile.store_tile %m, %w : vector<32x16xf32>, !xetile.tile<32x16xf32, #tile>
  gpu.return } }
"""


@pytest.mark.parametrize("target", ["cpu", "xe-pvc"])
def test_every_stage_agrees(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "columns.mlir"
    path.write_text(KERNEL + "}")
    assert main(["check", str(path), "--target", target]) == 0, capsys.readouterr().err


def test_code_for_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "columns.mlir"
    path.write_text(KERNEL + "}")
    assert main(["compile", str(path), "--target", "sm_90a", "--emit", "ptx"]) == 0
    assert "st.global" in capsys.readouterr().out


def test_the_conversion_alone():
    module = parse_module(KERNEL + "}", "columns.mlir")
    xetile_to_xegpu(module)
    verify_module(module)
    text = print_module(module)
    assert "xetile" not in text and "strided<[1, 64]>" in text


HOST = """
func.func @main() {
  %c0 = arith.constant 0 : index  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index  %c32 = arith.constant 32 : index  %c64 = arith.constant 64 : index
  %a = memref.alloc() : memref<32x16xf16>
  %b = memref.alloc() : memref<64x32xf16, #cm>
  %o = memref.alloc() : memref<32x16xf32>
  %p = memref.alloc() : memref<32x16xf32, #cm>
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c32 step %c1 {
      %sum = arith.subi %i, %j : index
      %int = arith.index_cast %sum : index to i32
      %num = arith.sitofp %int : i32 to f16
      memref.store %num, %b[%i, %j] : memref<64x32xf16, #cm>
      %y = arith.cmpi ult, %i, %c32 : index
      %x = arith.cmpi ult, %j, %c16 : index
      %in = arith.andi %x, %y : i1
      scf.if %in { memref.store %num, %a[%i, %j] : memref<32x16xf16> }
    }
  }
  gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%a : memref<32x16xf16>, %b : memref<64x32xf16, #cm>, %o : memref<32x16xf32>, %p : memref<32x16xf32, #cm>)
  %c3 = arith.constant 3 : index  %c5 = arith.constant 5 : index
  %r = memref.load %p[%c3, %c5] : memref<32x16xf32, #cm>
  vector.print %r : f32
  return
} }
"""


def test_a_program_that_allocates_and_launches(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Sum over k of (3 - k) (32 + k - 5), at [3, 5]."""
    path = tmp_path / "columns.mlir"
    path.write_text(KERNEL + HOST)
    assert main(["run", str(path)]) == 0
    said = capfd.readouterr()
    assert "compiled for cpu" in said.err
    assert float(said.out) == sum((3 - k) * (32 + k - 5) for k in range(16))
