"""xe-overflow-checks: whether a sum has wrapped is asked of a summand.

    %x = arith.addi %a, %c5                           %x = arith.addi %a, %c5
    %w = arith.cmpi ult, %x, %c5 : index      ->      %w = arith.cmpi ugt, %a, %c-6 : index

Both say that a + 5 has wrapped. The mask of a block's row is so where the row's number is the extent, or the offset is
the extent less something. LLVM knows the comparison of the sum as its overflow idiom and joins sum and comparison to
one instruction, for which Intel's compiler has none: ocloc 22.43 fails without a word (integers of 8 to 64 bits, pvc
and dg2; eq 0 behind + 1 and ne 0 in front of - 1 are the idiom, too).

Requires: arithmetic of integers (xe-lane-to-mach), of vectors too, which become scalars later. Guarantees: the same
results; no comparison is the idiom. Vectors and sums of two unknown numbers are compared as signed numbers, twice or
three times.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, ModuleOp, VectorType
from xdsl.ir import SSAValue

from tilewright.dialects.upstream.arith import PREDICATES, constant, element
from tilewright.frozen import frozen
from tilewright.passes.emit import Before
from tilewright.targets.xe.fold import Numbers, numbers, scalar_of, together

EQ, NE, SLT, ULT, UGT = map(PREDICATES.index, ("eq", "ne", "slt", "ult", "ugt"))
"""Predicates of arith.cmpi."""


@frozen
class _OffsetSum:
    """A value = base + constants."""

    base: SSAValue
    constants: Numbers


def rewrite_overflow_checks(module: ModuleOp) -> bool:
    """Rewrites overflow checks into the one form that the offline compiler of 2022 compiles. Returns whether there
    was one."""
    changed = False
    for op in list(module.walk()):
        if isinstance(op, arith.CmpiOp) and isinstance(
            element(op.lhs.type), IndexType | IntegerType
        ):
            changed |= _rewrite(op)
    return changed


def _rewrite(op: arith.CmpiOp) -> bool:
    predicate, x, n = op.predicate.value.data, op.lhs, op.rhs
    if predicate == UGT:
        predicate, x, n = ULT, n, x
    if predicate in (EQ, NE):
        found = _at_zero(x, n, predicate) or _at_zero(n, x, predicate)
    elif predicate == ULT:
        extents = numbers(n)
        found = next((s for s in _sums(x) if _same(n, s.base) or _meets(s, extents)), None)
        if found is None and not _adds(x, n):
            return False
    else:
        return False
    if found is not None and not any(found.constants):
        return False
    if found is None or isinstance(x.type, VectorType):
        if predicate != ULT:  # of a vector: rare enough
            return False
        _as_signed(op, x, n)
        return True
    at = Before(op)
    limit = at.constant(x.type, -found.constants[0] - 1)
    at.replace(at.add(arith.CmpiOp(found.base, limit, UGT)))
    return True


def _at_zero(x: SSAValue, n: SSAValue, predicate: int) -> _OffsetSum | None:
    """A comparison of a scalar with a constant that asks whether a neighbour of the number wraps."""
    number = constant(n)
    if predicate == EQ and number == 0:
        return next((s for s in _sums(x) if s.constants == (1,)), None)
    if predicate == EQ and number == -1 and _has_sum(x, 1):
        return _OffsetSum(x, (1,))
    if predicate == NE and number == 0 and _has_sum(x, -1):
        return _OffsetSum(x, (-1,))
    return None


def _sums(value: SSAValue) -> Iterator[_OffsetSum]:
    """The value as a number and constants, link by link of a chain of additions."""
    base, total = scalar_of(value), (0,)
    while isinstance(base.owner, arith.AddiOp | arith.SubiOp):
        op = base.owner
        left, right = numbers(op.lhs), numbers(op.rhs)
        if right is not None:
            sign = 1 if isinstance(op, arith.AddiOp) else -1
            base, total = scalar_of(op.lhs), _added(total, right, sign)
        elif left is not None and isinstance(op, arith.AddiOp):
            base, total = scalar_of(op.rhs), _added(total, left, 1)
        else:
            return
        yield _OffsetSum(base, total)


def _added(a: Numbers, b: Numbers, sign: int) -> Numbers:
    return tuple(x + sign * y for x, y in together(a, b))


def _meets(found: _OffsetSum, extents: Numbers | None) -> bool:
    """Is one of the constants the extent of its element?"""
    return extents is not None and any(x == y for x, y in together(found.constants, extents))


def _has_sum(value: SSAValue, constant: int) -> bool:
    """Is value + constant computed somewhere?"""
    for use in value.uses:
        if isinstance(use.operation, arith.AddiOp | arith.SubiOp):
            first = next(_sums(use.operation.results[0]), None)
            if first is not None and _same(first.base, value) and first.constants == (constant,):
                return True
    return False


def _adds(x: SSAValue, n: SSAValue) -> bool:
    """x = n + something, or something + n?"""
    add = scalar_of(x).owner
    return isinstance(add, arith.AddiOp) and (_same(add.lhs, n) or _same(add.rhs, n))


def _as_signed(op: arith.CmpiOp, x: SSAValue, n: SSAValue) -> None:
    """x < n, unsigned: the signed answer, turned round where one of the two numbers is negative."""
    at = Before(op)
    zero = at.constant(x.type, 0)
    less = at.add(arith.CmpiOp(x, n, SLT))
    known = numbers(n)
    for number in (x,) if known is not None and min(known) >= 0 else (x, n):
        negative = at.add(arith.CmpiOp(number, zero, SLT))
        less = at.add(arith.XOrIOp(less, negative))
    at.replace(less)


def _same(a: SSAValue, b: SSAValue) -> bool:
    a, b = scalar_of(a), scalar_of(b)
    known = numbers(a)
    return a is b or (known is not None and known == numbers(b))
