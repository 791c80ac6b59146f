"""`tilewright check` names the first pass that changes a result, and what the program does wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, VectorType
from xdsl.ir import Operation

from tilewright import reference
from tilewright.diagnostics import CheckError
from tilewright.dialects.mach import InstrOp
from tilewright.observer import Observer, ignore
from tilewright.targets import base
from tilewright.targets.base import CompileOptions, Target
from tilewright.targets.cuda import pipeline
from tilewright.targets.cuda.lower import lower_kernel
from tilewright.tools.check import Stage, check_stages
from tilewright.tools.check_inputs import Inputs
from tilewright.tools.check_results import difference
from tilewright.tools.cli import main

SCALE = """
builtin.module { gpu.module @m {
gpu.func @scale(%a: memref<?x?xf32, strided<[?, 1]>>, %o: memref<?x?xf32, strided<[?, 1]>>) kernel {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %i = gpu.block_id x
  %row = arith.muli %i, %c16 : index
  %h = memref.dim %a, %c0 : memref<?x?xf32, strided<[?, 1]>>
  %w = memref.dim %a, %c1 : memref<?x?xf32, strided<[?, 1]>>
  %t = xetile.init_tile %a[%row, %c0], [%h, %w], [%w, 1]
    : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<16x32xf32>
  %u = xetile.init_tile %o[ROW, %c0], [%h, %w], [%w, 1]
    : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<16x32xf32>
  %v = xetile.load_tile %t : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %two = arith.constant dense<2.0> : vector<16x32xf32>
  %d = arith.mulf %v, %two : vector<16x32xf32>
  xetile.store_tile %d, %u : vector<16x32xf32>, !xetile.tile<16x32xf32>
  gpu.return
} } }
"""


class Broken(Target):
    """A target whose second pass makes 2 into 2.01."""

    name = "cpu"

    def build(self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore) -> Any:
        observe("harmless", module)
        for op in module.walk():
            if isinstance(op, arith.ConstantOp) and isinstance(op.result.type, VectorType):
                value = DenseIntOrFPElementsAttr.from_list(op.result.type, [2.01])
                op.properties["value"] = value
        observe("harmful", module)
        observe("innocent", module)
        return Executable(module)


class Executable:
    def __init__(self, module: ModuleOp):
        self.module = module

    def launch(self, grid: Any, args: Any) -> None:
        from tilewright.arguments import numpy_view

        reference.run(self.module, grid, [numpy_view(a) for a in args])


def write(path: Path, text: str) -> str:
    file = path / "scale.mlir"
    file.write_text(text)
    return str(file)


def test_a_kernel_that_is_right_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", write(tmp_path, SCALE.replace("ROW", "%row"))]) == 0
    printed = capsys.readouterr()
    assert "right: code generation for cpu" in printed.out
    # The sizes are ragged: that is legal, and worth one line.
    assert re.fullmatch(
        r"remark: 2 tiles reach past the edge of an array \(.*\): .*\n", printed.err
    )


def test_the_pass_that_changed_a_result_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(base._loaded, "cpu", Broken())  # pyright: ignore[reportPrivateUsage]
    assert main(["check", "--seed", "3", write(tmp_path, SCALE.replace("ROW", "%row"))]) == 1
    error = capsys.readouterr().err
    assert "pass harmful changed the result: argument 1" in error
    assert "--seed 3" in error


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
def test_a_barrier_that_the_compiler_forgot_is_found(
    machine: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """No GPU is needed: the last stage runs thread by thread."""
    arguments = ["--args", "bf16[60,96]", "bf16[96,64]", "f32[60,64]", "--set", "BM=64", "BN=64"]
    command = ["check", "examples/01_gemm.py:gemm", "--target", machine, "--schedules", "1"]
    assert main([*command, *arguments]) == 0
    assert "right: pass cuda-to-mach, schedule 1" in capsys.readouterr().out

    def forgetful(*args: Any) -> Any:
        lowered = lower_kernel(*args)
        names = ("gpu.barrier", "nvptx.bar.sync")
        ops = [op for op in lowered.module.walk() if op.name in names or _instruction(op) in names]
        ops[-1].detach()
        return lowered

    monkeypatch.setattr(pipeline, "lower_kernel", forgetful)
    assert main([*command, *arguments]) == 1
    error = capsys.readouterr().err
    assert "race: " in error and "nothing orders the two" in error
    assert "note: in pass cuda-to-mach; pass" in error


def _instruction(op: Operation) -> str:
    return op.instruction if isinstance(op, InstrOp) else ""


PARTLY_WRITTEN = """
import tilewright as tw

