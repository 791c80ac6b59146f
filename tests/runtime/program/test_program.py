"""Whole MLIR programs: host code compiled, kernels launched, crashes contained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module
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


def test_a_wrong_kernel_is_told(capsys):
    text = (
        (HERE / "gemm_subgroup.mlir")
        .read_text()
        .replace("%n1 = arith.muli %sn, %c32", "%n1 = arith.muli %sn, %c0")
    )
    failures, _ = run(text, strict=True)
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


def test_device_memory_is_poisoned(capsys):
    run(
        HOST.format(
            body="""%n = arith.constant 3 : index
  %a = gpu.alloc (%n) : memref<2x?xf32>
  %u = memref.cast %a : memref<2x?xf32> to memref<*xf32>
  func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()"""
        )
    )
    assert "[[nan,   nan,   nan]" in capsys.readouterr().out


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


def test_entry_must_exist_and_take_nothing():
    with pytest.raises(TilewrightError, match="@other"):
        run(HOST.format(body=""), entry="other")
    with pytest.raises(TilewrightError, match="takes no arguments"):
        run("func.func @main(%x: index) { return }")


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
