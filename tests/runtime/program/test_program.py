"""Whole MLIR programs: host code compiled, kernels launched, crashes contained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.texts import parse_module
from tilewright.diagnostics import TilewrightError
from tilewright.runtime.program import Limits, in_worker, run_program

HERE = Path(__file__).parent


def run(text: str, **options):
    said: list[str] = []
    failures = run_program(parse_module(text, "program.mlir"), say=said.append, **options)
    return failures, said


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_subgroup_kernel_launched_from_host_code(target, capsys):
    text = (HERE / "gemm_subgroup.mlir").read_text()
    failures, said = run(text, target=target)
    assert failures == []
    assert capsys.readouterr().out == "[ALLCLOSE: TRUE]\n"
    if target == "cpu":
        assert said == ["@gemm: subgroup level, compiled for cpu"]


def test_what_a_program_does_not_need_is_not_imported():
    """A third of what a small program takes is imports: no executor, linalg, emulator, lowering for Intel GPUs."""
    names = (
        "reference.launch",
        "passes.linalg.bufferize",
        "targets.emu.lowering",
        "passes.xegpu.lanes",
    )
    code = f"""
import sys
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import run_program
text = open({str(HERE / "gemm_subgroup.mlir")!r}).read()
print(run_program(parse_module(text, "program.mlir"), target="cpu", say=print))
print([name for name in {names} if f"tilewright.{{name}}" in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[-3:] == ["[]", "[]", ""], done.stdout + done.stderr


def test_a_wrong_kernel_is_told(capsys):
    text = (
        (HERE / "gemm_subgroup.mlir")
        .read_text()
        .replace("%n1 = arith.muli %sn, %c32", "%n1 = arith.muli %sn, %c0")
    )
    failures, _ = run(text, strict=True, zeroed=False)
    assert len(failures) == 1
    assert "nan" in failures[0]
    assert capsys.readouterr().out == "[ALLCLOSE: FALSE]\n"


HOST = """
func.func private @printMemrefF32(memref<*xf32>) attributes {{llvm.emit_c_interface}}
func.func @main() {{
  {body}
  return
}}
"""


@pytest.mark.parametrize(
    "body, words",
    [
        ("func.call @nowhere() : () -> ()", "nowhere"),
        (
            "%a = memref.alloc() : memref<4xf32>\n func.call @missing(%a) : (memref<4xf32>) -> ()",
            "missing",
        ),
    ],
)
def test_unknown_functions_are_refused_with_their_name(body, words):
    declare = (
        "func.func private @nowhere()\nfunc.func private @missing(memref<4xf32>)\n"
        + HOST.format(body=body)
    )
    with pytest.raises(TilewrightError, match=words):
        run(declare)


def test_entry_must_exist_and_take_arrays():
    with pytest.raises(TilewrightError, match="@other"):
        run(HOST.format(body=""), entry="other")
    with pytest.raises(TilewrightError, match="argument 0 is memref"):
        run("func.func @main(%x: memref<?xf32>) { return }")


def test_fresh_device_memory_is_zero_or_poison(capsys):
    body = """%n = arith.constant 3 : index
  %a = gpu.alloc (%n) : memref<2x?xf32>
  %u = memref.cast %a : memref<2x?xf32> to memref<*xf32>
  func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()"""
    run(HOST.format(body=body))
    assert "[[0,   0,   0]" in capsys.readouterr().out
    run(HOST.format(body=body), zeroed=False)
    assert "[[nan,   nan,   nan]" in capsys.readouterr().out


def test_an_entry_that_takes_arrays_gets_random_ones(capsys):
    text = """
func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func @helper(%x: memref<2x2xf32>) {
  %u = memref.cast %x : memref<2x2xf32> to memref<*xf32>
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
func.func @only(%x: memref<2x2xf32>, %y: memref<4xi32, 1>) {
  call @helper(%x) : (memref<2x2xf32>) -> ()
  %z = memref.memory_space_cast %y : memref<4xi32, 1> to memref<4xi32>
  %u = memref.cast %z : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%u) : (memref<*xi32>) -> ()
  return
}"""
    _, said = run(text, seed=1)
    first = capsys.readouterr().out
    assert any("@only takes arrays" in words for words in said)
    assert "nan" not in first
    assert first.count("base@") == 2
    numbers = [line for line in first.splitlines() if "base@" not in line]
    run(text, seed=1)
    assert [x for x in capsys.readouterr().out.splitlines() if "base@" not in x] == numbers


TIMED = """
module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @add(%c: memref<16xf32>) kernel {
      %one = arith.constant dense<1.0> : vector<16xf32>
      %t = xegpu.create_nd_tdesc %c : memref<16xf32> -> !xegpu.tensor_desc<16xf32>
      %v = xegpu.load_nd %t[%c0] : !xegpu.tensor_desc<16xf32> -> vector<16xf32>
      %w = arith.addf %v, %one : vector<16xf32>
      xegpu.store_nd %w, %t[%c0] : vector<16xf32>, !xegpu.tensor_desc<16xf32>
      gpu.return
    }
  }
  func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
  func.func private @rtclock() -> f64
  func.func @main() {
    %n = arith.constant 50 : index
    %zero = arith.constant 0.0 : f32
    %h = memref.alloc() : memref<16xf32>
    scf.for %i = %c0 to %c16 step %c1 { memref.store %zero, %h[%i] : memref<16xf32> }
    %d = gpu.alloc () : memref<16xf32>
    gpu.memcpy %d, %h : memref<16xf32>, memref<16xf32>
    scf.for %i = %c0 to %n step %c1 {
      gpu.launch_func @m::@add blocks in (%c1, %c1, %c1) threads in (%c16, %c1, %c1) args(%d : memref<16xf32>)
    }
    BEFORE
    scf.for %i = %c0 to %n step %c1 {
      gpu.launch_func @m::@add blocks in (%c1, %c1, %c1) threads in (%c16, %c1, %c1) args(%d : memref<16xf32>)
      gpu.wait
    }
    AFTER
    gpu.dealloc %d : memref<16xf32>
    %u = memref.cast %h : memref<16xf32> to memref<*xf32>
    call @printMemrefF32(%u) : (memref<*xf32>) -> ()
    return
  }
}"""
COPY = "gpu.memcpy %h, %d : memref<16xf32>, memref<16xf32>"


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("every", [True, False])
def test_only_launches_whose_results_nothing_reads_are_left_out(early, every, capsys):
    text = TIMED.replace("BEFORE", COPY if early else "").replace("AFTER", "" if early else COPY)
    _, said = run(text, every_launch=every, level="subgroup")
    assert ("[50,  50" if early else "[100,  100") in capsys.readouterr().out
    left_out = [words for words in said if "not run" in words]
    assert left_out == (
        [words for words in left_out if "49 repeated launches" in words]
        if early and not every
        else []
    )
    assert bool(left_out) == (early and not every)


WILD = HOST.format(
    body="""%a = memref.alloc() : memref<4xf32>
  %i = arith.constant 100000000000 : index
  %v = arith.constant 1.0 : f32
  memref.store %v, %a[%i] : memref<4xf32>"""
)


def test_a_wild_address_becomes_a_diagnostic():
    module = parse_module(WILD, "wild.mlir")
    with pytest.raises(TilewrightError, match="SIGSEGV"):
        in_worker(lambda fail: run_program(module, fail=fail), Limits())


def test_a_worker_gives_results_errors_and_limits():
    assert in_worker(lambda fail: ["done", 1], Limits()) == ["done", 1]

    def loop(fail):
        while True:
            pass

    with pytest.raises(TilewrightError, match=r"longer than 0\.2 s"):
        in_worker(loop, Limits(seconds=0.2))

    def hungry(fail):
        return len(bytearray(1 << 30))

    with pytest.raises(TilewrightError, match="64 MiB"):
        in_worker(hungry, Limits(memory=64 << 20))

    def callback_failed(fail):
        fail(TilewrightError("from native code", hint="mend it"))

    with pytest.raises(TilewrightError, match="hint: mend it"):
        in_worker(callback_failed, Limits())
    with pytest.raises(TilewrightError, match="without a word"):
        in_worker(lambda fail: os._exit(0), Limits())


PRINTS = """
gpu.module @m {
  gpu.func @lanes() kernel {
    %x = gpu.thread_id x
    %y = gpu.thread_id y
    gpu.printf "%d,%d\\0A", %x, %y : index, index
    gpu.return
  }
  gpu.func @workgroups() kernel attributes {tilewright.level = "workgroup"} {
    %b = gpu.block_id x
    vector.print %b : index
    gpu.return
  }
}
func.func @main() {
  vector.print str "before\\0A"
  gpu.launch_func @m::@lanes blocks in (%c1, %c1, %c1) threads in (%c3, %c2, %c1)
  gpu.launch_func @m::@workgroups blocks in (%c3, %c1, %c1) threads in (%c1, %c1, %c1)
  vector.print str "after\\0A"
  return
}
"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_kernels_print_between_the_host_s_lines(target, capsys):
    _, said = run(f"module attributes {{gpu.container_module}} {{{PRINTS}}}", target=target)
    lanes = [f"{x},{y}" for y in range(2) for x in range(3)]
    wanted = ["before", *lanes, "0", "1", "2", "after"]
    assert capsys.readouterr().out.splitlines() == wanted
    if target == "cpu":
        for text, op in zip(said, ("gpu.printf", "vector.print"), strict=True):
            assert f"on the reference executor, because {op} of a kernel prints in order" in text


FOLDED = """
func.func @main() {
  %a = memref.alloc() : memref<16xf32>
  %r = memref.reinterpret_cast %a to offset: [0], sizes: [8, 16], strides: [%c0, 1] : memref<16xf32> to memref<8x16xf32, strided<[?, 1]>>
  gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%r : memref<8x16xf32, strided<[?, 1]>>)
  %v = memref.load %a[%c1] : memref<16xf32>
  vector.print %v : f32
  return
}
gpu.module @m { gpu.func @k(%b: memref<8x16xf32, strided<[?, 1]>>) kernel attributes {tilewright.level = "workgroup"} {
  %c = arith.constant dense<2.0> : vector<8x16xf32>
  %i = arith.constant 0 : index
  vector.transfer_write %c, %b[%i, %i] {in_bounds = [true, true]} : vector<8x16xf32>, memref<8x16xf32, strided<[?, 1]>>
  gpu.return
} }
"""  # fmt: skip # noqa: E501


def test_what_is_written_and_one_in_memory_is_the_executor_s(capsys):
    _, said = run(f"module attributes {{gpu.container_module}} {{{FOLDED}}}", target="cpu")
    assert capsys.readouterr().out == "2\n"
    assert "executor, because argument 0 of @k is written, and is a view whose 8" in said[0]


TILES = (HERE.parents[2] / "examples" / "06_mlir_text.mlir").read_text()


def test_a_function_of_the_host_that_works_on_tiles_is_a_kernel(capsys):
    _, said = run(TILES)
    assert said == ["@scale_kernel: subgroup level, compiled for cpu"]
    assert capsys.readouterr().out == "[ALLCLOSE: TRUE]\n"


def test_its_loops_run_in_any_order_so_its_arrays_may_not_overlap():
    # The error leaves through native code, which drops it: the callback keeps it.
    found: list[BaseException] = []
    run(TILES.replace("@scale(%x, %y)", "@scale(%x, %x)"), fail=found.append)
    assert "argument 1 of @scale_kernel overlaps another one" in str(found[0])


def test_host_code_without_an_emission_runs_on_the_executor(capsys):
    text = """
func.func private @printMemrefF32(memref<*xf32>)
func.func @main() {
  %x = memref.alloc() : memref<8x16xf32>
  %v = arith.constant dense<2.5> : vector<8x16xf32>
  %t = xegpu.create_nd_tdesc %x : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %v, %t[%c0, %c0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  %u = memref.cast %x : memref<8x16xf32> to memref<*xf32>
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
"""
    _, said = run(text)
    assert len(said) == 1 and said[0].startswith("host code on the reference executor, because")
    assert "2.5" in capsys.readouterr().out


def test_a_workgroup_has_so_many_threads_at_most():
    text = (HERE / "gemm_subgroup.mlir").read_text()
    text = text.replace("threads in (%c2, %c2, %c1)", "threads in (%huge, %huge, %c1)")
    at = text.index("gpu.launch_func")
    found: list[BaseException] = []
    run(text[:at] + "%huge = arith.constant 1024 : index\n    " + text[at:], fail=found.append)
    assert "a workgroup of 1024 x 1024 x 1 threads; it has 1 to 65536" in str(found[0])
