"""The reference executor: what every op means, in numpy, for whole batches of workgroups.

`run` executes a kernel on numpy arrays; `check=True` also finds what is undefined (races, reads of
uninitialised memory, accesses outside arrays, divergent barriers). A dialect gives its ops a
meaning with `@meaning` and `@control`; `docs/reference-executor.md` shows how.
"""

from tilewright.reference.launch import run
from tilewright.reference.registry import MEANING_MODULES, control, has_meaning, meaning
from tilewright.reference.report import Finding, Report

__all__ = ["MEANING_MODULES", "Finding", "Report", "control", "has_meaning", "meaning", "run"]
