"""What a tiled nest costs: its work, counted for one program, and the planner's estimate of the time.

A planner asks for the costs of many tilings of one nest. What does not depend on the tiling is found once
(:class:`Costs`): whatever is counted is a product over some axes of their steps or of their iterations, and the same
few sets of axes are those of all statements and accesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tilewright.frozen import field, frozen, record
from tilewright.graph.affine import Affine
from tilewright.graph.algebra import scaling
from tilewright.graph.nest import Nest, Statement
from tilewright.graph.nodes import Access, Gather, Index, Mapped
from tilewright.graph.operations import computing
from tilewright.passes.work import Work, seconds
from tilewright.uarch import Rates

SECTOR = 32
"""Bytes that caches of GPUs move at least: elements that no step takes with their neighbours each take so many."""


@frozen
class Core:
    """The axes of a product that is done by tile_mma: result [m, n], summed over k."""

    m: str
    n: str
    k: str


@record
class Tiling:
    """The mapping and step of every axis; axes that are not tiled have step 1."""

    mapping: dict[str, Mapped]
    step: dict[str, int]
    tiled: tuple[str, ...]
    cores: Mapping[str, Core]

    def loops(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``axes`` that are loops."""
        mapping = self.mapping
        return tuple([a for a in axes if mapping[a] == "sequential"])

    def renamed(self, axes: Mapping[str, str], statements: Mapping[str, str]) -> Tiling:
        """The tiling of a nest that differs in these names."""
        mapping: dict[str, Mapped] = {axes[a]: m for a, m in self.mapping.items()}
        step = {axes[a]: s for a, s in self.step.items()}
        cores = {
            statements[n]: Core(axes[c.m], axes[c.n], axes[c.k]) for n, c in self.cores.items()
        }
        return Tiling(mapping, step, tuple(axes[a] for a in self.tiled), cores)


@frozen
class Cost:
    """What a nest costs: whole launches, in flops, bytes and seconds."""

    flops: float
    memory_bytes: float
    """To and from global memory, each element once per kernel."""
    cache_bytes: float
    """What workgroups load and store: the same element may be loaded by many."""
    programs: int
    seconds: float


@frozen
class _Load:
    """What a statement reads: `axes` is a number of a set of axes (`Costs.sets`)."""

    access: Access
    axes: int
    reduced: frozenset[str]
    """Axes that the statement reduces, among those of the access."""
    itemsize: int
    is_near: bool
    """Is it made in the nest, or a state?"""
    gathers: bool
    run: int
    """The place of the axis that moves from neighbour to neighbour in memory; -1: there is none."""
    widens: bool
    """Is it the first without a product that reads so, from a narrower type?"""


@frozen
class _Counted:
    """A statement, as far as it is counted: `axes` is a number of a set of axes."""

    statement: Statement
    axes: int
    core: Core | None
    itemsize: int
    """Of the widest operand."""
    loads: list[_Load]
    staged: list[tuple[int, int, frozenset[str]]]
    """What a product takes that the nest does not make: sets of axes, bytes of an element, and the axes."""


@record
class _Under:
    """What is counted where certain axes are loops: how often, by the sets of iterations and of elements."""

    flops: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    near: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    shared: Counter[tuple[int, int, int, int]] = field(
        default_factory=Counter[tuple[int, int, int, int]]
    )
    """Times as often, by the place of the axis along which neighbours are loaded, and bytes of an element, too."""
    ops: dict[int, float] = field(default_factory=dict[int, float])
    products: list[tuple[Core, int, int, int]] = field(
        default_factory=list[tuple[Core, int, int, int]]
    )
    """Axes, bytes of an element, set of iterations, and passes."""
    staged: list[tuple[str, list[tuple[int, int]]]] = field(
        default_factory=list[tuple[str, list[tuple[int, int]]]]
    )
    """For each product what its loops load: sets of elements, and bytes of one."""
    one_loop: bool = False
    """Is one loop all that the products are in? Cores can share that."""


