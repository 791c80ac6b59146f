"""Which axes of a nest are tiled, what runs them, and in what steps.

Tiles have two dimensions. Axes that a product multiplies along are tiled; others while every value keeps two tiled
axes at most; the rest advance by one. An axis that every output has, and that nothing reduces, is mapped to the grid;
the others are loops, or whole (one tile covers the extent: mapping ``group``). Steps are chosen by the planner: by
descent on its estimate of the time, within the room that the machine has for values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil, inf, prod
from typing import TypeAlias

from tilewright.graph.affine import Affine
from tilewright.graph.algebra import scaling
from tilewright.graph.nest import Nest, Statement
from tilewright.graph.nodes import Access, Entry, Gather, Index, Mapped
from tilewright.graph.operations import computing
from tilewright.passes.planner import descend
from tilewright.passes.work import Work, seconds
from tilewright.uarch import Rates

STEPS = (16, 32, 64, 128, 256)

Way: TypeAlias = tuple[Mapped, int]
"""What runs the iterations of an axis, and its step."""


@dataclass(frozen=True)
class Core:
    """The axes of a product that is done by tile_mma: result [m, n], summed over k."""

    m: str
    n: str
    k: str


@dataclass
class Tiling:
    """The mapping and step of every axis."""

    mapping: dict[str, Mapped]
    step: dict[str, int]
    tiled: tuple[str, ...]
    cores: Mapping[str, Core]

    def loops(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``axes`` that are loops."""
        return tuple(a for a in axes if self.mapping[a] == "sequential")


@dataclass(frozen=True)
class Cost:
    """What a nest costs: whole launches, in flops, bytes and seconds."""

    flops: float
    memory_bytes: float
    """To and from global memory, each element once per kernel."""
    cache_bytes: float
    """What workgroups load and store: the same element may be loaded by many."""
    programs: int
    seconds: float


def core_of(
    statement: Statement, extents: Mapping[str, int], serial: frozenset[str] = frozenset()
) -> Core | None:
    """The axes along which a statement is a matrix product; None where it is none. ``serial`` axes are not tiled."""
    if statement.operation.op != "mma" or len(statement.operation.loads) != 2:
        return None
    left, right = (e.access.names & set(statement.axes) - serial for e in statement.operation.loads)
    m = [a for a in reversed(statement.kept) if a in left - right]
    n = [a for a in reversed(statement.kept) if a in right - left]
    k = [a for a in reversed(statement.reduced) if a in left & right]
    k.sort(key=lambda a: -extents[a])
    for choice in product(m, n, k):
        if all(
            _moves_alone(e, choice)
            for load in statement.operation.loads
            for e in load.access.entries
        ):
            return Core(*choice)
    return None


def _moves_alone(entry: Entry, tiled: tuple[str, ...]) -> bool:
    """Does one of the tiled axes at most move an entry, and by one?"""
    if not isinstance(entry, Index):
        return True
    moving = [f for a, f in entry.at.terms if a in tiled]
    return not moving or moving == [1]


def tile(nest: Nest, rates: Rates) -> Tiling | str:
    """The cheapest tiling that was found, or why there is none."""
    carried = nest.recurrence
    serial = frozenset((carried.axis,)) if carried is not None else frozenset()
    near = carried.near if carried is not None else frozenset()
    cores = {n: c for n, s in nest.statements.items() if (c := core_of(s, nest.extents, serial))}
    tiled = _tiled_axes(nest, cores, serial)
    if isinstance(tiled, str):
        return tiled
    axes = tuple(dict.fromkeys(a for s in nest.statements.values() for a in s.axes))
    blockable = _blockable(nest, axes) - serial - (carried.whole if carried is not None else serial)
    in_core = {a for c in cores.values() for a in (c.m, c.n, c.k)}
    options: dict[str, list[Way]] = {}
    for axis in axes:
        extent = nest.extents[axis]
        spread: Mapped = "block" if axis in blockable else "sequential"
        if axis not in tiled:
            if axis in near and axis not in blockable:
                return f"the state has more than two dimensions that one program needs whole ({axis} is one)"
            options[axis] = [(spread, 1)]
            continue
        whole = _whole(extent, axis in in_core or axis in near)
        steps = [s for s in STEPS if s < whole]
        if axis in blockable and axis not in in_core:
            steps += [s for s in (1, 4) if s < whole]
        ways: list[Way] = [("group", whole)]
        if axis in blockable or axis not in near:
            ways.extend((spread, s) for s in steps)
        options[axis] = ways
    choices = list(options.values())

    def made(choice: tuple[Way, ...]) -> Tiling:
        mapping: dict[str, Mapped] = {
            a: mapped for a, (mapped, _) in zip(options, choice, strict=True)
        }
        step = {a: size for a, (_, size) in zip(options, choice, strict=True)}
        return Tiling(mapping, step, tiled, cores)

    @cache
    def seconds_of(choice: tuple[Way, ...]) -> float:
        tiling = made(choice)
        possible = lack(nest, tiling, rates) is None and nests(nest, tiling)
        return cost(nest, tiling, rates).seconds if possible else inf

    starts: list[tuple[Way, ...]] = [
        tuple(min(w, key=lambda way: abs(way[1] - size)) for w in choices)
        for size in (64, 128, 16, 1)
    ]
    # Rows one by one, each whole: what long reductions without a product want.
    starts.append(
        tuple(w[-1] if a in tiled and w[-1][0] == "block" else w[0] for a, w in options.items())
    )
    best, least = min((descend(s, choices, seconds_of) for s in starts), key=lambda found: found[1])
    if least == inf:
        least_tiling = made(tuple(min(w, key=lambda way: way[1]) for w in choices))
        lacking = lack(nest, least_tiling, rates)
        if lacking is None:
            return f"no tile of {', '.join(tiled)} leaves room for the values without loops in themselves"
        what, size, limit = lacking
        return f"{what} takes {size} bytes in the smallest tile of {', '.join(tiled)}, and {limit} are there"
    return made(best)


