"""Tracebacks of diagnosed errors: the user's frames, in a plain program, in a notebook, and where one catches them."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import knobs

OURS = str(Path(tw.__file__).parent) + os.sep


@tw.kernel
def wrong(A):
    tw.store_tile(tw.zeros((8, 8), tw.f16), tw.init_tile(A, [0, 0], (8, 8)))


LAUNCHES = {
    "launch": lambda x: wrong[1](x),
    "compile": lambda x: wrong.compile(x),
    "a wrong argument": lambda x: wrong[1](x, x),
    "no target": lambda x: wrong.compile(x, target="tpu"),
}


def caught(name) -> tw.TilewrightError:
    with pytest.raises(tw.TilewrightError) as found:
        LAUNCHES[name](np.zeros((8, 8), np.float32))
    return found.value


@pytest.mark.parametrize("name", LAUNCHES)
def test_what_is_caught_has_one_frame_of_ours(name):
    """That of the call itself, which Python adds on the way out."""
    frames = traceback.extract_tb(caught(name).__traceback__)
    assert [f.filename.startswith(OURS) for f in frames][:2] == [False, False]
    assert sum(f.filename.startswith(OURS) for f in frames) <= 2


def test_a_knob_keeps_them():
    with knobs.override(traceback=True):
        frames = traceback.extract_tb(caught("launch").__traceback__)
    assert sum(f.filename.startswith(OURS) for f in frames) > 5


def test_a_notebook_shows_the_users_frames():
    error = caught("launch")
    lines = error._render_traceback_()
    assert lines[0].startswith("Traceback") and OURS not in "\n".join(lines)
    assert lines[-1].startswith("hint: ") and any("test_frames.py" in s for s in lines)


PROGRAM = """
import numpy as np
import tilewright as tw

@tw.kernel
def wrong(A):
    tw.store_tile(tw.zeros((8, 8), tw.f16), tw.init_tile(A, [0, 0], (8, 8)))

def main():
    {call}

main()
"""


@pytest.mark.parametrize(
    "call, words",
    [
        ("wrong[1](np.zeros((8, 8), np.float32))", "writes 8x8 value of f16"),
        ("wrong(np.zeros((8, 8), np.float32))", "without a grid"),
        ("tw.zeros((8, 8), tw.f32)", "inside a kernel only"),
    ],
)
def test_a_plain_program_shows_the_users_frames(call, words, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(PROGRAM.format(call=call))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr
    files = [s for s in done.stderr.splitlines() if s.startswith('  File "')]
    assert len(files) == 2 and all(str(path) in s for s in files), done.stderr
    assert "During handling" not in done.stderr


def test_a_variable_that_is_no_value_is_told_as_any_error(tmp_path):
    """Whether tracebacks are whole is a variable, too."""
    path = tmp_path / "plain.py"
    path.write_text(PROGRAM.format(call="wrong[1](np.zeros((8, 8), np.float32))"))
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "TILEWRIGHT_CACHE": "maybe"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "TILEWRIGHT_CACHE='maybe' is not 0 or 1" in done.stderr
    assert OURS not in done.stderr and "excepthook" not in done.stderr


def test_other_hooks_stay(monkeypatch):
    """Who prints errors in a way of their own goes on doing so."""
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, at: shown.append(error))
    mine = sys.excepthook
    caught("launch")
    assert sys.excepthook is mine
