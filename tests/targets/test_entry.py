"""Every command's door for the text of a kernel: branches become loops, and what no target takes has its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.diagnostics import CheckError, CompileError, UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.entry import build_text
from tilewright.tools.cli import main

BRANCHES = """\
gpu.module @m {
  gpu.func @k(%a: memref<64x16xf32>, %n: index) kernel {
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    cf.br ^head(%c0 : index)
  ^head(%i: index):
    %more = arith.cmpi slt, %i, %n : index
    cf.cond_br %more, ^body, ^end
  ^body:
    %t = xetile.init_tile %a[%i, %c0] : memref<64x16xf32> -> !xetile.tile<8x16xf32>
    %v = xetile.load_tile %t : !xetile.tile<8x16xf32> -> vector<8x16xf32>
    %w = arith.addf %v, %v : vector<8x16xf32>
    xetile.store_tile %w, %t : vector<8x16xf32>, !xetile.tile<8x16xf32>
    %j = arith.addi %i, %c8 : index
    cf.br ^head(%j : index)
  ^end:
    gpu.return
  }
}
"""
TANGLED = """\
gpu.module @m {
  gpu.func @k(%a: memref<16xf32>, %c: i1) kernel {
    cf.cond_br %c, ^one, ^two
  ^one:
    cf.cond_br %c, ^two, ^three
  ^two:
    cf.cond_br %c, ^one, ^three
  ^three:
    gpu.return
  }
}
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "xe-pvc", "emu"])
def test_a_kernel_with_branches_compiles(target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "branches.mlir"
    path.write_text(BRANCHES)
    assert main(["compile", str(path), "--target", target, "--emit", "llvm"]) == 0
    assert "br i1" in capsys.readouterr().out


def test_a_kernel_with_branches_is_checked(tmp_path: Path, capsys) -> None:
    path = tmp_path / "branches.mlir"
    path.write_text(BRANCHES)
    assert main(["check", str(path), "--seed", "1"]) == 0
    assert "right: pass branches-to-loops" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "xe-pvc"])
def test_branches_that_are_no_loops_are_refused_where_they_stand(target: str) -> None:
    with pytest.raises(UnsupportedError, match="belongs to no loop") as error:
        build_text(parse_module(TANGLED, "tangled.mlir"), CompileOptions(target=target))
    assert error.value.location is not None and error.value.location.line == 3


LAUNCH = """func.func @main(%a: vector<8x16xf32>, %n: index) {
  gpu.launch_func @m::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%a : vector<8x16xf32>)
  return
}
"""


@pytest.mark.parametrize(
    "argument, launch, words",
    [("memref<*xf32>", "", "no launch passes"), ("vector<8x16xf32>", LAUNCH, "passes no vectors")],
)
def test_arguments_that_no_launch_passes_are_refused(
    argument: str, launch: str, words: str
) -> None:
    text = f"gpu.module @m {{\n  gpu.func @k(%a: {argument}) kernel {{\n    gpu.return\n  }}\n}}\n{launch}"
    with pytest.raises(UnsupportedError, match=words) as error:
        build_text(parse_module(text, "argument.mlir"), CompileOptions(target="cpu"))
    assert error.value.location is not None and error.value.location.line == 2


OTHER_INTEGERS = """\
gpu.module @m {
  gpu.func @k(%a: memref<16x32xi8>, %b: memref<16xi4>) kernel {
    gpu.return
  }
}
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "xe-pvc", "emu"])
def test_arrays_of_integers_that_no_launch_passes_are_refused_where_they_stand(target: str) -> None:
    with pytest.raises(UnsupportedError, match="no launch passes such") as error:
        build_text(parse_module(OTHER_INTEGERS, "narrow.mlir"), CompileOptions(target=target))
    assert error.value.location is not None and error.value.location.line == 2
    assert "memref<16xi4>" in error.value.message and "in a byte" in str(error.value.hint)


@pytest.mark.parametrize("command", [["check"], ["compile", "--target", "cpu"]])
def test_commands_tell_the_place(command: list[str], tmp_path: Path, capsys) -> None:
    path = tmp_path / "vector.mlir"
    path.write_text(BRANCHES.replace("%n: index", "%n: index, %z: memref<*xf32>"))
    assert main([command[0], str(path), *command[1:]]) == 1
    assert "vector.mlir:2:3: error: argument 2" in capsys.readouterr().err
    path.write_text("// nothing here\nfunc.func private @f()\n")
    assert main([command[0], str(path), *command[1:]]) == 1
    assert "vector.mlir:2:1: error:" in capsys.readouterr().err


STEPS = """\
gpu.module @m {
  gpu.func @k(%a: memref<16x16xf32>, %b: memref<16x16xf32>, %s: index) kernel {
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %t = xetile.init_tile %a[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
    %o = xetile.init_tile %b[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
    %v = xetile.load_tile %t : !xetile.tile<16x16xf32> -> vector<16x16xf32>
    %r = scf.for %i = %c0 to %c4 step %s iter_args(%x = %v) -> vector<16x16xf32> {
      %y = arith.addf %x, %v : vector<16x16xf32>
      scf.yield %y : vector<16x16xf32>
    }
    xetile.store_tile %r, %o : vector<16x16xf32>, !xetile.tile<16x16xf32>
    gpu.return
  }
}
"""


@pytest.mark.parametrize("target", ["cpu", "emu"])
def test_a_loop_whose_step_is_zero_when_it_runs_fails(target: str) -> None:
    a, b = np.random.standard_normal((16, 16)).astype(np.float32), np.zeros((16, 16), np.float32)
    kernel = build_text(parse_module(STEPS), CompileOptions(target=target))
    kernel.launch((1, 1, 1), [describe(a), describe(b), 2])
    np.testing.assert_array_equal(b, a + a + a)
    with pytest.raises(CheckError, match=r"scf\.for needs a step above zero"):
        kernel.launch((1, 1, 1), [describe(a), describe(b), 0])


def test_a_kernel_of_vectors_that_says_no_level_is_that_of_a_thread():
    text = """gpu.module @m { gpu.func @f(%a: memref<8xf32>, %b: memref<8xf32>) kernel {
  %c0 = arith.constant 0 : index
  %v = vector.load %a[%c0] : memref<8xf32>, vector<8xf32>
  vector.store %v, %b[%c0] : memref<8xf32>, vector<8xf32>
  gpu.return } }"""
    built = build_text(parse_module(text), CompileOptions(target="sm_90a"))
    assert isinstance(built, CudaExecutable) and built.plan.threads == 16
    stated = text.replace("kernel {", 'kernel attributes {tilewright.level = "workgroup"} {')
    assert build_text(parse_module(stated), CompileOptions(target="sm_90a")).asm["ptx"]


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "xe-pvc"])
def test_a_level_that_is_none(target: str) -> None:
    text = 'gpu.module @m { gpu.func @k() kernel attributes {tilewright.level = "warp"} { gpu.return } }'
    with pytest.raises(CompileError, match="'warp', which no kernel is") as caught:
        build_text(parse_module(text), CompileOptions(target=target))
    assert caught.value.location is not None and "subgroup or lane" in str(caught.value.hint)
