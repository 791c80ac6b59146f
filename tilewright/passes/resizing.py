"""A kernel at many sizes from few builds: its IR as an affine function of its constexprs.

A kernel is built from its text at one choice of sizes, and once more with each of the sizes another one. Where these
modules differ in numbers alone (extents of types, steps, constants), the first with its numbers set is any other one:

    vector<176x208xf32>, vector<464x208xf32>, vector<176x496xf32>   ->   vector<BM x BN x f32>

Numbers that are no such function (a product of two sizes, a size's next power of two) go unnoticed where the builds do
not tell: who relies on a choice builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntAttr,
    IntegerType,
    ModuleOp,
)
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue
from xdsl.utils.exceptions import VerifyException

T = TypeVar("T")

FIRST = (176, 208, 272, 304, 368)
"""Sizes that kernels do not have of themselves, whose constants would be one with those of a size."""
OTHER = (464, 496, 592, 656, 688)


class NotAffineError(Exception):
    """A kernel is not the same one at all sizes, or a number of it is no affine function of them."""


class Resizable:
    """A kernel with so many sizes left open.

    Raises NotAffineError, and what `build` does, which makes the kernel at a choice of them.
    """

    def __init__(self, build: Callable[[tuple[int, ...]], ModuleOp], count: int):
        if count > len(FIRST):
            raise NotAffineError
        first = FIRST[:count]
        others = [(*first[:i], OTHER[i], *first[i + 1 :]) for i in range(count)]
        modules = [build(sizes) for sizes in (first, *others)]
        ops = [list(module.walk()) for module in modules]
        if len({_structure(each) for each in ops}) > 1:
            raise NotAffineError
        self.module = modules[0]
        """Always the same, with other numbers."""
        self._types: list[tuple[SSAValue, _Places]] = []
        self._properties: list[tuple[Operation, str, _Places]] = []
        known: dict[tuple[Attribute, ...], _Places] = {}
        for same in zip(*ops, strict=True):
            for values in zip(*map(_defined, same), strict=True):
                self._note(known, self._types, (values[0],), [v.type for v in values])
            for name in same[0].properties:
                held = [op.properties[name] for op in same]
                self._note(known, self._properties, (same[0], name), held)
        self.at(first)

    @staticmethod
    def _note(
        known: dict[tuple[Attribute, ...], _Places],
        places: list[Any],
        place: tuple[Any, ...],
        held: Sequence[Attribute],
    ) -> None:
        if any(attribute != held[0] for attribute in held):
            alike = tuple(held)
            places.append((*place, known.setdefault(alike, _Places(alike))))

    def at(self, sizes: tuple[int, ...]) -> ModuleOp:
        """The kernel at these sizes: `module`, with their numbers."""
        for value, places in self._types:
            value._type = places.at(sizes)  # pyright: ignore[reportPrivateUsage]
        for op, name, places in self._properties:
            op.properties[name] = places.at(sizes)
        return self.module


class _Places:
    """Places of a kernel that hold the same at all sizes."""

    def __init__(self, held: tuple[Attribute, ...]):
        """`held`: with FIRST, and with each of OTHER."""
        self.made = _function(held)
        self.of = [i for i, attribute in enumerate(held[1:]) if attribute != held[0]]
        """The sizes that it depends on."""
        self.known: dict[tuple[int, ...], Attribute] = {}

    def at(self, sizes: tuple[int, ...]) -> Attribute:
        """What is there at these sizes."""
        key = tuple([sizes[i] for i in self.of])
        if key not in self.known:
            self.known[key] = self.made(sizes)
        return self.known[key]


def _defined(op: Operation) -> list[SSAValue]:
    """Results of an op and arguments of its blocks."""
    return [*op.results, *(a for region in op.regions for b in region.blocks for a in b.args)]


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


def _function(held: tuple[Attribute, ...]) -> Callable[[tuple[int, ...]], Attribute]:
    """What tells of sizes what is in a place that holds these with FIRST, and with each of OTHER."""
    first = held[0]
    if all(attribute == first for attribute in held):
        return lambda sizes: first
    if any(type(attribute) is not type(first) for attribute in held):
        raise NotAffineError
    if isinstance(first, IntAttr):
        data = [a.data for a in held if isinstance(a, IntAttr)]
        return lambda sizes: IntAttr(_affine(data, sizes))
    if isinstance(first, DenseArrayBase) and isinstance(first.elt_type, IntegerType):
        element = first.elt_type
        numbers = list(_together([a.get_values() for a in held if isinstance(a, DenseArrayBase)]))
        return lambda s: DenseArrayBase.from_list(element, [_affine(n, s) for n in numbers])
    if isinstance(first, ArrayAttr):
        parts = _functions([a.data for a in held if isinstance(a, ArrayAttr)])
        return lambda sizes: ArrayAttr(part(sizes) for part in parts)
    if isinstance(first, ParametrizedAttribute):
        kind = type(first)
        parts = _functions([a.parameters for a in held if isinstance(a, ParametrizedAttribute)])

        def made(sizes: tuple[int, ...]) -> Attribute:
            try:
                return kind.new([part(sizes) for part in parts])
            except VerifyException as error:
                raise NotAffineError from error

        return made
    raise NotAffineError


def _functions(
    held: Sequence[Sequence[Attribute]],
) -> list[Callable[[tuple[int, ...]], Attribute]]:
    return [_function(part) for part in _together(held)]


def _together(parts: Sequence[Sequence[T]]) -> Iterable[tuple[T, ...]]:
    """The first parts of all, then the second, ..."""
    if len({len(each) for each in parts}) > 1:
        raise NotAffineError
    return zip(*parts, strict=True)


def _affine(numbers: Sequence[int], sizes: tuple[int, ...]) -> int:
    """The number at these sizes of one that is `numbers` with FIRST and with each of OTHER."""
    found, over = numbers[0], 1
    for number, size, first, other in zip(numbers[1:], sizes, FIRST, OTHER, strict=False):
        if number != numbers[0]:
            gap = other - first
            found = found * gap + over * (number - numbers[0]) * (size - first)
            over *= gap
    if found % over:
        raise NotAffineError
    return found // over
