"""Several Tasks on elements as one loop nest: their axes are identified where a value goes from one to the other.

Requires Tasks of one Operation each, on elements (as traced), with extents that are numbers. Gives a :class:`Nest`
in which an axis that a producer stores along and a consumer reads along is one axis:

    s[i, j] += mma(q[i, l], k[j, l])                 s[i, j] += mma(q[i, l], k[j, l])
    top[i] |= copy(s[i, j])               ->         top[i] |= copy(s[i, j])
    o[i, j] += mma(s[i, l], v[l, j])                 o[i, e] += mma(s[i, j], v[j, e])

or the reason why there is none: a value that is read under two index maps at once (``x @ x.T``), by a gather, through
a window, or after a scatter has to be in memory first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import TypeAlias

from tilewright.frozen import field, frozen, record
from tilewright.graph.nodes import (
    Access,
    Combine,
    Entry,
    Gather,
    Index,
    Operation,
    Task,
    TiledGraph,
    substituted,
)
from tilewright.graph.operations import operation as entry_of


@frozen
class Statement:
    """One Operation on elements, in the axes of its nest."""

    name: str
    """The Buffer that it stores to."""
    operation: Operation
    axes: tuple[str, ...]
    extents: tuple[int, ...]
    """Iterations of each axis."""

    def over(self, *axes: str) -> Statement:
        """The same Statement over axes of other names."""
        if axes not in self.others:
            names = dict(zip(self.axes, axes, strict=True))
            operation = substituted(self.operation, names)
            self.others[axes] = Statement(self.name, operation, axes, self.extents)
        return self.others[axes]

    @cached_property
    def others(self) -> dict[tuple[str, ...], Statement]:
        return {self.axes: self}

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all that it reads and writes."""
        return tuple(e for a in self.operation.accesses for e in a.entries)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The axes that the result has, in the order of its dimensions."""
        names: list[str] = []
        for entry in self.operation.store.access.entries:
            found = entry.at.names if isinstance(entry, Index) else Access("", (entry,)).names
            names += [n for n in sorted(found) if n in self.axes]
        return tuple(dict.fromkeys(names))

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        return tuple(a for a in self.axes if a not in self.kept)

    @property
    def is_reduction(self) -> bool:
        return bool(self.reduced)

    @property
    def scatters(self) -> bool:
        return any(isinstance(e, Gather) for e in self.operation.store.access.entries)

    @property
    def combine(self) -> Combine | None:
        return self.operation.store.combine

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The Buffers that it reads, each once."""
        return tuple(dict.fromkeys(a.buffer for a in self.operation.reads))

    @cached_property
    def flops(self) -> int:
        """Operations per element of its iteration space."""
        entry = entry_of(self.operation.op)
        return (entry.flops if entry is not None else 1) + (
            self.is_reduction and self.operation.op != "mma"
        )


@frozen
class Recurrence:
    """The axis along which a nest carries state: a loop around everything else, one iteration at a time."""

    axis: str
    states: Mapping[str, str]
    """For every Buffer of state, which is read without the axis, the statement that makes its next value."""
    near: frozenset[str]
    """The axes of the states: no loop cuts them, since an iteration needs all that the one before it made."""
    whole: frozenset[str]
    """Those of them that are read as another axis than they are written: one tile covers them."""


@record
class Nest:
    """Statements in topological order over common axes."""

    graph: TiledGraph
    statements: dict[str, Statement]
    extents: dict[str, int]
    outputs: tuple[str, ...]
    """Statements whose Buffers are read outside of the nest."""
    scalings: dict[tuple[str, str], tuple[str, float] | None] = field(
        default_factory=dict[tuple[str, str], "tuple[str, float] | None"]
    )
    """What `algebra.scaling` found for (a sum, a maximum) of the nest."""
    recurrence: Recurrence | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the statements, as they come."""
        return tuple(dict.fromkeys(a for s in self.statements.values() for a in s.axes))

    @cached_property
    def reach(self) -> Mapping[str, frozenset[str]]:
        """For every statement those that it depends on, itself among them."""
        found: dict[str, frozenset[str]] = {}
        for name, statement in self.statements.items():
            own = {name}
            for source in statement.sources:
                own |= found.get(source, frozenset())
            found[name] = frozenset(own)
        return found


def statement_of(task: Task) -> Statement:
    """The Statement of a Task as traced."""
    operation = task.nodes[0]
    assert isinstance(operation, Operation)
    axes = tuple(a.name for a in task.axes)
    extents = tuple(a.extent.number or 0 for a in task.axes)
    return Statement(operation.store.access.buffer, operation, axes, extents)


Own: TypeAlias = tuple[int, str]
"""An axis of a statement: the statement's number, and the name."""
Local: TypeAlias = Mapping[str, tuple[int, Statement]]
"""The statements by name, numbered, each with axes of its own."""


