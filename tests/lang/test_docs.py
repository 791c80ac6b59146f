"""The pages that are made from the language's docstrings and tables are up to date."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "script", ["make_language.py", "make_movement.py", "make_names.py", "make_passes.py"]
)
def test_pages_are_up_to_date(script):
    command = [sys.executable, f"docs/{script}", "--check"]
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr


def test_the_contents_of_the_reference_lead_to_its_sections():
    text = (ROOT / "docs" / "language.md").read_text()
    titles = re.findall(r"^##+ (.*)$", text, flags=re.MULTILINE)
    kept = ("".join(c for c in t.lower() if c.isalnum() or c in "-_ ") for t in titles)
    anchors = [t.replace(" ", "-") for t in kept]
    assert re.findall(r"\]\(#([^)]*)\)", text) == anchors and len(anchors) > 60
