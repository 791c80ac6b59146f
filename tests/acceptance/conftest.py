"""What the acceptance tests share: seeds that are printed, the targets that exist, error measure."""

from __future__ import annotations

import pytest

from tests.devices import parametrize


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)
