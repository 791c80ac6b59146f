"""The data structure: a dataflow graph over a memory hierarchy.

A :class:`TiledGraph` holds :class:`Buffer`\\ s, each at a level of the memory hierarchy, and Tasks. A :class:`Task`
is a DAG of Operations and Tasks under an iteration space; an :class:`Operation` is one stateless tensor
operation. :class:`TiledEdge`\\ s are the loads and stores between Operations and Buffers; each has an access map,
one :data:`Entry` for every dimension of the Buffer: an index, a slice, or indices from data (a gather when read,
a scatter when written), affine in the iteration variables. A store may accumulate.

The same structure says a computation before and after it is scheduled. Before, every Task has one Operation on
elements, and its axes are ``each``:

    for i, j, k in space("scores", each(M), each(N), each(64)):
        scores[i, j] += mma(q[i, k], keys[j, k])

After, axes are mapped to the grid or to loops, steps are tiles, and values stay in registers:

    for m in space("kernel", block(M, 128)):
        for n in space("over_n", sequential(N, 128)):
            scores = mma(q[m:m + 128, 0:64], keys_t[0:64, n:n + 128])

Children of a Task run in their order, which therefore must be a topological order of the dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Union

from tilewright.diagnostics import Location
from tilewright.dtypes import DType
from tilewright.frozen import frozen, record
from tilewright.graph.affine import Affine, Extent, affine

if TYPE_CHECKING:
    from tilewright.graph.compiled import CompiledGraph
    from tilewright.graph.explain import Explanation

GLOBAL: Final = "global"
SHARED: Final = "shared"
REGISTER: Final = "register"
LEVELS: Final = (REGISTER, SHARED, "l1", "l2", GLOBAL)
"""Levels that a Buffer may stand at, nearest first; tables of machines name those between by their caches."""

Mapped = Literal["each", "block", "group", "sequential"]
"""What runs the iterations of an axis: nothing yet; workgroups of the grid; the threads of a workgroup
together, as one whole tile; or a loop, one after the other."""
MAPPINGS: Final[tuple[Mapped, ...]] = ("each", "block", "group", "sequential")

Role = Literal["input", "output", "local"]
Combine = Literal["add", "mul", "max", "min"]
COMBINES: Final[Mapping[Combine, str]] = {"add": "+", "mul": "*", "max": "|", "min": "&"}
"""How a store accumulates, with its sign in the text form (max and min are join and meet)."""


@frozen
class Index:
    """One position along a dimension."""

    at: Affine


@frozen
class Slice:
    """``size`` positions along a dimension, from ``start``."""

    start: Affine
    size: Affine


@frozen
class Gather:
    """Positions along a dimension that stand in a Buffer of integers; a scatter where it is written."""

    index: Access


Entry: TypeAlias = Index | Slice | Gather


@frozen
class Access:
    """An access map: which part of a Buffer is read or written."""

    buffer: str
    entries: tuple[Entry, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The iteration variables (and symbols) that it depends on."""
        found: set[str] = set()
        for entry in self.entries:
            if isinstance(entry, Index):
                found.update(entry.at.names)
            elif isinstance(entry, Slice):
                found.update(entry.start.names)
            else:
                found |= entry.index.names
        return frozenset(found)

    @property
    def shape(self) -> tuple[Affine, ...]:
        """Extents of what is accessed: an index has none, a gather those of its indices."""
        shape: list[Affine] = []
        for entry in self.entries:
            if isinstance(entry, Slice):
                shape.append(entry.size)
            elif isinstance(entry, Gather):
                shape += entry.index.shape
        return tuple(shape)

    def substitute(self, values: Mapping[str, Extent]) -> Access:
        """With iteration variables replaced by other expressions."""
        return Access(self.buffer, tuple(_substituted(e, values) for e in self.entries))

    def accesses(self) -> Iterator[Access]:
        """Itself, and the accesses to Buffers of indices inside of it."""
        yield self
        for entry in self.entries:
            if isinstance(entry, Gather):
                yield from entry.index.accesses()