def _whole(extent: int, in_product: bool) -> int:
    """A tile that covers an extent: multiples of 16, and of more where it is long, so that few shapes compile anew."""
    step = 16 if in_product else max(16, (1 << extent.bit_length()) // 32)
    return max(16, -(-extent // step) * step)


def _blockable(nest: Nest, axes: tuple[str, ...]) -> set[str]:
    found = set(axes)
    for name in nest.outputs:
        found &= set(nest.statements[name].kept)
    for statement in nest.statements.values():
        found -= set(statement.reduced)
    return found


def _tiled_axes(
    nest: Nest, cores: Mapping[str, Core], serial: frozenset[str]
) -> tuple[str, ...] | str:
    tiled = dict.fromkeys(a for c in cores.values() for a in (c.m, c.n, c.k))
    fault = _rank_fault(nest, cores, tiled)
    if fault is not None:
        return fault
    rest = [s for n, s in nest.statements.items() if n not in cores]
    rest.sort(key=lambda s: not s.is_reduction)
    for statement in rest:
        wanted = [*statement.reduced[-1:], *reversed(statement.kept), *statement.reduced[:-1]]
        for axis in wanted:
            if axis in tiled or axis in serial or nest.extents[axis] == 1:
                continue
            if _rank_fault(nest, cores, {**tiled, axis: None}) is None:
                tiled[axis] = None
    return tuple(tiled)


def _rank_fault(nest: Nest, cores: Mapping[str, Core], tiled: Mapping[str, None]) -> str | None:
    for name, statement in nest.statements.items():
        own = [a for a in statement.axes if a in tiled]
        core = cores.get(name)
        if core is not None:
            if not set(own) <= {core.m, core.n, core.k}:
                return f"{name} is a product, and other axes of it are tiled as well"
        elif len(own) > 2:
            return f"{name} has three tiled axes ({', '.join(own)})"
        for edge in statement.operation.edges:
            for access in edge.access.accesses():
                for entry in access.entries:
                    if not _moves_alone(entry, tuple(tiled)):
                        return f"{name}: a dimension moves by more than one tiled axis"
        for operand in statement.operation.operands:
            if isinstance(operand, Affine) and not _moves_alone(Index(operand), tuple(tiled)):
                return f"{name} counts along more than one tiled axis"
        for edge in statement.operation.edges:
            for access in edge.access.accesses():
                used = [a for e in access.entries for a in _names(e) if a in tiled]
                if len(set(used)) < len(used):
                    return f"{name} reads a diagonal of {access.buffer}"
    return None


def _names(entry: object) -> Iterator[str]:
    if isinstance(entry, Index):
        yield from entry.at.names
    elif isinstance(entry, Gather):
        yield from entry.index.names


# Cost -------------------------------------------------------------------------------------------------------------


def nests(nest: Nest, tiling: Tiling) -> bool:
    """Is no loop opened inside of itself? A value that a loop sums, for each step of another, is summed in that one."""
    serial = {nest.recurrence.axis} if nest.recurrence is not None else set[str]()
    for name, s in nest.statements.items():
        again = set(tiling.loops(s.reduced))
        if again and set(tiling.loops(s.kept)) - serial:
            for user, u in nest.statements.items():
                if name in nest.reach[user] and again & set(tiling.loops(u.kept)):
                    return False
    return True


def lack(nest: Nest, tiling: Tiling, rates: Rates) -> tuple[str, int, int] | None:
    """What has no room, its bytes and those that there are; None where everything fits."""
    accumulators = 0
    for name, statement in nest.statements.items():
        own = [tiling.step[a] for a in statement.kept if a in tiling.tiled]
        size = prod(own) * computing(nest.graph.buffers[name].dtype).itemsize
        core = tiling.cores.get(name)
        if core is not None:
            accumulators += size
            staged = 0
            for edge in statement.operation.loads:
                buffer = edge.access.buffer
                if buffer not in nest.statements and tiling.loops(
                    tuple(edge.access.names & set(tiling.step))
                ):
                    staged += (
                        _tile_elements(edge.access, tiling)
                        * nest.graph.buffers[buffer].dtype.itemsize
                    )
            if staged > rates.stage_bytes:
                return f"the operands of {name} that a loop loads", staged, rates.stage_bytes
        elif statement.is_reduction:
            size = prod(tiling.step[a] for a in statement.axes if a in tiling.tiled) * 4
        if size > rates.value_bytes:
            return f"the value {name}", size, rates.value_bytes
        for edge in statement.operation.loads:
            size = _tile_elements(edge.access, tiling) * 4
            if size > rates.value_bytes:
                return f"the tile of {edge.access.buffer} for {name}", size, rates.value_bytes
    if accumulators > rates.accumulator_bytes:
        return "the sums of all products", accumulators, rates.accumulator_bytes
    return None


def _tile_elements(access: Access, tiling: Tiling) -> int:
    return prod(tiling.step[a] for a in access.names if a in tiling.tiled)


def cost(nest: Nest, tiling: Tiling, rates: Rates) -> Cost:
    """What all programs do, and the planner's estimate of the time."""
    trips = {a: ceil(nest.extents[a] / tiling.step[a]) for a in tiling.step}
    blocks = max(1, prod(trips[a] for a, m in tiling.mapping.items() if m == "block"))
    layers = passes(nest, tiling)
    states = nest.recurrence.states if nest.recurrence is not None else {}
    work, flops = Work(), 0.0
    touched: dict[tuple[str, frozenset[str]], float] = {}
    widened: set[Access] = set()
    panels: set[tuple[Access, tuple[str, ...]]] = set()
    for name, s in nest.statements.items():
        loops = tiling.loops(s.axes)
        count = prod(trips[a] for a in loops) * layers[name]
        elements = prod(tiling.step[a] for a in s.axes if a in tiling.tiled)
        flops += blocks * count * elements * s.flops
        core = tiling.cores.get(name)
        if core is not None:
            size = max(
                nest.graph.buffers[e.access.buffer].dtype.itemsize for e in s.operation.loads
            )
            m, n, k = (tiling.step[a] for a in (core.m, core.n, core.k))
            work.product(m, n, k, size, rates, count)
        else:
            work.near_bytes += count * elements * 4
            work.ops += count
        reduced_loops = set(tiling.loops(s.reduced))
        for edge in s.operation.loads:
            for access in edge.access.accesses():
                tile_elements = _tile_elements(access, tiling)
                if access.buffer in nest.statements or access.buffer in states:
                    if core is not None:  # rounded, and brought to where the product wants it
                        work.near_bytes += count * tile_elements * 4
                    continue
                if core is not None and (access, loops) in panels:
                    # Products of one loop that take the same tile load it once.
                    item = nest.graph.buffers[access.buffer].dtype.itemsize
                    work.near_bytes -= count * tile_elements * item
                    continue
                if core is not None:
                    panels.add((access, loops))
                names = access.names & set(s.axes)
                around = loops if names & reduced_loops else tiling.loops(tuple(names))
                times = prod(trips[a] for a in around) * layers[name]
                item = nest.graph.buffers[access.buffer].dtype.itemsize
                work.shared_bytes += times * tile_elements * item
                if any(isinstance(e, Gather) for e in access.entries):
                    work.ops += times * rates.gather_ops
                if core is None and item < 4 and access not in widened:
                    widened.add(access)
                    work.near_bytes += times * tile_elements * 4
                key = (nest.graph.memory(access.buffer), frozenset(names))
                touched[key] = prod(nest.extents[a] for a in names) * item
    for name in nest.outputs:
        s, item = nest.statements[name], nest.graph.buffers[name].dtype.itemsize
        size = prod(nest.extents[a] for a in s.kept) * item * (2 if s.scatters else 1)
        touched[name, frozenset()] = size
        work.shared_bytes += size / blocks
    memory = sum(touched.values())
    # What cores can share is one loop that all products are in.
    products = {tiling.loops(nest.statements[n].axes) for n in tiling.cores}
    one_loop = len(products) == 1 and [len(loops) for loops in products] == [1]
    time = seconds(work, blocks, rates, memory, shared=one_loop)
    return Cost(flops, memory, work.shared_bytes * blocks, blocks, time)


def passes(nest: Nest, tiling: Tiling) -> dict[str, int]:
    """How often each statement is computed because loops over one axis follow each other."""
    count = dict.fromkeys(nest.statements, 1)
    for axis, mapping in tiling.mapping.items():
        if mapping != "sequential":
            continue
        layer: dict[str, int] = {}
        for name, s in nest.statements.items():
            below = [d for d in nest.reach[name] if d in layer and d != name]
            if axis in s.reduced:
                wait = [layer[d] + (not online(nest, tiling, s, nest.statements[d])) for d in below]
                layer[name] = max(wait, default=0)
            elif axis in s.kept and name in nest.outputs:
                layer[name] = max(
                    (layer[d] + 1 for d in below if axis in nest.statements[d].reduced), default=0
                )
        for name, s in nest.statements.items():
            if axis in s.kept:
                users = {layer[u] for u in layer if name in nest.reach[u] and u != name}
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