@tw.kernel
def part(X, Y, n, M: tw.constexpr = 32, N: tw.constexpr = 64, MORE: tw.constexpr = 0):
    slm = tw.alloc_slm((M, N), tw.f16)
    row, column = tw.arange(M, axis=0), tw.arange(N)
    x = tw.load_tile(tw.init_tile(X, [0, 0], (M, N)))
    tw.store_tile(x, tw.init_tile(slm, [0, 0], (M, N)), (column < n) | (row > n))
    tw.barrier()
    for k in range(0, N, 16):
        wanted = (tw.arange(16) + k < n + MORE) | (row > n)
        y = tw.load_tile(tw.init_tile(slm, [0, k], (M, 16)), wanted, padding=-1)
        tw.store_tile(y + 1, tw.init_tile(Y, [0, k], (M, 16)))
"""


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "xe-pvc"])
def test_what_a_mask_takes_out_may_be_unwritten(target: str, tmp_path: Path, capsys):
    """In every stage: also where a mask is made behind the load that it is of."""
    file = tmp_path / "part.py"
    file.write_text(PARTLY_WRITTEN)
    words = ["check", str(file), "--target", target, "--args", *["f16[32,64]"] * 2, "5"]
    assert main([*words, "--grid", "1"]) == 0, capsys.readouterr().err
    if target == "cpu":  # the program as written is the same for all
        assert main([*words, "--grid", "1", "--set", "MORE=1"]) == 1
        assert (
            "element 5 of the buffer of memref.alloc was never written" in capsys.readouterr().err
        )


QUANTISED = """
import tilewright as tw

@tw.kernel
def quantised(X, W, Y, M: tw.constexpr = 32, N: tw.constexpr = 64, K: tw.constexpr = 64):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (M, K)))
    scale = tw.maximum(tw.max(tw.abs(x), 1), 1e-6) / 127
    q = tw.round(tw.load_tile(tw.init_tile(X, [0, 0], (M, K))) / scale).to(tw.i8)
    y = tw.tile_mma(q, tw.load_tile(tw.init_tile(W, [0, 0], (K, N)))).to(tw.f32) * scale
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (M, N)))
"""


def test_threads_may_convert_what_nobody_reads(tmp_path: Path, capsys):
    """Rows beyond the array, where nothing was loaded: what they are is no number of the program's."""
    file = tmp_path / "quantised.py"
    file.write_text(QUANTISED)
    words = ["check", f"{file}:quantised", "--target", "sm_90a"]
    code = main([*words, "--args", "f32[1,64]", "i8[64,50]", "f32[1,50]"])
    assert code == 0, capsys.readouterr().err


def test_races_of_the_program_itself_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", write(tmp_path, SCALE.replace("ROW", "%c0"))]) == 1
    assert "race: workgroup (1, 0, 0) writes" in capsys.readouterr().err


ROWS = """
gpu.module @m {{ gpu.func @k(%a: {a}, %b: {b}) kernel attributes {{tilewright.level = "workgroup"}} {{
  %i = arith.constant 0 : index
  %p = arith.constant 0.0 : f32
  %v = vector.transfer_read %a[%i, %i], %p {{in_bounds = [true, true]}} : {a}, vector<8x16xf32>
  vector.transfer_write %v, %b[%i, %i] {{in_bounds = [true, true]}} : vector<8x16xf32>, {b}
  gpu.return
}} }}
"""
WHOLE, ONE_ROW = "memref<8x16xf32>", "memref<8x16xf32, strided<[0, 1]>>"


def test_rows_that_are_one_in_memory_are_read_and_not_written(tmp_path: Path, capsys):
    path = tmp_path / "rows.mlir"
    path.write_text(ROWS.format(a=ONE_ROW, b=WHOLE))
    assert main(["check", str(path), "--target", "cpu"]) == 0
    path.write_text(ROWS.format(a=WHOLE, b=ONE_ROW))
    assert main(["check", str(path), "--target", "cpu"]) == 1
    told = capsys.readouterr().err
    assert "argument 1 is written, and is a view whose 8 elements along dimension 0 are one" in told


