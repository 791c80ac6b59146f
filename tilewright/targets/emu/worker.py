"""Launching: each thread has a worker with its own shared memory and stacks, and draws workgroups from one counter."""

from __future__ import annotations

import ctypes as C
import mmap
import threading
from collections.abc import Sequence
from typing import Any

from tilewright import forks
from tilewright.arguments import Grid
from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import frozen
from tilewright.targets.emu import context as c

GUARD = 1 << 16
"""Bytes at the end of each stack that nobody may touch: an overflow is a crash, not another's data."""
_PROT_NONE = 0
_MAP = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)


@frozen
class Failure:
    """Why a launch stopped."""

    code: int
    site: int
    subgroup: int
    workgroup: tuple[int, int, int]
    fibers: list[tuple[int, int, int]]
    """Status, site and barrier of every subgroup."""
    named: dict[int, tuple[int, int, int]]
    """Of named barriers in use: participants, arrived, generation."""


class EmuWorker:
    """One thread's memory for running workgroups of `subgroups` subgroups."""

    def __init__(self, subgroups: int, size: int, shared: int, private: int, named: bool):
        self.subgroups = subgroups
        self.words = (C.c_int64 * (size // 8))()
        self._shared = _buffer(shared)
        self._fibers = (C.c_int64 * (subgroups * c.FIBER_BYTES // 8))()
        self._named = (C.c_int64 * (c.BARRIERS * c.NAMED_BYTES // 8 if named else 1))()
        self._passed = (C.c_int64 * (c.BARRIERS * subgroups if named else 1))()
        stack = (1 << 20) + (8 << 20 if subgroups <= 64 else 0) + 2 * private
        stack = -(-stack // GUARD) * GUARD
        try:
            self._stacks = mmap.mmap(-1, stack * subgroups, flags=_MAP)
        except OSError:
            raise UnsupportedError(
                f"{subgroups} subgroups of a workgroup need stacks of {stack * subgroups >> 20} MiB, which "
                "this machine or a limit of the process does not give"
            ) from None
        base = C.addressof(C.c_char.from_buffer(self._stacks))
        libc = C.CDLL(None)
        for number in range(subgroups):
            libc.mprotect(C.c_void_p(base + number * stack), C.c_size_t(GUARD), _PROT_NONE)
        words = self.words
        words[c.SUBGROUPS // 8] = subgroups
        words[c.SHARED // 8] = _aligned(self._shared)
        words[c.SHARED_SIZE // 8] = shared
        words[c.FIBERS // 8] = C.addressof(self._fibers)
        words[c.NAMED // 8] = C.addressof(self._named) if named else 0
        words[c.PASSED // 8] = C.addressof(self._passed)
        words[c.STACKS // 8] = base
        words[c.STACK_SIZE // 8] = stack

    @property
    def address(self) -> int:
        return C.addressof(self.words)

    def failure(self, code: int) -> Failure:
        """What the memory says after `tw_emu_run` gave `code`."""
        words, each = self.words, c.FIBER_BYTES // 8
        fibers = [self._fibers[i * each + 1 : i * each + 4] for i in range(self.subgroups)]
        count = c.BARRIERS if words[c.NAMED // 8] else 0
        named = {i: self._named[3 * i : 3 * i + 3] for i in range(count)}
        x, y, z = (words[c.WORKGROUP // 8 + d] for d in range(3))
        return Failure(
            code,
            words[c.FAILURE_SITE // 8],
            words[c.CURRENT // 8],
            (x, y, z),
            [(status, site, barrier) for status, site, barrier in fibers],
            {i: (members, here, turn) for i, (members, here, turn) in named.items() if members},
        )


def _buffer(size: int) -> Any:
    return (C.c_char * (size + 64))()


def _aligned(buffer: Any) -> int:
    address = C.addressof(buffer)
    return -(-address // 64) * 64


class EmuLauncher:
    """Runs a kernel whose code is at `kernel`; keeps workers for the next launch."""

    def __init__(self, run: int, kernel: int, make: Any):
        self._run = C.CFUNCTYPE(C.c_int64, C.c_void_p)(run)
        self._kernel = kernel
        self._make = make
        self._free: list[EmuWorker] = []
        self._lock = forks.lock()

    def _take(self) -> EmuWorker:
        with self._lock:
            return self._free.pop() if self._free else self._make()

    def launch(
        self, grid: Grid, block: Grid, arguments: Sequence[int], threads: int
    ) -> Failure | None:
        """All workgroups; the failure of the first that fails, in the order of the grid: all before it have begun."""
        total = grid[0] * grid[1] * grid[2]
        counter = C.c_int64(0)
        failures: list[Failure] = []

        def work() -> None:
            worker = self._take()
            words = worker.words
            words[c.GRID // 8 : c.GRID // 8 + 3] = grid
            words[c.BLOCK // 8 : c.BLOCK // 8 + 3] = block
            at = c.ARGUMENTS // 8
            words[at : at + len(arguments)] = arguments
            words[c.KERNEL // 8] = self._kernel
            words[c.COUNTER // 8] = C.addressof(counter)
            words[c.WORKGROUPS // 8] = total
            words[c.FAILURE // 8] = 0
            code = self._run(worker.address)
            if code:
                failures.append(worker.failure(code))
                counter.value = total  # the others stop too
            with self._lock:
                self._free.append(worker)

        count = max(1, min(threads, total))
        if count == 1:
            work()
        else:
            others = [threading.Thread(target=work) for _ in range(count - 1)]
            for thread in others:
                thread.start()
            work()
            for thread in others:
                thread.join()
        return min(failures, key=lambda failure: failure.workgroup[::-1], default=None)
