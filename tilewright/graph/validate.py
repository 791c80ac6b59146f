"""What makes a graph legal. Each message names the node, the edge and, where there is one, the element.

- Access maps fit their Buffers in rank; of what an Operation reads and writes the shapes agree.
- Slices and indices stay inside of their Buffer for the iterations of the Tasks around, as far as the extents are
  numbers; a last tile may reach over the end by less than a step.
- A Buffer is written before it is read; inputs are not written; every element of an output is written, and none
  twice unless the store accumulates: every axis around a plain store moves it. Where extents are numbers, element by
  element (`elements.py`): when the graph is made, and again when its symbols are bound.
- A Buffer that carries a value from one iteration to another is carried along an axis in sequence; every element that
  an iteration reads is written before it, and what the first iterations read is written before the loop.
- An edge from register to global memory (or back) past a level that a Buffer of the graph stands at is legal:
  :func:`skipped_levels` reports it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.diagnostics import CompileError, Location, did_you_mean
from tilewright.graph.affine import Affine
from tilewright.graph.elements import check_elements
from tilewright.graph.nodes import (
    GLOBAL,
    LEVELS,
    Access,
    Axis,
    Buffer,
    Entry,
    Gather,
    Index,
    Operation,
    Slice,
    Task,
    TiledGraph,
    walk,
)
from tilewright.graph.operations import OPERATIONS
from tilewright.graph.operations import operation as entry_of
from tilewright.graph.text import print_access, print_operation


def validate(graph: TiledGraph, places: Mapping[int, Location] | None = None) -> None:
    """Raises CompileError for the first rule that the graph breaks.

    `places`: by identity of Buffers and Operations where they stand in a text, for the error's location.
    """
    _Checks(graph, places or {}).run()


class _Checks:
    def __init__(self, graph: TiledGraph, places: Mapping[int, Location]):
        self.graph, self.places = graph, places
        self.written = {graph.memory(b.name) for b in graph.inputs}
        self.written |= {graph.memory(b.name) for b in graph.buffers.values() if b.zeroed}
        self.stores: dict[str, list[tuple[Operation, tuple[Axis, ...]]]] = {}

    @contextmanager
    def at(self, node: Buffer | Operation) -> Generator[None]:
        """What is wrong with a node is placed there."""
        try:
            yield
        except CompileError as error:
            raise error.at(self.places.get(id(node))) from None

    def run(self) -> None:
        for buffer in self.graph.buffers.values():
            with self.at(buffer):
                self.buffer(buffer)
        for around, operation in walk(self.graph.tasks):
            axes = tuple(axis for task in around for axis in task.axes)
            with self.at(operation):
                self.operation(operation, around[-1], axes)
        self.carried()
        for name in self.graph.results:
            memory = self.graph.memory(name)
            if memory not in self.written:
                with self.at(self.graph.buffers[name]):
                    raise CompileError(f"output {name} is never written")
        for buffer in self.graph.buffers.values():
            if buffer.role == "output":
                with self.at(buffer):
                    self.covered(buffer)
        check_elements(self.graph)

    def buffer(self, buffer: Buffer) -> None:
        if buffer.level not in LEVELS:
            raise CompileError(
                f"Buffer {buffer.name} stands at level {buffer.level!r}",
                rule=f"the levels are {', '.join(LEVELS)}",
            )
        if buffer.role != "local" and buffer.level != GLOBAL:
            raise CompileError(f"{buffer.role} {buffer.name} must stand in global memory")
        for extent in buffer.shape:
            if extent.number is not None and extent.number < 0:
                raise CompileError(f"Buffer {buffer.name} has the extent {extent}")
        for name in (n for extent in buffer.shape for n in extent.names):
            if name not in self.graph.symbols:
                raise CompileError(f"Buffer {buffer.name}: {name} is no symbol of the graph")
        if buffer.alias_of is not None:
            origin = self.graph.buffers.get(buffer.alias_of)
            if origin is None or origin.dtype != buffer.dtype or origin.level != buffer.level:
                raise CompileError(f"Buffer {buffer.name} is no other shape of {buffer.alias_of}")
            self.part(buffer, origin)

    def part(self, buffer: Buffer, origin: Buffer) -> None:
        """A part lies in what it is a part of; what is no part is another shape of all of it."""
        if not buffer.start:
            if origin.start:
                raise CompileError(
                    f"Buffer {buffer.name} is another shape of {origin.name}, a part of {origin.alias_of}",
                    rule="another shape is of a memory that is whole",
                )
            return
        if len(buffer.start) != len(origin.shape) or len(buffer.shape) != len(origin.shape):
            raise CompileError(
                f"Buffer {buffer.name} has {len(buffer.shape)} dimensions, {origin.name} {len(origin.shape)}",
                rule="a part has the dimensions of what it is a part of",
            )
        ends = [at + size for at, size in zip(buffer.start, buffer.shape, strict=True)]
        for place, (start, end, extent) in enumerate(
            zip(buffer.start, ends, origin.shape, strict=True)
        ):
            over = (end - extent).number
            if (start.number or 0) < 0 or (over is not None and over > 0):
                raise CompileError(
                    f"Buffer {buffer.name} has the elements {start} to {end} of dimension {place} of {origin.name}, "
                    f"which has {extent}"
                )

    def operation(self, operation: Operation, task: Task, axes: Sequence[Axis]) -> None:
        where = f"Task {task.name}: {print_operation(self.graph, operation)}"
        entry = entry_of(operation.op)
        if entry is None:
            raise CompileError(
                f"{where}: there is no operation {operation.op}",
                hint=did_you_mean(operation.op, OPERATIONS, 3, 0.7)
                or f"there are {', '.join(OPERATIONS)}",
            )
        if len(operation.operands) != entry.arity:
            raise CompileError(
                f"{where}: {operation.op} takes {entry.arity} operands, not {len(operation.operands)}"
            )
        if entry.kind == "macro" and operation.op in self.graph.buffers:
            raise CompileError(f"{where}: a Buffer has the name of the macro kernel {operation.op}")
        for edge in operation.loads:
            for access in edge.access.accesses():
                known = access.buffer in self.graph.buffers
                if known and self.graph.memory(access.buffer) not in self.written:
                    raise CompileError(
                        f"{where}: the load of {access.buffer} comes before anything is stored there",
                        hint=f"put the node that writes {access.buffer} before it",
                    )
        for edge in operation.edges:
            for access in edge.access.accesses():
                self.access(access, edge.direction, where, axes)
        target = operation.store.access
        for access in list(target.accesses())[1:]:
            if self.graph.memory(access.buffer) not in self.written:
                raise CompileError(
                    f"{where}: the indices {access.buffer} are read before they are written"
                )
        buffer = self.graph.buffers[target.buffer]
        if buffer.role == "input":
            raise CompileError(f"{where}: the store goes to input {buffer.name}")
        self.numbers(operation, buffer, where)
        self.shapes(operation, where)
        self.written.add(self.graph.memory(target.buffer))
        self.stores.setdefault(target.buffer, []).append((operation, tuple(axes)))
        if buffer.level == GLOBAL and operation.store.combine is None:
            self.once(operation, buffer, where, axes)

    def numbers(self, operation: Operation, buffer: Buffer, where: str) -> None:
        """A number that fills a Buffer is one that its elements can be."""
        kind = buffer.dtype
        for value in () if operation.loads else operation.operands:
            if isinstance(value, float) and kind.is_integer and not value.is_integer():
                raise CompileError(f"{where}: {value} is no number of {kind}")

    def access(self, access: Access, what: str, where: str, axes: Sequence[Axis]) -> None:
        buffer = self.graph.buffers.get(access.buffer)
        if buffer is None:
            raise CompileError(f"{where}: the {what} is of {access.buffer}, which is no Buffer")
        if len(access.entries) != len(buffer.shape):
            raise CompileError(
                f"{where}: the {what} {print_access(self.graph, access)} has {len(access.entries)} "
                f"entries, and {buffer.name} {len(buffer.shape)} dimensions"
            )
        for dimension, (entry, extent) in enumerate(zip(access.entries, buffer.shape, strict=True)):
            fault = _outside(entry, extent, axes)
            if fault is not None:
                raise CompileError(
                    f"{where}: the {what} {print_access(self.graph, access)} reaches element {fault} "
                    f"of dimension {dimension} of {buffer.name}, which has {extent}"
                )
            if isinstance(entry, Gather):
                index = self.graph.buffers.get(entry.index.buffer)
                if index is not None and not index.dtype.is_integer:
                    raise CompileError(
                        f"{where}: the indices {index.name} of the {what} have elements of {index.dtype}"
                    )

    def shapes(self, operation: Operation, where: str) -> None:
        """What is stored has the shape of the result, and operands broadcast to it."""
        wanted = operation.store.access.shape
        loads = [(e, e.access.shape) for e in operation.loads]
        entry = entry_of(operation.op)
        if entry is None or entry.kind not in ("elementwise", "mma", "reduce", "transpose"):
            return
        if entry.kind == "mma" and len(loads) == 2:
            (a, left), (b, right) = loads
            if left == right == ():
                return
            if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
                raise CompileError(
                    f"{where}: the edges {print_access(self.graph, a.access)} {_shape(left)} and "
                    f"{print_access(self.graph, b.access)} {_shape(right)} are no operands of a product"
                )
            result = (left[0], right[1])
        elif entry.kind == "reduce" and loads and loads[0][1]:
            axis = operation.attribute("axis")
            shape = loads[0][1]
            if axis not in range(len(shape)):
                raise CompileError(f"{where}: axis {axis} is none of {_shape(shape)}")
            result = (*shape[:axis], Affine((), 1), *shape[axis + 1 :])
        elif entry.kind == "transpose" and loads:
            result = loads[0][1][::-1]
        else:
            for edge, shape in loads:
                if len(shape) > len(wanted):  # by indices that are a column [n, 1] in registers
                    shape = tuple(e for e in shape if e.number != 1)
                padded = (*(Affine((), 1) for _ in wanted[len(shape) :]), *shape)
                if len(shape) > len(wanted) or any(
                    a != b and a.number != 1 for a, b in zip(padded, wanted, strict=True)
                ):
                    raise CompileError(
                        f"{where}: the load {print_access(self.graph, edge.access)} has shape "
                        f"{_shape(shape)}, the store {_shape(wanted)}"
                    )
            return
        if result != wanted:
            raise CompileError(
                f"{where}: the result has shape {_shape(result)}, the store {_shape(wanted)}"
            )

    def once(self, op: Operation, buffer: Buffer, where: str, axes: Sequence[Axis]) -> None:
        """A plain store to global memory is moved by every axis around it."""
        moved = op.store.access.names
        for axis in axes:
            single = axis.extent.number is not None and axis.extent.number <= axis.step
            if axis.name not in moved and not single:
                raise CompileError(
                    f"{where}: every iteration of {axis.name} writes the same elements of {buffer.name}, "
                    f"the first among them {_first(op.store.access)}",
                    rule="an element is written once, or accumulated into",
                    hint=f"accumulate (+=), or move the store out of the loop over {axis.name}",
                )

    def carried(self) -> None:
        """Along an axis that moves loads and stores of one Buffer, elements are written before they are read."""
        stores: dict[str, list[tuple[int, tuple[Axis, ...], Access]]] = {}
        steps = list(enumerate(walk(self.graph.tasks)))
        for number, (around, operation) in steps:
            axes = tuple(axis for task in around for axis in task.axes)
            access = operation.store.access
            stores.setdefault(access.buffer, []).append((number, axes, access))
        for number, (around, operation) in steps:
            with self.at(operation):
                self.in_order(operation, number, around, stores)

    def in_order(
        self,
        operation: Operation,
        number: int,
        around: Sequence[Task],
        stores: Mapping[str, Sequence[tuple[int, tuple[Axis, ...], Access]]],
    ) -> None:
        axes = tuple(axis for task in around for axis in task.axes)
        where = f"Task {around[-1].name}: {print_operation(self.graph, operation)}"
        for access in (a for e in operation.loads for a in e.access.accesses()):
            what = f"{where}: the load {print_access(self.graph, access)}"
            written = stores.get(access.buffer, ())
            earlier: list[list[_Ahead]] = []
            later: list[_Ahead] = []
            at_once = False
            for n, own, a in written:
                inside = [axis for axis in axes if any(each is axis for each in own)]
                if ahead := _ahead(access, a, inside):
                    # The outermost axis along which they are apart says which is first.
                    first = next((each for each in ahead if each.steps), ahead[0])
                    at_once |= first.steps == 0 and n < number
                    if first.steps > 0:
                        earlier.append(ahead)
                    else:
                        later.append(first)
            if at_once or not (earlier or later):
                continue  # written before it in each iteration, or outside
            if not earlier:
                raise CompileError(
                    f"{what} is of an element that is not written yet",
                    rule=f"iteration {later[0].axis.name} reads what earlier ones, or Operations before it, stored",
                )
            for axis in (next(a.axis for a in ahead if a.steps) for ahead in earlier):
                if axis.mapping != "sequential":
                    raise CompileError(
                        f"{what} needs what another iteration of {axis.name} stores",
                        rule=f"the iterations are in no order: {axis.name} is mapped to {axis.mapping}",
                        hint="sequential(...)",
                    )
            for ahead, each in ((found, each) for found in earlier for each in found):
                outside = [
                    a.entries for _, own, a in written if not any(axis is each.axis for axis in own)
                ]
                # Where what is written along other axes begins.
                others = [
                    (a.dimension, a.element + max(a.steps, 0))
                    for a in ahead
                    if a.axis is not each.axis
                ]
                for begin in each.not_stored():
                    at = [(each.dimension, begin), *others]
                    if not any(all(_holds(entries[d], n) for d, n in at) for entries in outside):
                        raise CompileError(
                            f"{what} is of element {begin} of dimension {each.dimension} in the "
                            f"{'first' if each.steps > 0 else 'last'} iteration, which nothing writes before"
                        )

    def covered(self, buffer: Buffer) -> None:
        """Every element of an output is written: along each dimension the stores reach the extent."""
        if buffer.zeroed or buffer.alias_of is not None:
            return
        stores = self.stores.get(buffer.name)
        if stores is None:
            return  # through another shape of its memory
        for dimension, extent in enumerate(buffer.shape):
            reach: list[Affine] = []
            for operation, axes in stores:
                end = _end(operation.store.access.entries[dimension], axes)
                if end is None:
                    return
                reach.append(end)
            if not any(_covers(end, extent) for end in reach):
                raise CompileError(
                    f"output {buffer.name}: element {reach[-1]} of dimension {dimension} is never written",
                    rule=f"every one of its {extent} elements is",
                )


def skipped_levels(graph: TiledGraph) -> list[str]:
    """The edges that pass by a level at which the graph has Buffers: legal, and worth a look."""
    found: list[str] = []
    levels = {b.level for b in graph.buffers.values()}
    for around, operation in walk(graph.tasks):
        target = LEVELS.index(graph.buffers[operation.store.access.buffer].level)
        for edge in operation.loads:
            source = LEVELS.index(graph.buffers[edge.access.buffer].level)
            low, high = sorted((source, target))
            skipped = [level for level in LEVELS[low + 1 : high] if level in levels]
            if skipped:
                text = print_access(graph, edge.access)
                found.append(
                    f"Task {around[-1].name}: {operation.name}: the load {text} skips {', '.join(skipped)}"
                )
    return found


def _outside(entry: Entry, extent: Affine, axes: Sequence[Axis]) -> int | None:
    """An element that the entry reaches outside of its dimension; None where none is known."""
    if extent.number is None or isinstance(entry, Gather):
        return None
    if any(axis.extent.number == 0 for axis in axes):  # no iteration reaches anything
        return None
    start = entry.at if isinstance(entry, Index) else entry.start
    size = 1 if isinstance(entry, Index) else entry.size.number
    low = high = start.constant
    slack = 0
    by_name = {axis.name: axis for axis in axes}
    for name, factor in start.terms:
        axis = by_name.get(name)
        if axis is None or axis.extent.number is None:
            return None
        last = max(0, -(-axis.extent.number // axis.step) - 1) * axis.step
        low, high = low + min(0, factor * last), high + max(0, factor * last)
        slack = max(slack, abs(factor) * axis.step - 1)
    if low < 0:
        return low
    if size is None:
        return None
    # A tile may reach over the end; the part outside reads as padding and is not written.
    if slack:
        return high if high >= extent.number else None
    return high + size - 1 if high + size > extent.number else None


def _end(entry: Entry, axes: Sequence[Axis]) -> Affine | None:
    """Past-the-last element that a store reaches along a dimension; None where it depends on data."""
    if isinstance(entry, Gather):
        return None
    start = entry.at if isinstance(entry, Index) else entry.start
    size = Affine((), 1) if isinstance(entry, Index) else entry.size
    by_name = {axis.name: axis for axis in axes}
    if len(start.terms) == 1 and start.constant == 0:
        name, factor = start.terms[0]
        axis = by_name.get(name)
        if axis is None:
            return None
        if factor == 1 and size.number is not None and size.number >= axis.step:
            return axis.extent
        known = axis.extent.number
        if known is not None:  # the last step may begin anywhere before the end
            return size + (known - 1) // axis.step * axis.step * factor
        return axis.extent * factor + (size - axis.step * factor)
    if start.terms:
        return None
    return start + size


def _distance(access: Access, dimension: int, axis: Axis) -> int | None:
    """How far an index along a dimension is ahead of the axis that moves it; None where it is no such index."""
    entry = access.entries[dimension]
    return (entry.at - axis.name).number if isinstance(entry, Index) else None


class _Ahead(NamedTuple):
    axis: Axis
    dimension: int
    element: int
    """What is read in the first iteration."""
    steps: int
    """So many iterations before it is read, an element is written."""

    def not_stored(self) -> range:
        """What is read that no iteration stores: in the first ones, or in the last ones where steps are back."""
        last = self.axis.extent.number
        if self.steps >= 0 or last is None:
            return range(self.element, self.element + self.steps)
        return range(self.element + max(last + self.steps, 0), self.element + last)


def _ahead(read: Access, written: Access, axes: Sequence[Axis]) -> list[_Ahead]:
    """How far a store is ahead of a load along the axes that move both, outermost first."""
    found: list[_Ahead] = []
    for axis in axes:
        for dimension in range(len(read.entries)):
            element, at = (_distance(a, dimension, axis) for a in (read, written))
            if element is not None and at is not None:
                found.append(_Ahead(axis, dimension, element, at - element))
    return found


def _holds(entry: Entry, element: int) -> bool:
    """May an entry be of an element?"""
    if isinstance(entry, Index):
        return entry.at.number in (None, element)
    if isinstance(entry, Slice):
        end = (entry.start + entry.size).number
        return (entry.start.number or 0) <= element and (end is None or element < end)
    return True


def _covers(end: Affine, extent: Affine) -> bool:
    rest = (end - extent).number
    return rest is None or rest >= 0


def _first(access: Access) -> str:
    zero = access.substitute(dict.fromkeys(access.names, 0))
    parts = [
        str(e.at) if isinstance(e, Index) else str(e.start) if isinstance(e, Slice) else "*"
        for e in zero.entries
    ]
    return f"[{', '.join(parts)}]"


def _shape(shape: Sequence[Affine]) -> str:
    return f"[{', '.join(map(str, shape))}]"
