"""The reference executor: what every op means, in numpy, for whole batches of workgroups.

`run` executes a kernel on numpy arrays; `check=True` also finds what is undefined (races, reads of
uninitialised memory, accesses outside arrays, divergent barriers). A dialect gives its ops a
meaning with `@meaning` and `@control`; `docs/reference-executor.md` shows how.

The executor is imported when it is first asked for: compiled programs take their C library from here, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.reference.registry import MEANING_MODULES, control, has_meaning, meaning
from tilewright.reference.report import Finding, Report

if TYPE_CHECKING:
    from tilewright.reference.launch import run

__all__ = ["MEANING_MODULES", "Finding", "Report", "control", "has_meaning", "meaning", "run"]


def __getattr__(name: str) -> Any:
    if name != "run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tilewright.reference.launch import run

    return run
