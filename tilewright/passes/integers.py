"""What is known of an integer at any level: `divisor` and `bounds`.

    %m = arith.muli %pid, %c256 : index                          divisor 256, bounds 0 to 256 * (2^31 - 1)
    scf.for %k = %c0 to %n step %c32 iter_args(%at = %m)         of %k: 32, 0 and more
      %u = arith.addi %at, %c64 : index
      scf.yield %u : index                                       of %at: 64, 0 and more

Sources are constants, arithmetic, what loops and branches carry and count, ids, extents of arrays and what the key of
specialisation promises of them (`tilewright.args`). The values that one depends on are looked at in order, again where
loops feed them back, until none changes: facts of a lattice, linear in the number of values, no limit of depth.

Offsets have 64 bits and do not wrap (DESIGN 3). Narrower numbers may: of what divides them the powers of two stay, of
their bounds those of the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import gcd, inf, prod
from typing import Generic, TypeVar

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IntegerAttr, IntegerType, MemRefType
from xdsl.dialects.vector import CombiningKindAttr
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects.movement import ELEMENTS, positions_at_run_time
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.upstream.arith import constant, constants, element, folded
from tilewright.dialects.upstream.combining import kind_of
from tilewright.dialects.upstream.subview import kept_dimensions
from tilewright.dialects.xetile.assembly import merge_indices
from tilewright.passes.carried import given_by
from tilewright.passes.kernel import SUBGROUPS
from tilewright.passes.memory_objects import arg_facts

Index = SSAValue | int
T = TypeVar("T")

ANY = 0
"""The multiple of everything: zero itself."""


class Solver(Generic[T]):
    """Facts of values: those that are known before a value's own, then its own, until no loop changes them."""

    PATIENCE = 2
    """Rounds after which `widened` has to see to an end."""

    def __init__(self, unknown: T) -> None:
        self.unknown = unknown
        self.known: dict[SSAValue, T] = {}

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        """The values whose facts `fact` asks for."""
        raise NotImplementedError

    def fact(self, value: SSAValue) -> T | None:
        """From the facts of `sources`; None while they are not known."""
        raise NotImplementedError

    def joined(self, a: T, b: T) -> T:
        """What holds of a value that is one or the other."""
        raise NotImplementedError

    def widened(self, old: T, new: T) -> T:
        """`new`, or what comes after finitely many of such."""
        return new

    def of(self, value: SSAValue) -> T:
        """What is known of a value."""
        if value not in self.known:
            order, again, rounds = *self._order(value), 0
            while again or rounds == 0:
                changed = False
                for each in order:
                    old, new = self.known.get(each), self.fact(each)
                    if old is not None and new is not None:
                        new = self.joined(old, new)
                        if new != old and rounds >= self.PATIENCE:
                            new = self.widened(old, new)
                    if new is not None and new != old:
                        self.known[each], changed = new, True
                again, rounds = again and changed, rounds + 1
        return self.known.get(value, self.unknown)

    def join_all(self, values: Iterable[SSAValue]) -> T | None:
        """Of a value that may be each of these."""
        found: T | None = None
        for value in values:
            fact = self.known.get(value)
            if fact is not None:
                found = fact if found is None else self.joined(found, fact)
        return found

    def _order(self, value: SSAValue) -> tuple[list[SSAValue], bool]:
        """What a value depends on, sources first, and whether something depends on itself."""
        order: list[SSAValue] = []
        begun, cyclic = {value}, False
        open_ = [(value, iter(self.sources(value)))]
        ended: set[SSAValue] = set()
        while open_:
            at, rest = open_[-1]
            following = next((v for v in rest if v not in self.known and v not in ended), None)
            if following is None:
                open_.pop()
                order.append(at)
                ended.add(at)
            elif following in begun:
                cyclic = True
            else:
                begun.add(following)
                open_.append((following, iter(self.sources(following))))
        return order, cyclic


def _operands(value: SSAValue) -> Sequence[SSAValue]:
    """What control flow, arithmetic and counting make a value of."""
    if found := given_by(value):
        return found
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        return (loop.lb, loop.ub, loop.step) if isinstance(loop, scf.ForOp) else ()
    assert isinstance(value, OpResult)
    op = value.op
    if op.name in ELEMENTS:
        return [v for v in op.operands if v not in positions_at_run_time(op)]
    return op.operands if op.name.startswith("arith.") or is_extreme(op) else ()


def is_extreme(op: Operation) -> bool:
    """Does an op give the least or the largest of elements of its operands?"""
    kind = op.properties.get("kind")
    return isinstance(kind, CombiningKindAttr) and kind.data.value[-2:] in ("si", "ui")


