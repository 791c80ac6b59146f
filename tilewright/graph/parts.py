"""What is read in parts is made in parts: a slice of something computed is the same computation on slices.

    z = x @ w                                            z0 = x @ w[:, :H]
    sigmoid(z[:, :H]) * np.tanh(z[:, H:])       ->       z1 = x @ w[:, H:]
                                                         sigmoid(z0) * np.tanh(z1)

A kernel has one tile of a Buffer at a time, so that what reads two parts of it can only run after it, from memory.
Parts of their own are fused like anything else: the gates of a recurrent cell whose matrices stand side by side, a
gated layer with one weight. It is done where the kernels that follow are estimated to take less time (`sections.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import (
    Access,
    Axis,
    Entry,
    Index,
    Operation,
    Task,
    TiledGraph,
    redirected,
    substituted,
    unused,
    walk,
)

Range = tuple[int, int]
"""The first position along a dimension, and how many."""
Use = tuple[tuple[Task, ...], Operation]
"""An Operation that writes or reads a Buffer, and the Tasks around it."""
MOST = 8
"""Parts of one dimension: each is a Task, and Tasks are fused in time that grows faster than their number."""


def in_parts(graph: TiledGraph) -> TiledGraph:
    """A graph whose extents are numbers, with a Buffer for each part of what is only read in parts that do not overlap.

    The same graph where there is none. From the last Task to the first: what is cut reads parts of what it is made of.
    """
    makers, uses = [operation.store.access.buffer for operation in graph.operations()], _uses(graph)
    seen = {
        b.alias_of for b in graph.buffers.values()
    }  # in another shape: no cut makes or takes a view
    while makers:
        name = makers.pop()
        if name not in seen and (cut := _cut(graph, name, uses[name])) is not None:
            graph, uses = cut, _uses(cut)
    return graph


def _uses(graph: TiledGraph) -> Mapping[str, list[Use]]:
    """By Buffer, who writes and reads it, in the order of execution."""
    found: dict[str, list[Use]] = defaultdict(list)
    for around, operation in walk(graph.tasks):
        for name in {access.buffer for access in operation.accesses}:
            found[name].append((around, operation))
    return found


def _cut(graph: TiledGraph, name: str, uses: Sequence[Use]) -> TiledGraph | None:
    """The graph with a Buffer cut along the first dimension that is read in parts; None where there is none."""
    buffer = graph.buffers[name]
    (around, operation), *more = [(a, o) for a, o in uses if o.store.access.buffer == name]
    task = around[-1]
    if more or len([*task.operations()]) > 1 or any(a.mapping != "each" for a in task.axes):
        return None
    if buffer.role != "local" or buffer.alias_of or buffer.zeroed:
        return None
    for dimension, entry in enumerate(operation.store.access.entries):
        axis = entry.at.name if isinstance(entry, Index) else None
        if axis is None or all(axis != a.name for a in task.axes):
            continue
        ranges = _ranges(uses, name, dimension)
        apart = all(a + n <= b for (a, n), (b, _) in pairwise(ranges))
        if apart and ranges not in ([], [(0, buffer.shape[dimension].number)]):
            return _made(graph, task, uses, dimension, axis, ranges)
    return None


def _ranges(uses: Sequence[Use], name: str, dimension: int) -> list[Range]:
    """The parts of a Buffer's dimension that are read, in order; none where one is unknown, or they are many."""
    found: set[Range] = set()
    for around, operation in uses:
        loaded = [e.access for e in operation.loads]
        for access in operation.reads:
            if access.buffer == name:
                part = range_of(access.entries[dimension], [a for t in around for a in t.axes])
                if part is None or access not in loaded:
                    return []
                found.add(part)
    return sorted(found) if len(found) <= MOST else []


def range_of(entry: Entry, axes: Iterable[Axis]) -> Range | None:
    """The positions that an index takes; None for those that are not one after the other."""
    if not isinstance(entry, Index):
        return None
    if entry.at.number is not None:
        return entry.at.number, 1
    extents = {a.name: a.extent.number for a in axes}
    extent = extents.get(entry.at.names[0])
    return (entry.at.constant, extent) if entry.at.is_scaled(1) and extent is not None else None


def _made(
    graph: TiledGraph,
    task: Task,
    uses: Sequence[Use],
    dimension: int,
    axis: str,
    ranges: Sequence[Range],
) -> TiledGraph:
    """The graph with a Buffer, and a Task that makes it, for each of the parts."""
    changed = {id(node) for around, operation in uses for node in (*around, operation)}
    (operation,) = task.operations()
    whole = graph.buffers[operation.store.access.buffer]
    buffers = {n: b for n, b in graph.buffers.items() if n != whole.name}
    parts: dict[Range, str] = {}
    tasks: list[Task] = []
    for start, size in ranges:
        parts[start, size] = name = unused(
            f"{whole.name}_{start}", graph.buffers, buffers, graph.symbols
        )
        shape = [affine(size) if d == dimension else e for d, e in enumerate(whole.shape)]
        buffers[name] = replace(whole, name=name, shape=tuple(shape))
        moved = substituted(operation, {axis: affine(axis) + start})
        store = replace(operation.store, access=replace(operation.store.access, buffer=name))
        moved = replace(moved, store=store)
        axes = tuple(replace(a, extent=affine(size)) if a.name == axis else a for a in task.axes)
        if size == 1:
            moved = substituted(moved, {axis: Affine()})
            axes = tuple(a for a in axes if a.name != axis)
        tasks.append(Task(name, axes, [moved]))

    def rebuilt(
        nodes: Iterable[Operation | Task], around: tuple[Axis, ...]
    ) -> Iterator[Operation | Task]:
        for node in nodes:
            if node is task:
                yield from tasks
            elif id(node) not in changed:
                yield node
            elif isinstance(node, Task):
                inner = list(rebuilt(node.nodes, (*around, *node.axes)))
                yield Task(node.name, node.axes, inner)
            else:
                yield redirected(node, lambda a: part_of(a, around))

    def part_of(access: Access, around: tuple[Axis, ...]) -> Access:
        if access.buffer != whole.name:
            return access
        entries = list(access.entries)
        entry, found = entries[dimension], range_of(entries[dimension], around)
        assert isinstance(entry, Index) and found is not None
        entries[dimension] = Index(entry.at - found[0])
        return Access(parts[found], tuple(entries))

    new = [n for n in rebuilt(graph.tasks, ()) if isinstance(n, Task)]
    return TiledGraph(graph.name, graph.symbols, buffers, new, graph.results)
