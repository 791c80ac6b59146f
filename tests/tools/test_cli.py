"""Exit codes, help, and that nothing ever ends in a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tilewright import knobs
from tilewright.tools import cli

from .conftest import XETILE


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_teaches(command, tilewright):
    done = tilewright(command, "--help")
    assert done.code == 0
    assert "examples:" in done.out and f"tilewright {command} " in done.out


def test_without_a_command(tilewright):
    done = tilewright()
    assert done.code == 2 and all(name in done.out for name in cli.COMMANDS)
    assert tilewright("--help").code == 0
    assert tilewright("--version").out.startswith("tilewright ")


@pytest.mark.parametrize("argv", [
    ["fly"], ["opt", "--height"], ["bench", "nothing"], ["bench", "gemm", "--rounds", "0"],
    ["run", "x.py:k", "--grid", "a"], ["compile"], ["opt", "x", "-p", "a", "--pass-pipeline", "b"],
])  # fmt: skip
def test_usage_errors(argv, tilewright, tmp_path):
    done = tilewright(*argv)
    assert done.code in (1, 2) and "error" in done.err


@pytest.mark.parametrize("command", ["opt", "compile", "check", "run"])
def test_files_that_are_not_there(command, tilewright, tmp_path):
    done = tilewright(command, tmp_path / "none.mlir")
    assert done.code == 1 and "none.mlir" in done.err
    assert tilewright(command, tmp_path).code == 1  # a directory


@pytest.mark.parametrize("command", ["opt", "compile", "check", "run"])
def test_text_cut_anywhere(command, tilewright, tmp_path):
    """Every prefix of a program in whole lines is diagnosed, or is a program."""
    path = tmp_path / "cut.mlir"
    lines = XETILE.splitlines(keepends=True)
    for count in range(len(lines)):
        path.write_text("".join(lines[:count]))
        done = tilewright(command, path)
        assert done.code in (0, 1), (count, done.err)
        assert done.code == 0 or "error:" in done.err
        assert "internal error" not in done.err


def test_bytes_that_are_no_text(tilewright, tmp_path):
    path = tmp_path / "bytes.mlir"
    path.write_bytes(b"func.func @f() {\n  \xff\xfe\n}\n")
    done = tilewright("opt", path)
    assert done.code == 1 and "bytes.mlir:2:3" in done.err and "UTF-8" in done.err


def test_an_internal_error_is_called_one(tilewright, monkeypatch, xetile):
    monkeypatch.setattr("tilewright.tools.opt.transform", lambda *args: 1 / 0)
    done = tilewright("opt", xetile)
    assert done.code == cli.INTERNAL
    assert "internal error: ZeroDivisionError" in done.err and "TILEWRIGHT_TRACEBACK" in done.err
    with knobs.override(traceback=True), pytest.raises(ZeroDivisionError):
        cli.main(["opt", str(xetile)])


def test_as_a_process(tmp_path, xetile):
    """The module runs as a program; a reader that goes away is no error."""
    command = [sys.executable, "-m", "tilewright", "opt", "-"]
    done = subprocess.run(command, input=XETILE, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "xetile.store_tile" in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        [*command[:-1], str(xetile)], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert b"Traceback" not in gone.stderr and gone.returncode == 0


def test_a_bad_setting_is_diagnosed(xetile):
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "info"],
        env={**os.environ, "TILEWRIGHT_NUM_THREADS": "many"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "TILEWRIGHT_NUM_THREADS='many'" in done.stderr
    assert "Traceback" not in done.stderr
