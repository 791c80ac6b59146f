"""The kernels of a graph: each scan is one (`recurrence.py`), what stands between scans is fused (`fuse.py`).

A graph without scans is one section. Otherwise the Tasks before, between and after scans are graphs of their own: what
one makes and another reads is a result of the first and an input of the second. What begins a state, and what keeps
the last one, belongs to the kernel of the scan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.diagnostics import UnsupportedError
from tilewright.graph import fuse
from tilewright.graph.affine import Affine
from tilewright.graph.digits import addressed, cut
from tilewright.graph.elements import check_elements
from tilewright.graph.fuse import Fusion, Known, Schedule
from tilewright.graph.joins import apart, in_views, spread, wholes
from tilewright.graph.nodes import (
    GLOBAL,
    Index,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    renamed_task,
    unused,
)
from tilewright.graph.recurrence import Scan, build_scan, is_scan, scan_kernel, states_of
from tilewright.graph.repeats import folded
from tilewright.targets.base import rates_of
from tilewright.uarch import Rates

SINGLY = 4
"""With no more wholes put together from parts, each is tried in memory and spread by itself."""
MOST = 1024
"""Tasks of a graph whose dimensions are cut, or whose wholes are spread: with more, planning it in one more form takes
too long."""


def schedule(
    graph: TiledGraph, target: str | None = None, together: bool = True, rates: Rates | None = None
) -> Schedule:
    """The kernels of a graph whose extents are numbers, for a target; see :func:`tilewright.graph.fuse.schedule`."""
    check_elements(graph)
    known = Known()
    if together and (fold := folded(graph)) is not None:
        layers = _best(fold.graph, target, together, rates, known)
        if isinstance(layers, Fusion) and (whole := layers.unrolled(fold)) is not None:
            return whole.built()
    return _best(graph, target, together, rates, known).built()


def _best(
    graph: TiledGraph, target: str | None, together: bool, rates: Rates | None, known: Known
) -> Fusion | Schedule:
    """The fastest of all forms of a graph."""
    made: list[Fusion | Schedule] = []
    refused: list[UnsupportedError] = []
    for each in _shapes(graph, together):
        try:
            made.append(_sections(each, target, together, rates, known))
        except UnsupportedError as error:
            refused.append(error)
    if not made:
        raise refused[0]
    return min(made, key=lambda s: s.seconds)


def _shapes(graph: TiledGraph, together: bool) -> list[TiledGraph]:
    """The graph, and others of the same meaning that may be faster, every Buffer of which one Task writes whole."""
    found: list[TiledGraph] = []
    shapes = [addressed(graph)] if together else [graph]
    if together and len(graph.tasks) <= MOST:
        shapes += [s for s in [cut(shapes[0])] if s is not shapes[0]]
    for each in shapes:
        first = each is shapes[0]
        scans = [task for task in each.tasks if is_scan(task)]
        each = in_views(each, [state for scan in scans for state in states_of(scan)])
        _whole(each)
        if scans:  # what a scan puts together, it reads in parts
            each = spread(each, wholes(each, list(filter(is_scan, each.tasks))))
        found += _variants(each, SINGLY if first else 0) if together else [each]
    return found


def _variants(graph: TiledGraph, singly: int) -> list[TiledGraph]:
    """The graph, and others of the same meaning that may be faster: wholes spread to their readers, parts apart."""
    found = [graph]
    joined = wholes(graph) if len(graph.tasks) <= MOST else []
    choices = [[each] for each in joined] if len(joined) <= singly else []
    choices += [joined] if joined and len(choices) != 1 else []
    found += [spread(graph, names) for names in choices]
    found += [apart(each) for each in found]
    return [g for i, g in enumerate(found) if g not in found[:i]]


def _sections(
    graph: TiledGraph, target: str | None, together: bool, rates: Rates | None, known: Known
) -> Fusion | Schedule:
    if not any(map(is_scan, graph.tasks)):
        return fuse.fused(graph, target, together, rates, known)
    return _Sections(graph, rates or rates_of(target or "cpu"), target, together, known).run()


def _whole(graph: TiledGraph) -> None:
    """A Buffer that Tasks on elements write is written by one of them, and wholly: kernels store tiles of all of it."""
    makers: dict[str, str] = {}
    states = {s for t in graph.tasks if is_scan(t) for s in states_of(t)}
    for task in graph.tasks:
        if any(a.mapping != "each" for a in task.axes):
            continue
        if len(task.nodes) != 1 or not isinstance(task.nodes[0], Operation):
            raise UnsupportedError(
                f"Task {task.name}: a Task on elements has one Operation",
                hint="give each Operation a space of its own: those that pay are joined in one kernel",
            )
        target = task.nodes[0].store.access
        buffer, name = graph.buffers[target.buffer], target.buffer
        extents = {a.name: a.extent for a in task.axes}
        is_state = name in states
        if name in makers:
            raise UnsupportedError(
                f"{name} is written by Task {makers[name]} and by Task {task.name}",
                hint="give each a Buffer of its own",
            )
        makers[name] = task.name
        for entry, size in list(zip(target.entries, buffer.shape, strict=True))[is_state:]:
            at = entry.at if isinstance(entry, Index) else None
            single = at == Affine() and size.number == 1
            if at is not None and not single and extents.get(at.name or "") != size:
                raise UnsupportedError(
                    f"Task {task.name} writes a part of {name}, which has {size} elements there",
                    hint="scheduled by hand (block, sequential) a Task may write a part",
                )


class _Sections:
    def __init__(
        self, graph: TiledGraph, rates: Rates, target: str | None, together: bool, known: Known
    ):
        self.graph = graph
        self.known = known
        self.rates = rates
        self.target = target
        self.together = together
        self.sections: list[list[Task] | Scan] = [[]]
        self.needed = {graph.memory(n) for n in graph.results}
        """Buffers that a later section reads, while the sections are gone through from the end."""

    def run(self) -> Schedule:
        self.split()
        done: list[Schedule] = []
        for number, section in reversed(list(enumerate(self.sections))):
            made = self.scan(section) if isinstance(section, Scan) else self.plain(section, number)
            if made is not None:
                done.insert(0, made)
        return self.joined(done)

    def split(self) -> None:
        graph = self.graph
        scans = [Scan(task) for task in graph.tasks if is_scan(task)]
        carries = {state: scan for scan in scans for state in scan.states}
        for operation in graph.operations():
            for access in operation.accesses:
                state = graph.memory(access.buffer)
                if access.buffer != state and state in carries:
                    raise UnsupportedError(
                        f"{operation.name}: {access.buffer} is another shape of the state {state}",
                        hint="a state is in registers: give it the shape in which it is used",
                    )
        for task in graph.tasks:
            if is_scan(task):
                self.sections += [next(s for s in scans if s.task is task), []]
                continue
            for operation in task.operations():
                target = operation.store.access
                if target.buffer in carries:
                    self.first(carries[target.buffer], operation)
                    break
                read = [e.access.buffer for e in operation.loads if e.access.buffer in carries]
                if read:
                    self.last(carries[read[0]], operation)
                    break
            else:
                plain = self.sections[-1]
                assert isinstance(plain, list)
                plain.append(task)
        for scan in scans:
            for state in scan.states:
                if state not in scan.first:
                    raise UnsupportedError(
                        f"the state {state} of Task {scan.task.name} has no begin"
                    )

    def first(self, scan: Scan, operation: Operation) -> None:
        target = operation.store.access
        if operation.op != "copy" or target.entries[0] != Index(Affine()):
            raise UnsupportedError(
                f"{operation.name}: a state begins with a copy to its element 0, written once"
            )
        (value,) = operation.operands
        if isinstance(value, TiledEdge):  # a Buffer that one number fills need not be made
            makers = [o for o in self.graph.operations() if o.store.access.buffer == value.access.buffer]  # fmt: skip
            if len(makers) == 1 and makers[0].op == "copy" and not makers[0].loads:
                operation = replace(operation, operands=makers[0].operands)
        scan.first[target.buffer] = operation

    def last(self, scan: Scan, operation: Operation) -> None:
        state = operation.loads[0].access
        if operation.op != "copy" or state.entries[0] != Index(scan.axis.extent):
            raise UnsupportedError(
                f"{operation.name}: the state {state.buffer} is read outside of Task {scan.task.name}",
                hint="of a state only the last element is kept; store the others to another Buffer as well",
            )
        scan.last.append(operation)

    # Sections, from the last one.

    def sources(self, operations: Iterable[Operation]) -> set[str]:
        """The Buffers that are read, by the names of their memory."""
        found = {a.buffer for each in operations for a in each.reads}
        return {self.graph.memory(n) for n in found if n in self.graph.buffers}

    def plain(self, tasks: list[Task], number: int) -> Schedule | None:
        graph = self.graph
        made = [o.store.access.buffer for t in tasks for o in t.operations()]
        results = tuple(n for n in made if graph.memory(n) in self.needed)
        if not results:
            return None
        operations = [o for t in tasks for o in t.operations()]
        names = self.sources(operations) | set(made) | {graph.memory(n) for n in made}
        written = {graph.memory(n) for n in made}
        names |= {a.buffer for o in operations for a in o.accesses}
        buffers = {
            n: replace(b, role=b.role if n in written or b.alias_of is not None else "input")
            for n, b in graph.buffers.items()
            if n in names
        }
        part = TiledGraph(f"{graph.name}_{number}", (), buffers, tasks, results)
        found = fuse.schedule(part, self.target, self.together, self.rates, self.known)
        self.needed |= self.sources(o for t in found.graph.tasks for o in t.operations())
        return found

    def scan(self, scan: Scan) -> Schedule | None:
        graph = self.graph
        scan.last = [o for o in scan.last if o.store.access.buffer in self.needed]
        made = [o.store.access.buffer for o in scan.task.operations()]
        outputs = [n for n in made if graph.memory(n) in self.needed and n not in scan.states]
        if not outputs and not scan.last:
            return None
        kernel = scan_kernel(graph, scan, outputs, self.rates)
        buffers = {n: b for n, b in graph.buffers.items() if n not in scan.states}
        result = TiledGraph(graph.name, (), buffers, [], ())
        result.tasks.append(build_scan(result, scan, kernel, f"{graph.name}_{scan.task.name}"))
        self.needed |= self.sources(result.tasks[0].operations())
        return Schedule(result, [kernel], kernel.cost.seconds)

    # Together.

    def joined(self, parts: list[Schedule]) -> Schedule:
        graph = self.graph
        states = {n for s in self.sections if isinstance(s, Scan) for n in s.states}
        known = {n: b for n, b in graph.buffers.items() if n not in states}
        result = TiledGraph(graph.name, (), {}, [], graph.results)
        kernels = [k for part in parts for k in part.kernels]
        local: dict[str, None] = {}
        for part in parts:
            own = [n for n, b in part.graph.buffers.items() if b.level != GLOBAL or n not in known]
            names: dict[str, str] = {}
            for name in own:
                names[name] = new = unused(name, local, known)
                local[new] = None
            part.graph.tasks = [renamed_task(t, names) for t in part.graph.tasks]
            for name in own:
                result.add(replace(part.graph.buffers[name], name=names[name]))
            result.tasks += part.graph.tasks
        used = {a.buffer for o in result.operations() for a in o.accesses}
        used |= {graph.memory(n) for n in used if n in known} | set(graph.results)
        whole = {n: b for n, b in known.items() if n in used or b.role != "local"}
        result.buffers = {**whole, **result.buffers}
        seconds = sum(part.unfused_seconds for part in parts)
        cuts = [cut for part in parts for cut in part.cuts]
        cuts += [
            f"{n} stays in memory: it is made before a scan, or read after it"
            for n in whole
            if known[n].role == "local" and known[n].alias_of is None
            and not any(cut.startswith(f"{n} ") for cut in cuts)
        ]  # fmt: skip
        return Schedule(result, kernels, seconds, cuts)
