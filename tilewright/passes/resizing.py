"""A kernel at many sizes from few builds: its IR as an affine function of its constexprs.

A kernel is built from its text at one choice of sizes that kernels do not have of themselves. Numbers of it (extents
of types, steps, constants) that are such a size, or a simple multiple of one, are taken for it, and the module with its
numbers set for the kernel at any other sizes:

    vector<176x208xf32>, tile<88x208xf32>, 177   ->   vector<BM x BN x f32>, tile<BM/2 x BN x f32>, BM + 1

Where a kernel turns out to have others, it is built once more with all of the sizes others. By how much a number then
differs tells which of the sizes it depends on, for each differs by a prime of its own. Where it does not, as of a sum
of two of them, the kernel is built once more with each of the sizes another one.

Numbers that are no such function (a product of two sizes, a size's next power of two) go unnoticed where the builds do
not tell: who relies on a choice builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, TypeVar

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntAttr, IntegerType, ModuleOp
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.nesting import values_made

T = TypeVar("T")
_Slope = dict[int, tuple[int, int]]
"""Of a number, by the sizes that it depends on: by so much it grows where the size grows by so much."""
Sized = Callable[[tuple[int, ...]], tuple[int, ...]]
"""Numbers at any sizes."""
_Slopes = Callable[[Sequence[int]], _Slope]

FIRST = (176, 208, 272, 304, 368)
"""Sizes that kernels do not have of themselves, whose constants would be one with those of a size."""
OTHER = (464, 496, 592, 656, 688)
GRAIN = 16
"""Sizes are multiples of it, so that a half or a quarter of them is a whole number."""
PRIMES = (43, 53, 61, 67, 71)
"""By so many times `GRAIN` sizes differ where all of them do."""


MULTIPLES = tuple(
    (times, of) for of in (1, 2, 4, 8) for times in ((1, 2, 3, 4, 8) if of == 1 else (1,))
)
"""Of a size, that numbers are taken for; of the size itself one more and one less, too."""


class NotAffineError(Exception):
    """A kernel is not the same one at all sizes, or a number of it is no affine function of them."""


class Resizable:
    """A kernel with so many sizes left open.

    Raises NotAffineError, and what `build` does, which makes the kernel at a choice of them. `told`: which numbers are
    sizes is told by builds at others, not taken from one.
    """

    def __init__(
        self, build: Callable[[tuple[int, ...]], ModuleOp], count: int, told: bool = False
    ):
        if count > len(FIRST):
            raise NotAffineError
        first = FIRST[:count]
        self.module = build(first)
        """Always the same, with other numbers."""
        self._types: dict[SSAValue, _Places] = {}
        self._properties: dict[tuple[Operation, str], _Places] = {}
        self.told = told
        if not told:
            self._compare([], partial(_slope_of_known, _known_numbers(count)))
            return
        all_others = [tuple(n + GRAIN * p for n, p in zip(first, PRIMES, strict=False))]
        try:
            self._compare([build(sizes) for sizes in all_others], partial(_slope_of_one, count))
        except (NotAffineError, TilewrightError):
            each_other = [(*first[:i], OTHER[i], *first[i + 1 :]) for i in range(count)]
            self._compare([build(sizes) for sizes in each_other], _slopes_of_each)
        self.at(first)

    def _compare(self, others: Sequence[ModuleOp], slopes: _Slopes) -> None:
        """Notes what differs in the others."""
        ops = [list(module.walk()) for module in (self.module, *others)]
        if others and len({_structure(each) for each in ops}) > 1:
            raise NotAffineError
        known: dict[tuple[Attribute, ...], _Places] = {}
        types = dict[SSAValue, _Places]()
        properties = dict[tuple[Operation, str], _Places]()

        def note(places: dict[T, _Places], place: T, held: tuple[Attribute, ...]) -> None:
            if others and all(attribute == held[0] for attribute in held):
                return
            if held not in known:
                known[held] = _Places(held, slopes)
            if known[held].of:
                places[place] = known[held]

        for same in zip(*ops, strict=True):
            for values in zip(*map(_defined, same), strict=True):
                note(types, values[0], tuple([v.type for v in values]))
            for name in same[0].properties:
                note(properties, (same[0], name), tuple([op.properties[name] for op in same]))
        self._types, self._properties = types, properties

    def at(self, sizes: tuple[int, ...]) -> ModuleOp:
        """The kernel at these sizes: `module`, with their numbers."""
        for value, places in self._types.items():
            value._type = places.at(sizes)  # pyright: ignore[reportPrivateUsage]
        for (op, name), places in self._properties.items():
            op.properties[name] = places.at(sizes)
        return self.module

    def extents(self, value: SSAValue) -> Sized | None:
        """Those of a value's type, without a module of these sizes; None where they are the same at all."""
        places = self._types.get(value)
        return None if places is None else places.numbers("extents", lambda t: t.get_shape(), 1)

    def constant(self, value: SSAValue) -> Sized | None:
        """The number of a constant, likewise."""
        op = value.owner
        places = self._properties.get((op, "value")) if isinstance(op, Operation) else None
        return None if places is None else places.numbers("number", lambda held: [held.value.data])


