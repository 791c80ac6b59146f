"""What README and docs show is executed: Python blocks as programs, `tilewright` lines as commands.

Blocks of one page run one after another in one scope, as a reader would type them. A line of a
```sh block that starts with `tilewright` must succeed; `make X` must name a target of the Makefile.
"""

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
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all pages: what several show is compiled once."""
    return tmp_path_factory.mktemp("cache")


def run(command: list[str], tmp_path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=environment(tmp_path), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip


# Pages that are programs from top to bottom. Others show fragments, or carry doctests, which the
# tests of their subject run.
PROGRAMS = (
    "README", "quickstart", "from-triton", "recipes", "commands", "performance", "tuning",
)  # fmt: skip
WITH_PYTHON = [p for p in PAGES if p.stem in PROGRAMS and blocks(p, "python")]
WITH_COMMANDS = [p for p in PAGES if blocks(p, "sh")]


@pytest.mark.whole
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda p: p.name)
def test_python_blocks(page, tmp_path):
    program = tmp_path / (page.stem.replace("-", "_") + ".py")
    program.write_text("\n".join(blocks(page, "python")))
    done = run([sys.executable, str(program)], tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.whole
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda p: p.name)
def test_command_lines(page, tmp_path, cache):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for line in "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert {w for w in words[1:] if "=" not in w} <= targets, line
        if words[:1] == ["tilewright"]:
            words = [w if not w.startswith("/tmp/") else str(tmp_path / w[5:]) for w in words]
            done = tilewright(words[1:], ROOT, {"TILEWRIGHT_CACHE_DIR": str(cache)})
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.whole
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