def _counted(value: SSAValue) -> scf.ForOp | None:
    """The loop whose counter a value is."""
    loop = value.block.parent_op() if isinstance(value, BlockArgument) else None
    return loop if isinstance(loop, scf.ForOp) and value.index == 0 else None  # pyright: ignore


def dimension_of(value: SSAValue) -> tuple[SSAValue, int] | None:
    """The array and the dimension whose extent a value is."""
    op = value.owner
    if not isinstance(value, OpResult):
        return None
    if isinstance(op, memref.DimOp):
        dim = constant(op.index)
        return None if dim is None else (op.source, dim)
    if isinstance(op, memref.ExtractStridedMetaDataOp):
        dim = value.index - 2
        return (op.source, dim) if 0 <= dim < (len(op.results) - 2) // 2 else None
    return None


def _bits(value: SSAValue) -> int:
    kind = element(value.type)
    return kind.width.data if isinstance(kind, IntegerType) else 64


# --- Divisors ------------------------------------------------------------------------------------------------


_GCD = ("addi", "subi", "minsi", "maxsi", "minui", "maxui", "remsi", "remui", "select")
_QUOTIENTS = ("divsi", "divui", "floordivsi", "ceildivsi", "ceildivui")
_CASTS = ("index_cast", "index_castui", "extsi", "extui", "trunci")
_UNSIGNED = ("remui", "divui", "ceildivui", "minui", "maxui")
"""Of negative numbers other ones, which powers of two alone still divide."""


class Divisors(Solver[int]):
    """The largest number that is known to divide each value; `ANY` for zero."""

    def __init__(self) -> None:
        super().__init__(1)

    def of_index(self, value: Index) -> int:
        return abs(value) if isinstance(value, int) else self.of(value)

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        return _operands(value)

    def joined(self, a: int, b: int) -> int:
        return gcd(a, b)

    def fact(self, value: SSAValue) -> int | None:
        if values := given_by(value):
            return self.join_all(values)
        if (loop := _counted(value)) is not None:
            values = (loop.lb, loop.step)
            return None if any(v not in self.known for v in values) else self.join_all(values)
        if isinstance(value, BlockArgument):
            return 1
        if (number := constant(value)) is not None:
            return abs(number)
        if (dimension := dimension_of(value)) is not None:
            return extent_divisor(*dimension)
        assert isinstance(value, OpResult)
        return self._computed(value, value.op)

    def _computed(self, value: SSAValue, op: Operation) -> int | None:
        dialect, _, name = op.name.partition(".")
        if dialect != "arith" or len(op.operands) > 3:
            return 1
        given = [self.known.get(v) for v in op.operands[-2:]]
        known = [each for each in given if each is not None]
        if len(known) < len(given):
            return None
        found, bits = 1, _bits(value)
        if name in _GCD:
            found = gcd(*known)
        elif name == "muli":
            found = known[0] * known[1]
        elif name in _QUOTIENTS:
            # Exact where the divisor divides: then nothing is rounded.
            by = constant(op.operands[1])
            found = known[0] // by if by is not None and by > 0 and known[0] % by == 0 else 1
        elif name == "shli":
            by = constant(op.operands[1])
            found = known[0] << by if by is not None and 0 <= by < 32 else known[0]
        elif name in _CASTS:
            found = known[0]
            bits = _bits(op.operands[0]) if name in ("extui", "index_castui") else bits
        if found and (bits < 64 or name in _UNSIGNED):
            found = gcd(found, 1 << bits)
        return found


def extent_divisor(array: SSAValue, dim: int) -> int:
    """What is known to divide an extent of an array."""
    shape = array.type.get_shape() if isinstance(array.type, MemRefType) else ()
    if dim < len(shape) and shape[dim] >= 0:
        return shape[dim]
    view = array.owner
    if isinstance(view, memref.SubviewOp):
        return divisor(merge_indices(view.static_sizes, view.sizes)[kept_dimensions(view)[dim]])
    div = arg_facts(array).div
    return div[dim] if dim < len(div) else 1


def divisor(value: Index) -> int:
    """The largest number that is known to divide an integer; `ANY` for zero."""
    return Divisors().of_index(value)


def is_multiple(value: Index, number: int) -> bool:
    """Is an integer known to be a multiple of a number?"""
    return divisor(value) % number == 0


# --- Bounds --------------------------------------------------------------------------------------------------


Bounds = tuple[int | None, int | None]
"""Least and greatest value, None where there is no bound."""
Span = tuple[int, int]
"""Inclusive bounds."""
Extents = Callable[[SSAValue], int | None]
"""The most elements along a dimension of an array, None where it may have any number."""
EXTENT = 1 << 26
"""Of the arrays that machines take which count places by 32 bits: targets refuse larger ones at launch."""
_IDS = {
    "gpu.block_id": 1 << 31,
    "gpu.grid_dim": 1 << 31,
    "gpu.subgroup_id": 1 << 10,
    "gpu.lane_id": 64,
    "gpu.thread_id": 1 << 10,
}
_MOST = 1 << 62
"""Beyond it, sums may wrap."""
_Range = tuple[float, float]
"""Inclusive ends: an integer, or infinite where there is none."""
_NOTHING: _Range = -inf, inf


