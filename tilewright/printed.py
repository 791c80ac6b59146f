"""What kernels print, up to a number of lines per launch.

Every target prints in the form that :func:`spelled` gives: scalars as C's ``%lld`` and ``%g``, tiles in brackets, the
larger ones by their corners.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from itertools import product

from tilewright import knobs

WHOLE = 64
"""Elements of the largest tile that is printed whole."""
EDGE = 3
"""Elements shown at each end of a larger tile's rows and columns."""

PUNCTUATION = {"open": "( ", "close": " )", "comma": ", ", "newline": "\n"}
"""What vector.print writes around and between numbers, by its own word; a program that prints by the runner's library
calls `printOpen` and its like."""

Positions = list[tuple[int, ...]]


def spelled(shape: Sequence[int], hole: str) -> tuple[str, Positions]:
    """How a value of ``shape`` is printed: text with a ``hole`` per element shown, and where these stand.

    ``[[{} {}] [{} {}]]``; of more than 64 elements ``16x32 [[{} {} {} ... {} {} {}] ...]``.
    """
    count = 1
    for n in shape:
        count *= n
    ends = [
        list(range(n)) if count <= WHOLE or n <= 2 * EDGE else [*range(EDGE), *range(n - EDGE, n)]
        for n in shape
    ]
    text = hole
    for n, shown in zip(reversed(shape), reversed(ends), strict=True):
        parts = [text] * len(shown)
        if len(shown) < n:
            parts.insert(EDGE, "...")
        text = f"[{' '.join(parts)}]"
    size = "x".join(map(str, shape))
    return text if count <= WHOLE else f"{size} {text}", list(product(*ends))


def number(value: float | bool) -> str:
    """A scalar as all targets print it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


class Lines:
    """The lines of one launch; several threads may add to them."""

    def __init__(self, limit: int | None = None):
        self.limit = knobs.current().print_lines if limit is None else limit
        self.count = 0
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Prints a line while there are not too many."""
        with self._lock:
            self.count += 1
            if self.count <= self.limit:
                sys.stdout.write(line + "\n")

    def finish(self) -> None:
        """Says what was left out."""
        if self.count > self.limit:
            name = knobs.variable("print_lines")
            sys.stdout.write(
                f"... and {self.count - self.limit} lines more ({name} is {self.limit})\n"
            )


OPEN: dict[int, Lines] = {}
"""Launches that print, by a number that their code knows."""
