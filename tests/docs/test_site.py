"""The documents as a site: every link of every page leads to a page and a heading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_site_is_built(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text()
    assert 'href="language/"' in page and 'src="img/product.svg"' in page
    language = (tmp_path / "language" / "index.html").read_text()
    assert "tw.init_tile" in language and (tmp_path / "search" / "search_index.json").exists()
