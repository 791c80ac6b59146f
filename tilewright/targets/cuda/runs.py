"""Runs: which neighbours among a vector's elements are consecutive numbers, or the same.

    %r = xetile.broadcast %rows [1]          the same along the last dimension, a multiple of what divides %rows
    %c = arith.addi %step, %k                consecutive, from a multiple of what divides %k
    %o = arith.addi %r, %c                   consecutive: a row of an array, found by its number

A gather whose offsets run so is a load of whole vectors: rows of a table by index, tiles addressed by hand.
"""

from __future__ import annotations

from math import gcd, prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import OpResult, SSAValue

from tilewright.codegen.tiles import itemsize
from tilewright.dialects import xetile as xt
from tilewright.frozen import frozen
from tilewright.passes.fold_identities import splat
from tilewright.passes.integers import ANY, divisor
from tilewright.passes.tile_origin import WIDEST, tile_alignment

_CASTS = frozenset(("arith.index_cast", "arith.extsi", "arith.extui"))
_LEFT_VARIES = frozenset((2, 5, 6, 9))
"""Predicates `lhs < rhs` and `lhs >= rhs`: they change at a multiple of what divides both."""
_RIGHT_VARIES = frozenset((3, 4, 7, 8))


@frozen
class ArithmeticRun:
    """Along the last dimension, in each aligned block of ``length`` elements: x, x + slope, x + 2 slope, ..."""

    length: int
    slope: int = 0
    divisor: int = 1
    """Of the first element of every block; `ANY` where all are zero."""


def run_of(value: SSAValue) -> ArithmeticRun:
    """What is known of a vector of integers, or of a mask (whose elements are the same in a block)."""
    assert isinstance(value.type, VectorType)
    last = value.type.get_shape()[-1]
    if (number := splat(value)) is not None:
        return ArithmeticRun(last, 0, divisor(number) if isinstance(number, int) else 1)
    if not isinstance(value, OpResult):
        return ArithmeticRun(1)
    op = value.op
    if op.name == "vector.step":
        return ArithmeticRun(last, 1, ANY)
    if op.name in _CASTS:
        return run_of(op.operands[0])
    if op.name in ("vector.broadcast", "xetile.broadcast"):
        source = op.operands[0]
        if not isinstance(source.type, VectorType):
            return ArithmeticRun(last, 0, divisor(source))
        found, given = run_of(source), source.type.get_shape()[-1]
        return (
            found
            if given == last
            else ArithmeticRun(last, 0, found.divisor)
            if given == 1
            else ArithmeticRun(1)
        )
    if op.name == "vector.shape_cast":
        source = op.operands[0]
        assert isinstance(source.type, VectorType)
        found = run_of(source)
        if source.type.get_shape()[-1] == last:
            return found
        # Single elements: each is at most so many steps from the first of its block.
        return (
            ArithmeticRun(1, 0, gcd(found.divisor, found.slope)) if last == 1 else ArithmeticRun(1)
        )
    if isinstance(op, arith.AddiOp | arith.SubiOp):
        return _sum(run_of(op.lhs), run_of(op.rhs), 1 if isinstance(op, arith.AddiOp) else -1)
    if isinstance(op, arith.MuliOp):
        a, b = run_of(op.lhs), run_of(op.rhs)
        if a.slope == b.slope == 0:
            zero = ANY in (a.divisor, b.divisor)
            return ArithmeticRun(gcd(a.length, b.length), 0, ANY if zero else a.divisor * b.divisor)
    if isinstance(op, arith.AndIOp | arith.OrIOp):
        a, b = run_of(op.lhs), run_of(op.rhs)
        if a.slope == b.slope == 0:
            return ArithmeticRun(gcd(a.length, b.length))
    if isinstance(op, arith.CmpiOp):
        return _compared(op)
    return ArithmeticRun(1)


def _compared(op: arith.CmpiOp) -> ArithmeticRun:
    a, b = run_of(op.lhs), run_of(op.rhs)
    length = gcd(a.length, b.length)
    if a.slope == b.slope == 0:
        return ArithmeticRun(length)
    how = op.predicate.value.data
    along = (a.slope, b.slope, how in _LEFT_VARIES), (b.slope, a.slope, how in _RIGHT_VARIES)
    if (1, 0, True) in along:
        return ArithmeticRun(gcd(length, gcd(a.divisor, b.divisor)))
    return ArithmeticRun(1)


def vector_of(tile: SSAValue, mask: SSAValue | None) -> int:
    """Elements along the last dimension that one aligned access of a scattered tile moves: 1 where nothing is known."""
    assert isinstance(tile.type, xt.TileType)
    origin = tile.owner
    if not isinstance(origin, xt.InitTileOp) or origin.offset_vector is None:
        return 1
    offsets = run_of(origin.offset_vector)
    if offsets.slope != 1:
        return 1
    size = itemsize(origin.tile_type.element_type)
    same = run_of(mask).length if mask is not None else 0
    known = (offsets.length, offsets.divisor, same, _count_divisor(origin.source))
    width = WIDEST // size
    while width > 1 and (tile_alignment(tile, size) % (width * size) or gcd(*known) % width):
        width //= 2
    return max(1, width)


def _sum(a: ArithmeticRun, b: ArithmeticRun, sign: int = 1) -> ArithmeticRun:
    return ArithmeticRun(
        gcd(a.length, b.length), a.slope + sign * b.slope, gcd(a.divisor, b.divisor)
    )


def _count_divisor(source: SSAValue) -> int:
    """What divides the number of elements of an array."""
    if not isinstance(source.type, MemRefType):
        return 1
    shape = source.type.get_shape()
    if all(n >= 0 for n in shape):
        return divisor(prod(shape))
    if isinstance(source.owner, memref.ReinterpretCastOp) and len(source.owner.sizes) == 1:
        return divisor(source.owner.sizes[0])
    return 1
