"""Who owns what: layouts propagated over the values of a kernel, from those that something fixes.

The one planner of every target and level. It knows classes of values, which have one layout, and relations between
classes at an op; which values have layouts, what fixes one and what is taken where nothing says anything, and what a
difference costs, its caller says. Layouts are :class:`~tilewright.layout.Layout`, or whatever else the callables given
to it take and make, such as the maps of a text that keeps them as they are written.

Relations of ops that only rearrange are read from the movement table (`rearranged`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from xdsl.ir import Operation, SSAValue
from xdsl.utils.disjoint_set import DisjointSet

from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import BROADCASTS, LAYOUTS, is_vector
from tilewright.dialects.nesting import values_made
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.frozen import frozen
from tilewright.layout import Layout, LayoutError
from tilewright.passes.budget import poll
from tilewright.passes.carried import Given, given_as

L = TypeVar("L")
Derive = Callable[[L], "L | None"]


@frozen
class Relation(Generic[L]):
    """The layouts of `a` and `b` at one op: `forth` gives that of `b`, given that of `a`, `back` the reverse.

    None of them, or one that gives None or raises LayoutError, says nothing. A guess is a choice among several layouts
    that fit: it is made only where nothing else says anything. `operand`: the number of the operand that `b` is, if the
    op needs it to have the layout that `forth` gives, so that a difference is a conflict there.
    """

    op: Operation
    a: SSAValue
    b: SSAValue
    forth: Derive[L] | None
    back: Derive[L] | None = None
    operand: int | None = None
    guess_forth: Derive[L] | None = None
    guess_back: Derive[L] | None = None

    def both_ways(self) -> Relation[L]:
        """The same, where what is derived leads back to what it is derived from."""

        def alone(derive: Derive[L] | None, reverse: Derive[L] | None) -> Derive[L]:
            def same(layout: L) -> L | None:
                found = attempt(derive, layout)
                return found if found is not None and attempt(reverse, found) == layout else None

            return same

        forth, back = self.forth, self.back
        return replace(self, forth=alone(forth, back), back=alone(back, forth))


_CONTINUED = {
    "vector.insert": 1,
    "vector.insert_strided_slice": 1,
    "vector.multi_reduction": 1,
    "xegpu.dpas": 2,
    "xetile.convert_layout": 0,
    "xetile.tile_mma": 2,
}
"""The operand that an op's result begins as, if it has so many."""


def alike(op: Operation) -> Iterator[tuple[list[Given], Sequence[SSAValue]]]:
    """What an op relates element by element: operands, of it or of the ops that end its regions, and the results and
    arguments of blocks whose owners they need. Nothing of accesses to memory, whose masks and offsets are their own.
    """
    number = _CONTINUED.get(op.name)
    if number is not None:
        yield [(op, number)] if number < len(op.operands) else [], op.results
    elif is_elementwise_on_vectors(op):
        yield [(op, n) for n in range(len(op.operands))], op.results
    else:
        yield from given_as(op)


def reduced(op: Operation) -> Iterator[Relation[Layout]]:
    """The relation of a reduction to fewer dimensions: who has a part of what is reduced has the result."""
    if isinstance(op, MultiReductionOp):
        yield Relation(op, op.source, op.dest, lambda layout: layout.sliced(*op.dims))


def rearranged(op: Operation) -> Iterator[Relation[Layout]]:
    """The relations of an op of the movement table: with these layouts no element changes its owner.

    Who has a value does not say who repeats it.
    """
    forth, back = LAYOUTS.get(op.name, (None, None))
    if op.name in BROADCASTS:
        forth = None
    for result in op.results if forth or back else ():
        for operand in op.operands:
            yield Relation(
                op,
                operand,
                result,
                None if forth is None else partial(forth, op),
                None if back is None else partial(back, op),
            )


def attempt(derive: Derive[L] | None, layout: L) -> L | None:
    """What is derived of a layout; None where that is nothing."""
    if derive is None:
        return None
    try:
        return derive(layout)
    except LayoutError:
        return None


def values_of(kernel: Operation) -> Iterator[SSAValue]:
    """The results of the ops of a kernel and the arguments of its blocks, in order."""
    return (value for op in kernel.walk() for value in values_made(op))


