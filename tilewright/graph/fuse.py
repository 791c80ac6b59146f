"""Which Tasks become one kernel: fused along Buffers while that is estimated to be faster, else cut, and told why.

Every Task starts as a kernel of its own. Then, from the end of the graph to its start, the kernel that makes a Buffer
is fused with those that read it if there is a nest of both, tiles for it, and the time is less than that of the two.
A Buffer that is fused away is never in global memory; each reader may compute it again if that is cheaper.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf

from tilewright.diagnostics import UnsupportedError
from tilewright.graph.algebra import base_two, distribute, gather_first
from tilewright.graph.build import build
from tilewright.graph.nest import Nest, nest_of
from tilewright.graph.nodes import Operation, Task, TiledGraph, unused
from tilewright.graph.tiles import Cost, Tiling, cost, tile
from tilewright.targets.base import rates_of
from tilewright.uarch import Rates


@dataclass
class Kernel:
    """Tasks that run as one kernel."""

    tasks: dict[str, Task]
    nest: Nest
    tiling: Tiling
    cost: Cost


@dataclass
class Schedule:
    """The scheduled graph, one Task for each kernel, and what was decided."""

    graph: TiledGraph
    kernels: list[Kernel]
    unfused_seconds: float
    """Estimated time of all Tasks as kernels of their own."""
    cuts: list[str] = field(default_factory=list[str])
    """For every Buffer that stays in memory between kernels: why."""

    @property
    def seconds(self) -> float:
        """Estimated time of the kernels, one after the other."""
        return sum(k.cost.seconds for k in self.kernels)


@dataclass
class Known:
    """Kernels that were planned, or why there are none, by all that they depend on: forms of a graph share many."""

    numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """A number for each meaning of a Task."""
    kernels: dict[Hashable, Kernel | str] = field(default_factory=dict[Hashable, "Kernel | str"])


def schedule(
    graph: TiledGraph,
    target: str | None = None,
    fuse: bool = True,
    rates: Rates | None = None,
    known: Known | None = None,
) -> Schedule:
    """The kernels of a traced graph whose extents are numbers, for a target.

    A graph with Tasks that are mapped already is its own schedule. Raises UnsupportedError for a Task that no kernel
    can be made of. `rates` overrides those of the target; `known`: what was planned before for the same rates.
    """
    if any(axis.mapping != "each" for task in graph.tasks for axis in task.axes):
        return Schedule(graph, [], 0.0)
    rates = rates or rates_of(target or "cpu")
    plain = gather_first(base_two(graph.needed()))
    # A factor that has left its sum lets more be fused; one that is made in another kernel then would be one more array
    # in memory: such a sum keeps it.
    held: frozenset[str] = frozenset()
    best: Schedule | None = None
    known = known or Known()
    while True:
        found = distribute(plain, held)
        made = _Fusion(found.graph, rates, known).run(fuse)
        if best is None or made.seconds < best.seconds:
            best = made
        kernels = {name: i for i, kernel in enumerate(made.kernels) for name in kernel.tasks}
        apart = {
            name
            for name, (core, *factors) in found.moved.items()
            if core in kernels and any(kernels.get(f) != kernels[core] for f in factors)
        }
        if not fuse or not apart:
            return best
        held |= apart


class _Fusion:
    def __init__(self, graph: TiledGraph, rates: Rates, known: Known):
        self.graph = graph
        self.rates = rates
        self.shared = known
        self.tasks = {_made(t): t for t in graph.tasks}
        self.keys = {name: self.key(t) for name, t in self.tasks.items()}
        self.order = {name: i for i, name in enumerate(self.tasks)}
        self.sources = {name: _sources(graph, task) for name, task in self.tasks.items()}
        self.readers: dict[str, set[str]] = {name: set() for name in self.tasks}
        for name, sources in self.sources.items():
            for source in sources & self.readers.keys():
                self.readers[source].add(name)
        self.results = {graph.memory(n) for n in graph.results}
        self.known: dict[tuple[frozenset[str], frozenset[str]], Kernel | str] = {}
        self.why: dict[str, str] = {}

    def run(self, fuse: bool) -> Schedule:
        groups: list[set[str]] = [{name} for name in self.tasks]
        alone = [self.kernel(g, groups) for g in groups]
        unfused = 0.0
        for name, each in zip(self.tasks, alone, strict=True):
            if isinstance(each, str):
                if not fuse:
                    raise UnsupportedError(f"Task {name} is no kernel: {each}")
                continue
            unfused += each.cost.seconds
        if fuse:
            groups = self.fused(groups)
        kernels: list[Kernel] = []
        for group in self.sorted(groups):
            made = self.kernel(group, groups)
            if isinstance(made, str):
                names = ", ".join(sorted(group, key=self.order.__getitem__))
                raise UnsupportedError(f"Task {names} is no kernel: {made}")
            kernels.append(made)
        return self.built(kernels, unfused)

    # Fusing.

    def fused(self, groups: list[set[str]]) -> list[set[str]]:
        latest = sorted(self.tasks, key=lambda n: -self.order[n])
        # All at once first, with fewer and fewer products: the steps on the way to a good kernel may each be bad.
        for products in (3, 2, 1):
            for name in latest:
                group = next(g for g in groups if name in g)
                if len(group) == 1:
                    groups = self.try_fuse(self.cone(name, products, groups), groups)
        for name in latest:
            for reader in sorted(self.readers[name], key=lambda n: -self.order[n]):
                producer = next(g for g in groups if name in g)
                consumer = next(g for g in groups if reader in g)
                if producer is not consumer:
                    groups = self.try_fuse([producer, consumer], groups, name)
        for group in list(groups):
            groups = self.hand_over(group, groups)
        for name in self.tasks:  # parts of one whole
            for other in self.tasks:
                if self.graph.buffers[name].start and self.beside(name, other):
                    both = [next(g for g in groups if n in g) for n in (name, other)]
                    groups = self.try_fuse(both, groups) if both[0] is not both[1] else groups
        return groups

    def beside(self, name: str, other: str) -> bool:
        """Are two Buffers parts of one memory, the first before the second?"""
        same = self.graph.memory(name) == self.graph.memory(other)
        return same and self.order[name] < self.order[other]

    def hand_over(self, group: set[str], groups: list[set[str]]) -> list[set[str]]:
        """The groups with what stands before a product given to the kernels that it comes from, if that is faster.

        What several products make is better put together at their end than at the start of the next.
        """
        if group not in groups:
            return groups
        before: set[str] = set()
        for name in sorted(group, key=self.order.__getitem__):
            inner = self.sources[name] & group
            if not self.is_product(name) and inner <= before:
                before.add(name)
        sources = {s for n in before for s in self.sources[n]}
        makers = [g for g in groups if g is not group and g & sources]
        if not before or before == group or not makers:
            return groups
        given, left = before.union(*makers), group - before
        others = [g for g in groups if g is not group and g not in makers]
        after = [*others, given, left]
        if self.is_cyclic(given, [*others, left]) or self.is_cyclic(left, [*others, given]):
            return groups
        found = [self.kernel(g, after) for g in (given, left)]
        old = [self.kernel(g, groups) for g in (group, *makers)]
        time = sum(k.cost.seconds if isinstance(k, Kernel) else inf for k in found)
        return after if time < sum(k.cost.seconds for k in old if isinstance(k, Kernel)) else groups

    def is_product(self, name: str) -> bool:
        operation = self.tasks[name].nodes[0]
        return isinstance(operation, Operation) and operation.op == "mma"

    def cone(self, name: str, products: int, groups: list[set[str]]) -> list[set[str]]:
        """The groups that a Task needs, through up to so many products in a row."""
        depth: dict[str, int] = {}
        for each in reversed(self.tasks):
            users = [depth[r] for r in self.readers[each] if r in depth]
            if each == name or users:
                reached = max(users, default=0) + self.is_product(each)
                if reached <= products and not (users and self.graph.buffers[each].zeroed):
                    depth[each] = reached
        found = [g for g in groups if not g.isdisjoint(depth)]
        return found if all(len(g) == 1 for g in found) else []

    def try_fuse(
        self, parts: list[set[str]], groups: list[set[str]], name: str = ""
    ) -> list[set[str]]:
        """The groups with ``parts`` as one, if that is possible and faster; ``name`` gets the reason if not."""
        if len(parts) < 2:
            return groups
        both = {n for part in parts for n in part}
        rest = [g for g in groups if g not in parts]
        why = self.unfit(parts, both, rest, groups)
        if why is None:
            for each in both:
                self.why.pop(each, None)
            return [*rest, both]
        if name:
            self.why[name] = why
        return groups

    def unfit(
        self,
        parts: list[set[str]],
        both: set[str],
        rest: list[set[str]],
        groups: list[set[str]],
    ) -> str | None:
        inner = {n for n in both if self.readers[n] & both}
        if any(self.graph.buffers[n].zeroed for n in inner):
            return "it is accumulated into by many programs"
        if self.is_cyclic(both, rest):
            return "another kernel stands between"
        made = self.kernel(both, [*rest, both])
        if isinstance(made, str):
            return made
        apart = 0.0
        for part in parts:
            kernel = self.kernel(part, groups)
            apart += kernel.cost.seconds if isinstance(kernel, Kernel) else 1.0
        if made.cost.seconds > apart:
            return f"fused, {_time(made.cost.seconds)} would be more than {_time(apart)} apart"
        return None

    def is_cyclic(self, both: set[str], rest: list[set[str]]) -> bool:
        """Would a path leave the fused kernel and come back?"""
        seen: set[str] = set()
        group_of = {n: g for g in rest for n in g}
        work = [r for n in both for r in self.readers[n] if r not in both]
        while work:
            name = work.pop()
            if name in seen:
                continue
            seen.add(name)
            for member in group_of[name]:
                for reader in self.readers[member]:
                    if reader in both:
                        return True
                    if reader not in seen:
                        work.append(reader)
        return False

    def kernel(self, group: set[str], groups: list[set[str]]) -> Kernel | str:
        memory, readers = self.graph.memory, self.readers
        outputs = frozenset(
            n for n in group if memory(n) in self.results or any(r not in group for r in readers[n])
        )
        key = (frozenset(group), outputs)
        if key not in self.known:
            self.known[key] = self.planned(group, outputs)
        return self.known[key]

    def key(self, task: Task) -> int:
        """A number for what a Task does, and the Buffers that it does it to."""
        operations = tuple(task.operations())
        accesses = [a.buffer for o in operations for a in o.accesses]
        names = dict.fromkeys(n for name in accesses for n in self.graph.lineage(name))
        meaning = (task.axes, operations, tuple(self.graph.buffers[n] for n in names))
        return self.shared.numbers.setdefault(meaning, len(self.shared.numbers))

    def planned(self, group: set[str], outputs: frozenset[str]) -> Kernel | str:
        names = sorted(group, key=self.order.__getitem__)
        key = (tuple(self.keys[n] for n in names), outputs)
        if key not in self.shared.kernels:
            self.shared.kernels[key] = self.new_plan(names, outputs)
        return self.shared.kernels[key]

    def new_plan(self, names: list[str], outputs: frozenset[str]) -> Kernel | str:
        tasks = {n: self.tasks[n] for n in names}
        nest = nest_of(self.graph, list(tasks.values()), [n for n in names if n in outputs])
        if isinstance(nest, str):
            return nest
        tiling = tile(nest, self.rates)
        if isinstance(tiling, str):
            return tiling
        return Kernel(tasks, nest, tiling, cost(nest, tiling, self.rates))

    def sorted(self, groups: list[set[str]]) -> list[set[str]]:
        """Groups in an order in which each comes after what it reads."""
        left, done, order = list(groups), set[str](), list[set[str]]()
        while left:
            for group in sorted(left, key=lambda g: min(self.order[n] for n in g)):
                needs = {s for n in group for s in self.sources[n]}
                if needs & set(self.tasks) - group <= done:
                    break
            else:
                raise AssertionError("kernels that wait for each other")
            left.remove(group)
            done |= group
            order.append(group)
        return order

    # The result.

    def built(self, kernels: list[Kernel], unfused: float) -> Schedule:
        graph = self.graph
        kept = {n for k in kernels for n in k.nest.outputs} | {b.name for b in graph.inputs}
        kept |= {graph.memory(n) for n in kept}
        buffers = {
            n: b
            for n, b in graph.buffers.items()
            if n in kept or (b.alias_of is not None and graph.memory(n) in kept)
        }
        result = TiledGraph(graph.name, graph.symbols, buffers, [], graph.results)
        taken: set[str] = set()
        for kernel in kernels:
            name = (
                f"{graph.name}_kernel" if len(kernels) == 1 else f"make_{kernel.nest.outputs[-1]}"
            )
            taken.add(name := unused(name, taken))
            result.tasks.append(build(result, kernel.nest, kernel.tiling, name))
        cuts = [
            f"{n} stays in memory: {self.why.get(n, 'its readers gain nothing from it')}"
            for k in kernels
            for n in k.nest.outputs
            if self.readers[n] and any(r not in k.tasks for r in self.readers[n])
        ]
        return Schedule(result, kernels, unfused, cuts)


def _made(task: Task) -> str:
    (node,) = task.nodes
    assert isinstance(node, Operation)
    return node.store.access.buffer


def _sources(graph: TiledGraph, task: Task) -> set[str]:
    (node,) = task.nodes
    assert isinstance(node, Operation)
    return {maker for n in {a.buffer for a in node.reads} for maker in graph.makers(n)}


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
