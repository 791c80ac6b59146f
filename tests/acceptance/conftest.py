"""What the acceptance tests share: seeds that are printed, the targets that exist, error measure."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

SEED = int(os.environ.get("TILEWRIGHT_TEST_SEED", random.SystemRandom().randrange(1 << 31)))


def pytest_report_header() -> str:
    return f"TILEWRIGHT_TEST_SEED={SEED}"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Fresh random inputs, a different stream per test; repeat a run with TILEWRIGHT_TEST_SEED."""
    return np.random.default_rng([SEED, abs(hash(request.node.nodeid)) % (1 << 31)])


@pytest.fixture(params=["reference", "cpu"])
def target(request: pytest.FixtureRequest) -> str:
    return request.param