class Costs:
    """The costs of the tilings of one nest that have the same cores, on one machine."""

    def __init__(self, nest: Nest, cores: Mapping[str, Core], rates: Rates):
        self.nest = nest
        self.rates = rates
        self.axes = nest.axes
        self.extents = [nest.extents[a] for a in self.axes]
        self.access = access_bytes(rates)
        places = {a: i for i, a in enumerate(self.axes)}
        self.numbers: dict[frozenset[str], int] = {}
        self.values: dict[tuple[int, int], str] = {}
        """Sets of axes and bytes of an element of tiles that each have to fit, and what such a tile is."""
        self.accumulators: list[tuple[int, int]] = []
        self.known: dict[tuple[bool, ...], _Under | None] = {}
        buffers, memory = nest.graph.buffers, nest.graph.memory
        states = nest.recurrence.states if nest.recurrence is not None else {}
        widened: set[Access] = set()
        touched: dict[tuple[str, frozenset[str]], int] = {}
        self.counted: list[_Counted] = []
        for name, s in nest.statements.items():
            core, axes, own = cores.get(name), self.set_of(s.axes), frozenset(s.axes)
            result = (self.set_of(s.kept), computing(buffers[name].dtype).itemsize)
            if core is not None:
                self.accumulators.append(result)
            elif s.reduced:
                result = (axes, 4)
            self.values.setdefault(result, f"the value {name}")
            counted = _Counted(
                s,
                axes,
                core,
                max(
                    (buffers[e.access.buffer].dtype.itemsize for e in s.operation.loads), default=0
                ),
                [],
                [],
            )
            self.counted.append(counted)
            for edge in s.operation.loads:
                for access in edge.access.accesses():
                    buffer, names = access.buffer, access.names & own
                    item, number = buffers[buffer].dtype.itemsize, self.set_of(names)
                    near = buffer in nest.statements or buffer in states
                    widens = not near and core is None and item < 4 and access not in widened
                    if widens:
                        widened.add(access)
                    if not near:
                        touched[memory(buffer), names] = prod(nest.extents[a] for a in names) * item
                    gathers = any(isinstance(e, Gather) for e in access.entries)
                    reduced = names.intersection(s.reduced)
                    run = places.get(self.run_of(access), -1)
                    load = _Load(access, number, reduced, item, near, gathers, run, widens)
                    counted.loads.append(load)
                    if access is edge.access:
                        self.values.setdefault((number, 4), f"the tile of {buffer} for {name}")
                        if core is not None and buffer not in nest.statements:
                            counted.staged.append((number, item, names))
        made = [nest.statements[n] for n in nest.outputs]
        self.stored = [
            (
                prod(nest.extents[a] for a in s.kept) * (2 if s.scatters else 1),
                buffers[s.name].dtype.itemsize,
                places.get(self.run_of(s.operation.store.access), -1),
            )
            for s in made
        ]
        self.memory = sum(touched.values()) + sum([n * item for n, item, _ in self.stored])
        self.sets = [[places[a] for a in names] for names in self.numbers]

    def run_of(self, access: Access) -> str:
        """The axis that moves an access from neighbour to neighbour in memory; none is ""."""
        moving = neighbours_along(access, self.nest.graph.buffers[access.buffer].shape)
        return max(moving, key=lambda a: self.nest.extents.get(a, 0), default="")

    def moved(self, item: int, run: int, steps: Sequence[int]) -> float:
        """Bytes that are moved for an element."""
        if not self.access:
            return item
        neighbours = min(steps[run], self.extents[run]) if run >= 0 else 1
        return max(item, self.access / neighbours)

    def set_of(self, names: Iterable[str]) -> int:
        """The number of a set of axes."""
        return self.numbers.setdefault(frozenset(names), len(self.numbers))

    def under(self, tiling: Tiling) -> _Under | None:
        """What is counted under the loops of a tiling; None where a loop would be opened inside of itself."""
        mapped = tuple([tiling.mapping[a] == "sequential" for a in self.axes])
        if mapped not in self.known:
            self.known[mapped] = self.new_count(tiling) if nests(self.nest, tiling) else None
        return self.known[mapped]

    def new_count(self, tiling: Tiling) -> _Under:
        under, panels = _Under(), set[tuple[Access, tuple[str, ...]]]()
        loops = {a for a in self.axes if tiling.mapping[a] == "sequential"}
        products: set[tuple[str, ...]] = set()
        layers = passes(self.nest, tiling)
        extremes = [e.statement for e in self.counted if e.statement.combine in ("max", "min")]
        for s in self.counted:
            axes, core, layer = s.axes, s.core, layers[s.statement.name]
            around: tuple[str, ...] = ()
            under.flops[axes, axes] += layer * s.statement.flops
            if any(online(self.nest, tiling, s.statement, e) for e in extremes):
                under.near[axes, self.set_of(s.statement.kept)] += layer * 4  # rescaled each time
            if core is None:
                under.near[axes, axes] += layer * 4
                under.ops[axes] = under.ops.get(axes, 0) + layer
            else:
                around = tiling.loops(s.statement.axes)
                products.add(around)
                under.products.append((core, s.itemsize, axes, layer))
                staged = [(n, item) for n, item, names in s.staged if not names.isdisjoint(loops)]
                under.staged.append((s.statement.name, staged))
            for load in s.loads:
                tile, item = load.axes, load.itemsize
                if load.is_near:
                    if core is not None:  # rounded, and brought to where the product wants it
                        under.near[axes, tile] += layer * 4
                    continue
                if core is not None:
                    if (load.access, around) in panels:
                        # Products of one loop that take the same tile load it once; each reads its panels from
                        # the near cache, unless they are all in one place at once.
                        if self.rates.asynchronous:
                            under.near[axes, tile] -= layer * item
                        continue
                    panels.add((load.access, around))
                times = tile if load.reduced.isdisjoint(loops) else axes
                under.shared[times, tile, load.run, item] += layer
                if load.gathers:
                    under.ops[times] = under.ops.get(times, 0) + layer * self.rates.gather_ops
                if load.widens:
                    under.near[times, tile] += layer * 4
        others = [s.statement for s in self.counted if s.core is None]
        summed = any(not loops.isdisjoint(s.reduced) for s in others)
        under.one_loop = [len(each) for each in products] == [1] and not summed
        return under

    def elements(self, tiling: Tiling) -> list[int]:
        """Elements of a tile along each of the sets of axes."""
        steps = [tiling.step[a] for a in self.axes]
        return [prod([steps[i] for i in s]) for s in self.sets]

    def lack(self, tiling: Tiling) -> tuple[str, int, int] | None:
        """What has no room, its bytes and those that there are; None where everything fits."""
        return self.lacking(self.elements(tiling), self.under(tiling))

    def lacking(self, elements: Sequence[int], under: _Under | None) -> tuple[str, int, int] | None:
        rates = self.rates
        for (number, size), what in self.values.items():
            if elements[number] * size > rates.value_bytes:
                return what, elements[number] * size, rates.value_bytes
        for name, staged in under.staged if under is not None else ():
            size = sum([elements[number] * item for number, item in staged])
            if size > rates.stage_bytes:
                return f"the operands of {name} that a loop loads", size, rates.stage_bytes
        size = sum([elements[number] * item for number, item in self.accumulators])
        if size > rates.accumulator_bytes:
            return "the sums of all products", size, rates.accumulator_bytes
        return None

    def of(self, tiling: Tiling) -> Cost | None:
        """What all programs do, and the planner's estimate of the time.

        None where something has no room, or a loop would be opened inside of itself.
        """
        if (under := self.under(tiling)) is None:
            return None
        rates, elements, step = self.rates, self.elements(tiling), tiling.step
        if self.lacking(elements, under) is not None:
            return None
        blocks, inside = 1, list[int]()
        for axis, extent in zip(self.axes, self.extents, strict=True):
            trips, mapped = -(-extent // step[axis]), tiling.mapping[axis]
            inside.append(trips if mapped == "sequential" else 1)
            blocks *= max(1, trips) if mapped == "block" else 1
        times = [prod([inside[i] for i in s]) for s in self.sets]
        work = Work()
        for core, item, at, layer in under.products:
            work.product(step[core.m], step[core.n], step[core.k], item, rates, times[at] * layer)
        work.near_bytes += sum([times[t] * elements[e] * n for (t, e), n in under.near.items()])
        steps = [step[a] for a in self.axes]
        work.shared_bytes = sum(
            [
                times[t] * elements[e] * n * self.moved(item, run, steps)
                for (t, e, run, item), n in under.shared.items()
            ]
        )
        work.ops += sum([times[t] * n for t, n in under.ops.items()])
        for count, item, run in self.stored:
            work.shared_bytes += count * self.moved(item, run, steps) / blocks
        flops = sum([times[t] * elements[e] * n for (t, e), n in under.flops.items()])
        time = seconds(work, blocks, rates, self.memory, shared=under.one_loop)
        return Cost(blocks * flops, self.memory, work.shared_bytes * blocks, blocks, time)


def access_bytes(rates: Rates) -> int:
    """Bytes that are moved at least; 0: that is not told."""
    return rates.access_bytes or (SECTOR if rates.asynchronous else 0)


def neighbours_along(access: Access, shape: Sequence[Affine]) -> list[str]:
    """The axes that move an access to a Buffer of a shape from neighbour to neighbour in memory."""
    last = [e for e, n in zip(access.entries, shape, strict=True) if n.number != 1][-1:]
    return [a for e in last if isinstance(e, Index) for a, factor in e.at.terms if factor == 1]


def nests(nest: Nest, tiling: Tiling) -> bool:
    """Is no loop opened inside of itself? A value that a loop sums, for each step of another, is summed in that one."""
    serial = {nest.recurrence.axis} if nest.recurrence is not None else set[str]()
    for name, s in nest.statements.items():
        again = set(tiling.loops(s.reduced)) if s.reduced else None
        if again and set(tiling.loops(s.kept)) - serial:
            for user, u in nest.statements.items():
                if name in nest.reach[user] and again & set(tiling.loops(u.kept)):
                    return False
    return True


def passes(nest: Nest, tiling: Tiling) -> dict[str, int]:
    """How often each statement is computed because loops over one axis follow each other."""
    count = dict.fromkeys(nest.statements, 1)
    for axis, mapping in tiling.mapping.items():
        if mapping != "sequential":
            continue
        layer: dict[str, int] = {}

        def below(name: str, layer: Mapping[str, int] = layer) -> list[str]:
            return [d for d in layer if d != name and d in nest.reach[name]]

        for name, s in nest.statements.items():
            if axis in s.reduced:
                wait = [
                    layer[d] + (not online(nest, tiling, s, nest.statements[d]))
                    for d in below(name)
                ]
                layer[name] = max(wait, default=0)
            elif axis in s.kept and name in nest.outputs:
                done = [d for d in below(name) if axis in nest.statements[d].reduced]
                layer[name] = max((layer[d] + 1 for d in done), default=0)
        for name, s in nest.statements.items():
            if axis in s.kept:
                users = {n for u, n in layer.items() if name in nest.reach[u] and u != name}
                count[name] *= max(1, len(users))
    return count


def online(nest: Nest, tiling: Tiling, later: Statement, earlier: Statement) -> bool:
    """Can both go in one loop, the later sum being rescaled when the earlier maximum (or minimum) changes?"""
    loops = tiling.loops(later.reduced)
    if len(loops) != 1 or tiling.loops(earlier.reduced) != loops or later.combine != "add":
        return False
    if earlier.combine not in ("max", "min") or not set(earlier.kept) <= set(later.kept):
        return False
    key = (later.name, earlier.name)
    if key not in nest.scalings:
        nest.scalings[key] = scaling(nest, later, earlier.name)
    found = nest.scalings[key]
    # Terms must shrink as the maximum grows, or nothing that was summed could be kept in range.
    return found is not None and (found[1] < 0 if earlier.combine == "max" else found[1] > 0)