def _substituted(entry: Entry, values: Mapping[str, Extent]) -> Entry:
    if isinstance(entry, Index):
        return Index(entry.at.substitute(values))
    if isinstance(entry, Slice):
        return Slice(entry.start.substitute(values), entry.size.substitute(values))
    return Gather(entry.index.substitute(values))


def unused(base: str, *taken: Container[str]) -> str:
    """`base`, or the first of `base_1`, `base_2`, ...: a name that none of `taken` has."""
    name, number = base, 1
    while any(name in names for names in taken):
        name, number = f"{base}_{number}", number + 1
    return name


@frozen
class TiledEdge:
    """A directed edge: a load from a Buffer, or a store to one, which may accumulate."""

    direction: Literal["load", "store"]
    access: Access
    combine: Combine | None = None


Operand: TypeAlias = TiledEdge | Affine | float
"""What an Operation takes: a load, an expression in symbols and iteration variables, or a number."""


@frozen
class Operation:
    """A stateless primitive tensor operation, or a macro kernel, by its name in the table of operations."""

    op: str
    operands: tuple[Operand, ...]
    store: TiledEdge
    attributes: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def loads(self) -> tuple[TiledEdge, ...]:
        return tuple(o for o in self.operands if isinstance(o, TiledEdge))

    @property
    def edges(self) -> tuple[TiledEdge, ...]:
        return (*self.loads, self.store)

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """What it reads: the places of its loads, and all indices of gathers and scatters."""
        loaded = (a for e in self.loads for a in e.access.accesses())
        return (*loaded, *list(self.store.access.accesses())[1:])

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What it reads, and the place that it writes."""
        return (*self.reads, self.store.access)

    @property
    def name(self) -> str:
        """What messages call it: the operation and what it makes."""
        return f"{self.op} -> {self.store.access.buffer}"

    def attribute(self, name: str, default: Any = None) -> Any:
        return dict(self.attributes).get(name, default)


@frozen
class Axis:
    """An iteration variable: ``name`` takes 0, step, 2 step, ... below ``extent``."""

    name: str
    extent: Affine
    mapping: Mapped = "each"
    step: int = 1


@record
class Task:
    """A DAG of Operations and Tasks under an iteration space; children stand in topological order."""

    name: str
    axes: tuple[Axis, ...]
    nodes: list[Operation | Task] = field(default_factory=list["Operation | Task"])

    def operations(self) -> Iterator[Operation]:
        """The Operations of it and of the Tasks in it."""
        for node in self.nodes:
            if isinstance(node, Task):
                yield from node.operations()
            else:
                yield node


TiledNode: TypeAlias = Union[Operation, Task, "Buffer"]


@frozen
class Buffer:
    """An addressable aggregation of tensors at a memory level, shared by Tasks.

    ``alias_of`` names a global Buffer whose memory it is, under another shape of as many elements; with ``start``, a
    part of it: so many elements along each of its dimensions, from there on.
    ``zeroed``: holds 0 when the graph starts (what is accumulated into in global memory).
    ``along``: of a register, the axes in whose steps its dimensions are, where they are in any.
    """

    name: str
    level: str
    shape: tuple[Affine, ...]
    dtype: DType
    role: Role = "local"
    alias_of: str | None = None
    zeroed: bool = False
    start: tuple[Affine, ...] = ()
    along: tuple[str | None, ...] = field(default=(), compare=False)

    @property
    def whole(self) -> Access:
        """The access map of all of it."""
        return Access(self.name, tuple(Slice(Affine(), extent) for extent in self.shape))

    def meets(self, other: Buffer) -> bool:
        """May it have an element in common with another one of the same memory? Not if both are parts, and apart."""
        pairs = zip(self.start, self.shape, other.start, other.shape, strict=False)
        for start, size, at, extent in pairs:
            ahead, behind = (at - start - size).number, (start - at - extent).number
            if (ahead is not None and ahead >= 0) or (behind is not None and behind >= 0):
                return False
        return True


@record
class TiledGraph:
    """Buffers and Tasks; ``symbols`` are the extents that are bound when the graph is launched."""

    name: str
    symbols: tuple[str, ...] = ()
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    tasks: list[Task] = field(default_factory=list[Task])
    results: tuple[str, ...] = ()
    """Names of the output Buffers in the order in which the compiled graph returns them."""

    @property
    def inputs(self) -> list[Buffer]:
        return [b for b in self.buffers.values() if b.role == "input"]

    @property
    def outputs(self) -> list[Buffer]:
        return [self.buffers[name] for name in self.results]

    def add(self, buffer: Buffer) -> Buffer:
        """Adds a Buffer; its name must be new."""
        assert buffer.name not in self.buffers, buffer.name
        self.buffers[buffer.name] = buffer
        return buffer

    def memory(self, name: str) -> str:
        """The Buffer whose memory a Buffer is."""
        origin = self.buffers[name].alias_of
        return name if origin is None else self.memory(origin)

    def lineage(self, name: str) -> Iterator[str]:
        """A Buffer, the one that it is another shape or a part of, and so on: the memory is the last."""
        origin: str | None = name
        while origin is not None:
            yield origin
            origin = self.buffers[origin].alias_of

    def sources(self) -> list[set[str]]:
        """For every Task the Buffers through which what it reads may be written: those, and what shares elements."""
        same: dict[str, list[str]] = {}
        for name in self.buffers:
            same.setdefault(self.memory(name), []).append(name)
        read = [{a.buffer for o in task.operations() for a in o.reads} for task in self.tasks]
        return [
            {n for name in each for n in same[self.memory(name)] if self.shares(name, n)}
            for each in read
        ]

    def shares(self, name: str, other: str) -> bool:
        """May two Buffers have an element in common?"""
        same = self.memory(name) == self.memory(other)
        return same and self.buffers[name].meets(self.buffers[other])

    def operations(self) -> Iterator[Operation]:
        for task in self.tasks:
            yield from task.operations()

    def bound(self, values: Mapping[str, int]) -> TiledGraph:
        """The graph with its symbols replaced by numbers."""
        buffers = {
            name: replace(
                b,
                shape=tuple(e.substitute(values) for e in b.shape),
                start=tuple(e.substitute(values) for e in b.start),
            )
            for name, b in self.buffers.items()
        }
        tasks = [bound_task(task, values) for task in self.tasks]
        left = tuple(s for s in self.symbols if s not in values)
        return TiledGraph(self.name, left, buffers, tasks, self.results)

    def needed(self) -> TiledGraph:
        """The graph without Tasks that no result needs, and without what they make."""
        wanted = set(self.results) | {self.memory(n) for n in self.results}
        kept: list[Task] = []
        for task in reversed(self.tasks):
            operations = list(task.operations())
            if not any(self.memory(o.store.access.buffer) in wanted for o in operations):
                continue
            kept.append(task)
            for access in (a for o in operations for a in o.accesses):
                wanted.update(self.lineage(access.buffer))
        buffers = {n: b for n, b in self.buffers.items() if n in wanted or b.role != "local"}
        return TiledGraph(self.name, self.symbols, buffers, kept[::-1], self.results)

    # What is done with it stands in modules of its own.

    def validate(self, places: Mapping[int, Location] | None = None) -> TiledGraph:
        """Itself, if it is legal; see :func:`tilewright.graph.validate.validate`."""
        from tilewright.graph.validate import validate

        validate(self, places)
        return self

    def compile(self, *, fuse: bool = True, **options: Any) -> CompiledGraph:
        """A function of arrays that runs the graph; see :class:`CompiledGraph`.

        ``fuse=False`` makes one kernel of every Task. The options are those of ``kernel.options``: target, ...
        """
        from tilewright.graph.compiled import CompiledGraph

        return CompiledGraph(self, options, fuse)

    def explain(self, target: str | None = None, **sizes: int) -> Explanation:
        """What running it on ``target`` costs, and why it is cut as it is; `sizes` are values for its symbols."""
        from tilewright.graph.explain import explain
        from tilewright.graph.sections import schedule

        return explain(schedule(self.bound(sizes), target))

    def __str__(self) -> str:
        from tilewright.graph.text import print_graph

        return print_graph(self)

    def _repr_svg_(self) -> str:
        from tilewright.graph.draw import draw

        return draw(self)

    def show(self, path: str) -> None:
        """Draws the graph to a file, as SVG; a notebook draws it by itself."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._repr_svg_())

    def mlir(self, *, generic: bool = False) -> str:
        """The graph as MLIR, in the `tgraph` dialect; `tw.graph.parse_mlir` reads it. `generic`: for other tools."""
        from tilewright.graph.mlir import print_mlir

        return print_mlir(self, generic=generic)

    def save(self, path: str) -> None:
        """Writes the text form to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(self))


def bound_task(task: Task, values: Mapping[str, Extent]) -> Task:
    """A Task with names in its extents, access maps and operands replaced."""
    axes = tuple(replace(a, extent=a.extent.substitute(values)) for a in task.axes)
    nodes = [
        bound_task(n, values) if isinstance(n, Task) else substituted(n, values) for n in task.nodes
    ]
    return Task(task.name, axes, nodes)


def redirected(operation: Operation, change: Callable[[Access], Access]) -> Operation:
    """An Operation whose accesses, those to indices included, are changed; itself where none is."""

    def access(a: Access) -> Access:
        if any(isinstance(e, Gather) for e in a.entries):
            inner = (Gather(access(e.index)) if isinstance(e, Gather) else e for e in a.entries)
            a = Access(a.buffer, tuple(inner))
        return change(a)

    def edge(e: TiledEdge) -> TiledEdge:
        made = access(e.access)
        return e if made is e.access else replace(e, access=made)

    operands = tuple(edge(o) if isinstance(o, TiledEdge) else o for o in operation.operands)
    store = edge(operation.store)
    pairs = zip((store, *operands), (operation.store, *operation.operands), strict=True)
    same = all(a is b for a, b in pairs)
    return operation if same else replace(operation, operands=operands, store=store)


def renamed(node: Operation | Task, names: Mapping[str, str]) -> Operation | Task:
    """A node with Buffers renamed, and with them the Tasks that are called after one."""
    if isinstance(node, Task):
        return renamed_task(node, names)
    return redirected(node, lambda a: replace(a, buffer=names.get(a.buffer, a.buffer)))


def renamed_task(task: Task, names: Mapping[str, str]) -> Task:
    """A Task with Buffers renamed; see :func:`renamed`."""
    name = names.get(task.name, task.name)
    return Task(name, task.axes, [renamed(n, names) for n in task.nodes])


def substituted(operation: Operation, values: Mapping[str, Extent]) -> Operation:
    """An Operation with names in its access maps and operands replaced."""

    def edge(e: TiledEdge) -> TiledEdge:
        return replace(e, access=e.access.substitute(values))

    def operand(o: Operand) -> Operand:
        if isinstance(o, TiledEdge):
            return edge(o)
        return o.substitute(values) if isinstance(o, Affine) else o

    attributes = tuple(
        (k, v.substitute(values) if isinstance(v, Affine) else v) for k, v in operation.attributes
    )
    return Operation(
        operation.op, tuple(map(operand, operation.operands)), edge(operation.store), attributes
    )


def load(buffer: str, *entries: Entry | Extent) -> TiledEdge:
    """A load edge; a plain expression is an index."""
    return TiledEdge("load", access(buffer, *entries))


def store(buffer: str, *entries: Entry | Extent, combine: Combine | None = None) -> TiledEdge:
    """A store edge; a plain expression is an index."""
    return TiledEdge("store", access(buffer, *entries), combine)


def access(buffer: str, *entries: Entry | Extent) -> Access:
    """An access map; a plain expression is an index."""
    found = [e if isinstance(e, (Index, Slice, Gather)) else Index(affine(e)) for e in entries]
    return Access(buffer, tuple(found))


def walk(tasks: Sequence[Task]) -> Iterator[tuple[tuple[Task, ...], Operation]]:
    """Every Operation with the Tasks around it, outermost first, in the order of execution."""
    for task in tasks:
        for node in task.nodes:
            if isinstance(node, Task):
                for around, operation in walk([node]):
                    yield (task, *around), operation
            else:
                yield (task,), node
