"""The time that the passes of one compilation may take together, which their loops ask about.

    with Budget(20) as budget:
        with budget.on("xegpu-blocking"):
            ...  poll()                        raises OutOfTime once 20 s are used up
    budget.spent                               {"xegpu-blocking": 1.3, ..}

Processor time of the thread, within the parts: neither other threads nor other processes, nor those who are shown the
program between two passes, make it too large.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from math import inf
from time import thread_time
from types import TracebackType

EVERY = 32
"""Questions of which one asks the clock: that is a call of the system, as dear as a small op of a pass."""


class OutOfTime(Exception):
    """The budget is used up; whoever has set it says so at a place of the program."""


class TimeBudget:
    """`seconds` for all parts together, for this thread while the context is entered."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.spent: dict[str, float] = {}
        """Seconds of every part of the work, all its runs together."""
        self.running = ""
        """The part that is being done."""
        self._until = inf
        self._asked = 0
        self._outer: Token[TimeBudget | None] | None = None

    def __enter__(self) -> TimeBudget:
        self._outer = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._outer is not None
        _current.reset(self._outer)

    @contextmanager
    def on(self, part: str) -> Generator[None]:
        """What is done inside is a part of the work."""
        start, self.running = thread_time(), part
        self._until = start + self.seconds - sum(self.spent.values())
        try:
            yield
            self.check()
        finally:
            self._until = inf
            self.spent[part] = self.spent.get(part, 0.0) + thread_time() - start

    def check(self) -> None:
        if thread_time() > self._until:
            raise OutOfTime

    def poll(self) -> None:
        """Checks now and then."""
        self._asked += 1
        if self._asked % EVERY == 0:
            self.check()


_current: ContextVar[TimeBudget | None] = ContextVar("budget", default=None)


def poll() -> None:
    """Raises OutOfTime where the budget of this thread is used up; there need not be one."""
    budget = _current.get()
    if budget is not None:
        budget.poll()