def _sum(a: _Range, b: _Range) -> _Range:
    return a[0] + b[0], a[1] + b[1]


def _product(a: _Range, b: _Range) -> _Range:
    if a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], 0 if 0 in (a[1], b[1]) else a[1] * b[1]
    ends = [x * y for x in a for y in b if inf not in map(abs, (*a, *b))]
    return (min(ends), max(ends)) if ends else _NOTHING


def _floor(a: _Range, b: _Range) -> _Range:
    """Of quotients that are rounded down, by more than zero."""
    small, large = max(1, b[0]), max(1, b[1])
    by = small if a[0] < 0 else large, large if a[1] < 0 else small
    low, high = (n if abs(n) == inf else n // d for n, d in zip(a, by, strict=True))
    return (low, high) if b[0] >= 0 else _NOTHING


def _rest(a: _Range, b: _Range) -> _Range:
    return (0, max(0, min(a[1], b[1] - 1))) if a[0] >= 0 and b[0] >= 0 else _NOTHING


def _and(a: _Range, b: _Range) -> _Range:
    most = [each[1] for each in (a, b) if each[0] >= 0]
    return (0, min(most)) if most else _NOTHING


def _either(a: _Range, b: _Range) -> _Range:
    return min(a[0], b[0]), max(a[1], b[1])


_BINARY: dict[str, Callable[[_Range, _Range], _Range]] = {
    "addi": _sum,
    "subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "muli": _product,
    **dict.fromkeys(("divsi", "divui"), lambda a, b: _floor(a, b) if a[0] >= 0 else _NOTHING),
    "floordivsi": _floor,
    "ceildivsi": lambda a, b: _sum(_floor(_sum(a, (-1, -1)), b), (1, 1)),
    "remsi": _rest,
    # Of a negative number, too: it counts as a large one.
    "remui": lambda a, b: _rest(a if a[0] >= 0 else (0, inf), b),
    "andi": _and,
    "minui": _and,
    "minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "select": _either,
}


class Ranges(Solver[_Range]):
    """Between which numbers each value is known to lie, and each element of a vector."""

    def __init__(self, extent: Extents = lambda _: None) -> None:
        super().__init__(_NOTHING)
        self.extent = extent

    def bounds(self, value: Index) -> Bounds:
        """Inclusive; None where there is no bound."""
        if isinstance(value, int):
            return value, value
        low, high = self.of(value)
        return None if low == -inf else int(low), None if high == inf else int(high)

    def span(self, value: Index) -> Span | None:
        """Inclusive bounds; None where one of them is not known."""
        low, high = self.bounds(value)
        return None if low is None or high is None else (low, high)

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        return _operands(value)

    def joined(self, a: _Range, b: _Range) -> _Range:
        return _either(a, b)

    def widened(self, old: _Range, new: _Range) -> _Range:
        return old[0] if new[0] == old[0] else -inf, old[1] if new[1] == old[1] else inf

    def fact(self, value: SSAValue) -> _Range | None:
        found = self._fact(value)
        if found is None:
            return None
        bits = _bits(value)
        most = 1 << bits - 1 if bits < 64 else _MOST
        low, high = found
        if bits < 64 and not -most <= low <= high < most:
            return -most, most - 1
        return low if low > -most else -inf, high if high < most else inf

    def _fact(self, value: SSAValue) -> _Range | None:
        if values := given_by(value):
            grown = self._grown(value, values) if isinstance(value, BlockArgument) else None
            return grown or self.join_all(values)
        if (loop := _counted(value)) is not None:
            return self._counter(loop)
        if isinstance(value, BlockArgument):
            return _NOTHING
        if (number := constant(value)) is not None:
            return number, number
        if (dimension := dimension_of(value)) is not None:
            shape = getattr(dimension[0].type, "get_shape", tuple)()
            known = shape[dimension[1]] if dimension[1] < len(shape) else -1
            if known >= 0:
                return known, known
            most = self.extent(dimension[0])
            return 0, inf if most is None else most
        assert isinstance(value, OpResult)
        return self._computed(value.op)

    def _computed(self, op: Operation) -> _Range | None:
        if op.name in _IDS:
            # Where a program runs, there are programs.
            return int(op.name == "gpu.grid_dim"), (_subgroups(op) or _IDS[op.name]) - 1
        if op.name == "vector.step":
            return 0, prod(op.results[0].type.get_shape()) - 1  # pyright: ignore
        dialect, _, name = op.name.partition(".")
        if not _operands(op.results[0]):
            found = constants(op.results[0])
            return (min(found), max(found)) if found else _NOTHING
        given = [self.known.get(v) for v in op.operands[-2:]]
        known = [each for each in given if each is not None]
        if len(known) < len(given):
            return None
        modulus = _modulus(op)
        if modulus is not None and (positive := self.known.get(modulus, _NOTHING))[0] > 0:
            return 0, positive[1] - 1
        if is_extreme(op) and (rule := _BINARY.get(kind_of(op))):
            return reduce(rule, known)
        if dialect != "arith":
            return self.join_all(_operands(op.results[0]))
        if name in ("index_cast", "extsi"):
            return known[0]
        if name in ("index_castui", "extui"):
            natural = known[0][0] >= 0
            return known[0] if natural else (0, (1 << _bits(op.operands[0])) - 1)
        return _BINARY[name](*known) if name in _BINARY else _NOTHING

    def _counter(self, loop: scf.ForOp) -> _Range | None:
        first, last = self.known.get(loop.lb), self.known.get(loop.ub)
        if first is None or last is None:
            return None
        trips, low, step = trip_count(loop), constant(loop.lb), constant(loop.step)
        if trips is not None and low is not None and step is not None:
            return low, low + max(0, trips - 1) * step
        return first[0], max(first[0], last[1] - 1)

    def _grown(self, value: BlockArgument, values: Sequence[SSAValue]) -> _Range | None:
        """Of a number that grows by a constant in each of so many iterations."""
        loop = value.block.parent_op()
        by, trips = (
            growth(value, values[-1]),
            trip_count(loop) if isinstance(loop, scf.ForOp) else None,
        )
        start = self.known.get(values[0])
        if not isinstance(by, int) or by < 0 or trips is None or start is None:
            return None
        return start[0], start[1] + by * max(0, trips - 1)


def _modulus(op: Operation) -> SSAValue | None:
    """b, where an op is `a - a // b * b`: the remainder as Python has it."""
    if not isinstance(op, arith.SubiOp) or not isinstance(op.rhs, OpResult):
        return None
    product, dividend = op.rhs.op, op.lhs
    if isinstance(product, arith.MuliOp) and isinstance(product.lhs, OpResult):
        made = product.lhs.op
        if isinstance(made, arith.FloorDivSIOp) and [*made.operands] == [dividend, product.rhs]:
            return product.rhs
    return None


def growth(value: SSAValue, following: SSAValue) -> Index | None:
    """By how much a number grows from one iteration of a loop to the next."""
    if following is value:
        return 0
    if isinstance(following, OpResult) and isinstance(following.op, arith.AddiOp):
        rest = [v for v in following.op.operands if v is not value]
        return folded(rest[0]) if len(rest) == 1 else None
    return None


def trip_count(loop: scf.ForOp) -> int | None:
    """How often a loop runs whose bounds and step are constants; None of any other."""
    first, last, step = (constant(v) for v in (loop.lb, loop.ub, loop.step))
    return max(0, -(-(last - first) // step)) if None not in (first, last) and step else None  # pyright: ignore


def _subgroups(op: Operation) -> int | None:
    """How many there are, of gpu.subgroup_id in a kernel that says so."""
    kernel = enclosing(op, gpu.FuncOp) if isinstance(op, gpu.SubgroupIdOp) else None
    number = kernel.attributes.get(SUBGROUPS) if kernel is not None else None
    return number.value.data if isinstance(number, IntegerAttr) else None


def bounds(value: Index, extent: Extents = lambda _: None) -> Bounds:
    """Between which numbers an integer is known to lie, inclusive; None where there is no bound."""
    return Ranges(extent).bounds(value)


def span(value: Index, extent: Extents = lambda _: EXTENT) -> Span | None:
    """Inclusive bounds; None where one of them is not known."""
    return Ranges(extent).span(value)


def lies_in(found: Span | None, bounds: Span) -> bool:
    return found is not None and bounds[0] <= found[0] and found[1] <= bounds[1]


def with_term_in(
    total: SSAValue, bounds: Span, of: Callable[[SSAValue], Span | None] = span
) -> tuple[SSAValue, SSAValue, Span] | None:
    """The terms of a sum, of which the second lies within bounds, and its span; None for what is no such sum."""
    if isinstance(op := total.owner, arith.AddiOp):
        for other, term in (op.operands, op.operands[::-1]):
            if (found := of(term)) is not None and lies_in(found, bounds):
                return other, term, found
    return None


def is_natural(value: Index) -> bool:
    """Is an integer known not to be negative?"""
    low, _ = bounds(value)
    return low is not None and low >= 0
