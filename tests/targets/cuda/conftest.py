"""The cuda target's passes without a GPU: threads run in the reference executor (`threads.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.targets.cuda.threads import ThreadsTarget
from tilewright import knobs
from tilewright.targets import base
from tilewright.targets.cuda import driver


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadsTarget]:
    """`target="cuda"` compiles for sm_80 and runs in numpy on arrays of the host."""
    target = ThreadsTarget("sm_80")
    monkeypatch.setitem(base._loaded, "cuda", target)  # pyright: ignore
    # A number of threads means nothing here and is in every key: kernels that a test on a GPU has
    # compiled are not these, nor the other way round.
    with knobs.override(cache=False, num_threads=2):
        yield target


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are costed by the table's rates, whatever device is at hand."""
    monkeypatch.setattr(driver, "named", lambda machine: f"{machine}: NVIDIA H200")
