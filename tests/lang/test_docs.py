"""The reference page is the one that the docstrings give."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_language_reference_is_up_to_date():
    command = [sys.executable, "docs/make_language.py", "--check"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
