"""The executor's core: a batch of instances in lockstep, in groups where they went separate ways.

An instance is a workgroup, or a subgroup of one (later a lane): `Batch` says which. `Machine` keeps
for each instance the segment where it stands, and one environment of row values for all of them.
It runs the lowest segment for everybody who stands there, so a program without divergence runs each
op once, as one numpy call over the whole batch; barriers park instances until others arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import TilewrightError, UnsupportedError, error_at
from tilewright.reference.barriers import Barriers
from tilewright.reference.program import Program, Segment
from tilewright.reference.report import Finding, check_error, finding_at
from tilewright.reference.shadow import Kind
from tilewright.reference.values import (
    Array,
    Index,
    blank,
    put,
    row_count,
    spread,
    take,
)

if TYPE_CHECKING:
    from tilewright.reference.launch import RunContext

_FAIRNESS = 1024
"""Every so many segments the highest runs instead of the lowest, so that a loop that waits for a
value in memory cannot keep those from running who would write it."""


@dataclass(frozen=True)
class Batch:
    """Who the instances are. All arrays have one entry per instance."""

    grid: tuple[int, int, int]
    workgroup: Index
    """Linear number of the workgroup in the grid, x fastest."""
    subgroup: Index
    """Number of the subgroup in its workgroup; 0 at workgroup level."""
    subgroups: int
    """Subgroups per workgroup; 1 at workgroup level."""
    block: tuple[int, int, int] = (1, 1, 1)
    """How launch threads (subgroups) are arranged along x, y, z."""

    @property
    def count(self) -> int:
        return self.workgroup.shape[0]

    @property
    def parties(self) -> Index:
        """A number for each instance that is unique in the whole launch."""
        return self.workgroup * self.subgroups + self.subgroup

    @property
    def slots(self) -> Index:
        """The workgroup's position in this batch."""
        return self.workgroup - (self.workgroup[0] if self.count else 0)

    def block_id(self, axis: int) -> Index:
        x, y, _ = self.grid
        return (
            self.workgroup % x,
            self.workgroup // x % y,
            self.workgroup // (x * y),
        )[axis]

    @staticmethod
    def of_workgroups(
        grid: tuple[int, int, int], first: int, last: int, block: tuple[int, int, int]
    ) -> Batch:
        """Workgroups `first` .. `last` (exclusive) with all their subgroups."""
        subgroups = block[0] * block[1] * block[2]
        numbers = np.arange(first, last, dtype=np.int64)
        return Batch(
            grid,
            np.repeat(numbers, subgroups),
            np.tile(np.arange(subgroups, dtype=np.int64), last - first),
            subgroups,
            block,
        )


class Group:
    """Instances that run a segment together, and their view of the environment."""

    def __init__(self, machine: Machine, index: Index):
        self.machine = machine
        self.index = index
        self.everyone = index.shape[0] == machine.batch.count
        self.site = Site(self)

    def get(self, value: SSAValue) -> Any:
        """The rows of an SSA value for these instances."""
        rows = self.machine.values[value]
        return rows if self.everyone else take(rows, self.index)

    def set(self, value: SSAValue, rows: Any) -> None:
        """Gives an SSA value its rows; those of other instances stay."""
        machine = self.machine
        if self.everyone:
            machine.values[value] = rows
            machine.owned.discard(value)
            return
        old = machine.values.get(value)
        if value not in machine.owned:
            count = machine.batch.count
            old = blank(rows, count) if old is None else spread(old, count)
            machine.owned.add(value)
        machine.values[value] = put(old, self.index, rows)

    def execute(self, op: Operation, meaning: Callable[..., Any]) -> None:
        """Runs one op for the group."""
        self.site.op = op
        try:
            results = meaning(self.site, op, *[self.get(operand) for operand in op.operands])
        except TilewrightError:
            raise
        except (ValueError, TypeError, IndexError, AttributeError, KeyError, MemoryError) as error:
            raise error_at(
                op,
                f"the reference executor cannot run {op.name} as it stands here: {error}",
                kind=UnsupportedError,
            ) from error
        if len(op.results) == 1:
            self.set(op.results[0], results)
        else:
            for result, rows in zip(op.results, results or (), strict=True):
                self.set(result, rows)