T = "!xetile.tile<8x16xf32>"
CHOSEN = """
gpu.module @m {{ gpu.func @k(%a: memref<32x16xf32>, %b: memref<32x16xf32>) kernel
    attributes {{tilewright.level = "workgroup"}} {{
  %c8 = arith.constant 8 : index
  %p = gpu.block_id x
  %at = arith.muli %p, %c8 : index
  %x = xetile.init_tile %a[%at, 0] : memref<32x16xf32> -> {T}
  %o = xetile.init_tile %b[%at, 0] : memref<32x16xf32> -> {T}
  {body}
  %v = xetile.load_tile %t : {T} -> vector<8x16xf32>
  xetile.store_tile %v, %o : vector<8x16xf32>, {T}
  gpu.return
}} }}
"""
CHOICES = {
    "scf.index_switch": f"""%t = scf.index_switch %p -> {T}
  case 0 {{ scf.yield %x : {T} }}
  default {{
    %y = xetile.update_tile_offset %x, [-8, 0] : {T}
    scf.yield %y : {T}
  }}""",
    "cf.cond_br": f"""%c = arith.cmpi slt, %p, %c8 : index
  %y = xetile.update_tile_offset %x, [-8, 0] : {T}
  cf.cond_br %c, ^next(%x : {T}), ^next(%y : {T})
  ^next(%t: {T}):""",
}


@pytest.mark.parametrize("body", CHOICES.values(), ids=CHOICES)
def test_tiles_that_any_control_flow_gives(body: str, tmp_path: Path):
    path = tmp_path / "chosen.mlir"
    path.write_text(CHOSEN.format(body=body, T=T))
    assert main(["check", str(path), "--target", "cpu"]) == 0


def test_python_kernels_need_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "k.py"
    file.write_text("""
import tilewright as tw

@tw.kernel
def double(A, B, N: tw.constexpr = 32):
    i = tw.program_id(0) * N
    x = tw.load_tile(tw.init_tile(A, [i, 0], (N, N)))
    tw.store_tile(x + x, tw.init_tile(B, [i, 0], (N, N)))
""")
    assert main(["check", f"{file}:double"]) == 2
    assert "--args" in capsys.readouterr().err
    assert main(["check", f"{file}:double", "--args", "f32[70,20]", "f32[70,20]"]) == 0
    assert "grid (3, 1, 1)" in capsys.readouterr().out


def test_stages_are_compared_with_the_first():
    inputs = Inputs((1, 1, 1), (np.ones((3, 3), np.float32),))

    def add(amount: float):
        def run(grid: Any, args: Any) -> None:
            args[0] += np.float32(amount)

        return run

    stages = [Stage("first", add(1)), Stage("second", add(1)), Stage("third", add(1.001))]
    assert check_stages(stages[:2], inputs) is None
    found = check_stages(stages, inputs)
    assert found is not None and (found.stage, found.before) == ("third", "second")
    assert (inputs.args[0] == 1).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_differences_of_floats(dtype: Any):
    rng = np.random.default_rng(5)
    right = rng.standard_normal((50, 40)).astype(dtype)
    assert difference(right, right.copy()) is None
    assert difference(right[:0], right[:0]) is None
    other_side = right.copy()
    other_side[::3] = np.nextafter(right[::3], dtype(0))
    assert difference(right, other_side) is None
    outlier = right.copy()
    outlier[7, 3] = 30
    assert "at [7, 3]" in str(difference(right, outlier))
    assert difference(right, right * np.array(1.25, dtype)) is not None
    holes = right.copy()
    holes[1, 2] = np.nan
    assert "at [1, 2]" in str(difference(right, holes))
    assert difference(holes, holes.copy()) is None
    assert "at [1, 2]" in str(difference(holes, right))


def test_inputs_that_say_where_are_changed_as_far_as_their_places_exist():
    x = np.array([3.0, 1.0, 0.5], np.float32)

    def moved(by: float) -> Stage:
        def run(_: Any, args: Any) -> None:
            if args[0][0] > 3:
                raise CheckError("out of bounds")
            args[1][0] = args[0][1] + by

        return Stage(str(by), run)

    inputs = Inputs((1, 1, 1), (x, np.full(1, np.nan, np.float32)))
    assert "argument 1" in str(check_stages([moved(0), moved(0.5)], inputs))


def test_integers_are_compared_exactly():
    right = np.arange(12, dtype=np.int32).reshape(3, 4)
    wrong = right.copy()
    wrong[2, 1] += 1
    assert difference(right, right.copy()) is None
    assert "[2, 1] instead of 9" in str(difference(right, wrong))


