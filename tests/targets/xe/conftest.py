"""What the tests of the xe target share: building lane text, running it twice, and what is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.texts import parse_module
from tilewright import reference
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.xe import offline, opencl

Build = Callable[..., Any]
Both = Callable[..., None]


def build(text: str, target: str = "xe-pvc", disable: Iterable[str] = ()) -> Any:
    """The executable of a module's text."""
    module = parse_module(text, "kernel.mlir")
    return get_target(target).build(
        module, CompileOptions(target=target, disable=frozenset(disable))
    )


@pytest.fixture
def ocloc() -> None:
    """Skips without the offline compiler."""
    if missing := offline.missing():
        pytest.skip(f"{', '.join(missing)} not installed: {offline.HINT}")


@pytest.fixture(scope="session")
def device() -> dict[str, Any]:
    """The OpenCL device; skips without one."""
    found = opencl.device()
    if found is None:
        pytest.skip(f"no OpenCL device: {opencl.HINT}")
    return found


def agree(
    text: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    outputs: Sequence[int],
    *,
    target: str = "xe-pvc",
    grid: tuple[int, int, int] = (1, 1, 1),
    exact: bool = True,
) -> list[np.ndarray[Any, Any]]:
    """Run on the OpenCL device and on the reference executor; the outputs, which must agree."""
    here = [a.copy() for a in arrays]
    there = [a.copy() for a in arrays]
    reference.run(parse_module(text, "kernel.mlir"), grid, there)
    build(text, target).launch(grid, [describe(a, "array") for a in here])
    for i in outputs:
        if exact:
            np.testing.assert_array_equal(here[i].view(np.uint8), there[i].view(np.uint8))
        else:
            wide = [x[i].astype(np.float64) for x in (here, there)]
            assert np.linalg.norm(wide[0] - wide[1]) <= 1e-5 * np.linalg.norm(wide[1])
    return [here[i] for i in outputs]
