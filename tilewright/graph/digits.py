"""Reshapes as addresses: where an element lies is said in digits, one for each dimension, of its place in memory.

A reshape is another shape of the same memory, and so is a boundary between kernels; one of a transposed view is a
copy as well. Neither has to be: a place in one shape is a place in another, as far as its digits are expressions.

:func:`addressed` reads what is copied where it came from, if that takes no more than another access map:

    copy[i, j, k] = copy(y[j, i, k + 64])               s[i, j, k] += mma(y[16 * i + j, ...])
    s[i, j, l] += mma(copy_as[i, j, l, k], ...)   ->

:func:`cut` cuts dimensions, and the axes that run along them, where a reshape does, or what is read in strides:

    y[i, j] += mma(x[i, k], w[k, j])                    y[i, h, d] += mma(x[i, k], w[k, 16 * h + d])
    q[i, h, d] = mul(y_as[i, h, d], c[i, d])      ->    q[i, h, d] = mul(y[i, h, d], c[i, d])

so that Tasks on either side can be one kernel. What is cut has smaller tiles: whether it pays is estimated
(`sections.py`). A dimension is cut in all that reads or writes it, or not at all. For graphs whose extents are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import (
    GLOBAL,
    Access,
    Axis,
    Buffer,
    Gather,
    Index,
    Operation,
    Task,
    TiledGraph,
    redirected,
    substituted,
    unused,
)
from tilewright.graph.recurrence import is_scan, states_of

Split = tuple[str, int]
"""An axis, and how many of its positions, one after the other, are one of an outer axis."""


def digits(
    flat: Affine, shape: Sequence[int], extents: Mapping[str, int]
) -> list[Affine] | Split | None:
    """The place ``flat`` of a memory as one in an array of ``shape``, for axes of these extents.

    A Split where the digits are expressions once an axis is split; None where they are none.
    """
    found: list[Affine] = []
    for size in reversed(shape):
        outermost = len(found) == len(shape) - 1
        factor = 0 if outermost else size  # the first digit has no digit before it
        inner = {n: c for n, c in flat.terms if outermost or c % factor}
        digit = Affine(tuple(inner.items()), flat.constant % factor if factor else flat.constant)
        low = digit.constant + sum(c * (extents[n] - 1) for n, c in inner.items() if c < 0)
        high = digit.constant + sum(c * (extents[n] - 1) for n, c in inner.items() if c > 0)
        if low < 0 or high >= size:
            return None if outermost else _straddling(inner, size, extents)
        found.append(digit)
        rest = flat - digit
        if not outermost:
            flat = Affine(tuple((n, c // size) for n, c in rest.terms), rest.constant // size)
    return found[::-1]


def _straddling(inner: Mapping[str, int], size: int, extents: Mapping[str, int]) -> Split | None:
    """The axis that goes through a digit more than once."""
    for name, factor in inner.items():
        if factor > 0 and size % factor == 0:
            within = size // factor
            if within < extents[name] and extents[name] % within == 0:
                return (name, within)
    return None


def addressed(graph: TiledGraph) -> TiledGraph:
    """The graph with what Tasks only copy read where it comes from; the same graph where there is none.

    What a Task made, and only one copies, whole, is left: it is stored as the copy is.
    """
    return graph if _is_scheduled(graph) else _Digits(graph).without_copies()


def cut(graph: TiledGraph) -> TiledGraph:
    """The graph with dimensions cut where reshapes and strides do; the same graph where there is none."""
    return graph if _is_scheduled(graph) else _Digits(graph).cut()


def _is_scheduled(graph: TiledGraph) -> bool:
    return any(not is_scan(t) and not _on_elements(t) for t in graph.tasks)


def _on_elements(task: Task) -> bool:
    alone = len(task.nodes) == 1 and isinstance(task.nodes[0], Operation)
    return alone and all(a.mapping == "each" for a in task.axes)


def _shape(buffer: Buffer) -> list[int]:
    return [e.number or 0 for e in buffer.shape]


def _strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[d + 1 :]) for d in range(len(shape))]


def _flat(access: Access, buffer: Buffer) -> Affine | None:
    """The place of an access in the memory of a Buffer; None where it depends on data."""
    total = Affine()
    for entry, stride in zip(access.entries, _strides(_shape(buffer)), strict=True):
        if not isinstance(entry, Index):
            return None
        total = total + entry.at * stride
    return total


class _ImpossibleError(Exception):
    """A dimension cannot be cut."""


class _Digits:
    """A graph whose Tasks are rewritten one by one."""

    def __init__(self, graph: TiledGraph):
        self.graph = graph
        self.buffers = dict(graph.buffers)
        self.tasks = list(graph.tasks)
        self.users: dict[str, set[int]] = {}
        """By Buffer, the numbers of the Tasks that write or read it."""
        for number, task in enumerate(self.tasks):
            self.used(number, task)
        self.queue: list[tuple[str, int, bool]] = []
        """Buffers to be cut: at which distance in memory, and is it needed?"""
        self.fronts: dict[str, str] = {}
        """For a result that is cut, the shape of it that is."""
        self.states = {s for t in graph.tasks if is_scan(t) for s in states_of(t)}

    def used(self, number: int, task: Task) -> None:
        for operation in task.operations():
            for access in operation.accesses:
                self.users.setdefault(access.buffer, set()).add(number)

    def made(self) -> TiledGraph:
        graph = self.graph
        if all(a is b for a, b in zip(self.tasks, graph.tasks, strict=True)):
            return graph
        made = TiledGraph(graph.name, graph.symbols, self.buffers, self.tasks, graph.results)
        return made.needed()

    def memory(self, name: str) -> str:
        origin = self.buffers[name].alias_of
        return name if origin is None else self.memory(origin)

    def shapes(self, name: str) -> list[str]:
        """The names of a Buffer's memory under all of its shapes; parts of it are none."""
        return [n for n, b in self.buffers.items() if not b.start and self.memory(n) == name]

    def readers(self, names: Sequence[str]) -> list[int]:
        return sorted({u for n in names for u in self.users.get(n, ())})

    def rewritten(self, number: int, change: Callable[[Access, Mapping[str, int]], Access]) -> None:
        """Changes the accesses of a Task; `change` takes the extents of the axes around as well."""

        def rebuilt(task: Task, around: Mapping[str, int]) -> Task:
            extents = {**around, **{a.name: a.extent.number or 0 for a in task.axes}}
            nodes: list[Operation | Task] = []
            for node in task.nodes:
                if isinstance(node, Task):
                    nodes.append(rebuilt(node, extents))
                    continue
                nodes.append(redirected(node, lambda a: change(a, extents)))
            same = all(a == b for a, b in zip(nodes, task.nodes, strict=True))
            return task if same else Task(task.name, task.axes, nodes)

        self.tasks[number] = made = rebuilt(self.tasks[number], {})
        self.used(number, made)

    # Copies.

    def without_copies(self) -> TiledGraph:
        for number in reversed(range(len(self.tasks))):  # so that a copy of a copy is none
            task = self.tasks[number]
            if _on_elements(task):
                (operation,) = task.operations()
                if self.is_copy(operation) and not self.is_moved(task, operation):
                    self.forwarded(number, operation)
        return self.made()

    def is_copy(self, operation: Operation) -> bool:
        target = operation.store.access
        buffer = self.buffers[target.buffer]
        plain = buffer.role == "local" and not buffer.start and buffer.alias_of is None
        if operation.op != "copy" or not operation.loads or not plain or operation.store.combine:
            return False
        source = operation.loads[0].access
        if target.buffer in self.states or self.memory(source.buffer) in self.states:
            return False
        if self.buffers[source.buffer].dtype is not buffer.dtype or buffer.level != GLOBAL:
            return False
        entries = (*target.entries, *source.entries)
        writers = [
            o
            for n in self.readers([target.buffer])
            for o in self.tasks[n].operations()
            if o.store.access.buffer == target.buffer
        ]
        names = [e.at.name or e.at.number for e in target.entries if isinstance(e, Index)]
        return (
            len(writers) == 1 and None not in names and all(isinstance(e, Index) for e in entries)
        )

    def is_moved(self, task: Task, operation: Operation) -> bool:
        """Is what is copied all of what some Task makes, each element once, and read by nothing else?"""
        source = operation.loads[0].access
        shapes = self.shapes(self.memory(source.buffer))
        if self.buffers[self.memory(source.buffer)].role == "input" or len(shapes) > 1:
            return False
        entries = [e.at for e in source.entries if isinstance(e, Index)]
        sizes = {a.name: a.extent for a in task.axes}
        own = zip(entries, self.buffers[source.buffer].shape, strict=True)
        whole = all(sizes.get(at.name or "") == e or e.number == 1 for at, e in own)
        return whole and len(sizes) == sum(map(bool, map(len, (at.names for at in entries)))) and len(
            self.readers(shapes)
        ) <= 2  # fmt: skip

    def forwarded(self, maker: int, operation: Operation) -> None:
        """What reads a copy reads what is copied, where its place there is an expression."""
        copy, source = operation.store.access, operation.loads[0].access
        buffer = self.buffers[copy.buffer]
        names = self.shapes(copy.buffer)

        def change(access: Access, extents: Mapping[str, int]) -> Access:
            if access.buffer not in names:
                return access
            flat = _flat(access, self.buffers[access.buffer])
            found = None if flat is None else digits(flat, _shape(buffer), extents)
            if not isinstance(found, list):
                return access
            own = [e.at.name for e in copy.entries if isinstance(e, Index)]
            values = {n: at for n, at in zip(own, found, strict=True) if n is not None}
            return source.substitute(values)

        for number in self.readers(names):
            if number != maker:
                self.rewritten(number, change)

    # Cuts.

    def cut(self) -> TiledGraph:
        for name, buffer in list(self.buffers.items()):
            made_here = self.buffers[self.memory(name)].role != "input"
            if buffer.alias_of is not None and not buffer.start and made_here:
                self.attempt(lambda n=name: self.resolve(n))
        for number in range(len(self.tasks)):
            for name, distance in list(self.strided(number)):
                self.attempt(lambda n=name, d=distance: self.cut_at(n, d))
        made = self.made()
        return made if made is self.graph else addressed(made)

    def attempt(self, change: Callable[[], None]) -> None:
        """Makes a change, and what follows from it, or none of it."""
        saved = dict(self.buffers), list(self.tasks), {n: set(u) for n, u in self.users.items()}
        try:
            change()
            wishes: list[tuple[str, int]] = []
            while self.queue:
                name, distance, needed = self.queue.pop(0)
                if needed:
                    self.cut_at(name, distance)
                else:
                    wishes.append((name, distance))
        except _ImpossibleError:
            self.queue.clear()
            self.buffers, self.tasks, self.users = saved
            return
        for name, distance in wishes:
            self.attempt(lambda n=name, d=distance: self.cut_at(n, d))

    def strided(self, number: int) -> Iterator[tuple[str, int]]:
        """What a Task reads in strides that are a whole part of a dimension."""
        for operation in self.tasks[number].operations():
            for access in operation.reads:
                buffer = self.buffers[access.buffer]
                if buffer.start or buffer.level != GLOBAL:
                    continue
                shape = _shape(buffer)
                for entry, size, stride in zip(access.entries, shape, _strides(shape), strict=True):
                    terms = entry.at.terms if isinstance(entry, Index) else ()
                    for _, factor in terms:
                        if factor > 1 and size % factor == 0:
                            yield access.buffer, stride * factor

    def resolve(self, name: str) -> None:
        """What reads a reshape reads the memory in its own shape, which is cut where the reshape is."""
        alias, origin = self.buffers[name], self.memory(name)
        for distance in _strides(_shape(alias)):
            self.cut_at(origin, distance)
        while self.queue and any(needed for _, _, needed in self.queue):
            at = next(i for i, (_, _, needed) in enumerate(self.queue) if needed)
            self.cut_at(*self.queue.pop(at)[:2])
        front = self.front(origin)

        def moved(access: Access, extents: Mapping[str, int]) -> Access | Split | None:
            if access.buffer != name:
                return access
            flat = _flat(access, alias)
            found = digits(flat, _shape(self.buffers[front]), extents) if flat is not None else None
            if isinstance(found, list):
                return Access(front, tuple(map(Index, found)))
            return found

        for number in self.readers([name]):
            self.moved(number, moved)

    def front(self, name: str) -> str:
        """The Buffer through which a memory is written and read, as far as it is not by a reshape."""
        return self.fronts[name] if self.fronts.get(name) in self.buffers else name

    def cut_at(self, name: str, distance: int) -> None:
        """Cuts the dimension of a Buffer in which elements `distance` apart in memory lie; see `digits`."""
        origin = self.memory(name)
        front = self.front(origin)
        buffer = self.buffers[front]
        if self.buffers[origin].role == "input":
            return self.cut_input(name, distance)
        if origin in self.states or buffer.zeroed:
            raise _ImpossibleError
        shape = _shape(buffer)
        places = _places(shape, distance)
        if places is None:
            return
        place, inner = places
        size = shape[place]
        new = [*shape[:place], size // inner, inner, *shape[place + 1 :]]
        to = front
        if self.buffers[origin].role != "local" and front == origin:
            to = self.fronts[origin] = unused(f"{origin}_cut", self.buffers, self.graph.symbols)

        def moved(access: Access, extents: Mapping[str, int]) -> Access | Split | None:
            if access.buffer != front or len(access.entries) != len(shape):
                return access
            entry = access.entries[place]
            if not isinstance(entry, Index):
                return None
            found = digits(entry.at, (size // inner, inner), extents)
            if not isinstance(found, list):
                return found
            before, after = access.entries[:place], access.entries[place + 1 :]
            return Access(to, (*before, *map(Index, found), *after))

        for number in self.readers([front]):
            self.moved(number, moved)
        extents = tuple(map(affine, new))
        local = replace(buffer, shape=extents)
        other = replace(local, name=to, role="local", alias_of=origin)
        self.buffers[to] = local if to == front else other

    def cut_input(self, name: str, distance: int) -> None:
        """What reads an input in strides reads another shape of it, where its digits are expressions."""
        buffer = self.buffers[name]
        shape = _shape(buffer)
        places = _places(shape, distance)
        if places is None:
            return
        place, inner = places
        new = [*shape[:place], shape[place] // inner, inner, *shape[place + 1 :]]
        same = (
            n for n in self.shapes(self.memory(name)) if _shape(self.buffers[n]) == new
        )  # fmt: skip
        if (to := next(same, None)) is None:  # the memory itself may have that shape
            to, origin = unused(f"{name}_cut", self.buffers, self.graph.symbols), self.memory(name)
            shaped = tuple(map(affine, new))
            self.buffers[to] = Buffer(to, GLOBAL, shaped, buffer.dtype, alias_of=origin)

        def change(access: Access, extents: Mapping[str, int]) -> Access:
            entry = access.entries[place] if access.buffer == name else None
            if not isinstance(entry, Index) or not any(c % inner == 0 for _, c in entry.at.terms):
                return access
            found = digits(entry.at, (shape[place] // inner, inner), extents)
            if not isinstance(found, list):
                return access
            before, after = access.entries[:place], access.entries[place + 1 :]
            return Access(to, (*before, *map(Index, found), *after))

        for number in self.readers([name]):
            self.rewritten(number, change)

    def moved(
        self, number: int, moved: Callable[[Access, Mapping[str, int]], Access | Split | None]
    ) -> None:
        """Changes the accesses of a Task, its axes split as that needs."""
        while True:
            wanted: list[Split] = []

            def change(
                a: Access, extents: Mapping[str, int], wanted: list[Split] = wanted
            ) -> Access:
                found = moved(a, extents)
                if found is None:
                    raise _ImpossibleError
                if isinstance(found, Access):
                    return found
                wanted.append(found)
                return a

            before = self.tasks[number]
            self.rewritten(number, change)
            if not wanted:
                return
            self.tasks[number] = before
            self.split(number, *wanted[0])

    def split(self, number: int, axis: str, within: int) -> None:
        """Splits an axis of a Task on elements; what else runs along it is cut as well."""
        task = self.tasks[number]
        if not _on_elements(task):
            raise _ImpossibleError
        (operation,) = task.operations()
        outer = unused(axis, [a.name for a in task.axes], self.buffers, self.graph.symbols)
        for edge in operation.edges:
            buffer = self.buffers[edge.access.buffer]
            store = edge is operation.store
            for entry, stride in zip(edge.access.entries, _strides(_shape(buffer)), strict=True):
                if isinstance(entry, Gather):
                    if store and axis in entry.index.names:
                        raise _ImpossibleError
                elif isinstance(entry, Index) and axis in entry.at.names:
                    distance = stride * within * abs(entry.at.coefficient(axis))
                    if self.buffers[self.memory(buffer.name)].role != "input":
                        if buffer.start and store:
                            raise _ImpossibleError
                        self.queue.append((buffer.name, distance, store))
        axes: list[Axis] = []
        for each in task.axes:
            if each.name != axis:
                axes.append(each)
                continue
            size = (each.extent.number or 0) // within
            axes += [Axis(outer, affine(size)), Axis(axis, affine(within))]
        made = substituted(operation, {axis: affine(outer) * within + axis})
        self.tasks[number] = Task(task.name, tuple(axes), [made])


def _places(shape: Sequence[int], distance: int) -> tuple[int, int] | None:
    """The dimension in which elements so far apart lie, and how many of its positions that is; None for a whole one.

    Raises _ImpossibleError where it is no whole part of a dimension.
    """
    for place, (size, stride) in enumerate(zip(shape, _strides(shape), strict=True)):
        if distance == stride or distance == stride * size:
            return None
        if stride < distance < stride * size:
            if distance % stride or size % (distance // stride):
                raise _ImpossibleError
            return place, distance // stride
    raise _ImpossibleError


__all__ = ["addressed", "cut", "digits"]
