"""What a forked process finds: locks that are free, whoever held them in its parent.

A fork copies the memory of all threads and only one of the threads. A lock that another thread held is held for ever
in the child, so every lock of this package that outlives a call comes from :func:`lock`.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def lock() -> threading.RLock:
    """A re-entrant lock that is free in every forked child."""
    made: Any = threading.RLock()
    _locks.add(made)
    return made


def _free_all() -> None:
    for each in list(_locks):
        each._at_fork_reinit()  # as the standard library does with its own


os.register_at_fork(after_in_child=_free_all)
