"""Ranges as the front end sees them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.lang.values import Value


@dataclass(frozen=True)
class LoopRange:
    """``range(...)`` in a kernel: a loop at run time."""

    start: int | Value
    stop: int | Value
    step: int | Value
