"""Which earlier accesses of other subgroups an access has to wait for, found without comparing each pair.

Part of :mod:`tilewright.passes.xegpu.insert_barriers`. Accesses whose offsets differ by numbers only are one kind:
they touch the same memory in boxes of one size, at `symbols + numbers`. Two kinds are compared once, with symbols;
what is left for two accesses are numbers, and those that are near enough are found in a grid of boxes. Time grows
linearly with the accesses of a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product

from xdsl.ir import SSAValue

from tilewright.frozen import frozen
from tilewright.layout import Distribution
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.memory_objects import may_alias
from tilewright.passes.regions import difference
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.memory_footprints import Footprint, value_shape

FAR = 4
"""From so many iterations on, an earlier access counts as one of any earlier iteration."""
CELLS = 64
"""More cells than this are not looked up one by one."""

Numbers = tuple[int, ...]
Ago = tuple[tuple[Symbol, "int | None"], ...]
"""Per loop around an access how many iterations ago it was (FAR: at least so many), None: in any of them."""


@frozen
class Sort:
    """All that accesses may have in common. `symbols` are those of the offsets, None: not known."""

    root: SSAValue | None
    base: object
    writes: bool
    atomic: bool
    symbols: tuple[Expr, ...] | None
    shape: tuple[int, ...]
    layout: Distribution | None
    value: tuple[int, ...]

    def depends_on(self, counter: Symbol) -> bool:
        return self.symbols is not None and any(e.depends_on(counter) for e in self.symbols)


def sort_of(footprint: Footprint) -> tuple[Sort, Numbers]:
    """An access' sort, and the numbers in its offsets."""
    symbols, numbers = None, ()
    if footprint.offsets is not None:
        numbers = tuple(e.offset for e in footprint.offsets)
        symbols = tuple(e - n for e, n in zip(footprint.offsets, numbers, strict=True))
    sort = Sort(
        footprint.root,
        footprint.base,
        footprint.writes,
        footprint.atomic,
        symbols,
        footprint.shape,
        footprint.layout,
        value_shape(footprint.op),
    )
    return sort, numbers


@frozen
class BoxRelation:
    """How accesses of one sort, some iterations ago, lie to those of another now.

    `bounds` are those of the distance per dimension, without the numbers; None: they may touch whatever the
    numbers are. `same_is_fine`: the very same box is touched by the same owners.
    """

    bounds: tuple[tuple[int | None, int | None], ...] | None
    same_is_fine: bool = False


