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
others are refused. Guarantees: no op moves or carries a descriptor any more; coordinates that a loop never changes are
not carried. scf.for, scf.if, scf.while and arith.select are handled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import MemoryEffectKind

from tilewright.diagnostics import TilewrightError, unsupported
from tilewright.dialects.effects import memory_effects
from tilewright.dialects.nesting import values_made
from tilewright.dialects.upstream.arith import constants, folded
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.carried import LOOPS_AND_BRANCHES, given_as, given_by, operands_of, origins
from tilewright.passes.emit import Before
from tilewright.passes.memory_objects import chosen_from

_MOVERS = "scf.for, scf.while, scf.if and arith.select may give such values, and the ops that make and move them"


@dataclass
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
    """Applies a client to a region."""

    def __init__(self, client: Client):
        self.client = client
        self.placed: dict[SSAValue, Placed] = {}
        self._dead: list[Operation] = []
        self._bases: list[Placed] = []
        """What ops create that meets others of other bases, by the number with which its position ends."""
        self._among: dict[SSAValue, list[int]] = {}
        """Of a descriptor, which of these it may be."""
        self._given: dict[SSAValue, list[SSAValue]] = {}
        """What an op that creates one was given when it was asked: loops before it are rebuilt since."""

    def run(self, region: Region) -> None:
        self._number(region)
        self._region(region)
        for op in reversed(self._dead):
            if op.parent is not None and not any(result.first_use for result in op.results):
                Rewriter.erase_op(op)

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
            self._block(block)

    def _block(self, block: Block) -> None:
        for op in list(block.ops):
            self._op(op)

    # --- Several bases -------------------------------------------------------------------

    def _number(self, region: Region) -> None:
        """Numbers what ops create where it meets others of other bases."""
        ends: dict[SSAValue, list[SSAValue]] = {}
        for value in (v for op in region.walk() for v in values_made(op) if self._moves(v)):
            before = () if chosen_from(value) else self._from(value)
            ends[value] = ends.get(before[0], []) if before else origins([value], self._from)
        groups: dict[SSAValue, list[SSAValue]] = {}  # what meets, directly or by what it meets
        for met in ends.values():
            if len(met) > 1:
                group = list(dict.fromkeys(v for e in met for v in groups.get(e, [e])))
                groups.update(dict.fromkeys(group, group))
        numbers: dict[SSAValue, int] = {}
        for group in {id(g): g for g in groups.values()}.values():
            created = {v: at for v in group if (at := self._created(v)) is not None}
            first = next(iter(created.values()), None)
            if first is None or all(_same(first.root, at.root) for at in created.values()):
                continue
            begin = len(self._bases)
            for value, at in created.items():
                parts, fixed = self._split(at)
                known = self._bases[begin:]
                same = (
                    n
                    for n, o in enumerate(known, begin)
                    if _same(o.root, at.root) and self._split(o)[1] == fixed
                )
                if (number := next(same, None)) is None:
                    number = len(self._bases)
                    self._bases.append(at)
                numbers[value] = number
                self.placed[value] = Placed(first.root, [*parts, number])
        for value, met in ends.items():
            found = sorted({numbers[v] for v in met if v in numbers})
            if not found:
                continue
            self._among[value] = found
            if len(met) > 1:
                outer = value.owner if isinstance(value, OpResult) else value.owner.parent_op()
                assert isinstance(outer, Operation)
                for at in (self._bases[n] for n in found):
                    before = [v for v in (at.root, *self._split(at)[1]) if isinstance(v, SSAValue)]
                    if not all(_made_before(outer, v) for v in before):
                        raise _of_other_bases(outer)

    def _split(self, created: Placed) -> tuple[list[Index], list[Index]]:
        """The parts of a base's position that may move, and those that stay."""
        count = self.client.movable(created)
        return created.parts[:count], created.parts[count:]

    def _from(self, value: SSAValue) -> Sequence[SSAValue]:
        """The descriptors that one is one of, or is moved from."""
        return chosen_from(value) or [v for v in operands_of(value) if self._moves(v)][:1]

    def _created(self, value: SSAValue) -> Placed | None:
        op = value.owner
        if not isinstance(op, Operation) or (created := self.client.root(op)) is None:
            return None
        self.placed[value], self._given[value] = created, [*op.operands]
        return created

    def _follow(self, became: dict[Index, Index]) -> None:
        """Of values that others took the place of, descriptors are at these."""
        for each in (*self.placed.values(), *self._bases) if became else ():
            if isinstance(root := became.get(each.root), SSAValue):
                each.root = root
            each.parts = [became.get(part, part) for part in each.parts]

    def _op(self, op: Operation) -> None:
        if len(op.results) == 1 and (given := self._given.get(op.results[0])) is not None:
            self._follow({a: b for a, b in zip(given, op.operands, strict=True) if a is not b})
            self._dead.append(op)
            return
        if (created := self.client.root(op)) is not None:
            self.placed[op.results[0]] = created
            self._dead.append(op)
            return
        used = {n: self.placed[v] for n, v in enumerate(op.operands) if v in self.placed}
        if used and (parts := self._moved(op, used[min(used)])) is not None:
            self.placed[op.results[0]] = Placed(used[min(used)].root, parts)
            self._dead.append(op)
        elif isinstance(op, LOOPS_AND_BRANCHES):
            self._structured(op)
        elif used and isinstance(op, arith.SelectOp):
            self._select(op, *used.values())
        elif used and not isinstance(op, (scf.YieldOp, scf.ConditionOp)):
            self._access(op, used, {n: m for n in used if (m := self._among.get(op.operands[n]))})
        else:
            if any(self._moves(result) for result in op.results):
                raise unsupported(
                    op, f"{op.name} gives a value whose position is unknown", hint=_MOVERS
                )
            for region in op.regions:
                self._region(region)

    def _moved(self, op: Operation, here: Placed) -> list[Index] | None:
        number = here.parts[-1:] if op.results and op.results[0] in self._among else []
        bare = Placed(here.root, here.parts[: len(here.parts) - len(number)])
        distance = self.client.moved(op, bare)
        return None if distance is None else [*_aligned_sum(bare.parts, distance, op), *number]

    def _access(self, op: Operation, used: dict[int, Placed], among: dict[int, list[int]]) -> None:
        """The access of what `used` says; of descriptors that may be one `among` several a branch on either side."""
        if not among:
            self.client.access(op, used)
            return
        place, (number, *others) = min(among.items())
        base, (*parts, hit) = self._bases[number], used[place].parts
        with_one = {**used, place: Placed(base.root, [*parts, *self._split(base)[1]])}
        rest = {n: met for n, met in among.items() if n != place}
        if not others or hit == number:
            self._access(op, with_one, rest)
            return
        if isinstance(hit, int):
            self._access(op, used, {**among, place: others})
            return
        at, clones = Before(op), [op.clone() for _ in range(2)]
        then, otherwise = (Block([clone, scf.YieldOp(*clone.results)]) for clone in clones)
        test = at.compare("eq", hit, number)
        branch = scf.IfOp(test, [r.type for r in op.results], [then], [otherwise])
        for each in (branch, *clones):
            each.location = op.location
        Rewriter.replace_op(op, branch)
        self._access(clones[0], with_one, rest)
        self._access(clones[1], used, {**among, place: others})

    def _root_of(self, op: Operation, given: Sequence[Placed]) -> SSAValue:
        """The root of descriptors that meet at an op."""
        first, *others = given
        if all(len(first.parts) == len(o.parts) and _meet(first.root, o.root, op) for o in others):
            return first.root
        raise _of_other_bases(op)

    def _select(self, op: arith.SelectOp, a: Placed, b: Placed) -> None:
        root, at = self._root_of(op, [a, b]), Before(op)
        parts: list[Index] = [
            x if x is y else at.add(arith.SelectOp(op.cond, at.index(x), at.index(y)))
            for x, y in zip(a.parts, b.parts, strict=True)
        ]
        self.placed[op.result] = Placed(root, parts)
        self._dead.append(op)

    # --- Structured control flow ---------------------------------------------------------

    def _structured(self, op: scf.ForOp | scf.IfOp | scf.WhileOp) -> None:
        """The loop or branch that carries coordinates instead of descriptors, those that it changes."""
        meets = list(given_as(op))
        for block in (b for region in op.regions for b in region.blocks):
            for argument in list(block.args):
                if self._moves(argument):
                    self.placed[argument] = self._opened(op, block, argument)
            self._block(block)
        moving = [(given, names[-1]) for given, names in meets if self._moves(names[-1])]
        if not moving:
            return
        came = {
            place: [self._placed_at(user, user.operands[n]) for user, n in given]
            for given, place in moving
        }
        for each in came.values():
            root = self._root_of(op, each)
            if root is not each[0].root:
                each[0] = Placed(root, each[0].parts)
        changed = {place: self._changed(op, place, each) for place, each in came.items()}
        for place, each in came.items():
            if isinstance(place, BlockArgument):
                self._close(place, changed[place], each[0])
        users: dict[Operation, dict[int, SSAValue]] = {}
        for given, place in moving:
            for user, n in given:
                users.setdefault(user, {})[n] = place
        # Behind `_close`: what a loop leaves alone of one descriptor, another may be given.
        operands = {user: self._carried(user, places, changed) for user, places in users.items()}
        inits = operands.pop(op, list(op.operands))
        for user, values in operands.items():
            user.operands = values
        results = [(names[-1], names[0]) for _, names in meets if isinstance(names[0], OpResult)]
        self._finish(op, inits, results, came, changed)

    def _moves(self, value: SSAValue) -> bool:
        return self.client.is_moving(value.type)

    def _placed_at(self, user: Operation, value: SSAValue) -> Placed:
        if value not in self.placed:
            raise unsupported(user, f"the position of this {value.type} is unknown")
        return self.placed[value]

    def _opened(self, op: Operation, block: Block, argument: BlockArgument) -> Placed:
        """A block's descriptor at new arguments, one for each coordinate."""
        start = self._placed_at(op, given_by(argument)[0])
        parts: list[Index] = []
        for number, part in enumerate(start.parts):
            new = block.insert_arg(_type_of(part), len(block.args))
            hint = argument.name_hint
            new.name_hint = None if hint is None else f"{hint}_{number}"
            parts.append(new)
        return Placed(start.root, parts)

    def _changed(self, op: Operation, place: SSAValue, given: list[Placed]) -> list[int]:
        """The coordinates that are not the same in every iteration, or on all sides."""
        first, *others = given
        if isinstance(op, scf.ForOp):
            first = self.placed[place]
        # What an scf.while leaves alone is found by canonicalisation.
        return [
            p
            for p, part in enumerate(first.parts)
            if isinstance(op, scf.WhileOp) or any(o.parts[p] is not part for o in others)
        ]

    def _carried(
        self, user: Operation, places: dict[int, SSAValue], changed: dict[SSAValue, list[int]]
    ) -> list[SSAValue]:
        """The operands of a loop or of a block's end: what does not move, and then coordinates."""
        given, at = list(user.operands), Before(user)
        return [
            *(value for n, value in enumerate(given) if n not in places),
            *(
                at.index(self.placed[given[n]].parts[p])
                for n, place in places.items()
                for p in changed[place]
            ),
        ]

    def _close(self, argument: BlockArgument, changed: list[int], start: Placed) -> None:
        """Removes a block's descriptor, and its coordinates that a loop leaves alone."""
        block = argument.block
        for p, part in enumerate(self.placed[argument].parts):
            if p in changed:
                continue
            loop = block.parent_op()
            assert isinstance(part, BlockArgument) and loop is not None
            before = start.parts[p]
            value = Before(loop).index(before)
            part.replace_all_uses_with(value)
            self._follow({part: before})
            block.erase_arg(part)
            if value.first_use is None and isinstance(value.owner, arith.ConstantOp):
                Rewriter.erase_op(value.owner)

    def _finish(
        self,
        old: Operation,
        operands: Sequence[SSAValue],
        results: Sequence[tuple[SSAValue, SSAValue]],
        given: dict[SSAValue, list[Placed]],
        changed: dict[SSAValue, list[int]],
    ) -> None:
        """Puts the rebuilt op into its place and gives its results, of these places, their meaning."""
        kept = [result for place, result in results if place not in given]
        types = [result.type for result in kept]
        for place, _ in results:
            types += [_type_of(given[place][0].parts[p]) for p in changed.get(place, ())]
        for region in old.regions:
            for block in region.blocks:
                for argument in [a for a in block.args if a in given]:
                    block.erase_arg(argument, safe_erase=False)
        new = type(old).create(
            operands=operands,
            result_types=types,
            properties=old.properties,
            attributes=old.attributes,
            regions=[old.detach_region(region) for region in list(old.regions)],
        )
        new.location = old.location
        Rewriter.insert_op(new, InsertPoint.before(old))
        for before, after in zip(kept, new.results, strict=False):
            after.name_hint = before.name_hint
            before.replace_all_uses_with(after)
        coordinates = iter(new.results[len(kept) :])
        for place, result in results:
            if place in given:
                parts = list(given[place][0].parts)
                for p in changed[place]:
                    parts[p] = next(coordinates)
                self.placed[result] = Placed(given[place][0].root, parts)
        # The shell stays until the walk has rewritten every use of the descriptors that it gave.
        self._dead.append(old)