class Planner(Generic[L]):
    """Layouts by class, as they are found.

    `owned`: has a value a layout at all? `fits`: may a value have that layout? `urgency`: relations of ops with more of
    it are followed first; of equals, those of the class that got its layout first.
    """

    def __init__(
        self,
        values: Iterable[SSAValue],
        *,
        owned: Callable[[SSAValue], bool] = is_vector,
        fits: Callable[[SSAValue, L], bool] = lambda _value, _layout: True,
        urgency: Callable[[Operation], int] = lambda _: 0,
    ):
        self.classes = DisjointSet[SSAValue](list(dict.fromkeys(values)))
        self.layouts: dict[SSAValue, L] = {}
        """By the value that stands for its class."""
        self.relations: list[Relation[L]] = []
        self._owned, self._fits, self._urgency = owned, fits, urgency
        self._of: dict[SSAValue, list[Relation[L]]] | None = None
        self._number = count()
        self._open: list[tuple[int, int, Relation[L], SSAValue]] = []
        self._guesses: list[tuple[int, int, Relation[L], SSAValue]] = []

    # --- Before any layout is given ---------------------------------------------------------------

    def tie_alike(self, op: Operation) -> None:
        """The values that an op relates element by element are of one class."""
        for given, names in alike(op):
            self.tie((*names, *(user.operands[n] for user, n in given)))

    def tie(self, values: Iterable[SSAValue]) -> None:
        """The values that have layouts are of one class, that of the first."""
        first: SSAValue | None = None
        for value in values:
            if not self._owned(value):
                continue
            if first is None:
                first = value
            self.classes.union_left(first, value)

    def relate(self, *relations: Relation[L]) -> None:
        """Takes relations between values that have layouts."""
        self.relations += (r for r in relations if self._owned(r.a) and self._owned(r.b))

    # --- Layouts ----------------------------------------------------------------------------------

    def find(self, value: SSAValue) -> SSAValue:
        """The value that stands for all that have its layout."""
        return self.classes.find(value)

    def assign(self, value: SSAValue, layout: L) -> bool:
        """A layout for a value that has none; whether it took it."""
        value = self.find(value)
        if value in self.layouts or not self._fits(value, layout):
            return False
        self.layouts[value] = layout
        for relation in self.of(value):
            key = (-self._urgency(relation.op), next(self._number), relation, value)
            heappush(self._open, key)
        return True

    def of(self, value: SSAValue) -> list[Relation[L]]:
        """The relations of a value's class."""
        if self._of is None:
            self._of = defaultdict(list)
            for relation in self.relations:
                self._of[self.find(relation.a)].append(relation)
                self._of[self.find(relation.b)].append(relation)
        return self._of.get(self.find(value), [])

    def follow(self) -> None:
        """Gives what follows from the layouts that there are."""
        while self._open:
            poll()
            urgency, _, relation, value = heappop(self._open)
            for other, derive, guess in self._sides(relation, value):
                if self.find(other) in self.layouts:
                    continue
                found = attempt(derive, self.layouts[value])
                if (found is None or not self.assign(other, found)) and guess is not None:
                    heappush(self._guesses, (urgency, next(self._number), relation, value))

    def guess(self) -> bool:
        """Gives one layout that nothing speaks for but a guess; whether there was any."""
        while self._guesses:
            _, _, relation, value = heappop(self._guesses)
            for other, _, guess in self._sides(relation, value):
                if self.find(other) not in self.layouts:
                    found = attempt(guess, self.layouts[value])
                    if found is not None and self.assign(other, found):
                        return True
        return False

    def _sides(
        self, relation: Relation[L], value: SSAValue
    ) -> Iterator[tuple[SSAValue, Derive[L] | None, Derive[L] | None]]:
        if self.find(relation.a) is value:
            yield relation.b, relation.forth, relation.guess_forth
        if self.find(relation.b) is value:
            yield relation.a, relation.back, relation.guess_back

    def adopt(self, value: SSAValue, layout: L) -> None:
        """Takes a value that was made since, with its layout, which nothing follows from."""
        self.classes.add(value)
        self.layouts[value] = layout
