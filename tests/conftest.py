"""What all tests share."""

from __future__ import annotations

import ctypes
import os
import random
import zlib

import numpy as np
import pytest

from tilewright.targets.cpu import workspace

SEED = int(os.environ.get("TILEWRIGHT_TEST_SEED", random.SystemRandom().randrange(1 << 31)))


def pytest_report_header() -> str:
    return f"TILEWRIGHT_TEST_SEED={SEED}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Fresh random inputs, a stream of its own for every test; TILEWRIGHT_TEST_SEED repeats a run."""
    print(f"TILEWRIGHT_TEST_SEED={SEED}")
    return np.random.default_rng([SEED, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture(autouse=True)
def poisoned_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch memory of cpu launches holds NaN (all bits set): reading what was not written shows."""
    plain = workspace.acquire

    def acquire(size: int) -> workspace.Block:
        block = plain(size)
        ctypes.memset(block.address, 0xFF, size)
        return block

    monkeypatch.setattr(workspace, "acquire", acquire)
