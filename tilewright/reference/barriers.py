"""Barriers: instances that wait for others, and what to say when they wait forever."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Operation

from tilewright.passes.kernel import level_of
from tilewright.passes.level import subgroups_at
from tilewright.reference.program import Builder, Segment, Ways
from tilewright.reference.report import finding_at
from tilewright.reference.values import Index, Record

if TYPE_CHECKING:
    from tilewright.reference.machine import Group, Machine


MOST_TOLD = 8
"""Barriers whose state the message of a deadlock tells."""


@dataclass(frozen=True)
class NamedBarrier(Record):
    """The row value of a named barrier: its number in the workgroup and how many take part."""

    number: Index
    participants: Index


@dataclass
class _Waiting:
    instance: int
    op: Operation
    then: Segment


@dataclass
class _Named:
    """The state of one named barrier of one workgroup."""

    participants: int
    """Instances that take part: lanes of subgroups at lane level."""
    lanes: int = 1
    """Instances of one subgroup."""
    generation: int = 0
    arrived: list[int] = field(default_factory=list[int])
    """Instances that arrived in this generation."""
    passed: dict[int, int] = field(default_factory=dict[int, int])
    """The generation that each instance waits for next."""
    waiting: list[_Waiting] = field(default_factory=list[_Waiting])


class Barriers:
    """The workgroup barrier and the named barriers of every workgroup of a batch."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self._waiting: dict[int, list[_Waiting]] = {}
        self._named: dict[tuple[int, int], _Named] = {}

    # gpu.barrier
    def arrive_all(self, group: Group, op: Operation, then: Segment) -> Ways:
        """A group stands at the workgroup's barrier; gives who may go on."""
        batch = self.machine.batch
        if batch.subgroups == 1:
            return [(then, group.index)]
        ways: list[tuple[Segment, Index]] = []
        for instance in group.index.tolist():
            slot = int(batch.slots[instance])
            waiting = self._waiting.setdefault(slot, [])
            waiting.append(_Waiting(instance, op, then))
            if len(waiting) == batch.subgroups:
                del self._waiting[slot]
                ways += self._release(waiting)
        return ways

    def _release(self, waiting: list[_Waiting]) -> Ways:
        ops = {w.op for w in waiting}
        if len(ops) > 1 and self.machine.checking:
            first = waiting[0]
            other = next(w for w in waiting if w.op is not first.op)
            self.machine.found(
                finding_at(
                    other.op,
                    "error",
                    "divergent barrier",
                    f"divergent barrier: {self._name(other.instance)} waits here while "
                    f"{self._name(first.instance)} waits at another gpu.barrier",
                )
            )
        # The lanes of a subgroup are one party, which knows what it did itself.
        parties = dict.fromkeys(self._party(w.instance) for w in waiting)
        self.machine.shadow.synchronise(list(parties))
        return _grouped(waiting)

    # Named barriers
    def arrive(self, group: Group, op: Operation, barrier: NamedBarrier) -> Ways:
        """Counts the group's arrivals; gives those whom they release."""
        ways: list[tuple[Segment, Index]] = []
        for instance, state in self._states(group, barrier):
            state.passed[instance] = state.generation
            state.arrived.append(instance)
            self.machine.shadow.publish(self._party(instance), self._token(state))
            if len(state.arrived) == state.participants:
                state.arrived = []
                state.generation += 1
                ways += self._advance(state)
        return ways

    def wait(self, group: Group, op: Operation, barrier: NamedBarrier, then: Segment) -> Ways:
        """Parks the group until the generation that each waits for is complete."""
        ways: list[tuple[Segment, Index]] = []
        for instance, state in self._states(group, barrier):
            state.passed.setdefault(instance, 0)
            state.waiting.append(_Waiting(instance, op, then))
            ways += self._advance(state)
        return ways

    def _states(self, group: Group, barrier: NamedBarrier):
        """Each instance of the group and its barrier; participants are subgroups, whose lanes each arrive."""
        numbers = np.broadcast_to(barrier.number, group.index.shape)
        from tilewright.reference.lanes import width_of

        lanes = width_of(group.site.op)
        counts = np.broadcast_to(barrier.participants * lanes, group.index.shape)
        if self._whole:
            self._whole_workgroup(group.site.op, int(counts[0]))
            counts = np.ones_like(counts)
        rows = zip(group.index.tolist(), numbers.tolist(), counts.tolist(), strict=True)
        for instance, number, count in rows:
            key = (int(self.machine.batch.slots[instance]), number)
            state = self._named.setdefault(key, _Named(count, lanes))
            if state.participants != count:
                self.machine.found(
                    finding_at(
                        group.site.op,
                        "error",
                        "barrier misuse",
                        f"named barrier {number} has {state.participants // lanes} participants for "
                        f"one subgroup and {count // lanes} for another",
                    )
                )
            yield instance, state

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

    def _advance(self, state: _Named) -> Ways:
        free = [w for w in state.waiting if state.passed[w.instance] < state.generation]
        state.waiting = [w for w in state.waiting if w not in free]
        for w in free:
            token = self._token(state, state.passed[w.instance])
            self.machine.shadow.acquire(self._party(w.instance), token)
            state.passed[w.instance] += 1
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
        lines = [f"deadlock: {self._name(stuck[0].instance)} waits here and nobody can go on"]
        head = len(lines)
        for slot, waiting in sorted(self._waiting.items()):
            who = ", ".join(str(self._subgroup(w.instance)) for w in waiting)
            lines.append(
                f"  workgroup {self._workgroup(slot)}: gpu.barrier reached by {len(waiting)} of "
                f"{self.machine.batch.subgroups} subgroups ({who})"
            )
        for (slot, number), state in sorted(self._named.items()):
            arrived = self._list(state.arrived, state.lanes)
            waits = self._list([w.instance for w in state.waiting], state.lanes)
            lines.append(
                f"  workgroup {self._workgroup(slot)}: named barrier {number}, generation "
                f"{state.generation}: arrived {len(state.arrived) // state.lanes} of "
                f"{state.participants // state.lanes} ({arrived}), waiting: {waits}"
            )
        if len(lines) > head + MOST_TOLD:
            lines[head + MOST_TOLD :] = [f"  and {len(lines) - head - MOST_TOLD} more"]
        self.machine.found(finding_at(stuck[0].op, "error", "deadlock", "\n".join(lines)))

    def _list(self, instances: list[int], lanes: int) -> str:
        """The subgroups of instances, in order."""
        numbers = dict.fromkeys(self._subgroup(i) // lanes for i in instances)
        return ", ".join(map(str, numbers)) or "none"

    def _party(self, instance: int) -> int:
        return int(self.machine.batch.parties[instance])

    def _subgroup(self, instance: int) -> int:
        return int(self.machine.batch.subgroup[instance])

    def _workgroup(self, slot: int) -> str:
        return self.machine.name_of_workgroup(slot + int(self.machine.batch.workgroup[0]))

    def _name(self, instance: int) -> str:
        return self.machine.name_of_instance(instance)


def _grouped(waiting: list[_Waiting]) -> list[tuple[Segment, Index]]:
    """Instances that go on at the same segment, together."""
    by_segment: dict[Segment, list[int]] = {}
    for w in waiting:
        by_segment.setdefault(w.then, []).append(w.instance)
    return [(s, np.array(sorted(i), np.int64)) for s, i in by_segment.items()]


def rendezvous(builder: Builder, op: Operation) -> None:
    """Lays out a workgroup barrier."""
    then = Segment()
    builder.end(lambda group: group.machine.barriers.arrive_all(group, op, then))
    builder.start(then)
