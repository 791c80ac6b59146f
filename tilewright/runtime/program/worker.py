"""Programs with addresses of their own run in a worker process: a wild one becomes a diagnostic.

The worker is a fork: it costs milliseconds and shares what is loaded.  It has limits on memory and time; a signal,
a limit or an error in it is told to the parent, which raises it as a `TilewrightError`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.diagnostics import TilewrightError

R = TypeVar("R")

CRASHES = {
    signal.SIGSEGV: "it accessed memory that is not its own: an address outside of every allocation",
    signal.SIGBUS: "it accessed memory that is not there",
    signal.SIGFPE: "it divided an integer by zero, or its quotient overflowed",
    signal.SIGILL: "it executed an instruction that this machine does not have",
    signal.SIGABRT: "it aborted",
}


@dataclass(frozen=True)
class Limits:
    """What a program may use: bytes of memory beyond those in use at its start, seconds of wall time."""

    memory: int = 16 << 30
    seconds: float = 600.0


class WorkerError(TilewrightError):
    """A program that crashed, ran into a limit, or failed with a diagnostic in its worker process."""

    def __init__(self, message: str, *, diagnostic: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = diagnostic
        """The whole text of a diagnostic made in the worker."""

    def __str__(self) -> str:
        return super().__str__() if self.diagnostic is None else self.diagnostic


def in_worker(work: Callable[[Callable[[BaseException], Any]], R], limits: Limits) -> R:
    """`work(fail)` in a worker process; its result (of JSON's types) here.

    `work` calls `fail` with an exception where it cannot raise one (in callbacks of native code).  What it prints
    goes where this process prints.  Raises WorkerError for crashes and limits, and the worker's own diagnostics.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(work, limits, writing)
    os.close(writing)
    try:
        answer = _read(reading, child, limits)
    finally:
        os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        why = CRASHES.get(number, "it was killed")
        raise WorkerError(f"the program crashed ({number.name}): {why}")
    if not answer:
        raise WorkerError("the program ended without a word: it may have called exit()")
    message = json.loads(answer)
    if "error" in message:
        raise WorkerError(message["error"], diagnostic=message["error"])
    return message["result"]


def _child(
    work: Callable[[Callable[[BaseException], Any]], Any], limits: Limits, writing: int
) -> None:
    def answer(message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        while data:
            data = data[os.write(writing, data) :]
        sys.stdout.flush()
        os._exit(0)

    def fail(error: BaseException) -> None:
        if isinstance(error, MemoryError):
            error = WorkerError(
                f"the program needs more than its {limits.memory >> 20} MiB of memory"
            )
        answer({"error": str(error) if isinstance(error, TilewrightError) else _internal(error)})

    faulthandler.disable()  # the parent says what happened
    try:
        with open("/proc/self/statm") as pages:
            used = int(pages.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory, used + limits.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer({"result": work(fail)})
    except BaseException as error:
        fail(error)
    os._exit(1)


def _internal(error: BaseException) -> str:
    """What a user is told of an exception that is no diagnostic; whoever mends it wants to see where it came from."""
    if os.environ.get("TILEWRIGHT_TRACEBACK"):
        traceback.print_exception(error)
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"internal error: {words}\nhint: TILEWRIGHT_TRACEBACK=1 shows where"


def _read(reading: int, child: int, limits: Limits) -> bytes:
    """All that the worker writes, until it closes the pipe; kills it at its time limit."""
    end = time.monotonic() + limits.seconds
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise WorkerError(f"the program ran longer than {limits.seconds:g} s and was stopped")
        part = os.read(reading, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
