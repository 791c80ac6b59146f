"""A scan as one kernel: a loop over its axis inside of every program, the state in registers from one to the next.

    for i in space("kernel", block(B, 16), ...):            the first value of the state is loaded
        state = copy(h0[i:i + 16, 0:64])
        for t in space("scan", sequential(T)):              the body of the scan, as any nest of Tasks
            product = mma(state, U_tile)
            ...
            state = copy(tanh)                              at the end: nothing reads the old one any more
        last[i:i + 16, 0:64] = copy(state)

Requires a scan as traced (`scan.py`): Buffers of state are written at t + 1 and read at t, everything else at t. An
iteration needs the whole state of the one before it, so that dimensions of a state which mix (in a product with the
state, say) stay in one program; the others may be spread over the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import record
from tilewright.graph.affine import Affine, affine
from tilewright.graph.algebra import distribute
from tilewright.graph.build import KernelBuilder
from tilewright.graph.costs import Tiling
from tilewright.graph.fuse import Kernel
from tilewright.graph.nest import Nest, Recurrence, nest_of, statement_of
from tilewright.graph.nodes import (
    Access,
    Axis,
    Buffer,
    Index,
    Operand,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    unused,
)
from tilewright.graph.operations import computing
from tilewright.graph.scopes import Scope, Shape
from tilewright.graph.tiles import tile
from tilewright.uarch import Rates


@record
class Scan:
    """A scan of a graph: the Task, for its states what begins them, and the Tasks that keep what is left at the end."""

    task: Task
    first: dict[str, Operation] = field(default_factory=dict[str, Operation])
    last: list[Operation] = field(default_factory=list[Operation])

    @property
    def axis(self) -> Axis:
        return self.task.axes[0]

    @property
    def states(self) -> list[str]:
        return states_of(self.task)


def is_scan(task: Task) -> bool:
    """Is a Task a scan that is not scheduled yet: iterations in sequence, of Tasks on elements?"""
    return (
        [a.mapping for a in task.axes] == ["sequential"]
        and task.axes[0].step == 1
        and bool(task.nodes)
        and all(
            isinstance(n, Task) and n.nodes and all(a.mapping == "each" for a in n.axes)
            for n in task.nodes
        )
    )


def states_of(task: Task) -> list[str]:
    """The Buffers that a scan writes one iteration ahead."""
    after = Index(affine(task.axes[0].name) + 1)
    stores = [o.store.access for o in task.operations()]
    return [a.buffer for a in stores if a.entries and a.entries[0] == after]


def scan_kernel(graph: TiledGraph, scan: Scan, outputs: Sequence[str], rates: Rates) -> Kernel:
    """The tiled nest of a scan whose extents are numbers.

    `outputs`: the Buffers made in its body that are read outside. Raises UnsupportedError, with the reason, where one
    kernel cannot do it.
    """
    step, following = _step(graph, scan, outputs)
    step = distribute(step).graph
    tasks = {task.name: task for task in step.tasks}
    nest = nest_of(
        step,
        list(map(statement_of, step.tasks)),
        [*outputs, *following.values()],
        {n: s for s, n in following.items()},
    )
    if isinstance(nest, str):
        raise _unfit(scan, nest)
    name, trips = scan.axis.name, scan.axis.extent.number or 0
    nest.statements = {
        n: replace(s, axes=(name, *s.axes), extents=(trips, *s.extents))
        for n, s in nest.statements.items()
    }
    nest.extents[name] = trips
    nest.recurrence = _recurrence(scan, nest, following)
    found = tile(nest, rates)
    if isinstance(found, str):
        raise _unfit(scan, found)
    return Kernel(tasks, nest, *found)


def _unfit(scan: Scan, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"Task {scan.task.name} is no kernel: {why}",
        rule="one kernel carries the state, near the workgroup, through all iterations",
        hint="dimensions of a state that mix stay whole: let them be fewer; "
        "what does not depend on the state may stand before the scan",
    )


def _step(
    graph: TiledGraph, scan: Scan, outputs: Sequence[str]
) -> tuple[TiledGraph, dict[str, str]]:
    """An iteration as a graph: states are read as its inputs, and their next values are results of their own."""
    now, after = Index(affine(scan.axis.name)), Index(affine(scan.axis.name) + 1)
    states = scan.states
    following: dict[str, str] = {}
    buffers = dict(graph.buffers)

    def access(a: Access) -> Access:
        if a.buffer not in states:
            return a
        if a.entries[0] != now:
            raise _unfit(scan, f"the state {a.buffer} is read at {a.entries[0]}, not at {now.at}")
        return Access(a.buffer, a.entries[1:])

    def operand(o: Operand) -> Operand:
        if not isinstance(o, TiledEdge):
            return o
        if any(a.buffer in states for a in list(o.access.accesses())[1:]):
            raise _unfit(scan, "a gather takes its indices from a state")
        return replace(o, access=access(o.access))

    tasks: list[Task] = []
    for child in scan.task.nodes:
        assert isinstance(child, Task)
        for operation in child.nodes:
            assert isinstance(operation, Operation)
            target = operation.store.access
            made = target.buffer
            if made in states:
                if target.entries[0] != after or made in following or operation.store.combine:
                    raise _unfit(scan, f"the state {made} is written twice")
                made = unused(f"next_{made}", buffers)
                following[target.buffer] = made
                old = buffers[target.buffer]
                shape = (scan.axis.extent, *old.shape[1:])
                buffers[made] = Buffer(made, old.level, shape, old.dtype)
                target = Access(made, (now, *target.entries[1:]))
            elif target.entries[0] != now:
                raise _unfit(scan, f"{made} is written at another place than {now.at}")
            operation = replace(
                operation,
                operands=tuple(map(operand, operation.operands)),
                store=replace(operation.store, access=target),
            )
            tasks.append(Task(made, child.axes, [operation]))
    for state in states:
        buffers[state] = replace(buffers[state], shape=buffers[state].shape[1:])
    inner = {t.name for t in tasks}
    operations = [*(o for t in tasks for o in t.operations()), *scan.first.values(), *scan.last]
    used = {a.buffer for o in operations for a in o.accesses}
    used |= {graph.memory(n) for n in used if n in graph.buffers}
    buffers = {
        n: replace(b, role="local" if n in inner or b.alias_of is not None else "input")
        for n, b in buffers.items()
        if n in used
    }
    results = (*outputs, *following.values())
    return TiledGraph(graph.name, (scan.axis.name,), buffers, tasks, results), following


def _recurrence(scan: Scan, nest: Nest, following: Mapping[str, str]) -> Recurrence:
    near: set[str] = set()
    whole: set[str] = set()
    for state, made in following.items():
        accesses = [nest.statements[made].operation.store.access.entries[1:]]
        for statement in nest.statements.values():
            loads = [e.access for e in statement.operation.loads]
            accesses += [a.entries for a in loads if a.buffer == state]
        for entries in zip(*accesses, strict=True):
            names = {e.at.name for e in entries if isinstance(e, Index)}
            axes = {n for n in names if n is not None}
            if len(set(entries)) > 1 and (None in names or not all(isinstance(e, Index) for e in entries)):  # fmt: skip
                raise _unfit(scan, f"only a part of the state {state} is read or written")
            near |= axes
            whole |= axes if len(axes) > 1 else set()
    return Recurrence(scan.axis.name, dict(following), frozenset(near), frozenset(whole))


def build_scan(graph: TiledGraph, scan: Scan, kernel: Kernel, name: str) -> Task:
    """The Task of the kernel; its registers are added to ``graph``, which holds the global Buffers."""
    return _ScanBuilder(graph, scan, kernel.nest, kernel.tiling).kernel(name)


class _ScanBuilder(KernelBuilder):
    def __init__(self, graph: TiledGraph, scan: Scan, nest: Nest, tiling: Tiling):
        super().__init__(graph, nest, tiling)
        self.scan = scan
        assert nest.recurrence is not None
        self.next = nest.recurrence.states
        self.states: dict[str, tuple[str, Shape]] = {}
        """The register of every state, and its shape."""

    def kernel(self, name: str) -> Task:
        root = self.opened(name)
        task = Task(self.scan.task.name, (self.axis(self.scan.axis.name),))
        loop = Scope(task, (self.scan.axis.name,), root, root.goals, running=set(self.next))
        self.loop_body = loop
        for state in self.next:
            self.begin(state, root)
        for output in self.nest.outputs:
            if output not in self.next.values() and output not in self.stored:
                self.store(self.nest.statements[output], loop)
        made = {state: self.following(state, loop) for state in self.next}
        for state, value in made.items():
            self.emit(loop, "copy", [value], self.states[state][0])
        root.task.nodes.append(task)
        for operation in self.scan.last:
            self.finish(operation, root)
        return root.task

    def begin(self, state: str, root: Scope) -> None:
        """The register of a state, with its first value."""
        following = self.nest.statements[self.next[state]]
        shape = self.natural(following)
        dtype = computing(self.nest.graph.buffers[state].dtype)
        first = self.scan.first[state]
        register = self.register(state, shape, dtype)
        self.states[state] = (register, shape)
        (value,) = first.operands
        if not isinstance(value, TiledEdge):
            self.emit(root, "copy", [value], register)
            zero = value in (0.0, Affine())
        else:
            places = self.places(following.operation.store.access, first.store.access)
            edge = replace(value, access=value.access.substitute(places))
            loaded = self.load(edge.access, root, shape)
            self.emit(root, "copy", [loaded], register)
            zero = True
        if not zero:
            self.emit(root, "copy", [self.padded(register, shape, root)], register)

    def following(self, state: str, loop: Scope) -> str:
        """The next value of a state, 0 past the end of its extents, in no register of a state."""
        statement = self.nest.statements[self.next[state]]
        shape = self.states[state][1]
        value = self.value(statement.name, loop, shape)
        edge = TiledEdge("load", statement.operation.store.access)
        for axis in shape:
            if axis is not None and not self.padding.is_zero(edge, axis):
                value = self.masked_at(value, shape, axis, loop)
        if any(value == register for register, _ in self.states.values()):
            copied = self.register(statement.name, shape, self.graph.buffers[value].dtype)
            self.emit(loop, "copy", [value], copied)
            value = copied
        return value

    def padded(self, value: str, shape: Shape, scope: Scope) -> str:
        for axis in shape:
            if axis is not None:
                value = self.masked_at(value, shape, axis, scope)
        return value

    def masked_at(self, value: str, shape: Shape, axis: str, scope: Scope) -> str:
        if self.tiling.mapping[axis] == "block" or not self.padding.is_padded(axis):
            return value
        return self.masked(value, scope, shape, axis, 0)

    def operand(self, operand: Operand, scope: Scope, shape: Shape) -> Any:
        """An operand as elsewhere; a state is in its register."""
        if not isinstance(operand, TiledEdge) or operand.access.buffer not in self.states:
            return super().operand(operand, scope, shape)
        state = operand.access.buffer
        register, own = self.states[state]
        following = self.nest.statements[self.next[state]].operation.store.access
        written = Access(state, following.entries[1:])
        names = {at.name: n for n, at in self.places(operand.access, written).items()}
        here = set(operand.access.names)
        wanted = tuple(names.get(a, a) if a in here else None for a in shape)
        if wanted != own:
            key = ("turned", state)
            if key not in self.loop_body.values:
                made = self.register(state, (own[1], own[0]), self.graph.buffers[register].dtype)
                self.emit(self.loop_body, "transpose", [register], made)
                self.loop_body.values[key] = made
            register = self.loop_body.values[key]
        dtype = self.nest.graph.buffers[state].dtype
        if self.graph.buffers[register].dtype is not dtype:
            key = ("narrow", register)
            if key not in self.loop_body.values:
                extents = own if wanted == own else (own[1], own[0])
                made = self.register(f"{state}_{dtype}", extents, dtype)
                self.emit(self.loop_body, "cast", [register], made, dtype=dtype.name)
                self.loop_body.values[key] = made
            register = self.loop_body.values[key]
        return register

    def finish(self, operation: Operation, root: Scope) -> None:
        """Stores what the last iteration leaves."""
        (load,) = operation.loads
        register, shape = self.states[load.access.buffer]
        following = self.nest.statements[self.next[load.access.buffer]].operation.store.access
        access = operation.store.access.substitute(self.places(following, load.access))
        op = "copy" if len(self.tiled_order(access)) == 2 else "squeeze"
        edge = TiledEdge("store", self.scheduled(access, root, shape))
        value = TiledEdge("load", self.graph.buffers[register].whole)
        root.task.nodes.append(Operation(op, (value,), edge))

    def places(self, here: Access, there: Access) -> dict[str, Affine]:
        """For the axes of an access the positions that another one to the same elements has in their place."""
        found: dict[str, Affine] = {}
        entries = zip(here.entries[-len(there.entries) :], there.entries, strict=False)
        for one, two in entries:
            if isinstance(one, Index) and isinstance(two, Index) and two.at.name is not None:
                found[two.at.name] = one.at
        return found