class _Union:
    """Axes that are one; of their names that of the oldest statement is the one that stays."""

    def __init__(self, axes: Iterable[Own]) -> None:
        self.parent: dict[Own, Own] = {}
        self.users = {axis: 1 << axis[0] for axis in axes}
        """For an axis that has no parent, the statements that run along it, as bits."""

    def find(self, axis: Own) -> Own:
        while (parent := self.parent.get(axis, axis)) != axis:
            axis = parent
        return axis

    def join(self, pairs: Iterable[tuple[Own, Own]], may_conflict: bool = False) -> None:
        """Makes the axes of each pair one; none of them where a statement runs along two that would be."""
        made: list[tuple[Own, Own, int]] = []
        for pair in pairs:
            kept, other = sorted(map(self.find, pair))
            if kept == other:
                continue
            users, more = (self.users.get(a, 0) for a in (kept, other))
            if users & more and not may_conflict:
                for axis, gone, before in reversed(made):
                    del self.parent[gone]
                    self.users[axis] = before
                return
            made.append((kept, other, users))
            self.parent[other] = kept
            self.users[kept] = users | more


def nest_of(
    graph: TiledGraph,
    statements: Sequence[Statement],
    outputs: Sequence[str],
    states: Mapping[str, str] | None = None,
) -> Nest | str:
    """The nest of statements, or why there is none. `outputs`: the Buffers that others need.

    `states`: the Buffers that an iteration around them carries, by the Buffers of their next values: their axes
    are those under which they are read, where nothing speaks against it.
    """
    local = {s.name: (number, s) for number, s in enumerate(statements)}
    extents = {
        (number, axis): extent
        for number, s in local.values()
        for axis, extent in zip(s.axes, s.extents, strict=True)
    }
    union = _Union(extents)
    memories: dict[str, list[str]] = {}
    for name in local:
        memories.setdefault(graph.memory(name), []).append(name)
    for _, consumer in local.values():
        for access in consumer.operation.reads:
            if access.buffer not in local:
                same = memories.get(graph.memory(access.buffer), ())
                near = [n for n in same if graph.shares(access.buffer, n)]
                if near:
                    what = (
                        "a part" if any(graph.buffers[n].start for n in near) else "another shape"
                    )
                    return f"{consumer.name} reads {access.buffer}, of which {min(near)} is {what}"
                continue
            fault = _identify(union, local, consumer.name, access, extents)
            if fault is not None:
                return fault
    fault = _conflict(union, local)
    if fault is not None:
        return fault
    _share_results(graph, union, local, extents, outputs, parts=True)
    _share_reads(union, local, extents)
    _share_states(union, local, states or {})
    _share_results(graph, union, local, extents, outputs, parts=False)
    return _renamed(graph, union, local, extents, outputs)


def _identify(
    union: _Union, local: Local, reader: str, access: Access, extents: Mapping[Own, int]
) -> str | None:
    (made, producer), (at, _) = local[access.buffer], local[reader]
    what = f"{reader} reads {producer.name}"
    if producer.scatters:
        return f"{what}, which is scattered to memory"
    for stored, read in zip(producer.operation.store.access.entries, access.entries, strict=True):
        assert isinstance(stored, Index)
        if not isinstance(read, Index):
            return f"{what} by indices from data"
        own, wanted = stored.at.name, read.at.name
        if own not in producer.axes:
            if stored.at != read.at:
                return f"{what} at {read.at}"
        elif wanted is None:
            return f"{what} at {read.at}, which is no axis alone"
        elif extents.get((made, own)) != extents.get((at, wanted)):
            length = extents.get((at, wanted), 1)
            return f"{what} for {length} of its {extents.get((made, own))} {own}"
        else:
            union.join([((made, own), (at, wanted))], may_conflict=True)
    return None


