"""Programs in MLIR are contained: what they may reach, and how long and how much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright import knobs
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import Limits, in_worker, run_program
from tilewright.runtime.program.worker import WorkerError
from tilewright.tools.cli import main

FOR_EVER = """func.func @main() {
  %t = arith.constant true
  scf.while : () -> () {
    scf.condition(%t)
  } do {
    scf.yield
  }
  return
}
"""
KERNEL = """gpu.module @m {{
  gpu.func @k(%a: memref<16xi32>) kernel {{
    %c0 = arith.constant 0 : index
    {line}
    memref.store %r, %a[%c0] : memref<16xi32>
    gpu.return
  }}
}}
"""


@pytest.fixture
def program(tmp_path: Path):
    path = tmp_path / "program.mlir"

    def write(text: str) -> str:
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("command", [["run"], ["run", "--target", "reference"], ["check"]])
def test_ops_of_the_last_stages_are_not_executed_from_a_file(command, program, capfd):
    name = program("func.func @main() {\n  %r = mach.call @getpid() : () -> i32\n  return\n}\n")
    assert main([*command, name]) == 1
    assert "program.mlir:2:8: error: mach.call is an op of the compiler" in capfd.readouterr().err
    # Trusted, it goes on; code of a program has no such function all the same, and nor has the reference.
    assert main([*command, "--trusted", name]) == 1
    assert "mach.call" in (said := capfd.readouterr().err) or "needs 'getpid'" in said


def test_host_code_reaches_the_runtime_alone():
    module = parse_module(
        "func.func @main() {\n  %r = mach.call @getpid() : () -> i32\n  return\n}\n"
    )
    with pytest.raises(WorkerError, match="needs 'getpid', which nothing here defines"):
        in_worker(lambda fail: run_program(module, fail=fail), Limits())


def test_a_kernel_calls_no_function_of_the_process(program, capsys):
    name = program(KERNEL.format(line="%r = func.call @getpid() : () -> i32").replace(
        "@m {", "@m {\n  func.func private @getpid() -> i32", 1))  # fmt: skip
    for command in ("check", "compile"):
        assert main([command, name]) == 1
        assert "getpid" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run"], ["run", "--target", "reference"], ["check"]])
def test_a_program_that_runs_for_ever_is_stopped(command, program, capfd):
    with knobs.override(time_limit=1):
        assert main([*command, program(FOR_EVER)]) == 1
    assert "ran longer than 1 s" in capfd.readouterr().err


def test_an_expression_that_searches_for_ever_is_stopped(program, capfd):
    text = "func.func @main() {\n  %v = arith.constant dense<1> : vector<64xi32>\n"
    text += "  vector.print %v : vector<64xi32>\n  return\n}\n// CHECK: {{(.+)+y}}\n"
    with knobs.override(time_limit=3):
        assert main(["run", "--filecheck", program(text)]) == 1
    assert "ran longer than 3 s" in capfd.readouterr().err


def test_a_worker_ends_where_it_prints_or_takes_too_much():
    def chatter(_: object) -> None:
        for _ in range(100):
            print("x" * 999)

    with pytest.raises(WorkerError, match="printed more than 0 MiB"):
        in_worker(chatter, Limits(output=5000))
    with pytest.raises(WorkerError, match="needs more than its 64 MiB"):
        # Sixteen: one may find room in what this process has freed.
        in_worker(lambda _: len([bytearray(1 << 30) for _ in range(16)]), Limits(memory=64 << 20))
    assert Limits().memory < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_what_a_worker_prints_arrives(capsys):
    assert in_worker(lambda _: print("here"), Limits()) is None
    assert capsys.readouterr().out == "here\n"


NAMES = """memref.global "private" @"g\\22 1" : memref<4xi32> = dense<7>
func.func @"a b\\22() {}\\0Adeclare void @x()"(%i: index) -> index {
  return %i : index
}
func.func @tw_poison() {
  return
}
func.func @llvm.trap() {
  return
}
func.func @free() {
  return
}
func.func @main() {
  %c1 = arith.constant 1 : index
  %d = gpu.alloc() : memref<4xf32>
  %i = func.call @"a b\\22() {}\\0Adeclare void @x()"(%c1) : (index) -> index
  func.call @tw_poison() : () -> ()
  func.call @llvm.trap() : () -> ()
  func.call @free() : () -> ()
  %g = memref.get_global @"g\\22 1" : memref<4xi32>
  %v = memref.load %g[%i] : memref<4xi32>
  vector.print %v : i32
  gpu.dealloc %d : memref<4xf32>
  return
}
"""


def test_names_are_names_whatever_they_hold(capsys):
    run_program(parse_module(NAMES, "names.mlir"))
    assert capsys.readouterr().out == "7\n"