def test_host_programs_are_run_in_checking_mode(tmp_path: Path):
    file = tmp_path / "host.mlir"
    file.write_text(
        """
func.func @main() {
  %c0 = arith.constant 0 : index
  %m = memref.alloc() : memref<2xf32>
  %one = arith.constant 1.0 : f32
  memref.store %one, %m[%c0] : memref<2xf32>
  %v = memref.load %m[INDEX] : memref<2xf32>
  func.return
}
""".replace("INDEX", "%c0")
    )
    assert main(["check", str(file)]) == 0
    text = file.read_text().replace("load %m[%c0]", "load %m[%c1]")
    file.write_text(text.replace("%m =", "%c1 = arith.constant 1 : index\n  %m ="))
    assert main(["check", str(file)]) == 1


def test_what_a_runtime_function_fills_is_written(capsys: pytest.CaptureFixture[str]):
    example = Path(__file__).parents[2] / "examples/06_mlir_text.mlir"
    assert main(["check", str(example)]) == 0, capsys.readouterr().err


TWO = """
func.func @good(%a: memref<64x64xf32>) {
  %t = xetile.init_tile %a[0, 0] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
  %v = xetile.load_tile %t : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %w = arith.addf %v, %v : vector<16x16xf32>
  xetile.store_tile %w, %t : vector<16x16xf32>, !xetile.tile<16x16xf32>
  return
}
func.func @long(%a: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c999999999 = arith.constant 999999999 : index
  %t = xetile.init_tile %a[0, 0] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
  %v = xetile.load_tile %t : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %r = scf.for %i = %c0 to %c999999999 step %c1 iter_args(%x = %v) -> (vector<16x16xf32>) {
    %y = arith.addf %x, %v : vector<16x16xf32>
    scf.yield %y : vector<16x16xf32>
  }
  xetile.store_tile %r, %t : vector<16x16xf32>, !xetile.tile<16x16xf32>
  return
}
"""


def test_every_function_of_a_file_and_a_few_iterations_of_a_long_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "two.mlir"
    file.write_text(TWO)
    assert main(["check", str(file), "--target", "reference"]) == 0
    out = capsys.readouterr().out
    assert "good:" in out and "long:" in out and "the first 8 iterations of 1 long loop" in out


PROGRAM = """
func.func private @printMemrefF32(tensor<*xf32>)
func.func @main() {
  %x = arith.constant dense<1.5> : tensor<20x30xf32>
  %w = arith.constant dense<0.5> : tensor<30x9xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x9xf32>
  %c = linalg.fill ins(%zero : f32) outs(%e : tensor<20x9xf32>) -> tensor<20x9xf32>
  %p = linalg.matmul ins(%x, %w : tensor<20x30xf32>, tensor<30x9xf32>) outs(%c : tensor<20x9xf32>) -> tensor<20x9xf32>
  %v = tensor.empty() : tensor<20xf32>
  %s = linalg.fill ins(%zero : f32) outs(%v : tensor<20xf32>) -> tensor<20xf32>
  %r = linalg.reduce { arith.addf } ins(%p : tensor<20x9xf32>) outs(%s : tensor<20xf32>) dimensions = [1]
  %u = tensor.cast %r : tensor<20xf32> to tensor<*xf32>
  call @printMemrefF32(%u) : (tensor<*xf32>) -> ()
  return
}
"""


@pytest.mark.parametrize("target", ["cpu", "xe-pvc", "sm_90a"])
def test_kernels_of_a_program_are_checked_on_what_they_are_launched_with(
    target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    file = tmp_path / "program.mlir"
    file.write_text(PROGRAM)
    assert main(["check", str(file), "--target", target]) == 0
    printed = capfd.readouterr().out
    assert "main_linalg_0: grid" in printed and "main_linalg_1: grid" in printed
    assert printed.count("stages agree") == 2 and printed.count("202.5") == 20
    assert main(["check", f"{file}:main_linalg_1", "--target", target]) == 0
    assert capfd.readouterr().out.count("stages agree") == 1


def test_the_pass_that_changed_what_a_program_launches_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "program.mlir"
    file.write_text(PROGRAM)
    monkeypatch.setitem(base._loaded, "cpu", Broken())  # pyright: ignore[reportPrivateUsage]
    assert main(["check", str(file)]) == 1
    assert "pass harmful changed the result: argument" in capfd.readouterr().err