def _conflict(union: _Union, local: Local) -> str | None:
    for number, statement in local.values():
        roots = {union.find((number, a)) for a in statement.axes}
        if len(roots) < len(statement.axes):
            return f"{statement.name} reads a value under two index maps"
    return None


def _share_results(
    graph: TiledGraph,
    union: _Union,
    local: Local,
    extents: Mapping[Own, int],
    outputs: Sequence[str],
    parts: bool,
) -> None:
    """What makes parts of one whole, or else results of one shape, runs in the same loops where they are as long."""
    seen: dict[Hashable, tuple[int, Access]] = {}
    for name, (number, statement) in local.items():
        if parts != bool(graph.buffers[name].start) or not (parts or name in outputs):
            continue
        access = statement.operation.store.access
        key = graph.memory(name) if parts else graph.buffers[name].shape
        at, first = seen.setdefault(key, (number, access))
        pairs = _pairs(number, access, at, first, extents) or []
        same = [(a, b) for a, b in pairs if extents.get(a, a) == extents.get(b, b)]
        union.join(same)


def _share_reads(union: _Union, local: Local, extents: Mapping[Own, int]) -> None:
    """Loops over the same elements of the same Buffer become one, where nothing speaks against it."""
    seen: dict[tuple[str, int], dict[Hashable, tuple[int, Access]]] = {}
    for number, statement in local.values():
        for edge in statement.operation.loads:
            access = edge.access
            if access.buffer in local:
                continue
            others = seen.setdefault((access.buffer, len(access.entries)), {})
            for at, other in others.values():
                pairs = _pairs(number, access, at, other, extents) or []
                if all(extents.get(a, a) == extents.get(b, b) for a, b in pairs):
                    union.join(pairs)
            axes = tuple(union.find((number, n)) for n in sorted(access.names))
            others.setdefault((access.entries, axes), (number, access))


def _share_states(union: _Union, local: Local, states: Mapping[str, str]) -> None:
    for name, state in states.items():
        made, statement = local[name]
        written = statement.operation.store.access.entries[1:]
        for number, reader in local.values():
            for access in [a for a in reader.operation.reads if a.buffer == state]:
                for one, two in zip(access.entries, written, strict=True):
                    if isinstance(one, Index) and isinstance(two, Index):
                        a, b = one.at.name, two.at.name
                        if a is not None and b is not None:
                            union.join([((number, a), (made, b))])


def _pairs(
    at: int, a: Access, by: int, b: Access, extents: Mapping[Own, int]
) -> list[tuple[Own, Own]] | None:
    """The axes that two accesses to one Buffer, by statements of these numbers, have in the same places.

    None where they differ in more.
    """
    pairs: list[tuple[Own, Own]] = []
    for one, two in zip(a.entries, b.entries, strict=True):
        if isinstance(one, Gather) and isinstance(two, Gather):
            same = one.index.buffer == two.index.buffer
            inner = _pairs(at, one.index, by, two.index, extents) if same else None
            if inner is None:
                return None
            pairs += inner
        elif isinstance(one, Index) and isinstance(two, Index):
            own = at != by and any((at, n) in extents for n in one.at.names)
            if one.at == two.at and not own:
                continue
            if one.at.name is None or two.at.name is None:
                return None
            pairs.append(((at, one.at.name), (by, two.at.name)))
        else:
            return None
    return pairs


def _renamed(
    graph: TiledGraph,
    union: _Union,
    local: Local,
    extents: Mapping[Own, int],
    outputs: Sequence[str],
) -> Nest:
    """The nest with axes named as in the last statements: those of outputs are what a reader looks for."""
    names: dict[Own, str] = {}
    taken = {*graph.buffers, *graph.symbols}
    for number, statement in reversed(list(local.values())):
        for axis in statement.axes:
            root = union.find((number, axis))
            if root not in names:
                candidates = chain((axis,), (f"{axis}{n}" for n in count(1)))
                names[root] = next(c for c in candidates if c not in taken)
                taken.add(names[root])
    statements = {
        name: s.over(*(names[union.find((number, a))] for a in s.axes))
        for name, (number, s) in local.items()
    }
    sizes = {names[union.find(a)]: e for a, e in extents.items()}
    return Nest(graph, statements, sizes, tuple(outputs))
