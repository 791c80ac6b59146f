"""index-set-splitting: a loop is split where its masks begin or cease to hold everywhere, so that most iterations have
none.

    for n from a to b {                             for n from a to e { s = product(q, k(n)) }
      s = product(q, k(n))                   ->     for n from (the next) to b {
      t = select(n + columns <= rows, s, x) }         s = product(q, k(n));  t = select(.., s, x) }

Requires: XeTile at workgroup level. Guarantees: the same values in the same order of operations.

A mask is a comparison of index tiles whose difference is c n + u + (numbers of the elements), n the loop's variable, u
the same for all its iterations, c a constant. Its largest element says for which n it holds everywhere: up to a bound
for c > 0, from one on for c < 0. Takes part: a loop with a product, and selects under such comparisons (joined by
`and`, with bounds that are minima or maxima of others); not one that goes on where another loop ends, which is taken
to be split already.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import field, frozen, record
from tilewright.passes.affine import Expr, Kind, Symbol, Symbols
from tilewright.passes.carried import reached
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before
from tilewright.passes.fold_identities import splat
from tilewright.passes.materialise import Materialiser
from tilewright.passes.while_to_for import first_not_below

LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 2, 3, 4, 5
"""Signed predicates of arith.cmpi."""
BROADCASTS = ("vector.broadcast", "xetile.broadcast")


@frozen
class _Bound:
    """A sum that is negative for every element while `step` n + `most` is."""

    step: int
    most: Expr


@record
class _Mask:
    """A comparison that holds everywhere while every one of `below` is negative."""

    condition: arith.CmpiOp
    below: list[_Bound]


@record
class _Split:
    loop: scf.ForOp
    masks: list[_Mask] = field(default_factory=list[_Mask])

    def bounds(self, sign: int) -> list[_Bound]:
        return [b for m in self.masks for b in m.below if b.step * sign > 0]


def split_index_sets(function: gpu.FuncOp) -> int:
    """Splits loops into iterations with and without a mask (index-set splitting). Returns how many."""
    found = [s for op in function.walk() if isinstance(op, scf.ForOp) and (s := _split(op))]
    for each in found:
        _rewrite(each)
    eliminate_dead(function.body.block)
    return len(found)


# Which loops ------------------------------------------------------------------------------------


def _split(loop: scf.ForOp) -> _Split | None:
    block = loop.body.block
    step = constant(loop.step)
    if step is None or step <= 0 or _goes_on(loop):
        return None
    if not any(isinstance(op, xetile.TileMmaOp) for op in block.ops):
        return None
    found, sums = _Split(loop), _Sums(block)
    for op in block.ops:
        if isinstance(op, arith.CmpiOp) and _masks(op):
            below = _below(op, sums)
            if below is not None:
                found.masks.append(_Mask(op, below))
    return found if found.masks else None


def _goes_on(loop: scf.ForOp) -> bool:
    """Does a loop begin with what others of its block gave, or they with what it gives?"""
    before = {v.owner for v in loop.iter_args if isinstance(v.owner, scf.ForOp)}
    after = {use.operation for r in loop.results for use in r.uses}
    return bool(before) or any(isinstance(op, scf.ForOp) for op in after)


def _masks(op: arith.CmpiOp) -> bool:
    """Does a comparison of tiles decide selects, directly or joined with others?"""
    type = op.result.type
    if not isinstance(type, VectorType) or not isinstance(op.lhs.type, VectorType):
        return False
    if not isinstance(op.lhs.type.element_type, IndexType):
        return False

    def joined(mask: SSAValue) -> list[SSAValue]:
        users = (use.operation for use in mask.uses)
        return [user.result for user in users if isinstance(user, arith.AndIOp)]

    return any(
        isinstance(use.operation, arith.SelectOp) and use.index == 0
        for mask in reached([op.result], joined)
        for use in mask.uses
    )


def _below(op: arith.CmpiOp, sums: _Sums) -> list[_Bound] | None:
    """Sums that are all negative where a comparison holds everywhere; None where that is not known."""
    how = op.predicate.value.data
    if how in (LESS, LESS_EQUAL):
        small, large = op.lhs, op.rhs
    elif how in (GREATER, GREATER_EQUAL):
        small, large = op.rhs, op.lhs
    else:
        return None
    equal = 1 if how in (LESS_EQUAL, GREATER_EQUAL) else 0
    found: list[_Bound] = []
    for a in _parts(small, arith.MaxSIOp):
        for b in _parts(large, arith.MinSIOp):
            x, y = sums.of(a), sums.of(b)
            if x is None or y is None or not (bound := sums.bound(x - y - equal)).step:
                return None
            found.append(bound)
    return found


def _parts(value: SSAValue, kind: type[Operation]) -> list[SSAValue]:
    """The operands of (nested) minima or maxima that a tile is, through broadcasts of them."""
    op = _source(value)
    if isinstance(op, kind):
        return [p for operand in op.operands for p in _parts(operand, kind)]
    return [value]


def _source(value: SSAValue) -> object:
    op = value.owner
    if isinstance(op, Operation) and op.name in BROADCASTS:
        return _source(op.operands[0])
    return op


class _Sums:
    """Tiles of indices, and indices, as sums of n, of numbers that a loop leaves alone and of positions in a tile."""

    def __init__(self, block: Block):
        self.block = block
        self.symbols = Symbols()
        self.n = self._symbol(block.args[0])
        self.positions: list[Symbol] = []

    def _symbol(self, value: SSAValue) -> Symbol:
        return self.symbols.get(Kind.VALUE, value, "value")

    def bound(self, sum: Expr) -> _Bound:
        """By the greatest that the positions make it."""
        ends: dict[Symbol, Expr] = {}
        for each in self.positions:
            ends[each] = Expr.of((each.upper or 0) if sum.coefficient(each).offset > 0 else 0)
        return _Bound(sum.coefficient(self.n).offset, sum.without(self.n).substitute(ends))

    def of(self, value: SSAValue) -> Expr | None:
        """None where it is no such sum."""
        block = self.block
        if isinstance(value, BlockArgument) and value.owner is block:
            return Expr.symbol(self.n) if value is block.args[0] else None
        if isinstance(number := splat(value), int):
            return Expr.of(number)
        op = value.op if isinstance(value, OpResult) else None
        if op is not None and op.name == "vector.step":
            # A number of its own each time: along another dimension the same tile has other elements.
            last, serial = shape_of(value)[0] - 1, len(self.positions)
            own = self.symbols.get(Kind.APPLY, ("step", serial), "step", lower=0, upper=last)
            self.positions.append(own)
            return Expr.symbol(own)
        if op is not None and op.name in (*BROADCASTS, "vector.shape_cast"):
            return self.of(op.operands[0])
        if isinstance(op, arith.AddiOp | arith.SubiOp):
            x, y = (self.of(v) for v in op.operands)
            if x is not None and y is not None:
                return x + y if isinstance(op, arith.AddiOp) else x - y
        elif isinstance(op, arith.MuliOp):
            for a, b in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                factor, x = splat(b), self.of(a)
                if isinstance(factor, int) and x is not None:
                    return x * factor
        if not isinstance(value.type, IndexType) or block.is_ancestor(value.owner):
            return None
        return Expr.symbol(self._symbol(value))


# The new program --------------------------------------------------------------------------------


def _rewrite(split: _Split) -> None:
    loop = split.loop
    at, sums = Before(loop), Materialiser(InsertPoint.before(loop))
    until, since = split.bounds(1), split.bounds(-1)
    # Masks hold everywhere from `start` to `end`.
    end: SSAValue = loop.ub
    for x in until:
        # c n + u < 0: n < ceil(-u / c).
        bound = at.add(arith.CeilDivSIOp(sums.ssa(-x.most), at.index(x.step)))
        end = at.add(arith.MinSIOp(end, bound))
    start = loop.lb
    for x in since:
        # -c n + u < 0: n > u / c.
        after = at.add(arith.FloorDivSIOp(sums.ssa(x.most), at.index(-x.step)))
        bound = at.add(arith.AddiOp(after, at.index(1)))
        start = at.add(arith.MaxSIOp(start, bound))
    parts: list[tuple[SSAValue, SSAValue, bool]] = []
    first = loop.lb
    if since:
        first = first_not_below(at, loop.lb, at.add(arith.MinSIOp(start, loop.ub)), loop.step)
        parts.append((loop.lb, first, False))
    if until:
        last = at.add(arith.MaxSIOp(end, first))
        second = first_not_below(at, loop.lb, last, loop.step)
        parts += [(first, last, True), (second, loop.ub, False)]
    else:
        parts.append((first, loop.ub, True))
    carried = list(loop.iter_args)
    for lower, upper, free in parts:
        values: dict[SSAValue, SSAValue] = {}
        new = loop.clone(values)
        new.operands[0], new.operands[1] = lower, upper
        for i, value in enumerate(carried):
            new.operands[3 + i] = value
        at.insert(new)
        if free:
            for mask in split.masks:
                _holds(values[mask.condition.result])
        carried = list(new.results)
    at.replace(*carried)


def _holds(condition: SSAValue) -> None:
    """A condition is true: selects take the first value, `and` the other condition."""
    for use in list(condition.uses):
        user = use.operation
        if isinstance(user, arith.SelectOp) and use.index == 0:
            user.result.replace_all_uses_with(user.lhs)
        elif isinstance(user, arith.AndIOp):
            user.result.replace_all_uses_with(user.operands[1 - use.index])
