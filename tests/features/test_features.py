"""Programs about one feature each: the reference executor does what numpy says, each target what the executor does.

A target's passes run one by one, what each leaves is executed, and the code too where this machine has a way to run it:
what `tilewright check` does.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.features import atomics, lanes, memory, values
from tests.features.program import Program
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.affine_to_scf import affine_to_scf
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import check_stages, stages_of_target
from tilewright.tools.check_inputs import Inputs
from tilewright.tools.rounding import roundings_of

PROGRAMS: dict[str, Program] = {
    **memory.PROGRAMS,
    **atomics.PROGRAMS,
    **values.PROGRAMS,
    **lanes.PROGRAMS,
}


def _module(name: str) -> Any:
    module = parse_module(PROGRAMS[name].text, name)
    affine_to_scf(module)
    return module


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_is_a_fixed_point(name: str) -> None:
    text = print_module(parse_module(PROGRAMS[name].text))
    assert print_module(parse_module(text)) == text
    assert print_module(parse_module(print_module(parse_module(text), generic=True))) == text


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_does_what_numpy_says(name: str) -> None:
    program = PROGRAMS[name]
    given = Inputs(program.grid, tuple(program.values(fresh_rng())))
    found = given.copies()
    assert reference.run(_module(name), program.grid, found, check=True).ok
    wanted = [_wide(value) for value in given.args]
    with np.errstate(all="ignore"):
        program.does(*wanted)
    for result, right in zip(found, wanted, strict=True):
        if isinstance(result, np.ndarray):
            _compare(result, right, program.error)


def _wide(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return value.copy() if value.dtype.kind in "biu" else value.astype(np.float64)


def _compare(result: np.ndarray[Any, Any], right: np.ndarray[Any, Any], error: float) -> None:
    if result.dtype.kind in "biu":
        np.testing.assert_array_equal(result, right)
        return
    bound = error or 4 * float(ml_dtypes.finfo(result.dtype).eps)
    found, right = result.astype(np.float64), right.astype(result.dtype).astype(np.float64)
    assert np.linalg.norm(found - right) <= bound * np.linalg.norm(right)


def _agree(name: str, target: str) -> None:
    program = PROGRAMS[name]
    inputs = Inputs(program.grid, tuple(program.values(fresh_rng())))
    stages = stages_of_target(_module(name), CompileOptions(target=target))
    difference = check_stages(stages, inputs, roundings=roundings_of(_module(name), 5))
    assert difference is None, str(difference)


# A function for each target: of each, as many cases run as take half a second.
@pytest.mark.parametrize("name", PROGRAMS)
def test_cpu_does_what_the_reference_does(name: str) -> None:
    _agree(name, "cpu")


@pytest.mark.parametrize("name", PROGRAMS)
def test_cuda_does_what_the_reference_does(name: str) -> None:
    _agree(name, "sm_90a")


@pytest.mark.parametrize("name", PROGRAMS)
def test_xe_does_what_the_reference_does(name: str) -> None:
    _agree(name, "xe-pvc")
