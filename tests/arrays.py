"""Arrays of other libraries, as tests pass them, poisoned outputs, and how far results are from what is right."""

from __future__ import annotations

from typing import Any

import numpy as np


def error(found: Any, wanted: Any) -> float:
    """The relative Frobenius norm of the difference, in float64."""
    wanted = np.asarray(wanted, np.float64)
    difference = np.linalg.norm(np.asarray(found).astype(np.float64) - wanted)
    return float(difference / max(float(np.linalg.norm(wanted)), 1e-30))


def poison(*shape: int, dtype: Any = np.float32) -> Any:
    """An output as no kernel leaves it: all bits are set, which is NaN of every float."""
    found = np.empty(shape, dtype)
    found.view(np.uint8)[...] = 0xFF
    return found


class DLPackOnly:
    """An object that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
