"""Programs with a mistake in them are checked, compiled and rewritten, or refused: no fault of ours, no hang.

The mutations are those of `tests/runtime/program/test_mutated`, which runs them; TILEWRIGHT_TEST_MUTATIONS asks
for more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.draws import SEED
from tests.runtime.program.test_mutated import PROGRAMS, mutated
from tilewright import knobs
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module
from tilewright.tools.cli import main

COUNT = max(1, int(os.environ.get("TILEWRIGHT_TEST_MUTATIONS", "24")) // 12)
TARGETS = ("cpu", "sm_90a", "xe-pvc", "emu")
PASSES = ("cleanup", "cse,canonicalize", "outer-loops-to-grid", "xegpu-to-xetile", "while-to-for")


def accepted(rng: random.Random) -> str:
    """A mutated program that can still be read."""
    while True:
        text = mutated(rng.choice(PROGRAMS).read_text(), rng)
        try:
            parse_module(text)
        except TilewrightError:
            continue
        return text


@pytest.mark.parametrize("command", ["check", "compile", "opt"])
def test_a_mutated_program_ends_well(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mutated.mlir"
    for number in range(COUNT):
        rng = random.Random(SEED + number)
        path.write_text(accepted(rng))
        more = {
            "check": ["--seed", "1"],
            "compile": ["--target", rng.choice(TARGETS), "--emit", "llvm"],
            "opt": ["-p", rng.choice(PASSES)],
        }[command]
        with knobs.override(time_limit=3):
            code = main([command, str(path), *more])
        said = capfd.readouterr().err
        about = (
            f"TILEWRIGHT_TEST_SEED={SEED + number}, {command} {more}:\n{path.read_text()}\n{said}"
        )
        assert code in (0, 1) and "internal error" not in said and "Traceback" not in said, about
