"""Which axes of a nest are tiled, what runs them, and in what steps.

Tiles have two dimensions. Axes that a product multiplies along are tiled; others while every value keeps two tiled
axes at most; the rest advance by one. An axis that every output has, and that nothing reduces, is mapped to the grid;
the others are loops, or whole (one tile covers the extent: mapping ``group``). Steps are chosen by the planner: by
descent on its estimate of the time, within the room that the machine has for values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import inf, prod
from typing import TypeAlias

from tilewright.graph.affine import Affine
from tilewright.graph.costs import Core, Cost, Costs, Tiling
from tilewright.graph.nest import Nest, Statement
from tilewright.graph.nodes import Entry, Gather, Index, Mapped
from tilewright.passes.planner import descend
from tilewright.uarch import Rates

STEPS = (16, 32, 64, 128, 256)

Way: TypeAlias = tuple[Mapped, int]
"""What runs the iterations of an axis, and its step."""


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


def _moves_alone(entry: Entry, tiled: Sequence[str]) -> bool:
    """Does one of the tiled axes at most move an entry, and by one?"""
    if not isinstance(entry, Index):
        return True
    moving = [f for a, f in entry.at.terms if a in tiled]
    return not moving or moving == [1]


def tile(nest: Nest, rates: Rates) -> tuple[Tiling, Cost] | str:
    """The cheapest tiling that was found and what it costs, or why there is none."""
    carried = nest.recurrence
    serial = frozenset((carried.axis,)) if carried is not None else frozenset[str]()
    cores = {n: c for n, s in nest.statements.items() if (c := core_of(s, nest.extents, serial))}
    costs = Costs(nest, cores, rates)
    found = dict.fromkeys(
        _tiled_axes(nest, cores, serial, f) for f in _firsts(costs, cores, serial)
    )
    made = [t if isinstance(t, str) else _tile_along(costs, cores, t) for t in found]
    fit = [each for each in made if not isinstance(each, str)]
    return min(fit, key=lambda each: each[1].seconds) if fit else made[0]


def _firsts(
    costs: Costs, cores: Mapping[str, Core], serial: frozenset[str]
) -> Iterator[tuple[str, ...]]:
    """Axes that are tiled before others. Where no product says which, and there are more than two: also each with the
    one along which most of what is loaded has its neighbours."""
    yield ()
    extents, runs = costs.nest.extents, Counter[str]()
    long = [a for a in costs.axes if extents[a] > 1 and a not in serial]
    for s in costs.counted:
        for load in s.loads:
            runs[costs.run_of(load.access)] += prod(extents[a] for a in s.statement.axes)
    if not cores and len(long) > 2 and (run := max(runs, key=runs.__getitem__, default="")) in long:
        yield from ((run, a) for a in reversed(long) if a != run)


def _tile_along(
    costs: Costs, cores: Mapping[str, Core], tiled: tuple[str, ...]
) -> tuple[Tiling, Cost] | str:
    """The cheapest tiling of these axes, or why there is none."""
    nest, rates, carried, axes = costs.nest, costs.rates, costs.nest.recurrence, costs.axes
    serial = frozenset((carried.axis,)) if carried is not None else frozenset[str]()
    near = carried.near if carried is not None else frozenset[str]()
    blockable = _blockable(nest, axes) - serial - (carried.whole if carried is not None else serial)
    in_core = {a for c in cores.values() for a in (c.m, c.n, c.k)}
    rows, runs = _units(nest, cores, rates)
    options: dict[str, list[Way]] = {}
    for axis in axes:
        extent = nest.extents[axis]
        spread: Mapped = "block" if axis in blockable else "sequential"
        if axis not in tiled:
            if axis in near and axis not in blockable:
                return f"the state has more than two dimensions that one program needs whole ({axis} is one)"
            options[axis] = [(spread, 1)]
            continue
        unit = rows.get(axis, 16)
        whole = _whole(extent, axis in in_core or axis in near, unit)
        steps = [s for s in STEPS if s < whole and s % max(unit, runs.get(axis, 16)) == 0]
        if axis in blockable and axis not in in_core:
            steps += [s for s in (1, 4) if s < whole]
        ways: list[Way] = [("group", whole)]
        if axis in blockable and whole > STEPS[-1] and unit > 16:
            ways = []  # of units that take so many rows there are but a few
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
        found = costs.of(made(choice))
        return inf if found is None else found.seconds

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
        lacking = costs.lack(least_tiling)
        if lacking is None:
            return f"no tile of {', '.join(tiled)} leaves room for the values without loops in themselves"
        what, size, limit = lacking
        return f"{what} takes {size} bytes in the smallest tile of {', '.join(tiled)}, and {limit} are there"
    tiling = made(best)
    found = costs.of(tiling)
    assert found is not None
    return tiling, found


def _units(
    nest: Nest, cores: Mapping[str, Core], rates: Rates
) -> tuple[dict[str, int], dict[str, int]]:
    """For products that a matrix unit does: what tiles are multiples of along rows, and steps along k."""
    rows, runs = dict[str, int](), dict[str, int]()
    for name, core in cores.items():
        loads = nest.statements[name].operation.loads
        size = max(nest.graph.buffers[e.access.buffer].dtype.itemsize for e in loads)
        if size <= 2:
            rows[core.m] = rates.product_rows
            runs[core.k] = rates.product_run // size
    return rows, runs


def _whole(extent: int, in_product: bool, unit: int) -> int:
    """A tile that covers an extent: multiples of 16, and of more where it is long, so that few shapes compile anew."""
    step = unit if in_product else max(16, (1 << extent.bit_length()) // 32)
    return max(16, -(-extent // step) * step)


def _blockable(nest: Nest, axes: tuple[str, ...]) -> set[str]:
    found = set(axes)
    for name in nest.outputs:
        found &= set(nest.statements[name].kept)
    for statement in nest.statements.values():
        found -= set(statement.reduced)
    return found


def _tiled_axes(
    nest: Nest, cores: Mapping[str, Core], serial: frozenset[str], first: tuple[str, ...] = ()
) -> tuple[str, ...] | str:
    """The axes that are tiled, those of products before `first` and any other."""
    tiled = dict.fromkeys(a for c in cores.values() for a in (c.m, c.n, c.k))
    fault = _rank_fault(nest.statements.values(), cores, tiled)
    if fault is not None:
        return fault
    by_axis = {a: [s for s in nest.statements.values() if a in s.axes] for a in nest.axes}
    rest = [s for n, s in nest.statements.items() if n not in cores]
    rest.sort(key=lambda s: not s.is_reduction)
    for statement in rest:
        own = [a for a in first if a in statement.axes]
        wanted = [*own, *statement.reduced[-1:], *reversed(statement.kept), *statement.reduced[:-1]]
        for axis in wanted:
            if axis in tiled or axis in serial or nest.extents[axis] == 1:
                continue
            if _rank_fault(by_axis[axis], cores, {**tiled, axis: None}) is None:
                tiled[axis] = None
    return tuple(tiled)


def _rank_fault(
    statements: Iterable[Statement], cores: Mapping[str, Core], tiled: Mapping[str, None]
) -> str | None:
    for s in statements:
        own = [a for a in s.axes if a in tiled]
        core = cores.get(s.name)
        if core is not None:
            if not set(own) <= {core.m, core.n, core.k}:
                return f"{s.name} is a product, and other axes of it are tiled as well"
        elif len(own) > 2:
            return f"{s.name} has three tiled axes ({', '.join(own)})"
        if not all(_moves_alone(entry, own) for entry in s.entries):
            return f"{s.name}: a dimension moves by more than one tiled axis"
        for operand in s.operation.operands:
            if isinstance(operand, Affine) and not _moves_alone(Index(operand), own):
                return f"{s.name} counts along more than one tiled axis"
        for access in s.operation.accesses:
            used = [a for e in access.entries for a in _names(e) if a in own]
            if len(set(used)) < len(used):
                return f"{s.name} reads a diagonal of {access.buffer}"
    return None


def _names(entry: object) -> Iterator[str]:
    if isinstance(entry, Index):
        yield from entry.at.names
    elif isinstance(entry, Gather):
        yield from entry.index.names
