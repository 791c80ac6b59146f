"""Arguments of unknown rank that a kernel casts to one type: the kernel compiles, launches pass that type."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects import gpu

from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.ranked_arguments import ranked_arguments
from tilewright.targets.base import get_target
from tilewright.tools.cli import main

KERNEL = """
module attributes {gpu.container_module} {
  gpu.module @m { gpu.func @k(%x: f32, %a: memref<*xf32>, %o: memref<16x16xf32>) kernel {
    %c = memref.cast %a : memref<*xf32> to memref<16x16xf32>
    %t = xetile.init_tile %c[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
    %v = xetile.load_tile %t : !xetile.tile<16x16xf32> -> vector<16x16xf32>
    %b = vector.broadcast %x : f32 to vector<16x16xf32>
    %w = arith.addf %v, %b : vector<16x16xf32>
    %u = xetile.init_tile %o[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
    xetile.store_tile %w, %u : vector<16x16xf32>, !xetile.tile<16x16xf32>
    gpu.return
  } }
"""
MAIN = """
  func.func @main() {
    %a = memref.alloc() : memref<16x16xf32>
    %b = memref.alloc() : memref<16x16xf32>
    %x = arith.constant 3.0 : f32
    %c1 = arith.constant 1 : index
    memref.store %x, %a[%c1, %c1] : memref<16x16xf32>
    %s = memref.cast %a : memref<16x16xf32> to memref<*xf32>
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%x : f32, %s : memref<*xf32>, %b : memref<16x16xf32>)
    %e = memref.load %b[%c1, %c1] : memref<16x16xf32>
    vector.print %e : f32
    return
  }
}
"""


def test_kernel_and_launch_say_the_type() -> None:
    module = parse_module(KERNEL + MAIN, "ranks.mlir")
    ranked_arguments(module)
    again = parse_module(print_module(module), "again.mlir")
    kernel = next(op for op in again.walk() if isinstance(op, gpu.FuncOp))
    assert [str(t) for t in kernel.function_type.inputs][1] == "memref<16x16xf32>"
    launch = next(op for op in again.walk() if isinstance(op, gpu.LaunchFuncOp))
    assert [v.type for v in launch.kernelOperands] == list(kernel.function_type.inputs)


@pytest.mark.parametrize("target", ["cpu", "reference", "xe-pvc"])
def test_programs_pass_them(target: str, tmp_path: Path, capfd) -> None:
    if (missing := get_target(target).missing()) is not None:
        pytest.skip(missing)
    path = tmp_path / "ranks.mlir"
    path.write_text(KERNEL + MAIN)
    assert main(["run", str(path), "--target", target]) == 0
    assert capfd.readouterr().out.split() == ["6"]


@pytest.mark.parametrize("target", ["cpu", "emu", "sm_80", "xe-pvc"])
def test_a_kernel_alone_is_checked(target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "ranks.mlir"
    path.write_text(KERNEL + "}")
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out


def test_an_array_of_two_types_is_refused(tmp_path: Path, capsys) -> None:
    path = tmp_path / "ranks.mlir"
    other = "%d = memref.cast %a : memref<*xf32> to memref<256xf32>\n    %t = "
    path.write_text(KERNEL.replace("%t = ", other) + "}")
    assert main(["check", str(path)]) == 1
    assert "memrefs of known rank" in capsys.readouterr().err


SHARED = """
gpu.module @m { gpu.func @k(%s: memref<16x16xf32, 3>, %a: memref<16x16xf32>) kernel {
  %t = xetile.init_tile %a[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
  %v = xetile.load_tile %t : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %l = xetile.init_tile %s[0, 0] : memref<16x16xf32, 3>
      -> !xetile.tile<16x16xf32, #xetile.tile_attr<memory_space = 3>>
  xetile.store_tile %v, %l : vector<16x16xf32>, !xetile.tile<16x16xf32, #xetile.tile_attr<memory_space = 3>>
  gpu.return
} }
"""


def test_memory_of_the_workgroup_as_an_argument_is_told_not_launched(
    tmp_path: Path, capsys
) -> None:
    if (missing := get_target("xe-pvc").missing()) is not None:
        pytest.skip(missing)
    path = tmp_path / "shared.mlir"
    path.write_text(SHARED)
    assert main(["check", str(path), "--target", "xe-pvc"]) == 0
    assert "argument 0 is memory of the workgroup" in capsys.readouterr().out
