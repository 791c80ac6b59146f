"""MLIR's own `mlir-opt`, version 22: Debian's mlir-22-tools. Tests that ask it skip where it is missing."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

TOOL = shutil.which("mlir-opt-22")
SECONDS = 60

needs_mlir_opt = pytest.mark.skipif(
    TOOL is None, reason="mlir-opt-22 is not installed (Debian: mlir-22-tools)"
)


class Refused(Exception):
    """What mlir-opt does not take: the first line of its diagnostic, or that it crashed."""


def mlir_opt(text: str, *passes: str) -> str:
    """The text after passes of MLIR's on its GPU modules; Refused where it does not parse, verify or lower.

    Attributes of dialects that MLIR does not know (`tilewright.level`) are no obstacle.
    """
    assert TOOL is not None
    command = [TOOL, "--allow-unregistered-dialect"]
    if passes:
        command.append(f"--pass-pipeline=builtin.module(gpu.module({','.join(passes)}))")
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode == 0:
        return done.stdout
    found = re.search(r"error: (.*)", done.stderr)
    raise Refused(found[1] if found else f"mlir-opt ended with status {done.returncode}")