class BoxGroup:
    """The boxes of one sort, by where they are."""

    def __init__(self) -> None:
        self.at: dict[Numbers, Footprint] = {}
        self.cells: dict[Numbers, list[Numbers]] = {}

    def add(self, numbers: Numbers, footprint: Footprint) -> None:
        if numbers not in self.at:
            self.at[numbers] = footprint
            cell = tuple(n // m for n, m in zip(numbers, footprint.shape, strict=False))
            self.cells.setdefault(cell, []).append(numbers)

    def near(
        self, low: list[int | None], high: list[int | None], shape: Numbers
    ) -> Iterator[Numbers]:
        """Boxes that may start between two corners, both included; None is open."""
        count, ranges = 1, []
        for a, b, m in zip(low, high, shape, strict=True):
            if a is None or b is None:
                count = CELLS + 1
                break
            ranges.append(range(a // m, b // m + 1))
            count *= len(ranges[-1])
        if count > min(CELLS, len(self.cells)):
            yield from self.at
            return
        for cell in product(*ranges):
            yield from self.cells.get(cell, ())


class Pending:
    """The accesses since the last barrier."""

    def __init__(self, groups: Iterable[tuple[tuple[Sort, Ago], BoxGroup]] = ()):
        self.groups: dict[tuple[Sort, Ago], BoxGroup] = {}
        for key, group in groups:
            self._merge(key, group)

    def _merge(self, key: tuple[Sort, Ago], group: BoxGroup) -> None:
        mine = self.groups.setdefault(key, BoxGroup())
        for numbers, footprint in group.at.items():
            mine.add(numbers, footprint)

    def add(self, footprint: Footprint) -> None:
        sort, numbers = sort_of(footprint)
        self.groups.setdefault((sort, ()), BoxGroup()).add(numbers, footprint)

    def with_(self, other: Pending) -> Pending:
        """Both, as a new one."""
        return Pending((*self.groups.items(), *other.groups.items()))

    def holds(self, other: Pending) -> bool:
        return all(
            (mine := self.groups.get(key)) is not None and group.at.keys() <= mine.at.keys()
            for key, group in other.groups.items()
        )

    def earlier(self, counter: Symbol) -> Pending:
        """As the next iteration sees it. Where the place does not depend on the iteration, it is all the same."""

        def passed(n: int | None) -> int | None:
            return None if n is None else min(n + 1, FAR)

        return self._moved(counter, lambda ago: passed(ago.get(counter, 0)))

    def ended(self, counter: Symbol) -> Pending:
        """As the code behind the loop sees it."""
        return self._moved(counter, lambda _: None)

    def _moved(
        self, counter: Symbol, to: Callable[[dict[Symbol, int | None]], int | None]
    ) -> Pending:
        found: list[tuple[tuple[Sort, Ago], BoxGroup]] = []
        for (sort, ago), group in self.groups.items():
            if sort.depends_on(counter):
                known = dict(ago)
                known[counter] = to(known)
                ago = tuple(sorted(known.items(), key=lambda item: item[0].serial))
            found.append(((sort, ago), group))
        return Pending(found)


class Order:
    """Who has to wait for whom. Comparisons of sorts are kept."""

    def __init__(self, analysis: AccessAnalysis):
        self.analysis = analysis
        self._known: dict[tuple[Sort, Ago, Sort, frozenset[Symbol]], BoxRelation | None] = {}

    def conflicts(
        self, pending: Pending, footprint: Footprint, free: frozenset[Symbol] = frozenset()
    ) -> list[Footprint]:
        """Earlier accesses of which another subgroup's may touch what this one touches, one of them writing.

        `free` counters are those of any iteration of the loops that `footprint` stands in.
        """
        sort, numbers = sort_of(footprint)
        found: list[Footprint] = []
        for (other, ago), group in pending.groups.items():
            key = (other, ago, sort, free)
            if key not in self._known:
                self._known[key] = self._relation(other, ago, sort, free)
            relation = self._known[key]
            if relation is None:
                continue
            hit = next(_hits(group, relation, other, sort, numbers), None)
            if hit is not None:
                found.append(group.at[hit])
        return found

    def _relation(
        self, y: Sort, ago: Ago, x: Sort, free_of_x: frozenset[Symbol]
    ) -> BoxRelation | None:
        """None where they never conflict."""
        if not (x.writes or y.writes) or (x.atomic and y.atomic):
            return None
        known = x.root is not None and y.root is not None
        if known and not may_alias(x.root, y.root):  # pyright: ignore
            return None
        if x.symbols is None or y.symbols is None or x.base != y.base:
            return BoxRelation(None)
        if len(x.symbols) != len(y.symbols):
            return BoxRelation(None)
        free = frozenset(s for s, n in ago if n is None) | free_of_x
        back = {s: self._before(s, n) for s, n in ago if n}
        same = True
        bounds: list[tuple[int | None, int | None]] = []
        for a, b, m, n in zip(y.symbols, x.symbols, y.shape, x.shape, strict=True):
            then = self.earlier(a, back) if back else a
            if then is None:
                same = False
                bounds.append((None, None))
                continue
            common = {s for e in (then, b) for s in e.atoms | e.symbols} - free - self._spans(ago)
            bounds.append(difference(then, b, common))
            loose = any(e.depends_on(s) for e in (then, b) for s in free)
            if not loose and _disjoint_slots(then, b, m, n):
                return None
            same = same and then == b and m == n and not any(then.depends_on(s) for s in free)
        if not same or x.layout is None or y.layout is None:
            return BoxRelation(tuple(bounds))
        if x.value != y.value or not own.same_owners(x.layout, y.layout, x.value):
            return BoxRelation(tuple(bounds))
        # Of several owners of an element only one stores it.
        shared = own.replicas(x.layout, x.value) > 1 and not (x.writes and y.writes)
        return BoxRelation(tuple(bounds), same_is_fine=not shared)

    def _before(self, counter: Symbol, ago: int) -> Expr:
        """A counter so many iterations ago; FAR: at least so many, by a number that nobody knows."""
        if ago < FAR:
            return Expr.symbol(counter) - ago
        return Expr.symbol(counter) - Expr.symbol(self._span(counter))

    def _span(self, counter: Symbol) -> Symbol:
        table = self.analysis.symbols
        name = f"iterations since, of {counter}"
        return table.get(Kind.COUNTER, ("ago", counter), name, lower=FAR)

    def _spans(self, ago: Ago) -> set[Symbol]:
        return {self._span(s) for s, n in ago if n == FAR}

    def earlier(self, e: Expr, back: Mapping[Symbol, Expr]) -> Expr | None:
        """An expression with loop counters as they were, inside of remainders and the like too; None where
        it holds a value that is not known as a function of them."""
        result = Expr.of(0)
        for monomial, factor in e.terms.items():
            term = Expr.of(factor)
            for symbol in monomial:
                then = self.earlier_symbol(symbol, back)
                if then is None:
                    return None
                term = term * then
            result = result + term
        return result

    def earlier_symbol(self, symbol: Symbol, back: Mapping[Symbol, Expr]) -> Expr | None:
        if symbol in back:
            return back[symbol]
        if not any(symbol.depends_on(counter) for counter in back):
            return Expr.symbol(symbol)
        if symbol.kind is not Kind.APPLY or not isinstance(symbol.key, tuple):
            return None
        arguments = [self.earlier(argument, back) for argument in symbol.args]
        known = [a for a in arguments if a is not None]
        if len(known) != len(arguments):
            return None
        table, operator = self.analysis.symbols, str(symbol.key[0])
        match operator:
            case "mod":
                return table.mod(*known)
            case "floordiv":
                return table.floordiv(*known)
            case _:
                return table.apply(operator, *known)


def _hits(
    group: BoxGroup, relation: BoxRelation, y: Sort, x: Sort, numbers: Numbers
) -> Iterator[Numbers]:
    """The boxes of a group that the box at `numbers` may meet."""
    if relation.bounds is None:
        yield from group.at
        return
    low: list[int | None] = []
    high: list[int | None] = []
    # A box that starts at c + distance meets [b, b + n) unless it ends before b or starts behind its end.
    for b, m, n, (least, most) in zip(numbers, y.shape, x.shape, relation.bounds, strict=True):
        low.append(None if most is None else b - m + 1 - most)
        high.append(None if least is None else b + n - 1 - least)
    for at in group.near(low, high, y.shape):
        inside = all(
            (a is None or c >= a) and (z is None or c <= z)
            for c, a, z in zip(at, low, high, strict=True)
        )
        if inside and not (relation.same_is_fine and at == numbers):
            yield at


def _disjoint_slots(a: Expr, b: Expr, m: int, n: int) -> bool:
    """Slots of a multi-buffer, (x mod r) and (y mod r): apart when x - y is known and no multiple of r near."""
    moduli = {c for e in (a, b) if (c := _modulus(e)) is not None}
    if len(moduli) != 1:
        return False
    (modulus,) = moduli
    x, y = _inside(a, modulus), _inside(b, modulus)
    distance = None if x is None or y is None else (x - y).constant
    if distance is None:
        return False
    # a - b is `rest` or `rest - modulus`.
    rest = distance % modulus
    return rest >= n and modulus - rest >= m


def _modulus(e: Expr) -> int | None:
    """r, where an expression is something modulo r."""
    symbol = e.as_symbol()
    if symbol is None or symbol.kind is not Kind.APPLY:
        return None
    is_mod = isinstance(symbol.key, tuple) and symbol.key[0] == "mod"
    size = symbol.args[1].constant if is_mod else None
    return size if size is not None and size > 0 else None


def _inside(e: Expr, modulus: int) -> Expr | None:
    """x, where e = x mod ring."""
    symbol = e.as_symbol()
    if symbol is not None and _modulus(e) == modulus:
        return symbol.args[0]
    low, high = e.range()
    return e if low is not None and high is not None and low >= 0 and high < modulus else None
