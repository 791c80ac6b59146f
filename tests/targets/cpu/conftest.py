"""Fresh random numbers for every run, with their seed printed when a test fails."""

from __future__ import annotations

import os

import numpy as np
import pytest


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = int(os.environ.get("TILEWRIGHT_TEST_SEED", np.random.SeedSequence().entropy % 2**32))
    print(f"seed {seed} (TILEWRIGHT_TEST_SEED={seed} repeats {request.node.name})")
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def no_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested is the compiler, not what an older one left on disk."""
    from tilewright import knobs

    context = knobs.override(cache=False)
    context.__enter__()
    yield
    context.__exit__(None, None, None)
