"""What warpgroups of a simulated cluster share: barriers, the copy engine, and the turn to run (`hopper.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tests.targets.cuda.threads_memory import Memory

Array = Any


class Worker(Protocol):
    """A warpgroup."""

    def run(self) -> None: ...

    def end(self) -> None:
        """What it has begun and not waited for."""
        ...


@dataclass
class Barrier:
    """An mbarrier: phases completed, arrivals that a phase takes, and what the present one still lacks."""

    count: int
    pending: int
    bytes: int = 0
    phase: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count


@dataclass
class Meeting:
    """The barrier of a cluster, which counts threads that have not ended."""

    threads: int
    arrived: int = 0
    phase: int = 0

    def arrive(self, threads: int) -> None:
        self.arrived += threads
        self._settle()

    def leave(self, threads: int) -> None:
        self.threads -= threads
        self._settle()

    def _settle(self) -> None:
        if self.arrived == self.threads:
            self.phase += 1
            self.arrived = 0


class Deadlock(AssertionError):
    """Nobody can go on."""


class Crew:
    """The warpgroups of one cluster, of which one runs at a time, and what they share."""

    def __init__(self, memory: Memory, maps: list[Array], threads: int, schedule: str, seed: int):
        self.memory, self.maps, self.schedule = memory, maps, schedule
        self.random = np.random.default_rng(seed)
        self.barriers: dict[int, Barrier] = {}
        self.named: dict[tuple[int, int], int] = {}
        """Threads that have arrived at a named barrier of the workgroup of a rank, since it began."""
        self.cluster = Meeting(threads)
        self.copies: list[Callable[[], None]] = []
        self.groups: list[Worker] = []
        self.wishes: list[tuple[Callable[[], bool], str] | None] = []
        self.turn: list[threading.Semaphore] = []
        self.failure: BaseException | None = None

    def join(self, worker: Worker) -> int:
        """One more; its number."""
        self.groups.append(worker)
        return len(self.groups) - 1

    def run(self) -> None:
        self.wishes = [(lambda: True, "begins") for _ in self.groups]
        self.turn = [threading.Semaphore(0) for _ in self.groups]
        threads = [threading.Thread(target=self._work, args=(i,)) for i in range(len(self.groups))]
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        while self.copies:
            self.copies.pop(0)()

    def _work(self, me: int) -> None:
        self.turn[me].acquire()
        try:
            if self.failure is None:
                self.groups[me].run()
                self.groups[me].end()
        except BaseException as error:
            self.failure = self.failure or error
        self.wishes[me] = None
        self._next()

    def _next(self) -> None:
        """Wake one that can go on; copies are made when nobody can, or by chance."""
        if self.failure is not None:
            for turn in self.turn:
                turn.release()
            return
        if self.schedule == "random" and self.copies and self.random.random() < 0.3:
            self.copies.pop(0)()
        while True:
            able = [i for i, wish in enumerate(self.wishes) if wish is not None and wish[0]()]
            if able:
                self.turn[int(self.random.choice(able))].release()
                return
            left = [(i, wish[1]) for i, wish in enumerate(self.wishes) if wish is not None]
            if not left:
                return
            if not self.copies:
                self.failure = Deadlock("; ".join(f"warpgroup {i} {why}" for i, why in left))
                self._next()
                return
            self.copies.pop(0)()

    def wait(self, me: int, ready: Callable[[], bool], why: str) -> None:
        self.wishes[me] = (ready, why)
        self._next()
        self.turn[me].acquire()
        if self.failure is not None:
            raise self.failure

    def begin(self, copy: Callable[[], None]) -> None:
        """Something for the copy engine, which works in order."""
        if self.schedule == "early":
            copy()
        else:
            self.copies.append(copy)
