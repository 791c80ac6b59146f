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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from tilewright.graph.affine import affine
from tilewright.graph.nodes import (
    Access,
    Combine,
    Gather,
    Index,
    Operation,
    Task,
    TiledGraph,
    substituted,
)
from tilewright.graph.operations import operation as entry_of


@dataclass(frozen=True)
class Statement:
    """One Operation on elements, in the axes of its nest."""

    name: str
    """The Buffer that it stores to."""
    operation: Operation
    axes: tuple[str, ...]

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


@dataclass(frozen=True)
class Recurrence:
    """The axis along which a nest carries state: a loop around everything else, one iteration at a time."""

    axis: str
    states: Mapping[str, str]
    """For every Buffer of state, which is read without the axis, the statement that makes its next value."""
    near: frozenset[str]
    """The axes of the states: no loop cuts them, since an iteration needs all that the one before it made."""
    whole: frozenset[str]
    """Those of them that are read as another axis than they are written: one tile covers them."""


@dataclass
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
    return Statement(operation.store.access.buffer, operation, axes)


@lru_cache(4096)
def _numbered(statement: Statement, number: int) -> Statement:
    axes = {a: f"{number}.{a}" for a in statement.axes}
    return Statement(statement.name, substituted(statement.operation, axes), tuple(axes.values()))


class _Union:
    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        while self.parent.get(name, name) != name:
            name = self.parent[name]
        return name

    def join(self, a: str, b: str) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[max(a, b, key=_age)] = min(a, b, key=_age)


def _age(name: str) -> tuple[int, str]:
    return (int(name.partition(".")[0]), name)


def nest_of(
    graph: TiledGraph,
    tasks: Sequence[Task],
    outputs: Sequence[str],
    states: Mapping[str, str] | None = None,
) -> Nest | str:
    """The nest of ``tasks``, or why there is none. `outputs`: the Buffers that others need.

    `states`: the Buffers that an iteration around the tasks carries, by the Buffers of their next values: their axes
    are those under which they are read, where nothing speaks against it.
    """
    plain = {t.nodes[0].store.access.buffer: statement_of(t) for t in tasks if t.nodes}  # pyright: ignore
    union = _Union()
    numbers = {name: i for i, name in enumerate(plain)}
    # Axes as "number.axis", so that the oldest name is the one that stays.
    local = {name: _numbered(s, numbers[name]) for name, s in plain.items()}
    extents = {
        f"{numbers[t.nodes[0].store.access.buffer]}.{a.name}": a.extent.number or 0  # pyright: ignore
        for t in tasks
        for a in t.axes
    }
    for consumer in local.values():
        for access in consumer.operation.reads:
            producer = local.get(access.buffer)
            if producer is None:
                near = [n for n in local if graph.shares(access.buffer, n)]
                if near:
                    what = (
                        "a part" if any(graph.buffers[n].start for n in near) else "another shape"
                    )
                    return f"{consumer.name} reads {access.buffer}, of which {min(near)} is {what}"
                continue
            fault = _identify(union, producer, consumer, access, extents)
            if fault is not None:
                return fault
    fault = _conflict(union, local)
    if fault is not None:
        return fault
    _share_parts(graph, union, local, extents)
    _share_reads(union, local, extents)
    _share_states(union, local, states or {})
    return _renamed(graph, union, local, extents, outputs)


def _identify(
    union: _Union,
    producer: Statement,
    consumer: Statement,
    access: Access,
    extents: Mapping[str, int],
) -> str | None:
    what = f"{consumer.name} reads {producer.name}"
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
            return f"{what} at {_local(str(read.at))}, which is no axis alone"
        elif extents.get(own) != extents.get(wanted):
            return f"{what} for {extents.get(wanted, 1)} of its {extents.get(own)} {_local(own)}"
        else:
            union.join(own, wanted)
    return None


def _local(text: str) -> str:
    return " ".join(word.rpartition(".")[2] for word in text.split(" "))


def _conflict(union: _Union, local: Mapping[str, Statement]) -> str | None:
    for statement in local.values():
        roots = [union.find(a) for a in statement.axes]
        if len(set(roots)) < len(roots):
            return f"{statement.name} reads a value under two index maps"
    return None


