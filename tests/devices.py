"""Which targets the parametrised tests run on, and how tests written for numpy arrays run on a GPU.

`pytest --target cuda tests/ops tests/acceptance tests/fuzz` runs every test that has a target on the GPU.
Its arrays stay numpy's: around each launch on `cuda` the bytes that they cover are copied to the device and
back, overlaps, strides and all. Bytes between the elements go along, so that a stray store is seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tilewright.arguments import ArrayArg
from tilewright.runtime.arrays import describe
from tilewright.runtime.launch import Launcher
from tilewright.targets.cuda import driver
from tilewright.targets.cuda.mirror import mirrored

TARGETS = ["reference", "cpu"]
"""Replaced as a whole by `pytest --target NAME`, before tests are collected."""


def parametrize(metafunc: Any) -> None:
    """For `pytest_generate_tests`: a test with an argument `target` runs on each of `TARGETS`.

    Not as a fixture with parameters: those are read before the command line is.
    """
    given = {m.args[0] for m in metafunc.definition.iter_markers("parametrize")}
    if "target" in metafunc.fixturenames and "target" not in given:
        metafunc.parametrize("target", TARGETS)


LOST = range(700, 721)
"""CUresults after which nothing works any more in this process: a fault in a kernel."""


def _stop(error: driver.DriverError) -> None:
    """End the process: every later test would fail for this one's reason. xdist starts another."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.write(2, f"\nLOST {test}: {error}\n".encode())
        os._exit(3)
    pytest.exit(f"{test}: {error}", returncode=1)


def on_gpu(target: str) -> bool:
    """Does a target of this name need arrays on the GPU?"""
    return target.startswith(("cuda", "sm_"))


@contextmanager
def copied(arrays: list[ArrayArg]) -> Generator[list[ArrayArg]]:
    """`mirrored`; a fault that the process cannot survive ends it."""
    try:
        with mirrored(arrays) as moved:
            yield moved
    except driver.DriverError as error:
        if error.code in LOST:
            _stop(error)
        raise


@contextmanager
def arguments(target: str, args: list[Any]) -> Generator[list[Any]]:
    """Run-time arguments (ArrayArg and numbers) where the target reads them."""
    if not on_gpu(target):
        yield args
        return
    at = [i for i, a in enumerate(args) if isinstance(a, ArrayArg)]
    with copied([args[i] for i in at]) as moved:
        there = list(args)
        for i, arg in zip(at, moved, strict=True):
            there[i] = arg
        yield there


def _on_host(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return hasattr(value, "data_ptr") and value.device.type == "cpu"


Launch = Callable[[Launcher, Any, tuple[Any, ...], Mapping[str, Any]], None]


def through_device(launch: Launch) -> Launch:
    """`Launcher.launch` for numpy arrays on target cuda."""

    def wrapped(
        self: Launcher, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        values = [*args, *kwargs.values()]
        arrays = {id(v): describe(v) for v in values if _on_host(v)}
        if not on_gpu(str(self.overrides.get("target", ""))) or not arrays:
            return launch(self, grid, args, kwargs)
        with copied(list(arrays.values())) as moved:
            there = dict(zip(arrays, moved, strict=True))
            launch(
                self,
                grid,
                tuple(there.get(id(v), v) for v in args),
                {k: there.get(id(v), v) for k, v in kwargs.items()},
            )

    return wrapped
