"""What all tests share."""

from __future__ import annotations

import ctypes

import pytest

from tilewright.targets.cpu import workspace


@pytest.fixture(autouse=True)
def poisoned_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch memory of cpu launches holds NaN (all bits set): reading what was not written shows."""
    plain = workspace.acquire

    def acquire(size: int) -> workspace.Block:
        block = plain(size)
        ctypes.memset(block.address, 0xFF, size)
        return block

    monkeypatch.setattr(workspace, "acquire", acquire)
