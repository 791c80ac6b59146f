"""Printing is one form on every target, and ends at a number of lines."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.prints import arguments, expected, prints
from tilewright import knobs


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_lines(target: str, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]) -> None:
    args = arguments(rng)
    capfd.readouterr()
    strict = {"fastmath": False}  # x / 3 in f16, rounded once
    prints.options(target=target, num_threads=2, **strict)[2](*args)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(expected(args))
    with knobs.override(print_lines=3):
        prints.options(target=target, num_threads=1, **strict)[9](*args)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1] == "... and 7 lines more (TILEWRIGHT_PRINT_LINES is 3)"
