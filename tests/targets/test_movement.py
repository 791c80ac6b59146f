"""Every op that rearranges, on every target, against the reference executor.

On cuda thread by thread in numpy, which finds races and reads of nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.movement import CASES, GRID, arguments, kernel
from tests.targets.cuda.threads import ThreadsTarget
from tilewright import reference
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions


def described(args: list[Any]) -> list[Any]:
    return [describe(a) if isinstance(a, np.ndarray) else a for a in args]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, rng: np.random.Generator) -> tuple[str, list[Any], Any]:
    """A kernel's name, its arguments, and the result that is right."""
    args = arguments(request.param, rng)
    right = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    reference.run(kernel(request.param), GRID, right)
    assert np.isfinite(right[-1].astype(np.float64)).any()
    return request.param, args, right[-1]


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
def test_cuda(case: tuple[str, list[Any], Any], machine: str):
    name, args, right = case
    code = ThreadsTarget(machine).build(
        kernel(name), CompileOptions(target="cuda", machine=machine)
    )
    code.launch(GRID, described(args))
    np.testing.assert_array_equal(args[-1], right)
