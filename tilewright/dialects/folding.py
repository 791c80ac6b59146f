"""Index arithmetic that folds: a number that is known is a Python integer, any other an SSA value.

Code written once for sizes of the run becomes straight-line for those that are known. What a builder does with ops,
where its constants stand and what it remembers, are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdsl.dialects import arith
from xdsl.ir import SSAValue

Idx = int | SSAValue
Made = Sequence[SSAValue] | None
"""What one side of a branch gives."""
Kind = (
    type[arith.AddiOp | arith.SubiOp | arith.MuliOp]
    | type[arith.DivSIOp | arith.DivUIOp | arith.RemUIOp]
)


def is_below(place: Idx, extent: Idx) -> bool:
    """Is it known that 0 <= place < extent?"""
    return isinstance(place, int) and isinstance(extent, int) and 0 <= place < extent


class Combines(Protocol):
    """A builder that says how an op is made of two numbers that are not both known."""

    def combined(self, kind: Kind, x: Idx, y: Idx) -> Idx: ...


class Masks(Protocol):
    """A builder of masks, of which None holds everywhere."""

    def compare(self, predicate: str, x: Idx, y: Idx) -> SSAValue: ...

    def also(self, mask: SSAValue | None, hit: SSAValue) -> SSAValue: ...


def below(at: Masks, mask: SSAValue | None, place: Idx, extent: Idx) -> SSAValue | None:
    """A mask where an index lies inside of an extent, too. No extent is negative: one unsigned comparison holds both
    bounds."""
    return mask if is_below(place, extent) else at.also(mask, at.compare("ult", place, extent))


class Adds(Protocol):
    """A builder that says what the sum of two numbers is."""

    def plus(self, x: Idx, y: Idx) -> Idx: ...


class Folding:
    """Sums and products of indices, for whatever builder `Combines`."""

    def combined(self, kind: Kind, x: Idx, y: Idx) -> Idx:
        raise NotImplementedError

    def literal(self, n: int, /) -> Idx:
        return n

    def plus(self: Combines, x: Idx, y: Idx) -> Idx:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if x == 0 or y == 0:
            return y if x == 0 else x
        return self.combined(arith.AddiOp, x, y)

    def shifted(self: Adds, places: Sequence[Idx], by: Sequence[Idx]) -> list[Idx]:
        """Coordinates, with distances along the innermost dimensions added to them."""
        lead = len(places) - len(by)
        inner = zip(places[lead:], by, strict=True)
        return [*places[:lead], *(self.plus(x, y) for x, y in inner)]

    def minus(self: Combines, x: Idx, y: Idx) -> Idx:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        return x if y == 0 else self.combined(arith.SubiOp, x, y)

    def times(self: Combines, x: Idx, y: Idx) -> Idx:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        for known, other in ((x, y), (y, x)):
            if isinstance(known, int) and known in (0, 1):
                return other if known else 0
        return self.combined(arith.MuliOp, x, y)

    def over(self: Combines, x: Idx, y: int) -> Idx:
        """The quotient where there is no rest."""
        if isinstance(x, int):
            return x // y
        return self.combined(arith.DivSIOp, x, y)

    def divided(self: Combines, x: Idx, y: int) -> Idx:
        """The quotient of a number that is not negative."""
        if isinstance(x, int):
            return x // y
        return x if y == 1 else self.combined(arith.DivUIOp, x, y)

    def rest(self: Combines, x: Idx, y: int) -> Idx:
        """What is left of a number that is not negative, divided by another."""
        if isinstance(x, int):
            return x % y
        return 0 if y == 1 else self.combined(arith.RemUIOp, x, y)
