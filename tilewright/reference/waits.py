"""Instances that wait for a condition: woken when nobody else can go on, reported when it never holds.

Everybody else goes as far as synchronisation lets them before who waits goes on, which finds what a barrier is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from tilewright.reference.barriers import MOST_LISTED
from tilewright.reference.program import Segment
from tilewright.reference.report import finding_at
from tilewright.reference.values import Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Executor


@dataclass(eq=False)
class Wait:
    """Instances that stand at an op until `ready`."""

    index: Index
    op: Operation
    ready: Callable[[], bool]
    then: Segment
    why: Callable[[], str]
    """What they wait for, with its state."""
    learns: Callable[[], Iterable[Hashable]] = tuple
    """The tokens (`clocks`) of what they know when they go on."""


class Waits:
    """All that wait, of one run of a program."""

    def __init__(self, machine: Executor):
        self.machine = machine
        self.waiting: list[Wait] = []

    def add(self, wait: Wait) -> None:
        self.waiting.append(wait)

    def wake(self) -> bool:
        """Lets those go on whose condition holds; whether there are any."""
        found = [w for w in self.waiting if w.ready()]
        for wait in found:
            self.waiting.remove(wait)
            for token in wait.learns() if self.machine.checking else ():
                parties = self.machine.batch.parties[wait.index]
                self.machine.shadow.clocks.acquire(parties, token)
            self.machine.resume(wait.then, wait.index)
        return bool(found)

    def finish(self) -> None:
        """Reports who still waits, and for what."""
        if not self.waiting:
            return
        lines = [f"deadlock: {self._who(self.waiting[0].index)} waits here and none can continue"]
        lines += [f"  {self._who(w.index)}: {w.op.name} {w.why()}" for w in self.waiting]
        if len(lines) > 1 + MOST_LISTED:
            lines[1 + MOST_LISTED :] = [f"  and {len(lines) - 1 - MOST_LISTED} more"]
        found = finding_at(self.waiting[0].op, "error", "deadlock", "\n".join(lines))
        self.machine.found(found)

    def _who(self, index: Index) -> str:
        name = self.machine.name_of_instance(int(index[0]))
        last = int(self.machine.batch.subgroup[index[-1]])
        return name if index.size == 1 else f"{name} to {last}"
