"""What the acceptance tests share: seeds that are printed, the targets that exist, error measure."""

from __future__ import annotations

import pytest

from tests.devices import TARGETS


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param
