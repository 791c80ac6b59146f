"""Masks on loads and stores of tiles, as lanes on an OpenCL device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceptance.parts import DTYPES, check_masked

pytestmark = pytest.mark.usefixtures("device")
HELD = [d for d in DTYPES if d is not np.uint8]


def test_masks(rng: np.random.Generator) -> None:
    for dtype in rng.choice(len(HELD), 2, replace=False):
        check_masked("xe-pvc", rng, HELD[dtype], transposed=False)
