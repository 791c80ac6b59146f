"""Barriers: instances that wait for others, and what to say when they wait forever."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Operation

from tilewright.diagnostics import runs
from tilewright.frozen import frozen, record
from tilewright.passes.kernel import level_of
from tilewright.passes.level import subgroups_at
from tilewright.reference.program import Segment, SegmentBuilder, Successors
from tilewright.reference.report import finding_at
from tilewright.reference.values import Index, ValueRecord, one_by_one

if TYPE_CHECKING:
    from tilewright.reference.machine import Executor, Group


MOST_LISTED = 8
"""Barriers whose state the message of a deadlock tells."""


@frozen
class NamedBarrierState(ValueRecord):
    """The row value of a named barrier: its number in the workgroup and how many take part."""

    number: Index
    participants: Index


@dataclass(eq=False)
class _Waiting:
    """Instances of one workgroup."""

    index: Index
    op: Operation
    then: Segment


@record
class _Named:
    """The state of one named barrier of one workgroup."""

    participants: int
    """Instances that take part: lanes of subgroups at lane level."""
    passed: Index
    """The generation that each instance of the batch waits for next."""
    lanes: int = 1
    """Instances of one subgroup."""
    generation: int = 0
    arrived: list[Index] = field(default_factory=list[Index])
    """Instances that arrived in this generation."""
    waiting: list[_Waiting] = field(default_factory=list[_Waiting])


class Barriers:
    """The workgroup barrier and the named barriers of every workgroup of a batch."""

    def __init__(self, machine: Executor):
        self.machine = machine
        self._waiting: dict[int, list[_Waiting]] = {}
        self._named: dict[tuple[int, int], _Named] = {}

    # gpu.barrier
    def arrive_all(self, group: Group, op: Operation, then: Segment) -> Successors:
        """A group stands at the workgroup's barrier; gives who may go on."""
        batch = self.machine.batch
        if batch.subgroups == 1:
            return [(then, group.index)]
        successors: list[tuple[Segment, Index]] = []
        for slot, index in one_by_one(group.index, batch.slots[group.index]):
            waiting = self._waiting.setdefault(slot, [])
            waiting.append(_Waiting(index, op, then))
            if _count(w.index for w in waiting) == batch.subgroups:
                del self._waiting[slot]
                successors += self._release(waiting)
        return successors

    def _release(self, waiting: list[_Waiting]) -> Successors:
        ops = {w.op for w in waiting}
        if len(ops) > 1 and self.machine.checking:
            first = waiting[0]
            other = next(w for w in waiting if w.op is not first.op)
            self.machine.found(
                finding_at(
                    other.op,
                    "error",
                    "divergent barrier",
                    f"divergent barrier: {self._name(other.index)} waits here while "
                    f"{self._name(first.index)} waits at another gpu.barrier",
                )
            )
        # The lanes of a subgroup are one party, which knows what it did itself.
        here = np.concatenate([w.index for w in waiting])
        self.machine.shadow.clocks.synchronise(np.unique(self.machine.batch.parties[here]))
        return _grouped(waiting)

    # Named barriers
    def arrive(self, group: Group, op: Operation, barrier: NamedBarrierState) -> Successors:
        """Counts the group's arrivals; gives those whom they release."""
        successors: list[tuple[Segment, Index]] = []
        for index, state in self._states(group, barrier):
            while index.size:
                room = state.participants - _count(state.arrived)
                mine, index = index[:room], index[room:]
                state.passed[mine] = state.generation
                state.arrived.append(mine)
                self.machine.shadow.clocks.publish(self._parties(mine), self._token(state))
                if mine.size == room:
                    state.arrived = []
                    state.generation += 1
                    successors += self._advance(state)
        return successors

    def wait(
        self, group: Group, op: Operation, barrier: NamedBarrierState, then: Segment
    ) -> Successors:
        """Parks the group until the generation that each waits for is complete."""
        successors: list[tuple[Segment, Index]] = []
        for index, state in self._states(group, barrier):
            state.waiting.append(_Waiting(index, op, then))
            successors += self._advance(state)
        return successors

    def _states(self, group: Group, barrier: NamedBarrierState):
        """The instances of the group at each barrier; participants are subgroups, whose lanes each arrive."""
        from tilewright.reference.lanes import width_of

        lanes = width_of(group.site.op)
        numbers = np.broadcast_to(barrier.number, group.index.shape)
        counts = np.broadcast_to(barrier.participants * lanes, group.index.shape)
        if self._whole:
            self._whole_workgroup(group.site.op, int(counts[0]))
            counts = np.ones_like(counts)
        rows = np.arange(group.index.size)
        for slot, of_slot in one_by_one(rows, self.machine.batch.slots[group.index]):
            for number, mine in one_by_one(of_slot, numbers[of_slot]):
                count, key = int(counts[mine[0]]), (slot, number)
                fresh = np.zeros(self.machine.batch.count, np.int64)
                state = self._named.setdefault(key, _Named(count, fresh, lanes))
                for other in np.unique(counts[mine]).tolist():
                    self._agrees(group.site.op, state, number, other)
                yield group.index[mine], state

    def _agrees(self, op: Operation, state: _Named, number: int, count: int) -> None:
        if state.participants != count:
            self.machine.found(
                finding_at(
                    op,
                    "error",
                    "barrier misuse",
                    f"named barrier {number} has {state.participants // state.lanes} participants for "
                    f"one subgroup and {count // state.lanes} for another",
                )
            )

    @cached_property
    def _whole(self) -> bool:
        """Is an instance a whole workgroup? Then it arrives for all of its subgroups at once."""
        return level_of(self.machine.program.function) == "workgroup"

    def _whole_workgroup(self, op: Operation, expected: int) -> None:
        there = subgroups_at(op)
        if there is not None and there != expected:
            self.machine.found(
                finding_at(
                    op,
                    "error",
                    "barrier misuse",
                    f"the barrier expects {expected} subgroups, and {there} do this op of the workgroup's text",
                )
            )

    def _advance(self, state: _Named) -> Successors:
        free: list[_Waiting] = []
        stay: list[_Waiting] = []
        for w in state.waiting:
            goes = state.passed[w.index] < state.generation
            free += [_Waiting(w.index[goes], w.op, w.then)] if goes.any() else []
            stay += [_Waiting(w.index[~goes], w.op, w.then)] if not goes.all() else []
        state.waiting = stay
        for w in free:
            for passed, index in one_by_one(w.index, state.passed[w.index]):
                token = self._token(state, passed)
                self.machine.shadow.clocks.acquire(self._parties(index), token)
            state.passed[w.index] += 1
        return _grouped(free)

    def _token(self, state: _Named, generation: int | None = None) -> tuple[str, int, int]:
        """What the books call one generation of a named barrier."""
        return ("named", id(state), state.generation if generation is None else generation)

    # The end
    def finish(self) -> None:
        """Nobody can go on: reports those who still wait, with the state of every barrier."""
        stuck = [w for waiting in self._waiting.values() for w in waiting]
        stuck += [w for state in self._named.values() for w in state.waiting]
        if not stuck:
            return
        lines = [f"deadlock: {self._name(stuck[0].index)} waits here and none can continue"]
        head = len(lines)
        for slot, waiting in sorted(self._waiting.items()):
            lines.append(
                f"  workgroup {self._workgroup(slot)}: gpu.barrier reached by "
                f"{_count(w.index for w in waiting)} of {self.machine.batch.subgroups} "
                f"{self.machine.batch.kind}s ({self._list([w.index for w in waiting], 1)})"
            )
        for (slot, number), state in sorted(self._named.items()):
            arrived = self._list(state.arrived, state.lanes)
            waits = self._list([w.index for w in state.waiting], state.lanes)
            lines.append(
                f"  workgroup {self._workgroup(slot)}: named barrier {number}, generation "
                f"{state.generation}: arrived {_count(state.arrived) // state.lanes} of "
                f"{state.participants // state.lanes} ({arrived}), waiting: {waits}"
            )
        if len(lines) > head + MOST_LISTED:
            lines[head + MOST_LISTED :] = [f"  and {len(lines) - head - MOST_LISTED} more"]
        self.machine.found(finding_at(stuck[0].op, "error", "deadlock", "\n".join(lines)))

    def _list(self, parts: list[Index], lanes: int) -> str:
        """The subgroups of instances, as they came; many in order, by their runs."""
        here = np.concatenate([*parts, np.zeros(0, np.int64)])
        numbers = dict.fromkeys((self.machine.batch.subgroup[here] // lanes).tolist())
        shown = numbers if len(numbers) <= MOST_LISTED else runs(sorted(numbers))
        return ", ".join(map(str, shown)) or "none"

    def _parties(self, index: Index) -> Index:
        return np.unique(self.machine.batch.parties[index])

    def _workgroup(self, slot: int) -> str:
        return self.machine.name_of_workgroup(slot + int(self.machine.batch.workgroup[0]))

    def _name(self, index: Index) -> str:
        return self.machine.name_of_instance(int(index[0]))


def _count(parts: Iterable[Index]) -> int:
    return sum(part.size for part in parts)


def _grouped(waiting: list[_Waiting]) -> list[tuple[Segment, Index]]:
    """Instances that go on at the same segment, together."""
    by_segment: dict[Segment, list[Index]] = {}
    for w in waiting:
        by_segment.setdefault(w.then, []).append(w.index)
    return [(s, np.sort(np.concatenate(parts))) for s, parts in by_segment.items()]


def rendezvous(builder: SegmentBuilder, op: Operation) -> None:
    """Lays out a workgroup barrier."""
    then = Segment()
    builder.end(lambda group: group.machine.barriers.arrive_all(group, op, then))
    builder.start(then)
