"""gpu-kernel-outlining: what a launch's region takes from the host, and that commands take such programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import gpu

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.targets.base import get_target
from tilewright.tools.cli import main

TEXT = """
func.func @scaled(%a: memref<64x64xf32>, %n: index, %x: f32) {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %twice = arith.addf %x, %x : f32
  gpu.launch blocks(%i, %j, %k) in (%gx = %n, %gy = %c2, %gz = %c1)
             threads(%t, %u, %v) in (%bx = %c2, %by = %c1, %bz = %c1) {
    %down = arith.muli %i, %c16 : index
    %half = arith.divui %gx, %c2 : index
    %rest = arith.muli %half, %c1 : index
    %pair = arith.muli %j, %bx : index
    %column = arith.addi %pair, %t : index
    %right = arith.muli %column, %c16 : index
    %tile = xetile.init_tile %a[%down, %right] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
    %old = xetile.load_tile %tile : !xetile.tile<16x16xf32> -> vector<16x16xf32>
    %by_x = vector.broadcast %twice : f32 to vector<16x16xf32>
    %new = arith.mulf %old, %by_x : vector<16x16xf32>
    xetile.store_tile %new, %tile : vector<16x16xf32>, !xetile.tile<16x16xf32>
    gpu.terminator
  }
  return
}
"""
MAIN = """
func.func @main() {
  %c4 = arith.constant 4 : index
  %c63 = arith.constant 63 : index
  %x = arith.constant 1.5 : f32
  %a = memref.alloc() : memref<64x64xf32>
  %one = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c64 step %c1 {
      memref.store %one, %a[%i, %j] : memref<64x64xf32>
    }
  }
  call @scaled(%a, %c4, %x) : (memref<64x64xf32>, index, f32) -> ()
  %e = memref.load %a[%c63, %c63] : memref<64x64xf32>
  vector.print %e : f32
  return
}
"""


def outlined(text: str = TEXT) -> gpu.FuncOp:
    module = parse_module(text, "launch.mlir")
    outline_launches(module)
    again = parse_module(print_module(module), "again.mlir")
    assert not any(isinstance(op, gpu.LaunchOp) for op in again.walk())
    return next(op for op in again.walk() if isinstance(op, gpu.FuncOp))


def test_constants_are_the_kernels_and_the_rest_its_arguments() -> None:
    kernel = outlined()
    assert kernel.sym_name.data == "scaled_kernel"
    assert [str(t) for t in kernel.function_type.inputs] == ["memref<64x64xf32>", "f32"]
    assert str(kernel.attributes["known_block_size"]) == "array<i32: 2, 1, 1>"


def test_two_launches_are_two_kernels() -> None:
    body = TEXT[TEXT.index("  gpu.launch") : TEXT.index("  return")]
    module = parse_module(TEXT.replace("  return", body + "  return"), "launch.mlir")
    outline_launches(module)
    names = [op.sym_name.data for op in module.walk() if isinstance(op, gpu.FuncOp)]
    assert names == ["scaled_kernel", "scaled_kernel_0"]


def test_a_launch_computes_the_same_before_and_after() -> None:
    rng = fresh_rng()
    a = rng.standard_normal((64, 64)).astype(np.float32)
    given = a.copy()
    reference.run(parse_module(TEXT, "launch.mlir"), args=[given, 3, 0.75], kernel="scaled")
    a[:48] *= 1.5
    np.testing.assert_array_equal(given, a)


@pytest.mark.parametrize("target", ["cpu", "reference", "xe-pvc"])
def test_programs_with_launches_run(target: str, tmp_path: Path, capfd) -> None:
    if (missing := get_target(target).missing()) is not None:
        pytest.skip(missing)
    path = tmp_path / "launch.mlir"
    path.write_text(TEXT + MAIN)
    assert main(["run", str(path), "--target", target]) == 0
    assert capfd.readouterr().out.split() == ["3"]


@pytest.mark.parametrize("target", ["cpu", "sm_80", "xe-pvc", "xe-dg2"])
def test_they_compile_alone(target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "launch.mlir"
    path.write_text(TEXT)
    assert main(["compile", str(path), "--target", target, "--emit", "llvm"]) == 0
    assert "define" in capsys.readouterr().out
