"""Work that runs beside threads (copies, products), as parties of the books of checking mode.

An agent knows what the thread knew that started it, and no more: nothing that the thread, or another, does later is
ordered with it until somebody waits for it. What an agent will have done is published when it starts, under a token
that only those acquire who have waited. Work that is done in the order in which it was started is one agent's: the
copies that one mbarrier counts, the stores of one thread, the products of one warpgroup, a thread's own copies.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Operation

from tilewright.dialects.mach import InstrOp
from tilewright.reference.values import Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Executor

POOL = 128
"""Agents of a workgroup besides those of each thread; with more, some are one."""


def agents_of(function: Operation, threads: int) -> int:
    """Agents of a workgroup: none where nothing runs beside its threads."""
    names = {op.instruction for op in function.walk() if isinstance(op, InstrOp)}
    own = threads if any(".cp.async." in name for name in names) else 0
    beside = any(name.startswith(("nvptx.tma", "nvptx.bulk", "nvptx.wgmma")) for name in names)
    return own + POOL * beside


class Agents:
    """The agents of one batch."""

    def __init__(self, machine: Executor):
        self.machine = machine
        self._names: dict[int, str] = {}
        self._queues: dict[int, dict[Any, int]] = defaultdict(dict[Any, int])
        """By workgroup: the agents that it has, by what they do."""

    def start(self, instance: int, queue: Any, name: str) -> int:
        """The party of work that a thread starts now, and that is done in the order of its queue."""
        batch = self.machine.batch
        workgroup = int(batch.workgroup[instance])
        known = self._queues[workgroup]
        number = known.setdefault(queue, len(known))
        party = (workgroup + 1) * batch.parties_per_workgroup - 1 - number % POOL
        self._names[party] = name
        if self.machine.checking:
            self.machine.shadow.clocks.begin(party, int(batch.parties[instance]))
        return party

    def name(self, party: int) -> str:
        """What a party is."""
        return self._names.get(party, "a copy")

    def publish(self, party: int, token: Any) -> None:
        """All that it accesses has been noted: who waits for it knows of it."""
        if self.machine.checking:
            self.machine.shadow.clocks.publish(np.array([party]), token)

    def own(self, instances: Index) -> Index:
        """The parties of copies that only the thread waits for who asked for them."""
        batch = self.machine.batch
        return batch.parties[instances] + batch.programs
