"""Looking into a running kernel: print and breakpoint."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.reference.kernels import run
from tilewright.diagnostics import CheckError

BODY = """
  %i = gpu.block_id x
  %n = arith.muli %i, %c2 : index
"""


def test_print_names_the_workgroup(capsys: pytest.CaptureFixture[str]):
    run("", BODY + 'tw.print "n is {} of {}" %n, %c2 : index, index', [], (3,))
    assert capsys.readouterr().out.splitlines() == [
        "[workgroup (0, 0, 0)] n is 0 of 2",
        "[workgroup (1, 0, 0)] n is 2 of 2",
        "[workgroup (2, 0, 0)] n is 4 of 2",
    ]
    run("", BODY + 'tw.print "two: {}" %c2 : index', [], (1,))
    assert capsys.readouterr().out == "[workgroup (0, 0, 0)] two: 2\n"


def test_print_in_a_branch_names_who_took_it(capsys: pytest.CaptureFixture[str]):
    body = (
        BODY
        + """
  %second = arith.cmpi eq, %i, %c1 : index
  scf.if %second {
    tw.print "here"
  }
"""
    )
    run("", body, [], (3,))
    assert capsys.readouterr().out == "[workgroup (1, 0, 0)] here\n"


def test_breakpoint_opens_a_debugger_with_the_variables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    commands = "p n\np all_n.tolist()\np acc.sum()\ncontinue\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(commands))
    body = (
        BODY
        + """
  %acc = arith.constant dense<2.0> : vector<4x4xf32>
  tw.breakpoint ["n", "acc"] %n, %acc : index, vector<4x4xf32>
"""
    )
    run("", body, [], (3,))
    printed = capsys.readouterr().out
    assert "variables: n, all_n, acc" in printed
    for line in ("0", "[0, 2, 4]", "32.0"):
        assert line in printed


def test_vector_load_outside_is_undefined():
    body = """
  %v = vector.load %a[%c2] : memref<4xf32>, vector<4xf32>
"""
    with pytest.raises(CheckError, match="reaches outside"):
        run("%a: memref<4xf32>", body, [np.zeros(4, np.float32)])
