"""Processes that compile ahead: forked children, which leave what they make in the kernel cache.

They live as long as a search: what a child imports for its first kernel it has for all others.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tilewright import cache

FEWEST = 3
"""Pieces of work for which children are worth their start."""
POLL_SECONDS = 0.2


class Compilers:
    """As many children as there are cores, started when they are first asked; `stop` ends them.

    `work(i)` does the piece `i` in a child, which has all that this process had at its start. What fails there is of no
    concern: it fails again where the result is needed.
    """

    def __init__(self, work: Callable[[int], object]):
        self._work = work
        self._idle: list[Connection[Any, Any]] = []
        self._busy: list[Connection[Any, Any]] = []
        self._children: list[BaseProcess] = []

    def do(self, pieces: Sequence[int], limit: float, told: Callable[[], None]) -> None:
        """Returns when all pieces are done, or at `limit` (of `time.perf_counter`); nothing is done where this process
        may not have children, or they would have no place for results."""
        if time.perf_counter() > limit or not self._started(len(pieces)):
            return
        left = list(pieces)
        mine: list[Connection[Any, Any]] = []
        while (left and (self._idle or self._busy)) or any(c in self._busy for c in mine):
            if (seconds := limit - time.perf_counter()) <= 0:
                return
            while left and self._idle:
                connection = self._idle.pop()
                mine.append(connection)
                self._busy.append(connection)
                with suppress(OSError):  # one that is gone is found out below
                    connection.send(left.pop(0))
            for ready in wait(self._busy, min(seconds, POLL_SECONDS)):
                assert isinstance(ready, Connection)
                self._busy.remove(ready)
                with suppress(EOFError, OSError):
                    ready.recv()
                    self._idle.append(ready)
                told()

    def stop(self) -> None:
        for child in self._children:
            child.terminate()
            child.join()
        for connection in (*self._idle, *self._busy):
            connection.close()

    def _started(self, count: int) -> bool:
        """Are there children? They are made at the first call for enough pieces."""
        if self._children:
            return True
        cores = len(os.sched_getaffinity(0))
        alone = threading.current_thread() is threading.main_thread()  # others may hold locks
        able = hasattr(os, "fork") and alone and not multiprocessing.current_process().daemon
        if cores < 2 or count < FEWEST or cache.current() is None or not able:
            return False
        # A kernel has no other form that a child could take.
        context = multiprocessing.get_context("fork")
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # threads of this process: they wait
            for _ in range(cores):
                here, there = context.Pipe()
                self._idle.append(here)
                child = context.Process(target=self._serve, args=(there,), daemon=True)
                self._children.append(child)
                child.start()
                there.close()
        return True

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """A child's life: until the other end, which no other process may hold, is closed."""
        for other in self._idle:
            other.close()
        with suppress(EOFError, OSError):
            while True:
                piece = connection.recv()
                with suppress(Exception):
                    self._work(piece)
                connection.send(piece)
