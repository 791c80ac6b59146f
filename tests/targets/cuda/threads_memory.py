"""Memory of a simulated device: bytes by address, and a shadow of who wrote and read each of them, and when."""

from __future__ import annotations

from typing import Any

import numpy as np

SHARED_BASE = 1 << 20
GLOBAL_BASE = 1 << 22


class Race(AssertionError):
    """Two threads touch a byte between two barriers, and one of them writes it."""


def unsigned(function: Any) -> Any:
    """An op on integers read as unsigned."""

    def run(a: Any, b: Any) -> Any:
        kind = np.dtype(f"u{a.dtype.itemsize}")
        return function(a.view(kind), b.view(kind)).view(a.dtype)

    return run


class Memory:
    """Bytes by address; `poison` until written."""

    def __init__(self, size: int):
        self.bytes = np.full(size, 0xCD, np.uint8)
        self.valid = np.zeros(size, bool)
        self.wrote = np.full(size, -1, np.int64)
        self.writer = np.full(size, -1, np.int64)
        self.read = np.full(size, -1, np.int64)
        self.reader = np.full(size, -1, np.int64)
        self.epoch = 0
        self.top = GLOBAL_BASE

    def place(self, array: np.ndarray) -> int:
        at = self.top
        data = np.frombuffer(array.tobytes(), np.uint8)
        self.bytes[at : at + len(data)] = data
        self.valid[at : at + len(data)] = True
        self.top += -(-len(data) // 256) * 256 + 4096
        return at
