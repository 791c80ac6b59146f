"""Descriptors and tiles as what they are: a base that stays, and a position that moves.

A descriptor (or tile) that is created with offsets, moved by update ops and carried through loops is
split into the op that made it and a list of numbers, its position. Loops and ifs then carry the position:

    %t0 = create_nd_tdesc %m[%i, 0]                    %t = create_nd_tdesc %m
    scf.for .. iter_args(%t = %t0) {                   scf.for .. iter_args(%x = %i, %y = 0) {
      %v = load_nd %t                          ->        %v = load_nd %t[%x, %y]
      %u = update_nd_offset %t, [0, 32]                  %y2 = arith.addi %y, 32
      scf.yield %u }                                     scf.yield %x, %y2 }

Where descriptors of several bases meet at a loop, an if or a select, these give the number of the base, too, and what
accesses one of them becomes ifs with each:

    scf.for .. iter_args(%t = %ta, %u = %tb) {         scf.for .. iter_args(%x = %i, %n = 0, %y = %j, %m = 1) {
      %v = load_nd %t                            ->      %v = scf.if %n == 0 { load_nd %a[%x] } else { load_nd %b[%x] }
      scf.yield %u, %t }                                 scf.yield %y, %m, %x, %n }

Who uses it says what a root, a move and an access are (`Client`). Requires: bases that meet are there before they do;
others are refused. Guarantees: no op moves or carries a descriptor any more; coordinates that an scf.for never changes,
and that the sides of an scf.if share, are not carried. scf.for, scf.if, scf.while and arith.select are handled.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import MemoryEffectKind

from tilewright.diagnostics import TilewrightError, unsupported
from tilewright.dialects.effects import memory_effects
from tilewright.dialects.elementwise import DIVISIONS
from tilewright.dialects.nesting import move
from tilewright.dialects.upstream.arith import constant, constants, folded
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import frozen, record
from tilewright.passes.carried import LOOPS_AND_BRANCHES, given_as, operands_of, origins
from tilewright.passes.control import Parts, convert_for, convert_if, convert_while
from tilewright.passes.emit import Before
from tilewright.passes.loops import carry_what_changes, give_what_differs
from tilewright.passes.memory_objects import chosen_from, is_pure

_MOVERS = "scf.for, scf.while, scf.if and arith.select may give such values, and the ops that make and move them"


@record
class Placed:
    """A descriptor at a position: `root` is the op or block argument that it began as."""

    root: SSAValue
    parts: list[Index]
    """Coordinates in elements, or the single vector of offsets of a scattered descriptor."""


class Client(Protocol):
    """What the ops of a dialect mean to the rewriting."""

    def is_moving(self, type: Attribute) -> bool:
        """Is a value of this type split into base and position?"""
        ...

    def root(self, op: Operation) -> Placed | None:
        """The position that a creating op gives its result; None if the op does not create one.

        The client may replace the op; `Placed.root` is then the new value.
        """
        ...

    def movable(self, created: Placed) -> int:
        """How many of the parts that a creating op gives a move may change, the first ones."""
        ...

    def moved(self, op: Operation, operand: Placed) -> list[Index] | None:
        """The distance by which an op moves its operand; None if the op does not move."""
        ...

    def access(self, op: Operation, placed: dict[int, Placed]) -> None:
        """Rewrites an op that uses descriptors; `placed` has them by operand number."""
        ...


Bases = Mapping[int, Placed]
"""What a descriptor may be of: by number the roots, and those parts that no move changes."""


@frozen
class _At:
    """Where a descriptor is: of which base, and those parts that moves change."""

    bases: Bases
    number: Index
    parts: tuple[Index, ...]

    def on(self, number: int) -> Placed:
        """As a position on one of its bases."""
        base = self.bases[number]
        return Placed(base.root, [*self.parts, *base.parts])


def add(a: Index, b: Index, at: Operation) -> Index:
    """The sum of two coordinates, folded where that needs no op."""
    if _is_zero(a) or _is_zero(b):
        return b if _is_zero(a) else a
    if (left := _type_of(a)) != (right := _type_of(b)):
        raise unsupported(at, f"offsets of types {left} and {right} are added")
    return Before(at).plus(a, b)


def _is_zero(value: Index) -> bool:
    known = [value] if isinstance(value, int) else constants(value)
    return known is not None and not any(known)


def _type_of(index: Index) -> Attribute:
    return index.type if isinstance(index, SSAValue) else IndexType()


class PositionRewriter:
    """Applies a client to a region; what loops and branches carry is split as by every lowering (`control`)."""

    def __init__(self, client: Client):
        self.client = client
        self.placed: dict[SSAValue, _At] = {}
        self._given: dict[SSAValue, list[SSAValue]] = {}
        """What an op that creates a descriptor was given when it was asked: loops before it may be rebuilt since."""
        self._alike: dict[object, int] = {}
        """The numbers of bases."""
        self._bases: dict[SSAValue, Bases] = {}
        """Those of what control flow gives."""
        self._dead: list[Operation] = []
        self._built: list[Operation] = []
        """New loops and branches, inner ones first."""
        self._front: Operation | None = None
        """The loop or branch that is being converted, in no other one."""
        self._numbers: dict[int, SSAValue] = {}
        """Constants in front of it."""
        self._out: Block | None = None

    def run(self, region: Region) -> None:
        self._region(region)
        for op in reversed(self._dead):
            if op.parent is not None and not any(result.first_use for result in op.results):
                Rewriter.erase_op(op)
        for op in self._built:
            if isinstance(op, scf.ForOp):
                carry_what_changes(op)
            elif isinstance(op, scf.IfOp):
                give_what_differs(op)

    def _region(self, region: Region) -> None:
        for block in region.blocks:
            for argument in block.args:
                if self._moves(argument) and argument not in self.placed:
                    where = block.first_op or block.parent_op()
                    assert where is not None
                    raise unsupported(
                        where,
                        f"a value of type {argument.type} enters this block from elsewhere",
                        hint=_MOVERS,
                    )
            for op in list(block.ops):
                self._op(op)

    def _op(self, op: Operation) -> None:
        if len(op.results) == 1 and self._created(op.results[0]) is not None:
            self._dead.append(op)
            return
        used = {n: self.placed[v] for n, v in enumerate(op.operands) if v in self.placed}
        if used and (moved := self._moved(op, used[min(used)])) is not None:
            self.placed[op.results[0]] = moved
            self._dead.append(op)
        elif isinstance(op, LOOPS_AND_BRANCHES) and any(
            self._moves(names[-1]) for _, names in given_as(op)
        ):
            self._structured(op)
        elif used and isinstance(op, arith.SelectOp):
            self._select(op, *used.values())
        elif used and not isinstance(op, (scf.YieldOp, scf.ConditionOp)):
            self._access(op, used)
        else:
            if any(self._moves(result) for result in op.results):
                raise unsupported(
                    op, f"{op.name} gives a value whose position is unknown", hint=_MOVERS
                )
            for region in op.regions:
                self._region(region)

    def _moves(self, value: SSAValue) -> bool:
        return self.client.is_moving(value.type)

    # --- Bases -----------------------------------------------------------------------------

    def _created(self, value: SSAValue) -> _At | None:
        """Where an op creates a descriptor; None where its op creates none."""
        op = value.owner
        if not isinstance(op, Operation):
            return None
        if self._given.get(value) != [*op.operands]:
            if (created := self.client.root(op)) is None:
                return None
            count = self.client.movable(created)
            base = Placed(created.root, created.parts[count:])
            number = self._alike.setdefault(_key(base), len(self._alike))
            self.placed[value] = _At({number: base}, number, tuple(created.parts[:count]))
            self._given[value] = [*op.operands]
        return self.placed[value]

    def _from(self, value: SSAValue) -> Sequence[SSAValue]:
        """The descriptors that one is one of, or is moved from."""
        return chosen_from(value) or [v for v in operands_of(value) if self._moves(v)][:1]

    def _bases_of(self, place: SSAValue) -> Bases:
        """What control flow may give here. Those of several are made in front of it."""
        if place in self._bases:
            return self._bases[place]
        op = place.owner if isinstance(place, OpResult) else place.owner.parent_op()
        assert isinstance(op, Operation)
        found: dict[int, Placed] = {}
        made = [at for v in origins([place], self._from) if (at := self._created(v)) is not None]
        for number, base in (item for at in made for item in at.bases.items()):
            if number not in found or op.is_ancestor(found[number].root.owner):
                found[number] = base
        if len({len(at.parts) for at in made}) > 1:
            raise _of_other_bases(op)
        for base in found.values():
            of = [base.root, *base.parts] if len(found) > 1 else [base.root]
            if any(hoisted(v, op) is not None for v in of if isinstance(v, SSAValue)):
                raise _of_other_bases(op)
        self._bases[place] = found
        return found

    def _moved(self, op: Operation, here: _At) -> _At | None:
        bare = here.on(min(here.bases))
        if (distance := self.client.moved(op, bare)) is None:
            return None
        parts = _aligned_sum(bare.parts, distance, op)
        return replace(here, parts=tuple(parts[: len(parts) - len(bare.parts) + len(here.parts)]))

    def _access(self, op: Operation, used: dict[int, _At]) -> None:
        """The access of what `used` says; of descriptors that may be of several bases a branch on either side."""
        place = next((n for n, at in used.items() if not isinstance(at.number, int)), None)
        if place is None:
            self.client.access(op, {n: at.on(at.number) for n, at in used.items()})  # pyright: ignore
            return
        at, (first, *others) = used[place], sorted(used[place].bases)
        with_one = {**used, place: replace(at, number=first)}
        if not others:
            self._access(op, with_one)
            return
        clones, before = [op.clone() for _ in range(2)], Before(op)
        then, otherwise = (Block([clone, scf.YieldOp(*clone.results)]) for clone in clones)
        test = before.compare("eq", at.number, first)
        branch = scf.IfOp(test, [r.type for r in op.results], [then], [otherwise])
        for each in (branch, *clones):
            each.location = op.location
        Rewriter.replace_op(op, branch)
        self._access(clones[0], with_one)
        rest = {number: at.bases[number] for number in others}
        self._access(clones[1], {**used, place: replace(at, bases=rest)})

    # --- Control flow ------------------------------------------------------------------------

    def _select(self, op: arith.SelectOp, a: _At, b: _At) -> None:
        bases, at = self._bases_of(op.result), Before(op)
        number, *parts = (
            x if x is y else at.add(arith.SelectOp(op.cond, at.index(x), at.index(y)))
            for x, y in zip((a.number, *a.parts), (b.number, *b.parts), strict=True)
        )
        self.placed[op.result] = _At(bases, number, tuple(parts))
        self._dead.append(op)

    def _structured(self, op: Operation) -> None:
        """The loop or branch that carries numbers instead of descriptors."""
        outer, self._front = self._front, self._front or op
        for _, names in given_as(op):
            if self._moves(names[-1]):
                self._bases_of(names[-1])
        match op:
            case scf.ForOp():
                convert_for(self, op)
            case scf.WhileOp():
                convert_while(self, op)
            case _:
                assert isinstance(op, scf.IfOp)
                convert_if(self, op)
        # The shell stays until the walk has rewritten every use of the descriptors that it gave.
        self._dead.append(op)
        self._front = outer
        if outer is None:
            for constant in self._numbers.values():
                self._dead.insert(0, constant.owner)  # pyright: ignore
            self._numbers.clear()

    def flatten(self, values: Sequence[SSAValue], places: Sequence[SSAValue]) -> Parts:
        return [
            self._numbers_of(*pair) if self._moves(pair[0]) else [pair[0]]
            for pair in zip(values, places, strict=True)
        ]

    def _numbers_of(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        """What stands for a descriptor that control flow gives: its coordinates, and which base it is of."""
        if (at := self.placed.get(value)) is None:
            user = next(iter(value.uses)).operation
            raise unsupported(user, f"the position of this {value.type} is unknown")
        several = len(self._bases_of(place)) > 1
        return [self._value(part) for part in (*at.parts, *([at.number] if several else ()))]

    def _value(self, part: Index) -> SSAValue:
        if isinstance(part, SSAValue):
            return part
        if part not in self._numbers:
            assert self._front is not None
            self._numbers[part] = Before(self._front).index(part)
        return self._numbers[part]

    def bind(self, place: SSAValue, parts: Sequence[SSAValue], sample: SSAValue) -> None:
        hint = place.name_hint
        if not self._moves(place):
            parts[0].name_hint = hint
            place.replace_all_uses_with(parts[0])
            return
        for n, part in enumerate(parts):
            part.name_hint = None if hint is None else f"{hint}_{n}"
        bases = self._bases_of(place)
        *given, number = parts if len(bases) > 1 else (*parts, next(iter(bases)))
        self.placed[place] = _At(bases, number, tuple(given))

    def scalar(self, value: SSAValue) -> SSAValue:
        return value

    @contextmanager
    def region(self, new: Block) -> Generator[None]:
        outer, self._out = self._out, new
        yield
        self._out = outer

    def inner(self, old: Block) -> None:
        assert self._out is not None
        for op in list(old.ops)[:-1]:
            op.detach()
            self._out.add_op(op)
            self._op(op)

    def build(self, new: Operation, old: Operation) -> None:
        new.location = old.location
        new.attributes |= old.attributes
        if isinstance(old, LOOPS_AND_BRANCHES):
            Rewriter.insert_op(new, InsertPoint.before(old))
            self._built.append(new)
        else:
            assert self._out is not None
            self._out.add_op(new)


def _of_other_bases(op: Operation) -> TilewrightError:
    return unsupported(
        op,
        "what reaches this value is of two different bases, of which one is made inside, or of other dimensions",
        hint="make both in front of the loop or branch, or load from each and let it give what was loaded",
    )


def _key(base: Placed) -> object:
    """Equal for bases that are one, or made alike. Memory that is allocated twice is not."""
    root, makes = base.root, base.root.owner
    if not isinstance(makes, Operation) or makes.regions or not is_pure(makes):
        return root, *base.parts
    made = root.type, makes.name, makes.results.index(root), frozenset(makes.properties.items())  # pyright: ignore
    return *made, *map(folded, makes.operands), None, *base.parts


def hoisted(value: SSAValue, above: Operation) -> tuple[Operation, bool] | None:
    """Makes a value in front of an op, with all that it is made of. None where that is done; else the op that keeps it
    inside, and whether that takes what changes there."""
    op = value.owner
    if not isinstance(op, Operation) or not above.is_ancestor(op):
        return None
    # What a side of a branch allocates, no other round does.
    once = isinstance(above, scf.IfOp) and op.parent_op() is above
    allocates = once and memory_effects(op) == {MemoryEffectKind.ALLOC}
    # A division by 0 fails, where the branch or loop would not have come to it.
    divides = op.name in DIVISIONS and not constant(op.operands[1])
    if op.regions or divides or not (is_pure(op) or allocates):
        return op, False
    for given in op.operands:
        if isinstance(given.owner, Block) and above.is_ancestor(given.owner):
            return op, True
        if (found := hoisted(given, above)) is not None:
            return found
    move([op], InsertPoint.before(above))
    return None


def _aligned_sum(parts: Sequence[Index], distance: Sequence[Index], at: Operation) -> list[Index]:
    """Coordinate-wise sum; a shorter list counts the innermost dimensions."""
    length = max(len(parts), len(distance))
    left: list[Index] = [*([0] * (length - len(parts))), *parts]
    right: list[Index] = [*([0] * (length - len(distance))), *distance]
    return [add(a, b, at) for a, b in zip(left, right, strict=True)]
