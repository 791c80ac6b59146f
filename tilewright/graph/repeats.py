"""Layers: a run of Tasks that a graph repeats is planned once, and laid out as often as the run stands there.

Task i is like Task i + period if both do the same to Buffers of one kind, each of which is the same for both, or made
so many Tasks later, or an input that has its counterpart in the next layer. :func:`folded` leaves `KEPT` layers of such
a run: those at its ends see other neighbours, those in the midst do not.

    x1 = f(x0, w0); x2 = f(x1, w1); .. x48 = f(x47, w47); y = g(x48)
                                        ->   x1 = f(x0, w0); .. x4 = f(x3, w3); y = g(x4)

What was planned for those, in whatever form (`sections.py`), repeats as well: :meth:`Fold.unrolled` puts the missing
layers in its midst, with the names that they have in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property

from tilewright.frozen import frozen, record
from tilewright.graph.nodes import Buffer, Operation, Task, TiledGraph, renamed_task, unused
from tilewright.graph.partition import Group
from tilewright.graph.structure import pattern_of

KEPT = 3
"""Layers that are planned: kernels reach through three products at most, and so do choices."""
LEAST = KEPT + 2
"""Layers of a graph that is folded."""
PERIODS = 8
"""Distances that are tried, those at which most Tasks have their like."""


@frozen
class Run:
    """Tasks, `length` of which, from the `first` on, have their like `period` Tasks later."""

    first: int
    period: int
    length: int
    following: Mapping[str, str]
    """For every Buffer of a layer its counterpart in the next; itself, where layers share it."""

    @property
    def layers(self) -> int:
        return self.length // self.period + 1


class _Likeness:
    """What of a graph is like something else in it."""

    def __init__(self, graph: TiledGraph):
        self.graph = graph
        numbers: dict[Hashable, int] = {}
        self.results = {graph.memory(n) for n in graph.results}
        found = [pattern_of(t) for t in graph.tasks]
        self.slots = [p.buffers for p in found]
        self.keys = [
            numbers.setdefault((p.meaning, *map(self.kind, p.buffers)), len(numbers)) for p in found
        ]
        self.writers: dict[str, list[int]] = {}
        for number, operation in enumerate(graph.operations()):
            self.writers.setdefault(operation.store.access.buffer, []).append(number)

    def kind(self, name: str) -> Hashable:
        b = self.graph.buffers[name]
        is_result = self.graph.memory(name) in self.results
        return b.shape, b.start, b.level, b.dtype.name, b.role, b.zeroed, is_result

    def pairs(self, at: int, period: int) -> Iterator[tuple[str, str]]:
        """Buffers that have to be counterparts for a Task to be like the one a period later; of views, what they are
        views of as well."""
        for pair in zip(self.slots[at], self.slots[at + period], strict=True):
            one, two = pair
            while one is not None and two is not None:
                yield one, two
                one, two = self.graph.buffers[one].alias_of, self.graph.buffers[two].alias_of

    def fits(self, one: str, two: str, period: int) -> bool:
        if one == two:
            return True
        made = [[*self.writers.get(n, ())] for n in (one, two)]
        return [n + period for n in made[0]] == made[1] and self.kind(one) == self.kind(two)

    def run(self, period: int) -> Run:
        """The longest run of Tasks that are like those a period later, one Buffer for each."""
        best = Run(0, period, 0, {})
        first, on, back = 0, dict[str, str](), dict[str, str]()
        for at in range(len(self.keys) - period):
            alike = self.keys[at] == self.keys[at + period]
            new = dict(self.pairs(at, period)) if alike else {}
            alike &= len({*new.values()}) == len(new)
            for one, two in self.pairs(at, period) if alike else ():
                alike &= on.get(one, two) == new[one] == two and back.get(two, one) == one
                alike &= self.fits(one, two, period)
            if alike:
                on |= new
                back |= {two: one for one, two in new.items()}
            else:
                first, on, back = at + 1, {}, {}
            if at + 1 - first > best.length:
                best = Run(first, period, at + 1 - first, on)
        return best


def longest_run(graph: TiledGraph, layers: int) -> Run | None:
    """The run of most Tasks that stands so often at least; None where there is none, or Tasks are not on elements."""
    for task in graph.tasks:
        if len(task.nodes) != 1 or not isinstance(task.nodes[0], Operation):
            return None
    like, last, apart = _Likeness(graph), dict[int, int](), Counter[int]()
    for at, key in enumerate(like.keys):
        if key in last:
            apart[at - last[key]] += 1
        last[key] = at
    likely = [period for period, _ in apart.most_common(PERIODS)]
    runs = [r for r in map(like.run, sorted(likely)) if r.layers >= layers]
    return max(runs, key=lambda r: r.length + r.period, default=None)


@record
class Fold:
    """A graph without most of the layers of a run."""

    whole: TiledGraph
    graph: TiledGraph
    following: Mapping[str, str]
    missing: int
    """Layers that are left out."""

    def unrolled(
        self, graph: TiledGraph, groups: Iterable[Group]
    ) -> tuple[TiledGraph, list[Group], Copies] | None:
        """A form of the folded graph, and its kernels, with the missing layers; and what stands how often there.

        None where the form, or what is one kernel, does not repeat as the graph does.
        """
        run = longest_run(graph, 2)
        if run is None or not self.agrees(run.following):
            return None
        place = {_made(t): i for i, t in enumerate(graph.tasks)}
        numbers = [frozenset(place[n] for n in g) for g in groups]
        known, period = set(numbers), run.period
        for start in range(run.first, run.first + run.length - period + 1):
            inside = [g for g in numbers if start <= min(g) < start + period]
            if all(frozenset(n + period for n in g) in known for g in inside):
                copies = Copies(self, run.following, place, start, start + period)
                whole = copies.graph(graph)
                made = [copies.group(g, n) for g in groups for n in copies.times(g)]
                count = sum(map(len, made))
                if count == len(whole.tasks) and len(set[str]().union(*made)) == count:
                    return whole, made, copies
        return None

    def agrees(self, following: Mapping[str, str]) -> bool:
        """Are layers of a form those of the graph?"""
        own = {a: b for a, b in following.items() if a != b and a in self.whole.buffers}
        return bool(own) and all(self.following.get(a) == b for a, b in own.items())


@record
class Copies:
    """The names of what is repeated: Tasks from `start` on to before `end` stand once more for each missing layer."""

    fold: Fold
    following: Mapping[str, str]
    place: Mapping[str, int]
    """The number of the Task that makes a Buffer."""
    start: int
    end: int
    names: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Those that are new, by what they are the counterparts of, so many layers later."""
    taken: set[str] = field(default_factory=set[str])

    @cached_property
    def followers(self) -> frozenset[str]:
        return frozenset(self.following.values())

    def name(self, name: str, layers: int) -> str:
        """The counterpart of a Buffer so many layers later."""
        fold = self.fold
        for layer in range(layers):
            new = self.following.get(name) or fold.following.get(name)
            if new is None:
                return self.new(name, layers - layer) if name in self.followers else name
            if new == name:
                return name
            name = new
        return name

    def new(self, name: str, layers: int) -> str:
        """A name for what has none in the whole graph, after the counterpart of what it is called after."""
        if (name, layers) not in self.names:
            after, rest = name, ""
            while after and after not in self.fold.following:
                after, _, last = after.rpartition("_")
                rest = f"_{last}{rest}"
            base = f"{self.name(after, layers)}{rest}" if after else name
            self.names[name, layers] = new = unused(base, self.taken, self.fold.whole.buffers)
            self.taken.add(new)
        return self.names[name, layers]

    def group(self, names: Iterable[str], layers: int) -> Group:
        return Group(self.name(n, layers) for n in names)

    def times(self, names: Iterable[str]) -> Iterable[int]:
        """By how many layers Tasks are moved, as often as they stand there; the first of them tells."""
        missing, first = self.fold.missing, min(self.place[n] for n in names)
        if first < self.start:
            return (0,)
        return range(missing + 1) if first < self.end else (missing,)

    def graph(self, form: TiledGraph) -> TiledGraph:
        """The form with all layers."""
        whole, missing = self.fold.whole, self.fold.missing
        self.taken |= form.buffers.keys()
        order = [(t, 0) for t in form.tasks[: self.end]]
        order += [(t, n) for n in range(1, missing + 1) for t in form.tasks[self.start : self.end]]
        order += [(t, missing) for t in form.tasks[self.end :]]
        buffers: dict[str, Buffer] = {b.name: b for b in whole.inputs}
        moved: dict[str, dict[str, int]] = {}
        tasks: list[Task] = []
        for task, layers in order:
            names: dict[str, str] = {}
            for operation in task.operations():
                for access in operation.accesses:
                    for name in form.lineage(access.buffer):
                        names[name] = new = self.name(name, layers)
                        moved.setdefault(name, {})[new] = layers
            tasks.append(renamed_task(task, names))
        for name, buffer in form.buffers.items():  # what a view is of comes before it
            for new, layers in moved.get(name, {}).items():
                origin = buffer.alias_of and self.name(buffer.alias_of, layers)
                buffers.setdefault(new, replace(buffer, name=new, alias_of=origin))
        return TiledGraph(whole.name, whole.symbols, buffers, tasks, whole.results)