def _of_other_bases(op: Operation) -> TilewrightError:
    return unsupported(
        op,
        "what reaches this value is of two different bases, of which one is made inside, or of other dimensions",
        hint="make both in front of the loop or branch, or load from each and let it give what was loaded",
    )


def _meet(a: SSAValue, b: SSAValue, op: Operation) -> bool:
    """Are two descriptors of one base, of which the first is known before the op at which they meet?"""
    return _same(a, b) and _made_before(op, a)


def _same(a: SSAValue, b: SSAValue) -> bool:
    """Are two bases one, or made alike? Memory that is allocated twice is not."""
    makes, other = a.owner, b.owner
    return a is b or (
        isinstance(makes, Operation)
        and isinstance(other, Operation)
        and a.type == b.type
        and (makes.name, makes.properties) == (other.name, other.properties)
        and [folded(v) for v in makes.operands] == [folded(v) for v in other.operands]
        and MemoryEffectKind.ALLOC not in (memory_effects(makes) or ())
    )


def _made_before(op: Operation, root: SSAValue) -> bool:
    """Is a root known before an op, or can it be made there?"""
    makes = root.owner
    if isinstance(makes, Operation) and op.is_ancestor(makes):
        if any(op.is_ancestor(v.owner) for v in makes.operands):
            return False
        makes.detach()
        Rewriter.insert_op(makes, InsertPoint.before(op))
    return True


def _aligned_sum(parts: list[Index], distance: list[Index], at: Operation) -> list[Index]:
    """Coordinate-wise sum; a shorter list counts the innermost dimensions."""
    length = max(len(parts), len(distance))
    left: list[Index] = [*([0] * (length - len(parts))), *parts]
    right: list[Index] = [*([0] * (length - len(distance))), *distance]
    return [add(a, b, at) for a, b in zip(left, right, strict=True)]