def _share_parts(
    graph: TiledGraph, union: _Union, local: Mapping[str, Statement], extents: Mapping[str, int]
) -> None:
    """What makes parts of one whole runs in the same loops, as far as they are as long."""
    seen: dict[str, Access] = {}
    for name, statement in local.items():
        if not graph.buffers[name].start:
            continue
        access = statement.operation.store.access
        pairs = _pairs(access, replace(seen.setdefault(graph.memory(name), access), buffer=name))
        saved = dict(union.parent)
        for a, b in pairs or ():
            if extents.get(a, a) == extents.get(b, b):
                union.join(a, b)
        if _conflict(union, local) is not None:
            union.parent = saved


def _share_reads(union: _Union, local: Mapping[str, Statement], extents: Mapping[str, int]) -> None:
    """Loops over the same elements of the same Buffer become one, where nothing speaks against it."""
    seen: dict[tuple[str, int], list[Access]] = {}
    for statement in local.values():
        for edge in statement.operation.loads:
            access = edge.access
            if access.buffer in local:
                continue
            for other in seen.setdefault((access.buffer, len(access.entries)), []):
                pairs = _pairs(access, other)
                if pairs is None or all(union.find(a) == union.find(b) for a, b in pairs):
                    continue
                if any(extents.get(a, a) != extents.get(b, b) for a, b in pairs):
                    continue
                saved = dict(union.parent)
                for a, b in pairs:
                    union.join(a, b)
                if _conflict(union, local) is not None:
                    union.parent = saved
            seen[access.buffer, len(access.entries)].append(access)


def _share_states(union: _Union, local: Mapping[str, Statement], states: Mapping[str, str]) -> None:
    for name, state in states.items():
        written = local[name].operation.store.access.entries[1:]
        for access in [a for s in local.values() for a in s.operation.reads if a.buffer == state]:
            for one, two in zip(access.entries, written, strict=True):
                if isinstance(one, Index) and isinstance(two, Index):
                    saved = dict(union.parent)
                    if one.at.name is not None and two.at.name is not None:
                        union.join(one.at.name, two.at.name)
                    if _conflict(union, local) is not None:
                        union.parent = saved


def _pairs(a: Access, b: Access) -> list[tuple[str, str]] | None:
    """The axes that two accesses to one Buffer have in the same places; None where they differ in more."""
    pairs: list[tuple[str, str]] = []
    for one, two in zip(a.entries, b.entries, strict=True):
        if isinstance(one, Gather) and isinstance(two, Gather):
            inner = _pairs(one.index, two.index) if one.index.buffer == two.index.buffer else None
            if inner is None:
                return None
            pairs += inner
        elif isinstance(one, Index) and isinstance(two, Index):
            if one.at == two.at:
                continue
            if one.at.name is not None and two.at.name is not None:
                pairs.append((one.at.name, two.at.name))
            else:
                return None
        else:
            return None
    return pairs


def _renamed(
    graph: TiledGraph,
    union: _Union,
    local: Mapping[str, Statement],
    extents: Mapping[str, int],
    outputs: Sequence[str],
) -> Nest:
    """The nest with axes named as in the last statements: those of outputs are what a reader looks for."""
    names: dict[str, str] = {}
    taken = {*graph.buffers, *graph.symbols}
    for statement in reversed(list(local.values())):
        for axis in statement.axes:
            root = union.find(axis)
            if root in names:
                continue
            base = axis.rpartition(".")[2]
            candidates = (base + n for n in ("", *map(str, range(1, 1000))))
            names[root] = next(c for c in candidates if c not in taken)
            taken.add(names[root])
    statements: dict[str, Statement] = {}
    for name, s in local.items():
        values = {a: affine(names[union.find(a)]) for a in s.axes}
        axes = tuple(names[union.find(a)] for a in s.axes)
        statements[name] = Statement(name, substituted(s.operation, values), axes)
    sizes = {names[union.find(a)]: e for a, e in extents.items()}
    return Nest(graph, statements, sizes, tuple(outputs))
