"""A Buffer that several Tasks write, each a part of it: `np.concatenate`, and whatever writes box after box.

    for i, j in space("joined", each(M), each(64)):        joined_0 = buffer(f32[M, 64], alias_of=joined[0:M, 0:64])
        joined[i, j] = copy(a[i, j])                       joined_1 = buffer(f32[M, 32], alias_of=joined[0:M, 64:96])
    for i, j in space("joined", each(M), each(32)):   ->   for i, j in space("joined_0", each(M), each(64)):
        joined[i, j + 64] = copy(b[i, j])                      joined_0[i, j] = copy(a[i, j])
                                                           ...

:func:`in_views` gives every part a Buffer of its own, a view of the whole's memory: a kernel writes all of what it
makes. What is read within one part is read from that part, so that it may never be in memory.

:func:`spread` gives what reads the whole to its parts: an axis along which it reads parts is cut where they meet.
What is made along the axis is itself made in parts; a sum over it is the sum of sums:

    y[i, k] += mma(joined[i, j], w[j, k])     ->     y_0[i, k] += mma(a[i, j], w[j, k])
                                                     y_1[i, k] += mma(b[i, j], w[j + 64, k])
                                                     y[i, k] = add(y_0[i, k], y_1[i, k])

Both for graphs whose extents are numbers. A scan carries its state near the workgroup, so that in its body no whole
is put together in memory: there everything is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from tilewright.diagnostics import UnsupportedError
from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import (
    GLOBAL,
    Access,
    Buffer,
    Index,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    redirected,
    substituted,
    unused,
    walk,
)
from tilewright.graph.operations import computing
from tilewright.graph.parts import Range, in_parts, range_of
from tilewright.graph.recurrence import is_scan, states_of

Box = tuple[Range, ...]
"""For every dimension the first position, and how many."""
MOST = 64
"""Tasks that are cut when wholes are spread: with more, the wholes stay in memory."""


def in_views(graph: TiledGraph, states: Collection[str] = ()) -> TiledGraph:
    """The graph with a view for every part of a Buffer that Tasks on elements write in parts; `states` stay.

    The same graph where there is none. Raises UnsupportedError for parts that are no boxes, or leave elements.
    """
    stores: dict[str, list[tuple[Operation, Box | None]]] = {}
    scheduled: set[str] = set()
    for around, operation in walk(graph.tasks):
        name = operation.store.access.buffer
        stores.setdefault(name, []).append((operation, _box(operation.store.access, around)))
        if not _is_on_elements(around[-1]):
            scheduled.add(name)
    names: dict[int, str] = {}
    buffers = dict(graph.buffers)
    for name, made in stores.items():
        whole, boxes = graph.buffers[name], [box for _, box in made]
        if whole.level != GLOBAL or whole.start or name in states or name in scheduled:
            continue
        scatters = any(not isinstance(e, Index) for o, _ in made for e in o.store.access.entries)
        if scatters or boxes == [tuple((0, e.number) for e in whole.shape)]:
            continue
        size = sum(prod(n for _, n in box) for box in boxes if box is not None)
        if None in boxes or not (whole.zeroed or size == prod(e.number or 0 for e in whole.shape)):
            text = ", ".join(map(str, whole.shape))
            raise UnsupportedError(
                f"{name} [{text}] is written by {len(made)} Task{'s' * (len(made) > 1)} on elements, in parts that are "
                "not all of it",
                rule="a part is a run of elements along every dimension, and the parts are the whole",
            )
        for number, (operation, box) in enumerate(made):
            assert box is not None
            part = unused(f"{name}_{number}", buffers, graph.symbols)
            buffers[part] = _view(whole, part, box)
            names[id(operation)] = part
    if not names:
        return graph

    def renamed(task: Task, around: Sequence[Task]) -> list[Task]:
        operation = _only(task)
        part = names.get(id(operation))
        if part is None:
            return [task]
        starts = [s.number or 0 for s in buffers[part].start]
        target = _moved(operation.store.access, part, starts)
        made = replace(operation, store=replace(operation.store, access=target))
        return [Task(part, task.axes, [made])]

    tasks = _rewritten(graph.tasks, renamed)
    return _from_parts(TiledGraph(graph.name, graph.symbols, buffers, tasks, graph.results))


def spread(graph: TiledGraph, names: Collection[str]) -> TiledGraph:
    """The graph with what reads these wholes cut where their parts meet, as far as it can be; and what reads that."""
    wanted = set(names)
    for _ in range(MOST):
        found = _next_cut(graph, wanted)
        if found is None:
            break
        task, axis, cuts = found
        wanted.add(_whole_of(graph.buffers[_only(task).store.access.buffer]))
        graph = _from_parts(_cut(graph, task, axis, cuts))
    return graph


def wholes(graph: TiledGraph, within: Sequence[Task] | None = None) -> list[str]:
    """The Buffers that are written in parts and read otherwise; only those that are read by the Tasks `within`."""
    made = _parts(graph)
    parts = {n for each in made.values() for n in each}
    reads = [a.buffer for _, o in walk(within or graph.tasks) for a in o.reads]
    found = {graph.memory(n) for n in reads if n not in parts}
    return [n for n in made if graph.memory(n) in found]


def apart(graph: TiledGraph) -> TiledGraph:
    """The graph with what is read in parts made in parts; in scans also where something else reads all of it.

    What reads all is cut where the parts meet then, as what reads a whole is by :func:`spread`: a norm over the gates
    of a recurrent cell.
    """
    for _ in range(MOST):
        graph = in_parts(graph)
        found = _next_split(graph)
        if found is None:
            break
        task, axis, cuts = found
        made = _whole_of(graph.buffers[_only(task).store.access.buffer])
        graph = spread(_from_parts(_cut(graph, task, axis, cuts)), [made])
    return graph


def _next_split(graph: TiledGraph) -> tuple[Task, str, list[Range]] | None:
    """The first Task in a scan that reads across the border of what another one reads there, an axis, and its cuts."""
    for scan in filter(is_scan, graph.tasks):
        made = {o.store.access.buffer for o in scan.operations()} - {*states_of(scan)}
        read = [
            (task, edge.access, dimension, *place)
            for (_, task), operation in walk([scan])
            for edge in operation.loads
            for dimension, entry in enumerate(edge.access.entries)
            if edge.access.buffer in made
            for place in [range_of(entry, task.axes)]
            if place is not None
        ]
        borders: dict[tuple[str, int], set[int]] = {}
        for _, access, dimension, first, size in read:
            borders.setdefault((access.buffer, dimension), set()).update((first, first + size))
        for task, access, dimension, first, size in read:
            at = [b for b in borders[access.buffer, dimension] if first < b < first + size]
            entry = access.entries[dimension]
            if (
                not at
                or not isinstance(entry, Index)
                or not _may_cut(graph, task, entry.at.names[0])
            ):
                continue
            ends = [first, *sorted(at), first + size]
            cuts = [(a - entry.at.constant, b - a) for a, b in pairwise(ends)]
            return task, entry.at.names[0], cuts
    return None


# Views ------------------------------------------------------------------------------------------------------------


def _is_on_elements(task: Task) -> bool:
    nodes = task.nodes
    on_elements = all(a.mapping == "each" for a in task.axes)
    return on_elements and len(nodes) == 1 and isinstance(nodes[0], Operation)


def _only(task: Task) -> Operation:
    (node,) = task.nodes
    assert isinstance(node, Operation)
    return node


def _rewritten(
    tasks: Iterable[Task],
    change: Callable[[Task, Sequence[Task]], list[Task]],
    around: tuple[Task, ...] = (),
) -> list[Task]:
    """Tasks with those on elements changed; `change` takes the Tasks around as well, it among them."""
    made: list[Task] = []
    for task in tasks:
        inner = (*around, task)
        if _is_on_elements(task):
            made += change(task, inner)
        elif all(isinstance(n, Task) for n in task.nodes):
            nodes = [n for n in task.nodes if isinstance(n, Task)]
            made.append(replace(task, nodes=list(_rewritten(nodes, change, inner))))
        else:
            made.append(task)
    return made


def _view(whole: Buffer, name: str, box: Box) -> Buffer:
    """The Buffer of a part of another one, which may be a part itself."""
    first = whole.start or (Affine(),) * len(box)
    start = tuple(at + s for at, (s, _) in zip(first, box, strict=True))
    origin = whole.alias_of if whole.start else whole.name
    shape = tuple(affine(n) for _, n in box)
    return Buffer(name, GLOBAL, shape, whole.dtype, alias_of=origin, start=start)


def _box(access: Access, around: Sequence[Task]) -> Box | None:
    """What an access reaches; None where that is no box."""
    axes = [a for t in around for a in t.axes]
    found = [range_of(entry, axes) for entry in access.entries]
    return tuple(r for r in found if r is not None) if None not in found else None


def _whole_of(buffer: Buffer) -> str:
    """The Buffer of which one is a part; itself, where it is none."""
    return buffer.alias_of or buffer.name if buffer.start else buffer.name


def _place(buffer: Buffer) -> Box:
    """Where a Buffer is in the one whose memory it is."""
    start = buffer.start or (Affine(),) * len(buffer.shape)
    return tuple((s.number or 0, e.number or 0) for s, e in zip(start, buffer.shape, strict=True))


def _moved(access: Access, name: str, starts: Sequence[int]) -> Access:
    """An access to the same elements by another Buffer, which begins so much later."""
    entries = [
        Index(e.at - s) if isinstance(e, Index) else e
        for e, s in zip(access.entries, starts, strict=True)
    ]
    return Access(name, tuple(entries))


def _parts(graph: TiledGraph) -> dict[str, dict[str, Box]]:
    """For every whole that Tasks write in parts: the parts, and where they are."""
    found: dict[str, dict[str, Box]] = {}
    for operation in graph.operations():
        buffer = graph.buffers[operation.store.access.buffer]
        if buffer.start and buffer.alias_of is not None:
            found.setdefault(buffer.alias_of, {})[buffer.name] = _place(buffer)
    return found


def _from_parts(graph: TiledGraph) -> TiledGraph:
    """The graph with what lies in one part read from there; wholes that nothing needs then are no memory."""
    parts = _parts(graph)

    def read(access: Access, around: Sequence[Task]) -> Access:
        buffer = graph.buffers[access.buffer]
        known = parts.get(_whole_of(buffer))
        if known is None or access.buffer in known:
            return access
        axes = [a for t in around for a in t.axes]
        ranges = [
            (first + at, n)
            for entry, (first, extent) in zip(access.entries, _place(buffer), strict=True)
            for at, n in [range_of(entry, axes) or (0, extent)]
        ]
        for name, box in known.items():
            if all(b <= r and r + n <= b + m for (b, m), (r, n) in zip(box, ranges, strict=True)):
                firsts = [b - f for (b, _), (f, _) in zip(box, _place(buffer), strict=True)]
                return _moved(access, name, firsts)
        return access

    def redirect(task: Task, around: Sequence[Task]) -> list[Task]:
        operation = _only(task)
        if all(_whole_of(graph.buffers[a.buffer]) not in parts for a in operation.reads):
            return [task]
        made = operation.store.access.buffer
        nodes = redirected(operation, lambda a: a if a.buffer == made else read(a, around))
        return [replace(task, nodes=[nodes])]

    tasks = _rewritten(graph.tasks, redirect)
    made = TiledGraph(graph.name, graph.symbols, dict(graph.buffers), tasks, graph.results)
    kept = {*map(made.memory, (*wholes(made), *made.results))}
    for whole, each in parts.items():
        for name in each if made.memory(whole) not in kept else ():
            made.buffers[name] = replace(made.buffers[name], alias_of=None, start=())
    return made.needed()


# Cuts -------------------------------------------------------------------------------------------------------------


def _next_cut(graph: TiledGraph, wanted: set[str]) -> tuple[Task, str, list[Range]] | None:
    """The first Task that reads more than a part of a whole, the axis along which it does, and the cuts of that."""
    parts = _parts(graph)
    for around, operation in walk(graph.tasks):
        task = around[-1]
        if not _is_on_elements(task):
            continue
        extents = {a.name: a.extent.number or 0 for a in task.axes}
        for edge in operation.loads:
            buffer = graph.buffers[edge.access.buffer]
            known = parts.get(_whole_of(buffer), {})
            if not known or _whole_of(buffer) not in wanted:
                continue
            boxes, place = list(known.values()), _place(buffer)
            apart = [d for d in range(len(place)) if len({box[d] for box in boxes}) > 1]
            if len(apart) != 1 or buffer.name in known:
                continue
            (dimension,) = apart
            entry = edge.access.entries[dimension]
            if not isinstance(entry, Index) or not entry.at.is_scaled(1):
                continue
            axis, first = entry.at.names[0], entry.at.constant + place[dimension][0]
            if axis not in extents or not _may_cut(graph, task, axis):
                continue
            cuts = [
                (low, high - low)
                for start, size in sorted(box[dimension] for box in boxes)
                for low, high in [(max(0, start - first), min(extents[axis], start + size - first))]
                if low < high
            ]
            if len(cuts) > 1:
                return task, axis, cuts
    return None


def _may_cut(graph: TiledGraph, task: Task, axis: str) -> bool:
    """Can an axis be cut: is it reduced, or one dimension of what is made, in a Buffer that is no state?"""
    store = _only(task).store
    if not all(isinstance(e, Index) for e in store.access.entries):
        return False
    entries = [e.at for e in store.access.entries if isinstance(e, Index) and axis in e.at.names]
    buffer = graph.buffers[store.access.buffer]
    if not entries:
        return store.combine is not None
    states = {s for t in graph.tasks if is_scan(t) for s in states_of(t)}
    return len(entries) == 1 and entries[0].name == axis and buffer.name not in states


def _cut(graph: TiledGraph, task: Task, axis: str, cuts: Sequence[Range]) -> TiledGraph:
    """The graph with a Task for each cut of an axis, and what puts sums over it together."""
    operation, buffers = _only(task), dict(graph.buffers)
    target = operation.store.access
    whole = buffers[target.buffer]
    at = [i for i, e in enumerate(target.entries) if isinstance(e, Index) and axis in e.at.names]
    made: list[Task] = []
    for number, (first, size) in enumerate(cuts):
        name = unused(f"{whole.name}_{number}", buffers, graph.symbols)
        if at:
            box = tuple(
                (first, size) if d in at else (0, e.number or 0) for d, e in enumerate(whole.shape)
            )
            buffers[name] = _view(whole, name, box)
            access = replace(target, buffer=name)
        else:
            wide = computing(whole.dtype)
            buffers[name] = Buffer(name, GLOBAL, whole.shape, wide)
            access = replace(target, buffer=name)
        # What is read moves, what is written is the part's own.
        moved = substituted(operation, {axis: affine(axis) + first})
        moved = replace(moved, store=replace(operation.store, access=access))
        axes = tuple(replace(a, extent=affine(size)) if a.name == axis else a for a in task.axes)
        if size == 1:
            moved = substituted(moved, {axis: Affine()})
            axes = tuple(a for a in axes if a.name != axis)
        made.append(Task(name, axes, [moved]))
    if not at:
        made += _combined(task, [t.name for t in made], graph, buffers)

    def replaced(each: Task, around: Sequence[Task]) -> list[Task]:
        return made if each is task else [each]

    tasks = _rewritten(graph.tasks, replaced)
    return TiledGraph(graph.name, graph.symbols, buffers, tasks, graph.results)


def _combined(
    task: Task, parts: Sequence[str], graph: TiledGraph, buffers: dict[str, Buffer]
) -> list[Task]:
    """Tasks that put the sums over the parts of an axis together."""
    operation = _only(task)
    target, combine = operation.store.access, operation.store.combine
    assert combine is not None
    axes = tuple(a for a in task.axes if a.name in target.names)
    made: list[Task] = []
    total, *rest = parts
    for number, part in enumerate(rest):
        name = target.buffer
        if number < len(rest) - 1:
            name = unused(f"{target.buffer}_{combine}", buffers, graph.symbols)
            buffers[name] = replace(buffers[part], name=name)
        loads = tuple(TiledEdge("load", replace(target, buffer=n)) for n in (total, part))
        edge = TiledEdge("store", replace(target, buffer=name))
        made.append(Task(name, axes, [Operation(combine, loads, edge)]))
        total = name
    return made
