"""Fresh random numbers for every run, with their seed printed when a test fails."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested is the compiler, not what an older one left on disk."""
    from tilewright import knobs

    context = knobs.override(cache=False)
    context.__enter__()
    yield
    context.__exit__(None, None, None)
