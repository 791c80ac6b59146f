"""Every example runs as its first lines say, at a size that a test can afford."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tilewright

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*"))
SIZE = 200


def commands(example: Path) -> list[str]:
    """The indented command lines of the example's head."""
    head = example.read_text().split('"""')[1] if example.suffix == ".py" else example.read_text()
    pattern = r"^(?:// )? {4}((?:python|tilewright) \S*.*)$"
    return re.findall(pattern, head, flags=re.MULTILINE)


def run(command: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """With the options in brackets dropped, or given a small size."""
    command = re.sub(r"\[--size \d+\]", f"--size {SIZE}", command)
    program, *words = shlex.split(re.sub(r"\[[^\]]*\]", "", command))
    settings = {"TILEWRIGHT_CACHE_DIR": str(cache)}
    if program == "tilewright":
        return tilewright(words, ROOT, settings)
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.whole
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example(example, tmp_path):
    found = commands(example)
    assert found, f"{example.name} does not say how it is run"
    assert all(example.name in command for command in found)
    for command in found:
        done = run(command, tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_examples_are_numbered_without_gaps():
    assert [int(e.name[:2]) for e in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