class _Places:
    """Places of a kernel that hold the same at all sizes."""

    def __init__(self, held: tuple[Attribute, ...], slopes: _Slopes):
        """`held`: with FIRST, and with others."""
        self.of: list[int] = []
        """The sizes that it depends on."""
        self.held, self.slopes = held, slopes
        self.read = dict[str, Sized]()

        def noted(numbers: Sequence[int]) -> _Slope:
            found = slopes(numbers)
            self.of += found.keys() - self.of
            return found

        self.made = _function(held, noted)
        self.known: dict[tuple[int, ...], Attribute] = {}

    def at(self, sizes: tuple[int, ...]) -> Attribute:
        """What is there at these sizes."""
        key = tuple([sizes[i] for i in self.of])
        if key not in self.known:
            self.known[key] = self.made(sizes)
        return self.known[key]

    def numbers(
        self, name: str, read: Callable[[Any], Sequence[int]], least: float = -inf
    ) -> Sized:
        """What `read` gives of what is there, which has this name; NotAffineError where one is less than `least`."""
        if name not in self.read:
            held = _together([read(attribute) for attribute in self.held])
            each = [_affine(numbers, self.slopes) for numbers in held]

            def made(sizes: tuple[int, ...]) -> tuple[int, ...]:
                found = tuple([number(sizes) for number in each])
                if min(found, default=least) < least:
                    raise NotAffineError
                return found

            self.read[name] = made
        return self.read[name]


def _defined(op: Operation) -> list[SSAValue]:
    """Results of an op and arguments of its blocks."""
    return values_made(op)


def _structure(ops: Sequence[Operation]) -> tuple[Any, ...]:
    """All of a module but its types and the numbers in its properties."""
    numbers = {value: n for n, value in enumerate(v for op in ops for v in _defined(op))}
    return tuple(
        (
            op.name,
            tuple(numbers[operand] for operand in op.operands),
            tuple(op.properties),
            tuple(op.attributes.items()),
            tuple(tuple(len(b.args) for b in region.blocks) for region in op.regions),
            len(op.results),
        )
        for op in ops
    )


def _function(
    held: tuple[Attribute, ...], slopes: _Slopes
) -> Callable[[tuple[int, ...]], Attribute]:
    """What tells of sizes what is in a place that holds these with FIRST, and with others."""
    first = held[0]
    if len(held) > 1 and all(attribute == first for attribute in held):
        return lambda sizes: first
    if any(type(attribute) is not type(first) for attribute in held):
        raise NotAffineError
    if isinstance(first, IntAttr):
        number = _affine([a.data for a in held if isinstance(a, IntAttr)], slopes)
        return lambda sizes: IntAttr(number(sizes))
    if isinstance(first, DenseArrayBase) and isinstance(first.elt_type, IntegerType):
        element = first.elt_type
        values = _together([a.get_values() for a in held if isinstance(a, DenseArrayBase)])
        numbers = [_affine(each, slopes) for each in values]
        return lambda s: DenseArrayBase.from_list(element, [each(s) for each in numbers])
    if isinstance(first, ArrayAttr):
        parts = _functions([a.data for a in held if isinstance(a, ArrayAttr)], slopes)
        return lambda sizes: ArrayAttr(part(sizes) for part in parts)
    if isinstance(first, ParametrizedAttribute):
        kind = type(first)
        given = [a.parameters for a in held if isinstance(a, ParametrizedAttribute)]
        parts = _functions(given, slopes)

        def made(sizes: tuple[int, ...]) -> Attribute:
            try:
                return kind.new([part(sizes) for part in parts])
            except VerifyException as error:
                raise NotAffineError from error

        return made
    if len(held) == 1:
        return lambda sizes: first
    raise NotAffineError


def _functions(
    held: Sequence[Sequence[Attribute]], slopes: _Slopes
) -> list[Callable[[tuple[int, ...]], Attribute]]:
    return [_function(part, slopes) for part in _together(held)]


def _together(parts: Sequence[Sequence[T]]) -> Iterable[tuple[T, ...]]:
    """The first parts of all, then the second, ..."""
    if len({len(each) for each in parts}) > 1:
        raise NotAffineError
    return zip(*parts, strict=True)


def _known_numbers(count: int) -> Mapping[int, _Slope]:
    """Numbers that are taken for one of so many sizes, with FIRST."""
    known = dict[int, _Slope]()
    for i, size in enumerate(FIRST[:count]):
        known |= {size * times // of: {i: (times, of)} for times, of in MULTIPLES}
        known |= {size + more: {i: (1, 1)} for more in (1, -1)}
    return known


def _slope_of_known(known: Mapping[int, _Slope], numbers: Sequence[int]) -> _Slope:
    return known.get(numbers[0], {})


def _slope_of_one(count: int, numbers: Sequence[int]) -> _Slope:
    """Of a number that depends on one of so many sizes at most, and is this with FIRST and with all of them others."""
    more = numbers[1] - numbers[0]
    if not more:
        return {}
    found = [i for i in range(count) if more % PRIMES[i] == 0]
    if len(found) != 1:
        raise NotAffineError
    return {found[0]: (more, GRAIN * PRIMES[found[0]])}


def _slopes_of_each(numbers: Sequence[int]) -> _Slope:
    """Of one that is this with FIRST and with each of OTHER."""
    gaps = [(n - numbers[0], b - a) for n, a, b in zip(numbers[1:], FIRST, OTHER, strict=False)]
    return {i: (more, gap) for i, (more, gap) in enumerate(gaps) if more}


def _affine(numbers: Sequence[int], slopes: _Slopes) -> Callable[[tuple[int, ...]], int]:
    """The number at sizes of one that is this with FIRST, and with others."""
    first, found = numbers[0], slopes(numbers)

    def number(sizes: tuple[int, ...]) -> int:
        at, over = first, 1
        for i, (more, gap) in found.items():
            at, over = at * gap + over * more * (sizes[i] - FIRST[i]), over * gap
        if at % over:
            raise NotAffineError
        return at // over

    return number