class Site:
    """What a meaning sees of the place where it runs: who runs it, memory, the report."""

    op: Operation

    def __init__(self, group: Group):
        self.group = group
        self.machine = group.machine
        self.memory = group.machine.memory
        self.checking = group.machine.checking

    # Who runs the op; arrays have one entry per instance of the group.
    @property
    def batch(self) -> Batch:
        return self.machine.batch

    @property
    def instances(self) -> Index:
        """Positions in the batch."""
        return self.group.index

    @property
    def count(self) -> int:
        return self.group.index.shape[0]

    @property
    def workgroup(self) -> Index:
        return self.batch.workgroup[self.instances]

    @property
    def subgroup(self) -> Index:
        return self.batch.subgroup[self.instances]

    @property
    def rng(self) -> np.random.Generator:
        """The run's random numbers (run(seed=...))."""
        return self.machine.context.rng

    def block_id(self, axis: int) -> Index:
        return self.batch.block_id(axis)[self.instances]

    def allocate_shared(self, size: int, granule: int, name: str) -> Index:
        """The address of a buffer that each workgroup has once, for every instance.

        An op that runs again gives the same buffer.
        """
        key = (self.op, name)
        if key not in self.machine.shared:
            slots = int(self.batch.slots.max(initial=-1)) + 1
            self.machine.shared[key] = self.memory.allocate(
                slots, size, granule, shared=True, name=name
            )
        return self.machine.shared[key][self.batch.slots[self.instances]]

    # What goes wrong.
    def report(self, severity: Any, kind: str, message: str) -> None:
        """A finding at this op; an error ends the run unless checking goes on collecting."""
        self.machine.found(finding_at(self.op, severity, kind, message))

    def accessible(self, wanted: Array, low: Index, high: Index, *, writes: bool) -> Array:
        """Of the wanted accesses to bytes `low` .. `high`, those that hit memory; reports others."""
        numbers = self.memory.locate(low, high)
        allowed = wanted & (numbers >= 0)
        if (missing := wanted & ~allowed).any():
            address = int(low[missing].flat[0])
            verb = "writes" if writes else "reads"
            self.report(
                "error",
                "wild access",
                f"{self.op.name} {verb} address {address:#x}, which belongs to no array or buffer",
            )
        if writes and allowed.any():
            writable = self.memory.writable(numbers)
            if (refused := allowed & ~writable).any():
                name = self.memory.allocations[int(numbers[refused].flat[0])].name
                self.report("error", "read-only", f"{self.op.name} writes to read-only {name}")
                allowed = allowed & writable
        return allowed

    def outside(self, rows: int, where: Array) -> None:
        """Checking mode: some boxes of this op reach outside their matrix."""
        who = self.workgroup if rows == self.count else self.workgroup[:1]
        number = int(who[np.flatnonzero(where)[0]]) if rows == self.count else int(who[0])
        self.report(
            "warning",
            "out of bounds",
            f"{self.op.name} reaches outside its matrix (first in workgroup "
            f"{self.machine.name_of_workgroup(number)})",
        )

    def note_boxes(
        self,
        address: Index,
        low: Index,
        high: Index,
        strides: Index,
        itemsize: int,
        wanted: Array,
        kind: Kind,
    ) -> None:
        """Checking mode: the elements of clipped boxes are about to be accessed."""
        everyone = address.shape[0] == 1 and self.count > 1
        for row in np.flatnonzero(wanted).tolist():
            elements = np.array([int(address[row])], np.int64)
            for extent, stride in zip(
                (high - low)[row].tolist(), strides[row].tolist(), strict=True
            ):
                elements = (elements[:, None] + stride * np.arange(extent)).ravel()
            who = range(self.count) if everyone else (row,)
            for instance in who:
                parties = self.batch.parties[self.instances[instance]]
                self.machine.shadow.note(
                    self, elements, np.full(elements.shape, parties), itemsize, kind
                )

    def note_elements(self, address: Index, wanted: Array, itemsize: int, kind: Kind) -> None:
        """Checking mode: elements at addresses, `(rows, ...)`, are about to be accessed."""
        rows = address.shape[0]
        parties = self.batch.parties[self.instances]
        if rows == 1:
            for party in parties.tolist():
                chosen = address[wanted]
                self.machine.shadow.note(self, chosen, np.full(chosen.shape, party), itemsize, kind)
            return
        parties = np.broadcast_to(parties.reshape(rows, *[1] * (address.ndim - 1)), address.shape)
        self.machine.shadow.note(self, address[wanted], parties[wanted], itemsize, kind)


@dataclass
class Machine:
    """One run of a program for one batch."""

    program: Program
    batch: Batch
    context: RunContext
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    owned: set[SSAValue] = field(default_factory=set[SSAValue])
    """Values whose arrays were made for row writes and are referred to by nobody else."""
    ready: dict[int, list[Index]] = field(default_factory=dict[int, list[Index]])
    shared: dict[Any, Index] = field(default_factory=dict[Any, Index])
    """Buffers that exist once per workgroup (or once per run), by what asked for them."""
    constants: dict[Operation, Array] = field(default_factory=dict[Operation, Array])

    def __post_init__(self) -> None:
        self.memory = self.context.memory
        self.shadow = self.context.shadow
        self.checking = self.context.checking
        self.barriers = Barriers(self)

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Runs the program to its end; gives the rows of what it returns."""
        for argument, value in zip(self.program.arguments, arguments, strict=True):
            self.values[argument] = value
        self.ready[0] = [np.arange(self.batch.count, dtype=np.int64)]
        ticks = 0
        while self.ready:
            ticks += 1
            number = max(self.ready) if ticks % _FAIRNESS == 0 else min(self.ready)
            self._run_segment(self.program.segments[number], self.ready.pop(number))
        self.barriers.finish()
        return [self.values.get(result) for result in self.program.results]

    def _run_segment(self, segment: Segment, parts: list[Index]) -> None:
        index = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        group = Group(self, index)
        for step in segment.steps:
            step(group)
        if segment.end is not None:
            for target, instances in segment.end(group):
                self.resume(target, instances)

    def resume(self, segment: Segment, instances: Index) -> None:
        """Lets instances go on at a segment."""
        if instances.size:
            self.ready.setdefault(segment.number, []).append(instances)

    def found(self, finding: Finding) -> None:
        """Enters a finding once; an error ends the run unless checking goes on collecting."""
        if finding.severity == "error" and not self.checking:
            raise check_error([finding])
        known = self.context.report.findings
        if not any(
            f.kind == finding.kind and f.op == finding.op and f.location == finding.location
            for f in known
        ):
            known.append(finding)

    def name_of_workgroup(self, number: int) -> str:
        x, y, _ = self.batch.grid
        return f"({number % x}, {number // x % y}, {number // (x * y)})"

    def name_of_party(self, party: int) -> str:
        workgroup, subgroup = divmod(party, self.batch.subgroups)
        name = f"workgroup {self.name_of_workgroup(workgroup)}"
        return name if self.batch.subgroups == 1 else f"{name} subgroup {subgroup}"


__all__ = ["Batch", "Group", "Machine", "Site", "row_count"]
