"""The executor's core: a batch of instances in lockstep, in groups where they went separate ways.

An instance is a workgroup, or a subgroup of one (later a lane): `Batch` says which. `Executor` keeps
for each instance the segment where it stands, and one environment of row values for all of them.
It runs the lowest segment for everybody who stands there, so a program without divergence runs each
op once, as one numpy call over the whole batch; barriers park instances until others arrive.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import TilewrightError, location_of, unsupported
from tilewright.dialects.mach import InstrOp
from tilewright.frozen import field, record
from tilewright.reference.agents import Agents
from tilewright.reference.barriers import Barriers
from tilewright.reference.batch import WARP, WARPGROUP, Batch
from tilewright.reference.engine import Engine
from tilewright.reference.flight import Products
from tilewright.reference.program import Program, Segment
from tilewright.reference.report import Finding, check_error
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, blank, put, scalar, spread, take
from tilewright.reference.waits import Waits

if TYPE_CHECKING:
    from tilewright.reference.launch import RunContext

T = TypeVar("T")
_FAIRNESS = 1024
"""Every so many segments the highest runs instead of the lowest, so that a loop that waits for a
value in memory cannot keep those from running who would write it."""


class Group:
    """Instances that run a segment together, and their view of the environment."""

    def __init__(self, machine: Executor, index: Index):
        self.machine = machine
        self.index = index
        self.everyone = index.shape[0] == machine.batch.count
        self.site = Site(self)

    def get(self, value: SSAValue) -> Any:
        """The rows of an SSA value for these instances."""
        rows = self.machine.values[value]
        if not self.everyone:
            return take(rows, self.index)
        # Whoever has it now may keep it (a loop hands values on): the next row write makes a copy.
        self.machine.owned.discard(value)
        return rows

    def number(self, value: SSAValue | int) -> Index:
        """The rows of an index that may be a constant."""
        return scalar(value) if isinstance(value, int) else self.get(value)

    def flight(self, value: SSAValue) -> Index | None:
        """The numbers of the products that will fill an SSA value (`flight.py`); None where there are none."""
        return self.machine.products.of(value, self.index)

    def set(self, value: SSAValue, rows: Any, flight: Index | None = None) -> None:
        """Gives an SSA value its rows; those of other instances stay. `flight`: the products that will fill them."""
        machine = self.machine
        machine.products.enter(value, self.index, flight)
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
        flight: Index | None = None
        if self.machine.products.flying:
            run = partial(meaning, self.site, op)
            flight = self.machine.products.rearranged(self, op, run)
        try:
            results = meaning(self.site, op, *[self.get(operand) for operand in op.operands])
        except TilewrightError as error:
            error.at(location_of(op))
            raise
        except (ValueError, TypeError, IndexError, AttributeError, KeyError, MemoryError) as error:
            raise unsupported(
                op, f"the reference executor cannot run {op.name} in this form: {error}"
            ) from error
        if len(op.results) == 1:
            self.set(op.results[0], results, flight)
        else:
            for result, rows in zip(op.results, results or (), strict=True):
                self.set(result, rows)


@record
class Executor:
    """One run of a program for one batch."""

    program: Program
    batch: Batch
    context: RunContext
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    owned: set[SSAValue] = field(default_factory=set[SSAValue])
    """Values whose arrays were made for row writes and are referred to by nobody else."""
    ready: dict[int, list[Index]] = field(default_factory=dict[int, list[Index]])
    shared: dict[Any, Index] = field(default_factory=dict[Any, Index])
    """Buffers that exist once per workgroup, by what asked for them."""
    constants: dict[Operation, Array] = field(default_factory=dict[Operation, Array])
    unfinished: dict[int, str] = field(default_factory=dict[int, str])
    """What instances printed without a line break yet, by instance."""
    states: dict[type, Any] = field(default_factory=dict[type, Any])
    """What instructions keep between each other (`state`)."""

    def __post_init__(self) -> None:
        self.memory = self.context.memory
        self.shadow = self.context.shadow
        self.checking = self.context.checking
        self.barriers = Barriers(self)
        self.engine = Engine(self, self.context.schedule)
        self.agents = Agents(self)
        self.waits = Waits(self)
        self.products = Products(self.batch.count)
        self.ended = np.zeros(self.batch.count, bool)
        """Which instances are done."""

    def state(self, kind: type[T]) -> T:
        """What the instructions of a kind keep: made by `kind(machine)` when it is first asked for."""
        if kind not in self.states:
            self.states[kind] = cast(Any, kind)(self)
        return self.states[kind]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Runs the program to its end; gives the rows of what it returns."""
        for argument, value in zip(self.program.arguments, arguments, strict=True):
            self.values[argument] = value
        self.ready[0] = [np.arange(self.batch.count, dtype=np.int64)]
        ticks = 0
        ahead = self._ahead()
        while self.ready or self.waits.wake() or self.engine.advance():
            if not self.ready:
                continue  # a copy is done that nobody waits for yet
            ticks += 1
            if ticks % _FAIRNESS == 0:
                self._run_last()
            elif ahead is None or not self._run_ahead(ahead):
                number = min(self.ready)
                self._run_segment(self.program.segments[number], self.ready.pop(number))
        if self.checking and "window" in self.shared and self.ended.all():
            self._end_workgroups()
        self.waits.finish()
        self.barriers.finish()
        self.engine.finish()
        sys.stdout.write("".join(text for _, text in sorted(self.unfinished.items())))
        for address in np.concatenate([*self.shared.values(), np.zeros(0, np.int64)]).tolist():
            self.memory.release(address)
        return [self.values.get(result) for result in self.program.results]

    def _end_workgroups(self) -> None:
        """The shared memory of every workgroup goes with it."""
        for slot, address in enumerate(self.shared["window"].tolist()):
            index = np.flatnonzero(self.batch.slots == slot)
            self.shadow.end(Group(self, index).site, self.batch.parties[index], address)

    def _ahead(self) -> Array | None:
        """Under a random schedule the threads that go as far as they can before others go on; else None.

        They are a warp, or a warpgroup where those do something together, of any workgroup.
        """
        if not self.batch.threads or self.context.schedule != "random":
            return None
        teams = self._teams
        return teams == self.context.rng.integers(teams[-1] + 1)

    @cached_property
    def _teams(self) -> Array:
        """The number of each thread's warp, or warpgroup where those do something together."""
        names = (op.instruction for op in self.program.function.walk() if isinstance(op, InstrOp))
        size = WARPGROUP if any("wgmma" in name for name in names) else WARP
        return np.arange(self.batch.count) // size

    def _run_last(self) -> None:
        """Runs the highest segment; of threads the highest where some are whom none of their warp could still join, and
        these alone."""
        whole = self._teams if self.batch.threads else np.arange(self.batch.count)
        for number in sorted(self.ready, reverse=True):
            before = [p for n, parts in self.ready.items() if n < number for p in parts]
            index = np.sort(np.concatenate(self.ready[number]))
            alone = ~np.isin(whole[index], whole[np.concatenate(before)] if before else [])
            if alone.any():
                del self.ready[number]
                self.resume(self.program.segments[number], index[~alone])
                self._run_segment(self.program.segments[number], [index[alone]])
                return

    def _run_ahead(self, ahead: Array) -> bool:
        """Runs those who are ahead, where they are ready; whether they were."""
        for number in sorted(self.ready):  # where they went separate ways they meet again
            index = np.concatenate(self.ready[number])
            if (mine := ahead[index]).any():
                self.ready[number] = [index[~mine]]
                if mine.all():
                    del self.ready[number]
                self._run_segment(self.program.segments[number], [np.sort(index[mine])])
                return True
        return False

    def _run_segment(self, segment: Segment, parts: list[Index]) -> None:
        index = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        group = Group(self, index)
        for step in segment.steps:
            step(group)
        if segment.end is not None:
            for target, instances in segment.end(group):
                self.resume(target, instances)
        else:
            self.ended[index] = True

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
        workgroup, subgroup = divmod(party, self.batch.parties_per_workgroup)
        name = f"workgroup {self.name_of_workgroup(workgroup)}"
        if subgroup >= self.batch.programs:
            return f"{self.agents.name(party)} of {name}"
        return name if self.batch.subgroups == 1 else f"{name} {self.batch.kind} {subgroup}"

    def name_of_instance(self, instance: int) -> str:
        """The party of an instance of the batch, and which of its lanes it is."""
        name = self.name_of_party(int(self.batch.parties[instance]))
        lanes = self.batch.lanes
        return name if lanes == 1 else f"{name} lane {self.batch.subgroup[instance] % lanes}"
