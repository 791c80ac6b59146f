"""Which Tasks become one kernel: fused along Buffers while that is estimated to be faster, else cut, and told why.

Every Task starts as a kernel of its own. Then, from the end of the graph to its start, the kernel that makes a Buffer
is fused with those that read it if there is a nest of both, tiles for it, and the time is less than that of the two.
What was fused all at once is cut again where two kernels are faster.
A Buffer that is fused away is never in global memory; each reader may compute it again if that is cheaper. At last
kernels that read the same Buffer, none of which waits for another, are one where that is faster: it is read once, by
one launch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations
from math import inf
from typing import TypeAlias

from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import field, record
from tilewright.graph.algebra import base_two, distribute
from tilewright.graph.build import build
from tilewright.graph.costs import Cost, Tiling
from tilewright.graph.nest import Nest, nest_of, statement_of
from tilewright.graph.nodes import Operation, Task, TiledGraph, unused
from tilewright.graph.operands import together_first
from tilewright.graph.partition import Group, Partition
from tilewright.graph.repeats import Fold
from tilewright.graph.structure import Pattern, pattern_of, structure
from tilewright.graph.tiles import tile
from tilewright.targets.base import rates_of
from tilewright.uarch import Rates

Siblings: TypeAlias = tuple[str, str, str, str]
"""Two Tasks, what they do, and the Buffer that they do it to."""


WORTH = 0.9
"""One kernel more has to take this part of the time: what a host takes to launch it is no part of estimates."""
ALIKE = 0.01
"""Estimates that differ by this part say nothing: of forms so near one another the one with fewer arrays is taken."""

MOST = 160
"""Tasks of a kernel: what it takes to plan one grows with their number, and so does how often that is done."""


@record
class Kernel:
    """Tasks that run as one kernel."""

    tasks: dict[str, Task]
    nest: Nest
    tiling: Tiling
    cost: Cost


@record
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

    def built(self) -> Schedule:
        return self


@record
class Known:
    """Kernels that were planned, or why there are none, by structure: forms of a graph, and its layers, share them."""

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
    """The kernels of a traced graph whose extents are numbers, for a target; see :func:`fused`."""
    return fused(graph, target, fuse, rates, known).built()


def fused(
    graph: TiledGraph,
    target: str | None = None,
    fuse: bool = True,
    rates: Rates | None = None,
    known: Known | None = None,
) -> Fusion | Schedule:
    """Which Tasks of a traced graph whose extents are numbers are one kernel: ``seconds`` of it, and ``built()``.

    A graph with Tasks that are mapped already is its own schedule. Raises UnsupportedError for a Task that no kernel
    can be made of. `rates` overrides those of the target; `known`: what was planned before for the same rates.
    """
    if any(axis.mapping != "each" for task in graph.tasks for axis in task.axes):
        return Schedule(graph, [], 0.0)
    rates = rates or rates_of(target or "cpu")
    plain = together_first(base_two(graph.needed()), rates)
    # A factor that has left its sum lets more be fused; one that is made in another kernel then would be one more array
    # in memory: such a sum keeps it.
    held: frozenset[str] = frozenset()
    best: Fusion | None = None
    least = inf
    known = known or Known()
    while True:
        found = distribute(plain, held)
        made = Fusion(found.graph, rates, known)
        made.run(fuse)
        if best is None or made.seconds < least * (1 + ALIKE):
            best = made
        least = min(least, made.seconds)
        kernels = {name: i for i, group in enumerate(made.partition.groups) for name in group}
        apart = {
            name
            for name, (core, *factors) in found.moved.items()
            if core in kernels and any(kernels.get(f) != kernels[core] for f in factors)
        }
        if not fuse or not apart:
            return best
        held |= apart


class Fusion:
    """The Tasks of a graph as kernels, each Task one at first."""

    def __init__(self, graph: TiledGraph, rates: Rates, known: Known):
        self.graph = graph
        self.rates = rates
        self.shared = known
        self.tasks = {_made(t): t for t in graph.tasks}
        self.patterns = {name: self.pattern(t) for name, t in self.tasks.items()}
        self.statements = {name: statement_of(t) for name, t in self.tasks.items()}
        self.products = {n for n, s in self.statements.items() if s.operation.op == "mma"}
        self.order = {name: i for i, name in enumerate(self.tasks)}
        self.sources = dict(zip(self.tasks, graph.sources(), strict=True))
        self.readers: dict[str, set[str]] = {name: set() for name in self.tasks}
        for name, sources in self.sources.items():
            for source in sources & self.readers.keys():
                self.readers[source].add(name)
        self.results = {graph.memory(n) for n in graph.results}
        self.known: dict[Group, Kernel | str] = {}
        self.why: dict[str | Siblings, str | Group] = {}
        """For a Buffer that is made in one kernel and read in another, and for Tasks that are kernels side by side:
        why, or Tasks that are no kernel together."""
        self.partition = Partition(self.sources)
        self.seconds = self.unfused = 0.0

    def run(self, fuse: bool) -> None:
        self.unfused = sum(self.alone())
        if fuse:
            self.fuse()
        self.count()

    def alone(self) -> Iterator[float]:
        """Times of Tasks as kernels of their own, of those that can be."""
        kernels = (self.kernel(Group((name,))) for name in self.tasks)
        return (k.cost.seconds for k in kernels if isinstance(k, Kernel))

    def count(self) -> None:
        """Adds up the time of all kernels; UnsupportedError for what is none."""
        for group in self.partition.sorted():
            made = self.kernel(group)
            if isinstance(made, str):
                raise self.no_kernel(group)
            self.seconds += made.cost.seconds

    def unrolled(self, fold: Fold) -> Fusion | None:
        """What is fused so with the layers that a graph was folded by; None where it does not repeat as they do."""
        if (found := fold.unrolled(self.graph, self.partition.groups)) is None:
            return None
        graph, groups, copies = found
        made = Fusion(graph, self.rates, self.shared)
        made.partition = Partition(made.sources, groups)
        if made.partition.is_cyclic or any(isinstance(made.kernel(g), str) for g in groups):
            return None
        for what, why in self.why.items():
            one, other, does, buffer = what if isinstance(what, tuple) else (what, what, "", "")
            for n in copies.times((one, other)):
                name = copies.name(one, n)
                key = (name, copies.name(other, n), does, copies.name(buffer, n)) if does else name
                made.why[key] = why if isinstance(why, str) else copies.group(why, n)
        made.unfused = sum(made.alone())
        made.count()
        return made

    def no_kernel(self, group: Group) -> UnsupportedError:
        names = ", ".join(self.in_order(group))
        return UnsupportedError(f"Task {names} is no kernel: {self.new_plan(group)}")

    # Fusing.

    def fuse(self) -> None:
        latest = sorted(self.tasks, key=lambda n: -self.order[n])
        # All at once first, with fewer and fewer products: the steps on the way to a good kernel may each be bad.
        same = dict.fromkeys(latest, 4)
        for products in (3, 2, 1):
            for name in latest:
                if len(self.partition.of[name]) == 1 and products < same[name]:
                    parts, same[name] = self.cone(name, products)
                    self.try_fuse(parts)
        self.fuse_pairs(latest)
        for group in list(self.partition.groups):
            if group in self.partition.groups:
                self.hand_over(group)
        pieces = {name for group in list(self.partition.groups) for name in self.cut(group)}
        self.fuse_pairs([name for name in latest if name in pieces])
        for siblings in self.siblings():
            self.try_beside(*siblings)

    def fuse_pairs(self, names: Iterable[str]) -> None:
        for name in names:
            for reader in sorted(self.readers[name], key=lambda n: -self.order[n]):
                self.try_fuse([self.partition.of[name], self.partition.of[reader]], name)

    def siblings(self) -> Iterator[tuple[list[str], str, str]]:
        """Tasks that read one Buffer, then those that make parts of one whole; what they do, and to what."""
        reading: dict[str, list[str]] = {name: [] for name in self.graph.buffers}
        making: dict[str, list[str]] = {}
        for name, sources in self.sources.items():
            for source in sources:
                reading[source].append(name)
            if self.graph.buffers[name].start:
                making.setdefault(self.graph.memory(name), []).append(name)
        yield from ((names, "read", source) for source, names in reading.items())
        yield from ((names, "are parts of", whole) for whole, names in making.items())

    def try_beside(self, siblings: Sequence[str], do: str, what: str) -> None:
        """Makes one group of those of Tasks none of which waits for another, pair by pair."""
        partition = self.partition
        for name, other in combinations(siblings, 2):
            parts = one, two = partition.of[name], partition.of[other]
            if one != two and not partition.before[two] & partition.own[one]:
                self.try_fuse(parts, (name, other, do, what))

    def hand_over(self, group: Group) -> None:
        """Gives what stands before a product to the kernels that it comes from, or one of its own, if that is faster.

        What several products make is better put together at their end than at the start of the next.
        """
        before: set[str] = set()
        for name in self.in_order(group):
            inner = self.sources[name] & group
            if name not in self.products and inner <= before:
                before.add(name)
        sources = {s for n in before for s in self.sources[n]} - group
        of = self.partition.of
        makers = list(dict.fromkeys(of[s] for s in self.in_order(sources & of.keys())))
        if not before or len(before) == len(group):
            return
        given, left = Group(before.union(*makers)), group - before
        found = [self.kernel(g) for g in (given, left)]
        old = [self.kernel(g) for g in (group, *makers)]
        time = sum(k.cost.seconds if isinstance(k, Kernel) else inf for k in found)
        if time < sum(k.cost.seconds for k in old if isinstance(k, Kernel)) * (
            1 if makers else WORTH
        ):
            others = [g for g in self.partition.groups if g != group and g not in makers]
            after = Partition(self.sources, [*others, given, left])
            self.partition = self.partition if after.is_cyclic else after

    def cut(self, group: Group) -> Group:
        """Makes one kernel two, and so each of these, as long as that is faster: behind one of its sums, or behind what
        is made of it element by element. Returns the Tasks of a kernel that was cut.

        What became a kernel at once was faster than all of its Tasks apart, which says nothing of any two.
        """
        whole, names = self.kernel(group), self.in_order(group)
        sums = [n for n in names if self.statements[n].is_reduction]
        found: dict[Group, float] = {}
        for name in sums if len(sums) > 1 else ():
            first = {name}
            for each in reversed(names):
                if self.readers[each] & first:
                    first.add(each)
            ended = set(first)
            for each in names:
                if each not in sums and (inner := self.sources[each] & group) and inner <= ended:
                    ended.add(each)
            for part in {Group(first), Group(ended)} - {group}:
                made = [self.kernel(g) for g in (part, group - part)]
                found[part] = sum(k.cost.seconds if isinstance(k, Kernel) else inf for k in made)
        part = min(found, key=found.__getitem__, default=group)
        if isinstance(whole, str) or found.get(part, inf) >= whole.cost.seconds * WORTH:
            return Group()
        others = [g for g in self.partition.groups if g != group]
        self.partition = Partition(self.sources, [*others, part, group - part])
        why = f"fused, {_time(whole.cost.seconds)} would be more than {_time(found[part])} apart"
        self.why |= dict.fromkeys(part, why)
        for each in (part, group - part):
            self.cut(each)
        return group

    def cone(self, name: str, products: int) -> tuple[list[Group], int]:
        """The groups that a Task needs, through up to so many products in a row; none if one is more than a Task.

        And the fewest products for which they are the same.
        """
        depth: dict[str, int] = {}
        is_whole = True
        work, seen = [(-self.order[name], name)], {name}
        while work:
            each = heappop(work)[1]  # after all that reads it
            users = [depth[r] for r in self.readers[each] if r in depth]
            reached = max(users, default=0) + (each in self.products)
            is_whole &= reached <= products
            if reached > products or (users and self.graph.buffers[each].zeroed):
                continue
            if len(self.partition.of[each]) > 1:
                return [], reached
            depth[each] = reached
            for source in self.sources[each]:
                if source in self.order and source not in seen:
                    seen.add(source)
                    heappush(work, (-self.order[source], source))
        needed = max(depth.values()) if is_whole else products
        return [self.partition.of[n] for n in self.in_order(depth)], needed

    def try_fuse(self, parts: Sequence[Group], what: str | Siblings = "") -> None:
        """Makes one group of several, if that is possible and faster; ``what`` gets the reason if not."""
        if len(set(parts)) < 2:
            return
        why = self.unfit(parts)
        if why is None:
            for each in self.partition.join(parts):
                self.why.pop(each, None)
        elif what:
            self.why[what] = why

    def unfit(self, parts: Sequence[Group]) -> str | Group | None:
        """Why Tasks are not one kernel; the Tasks themselves where no kernel can be made of them."""
        both = Group().union(*parts)
        if any(self.graph.buffers[n].zeroed and self.readers[n] & both for n in both):
            return "it is accumulated into by many programs"
        if len(both) > MOST:
            return f"more than {MOST} Tasks would be one kernel"
        if not self.partition.may_join(parts):
            return "another kernel stands between"
        made = self.kernel(both)
        if isinstance(made, str):
            return both
        apart = 0.0
        for part in parts:
            kernel = self.kernel(part)
            apart += kernel.cost.seconds if isinstance(kernel, Kernel) else 1.0
        if made.cost.seconds > apart:
            return f"fused, {_time(made.cost.seconds)} would be more than {_time(apart)} apart"
        return None

    def kernel(self, group: Group) -> Kernel | str:
        """The kernel of Tasks, or why there is none, of their structure: the names may be those of others."""
        if group not in self.known:
            names = self.in_order(group)
            patterns = [self.patterns[n] for n in names]
            key = structure(self.graph, patterns, self.outputs(names))
            if key not in self.shared.kernels:
                self.shared.kernels[key] = self.new_plan(group)
            self.known[group] = self.shared.kernels[key]
        return self.known[group]

    def in_order(self, group: Iterable[str]) -> list[str]:
        return sorted(group, key=self.order.__getitem__)

    def outputs(self, names: Sequence[str]) -> list[str]:
        """The Buffers of a group that others read."""
        memory, readers, group = self.graph.memory, self.readers, set(names)
        return [n for n in names if memory(n) in self.results or not readers[n] <= group]

    def pattern(self, task: Task) -> Pattern:
        """The Pattern of a Task, what it does told by a number."""
        numbers, found = self.shared.numbers, pattern_of(task)
        return Pattern(numbers.setdefault(found.meaning, len(numbers)), found.buffers)

    def nest(self, group: Group) -> Nest | str:
        names = self.in_order(group)
        return nest_of(self.graph, [self.statements[n] for n in names], self.outputs(names))

    def new_plan(self, group: Group) -> Kernel | str:
        nest = self.nest(group)
        if isinstance(nest, str):
            return nest
        found = tile(nest, self.rates)
        if isinstance(found, str):
            return found
        return Kernel({n: self.tasks[n] for n in self.in_order(group)}, nest, *found)

    def own(self, group: Group) -> Kernel:
        """The kernel of Tasks that have one."""
        like, nest = self.kernel(group), self.nest(group)
        assert isinstance(like, Kernel) and isinstance(nest, Nest)
        tiling = like.tiling.renamed(
            dict(zip(like.nest.axes, nest.axes, strict=True)),
            dict(zip(like.nest.statements, nest.statements, strict=True)),
        )
        return Kernel({n: self.tasks[n] for n in self.in_order(group)}, nest, tiling, like.cost)

    # The result.

    def built(self) -> Schedule:
        graph, kernels = self.graph, list(map(self.own, self.partition.sorted()))
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
            f"{n} stays in memory: {self.reason(n)}"
            for k in kernels
            for n in k.nest.outputs
            if self.readers[n] and any(r not in k.tasks for r in self.readers[n])
        ]
        return Schedule(result, kernels, self.unfused, cuts + self.cuts_beside())

    def cuts_beside(self) -> list[str]:
        """For kernels that could be one, since they read the same: why they are not."""
        told: dict[tuple[Group, Group], Siblings] = {}
        for key in self.why:
            if isinstance(key, tuple):
                parts = self.partition.of[key[0]], self.partition.of[key[1]]
                if parts[0] != parts[1] and self.partition.may_join(parts):
                    told[parts] = key
        return [f"{k[0]} and {' '.join(k[1:])}, apart: {self.reason(k)}" for k in told.values()]

    def reason(self, what: str | Siblings) -> str:
        """Why a Buffer stays in memory, or Tasks side by side are kernels of their own."""
        why = self.why.get(what, "its readers gain nothing from it")
        return why if isinstance(why, str) else str(self.new_plan(why))


def _made(task: Task) -> str:
    (node,) = task.nodes
    assert isinstance(node, Operation)
    return node.store.access.buffer


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
