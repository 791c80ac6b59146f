"""Every example of the language reference runs, and says what it says."""

import doctest

import numpy as np
import pytest

import tilewright as tw
from tilewright import knobs
from tilewright.lang import (  # noqa: F401  (they register their functions)
    compute,
    creation,
    elementwise,
    host,
    maps,
    memory,
    parts,
    program,
    scans,
    tiles,
    values,
)
from tilewright.lang.registry import FUNCTIONS

EXAMPLES = {**FUNCTIONS, "Value.to": values.Value.to}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    function = EXAMPLES[name]
    finder = doctest.DocTestFinder(recurse=False)
    scope = {"tw": tw, "np": np}
    found = finder.find(function, name, globs=scope)
    assert found and found[0].examples, f"{name} has no example"
    with knobs.override(target="reference"):
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        report = []
        runner.run(found[0], out=report.append)
    assert runner.failures == 0, "".join(report)


def test_every_public_function_is_part_of_the_reference():
    assert set(FUNCTIONS) <= set(tw.__all__)
    for name in FUNCTIONS:
        assert getattr(tw, name) is FUNCTIONS[name]
