"""`tilewright run --filecheck` on whole programs, and what their comment lines ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.tools.cli import main
from tilewright.tools.directives import directives

PROGRAMS = Path(__file__).parent.parent / "runtime" / "program" / "programs"


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.mlir")), ids=lambda path: path.stem)
def test_programs_print_what_they_say(path, capfd):
    assert main(["run", "--filecheck", str(path)]) == 0, capfd.readouterr().err
    said = capfd.readouterr().err
    assert "reference executor" not in said


def test_memory_that_nothing_wrote(capfd):
    """It is zero, as drivers give it; garbage when asked for; and a check finds who reads it."""
    path = str(PROGRAMS / "rows_in_threads.mlir")
    assert main(["run", "--filecheck", "--device-memory", "poison", path]) == 1
    assert "2209,  nan" in capfd.readouterr().err
    assert main(["run", path]) == 0
    assert "2209,  0" in capfd.readouterr().out
    assert main(["run", "--check", path]) == 1
    said = capfd.readouterr().out
    assert "rows_in_threads.mlir:31:11: error: gpu.memcpy reads uninitialised memory" in said


@pytest.mark.parametrize("flags", [["run", "--target", "reference"], ["run", "--check"], ["check"]])
def test_the_reference_executor_runs_what_hosts_are_written_in(flags, capfd):
    assert main([*flags, str(PROGRAMS / "blocks_and_affine.mlir")]) == 0, capfd.readouterr().err
    assert "[0,  1,  3,  4,  1.5,  1.5]" in capfd.readouterr().out


PRINT = """
func.func @main() {
  %x = arith.constant 3 : i32
  vector.print %x : i32
  return
}
"""


def run(tmp_path, text: str) -> int:
    path = tmp_path / "program.mlir"
    path.write_text(text)
    return main(["run", "--filecheck", str(path)])


@pytest.mark.parametrize(
    "lines, code",
    [
        ("// CHECK: 3\n", 0),
        ("// CHECK: 4\n", 1),
        ("// XFAIL: *\n// CHECK: 4\n", 0),
        ("// XFAIL:*\n// CHECK: 3\n", 0),
        ("// RUN: imex-opt %s\n", 0),
        ("// RUN: imex-opt %s | FileCheck %s\n", 1),
        ("", 1),
    ],
)
def test_what_comment_lines_ask_for(lines, code, tmp_path, capfd):
    assert run(tmp_path, lines + PRINT) == code
    said = capfd.readouterr().err
    assert ("marked XFAIL" in said) == ("XFAIL" in lines)
    assert "Traceback" not in said


def test_text_that_is_no_program_may_be_marked_so(tmp_path, capfd):
    assert run(tmp_path, "// XFAIL: *\n# not MLIR\n" + PRINT) == 0
    assert "error:" in capfd.readouterr().err


@pytest.mark.parametrize(
    "line, level, entry",
    [
        ('// RUN: opt --pipe="xegpu-op-level=lane zebin-chip=pvc" | run -e go | FileCheck', "lane", "go"),
        ("// RUN: opt %s", None, None),
        ("// xegpu-op-level=lane", None, None),
    ],
)  # fmt: skip
def test_run_lines(line, level, entry):
    found = directives(line)
    assert (found.level, found.entry) == (level, entry)
