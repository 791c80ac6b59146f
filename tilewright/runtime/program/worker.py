"""Programs with addresses of their own run in a worker process: a wild one becomes a diagnostic.

The worker is a fork: it costs milliseconds and shares what is loaded.  It has limits on memory, time and output, and
ends with its parent; a signal, a limit or an error in it is reported to the parent, which raises it as a
`TilewrightError`.  It contains accidents.  It is no fence against a program that means harm: `SECURITY.md`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

from tilewright import knobs
from tilewright.diagnostics import TilewrightError
from tilewright.frozen import field, frozen

R = TypeVar("R")

CRASHES = {
    signal.SIGSEGV: "it accessed memory that is not its own: an address outside of every allocation",
    signal.SIGBUS: "it accessed memory that is not there",
    signal.SIGFPE: "it divided an integer by zero, or its quotient overflowed",
    signal.SIGILL: "it executed an instruction that this machine does not have",
    signal.SIGABRT: "it aborted",
}


def _share() -> int:
    """Three quarters of the memory that this machine, or this process's control group, has."""
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no such group, or one without a limit
        have = min(have, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return have * 3 // 4


@frozen
class Limits:
    """What a program may use: bytes of memory beyond those in use at its start, seconds of wall time, bytes written
    to standard output or to one file.
    """

    memory: int = field(default_factory=_share)
    seconds: float = field(default_factory=lambda: knobs.current().time_limit)
    output: int = 1 << 30


class WorkerError(TilewrightError):
    """A program that crashed, ran into a limit, or failed with a diagnostic in its worker process."""

    def __init__(
        self, message: str, *, diagnostic: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
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
        answer = _read(reading, limits)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
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
    for stream, text in zip((sys.stdout, sys.stderr), message["printed"], strict=True):
        if text:
            stream.write(text)
    if "error" in message:
        raise WorkerError(message["error"], diagnostic=message["error"])
    return message["result"]


def _child(
    work: Callable[[Callable[[BaseException], Any]], Any], limits: Limits, writing: int
) -> None:
    out, err = sys.stdout, sys.stderr

    def answer(message: dict[str, Any]) -> None:
        message["printed"] = [_collected(sys.stdout, out), _collected(sys.stderr, err)]
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

    def too_much() -> None:
        fail(
            WorkerError(f"the program printed more than {limits.output >> 20} MiB and was stopped")
        )

    faulthandler.disable()  # the parent says what happened
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # and hears of Ctrl-C
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        _limit(limits)
        sys.stdout, sys.stderr = (_Printed(s, limits.output, too_much) for s in (out, err))
        answer({"result": work(fail)})
    except BaseException as error:
        fail(error)
    os._exit(1)


_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl."""


def _limit(limits: Limits) -> None:
    """Memory counts as data that may be written: a driver reserves far more addresses than it uses."""
    with open("/proc/self/statm") as pages:
        used = int(pages.read().split()[5]) * resource.getpagesize()
    for what, most in (
        (resource.RLIMIT_DATA, used + limits.memory),
        (resource.RLIMIT_FSIZE, limits.output),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


class _Printed:
    """A standard stream of a worker, which counts. Text for a stream of the parent's that is no file is collected."""

    def __init__(self, stream: TextIO, most: int, too_much: Callable[[], Any]) -> None:
        try:
            stream.fileno()
        except (OSError, AttributeError):
            stream = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True)
        self.stream, self._left, self._too_much = stream, most, too_much

    def write(self, text: str) -> int:
        self._left -= len(text)
        if self._left < 0:
            self._left = 1 << 20  # for the words that say so
            self._too_much()
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _collected(printed: Any, given: TextIO) -> str:
    """What was printed to a stream in the parent's place."""
    if not isinstance(printed, _Printed) or printed.stream is given:
        return ""
    return printed.stream.buffer.getvalue().decode(errors="replace")  # pyright: ignore


def _internal(error: BaseException) -> str:
    """What a user sees of an exception that is no diagnostic; whoever fixes it needs its origin."""
    if os.environ.get("TILEWRIGHT_TRACEBACK"):
        traceback.print_exception(error)
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"internal error: {words}\nhint: TILEWRIGHT_TRACEBACK=1 shows where"


def _read(reading: int, limits: Limits) -> bytes:
    """All that the worker writes, until it closes the pipe; WorkerError at its time limit."""
    end = time.monotonic() + limits.seconds
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise WorkerError(
                f"the program ran longer than {limits.seconds:g} s and was stopped",
                hint=f"{knobs.variable('time_limit')} gives it more seconds",
            )
        part = os.read(reading, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
