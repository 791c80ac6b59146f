"""`tilewright ...` as a process of its own, without its second of imports: a fork of the tests' process."""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tilewright import knobs
from tilewright.tools.cli import command

TIMEOUT = 600.0


def tilewright(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `tilewright *words` prints, and its exit code, in `cwd`; `environment` comes on top of ours."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _become(words, cwd, environment or {}, out.fileno(), err.fileno())
        try:
            code = _wait(child)
        finally:
            texts: list[str] = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return subprocess.CompletedProcess(["tilewright", *words], code, *texts)


def _become(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], out: int, err: int
) -> None:
    """In the child: never comes back."""
    try:
        atexit._clear()  # pyright: ignore[reportPrivateUsage]  # what ends pytest
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
        os.chdir(cwd)
        os.environ.update(environment)
        # Knobs are read once in a process, and this one reads its own.
        knobs._initial = None  # pyright: ignore[reportPrivateUsage]
        sys.argv = ["tilewright", *words]
        command()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def _wait(child: int) -> int:
    ready = os.pidfd_open(child)
    try:
        if not select.select([ready], [], [], TIMEOUT)[0]:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail(f"a command took over {TIMEOUT:.0f} s")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ready)
