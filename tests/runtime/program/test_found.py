"""Programs that once ended in an internal error, found by random changes of text: each is refused in words, or runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.dialects.text import parse_module
from tilewright.runtime.program import run_program
from tilewright.tools.cli import main

HOST = """\
func.func private @printMemrefF32(memref<*xf32>)
func.func @main() {
  %c0 = arith.constant 0 : index
  %x = memref.alloc() : memref<2x16xf32>
  %v = arith.constant dense<2.5> : vector<2x16xf32>
  %t = xegpu.create_nd_tdesc %x : memref<2x16xf32> -> !xegpu.tensor_desc<2x16xf32>
  xegpu.store_nd %v, %t[%c0, %c0] : vector<2x16xf32>, !xegpu.tensor_desc<2x16xf32>
  %u = memref.cast %x : memref<2x16xf32> to memref<*xf32>
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
"""

COLUMNS = """\
!t = !xetile.tile<32x8xf32, #xetile.tile_attr<order = [0, 1]>>
func.func @f(%t: memref<24x5xf32>, %o: memref<64x64xf32, strided<[1, 64]>>) {
  %c0 = arith.constant 0 : index
  %tt = xetile.init_tile %t[%c0, 0] : memref<24x5xf32> -> !xetile.tile<32x8xf32>
  %v = xetile.load_tile %tt {padding = -1.0 : f32} : !xetile.tile<32x8xf32> -> vector<32x8xf32>
  %to = xetile.init_tile %o[5, %c0] : memref<64x64xf32, strided<[1, 64]>> -> !t
  xetile.store_tile %v, %to : vector<32x8xf32>, !t
  return
}
"""

NARROW = """\
gpu.module @m {
  gpu.func @k(%a: memref<5x5xf32>, %o: memref<8x32xf32>) kernel attributes {tilewright.level = "lane"} {
    %c0 = arith.constant 0 : index
    %l = gpu.lane_id
    %t = xegpu.create_nd_tdesc %a : memref<5x5xf32> -> !xegpu.tensor_desc<8x5xf32>
    %x = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x5xf32> -> vector<8xf32>
    %e = vector.extract %x[0] : f32 from vector<8xf32>
    memref.store %e, %o[%c0, %l] : memref<8x32xf32>
    gpu.return
  }
}
"""


@pytest.mark.parametrize("command, text, words", [
    ("compile --target cpu --emit llvm", HOST, "a kernel can only call functions of its own module"),
    ("compile --target xe-dg2 --emit llvm", NARROW, "makes 5 lanes, the kernel's subgroups have 8"),
], ids=["a kernel that is a whole program", "rows too short"])  # fmt: skip
def test_it_is_told(
    command: str, text: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.mlir"
    path.write_text(text)
    name, *flags = command.split()
    code = main([name, str(path), *flags])
    told = capfd.readouterr().err
    assert code == 1 and words in told and "internal error" not in told


def test_an_output_of_columns_is_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "columns.mlir"
    path.write_text(COLUMNS)
    assert main(["check", str(path)]) == 0, capfd.readouterr().err


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
def test_a_kernel_with_affine_loops_takes_floats_of_every_width(
    element: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"""
module attributes {{gpu.container_module}} {{
func.func private @printMemrefF32(memref<*xf32>) attributes {{llvm.emit_c_interface}}
func.func @main() {{
  %c1 = arith.constant 1 : index
  %x = arith.constant 2.5 : {element}
  %a = memref.alloc() : memref<4xf32>
  gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%a : memref<4xf32>, %x : {element})
  %u = memref.cast %a : memref<4xf32> to memref<*xf32>
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}}
gpu.module @m {{ gpu.func @k(%a: memref<4xf32>, %x: {element}) kernel attributes {{tilewright.level = "workgroup"}} {{
  %w = arith.{"addf %x, %x :" if element == "f32" else "extf %x :"} {element} {"" if element == "f32" else "to f32"}
  affine.for %i = 0 to 4 {{ affine.store %w, %a[%i] : memref<4xf32> }}
  gpu.return
}} }}
}}"""
    run_program(parse_module(text), target="cpu")
    wanted = 5 if element == "f32" else 2.5
    assert f"[{', '.join([f'{wanted:g}'] * 4)}]" in re.sub(r",\s+", ", ", capfd.readouterr().out)
