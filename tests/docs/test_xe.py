"""docs/xe.md shows what the compiler makes today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_parts_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/make_xe.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
