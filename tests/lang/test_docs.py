"""The pages that are made from the language's docstrings and tables are up to date."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["make_language.py", "make_names.py"])
def test_pages_are_up_to_date(script):
    command = [sys.executable, f"docs/{script}", "--check"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
