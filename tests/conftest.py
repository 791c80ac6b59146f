"""What all tests share."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests import devices, durations
from tests.draws import SEED, fresh_rng
from tests.targets.cpu.amx_emulation import NEEDS_AVX512, WITH_AVX512, emulate_tiles
from tilewright.runtime.launch import Launcher
from tilewright.targets.cpu import workspace
from tilewright.targets.cpu.machine import host_level
from tilewright.targets.cuda import driver


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", help="run tests that have a target on this one: cuda, cpu, ...")
    parser.addoption(
        "--rest", action="store_true", help="run what the last run without this option did not pass"
    )

    parser.addoption("--quick", action="store_true", help="run what takes no time")
    parser.addoption(
        "--emulate-amx",
        action="store_true",
        help="target cpu compiles for AMX, whose tiles are emulated",
    )
    parser.addoption(
        "--durations-table", action="store_true", help="write tests/durations.json, with every case"
    )


def pytest_configure(config: pytest.Config) -> None:
    # IR is made of many small objects: searching them for cycles as often as usual takes a sixth of the time.
    gc.set_threshold(200_000, 20, 20)
    if (target := config.getoption("--target")) is not None:
        devices.TARGETS[:] = [target]
    if config.getoption("--durations-table"):
        os.environ["TILEWRIGHT_EVERY_CASE"] = "1"
        config.pluginmanager.register(durations.Recorder())


def pytest_report_header() -> str:
    return f"TILEWRIGHT_TEST_SEED={SEED}"


PASSED = "tilewright/passed"
"""Of the last run without `--rest`, in pytest's cache: the ids of the tests that passed."""

_passed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    cache = getattr(config, "cache", None)  # absent under `-p no:cacheprovider`
    if cache is not None and not (hasattr(config, "workerinput") or config.getoption("--rest")):
        cache.set(PASSED, _passed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out cases that are not drawn (`tests/durations.py`), and under `--rest` tests that passed, but for those
    that do more with optional packages."""
    named = any("::" in argument for argument in config.args)
    left = set() if named else durations.left_out(items, config.getoption("--quick"))
    if config.getoption("--rest"):
        cache = config.cache
        assert cache is not None
        passed = set(cache.get(PASSED, []))
        left |= {
            item
            for item in items
            if item.nodeid in passed and item.get_closest_marker("optional") is None
        }
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


@pytest.fixture(autouse=True)
def arrays_of_the_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--target cuda`, tests that have a target launch on the GPU, or say why they do not."""
    target: str = request.config.getoption("--target") or ""
    if not devices.on_gpu(target) or "target" not in request.fixturenames:
        return
    if not driver.available():
        pytest.skip("this machine has no NVIDIA GPU")
    monkeypatch.setattr(Launcher, "launch", devices.through_device(Launcher.launch))


@pytest.fixture(autouse=True)
def tiles_of_amx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--emulate-amx`: products go to tiles, or to vectors beside them, on any machine with AVX-512."""
    if request.config.getoption("--emulate-amx"):
        if host_level() not in WITH_AVX512:
            pytest.skip(NEEDS_AVX512)
        emulate_tiles(monkeypatch)


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a program's launches are refused for, where a test gives no `fail`: its error (it would end the process)."""
    told: list[BaseException] = []
    if host := sys.modules.get("tilewright.runtime.program.host"):
        monkeypatch.setattr(host, "_leave", told.append)
    yield
    for error in told:
        raise error


@pytest.fixture
def rng() -> np.random.Generator:
    """Fresh random inputs, a stream of its own for every test; TILEWRIGHT_TEST_SEED repeats a run."""
    return fresh_rng()


@pytest.fixture(autouse=True)
def poisoned_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch memory of cpu launches holds NaN (all bits set): reading what was not written shows."""
    plain = workspace.acquire

    def acquire(size: int) -> workspace.MemoryBlock:
        block = plain(size)
        ctypes.memset(block.address, 0xFF, size)
        return block

    monkeypatch.setattr(workspace, "acquire", acquire)