def folded(graph: TiledGraph) -> Fold | None:
    """The graph without most of the layers of its longest run; None where there is none, or what stands after the run
    reads what is left out."""
    run = longest_run(graph, LEAST)
    if run is None:
        return None
    missing = run.layers - KEPT
    before = {b: a for a, b in run.following.items() if a != b}
    chained = before.keys() | run.following.keys()
    end = run.first + run.layers * run.period

    def back(name: str) -> str | None:
        """The counterpart so many layers earlier; itself, where there are none; None where there are not so many."""
        if name not in chained or run.following.get(name) == name:
            return name
        found: str | None = name
        for _ in range(missing):
            found = before.get(found) if found is not None else None
        return found

    names: dict[str, str] = {}
    kept = graph.tasks[: end - missing * run.period]
    for task in graph.tasks[end:]:
        for operation in task.operations():
            for name in {n for a in operation.accesses for n in graph.lineage(a.buffer)}:
                to = back(name)
                if to is None:
                    return None
                names[name] = to
    tasks = [*kept, *(renamed_task(t, names) for t in graph.tasks[end:])]
    used = {
        n
        for t in tasks
        for o in t.operations()
        for a in o.accesses
        for n in graph.lineage(a.buffer)
    }
    results = dict.fromkeys(names.get(n, n) for n in graph.results if n in names or n in used)
    buffers = {n: b for n, b in graph.buffers.items() if n in used}
    following = {a: b for a, b in run.following.items() if a != b}
    short = TiledGraph(graph.name, graph.symbols, buffers, tasks, tuple(results))
    return Fold(graph, short, following, missing)


def _made(task: Task) -> str:
    (operation,) = task.operations()
    return operation.store.access.buffer
